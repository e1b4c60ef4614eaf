"""The site: lets visitors in, checks that a form is one of ours, and answers with pages."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as StarletteRoute

from redrive.clock import Clock, Entropy
from redrive.web.api import REQUEST_SECONDS, at_route, note_failure, read_body
from redrive.web.caller import Caller
from redrive.web.pages.page import Page, PageRoute, Visit
from redrive.web.pages.rendering import STYLE, Renderer
from redrive.web.pages.table import PAGES
from redrive.web.problem import Problem, ProblemError, problem_of
from redrive.web.route import App

__all__ = ["Identify", "Site"]

Identify = Callable[[Request], Awaitable[Caller]]
"""Finds out who asks, or refuses them."""

_FORM = "application/x-www-form-urlencoded"
_LONGEST_FORM = 64 * 1024
_COOKIE = "redrive-form"
_TOKEN_BYTES = 16
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" '
    'rx="8" fill="#2457d6"/><path d="M10 21a8 8 0 1 1 3 3.5M10 27v-6h6" fill="none" '
    'stroke="#fff" stroke-width="3" stroke-linecap="round" stroke-linejoin="round"/></svg>'
)


class Site:
    """Answers the addresses of the table of pages.

    A form carries a token that is also in a cookie. Only a page of this server knows both.
    """

    def __init__(self, app: App, *, identify: Identify, clock: Clock, entropy: Entropy) -> None:
        self._app = app
        self._identify = identify
        self._clock = clock
        self._entropy = entropy
        self._renderer = Renderer()

    def routes(self) -> list[StarletteRoute]:
        """Return the routes of all pages."""
        shown = [
            StarletteRoute(one.path, at_route(one.path, self._answering(one)), methods=[one.method])
            for one in PAGES
        ]
        assets = (("/assets/style.css", STYLE, "text/css"), ("/assets/icon.svg", _ICON, _SVG))
        return shown + [
            StarletteRoute(path, at_route(path, _telling(text, kind)))
            for path, text, kind in assets
        ]

    def _answering(self, route: PageRoute) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            token = request.cookies.get(_COOKIE, "")
            if len(token) != 2 * _TOKEN_BYTES:
                token = self._entropy.random_bytes(_TOKEN_BYTES).hex()
            try:
                caller = await self._identify(request)
                visit = await self._visit(request, route, caller)
                async with asyncio.timeout(REQUEST_SECONDS):
                    shown = await route.view(visit)
            except ClientDisconnect:
                return Response(status_code=HTTPStatus.BAD_REQUEST)
            except Exception as error:  # noqa: BLE001 - each has an answer
                return self._refuse(request, error)
            if not isinstance(shown, Page):
                return RedirectResponse(_root(request) + shown.to, HTTPStatus.SEE_OTHER)
            html = self._render(request, shown, visit, token)
            response = Response(html, headers=_HEADERS, media_type=_HTML)
            response.set_cookie(
                _COOKIE,
                token,
                path=_root(request) or "/",
                secure=request.url.scheme == "https",
                httponly=True,
                samesite="lax",
            )
            return response

        return answer

    async def _visit(self, request: Request, route: PageRoute, caller: Caller) -> Visit:
        if caller.is_limited:
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                "forbidden",
                "The pages show the whole store, and you may see a part of it only; what is "
                "yours is in the API, see /docs.",
            )
        caller.check(route.operation)
        return Visit(
            operations=self._app.operations,
            caller=caller,
            path=request.path_params,
            query=dict(request.query_params),
            form={} if route.method == "GET" else await _read_form(request),
            now=self._clock.now(),
        )

    def _render(self, request: Request, page: Page, visit: Visit, token: str) -> str:
        return self._renderer.render(
            page.template,
            page=page,
            model=page.model,
            now=visit.now,
            may=visit.may,
            by=visit.by,
            root=_root(request),
            place=request.url.path.removeprefix(_root(request)),
            token=token,
        )

    def _refuse(self, request: Request, error: Exception) -> Response:
        refused = problem_of(error, is_limited=False)
        note_failure(refused, error)
        problem = refused.problem
        if refused.status is HTTPStatus.UNAUTHORIZED:
            problem = Problem(
                type=problem.type, title="Login needed", status=problem.status, detail=_NO_LOGIN
            )
        html = self._renderer.render(
            "problem.html", page=problem, root=_root(request), place="", by="", now=None
        )
        headers = {**_HEADERS, **refused.headers}
        return Response(html, refused.status, headers=headers, media_type=_HTML)


_NO_LOGIN = (
    "These pages need a login, and you have none. Send a token of `redrive token create` as a "
    "Bearer token, such as by the proxy before this server; or serve at 127.0.0.1 with a store "
    "that has no tokens."
)
_HTML, _SVG = "text/html; charset=utf-8", "image/svg+xml"
_HEADERS = {
    "content-security-policy": _POLICY,
    # Without a referrer browsers say that a form comes from nowhere, and the guard refuses it.
    "referrer-policy": "same-origin",
}


async def _read_form(request: Request) -> dict[str, str]:
    body = await read_body(request, _LONGEST_FORM, kind=_FORM)
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError:
        raise ProblemError(
            HTTPStatus.BAD_REQUEST, "bad-request", "The form cannot be read; load the page again."
        ) from None
    form = dict(pairs)
    given, expected = form.get("token", ""), request.cookies.get(_COOKIE, "")
    is_ours = len(expected) == 2 * _TOKEN_BYTES and hmac.compare_digest(
        given.encode(), expected.encode()
    )
    if len(form) < len(pairs) or not is_ours:
        raise ProblemError(
            HTTPStatus.FORBIDDEN,
            "forged",
            "Nothing was done: the form does not come from a page that this server has shown you. "
            "Load the page again, with cookies allowed, and repeat it there.",
        )
    return form


def _telling(text: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def tell(_: Request) -> Response:
        return Response(text, media_type=kind, headers={"cache-control": "max-age=300"})

    return tell


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", ""))
