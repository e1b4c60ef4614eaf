"""Responses: what a destination has answered to a request, and what that took."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Self

import msgspec

from redrive.errors import PayloadError, RequestError
from redrive.model.event import Receipt

__all__ = ["Response"]

_SUCCESSES = range(200, 300)


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered.

    `status` is `None` if the request was published instead, as its `receipt` tells. Names of
    `headers` are in lower case. `attempts` counts the tries, `latency` is what the last one took,
    and `took` all of them with the waits between them. `is_cut` says that the body was longer than
    the `response_limit` of the destination.
    """

    service: str
    status: int | None
    headers: Mapping[str, str] = {}
    body: bytes = b""
    attempts: int = 0
    latency: timedelta = timedelta(0)
    took: timedelta = timedelta(0)
    is_cut: bool = False
    receipt: Receipt | None = None

    @property
    def is_success(self) -> bool:
        """Whether the status is a 2xx."""
        return self.status in _SUCCESSES

    @property
    def is_published(self) -> bool:
        """Whether the request goes on as a delivery, because it was not answered."""
        return self.receipt is not None

    @property
    def text(self) -> str:
        """The body as text; what is no UTF-8 is replaced."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:  # noqa: ANN401 - JSON
        """Return the body decoded; `PayloadError` if it is no JSON, or is not all there."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError as error:
            why = (
                f"was cut off after {len(self.body):,} bytes; raise response_limit there"
                if self.is_cut
                else "is no JSON; its text is in .text"
            )
            raise PayloadError(f"The answer of {self.service!r} {why}.") from error

    def check(self) -> Self:
        """Return it if it is a success, or was published; else raise `RequestError`."""
        if self.is_success or self.is_published:
            return self
        raise RequestError(
            f"The destination {self.service!r} answered {self.status}.",
            service=self.service,
            attempts=self.attempts,
        )
