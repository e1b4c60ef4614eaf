"""The API: leads a request from its caller to its endpoint, and the result back."""

from __future__ import annotations

import asyncio
import difflib
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from redrive.clock import Clock
from redrive.policies.display import escape_encoded
from redrive.web.caller import Caller
from redrive.web.problem import MEDIA_TYPE, ProblemError, problem_of
from redrive.web.route import App, Call, Route

__all__ = [
    "LONGEST_BODY",
    "REQUEST_SECONDS",
    "ROUTE",
    "Answering",
    "Api",
    "Identify",
    "answer_problem",
    "at_route",
    "note_failure",
    "read_body",
]

ROUTE = "redrive.route"
"""The row of a table that a request fits, for the log and the metrics."""

LONGEST_BODY = 8 * 2**20
_BODY_SECONDS = 10.0
REQUEST_SECONDS = 30.0
"""How long a request may take."""
_JSON = "application/json"
_MOST_DIGITS = 18
_MOST_UNREAD = 64 * 2**20
_ESCAPED_COLON = rb"\u003"

_log = logging.getLogger("redrive.web")

Answering = Callable[[Request], Awaitable[Response]]
Identify = Callable[[Request], Awaitable[Caller]]
"""Finds out who asks, or refuses them."""


class Api:
    """Answers the routes of the table."""

    def __init__(
        self,
        app: App,
        *,
        clock: Clock,
        identify: Identify,
        acted: Callable[[], None],
        longest_body: int = LONGEST_BODY,
    ) -> None:
        self._app = app
        self._clock = clock
        self.identify = identify
        self._acted = acted
        self._longest_body = longest_body

    def endpoint(self, route: Route) -> Answering:
        """Return what answers the requests of a route."""

        async def answer(request: Request) -> Response:
            caller: Caller | None = None
            try:
                caller = await self.identify(request)
                call = self._call(request, route, caller)
                given = await self._read(request, route)
                async with asyncio.timeout(REQUEST_SECONDS):
                    result = await route.endpoint(call, given)
                if route.is_act:
                    self._acted()
            except ClientDisconnect:
                return Response(status_code=HTTPStatus.BAD_REQUEST)
            except Exception as error:  # noqa: BLE001 - each has an answer
                return answer_problem(error, is_limited=caller is not None and caller.is_limited)
            told = escape_encoded(msgspec.json.encode(result))
            return Response(told, headers=call.headers, media_type=_JSON)

        return at_route(route.path, answer)

    def _call(self, request: Request, route: Route, caller: Caller) -> Call:
        caller.check(route.operation)
        return Call(
            app=self._app,
            caller=caller,
            operation=route.operation,
            path=request.path_params,
            clock=self._clock,
            idempotency_key=request.headers.get("idempotency-key"),
            if_match=request.headers.get("if-match"),
        )

    async def _read(self, request: Request, route: Route) -> msgspec.Struct:
        if not route.is_unsafe:
            return _read_query(request, route.given)
        if request.scope.get("query_string"):
            raise _bad("This takes no parameters in its URL; write them into the body.")
        body = await read_body(request, self._longest_body)
        return read_json(body or b"{}", route.given)


def at_route(path: str, answering: Answering) -> Answering:
    """Return the same, with the route noted for the log and the metrics."""

    async def answer(request: Request) -> Response:
        request.scope[ROUTE] = path
        return await answering(request)

    return answer


