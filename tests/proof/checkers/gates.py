"""I7 and I8: what the gates of destinations let through, over all workers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from redrive.model.delivery import Kind
from redrive.model.gate import BreakerChange, HalfOpen, Open
from redrive.model.limits import Rate
from tests.proof.checkers.check import Check
from tests.proof.checkers.ledger import Ledger, Step

__all__ = ["BreakerKept", "LimitsKept"]

_SET_BACK = timedelta(seconds=10)
"""A tenant gets a token when the clock was set back by more, or it would stand still."""


class BreakerKept(Check):
    """Open or paused: nothing starts. Half-open: at most `probes`. Old results change nothing."""

    name = "I7 breaker"

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        if step.how == "changed":
            yield from self._changed(ledger, step)
        entry = step.entry
        if step.how != "claimed" or entry is None:
            return
        name = entry.destination
        if name in ledger.paused:
            yield f"{entry} was claimed while the destination is paused"
        state = ledger.breaker(name)
        breaker = ledger.promises[name].destination.limits.breaker
        if isinstance(state, Open):
            yield f"{entry} was claimed while the breaker is open until {state.until}"
        elif isinstance(state, HalfOpen) and breaker is not None:
            probing = sum(
                one.is_leased(step.call.now) and one.breaker_generation == state.generation
                for one in ledger.of_destination[name]
            )
            if probing >= breaker.probes:
                yield f"{entry} was claimed beside {probing} of {breaker.probes} probes"
        if step.detail.is_probe != isinstance(state, HalfOpen):
            yield f"{entry} was claimed as a probe: {step.detail.is_probe}, by {state!r}"
        if step.detail.breaker_generation != state.generation:
            yield (
                f"{entry} was claimed in generation {step.detail.breaker_generation} of the "
                f"breaker, which is in {state.generation}"
            )

    def _changed(self, ledger: Ledger, step: Step) -> Iterator[str]:
        change: BreakerChange = step.detail
        name, before = change.destination, ledger.breaker(change.destination)
        if change.before.generation != before.generation:
            yield f"the breaker of {name} changed from {change.before!r}, and it was {before!r}"
        if step.call.method == "report":
            told = [one for one in step.call.given["batch"] if one.destination == name]
            if all(one.generation != change.before.generation for one in told):
                yield f"the breaker of {name} changed by results of another generation"


class LimitsKept(Check):
    """Over any time w at most rate times w and one burst start; never more than `concurrency`.

    A bucket that holds what is over the rate is level by level the same as looking at every
    stretch of time. First attempts that waited at a closed gate pay as retries do. A tenant's own
    rate counts all of its attempts, and a rate that is shared those of all who share it.
    """

    name = "I8 limits"

    def __init__(self) -> None:
        self._elapsed = 0.0
        self._last: tuple[float, datetime] | None = None
        self._levels: dict[tuple[str, str], tuple[float, float, datetime]] = {}

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        if step.how != "claimed" or step.entry is None:
            return
        entry, now = step.entry, step.call.now
        if self._last is not None:
            at, before = self._last
            passed = step.call.at - at
            # To a store whose clock was set forward, more time has passed than truly has.
            self._elapsed += max(passed, (now - before).total_seconds())
        self._last = step.call.at, now
        limits = ledger.promises[entry.destination].destination.limits
        name = entry.destination
        if limits.concurrency is not None:
            running = sum(one.is_leased(now) for one in ledger.of_destination[name])
            if running >= limits.concurrency:
                yield f"{entry} was claimed beside {running} of {limits.concurrency}"
        yield from self._pour(
            name,
            f"attempts of {entry.tenant!r}",
            ledger.promises[name].destination.fairness.rate_of(entry.tenant),
            now=now,
            grants=1.0,
        )
        if limits.shared_rate is not None:
            account, shared = limits.shared_rate.name, limits.shared_rate.rate
            yield from self._pour(f"all of {account}", "attempts", shared, now=now, grants=1.0)
        match step.detail.kind:
            case Kind.FIRST:
                rate = ledger.rate(name)
                if rate is not None and name in ledger.reopened:
                    rate = _sum(rate, limits.retry_rate)
                yield from self._pour(name, "first attempts", rate, now=now)
            case Kind.RETRY:
                yield from self._pour(name, "retries", limits.retry_rate, now=now)
            case Kind.REPLAY:
                yield from self._pour(name, "replays", limits.replay_rate, now=now)

    def _pour(
        self, name: str, what: str, rate: Rate | None, *, now: datetime, grants: float = 0.0
    ) -> Iterator[str]:
        if rate is None:
            return
        level, at, then = self._levels.get((name, what), (0.0, self._elapsed, now))
        level -= (self._elapsed - at) * rate.per_second
        if then - now > _SET_BACK:
            level, then = level - grants, now
        level = max(0.0, level) + 1.0
        self._levels[name, what] = level, self._elapsed, max(now, then)
        if level > rate.burst + 1e-3:
            yield f"{what} at {name}: {level:.3f} are over the rate, and the burst is {rate.burst}"


def _sum(one: Rate, other: Rate | None) -> Rate | None:
    if other is None:
        return None
    return Rate(per_second=one.per_second + other.per_second, burst=one.burst + other.burst)
