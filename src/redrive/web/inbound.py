"""The way in for other people's webhooks: a path for each source, and what they are answered."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from redrive.inbound import Door, Message, Refusal
from redrive.web.api import REQUEST_SECONDS, answer_problem, read_body
from redrive.web.problem import ProblemError

__all__ = ["PATH", "Receiving"]

PATH = "/in/{source}"
_JSON = "application/json"


class Receiving:
    """Answers those who send to a source: once what they have sent is published, or refused."""

    def __init__(self, door: Door, *, longest_body: int) -> None:
        self._door = door
        self._longest_body = longest_body

    async def answer(self, request: Request) -> Response:
        """Let one message in, or refuse it without a hint at what was wrong."""

        async def read() -> Message:
            body = await read_body(request, self._longest_body, kind=None)
            return Message.of(request.headers.items(), body)

        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                told = await self._door.receive(request.path_params["source"], read)
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        except Exception as error:  # noqa: BLE001 - each has an answer
            return answer_problem(error)
        if isinstance(told, Refusal):
            return answer_problem(_problem(told))
        said = {"event_id": told.event_id, "is_duplicate": told.is_duplicate}
        return Response(msgspec.json.encode(said), media_type=_JSON)


def _problem(refusal: Refusal) -> ProblemError:
    match refusal:
        case Refusal.UNKNOWN:
            return ProblemError(HTTPStatus.NOT_FOUND, "not-found", "There is nothing here.")
        case Refusal.NOT_GENUINE:
            return ProblemError(HTTPStatus.UNAUTHORIZED, "unauthorized", "This is not let in.")
        case Refusal.UNSERVED:
            return ProblemError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "not-served",
                "This cannot be taken right now; send it again later.",
                retry_after="30",
            )
