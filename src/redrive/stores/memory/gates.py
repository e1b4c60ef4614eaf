"""The gates of destinations in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.claiming import passage as passages
from redrive.claiming.sharing import SharedBucket, Sharing, held
from redrive.claiming.turnstile import Turnstile
from redrive.errors import not_found
from redrive.model.audit import REDRIVE, Actor
from redrive.model.delivery import Status
from redrive.model.destination import Order
from redrive.model.gate import (
    BreakerChange,
    BreakerState,
    Gate,
    GateFigures,
    Override,
    Pause,
    Rotation,
)
from redrive.model.limits import Limits
from redrive.policies import gate as policy
from redrive.policies import outage
from redrive.policies.breaker import forced_open, reset
from redrive.store import Allowance, Report, Reported
from redrive.stores.memory.tables import Tables

__all__ = ["MemoryGates", "breaker_changes"]


class MemoryGates(Tables):
    """`Gates` over the tables."""

    async def report(self, batch: Sequence[Report], *, chance: float) -> Reported:
        with self._lock:
            now = self._clock.now()
            changes: list[BreakerChange] = []
            reasons: dict[str, str] = {}
            for one in batch:
                before = self._gate(one.destination)
                limits = self._limits(one.destination, now)
                after = outage.after_report(before, limits, one, now=now, chance=chance)
                self._gates[one.destination] = after
                changes += breaker_changes(one.destination, before, after)
                if after.pause is not before.pause and after.pause is not None:
                    reasons[one.destination] = after.pause.why
                    actor = Actor(REDRIVE, after.pause.why)
                    self._note("pause", actor, now=now, count=1, detail=one.destination)
            if changes or any(one.call for one in batch):
                self._tell()
            breakers = {one.destination: self._gate(one.destination).breaker for one in batch}
            return Reported(
                changes=tuple(changes), paused=tuple(reasons), reasons=reasons, breakers=breakers
            )

    async def begin_check(
        self, destination: str, *, every: timedelta, lease: timedelta
    ) -> int | None:
        with self._lock:
            before = self._gate(destination)
            after, may_check = outage.lease_check(
                before, every=every, lease=lease, now=self._clock.now()
            )
            self._gates[destination] = after
            return after.breaker.generation if may_check else None

    async def gates(self, destinations: Sequence[str] | None = None) -> Sequence[GateFigures]:
        with self._lock:
            now = self._clock.now()
            figures = []
            for name in self._listed(only_unsettled=True):
                if destinations is not None and name not in destinations:
                    continue
                gate, passage = self._passage(name, now)
                if (rate := self._limits(name, now).shared_rate) is not None:
                    bucket = self._shared.get(rate.name, SharedBucket())
                    passage = held(passage, bucket, rate.rate, now=now)
                override = self._overridden(now).get(name)
                figures.append(
                    GateFigures(
                        destination=name,
                        at=now,
                        gate=gate,
                        limits=self._limits(name, now),
                        override=override,
                        declared=self._destinations[name].limits if override else None,
                        hold=passage.holds[0] if passage.holds else None,
                        holds=passage.holds,
                        until=passage.again_at,
                    )
                )
            return figures

    async def pause(self, destination: str, *, actor: Actor) -> bool:
        with self._lock:
            now = self._clock.now()
            gate = self._gate(destination)
            if gate.pause is not None:
                return False
            pause = Pause(by=actor.by, why=actor.why, at=now)
            self._gates[destination] = policy.paused(gate, pause)
            self._note("pause", actor, now=now, count=1, detail=destination)
            return True

    async def resume(self, destination: str, *, actor: Actor) -> bool:
        with self._lock:
            now = self._clock.now()
            gate = self._gate(destination)
            if gate.pause is None:
                return False
            self._gates[destination] = policy.resumed(gate, now=now)
            self._note("resume", actor, now=now, count=1, detail=destination)
            return True

    async def override(
        self, destination: str, limits: Limits, *, lasts: timedelta, actor: Actor
    ) -> Override:
        with self._lock:
            now = self._clock.now()
            self._gate(destination)
            override = Override(
                limits=limits, until=now + lasts, by=actor.by, why=actor.why, at=now
            )
            self._overrides[destination] = override
            self._note("override", actor, now=now, count=1, detail=override.told_of(destination))
            self._routes_version += 1
            self._tell()
            return override

    async def end_override(self, destination: str, *, actor: Actor) -> bool:
        with self._lock:
            now = self._clock.now()
            self._gate(destination)
            if destination not in self._overridden(now):
                return False
            del self._overrides[destination]
            self._note("end_override", actor, now=now, count=1, detail=destination)
            self._routes_version += 1
            self._tell()
            return True

    async def open_breaker(
        self, destination: str, *, until: datetime | None, actor: Actor
    ) -> BreakerChange:
        with self._lock:
            now = self._clock.now()
            state = forced_open(self._gate(destination).breaker, until=until, now=now)
            return self._force(destination, state, "open_breaker", actor, now=now)

    async def reset_breaker(self, destination: str, *, actor: Actor) -> BreakerChange:
        with self._lock:
            now = self._clock.now()
            state = reset(self._gate(destination).breaker, now=now)
            return self._force(destination, state, "reset_breaker", actor, now=now)

    def _force(
        self, destination: str, state: BreakerState, action: str, actor: Actor, *, now: datetime
    ) -> BreakerChange:
        before = self._gate(destination)
        self._gates[destination] = policy.with_breaker(before, state, now=now)
        self._note(action, actor, now=now, count=1, detail=destination)
        return BreakerChange(
            destination=destination, before=before.breaker, after=state, failure=before.last_failure
        )

    def _gate(self, destination: str) -> Gate:
        if destination not in self._destinations:
            raise not_found(destination, sorted(self._destinations), what="destination")
        return self._gates.get(destination, Gate())

    def _passage(self, destination: str, now: datetime) -> tuple[Gate, passages.Passage]:
        gate = self._gate(destination)
        leased = [
            row
            for row in self._rows.values()
            if row.destination == destination
            and row.status is Status.IN_FLIGHT
            and row.is_leased(now)
        ]
        gate, passage = passages.passage(
            gate,
            self._limits(destination, now),
            in_flight=len(leased),
            probing=sum(row.breaker_generation == gate.breaker.generation for row in leased),
            now=now,
            is_blocked=self._is_blocked(destination),
        )
        return gate, passages.ending(passage, self._overridden(now).get(destination))

    def _limits(self, destination: str, now: datetime) -> Limits:
        """Return what is kept to at a gate now."""
        override = self._overridden(now).get(destination)
        declared = self._destinations[destination].limits
        return declared if override is None else override.over(declared)

    def _shedding(self, destination: str, now: datetime) -> outage.Shedding | None:
        return outage.what_to_drop(
            self._gate(destination),
            self._limits(destination, now),
            now=now,
            is_blocked=self._is_blocked(destination),
        )

    def _is_blocked(self, destination: str) -> bool:
        return self._destinations[destination].order is Order.BLOCK and any(
            row.is_dead_letter and row.destination == destination and self._lane(row) is not None
            for row in self._rows.values()
        )

    def _enter(self, allowance: Allowance, now: datetime) -> Turnstile:
        """Return the turnstile of a destination's gate, which is as of now."""
        before = self._gate(allowance.destination)
        gate, passage = self._passage(allowance.destination, now)
        self._gates[allowance.destination] = gate
        self._breaker_changes += breaker_changes(allowance.destination, before, gate)
        if passage.holds and passage.holds[0] in passages.SHUT:
            self._shut[allowance.destination] = passage.again_at
        room = self._sharing.bound(allowance.destination, min(allowance.total, passage.total))
        return Turnstile(gate, passage, total=room)

    def _begin_sharing(self, destinations: Sequence[str], now: datetime) -> Sharing:
        """Return what a claim of these destinations may draw from the rates they share."""
        rates = {
            name: rate
            for name in destinations
            if name in self._destinations
            and (rate := self._limits(name, now).shared_rate) is not None
        }
        buckets = {one.name: self._shared.get(one.name, SharedBucket()) for one in rates.values()}
        return Sharing(rates, buckets, now=now)

    def _end_sharing(self, unserved: Collection[str]) -> list[datetime]:
        """Keep what is left of shared rates; returns when those with more work may go on."""
        turns = self._sharing.line_up([one for one in self._sharing.held() if one in unserved])
        self._shared |= self._sharing.changed()
        self._shut |= turns
        return list(turns.values())

    def _leave(self, destination: str, turnstile: Turnstile, now: datetime) -> None:
        limits = self._limits(destination, now)
        self._gates[destination] = turnstile.charged(limits, now=now)

    def _turn_on(self, destination: str, rotation: Rotation) -> None:
        gate = self._gate(destination)
        self._gates[destination] = msgspec.structs.replace(gate, rotation=rotation)


def breaker_changes(destination: str, before: Gate, after: Gate) -> list[BreakerChange]:
    """Return how a breaker has changed, if it has."""
    if before.breaker.generation == after.breaker.generation:
        return []
    return [
        BreakerChange(
            destination=destination,
            before=before.breaker,
            after=after.breaker,
            failure=after.last_failure,
        )
    ]
