"""A person with a browser without JavaScript: follows links, and sends the forms a page has."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.types import ASGIApp

from tests.web.client import Answer, Client


class Form(NamedTuple):
    action: str
    method: str
    fields: dict[str, str]


class Document(HTMLParser):
    """The text, links, forms and tags of a page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.links: dict[str, str] = {}
        self.forms: list[Form] = []
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self._link = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.attributes += given
        if tag == "a":
            self._link = given["href"]
        elif tag == "form":
            self.forms.append(Form(given["action"], given["method"], {}))
        elif tag == "input" and given.get("type") != "checkbox":
            self.forms[-1].fields[given["name"]] = given.get("value", "")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._link and data.strip():
            self.links.setdefault(data.strip(), self._link)

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._link = ""

    def form(self, action: str) -> Form:
        return next(one for one in self.forms if one.action.endswith(action))


class Browser:
    """Keeps cookies, follows redirects, and counts what a person does."""

    def __init__(self, asgi: ASGIApp, *, token: str | None = None) -> None:
        self._client = Client(asgi, token=token)
        self._cookies: dict[str, str] = {}
        self.clicks = 0
        self.answer = Answer(0, {}, b"")

    @property
    def document(self) -> Document:
        return Document(self.answer.body.decode())

    async def open(self, path: str) -> Document:
        self.clicks += 1
        return await self._send("GET", path)

    async def click(self, link: str) -> Document:
        return await self.open(self.document.links[link])

    async def submit(self, action: str, **typed: str) -> Document:
        self.clicks += 1
        form = self.document.form(action)
        return await self._send("POST", form.action, {**form.fields, **typed})

    async def _send(self, method: str, path: str, fields: dict[str, str] | None = None) -> Document:
        headers = {"cookie": "; ".join(f"{k}={v}" for k, v in self._cookies.items())}
        if fields is not None:
            headers |= {
                "content-type": "application/x-www-form-urlencoded",
                "origin": "http://localhost",
                "sec-fetch-site": "same-origin",
            }
        body = b"" if fields is None else urlencode(fields).encode()
        self.answer = await self._client.send(method, path, body=body, headers=headers)
        if cookie := self.answer.headers.get("set-cookie"):
            name, _, value = cookie.partition(";")[0].partition("=")
            self._cookies[name] = value
        if self.answer.status == 303:
            return await self._send("GET", self.answer.headers["location"])
        return self.document
