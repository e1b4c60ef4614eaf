"""Reading the log: by position, by type, by key, and on and on as it grows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from redrive.clock import Clock
from redrive.errors import ConfigurationError, NotFoundError, PayloadError, UsageError
from redrive.model.checks import check_text
from redrive.model.event import Event
from redrive.model.pattern import check_pattern, matches
from redrive.model.position import LOG_START, LogPosition
from redrive.policies.payload import payload_decoder
from redrive.policies.upcasting import Upcasts
from redrive.store import LoggedEvent, Store
from redrive.worker.polling import Lookout

__all__ = ["Log", "Types"]

Types = str | Sequence[str] | Mapping[str, Any]
"""A pattern of event types, several, or for each the type that payloads are read as."""

_PAGE = 500
"""How many events are looked at at once."""


class Log:
    """The events that were published, in their order; reading changes nothing.

    `types` are patterns such as `"order.*"`, and a mapping says as what payloads are read:
    `{"order.paid": Paid, "order.*": dict}`; the first pattern that fits counts. Payloads of an old
    shape come as the app's upcasts make them.
    """

    def __init__(
        self,
        store: Callable[[], Awaitable[Store]],
        *,
        clock: Clock,
        poll: timedelta,
        upcasts: Upcasts,
    ) -> None:
        self._store = store
        self._clock = clock
        self._poll = poll
        self._upcasts = upcasts

    async def read(
        self, *, after: LogPosition | str = LOG_START, types: Types = (), limit: int = 100
    ) -> Sequence[LoggedEvent]:
        """Return the first events behind a position; if they are fewer than `limit`, all of them.

        Who always goes on from the last position they have seen sees every event once.
        """
        if type(limit) is not int or limit < 1:
            raise UsageError(f"limit is {limit!r}; it is a whole number from 1.")
        typing, place = self._typing(types), _place(after)
        store = await self._store()
        found: list[LoggedEvent] = []
        while True:
            most = _PAGE if typing.patterns else min(limit - len(found), _PAGE)
            page = await store.read_events(after=place, types=typing.patterns, limit=most)
            found += page.events[: limit - len(found)]
            if page.is_end or len(found) == limit:
                return [typing.read(one) for one in found]
            place = page.reached

    async def history(
        self, key: str, *, after: int = 0, types: Types = ()
    ) -> Sequence[LoggedEvent]:
        """Return every event of a key, such as an aggregate's, behind a version, in their order.

        What is committed is in it at once. Raises `NotFoundError` if some of them have gone from
        the log: what is made of the others would be wrong.
        """
        check_text("key", key)
        if type(after) is not int or after < 0:
            raise UsageError(
                f"after is {after!r}; it is the version of an event of this key, from 0 for none."
            )
        typing = self._typing(types)
        store = await self._store()
        found: list[LoggedEvent] = []
        version = after
        while page := await store.read_key(key, after=version, limit=_PAGE):
            for one in page:
                if one.version != version + 1:
                    raise _gone(key, version + 1, one)
                version += 1
            found += [typing.read(one) for one in page if typing.fits(one.event)]
            if len(page) < _PAGE:
                break
        return found

    def subscribe(
        self, *, after: LogPosition | str = LOG_START, types: Types = ()
    ) -> AsyncIterator[LoggedEvent]:
        """Go through the events behind a position, and on to those that are still to come.

        It never ends by itself. Keep the position of the last event that you are done with, and
        begin there the next time: none is skipped, whatever the order in which publishers commit.
        """
        return self._follow(_place(after), self._typing(types))

    async def end(self) -> LogPosition:
        """Return where the log ends now, to read on from with what is still to come."""
        return await (await self._store()).end_of_log()

    async def _follow(self, place: LogPosition, typing: _Typing) -> AsyncIterator[LoggedEvent]:
        store = await self._store()
        lookout = Lookout(store, self._clock, self._poll)
        while True:
            lookout.look()
            page = await store.read_events(after=place, types=typing.patterns, limit=_PAGE)
            is_vain, place = page.reached == place, page.reached
            for one in page.events:
                yield typing.read(one)
            if page.is_end:
                await lookout.rest(is_vain=is_vain)

    def _typing(self, types: Types) -> _Typing:
        given = (types,) if isinstance(types, str) else types
        if not isinstance(given, Mapping):
            if not isinstance(given, Sequence):
                raise ConfigurationError(
                    f"types is {types!r}; write a pattern, several, or what payloads are read as: "
                    '"order.*", ["order.paid"] or {"order.paid": Paid}.'
                )
            given = dict.fromkeys(given, Any)
        return _Typing(given, self._upcasts)


class _Typing:
    """Which events a reader wants, and as what."""

    def __init__(self, types: Mapping[str, Any], upcasts: Upcasts) -> None:
        self.patterns = tuple(check_pattern(pattern) for pattern in types)
        self._decoders = {
            pattern: payload_decoder(wanted, who=f"The reader of {pattern}")
            for pattern, wanted in types.items()
        }
        self._decode_any = payload_decoder(Any, who="The reader")
        self._upcasts = upcasts

    def fits(self, event: Event[Any]) -> bool:
        return not self.patterns or any(matches(one, event.type) for one in self.patterns)

    def read(self, logged: LoggedEvent) -> LoggedEvent:
        """Return an event as the reader wants it."""
        kind = logged.event.type
        decode = next(
            (decode for pattern, decode in self._decoders.items() if matches(pattern, kind)),
            self._decode_any,
        )
        try:
            event = self._upcasts.applied(logged.event)
            typed = msgspec.structs.replace(event, payload=decode(event.payload))
        except Exception as error:
            raise PayloadError(
                f"The payload of the event {logged.event.id} ({kind}) at {logged.position} cannot "
                f"be read as it was asked for: {error}. Bring its shape up to date with "
                f'@app.upcast("{kind}"), or go on behind it with after="{logged.position}".'
            ) from error
        return LoggedEvent(logged.position, typed, logged.version)


def _place(after: LogPosition | str) -> LogPosition:
    return after if isinstance(after, LogPosition) else LogPosition.parse(after)


def _gone(key: str, first: int, found: LoggedEvent) -> NotFoundError:
    last = (found.version or 0) - 1
    which = f"Event {first}" if first == last else f"Events {first} to {last}"
    return NotFoundError(
        f"{which} of the key {key!r} are no longer in the log, so its history is not whole. Keep "
        f"events for longer with keep_events, or read what is left with after={last}."
    )
