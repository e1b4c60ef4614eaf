"""The declarant: brings what a worker declares, and has it follow what is in force."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from redrive.clock import Clock, wait_at_most
from redrive.errors import StoreError
from redrive.model.destination import Destination
from redrive.model.request_log import RequestLog
from redrive.observer import (
    DeclarationChanged,
    DeclarationsAgree,
    DeclarationsDiffer,
    Observer,
)
from redrive.policies.declaring import LOOKS_AGAIN_AFTER
from redrive.store import Declarer, Registered, Registry
from redrive.transport import Endpoint
from redrive.worker.provider import TRIES_AGAIN_SECONDS, Provider, StoredServices

__all__ = ["Declarant"]

_TELLS_AGAIN_SECONDS = 3600.0
"""A worker that was silent for a day is forgotten, and its declarations with it."""


class Declarant:
    """Keeps a worker's endpoints in step with the declarations in force.

    What workers share of a destination is the same in all of them; how it is retried and for how
    long it may take is each worker's own. A destination that a person removed is not served.
    """

    def __init__(
        self,
        *,
        store: Registry,
        by: Declarer,
        endpoints: Sequence[Endpoint],
        clock: Clock,
        observer: Observer,
        on_store_lost: Callable[[StoreError], None],
        provider: Provider | None = None,
    ) -> None:
        self._store = store
        self._stored = StoredServices(provider, worker=by.worker, clock=clock, observer=observer)
        self._by = by
        self._own = {one.destination.name: one for one in endpoints}
        self._clock = clock
        self._observer = observer
        self._on_store_lost = on_store_lost
        self._news = asyncio.Event()
        self._version: int | None = None
        self._in_force: Mapping[str, Destination] = {}
        self._allowed: Mapping[str, int] = {}
        self._others: tuple[str, ...] = ()
        self._removed: tuple[str, ...] = ()
        self.serving: Mapping[str, Endpoint] = {}
        """The endpoints that get deliveries, as what is in force has them."""
        self.reporting: frozenset[str] = frozenset()
        """The destinations whose health is counted: those with a breaker."""
        self.names: tuple[str, ...] = tuple(self._own)
        """All that the worker serves: what it declares, and stored services."""

    def request_log(self, name: str) -> RequestLog | None:
        """Return which requests to a destination are logged, if any."""
        endpoint = self.serving.get(name)
        return None if endpoint is None else endpoint.terms.request_log

    def hear(self, version: int | None) -> None:
        """Hear which version of the routes a claim has met."""
        if version is not None and version != self._version:
            self._news.set()

    async def begin(self) -> None:
        """Bring all that the worker declares, before it does anything else."""
        await self._bring()

    async def run(self) -> None:
        """Follow the declarations in force until cancelled, and bring the others again."""
        while True:
            looks_again = LOOKS_AGAIN_AFTER.total_seconds()
            rest = looks_again if self._others else _TELLS_AGAIN_SECONDS
            if self._stored.are_unsettled:
                rest = min(rest, TRIES_AGAIN_SECONDS)
            has_news = await wait_at_most(self._news, rest, self._clock)
            self._news.clear()
            try:
                await self._stored.close_retired()
                if has_news or self._others or self._stored.are_unsettled:
                    await self._catch_up()
                else:
                    await self._bring()
            except StoreError as error:
                self._on_store_lost(error)
                self._news.set()
                await self._clock.sleep(looks_again)

    async def _bring(self) -> None:
        declared = [one.destination for one in self._own.values()]
        registered = await self._store.register(declared, by=self._by)
        await self._follow(registered, brought=self._own)

    async def _catch_up(self) -> None:
        """Bring what is not in force, and what others have changed: of thousands that is little."""
        names: Collection[str] = self._others
        while True:
            declared = [self._own[name].destination for name in names]
            registered = await self._store.register(declared, by=self._by, again=True)
            if not (names := await self._follow(registered, brought=names)):
                return

    async def _follow(self, registered: Registered, *, brought: Collection[str]) -> Sequence[str]:
        """Follow what is in force; returns what has changed of those that were not brought."""
        for one in registered.changes:
            self._observer.notice(DeclarationChanged(worker=self._by.worker, change=one))
        in_force = {one.name: one for one in registered.routes.destinations}
        before = self._in_force
        changed = [
            name
            for name in self._own
            if in_force.get(name) is not before.get(name)  # the quick look, of thousands
            and in_force.get(name) != before.get(name)
        ]
        allowed = {
            name: one.limits.concurrency
            for name, one in registered.overrides.items()
            if one.limits.concurrency is not None
        }
        provided = await self._stored.follow(self._in_force, in_force, but=self._own)
        overridden = [
            name
            for name in (self._own.keys() | self._stored.endpoints.keys())
            & (allowed.keys() | self._allowed.keys())
            if allowed.get(name) != self._allowed.get(name)
        ]
        self._in_force, self._allowed = in_force, allowed
        self._version = registered.version
        if changed or overridden or provided:
            serving = dict(self.serving)
            for name in [*changed, *overridden, *provided]:
                endpoint = self._own.get(name) or self._stored.endpoints.get(name)
                if name in in_force and endpoint is not None:
                    serving[name] = _following(endpoint, in_force[name], allowed=allowed.get(name))
                else:
                    serving.pop(name, None)
            self.serving = serving
            if self._own.keys() | self._stored.endpoints.keys() != set(self.names):
                self.names = (*self._own, *self._stored.endpoints)
            self.reporting = frozenset(
                name for name, one in serving.items() if one.destination.limits.breaker
            )
        brought = frozenset(brought)
        self._compare(
            tuple(
                sorted({*registered.others, *(one for one in self._others if one not in brought)})
            )
        )
        return [name for name in changed if name not in brought]

    def is_transactional(self, name: str) -> bool:
        """Tell whether what is carried to a destination is committed by the store."""
        return name in self._own and self._own[name].is_transactional

    def endpoints(self) -> list[Endpoint]:
        """Return all that have ways to close."""
        return [*self._own.values(), *self._stored.all()]

    def _compare(self, others: tuple[str, ...]) -> None:
        """Say once of which destinations another declaration is in force than this worker's."""
        removed = tuple(name for name in others if name not in self._in_force)
        if others and (others, removed) != (self._others, self._removed):
            differing = tuple(name for name in others if name in self._in_force)
            self._observer.notice(
                DeclarationsDiffer(worker=self._by.worker, destinations=differing, removed=removed)
            )
        elif self._others and not others:
            self._observer.notice(DeclarationsAgree(worker=self._by.worker))
        self._others, self._removed = others, removed


def _following(own: Endpoint, in_force: Destination, *, allowed: int | None) -> Endpoint:
    """Return the endpoint with what is shared as it is in force.

    While an override allows more at once, the worker has places for that; that it is no more, and
    that it ends, is seen to at the gate.
    """
    declared = in_force.limits.concurrency
    if own.destination.limits == in_force.limits:
        declared = own.terms.concurrency
    if allowed is not None and declared is not None:
        declared = max(allowed, declared)
    if declared == own.terms.concurrency:
        return msgspec.structs.replace(own, destination=in_force)
    terms = msgspec.structs.replace(own.terms, concurrency=declared)
    return msgspec.structs.replace(own, destination=in_force, terms=terms)
