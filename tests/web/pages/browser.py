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


def _is_on(given: dict[str, str]) -> bool:
    return "checked" in given


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
        self._field = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.attributes += given
        if tag == "a":
            self._link = given["href"]
        elif tag == "form":
            self.forms.append(Form(given["action"], given["method"], {}))
        elif tag == "input" and (given.get("type") not in ("checkbox", "radio") or _is_on(given)):
            self.forms[-1].fields[given["name"]] = given.get("value", "")
        elif tag in ("textarea", "select"):
            self._field = given["name"]
            self.forms[-1].fields[self._field] = ""
        elif tag == "option" and "selected" in given:
            self.forms[-1].fields[self._field] = given.get("value", "")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.tags[-1:] == ["textarea"] and self._field:
            self.forms[-1].fields[self._field] += data.removeprefix("\n")
        if self._link and data.strip():
            self.links.setdefault(data.strip(), self._link)

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._link = ""
        elif tag in ("textarea", "select"):
            self._field = ""

    def form(self, action: str) -> Form:
        return next(one for one in self.forms if one.action.endswith(action))


class Browser:
    """Keeps cookies, follows redirects, and counts what a person does."""

    def __init__(
        self,
        asgi: ASGIApp,
        *,
        token: str | None = None,
        scheme: str = "http",
        address: str = "127.0.0.1",
    ) -> None:
        self._client = Client(asgi, token=token, scheme=scheme, address=address)
        self._origin = f"{scheme}://localhost"
        self.cookies: dict[str, str] = {}
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

    async def submit(self, action: str, *, by: str = "", **typed: str) -> Document:
        """Send the form of an action; `by` is that of the button, if it has one of its own."""
        self.clicks += 1
        form = self.document.form(action)
        to = form.action.removesuffix(action) + by if by else form.action
        return await self._send("POST", to, {**form.fields, **typed})

    async def _send(self, method: str, path: str, fields: dict[str, str] | None = None) -> Document:
        headers = {"cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())}
        if fields is not None:
            headers |= {
                "content-type": "application/x-www-form-urlencoded",
                "origin": self._origin,
                "sec-fetch-site": "same-origin",
            }
        # Browsers send both characters at the end of a line.
        sent = {name: value.replace("\n", "\r\n") for name, value in (fields or {}).items()}
        body = urlencode(sent).encode()
        self.answer = await self._client.send(method, path, body=body, headers=headers)
        for cookie in self.answer.cookies:
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
            if "max-age=0" in cookie.lower():
                del self.cookies[name]
        if self.answer.status == 303:
            return await self._send("GET", self.answer.headers["location"])
        return self.document
