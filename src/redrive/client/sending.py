"""Sending: a call of the API as a request, tried again where that can do no harm."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from redrive.client.connection import (
    AnswerLostError,
    Connection,
    NotConnectedError,
    Reply,
    Request,
)
from redrive.client.reading import error_of, read
from redrive.clock import Clock, Rng
from redrive.errors import ServerError
from redrive.web.requests import Nothing
from redrive.web.route import Route
from redrive.web.table import ROUTES

__all__ = ["Sender"]

T = TypeVar("T")
PREFIX = "/api/v1"
_NOTHING = Nothing()
_BY_OPERATION = {one.operation: one for one in ROUTES}
_PLACE = re.compile(r"{(\w+)(?::\w+)?}")
_OK, _TOO_MANY = 200, 429
_PASSING = (502, 503, 504)
_CHANGE_NOTHING = ("plan_replay", "preview_edit")
_STORED_ONCE = ("publish", "publish_many")
"""Each event has a key of idempotency when it is sent."""
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0


class Sender:
    """Asks one server.

    What was not done is tried again for as long as `patience`, in seconds; what may have been
    done only if it changes nothing, or is stored once.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        server: str,
        token: str | None,
        clock: Clock,
        rng: Rng,
        patience: float,
    ) -> None:
        self.server = server
        self.clock = clock
        self._connection = connection
        self._rng = rng
        self.patience = patience
        self._headers = {"accept": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"

    async def ask(
        self,
        operation: str,
        kind: type[T],
        given: msgspec.Struct = _NOTHING,
        *,
        path: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> T:
        """Have an operation done, and return what it returns."""
        route = _BY_OPERATION[operation]
        request = self._request(route, given, path or {}, headers or {})
        may_repeat = route.method == "GET" or operation in (*_CHANGE_NOTHING, *_STORED_ONCE)
        reply = await self._send(request, may_repeat=may_repeat)
        if reply.status != _OK:
            raise error_of(reply, server=self.server)
        return read(reply.body, kind)

    async def listen(self, path: str) -> AsyncIterator[tuple[str, bytes]]:
        """Return events of a stream, by name, until the server ends it."""
        headers = self._headers | {"accept": "text/event-stream"}
        request = Request(method="GET", path=f"{PREFIX}{path}", headers=headers)
        name = ""
        async for line in self._connection.stream(request):
            if isinstance(line, Reply):
                raise error_of(line, server=self.server)
            field, _, value = line.partition(b":")
            if field == b"event":
                name = value.strip().decode()
            elif field == b"data":
                yield name, value.strip()

    async def wait(self, tries: int, *, at_least: float = 0.0) -> None:
        """Wait before another try, longer each time, and not in step with others."""
        longest = min(_FIRST_WAIT * 2**tries, _LONGEST_WAIT)
        await self.clock.sleep(max(self._rng.uniform(longest / 2, longest), at_least))

    async def close(self) -> None:
        """Let go of what is open."""
        await self._connection.close()

    async def _send(self, request: Request, *, may_repeat: bool) -> Reply:
        end, tries = self.clock.monotonic() + self.patience, 0
        failure: ServerError | None
        while True:
            at_least = 0.0
            try:
                reply = await self._connection.send(request)
            except NotConnectedError as error:
                failure = ServerError(
                    f"{self.server} cannot be reached: {error}. Nothing was done; look whether it "
                    "runs, and whether the address is right."
                )
                failure.__cause__ = error
            except AnswerLostError as error:
                failure = _lost(self.server, error, may_repeat=may_repeat)
                if not may_repeat:
                    raise failure from error
            else:
                is_passing = reply.status == _TOO_MANY or (may_repeat and reply.status in _PASSING)
                at_least = _asked_to_wait(reply)
                if not is_passing or self.clock.monotonic() + at_least >= end:
                    return reply
                failure = None
            if failure is not None and self.clock.monotonic() >= end:
                raise failure
            await self.wait(tries, at_least=at_least)
            tries += 1

    def _request(
        self,
        route: Route,
        given: msgspec.Struct,
        path: Mapping[str, object],
        headers: Mapping[str, str],
    ) -> Request:
        place = PREFIX + _PLACE.sub(lambda one: quote(str(path[one[1]]), safe=""), route.path)
        said = _said(given)
        if route.method == "GET":
            query = urlencode(
                [(name, _text(one)) for name, value in said.items() for one in _each(value)]
            )
            return Request(
                method="GET",
                path=f"{place}?{query}" if query else place,
                headers=self._headers | dict(headers),
            )
        return Request(
            method=route.method,
            path=place,
            headers=self._headers | {"content-type": "application/json"} | dict(headers),
            body=msgspec.json.encode(said),
        )


def _said(given: msgspec.Struct) -> dict[str, object]:
    """Return what differs from what a server assumes, be it of another version."""
    return {
        one.name: value
        for one in msgspec.structs.fields(given)
        if (value := getattr(given, one.name)) is not None and value != one.default
    }


def _each(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _asked_to_wait(reply: Reply) -> float:
    text = reply.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _lost(server: str, error: AnswerLostError, *, may_repeat: bool) -> ServerError:
    meaning = (
        "It can be asked again: it changes nothing, or stores once."
        if may_repeat
        else "What was asked may have been done; look before you ask again."
    )
    return ServerError(f"No answer came from {server}: {error}. {meaning}")
