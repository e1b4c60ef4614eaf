"""The site: lets visitors in, checks that a form is one of ours, and answers with pages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as StarletteRoute

from redrive.clock import Clock, Entropy
from redrive.errors import NotFoundError
from redrive.model.setting import SettingInForce
from redrive.web.api import REQUEST_SECONDS, ROUTE, Answering, at_route, note_failure
from redrive.web.caller import Caller
from redrive.web.cookies import FORM, SAID, drop_cookie, read_cookie, root_of, set_cookie
from redrive.web.identity import Identity, shows_token
from redrive.web.limited import Limited
from redrive.web.pages.forms import TOKEN_BYTES, form_token, read_form
from redrive.web.pages.live import EVENTS, LivePages
from redrive.web.pages.login import Login, login_path
from redrive.web.pages.page import Page, PageRoute, Visit
from redrive.web.pages.readings import Readings
from redrive.web.pages.rendering import SCRIPT, STYLE, Renderer, ago
from redrive.web.pages.table import NAVIGATION, PAGES
from redrive.web.problem import Problem, problem_of
from redrive.web.route import App

if TYPE_CHECKING:
    from redrive.operations import Operations

__all__ = ["Site"]

_VISITOR = "redrive.visitor"
_SAID_SECONDS = 60
_OLD = timedelta(seconds=5)
_LONGEST_SAID = 500
_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" '
    'rx="8" fill="#2457d6"/><path d="M10 21a8 8 0 1 1 3 3.5M10 27v-6h6" fill="none" '
    'stroke="#fff" stroke-width="3" stroke-linecap="round" stroke-linejoin="round"/></svg>'
)


class Site:
    """Answers the addresses of the table of pages, and lets people log in."""

    def __init__(
        self,
        app: App,
        *,
        identity: Identity,
        clock: Clock,
        entropy: Entropy,
        settings: Callable[[], Sequence[SettingInForce]],
        is_over: Callable[[], object],
    ) -> None:
        self._app = app
        self._settings = settings
        self._identity = identity
        self._clock = clock
        self._entropy = entropy
        self._renderer = Renderer()
        self._live = LivePages(clock, is_over=is_over)
        self._readings = Readings(clock)
        self._login = Login(app, identity=identity, clock=clock, show=self._show_stranger)

    def routes(self) -> list[StarletteRoute]:
        """Return the routes of all pages."""
        login = self._login
        doors = (("GET", "/login", login.ask), ("POST", "/login", login.log_in))
        shown = [
            *((one.method, one.path, self._page(one)) for one in PAGES),
            *((method, path, self._safely(view)) for method, path, view in doors),
            ("POST", "/logout", self._safely(login.log_out)),
        ]
        assets = (
            ("/assets/style.css", STYLE, "text/css"),
            ("/assets/live.js", SCRIPT, "text/javascript"),
            ("/assets/icon.svg", _ICON, _SVG),
        )
        return [
            *(
                StarletteRoute(path, at_route(path, answer), methods=[method])
                for method, path, answer in shown
            ),
            *(
                StarletteRoute(path, at_route(path, _telling(text, kind)))
                for path, text, kind in assets
            ),
        ]

    def forget(self) -> None:
        """Show what is there now: somebody has acted."""
        self._readings.forget()
        self._live.forget()

    async def end(self) -> None:
        """Give up what is being read."""
        await self._readings.end()

    def _page(self, route: PageRoute) -> Answering:
        async def answer(request: Request) -> Response:
            caller = request.scope[_VISITOR] = await self._identity.visitor(request)
            if route.path == "/" and (to := _first_page(caller)) != "/":
                return RedirectResponse(root_of(request) + to, HTTPStatus.SEE_OTHER)
            if _is_listening(request) and route.method == "GET":
                return self._listen(request, route, caller)
            visit = await self._visit(request, route, caller)
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    shown = await route.view(visit)
            finally:
                if route.method != "GET":
                    self.forget()
            if not isinstance(shown, Page):
                moved = RedirectResponse(root_of(request) + shown.to, HTTPStatus.SEE_OTHER)
                if shown.said:
                    said = quote(shown.said[:_LONGEST_SAID])
                    set_cookie(request, moved, SAID, said, seconds=_SAID_SECONDS)
                return moved
            return self._show(request, shown, caller=caller, visit=visit)

        return self._safely(answer)

    def _listen(self, request: Request, route: PageRoute, caller: Caller) -> Response:
        """Return what keeps a page up to date: parts of it that are as for all of the same role."""
        caller.check(route.operation)
        if caller.is_limited:  # browsers do not ask again after this
            return Response(status_code=HTTPStatus.NO_CONTENT)
        path, query, root = request.url.path, request.url.query, root_of(request)
        request.scope[ROUTE] = f"{route.path} live"

        async def read() -> dict[str, object]:
            visit = await self._visit(request, route, caller)
            async with asyncio.timeout(REQUEST_SECONDS):
                page = await route.view(visit)
            if not isinstance(page, Page):
                raise NotFoundError("There is nothing to look at here.")
            html = self._rendered(request, page, caller=caller, visit=visit)
            main = html.partition("<main")[2].partition(">")[2].partition("</main>")[0]
            told = {"now": visit.as_of, "age": _age(visit), "is_live": page.is_live}
            return {"html": main, **told}

        return self._live.answer((path, query, root, caller.grant.role), read)

    def _safely(self, answer: Answering) -> Answering:
        """Return the same, with a page for whatever goes wrong."""

        async def safely(request: Request) -> Response:
            try:
                return await answer(request)
            except ClientDisconnect:
                return Response(status_code=HTTPStatus.BAD_REQUEST)
            except Exception as error:  # noqa: BLE001 - each has an answer
                return self._refuse(request, error)

        return safely

    async def _visit(self, request: Request, route: PageRoute, caller: Caller) -> Visit:
        caller.check(route.operation)
        is_act = route.method != "GET"
        look = self._readings.look()
        operations = self._operations_of(caller)
        return Visit(
            # Who acts goes by what is there now; and so does who sees a part only.
            operations=operations if is_act or caller.is_limited else look.over(operations),
            look=look,
            caller=caller,
            path=request.path_params,
            query=dict(request.query_params),
            form=await read_form(request, in_session=caller.has_session, longest=route.longest)
            if is_act
            else {},
            now=self._clock.now(),
            settings=self._settings(),
        )

    def _operations_of(self, caller: Caller) -> Operations:
        operations = self._app.operations
        # It has all of the names, and refuses what cannot be limited.
        return cast("Operations", Limited(operations, caller)) if caller.is_limited else operations

    def _show_stranger(self, request: Request, page: Page, status: HTTPStatus) -> Response:
        return self._show(request, page, caller=None, visit=None, status=status)

    def _show(
        self,
        request: Request,
        page: Page,
        *,
        caller: Caller | None,
        visit: Visit | None,
        status: HTTPStatus | None = None,
    ) -> Response:
        in_session = caller is not None and caller.has_session
        token = form_token(request, in_session=in_session)
        said = read_cookie(request, SAID)
        fresh = "" if token else self._entropy.random_bytes(TOKEN_BYTES).hex()
        html = self._rendered(
            request,
            page,
            caller=caller,
            visit=visit,
            token=token or fresh,
            said=unquote(said)[:_LONGEST_SAID],
        )
        response = Response(html, status or page.status, headers=_HEADERS, media_type=_HTML)
        if said:
            drop_cookie(request, response, SAID)
        if fresh:
            set_cookie(request, response, FORM, fresh)
        return response

    def _rendered(
        self,
        request: Request,
        page: Page,
        *,
        caller: Caller | None,
        visit: Visit | None,
        token: str = "",
        said: str = "",
    ) -> str:
        is_limited = caller is not None and caller.is_limited
        return self._renderer.render(
            page.template,
            page=page,
            model=page.model,
            now=None if visit is None else visit.now,
            as_of=None if visit is None else visit.as_of,
            age="" if visit is None else _age(visit),
            may=_may(caller),
            by="" if caller is None else caller.by,
            has_session=caller is not None and caller.has_session,
            root=root_of(request),
            place=request.url.path.removeprefix(root_of(request)),
            token=token,
            nav=NAVIGATION,
            said=said,
            is_live=page.is_live and not is_limited,
        )

    def _refuse(self, request: Request, error: Exception) -> Response:
        caller: Caller | None = request.scope.get(_VISITOR)
        refused = problem_of(error, is_limited=caller is not None and caller.is_limited)
        note_failure(refused, error)
        is_unknown = refused.status is HTTPStatus.UNAUTHORIZED
        if is_unknown and request.method in _SAFE and not shows_token(request):
            return RedirectResponse(root_of(request) + login_path(request), HTTPStatus.SEE_OTHER)
        problem = refused.problem
        if is_unknown:
            problem = Problem(
                type=problem.type, title="Login needed", status=problem.status, detail=_NO_LOGIN
            )
        html = self._renderer.render(
            "problem.html",
            page=problem,
            root=root_of(request),
            place="",
            by="",
            now=None,
            as_of=None,
            nav=NAVIGATION,
            may=_may(caller),
            has_session=False,
            said="",
            is_live=False,
        )
        headers = {**_HEADERS, **refused.headers}
        return Response(html, refused.status, headers=headers, media_type=_HTML)


_NO_LOGIN = (
    "Nothing was done, because you are not logged in any more, or your token has ended. Log in, "
    "and do it again."
)
_SAFE = ("GET", "HEAD")
_HTML, _SVG = "text/html; charset=utf-8", "image/svg+xml"
_HEADERS = {
    "content-security-policy": _POLICY,
    # Without a referrer browsers say that a form comes from nowhere, and the guard refuses it.
    "referrer-policy": "same-origin",
}


def _telling(text: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def tell(_: Request) -> Response:
        return Response(text, media_type=kind, headers={"cache-control": "max-age=300"})

    return tell


def _age(visit: Visit) -> str:
    """Say how old what is shown is, if that is worth a word."""
    passed = visit.now - visit.as_of
    return ago(visit.as_of, visit.now) if passed >= _OLD else ""


def _is_listening(request: Request) -> bool:
    return EVENTS in request.headers.get("accept", "")


def _first_page(caller: Caller) -> str:
    """Return where somebody begins; who may see nothing at all is told so at the overview."""
    return next((to for to, _, operation in NAVIGATION if caller.may(operation)), "/")


def _may(caller: Caller | None) -> Callable[[str], bool]:
    return (lambda _: False) if caller is None else caller.may
