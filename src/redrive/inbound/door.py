"""The door: lets in what a source believes, and answers when it is published."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import Protocol, Unpack

from redrive.clock import Clock
from redrive.errors import IdempotencyConflictError, RedriveError, StoreError
from redrive.inbound.message import Message
from redrive.inbound.source import Source, read_source
from redrive.model.event import EventAttributes, EventId, Receipt
from redrive.model.rule import Stored
from redrive.sealing import Secrets
from redrive.sealing.references import is_reference

__all__ = ["Door", "Publish", "Refusal"]

_LOOK_EVERY_SECONDS = 1.0

_log = logging.getLogger("redrive.inbound")


class Refusal(Enum):
    """Why a message was not let in."""

    UNKNOWN = auto()
    """There is no such source, or it is disabled."""
    UNSERVED = auto()
    """This process cannot serve it, such as for want of a secret."""
    NOT_GENUINE = auto()
    """It was not signed with a secret of the source, or too long ago."""


class Publish(Protocol):
    """Publishes an event; returns when it and its deliveries are durable."""

    async def __call__(
        self, event_type: str, payload: object = None, **attributes: Unpack[EventAttributes]
    ) -> Receipt:
        """Publish it."""


class Door:
    """Lets messages in, by the sources that are in force; what changes is heard of in seconds."""

    def __init__(
        self,
        sources: Callable[[], Awaitable[Sequence[Stored]]],
        secrets: Callable[[], Secrets],
        publish: Publish,
        clock: Clock,
    ) -> None:
        self._sources = sources
        self._secrets = secrets
        self._publish = publish
        self._clock = clock
        self._known: dict[str, Stored] = {}
        self._looked_at: float | None = None

    async def receive(self, name: str, read: Callable[[], Awaitable[Message]]) -> Receipt | Refusal:
        """Publish what was sent to a source, if it is genuine.

        It is read only if there is such a source. `PayloadError` if it is genuine and cannot be
        published.
        """
        stored = await self._find(name)
        if stored is None or not stored.is_enabled:
            return Refusal.UNKNOWN
        source = await self._read(stored)
        if source is None:
            return Refusal.UNSERVED
        message = await read()
        if not source.signature.is_genuine(message, self._clock.now()):
            return Refusal.NOT_GENUINE
        event_type, payload, attributes = source.event(message)
        try:
            return await self._publish(event_type, payload, **attributes)
        except IdempotencyConflictError as conflict:
            # Senders that get no 2xx send again, and at last stop sending at all.
            _log.warning(
                "The source %s was sent the message %s again, with another content; event %s, "
                "which it was the first time, stays as it is.",
                name,
                attributes["idempotency_key"],
                conflict.event_id,
            )
            return Receipt(event_id=EventId(conflict.event_id), destinations=(), is_duplicate=True)

    async def _find(self, name: str) -> Stored | None:
        now = self._clock.monotonic()
        if self._looked_at is None or now - self._looked_at >= _LOOK_EVERY_SECONDS:
            self._known = {one.name: one for one in await self._sources()}
            self._looked_at = now
        return self._known.get(name)

    async def _read(self, stored: Stored) -> Source | None:
        said = stored.document.get("secrets", ())
        references = [said] if isinstance(said, str) else said
        try:
            found = await self._secrets().values(one for one in references if is_reference(one))
            return read_source(stored.name, stored.document, resolve=found.__getitem__)
        except StoreError:
            raise
        except RedriveError as error:
            _log.error("The source %s cannot be served: %s", stored.name, error)
            return None
