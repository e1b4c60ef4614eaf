"""The caller: asks a destination in the terms that its deliveries have, and tells its gate."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

import msgspec

from redrive.clock import Clock, Rng
from redrive.errors import StoreError, UsageError
from redrive.model.delivery import DeliveryId, Kind, Lease, Leased
from redrive.model.destination import Destination
from redrive.model.event import Event
from redrive.model.outcome import Exchange, Fault, Faulted, Nature, Succeeded
from redrive.model.settlement import RetryAt
from redrive.observer import BreakerChanged, Observer
from redrive.pipeline.settle import Decision, Settler
from redrive.policies.capture import capture, timed_out
from redrive.policies.classify import classify
from redrive.policies.redact import Redaction
from redrive.store import Entrance, Report, Store
from redrive.transport import Answer, Asked, Asking, Endpoint, Shape

__all__ = ["Answered", "Caller", "Question", "Ways"]

_CALLER = "request"
_NO_LEASE = Lease(DeliveryId(0), 0)
_SLACK = timedelta(seconds=15)
"""For how long after its time a request counts at the gate, if nobody tells that it has ended."""


class Ways(Protocol):
    """The ways of this process to destinations."""

    async def way(self, destination: Destination) -> Endpoint:
        """Return the way to a destination as it is in force, or say why there is none here."""

    async def close(self) -> None:
        """Let go of what they hold open."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be asked: whom, with which event in which shape, and how long that may take."""

    service: str
    event: Event[msgspec.Raw]
    timeout: timedelta
    shape: Shape = Shape()
    most_attempts: int | None = None
    rule: str = ""
    """The version of a rule that gives the shape instead."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a question: an answer, or the fault of the last try, or the gate said no."""

    entrance: Entrance
    attempts: int = 0
    answer: Answer | None = None
    fault: Fault | None = None
    nature: Nature | None = None
    exchange: Exchange | None = None
    latency: timedelta = timedelta(0)
    took: timedelta = timedelta(0)

    @property
    def may_heal(self) -> bool:
        """Whether asking again later may help."""
        return self.entrance.hold is not None or self.nature in (
            Nature.TRANSIENT,
            Nature.THROTTLED,
        )


class Caller:
    """Asks on one event loop, with the store asked once before the tries and told once after."""

    def __init__(
        self,
        store: Store,
        ways: Ways,
        *,
        clock: Clock,
        rng: Rng,
        observer: Observer,
        redaction: Redaction,
    ) -> None:
        self._store = store
        self._ways = ways
        self._clock = clock
        self._rng = rng
        self._observer = observer
        self._redaction = redaction

    async def ask(self, question: Question) -> Answered:
        """Ask, as often as the terms of the destination say, within the time there is."""
        begun = self._clock.monotonic()
        entrance = await self._store.begin_call(
            question.service,
            call=question.event.id,
            lease=question.timeout + _SLACK,
            tenant=question.event.tenant,
        )
        for change in entrance.changes:
            self._observer.notice(BreakerChanged(change=change))
        if entrance.hold is not None:
            return Answered(entrance=entrance)
        call = _Call(question, entrance, settler=self._settler(entrance), clock=self._clock)
        try:
            answered = await call.run(
                await self._asking(entrance.destination, question.shape), begun=begun
            )
        finally:
            await call.tell()
        return answered

    async def close(self) -> None:
        """Let go of the ways."""
        await self._ways.close()

    async def _asking(self, destination: Destination, shape: Shape) -> Endpoint:
        endpoint = await self._ways.way(destination)
        if not isinstance(endpoint.transport, Asking):
            raise UsageError(
                f"The destination {destination.name!r} gives no answer; a request needs one that "
                "is reached by HTTP. Publish to it instead."
            )
        if shape != Shape() and not endpoint.transport.takes_shapes:
            raise UsageError(
                f"The destination {destination.name!r} has a form of its own, with which neither "
                "method, path nor headers go; leave them out."
            )
        return endpoint

    def _settler(self, entrance: Entrance) -> Settler:
        has_breaker = entrance.destination.limits.breaker is not None
        return Settler(
            store=self._store,
            worker=_CALLER,
            rng=self._rng,
            observer=self._observer,
            is_reported=lambda _: has_breaker,
            redaction=self._redaction,
        )


