"""The async client: publish and operate through a server, from an event loop."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from redrive.client.acting import RemoteActing
from redrive.client.connection import Address, AnswerLostError, Connection, NotConnectedError
from redrive.client.gateway import RemoteServicing
from redrive.client.keeping import RemoteKeeping
from redrive.client.looking import RemoteLooking
from redrive.client.reading import read
from redrive.client.remote import encoded, instant, span_text
from redrive.client.sending import Sender
from redrive.clock import Clock, SystemClock, SystemIds, SystemRng
from redrive.errors import ConfigurationError, ServerError, UsageError
from redrive.model.duration import Duration, duration
from redrive.model.event import EventAttributes, NewEvent, Receipt, new_event
from redrive.operations import Operations
from redrive.store import Figures
from redrive.web.answers import Receipts
from redrive.web.published import PublishBatch, PublishEvent
from redrive.web.requests import MOST_AT_ONCE

__all__ = ["AsyncClient", "RemoteOperations", "address_of", "checked_token"]

_SERVER, _TOKEN = "REDRIVE_SERVER", "REDRIVE_TOKEN"


class RemoteOperations(RemoteLooking, RemoteActing, RemoteKeeping, RemoteServicing, Operations):
    """The operations of a store, through the server that stands before it.

    They take and return what `Operations` does, so that code for the one works with the other. Who
    acts is whose token it is: `by` is left out.
    """


class AsyncClient(RemoteOperations):
    """Publishes and operates through a server.

    `url` and `token` are those of `REDRIVE_SERVER` and `REDRIVE_TOKEN` if they are left out.
    `timeout` is how long one answer may take. `patience` is for how long it is tried again: what
    was certainly not done, what changes nothing, and publishing, which is stored once. All else is
    for you to decide, and raises a `ServerError` that says whether it may have been done.

    >>> async def pay(url, token):
    ...     async with AsyncClient(url, token=token) as client:
    ...         await client.publish("order.paid", {"order": 42}, key="order-42")
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: Duration = "35s",
        patience: Duration = "30s",
        connection: Connection | None = None,
        clock: Clock | None = None,
    ) -> None:
        address = address_of(url)
        seconds = duration(timeout, name="timeout").total_seconds()
        self._ids = SystemIds()
        super().__init__(
            Sender(
                connection or _connection(address, seconds),
                server=str(address),
                token=checked_token(token),
                clock=clock or SystemClock(),
                rng=SystemRng(),
                patience=duration(patience, name="patience").total_seconds(),
            )
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.server!r})"

    @property
    def server(self) -> str:
        """The address of the server."""
        return self._sender.server

    @property
    def operations(self) -> Operations:
        """Everything a person may do, as an app has it."""
        return self

    async def publish(
        self, event_type: str, payload: object = None, **attributes: Unpack[EventAttributes]
    ) -> Receipt:
        """Publish an event; it and its deliveries are durable when this returns.

        Without an `idempotency_key` it is given one, so that it is stored once, however often it
        has to be sent. Its source is the name of the token, unless you say another.
        """
        new_event(event_type, payload, attributes, now=self._sender.clock.now())
        given = _written(event_type, payload, attributes)
        key = given.idempotency_key
        sent = given if key else msgspec.structs.replace(given, idempotency_key=self._new_key())
        receipt = await self._sender.ask("publish", Receipt, sent)
        return self._own(receipt, given)

    async def publish_many(self, events: Sequence[NewEvent]) -> Sequence[Receipt]:
        """Publish up to 1,000 events, all or none; each is stored once, as with `publish`."""
        if len(events) > MOST_AT_ONCE:
            raise UsageError(
                f"There are {len(events):,} events, and a server takes {MOST_AT_ONCE:,} at once; "
                "publish them in several calls."
            )
        if not events:
            return ()
        given = [_written_event(one) for one in events]
        sent = [
            one
            if one.idempotency_key
            else msgspec.structs.replace(one, idempotency_key=self._new_key())
            for one in given
        ]
        told = await self._sender.ask("publish_many", Receipts, PublishBatch(events=sent))
        return tuple(
            self._own(receipt, one) for receipt, one in zip(told.receipts, given, strict=True)
        )

    async def live(self) -> AsyncIterator[Figures]:
        """Return the system in numbers, at once and then every two seconds, until you stop.

        A stream that ends or breaks is begun again; if it cannot be for as long as `patience`, it
        raises a `ServerError`.
        """
        sender, tries = self._sender, 0
        end = sender.clock.monotonic() + sender.patience
        while True:
            try:
                async for name, data in sender.listen("/live"):
                    tries, end = 0, sender.clock.monotonic() + sender.patience
                    if name == "figures":
                        yield read(data, Figures)
            except (NotConnectedError, AnswerLostError) as error:
                if sender.clock.monotonic() >= end:
                    raise ServerError(f"{self.server} sends nothing any more: {error}.") from error
            await sender.wait(tries)
            tries += 1

    async def open(self) -> None:
        """Do nothing: what it needs is opened with the first request."""

    async def close(self) -> None:
        """Let go of what is open; a later call opens it again."""
        await self._sender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _new_key(self) -> str:
        return f"sent-{self._ids.event_id()}"

    def _own(self, receipt: Receipt, given: PublishEvent) -> Receipt:
        """Return a receipt; under a key that nobody else has, only this very call can be stored."""
        if given.idempotency_key is None and given.unique_for is None and receipt.is_duplicate:
            receipt = msgspec.structs.replace(receipt, is_duplicate=False)
        receipt.__dict__["wait"] = self.result
        return receipt


def address_of(url: str | None) -> Address:
    """Return the address that is given, or that of the environment."""
    chosen = url or os.environ.get(_SERVER)
    if not chosen:
        raise ConfigurationError(
            f"No server is named; give its URL, such as https://redrive.example.com, or set "
            f"{_SERVER}."
        )
    return Address.parse(chosen)


def checked_token(token: str | None) -> str | None:
    """Return the token that is given, or that of the environment; it is never told to anybody."""
    chosen = (token or os.environ.get(_TOKEN) or "").strip()
    if not chosen:
        return None
    if not chosen.isascii() or not chosen.isprintable() or " " in chosen:
        raise ConfigurationError(
            "The token has characters that no token has; give exactly what `redrive token create` "
            "has shown."
        )
    return chosen


def _connection(address: Address, seconds: float) -> Connection:
    from redrive.client.connections.asynchronous import AsyncConnection  # noqa: PLC0415 - only who uses it pays

    return AsyncConnection(address, timeout=seconds)


def _written(event_type: str, payload: object, attributes: EventAttributes) -> PublishEvent:
    given: dict[str, Any] = {name: value for name, value in attributes.items() if value is not None}
    for name, write in (("due", instant), ("deadline", instant), ("unique_for", span_text)):
        if name in given:
            given[name] = write(given[name])
    if given.get("source") == "":
        del given["source"]
    to = given.get("to")
    if to is not None:
        given["to"] = [to] if isinstance(to, str) else list(to)
    return PublishEvent(type=event_type, payload=encoded(payload), **given)


def _written_event(event: NewEvent) -> PublishEvent:
    given = msgspec.structs.asdict(event)
    event_type, payload = given.pop("type"), given.pop("payload")
    return _written(event_type, payload, given)  # type: ignore[arg-type]
