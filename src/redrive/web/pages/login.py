"""Logging in and out: by name and password, to the page that was asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from redrive.clock import Clock
from redrive.errors import LoginThrottledError
from redrive.model.access import NewSession
from redrive.web.cookies import FORM, SESSION, drop_cookie, read_cookie, root_of, set_cookie
from redrive.web.guard import LOOPBACK, host_name
from redrive.web.identity import CALLER, Identity
from redrive.web.pages.forms import read_form
from redrive.web.pages.page import Page
from redrive.web.problem import ProblemError
from redrive.web.route import App

__all__ = ["Login", "LoginView", "login_path", "safe_path"]

_LONGEST_NAME = 100
_LONGEST_PATH = 2_000
_WRONG = "This name and this password do not belong together."
_PLAIN = (
    "This connection is not encrypted: whoever is on its way reads your password. Put a proxy with "
    "TLS before the server, and name it with --trust-proxy."
)
_log = logging.getLogger("redrive.web")


class LoginView(msgspec.Struct, frozen=True, kw_only=True):
    """The form: where it leads, what was wrong, and what is wrong with the connection."""

    to: str
    name: str = ""
    trouble: str = ""
    warning: str = ""


Show = Callable[[Request, Page, HTTPStatus], Response]
"""Makes an answer of a page for somebody who is not known yet."""


class Login:
    """Opens and closes the sessions of users."""

    def __init__(self, app: App, *, identity: Identity, clock: Clock, show: Show) -> None:
        self._app = app
        self._identity = identity
        self._clock = clock
        self._show = show

    async def ask(self, request: Request) -> Response:
        """Show the form to who is not logged in, and lead others on."""
        to = safe_path(request.query_params.get("to", ""))
        try:
            await self._identity.visitor(request)
        except ProblemError as refused:
            if refused.status is not HTTPStatus.UNAUTHORIZED:
                raise
            return self._show(request, _page(request, to), HTTPStatus.OK)
        return _lead(request, to)

    async def log_in(self, request: Request) -> Response:
        """Let somebody in, with a session that nobody can have known before."""
        form = await read_form(request, in_session=False)
        name, to = form.get("name", "")[:_LONGEST_NAME], safe_path(form.get("to", ""))
        address = "?" if request.client is None else request.client.host
        try:
            opened = await self._open(name, form.get("password", ""), address)
        except LoginThrottledError as refused:
            _log.warning("Too many tries to log in", extra={"client": address})
            page = _page(request, to, name=name, trouble=str(refused))
            response = self._show(request, page, HTTPStatus.TOO_MANY_REQUESTS)
            response.headers["retry-after"] = self._seconds_until(refused.until)
            return response
        if opened is None:
            _log.warning("A login failed", extra={"client": address})
            page = _page(request, to, name=name, trouble=_WRONG)
            return self._show(request, page, HTTPStatus.FORBIDDEN)
        await self._app.operations.close_session(read_cookie(request, SESSION))
        request.scope[CALLER] = opened.session.by
        response = _lead(request, to)
        set_cookie(request, response, SESSION, opened.secret)
        drop_cookie(request, response, FORM)
        return response

    async def log_out(self, request: Request) -> Response:
        """End the session, for all servers."""
        caller = await self._identity.visitor(request)
        await read_form(request, in_session=caller.has_session)
        await self._app.operations.close_session(read_cookie(request, SESSION))
        response = RedirectResponse(f"{root_of(request)}/login", HTTPStatus.SEE_OTHER)
        drop_cookie(request, response, SESSION)
        return response

    async def _open(self, name: str, password: str, address: str) -> NewSession | None:
        operations = self._app.operations
        user = await operations.check_password(name, password, address=address)
        return None if user is None else await operations.open_session(user)

    def _seconds_until(self, until: datetime | None) -> str:
        wait = 0.0 if until is None else (until - self._clock.now()).total_seconds()
        return str(max(1, int(wait) + 1))


def login_path(request: Request) -> str:
    """Return where somebody logs in who then comes back to the page that they ask for now."""
    query = f"?{request.url.query}" if request.url.query else ""
    to = safe_path(request.url.path.removeprefix(root_of(request)) + query)
    return "/login" if to == "/" else f"/login?{urlencode({'to': to})}"


def safe_path(to: str) -> str:
    """Return a path of this server, whatever was asked for: no other site, and no login again.

    >>> safe_path("/deliveries/7?x=1"), safe_path("//evil.example"), safe_path("https://evil.example")
    ('/deliveries/7?x=1', '/', '/')
    """
    is_own = (
        to.startswith("/")
        and not to.startswith("//")
        and len(to) <= _LONGEST_PATH
        and "\\" not in to
        and all(" " < letter < "\x7f" for letter in to)
        and not to.startswith(("/login", "/logout"))
    )
    return to if is_own else "/"


def _page(request: Request, to: str, *, name: str = "", trouble: str = "") -> Page:
    is_plain = request.url.scheme != "https"
    is_here = host_name(request.headers.get("host", "")) in LOOPBACK
    warning = _PLAIN if is_plain and not is_here else ""
    model = LoginView(to=to, name=name, trouble=trouble, warning=warning)
    return Page(template="login.html", title="Log in", model=model)


def _lead(request: Request, to: str) -> Response:
    return RedirectResponse(root_of(request) + to, HTTPStatus.SEE_OTHER)