class _Call:
    """One question on its way: its tries, and what they say of the destination."""

    def __init__(
        self, question: Question, entrance: Entrance, *, settler: Settler, clock: Clock
    ) -> None:
        self._question = question
        self._entrance = entrance
        self._settler = settler
        self._clock = clock
        self._decisions: list[Decision] = []

    async def run(self, endpoint: Endpoint, *, begun: float) -> Answered:
        """Try until there is an answer that counts, or no more time or tries."""
        most = self._question.most_attempts
        while True:
            rest = self._question.timeout - self._since(begun)
            leased = self._leased()
            asked, took, is_cut_short = await self._try(endpoint, leased, rest)
            decision = self._decided(endpoint, leased, asked, took, is_cut_short=is_cut_short)
            self._decisions.append(decision)
            wait = self._wait(decision, asked)
            is_over = most is not None and leased.attempt >= most
            if wait is None or is_over or self._since(begun) + wait >= self._question.timeout:
                outcome = asked.outcome
                return Answered(
                    entrance=self._entrance,
                    attempts=leased.attempt,
                    answer=asked.answer,
                    fault=_fault(decision) if not isinstance(outcome, Succeeded) else None,
                    nature=outcome.nature if isinstance(outcome, Faulted) else None,
                    exchange=asked.exchange,
                    latency=timedelta(seconds=took),
                    took=self._since(begun),
                )
            await self._clock.sleep(wait.total_seconds())

    async def tell(self) -> None:
        """Tell the gate what the tries say of the destination, and that they are over."""
        retries = max(0, len(self._decisions) - 1)
        more = []
        if retries or self._entrance.is_counted:
            more.append(
                Report(
                    destination=self._question.service,
                    generation=self._entrance.generation,
                    call=self._question.event.id,
                    retries=retries,
                )
            )
        # Whoever has been answered gets the answer; what the gate does not hear of ends by itself.
        with suppress(StoreError):
            await self._settler.report(self._decisions, more=more)

    async def _try(
        self, endpoint: Endpoint, leased: Leased, rest: timedelta
    ) -> tuple[Asked, float, bool]:
        """Try once; also returns how long that took, and if it ended early for want of time."""
        limit = min(endpoint.terms.timeout, rest)
        begun = self._clock.monotonic()
        within = asyncio.timeout(limit.total_seconds())
        is_cut_short = False
        try:
            async with within:
                assert isinstance(endpoint.transport, Asking)  # noqa: S101 - it was looked at
                asked = await endpoint.transport.ask(leased, self._question.shape)
        except Exception as error:  # noqa: BLE001 - whatever a transport raises is an outcome
            if within.expired():
                is_cut_short = limit < endpoint.terms.timeout
                asked = Asked(outcome=Faulted(fault=timed_out(limit), nature=Nature.TRANSIENT))
            else:
                asked = Asked(outcome=_raised(endpoint, error))
        return asked, self._clock.monotonic() - begun, is_cut_short

    def _decided(
        self, endpoint: Endpoint, leased: Leased, asked: Asked, took: float, *, is_cut_short: bool
    ) -> Decision:
        outcome = asked.outcome
        if isinstance(outcome, Faulted) and outcome.pause and self._question.shape.path:
            # What is gone is what was asked for there, and not the destination.
            outcome = msgspec.structs.replace(outcome, pause="")
        decision = self._settler.decide(leased, outcome, endpoint.terms, waited=took, took=took)
        # Somebody else might have waited for the answer.
        return msgspec.structs.replace(decision, is_success=None) if is_cut_short else decision

    def _wait(self, decision: Decision, asked: Asked) -> timedelta | None:
        """Return how long to wait for the next try; `None` if there is none."""
        settlement = decision.settled.settlement
        is_asked_to_wait = isinstance(asked.outcome, Faulted) and asked.outcome.retry_after
        if not isinstance(settlement, RetryAt) or not settlement.spends or is_asked_to_wait:
            return None
        if len(self._decisions) > self._entrance.retries:
            return None
        return max(timedelta(0), settlement.when - self._clock.now())

    def _leased(self) -> Leased:
        """Return the next try as a delivery that nobody has leased: there is none."""
        now, attempt = self._clock.now(), len(self._decisions) + 1
        return Leased(
            lease=_NO_LEASE,
            destination=self._question.service,
            event=self._question.event,
            attempt=attempt,
            kind=Kind.FIRST if attempt == 1 else Kind.RETRY,
            claimed_at=now,
            enqueued_at=now,
            breaker_generation=self._entrance.generation,
            is_probe=self._entrance.is_probe,
            rule=self._question.rule,
        )

    def _since(self, begun: float) -> timedelta:
        return timedelta(seconds=self._clock.monotonic() - begun)


def _fault(decision: Decision) -> Fault | None:
    """Return what went wrong as it may be shown."""
    return getattr(decision.settled.settlement, "fault", None)


def _raised(endpoint: Endpoint, error: Exception) -> Faulted:
    terms = endpoint.terms
    verdict = classify(error, terminal=terms.terminal, transient=terms.transient)
    rule = "transport raised" if verdict.rule == "default" else verdict.rule
    return Faulted(fault=capture(error, rule=rule), nature=verdict.nature)
