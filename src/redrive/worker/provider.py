"""Stored services in a worker: ways are made from their documents, and follow them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from redrive.clock import Clock
from redrive.model.destination import Destination
from redrive.observer import Observer, ServiceUnserved
from redrive.transport import Closing, Endpoint

__all__ = ["TRIES_AGAIN_SECONDS", "Provided", "Provider", "StoredServices"]

TRIES_AGAIN_SECONDS = 15.0
"""How often a service is tried again that could not be served, such as for want of a secret."""
_SLACK_SECONDS = 15.0
"""How long after its last attempt a way is closed."""


class Provided(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoints of services, and why there is none of some: those are left to others."""

    endpoints: Mapping[str, Endpoint]
    unserved: Mapping[str, str] = {}


class Provider(Protocol):
    """Makes endpoints of stored services."""

    async def provide(self, services: Sequence[Destination]) -> Provided:
        """Return the endpoints of these services by name; reads only their documents."""


class StoredServices:
    """The stored services that a worker serves, if it serves any."""

    def __init__(
        self, provider: Provider | None, *, worker: str, clock: Clock, observer: Observer
    ) -> None:
        self._provider = provider
        self._worker = worker
        self._clock = clock
        self._observer = observer
        self._unserved: dict[str, str] = {}
        self._retired: list[tuple[float, Endpoint]] = []
        self.endpoints: dict[str, Endpoint] = {}
        """Those that are served, by name."""

    @property
    def are_unsettled(self) -> bool:
        """Whether to look again soon: some cannot be served, or have ways that are to be closed."""
        return bool(self._unserved or self._retired)

    def all(self) -> list[Endpoint]:
        """Return all that have ways to close."""
        return [*self.endpoints.values(), *(endpoint for _, endpoint in self._retired)]

    async def follow(
        self,
        before: Mapping[str, Destination],
        now: Mapping[str, Destination],
        *,
        but: Collection[str],
    ) -> list[str]:
        """Follow what is in force, but for what the worker declares; return what has changed."""
        if self._provider is None:
            return []
        # Those that are the same object are the quick look, of thousands.
        news = [
            one
            for name, one in now.items()
            if one.service
            and (before.get(name) is not one or name in self._unserved)
            and name not in but
        ]
        fresh = [one for one in news if not one.is_disabled and self._is_fresh(one)]
        changed = [
            one.name for one in news if not self._is_fresh(one) and before.get(one.name) != one
        ]
        for name in changed:
            known = self.endpoints[name]
            self.endpoints[name] = msgspec.structs.replace(known, destination=now[name])
        gone = [name for name in self.endpoints if not _is_served(now.get(name))]
        for name in gone:
            self._retire(name)
        self._unserved = {
            name: why for name, why in self._unserved.items() if _is_served(now.get(name))
        }
        if fresh:
            await self._make(self._provider, fresh)
        return [*changed, *gone, *(one.name for one in fresh)]

    async def close_retired(self) -> None:
        """Close ways that nothing can be on any more."""
        now = self._clock.monotonic()
        over = [endpoint for until, endpoint in self._retired if until <= now]
        self._retired = [one for one in self._retired if one[0] > now]
        for endpoint in over:
            if isinstance(endpoint.transport, Closing):
                await endpoint.transport.close()

    def _is_fresh(self, service: Destination) -> bool:
        known = self.endpoints.get(service.name)
        return known is None or known.destination.service != service.service

    async def _make(self, provider: Provider, fresh: Sequence[Destination]) -> None:
        made = await provider.provide(fresh)
        for one in fresh:
            self._retire(one.name)
            why = made.unserved.get(one.name, "")
            if why and self._unserved.get(one.name) != why:
                self._observer.notice(
                    ServiceUnserved(worker=self._worker, service=one.name, why=why)
                )
            self._unserved.pop(one.name, None)
        self._unserved.update(made.unserved)
        self.endpoints.update(made.endpoints)

    def _retire(self, name: str) -> None:
        """Let a way be used to its end by what is on it."""
        endpoint = self.endpoints.pop(name, None)
        if endpoint is not None:
            until = self._clock.monotonic() + endpoint.terms.timeout.total_seconds()
            self._retired.append((until + _SLACK_SECONDS, endpoint))


def _is_served(service: Destination | None) -> bool:
    return service is not None and service.service > 0 and not service.is_disabled