async def read_body(request: Request, longest: int, *, kind: str | None = _JSON) -> bytes:
    """Return the body of a request, unless it is too long, too slow, or of another kind."""
    declared = request.headers.get("content-length", "0")
    is_number = declared.isascii() and declared.isdigit() and len(declared) <= _MOST_DIGITS
    is_too_long = not is_number or int(declared) > longest
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                is_too_long |= size > longest
                if not is_too_long:
                    body += chunk
                # Who is hung up on while they send does not hear why, so it is heard to its end.
                elif size > longest + _MOST_UNREAD:
                    break
    except TimeoutError:
        raise ProblemError(
            HTTPStatus.REQUEST_TIMEOUT,
            "body-too-slow",
            f"The body did not come within {_BODY_SECONDS:g} seconds; send it at once.",
            connection="close",
        ) from None
    if is_too_long:
        raise _too_long(longest)
    said = request.headers.get("content-type", "").partition(";")[0].strip()
    if body and kind not in (None, said):
        name = "JSON" if kind == _JSON else "a form"
        raise ProblemError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "not-json" if kind == _JSON else "not-a-form",
            f"The body has to be {name}, and to say so: Content-Type: {kind}.",
        )
    return bytes(body)


def _too_long(longest: int) -> ProblemError:
    return ProblemError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body-too-large",
        f"The body is longer than {longest:,} bytes; send less at once.",
        connection="close",
    )


def read_json(body: bytes, kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Read a body; a name that stands twice in it would mean different things to two readers."""
    try:
        if not _says_all_once(body):
            json.loads(body, object_pairs_hook=_once)
        return msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise _bad("The body has lists or objects too deep within each other.") from None
    except (ValueError, msgspec.DecodeError) as error:
        raise _bad(f"The body cannot be read: {error}{_nearest(error, kind)}.") from None


def _says_all_once(body: bytes) -> bool:
    """Tell at little cost whether no name stands twice; if it cannot tell, it says no.

    Whoever reads a name twice keeps one of the two, and so writes fewer colons than there were.
    Only a colon that was escaped, in a text, makes them more again.
    """
    if _ESCAPED_COLON in body:
        return False
    try:
        written = msgspec.json.encode(msgspec.json.decode(body))
    except (ValueError, RecursionError):
        return False
    return written.count(b":") == body.count(b":")


def _once(pairs: Sequence[tuple[str, object]]) -> None:
    if len(pairs) > 1 and len({name for name, _ in pairs}) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice[:100]!r} stands twice in one object")


def _read_query(request: Request, kind: type[msgspec.Struct]) -> msgspec.Struct:
    given: dict[str, object] = {}
    hints = {one.name: one for one in msgspec.structs.fields(kind)}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        field = hints.get(name)
        if field is None:
            choices = difflib.get_close_matches(name, hints, n=1)
            hint = f"did you mean {choices[0]!r}?" if choices else _listed(list(hints))
            raise _bad(f"There is no parameter {name[:100]!r}; {hint}")
        if _is_list(field.type):
            given[name] = values
        elif len(values) > 1:
            raise _bad(f"The parameter {name!r} is given {len(values)} times; give it once.")
        else:
            given[name] = values[0]
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _bad(f"A parameter cannot be read: {error}.") from None


def _is_list(kind: object) -> bool:
    return isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.ListType)


def _listed(names: list[str]) -> str:
    return f"there are {', '.join(names)}." if names else "there are none here."


def _nearest(error: Exception, kind: type[msgspec.Struct]) -> str:
    """Suggest the name that is nearest to one that nobody knows."""
    unknown = str(error).partition("unknown field `")[2].partition("`")[0]
    names = [one.encode_name for one in msgspec.structs.fields(kind)]
    close = difflib.get_close_matches(unknown, names, n=1) if unknown else []
    return f"; did you mean {close[0]!r}?" if close else ""


def _bad(detail: str) -> ProblemError:
    return ProblemError(HTTPStatus.BAD_REQUEST, "bad-request", detail)


def answer_problem(error: Exception, *, is_limited: bool = False) -> Response:
    """Return the answer that says why something was not done; what nobody expects is logged."""
    problem = problem_of(error, is_limited=is_limited)
    note_failure(problem, error)
    return Response(
        msgspec.json.encode(problem.problem),
        status_code=problem.status,
        headers=problem.headers,
        media_type=MEDIA_TYPE,
    )


def note_failure(problem: ProblemError, error: Exception) -> None:
    """Log what nobody expects."""
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR and error is not problem:
        _log.error("A request failed: %s", error, exc_info=error)
