"""Identity: who asks, by an access token, a login session, or the word of a proxy."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request

from redrive.web.caller import LOCAL, Caller, OpenDoor, Turnpike
from redrive.web.cookies import SESSION, read_cookie
from redrive.web.problem import ProblemError
from redrive.web.route import App

__all__ = ["CALLER", "PROXY_USER", "Identity", "shows_token"]

CALLER = "redrive.caller"
"""Who asks, as the log and the metrics are told."""
PROXY_USER = "redrive.user"
"""Whom a proxy has let in that may say so."""

_BEARER = "bearer "
_LONGEST_SECRET = 1_000
_SAFE = ("GET", "HEAD")


class Identity:
    """Finds out who asks.

    Where no login is `needed` everybody who comes so far may do everything, and with a `door` as
    long as that is open.
    """

    def __init__(
        self, app: App, *, needed: bool, door: OpenDoor | None = None, turnpike: Turnpike
    ) -> None:
        self._app = app
        self._needed = needed
        self._door = door
        self._turnpike = turnpike

    async def identify(self, request: Request) -> Caller:
        """Return who calls the API, once they may ask again.

        What a browser sends by itself lets people look, and never act: only a form of ours proves
        that they want to.
        """
        return await self._admit(request, by_browser=request.method in _SAFE)

    async def visitor(self, request: Request) -> Caller:
        """Return who asks for a page, or sends a form that is still to be checked."""
        return await self._admit(request, by_browser=True)

    async def is_open(self) -> bool:
        """Tell whether nobody needs to log in."""
        return not self._needed or (self._door is not None and await self._door.is_open())

    async def _admit(self, request: Request, *, by_browser: bool) -> Caller:
        caller: Caller | None
        if await self.is_open():
            caller = LOCAL
        elif shows_token(request):
            caller = await self._bearer(request.headers["authorization"])
        else:
            caller = await self._person(request) if by_browser else None
        if caller is None:
            raise ProblemError(
                HTTPStatus.UNAUTHORIZED,
                "unauthorized",
                "A token is needed that is neither expired nor revoked: send what "
                "`redrive token create` has shown as a Bearer token, in the Authorization header.",
                www_authenticate="Bearer",
            )
        request.scope[CALLER] = caller.by
        self._turnpike.check(caller)
        return caller

    async def _bearer(self, header: str) -> Caller | None:
        secret = header[len(_BEARER) :].strip()
        if not 0 < len(secret) <= _LONGEST_SECRET:
            return None
        token = await self._app.operations.authenticate(secret)
        return None if token is None else Caller.of(token)

    async def _person(self, request: Request) -> Caller | None:
        name = request.scope.get(PROXY_USER)
        if name:
            return await self._let_in_by_proxy(str(name))
        session = await self._app.operations.session(read_cookie(request, SESSION))
        return None if session is None else Caller.in_session(session)

    async def _let_in_by_proxy(self, name: str) -> Caller:
        user = await self._app.operations.find_user(name)
        if user is None:
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                "forbidden",
                "The proxy says who you are, but nobody has said what you may; an admin does so "
                "with `redrive user add`.",
            )
        return Caller.by_proxy(user)


def shows_token(request: Request) -> bool:
    """Tell whether somebody shows a token; other words in that header are for a proxy before us."""
    return request.headers.get("authorization", "")[: len(_BEARER)].lower() == _BEARER
