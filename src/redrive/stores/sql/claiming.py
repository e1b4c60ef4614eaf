"""One claim in SQL: what passes the gates, and in which order; what is ready each store reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from redrive.claiming.fair_selection import FairSelection, place_among
from redrive.claiming.passage import SHUT, Passage
from redrive.claiming.ready import (
    KINDS,
    SOON,
    Account,
    Candidate,
    Ready,
    Sort,
    TenantState,
    accounts,
    fitting,
)
from redrive.claiming.round_robin import Line, Share, serve
from redrive.claiming.sharing import Sharing
from redrive.claiming.turnstile import Turnstile
from redrive.model.delivery import SUSPECT_AFTER, DeliveryId, Lease, Leased
from redrive.model.gate import Gate
from redrive.policies.breaker import last_probed
from redrive.policies.gate import marked, passed
from redrive.store import ClaimRequest
from redrive.stores.codec import micros
from redrive.stores.sealed import Codec
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.session import instant
from redrive.stores.sql.sharing import lock_shared, write_shared

__all__ = ["Choice", "leased_from"]


class Choice(ABC):
    """What one claim chooses, and what that is charged to; the gates are locked."""

    def __init__(
        self,
        gates: GateRepository,
        request: ClaimRequest,
        *,
        sorts: Sequence[Sort],
        is_flooded: bool = False,
    ) -> None:
        self._gates = gates
        self._request = request
        self._sorts = sorts
        self._is_flooded = is_flooded
        self._now = gates.session.now
        self._allowances = {
            one.destination: one for one in request.allowances if one.destination in gates.numbers
        }
        self._numbers = {name: gates.numbers[name] for name in self._allowances}
        self._names = {number: name for name, number in gates.numbers.items()}
        self._passages: dict[str, Passage] = {}
        self._chosen: list[tuple[int, int]] = []
        """Deliveries, each with the generation of its breaker."""
        self._accounts: list[tuple[int, Account]] = []
        """What tenants were given, each at a destination."""
        self._states: Mapping[tuple[int, str], TenantState] = {}
        self._openings: list[datetime] = []
        self._shut: dict[int, datetime] = {}
        self._before: dict[str, Gate] = {}
        self._sharing = Sharing({}, {}, now=self._now)
        self._turns: Mapping[str, datetime] = {}

    @abstractmethod
    def _ready(self, name: str) -> Ready:
        """Return what asks for the ready work of a destination."""

    @abstractmethod
    async def _read_suspects(self, destinations: Sequence[int]) -> list[Candidate]:
        """Return deliveries that may only run alone, the first ones first."""

    @abstractmethod
    async def _read_states(
        self, whose: Collection[tuple[int, str]]
    ) -> Mapping[tuple[int, str], TenantState]:
        """Return what is kept of some tenants, each at a destination."""

    @abstractmethod
    async def _read_sizes(self, ids: Sequence[int]) -> Sequence[int]:
        """Return how many bytes each of these deliveries has."""

    @abstractmethod
    async def _filled(self, destinations: Sequence[int]) -> Sequence[int]:
        """Return those of the destinations that have something ready, now that this is leased."""

    async def hold_shared(self) -> None:
        """Hold the rates that destinations share with others, if there are any."""
        rates = {
            name: rate
            for name in self._allowances
            if (rate := self._gates.limits(name).shared_rate) is not None
        }
        if rates:
            names = {one.name for one in rates.values()}
            buckets = await lock_shared(self._gates.session, names)
            self._sharing = Sharing(rates, buckets, now=self._now)

    async def suspects(self) -> list[Candidate]:
        """Return the deliveries that may only run alone, if their gate lets them through now."""
        startable = [self._numbers[name] for name, one in self._allowances.items() if one.total > 0]
        if found := await self._read_suspects(startable):
            self._states = await self._read_states({(one.destination, one.tenant) for one in found})
        return [one for one in found if await self._may_start_alone(one)]

    async def choose_suspect(self, suspects: Sequence[Candidate]) -> None:
        """Choose the first suspect, and charge its gate and its tenant."""
        if not suspects:
            return
        one = min(suspects, key=self._last_probed)
        name = self._names[one.destination]
        turnstile = await self._turnstile(name, total=1)
        line = Line(
            tenant=one.tenant,
            turn=self._gates.fairness(name).turn_of(one.tenant),
            work=[one],
            tokens=self._tokens(one),
        )
        serving = serve(
            [line], turnstile.gate.rotation, room=1, admit=lambda one: _admits(turnstile, one)
        )
        state = self._states[one.destination, one.tenant]
        self._charge(name, turnstile, serving, {one.tenant: state})

    async def choose(self) -> None:
        """Choose what may start: tenants in turn, each by priority and age."""
        left = self._request.limit
        for name, allowance in self._allowances.items():
            total = min(allowance.total, left)
            if total <= 0:
                continue
            selection = FairSelection(
                self._ready(name),
                self._gates.fairness(name),
                sorts=self._sorts,
                turnstile=await self._turnstile(name, total=total),
                is_flooded=self._is_flooded,
                now=self._now,
            )
            serving = await selection.serve()
            if selection.again_at is not None:
                self._openings.append(selection.again_at)
            self._charge(name, selection.turnstile, serving, selection.states())
            left -= len(serving.chosen)

    def shut(self) -> tuple[tuple[str, datetime | None], ...]:
        """Return who may have nothing for now, each with when that may change by itself.

        Their gates let nothing pass, or their turn at a rate that is shared has not come.
        """
        gates = (
            (name, passage.again_at)
            for name, passage in self._passages.items()
            if passage.holds and passage.holds[0] in SHUT
        )
        return (*gates, *self._turns.items())

    async def fitting(self) -> int | None:
        """Return how many of the chosen there is room for, if not for all."""
        ids = [number for number, _ in self._chosen]
        sizes = await self._read_sizes(ids) if len(ids) > 1 else ()
        most = self._request.most_bytes
        return fitting(sizes, most) if sum(sizes) > most else None

    def ask_soon(self) -> None:
        """Have the worker ask again soon: there may be more than was leased."""
        self._openings.append(self._now + SOON)

    async def next_due(self, due: datetime | None) -> datetime | None:
        """Return when something more may be claimed, after what was chosen is leased.

        Shared rates are charged by now, and whoever has more work waits for its turn at them.
        `due` is when the first of what is not ready will be.
        """
        held = {self._numbers[name]: name for name in self._sharing.held()}
        asked = list(self._shut | held)
        filled = await self._filled(asked) if asked else ()
        self._openings += [self._shut[number] for number in filled if number in self._shut]
        self._turns = self._sharing.line_up([held[number] for number in filled if number in held])
        self._openings += self._turns.values()
        await write_shared(self._gates.session, self._sharing.changed())
        if due is not None:
            self._openings.append(due)
        return min(self._openings, default=None)

    async def _turnstile(self, name: str, *, total: int) -> Turnstile:
        if name not in self._passages:
            self._passages[name] = await self._gates.passage(name)
        passage = self._passages[name]
        room = self._sharing.bound(name, min(total, passage.total))
        return Turnstile(self._gates.gate(name), passage, total=room)

    def _charge(
        self,
        name: str,
        turnstile: Turnstile,
        serving: Share[Candidate],
        states: Mapping[str, TenantState],
    ) -> None:
        """Choose those who were served, and charge gate and tenants for them."""
        number, fairness = self._numbers[name], self._gates.fairness(name)
        if turnstile.again_at is not None:
            self._shut[number] = turnstile.again_at
        gate = turnstile.charged(self._gates.limits(name), now=self._now)
        if serving.rotation != gate.rotation:
            gate = msgspec.structs.replace(gate, rotation=serving.rotation)
        self._before[name] = gate
        self._sharing.charge(name, len(serving.chosen))
        self._gates.put(name, passed(gate, [one.id for one in serving.chosen], now=self._now))
        self._chosen += [(one.id, gate.breaker.generation) for one in serving.chosen]
        self._accounts += [
            (number, account)
            for account in accounts(fairness, serving.served, states, now=self._now)
        ]

    async def _may_start_alone(self, one: Candidate) -> bool:
        turnstile = await self._turnstile(self._names[one.destination], total=1)
        return _admits(turnstile, one) and self._tokens(one) > 0

    def _last_probed(self, one: Candidate) -> int:
        state = self._gates.gate(self._names[one.destination]).breaker
        return place_among(last_probed(state), one.id)

    def _tokens(self, one: Candidate) -> int:
        fairness = self._gates.fairness(self._names[one.destination])
        return self._states[one.destination, one.tenant].affordable(fairness, now=self._now)

    def _leased(self, row: Sequence[Any]) -> Leased:
        """Return a lease as a row tells of it."""
        name = self._names[row[2]]
        return leased_from(
            row,
            codec=self._gates.session.codec,
            destination=name,
            now=self._now,
            is_alone=self._request.alone,
        )

    def _marked(self, leased: Leased) -> Leased:
        """Return a lease that tells whether it is a probe."""
        return marked(leased, self._before[leased.destination])


def leased_from(
    row: Sequence[Any],
    *,
    codec: Codec,
    destination: str,
    now: datetime,
    is_alone: bool = False,
) -> Leased:
    """Return a lease as a row tells of it, as of its claim."""
    number, token, _, document, payload, attempts, kind, enqueued_at, *past = row
    snoozes, crashes, last_crash_at, breaker_generation, cycles, deadline, rule = past
    return Leased(
        lease=Lease(DeliveryId(number), token),
        destination=destination,
        event=codec.carrying(codec.event(document, is_strict=False), payload, is_strict=False),
        attempt=attempts,
        kind=KINDS[kind],
        claimed_at=now,
        enqueued_at=instant(enqueued_at),
        snoozes=snoozes,
        crashes=crashes,
        last_crash_at=instant(last_crash_at),
        is_alone=is_alone,
        breaker_generation=breaker_generation,
        cycles=cycles,
        deadline=instant(deadline),
        rule=rule or "",
    )


def _admits(turnstile: Turnstile, one: Candidate) -> bool:
    reopened_at = turnstile.gate.reopened_at
    was_held = reopened_at is not None and one.due <= micros(reopened_at)
    return turnstile.admit(KINDS[one.kind], was_held=was_held)


assert SUSPECT_AFTER == 2, "the partial indexes and queries of both stores say 2"  # noqa: S101, PLR2004
