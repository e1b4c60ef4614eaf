"""One worker, and everything it does from its start to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple, cast

import msgspec

from redrive.claiming.allowance import Places
from redrive.clock import Clock, Ids, Rng, SystemClock, wait_at_most
from redrive.errors import StoreError
from redrive.executor import Executor, RunningDuty
from redrive.model.delivery import Lease, Leased
from redrive.observer import (
    Observer,
    Observers,
    StoreLost,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from redrive.pipeline.claim import Claimer
from redrive.pipeline.deliver import Carrier, Load, loads_of
from redrive.pipeline.publish import Publisher
from redrive.pipeline.settle import Decision, Settler, Tally
from redrive.store import Claim, Declarer, Left, Serving, Store
from redrive.transport import Closing, Endpoint
from redrive.worker.declarant import Declarant
from redrive.worker.heartbeat import Heartbeat
from redrive.worker.maintenance import Caretaker, Housekeeper
from redrive.worker.polling import Polling
from redrive.worker.projector import Projector
from redrive.worker.provider import Provider
from redrive.worker.recorder import Recorder
from redrive.worker.ring import Ring
from redrive.worker.scheduler import PlannedSchedule, Scheduler
from redrive.worker.settings import WorkerSettings
from redrive.worker.store_link import FIRST_PAUSE_SECONDS, StoreLink

__all__ = ["Worker"]

_LAST_WORDS_SECONDS = 5.0
_EARLY_SECONDS = 0.001
"""By how much a timer may be early."""
_HELD_SECONDS = 0.05
"""How long a drain leaves what somebody else has a hold of before it asks again."""
_REAL_TIME = SystemClock()
"""Others are done with what they hold in real time, whatever the clock of this worker says."""


class _Leaving(NamedTuple):
    """What a worker has not finished when it leaves: what has ended, and what goes on."""

    ended: Sequence[Leased]
    left: Sequence[Left]


class Worker:
    """Runs deliveries on the event loop that calls `run`.

    `open_store` gives the heartbeat a store of its own: it must go on beating while a handler
    blocks this loop. `on_wedged` ends the process when one blocks it for too long.
    """

    def __init__(
        self,
        *,
        store: Store,
        open_store: Callable[[], Awaitable[Store]],
        endpoints: Sequence[Endpoint],
        settings: WorkerSettings,
        clock: Clock,
        ids: Ids,
        rng: Rng,
        executor: Executor,
        observer: Observer,
        on_wedged: Callable[[], None],
        publisher: Publisher | None = None,
        schedules: Sequence[PlannedSchedule] = (),
        provider: Provider | None = None,
    ) -> None:
        self.id = ids.worker_id()
        self._settled = Tally()
        self._recorder = Recorder(store, clock, rng)
        observer = Observers([observer, self._recorder])
        self._store = store
        self._settings = settings
        self._clock = clock
        self._executor = executor
        self._observer = observer
        self._progress = asyncio.Event()
        self._stopping = asyncio.Event()
        self._quitting = asyncio.Event()
        self._unsettled: list[Decision] = []
        self._unsure: set[Lease] = set()
        self._last_claim: Claim | None = None
        self._places = Places(
            concurrency=settings.concurrency,
            effects=store.capabilities.effects_at_once,
            threads=settings.threads,
            largest_share=settings.largest_share,
        )
        self._ring = Ring(store, settings.generations, self._places, clock)
        self._polling = Polling(settings.poll)
        self._polls = False
        self._suspects = 0
        self._is_alone = False
        self._link = StoreLink(self.id, observer, lease=settings.lease)
        self._is_wedged = self._leaves_handlers = False
        self._lingering: RunningDuty | None = None
        self._reading: asyncio.Task[None] | None = None
        self._carrier = Carrier(
            worker=self.id,
            clock=clock,
            grace=settings.grace,
            observer=observer,
            on_progress=self._progress.set,
            effects=store.capabilities.effects_at_once,
            threads=settings.threads,
        )
        self._claimer = Claimer(
            store=store,
            worker=self.id,
            generations=settings.generations,
            lease=settings.lease,
            observer=observer,
        )
        by = Declarer(worker=self.id, host=settings.host, lease=settings.lease)
        self._declarant = Declarant(
            store=store,
            by=by,
            endpoints=endpoints,
            clock=clock,
            observer=observer,
            on_store_lost=self._lose_store,
            provider=provider,
        )
        self._recorder.log_of = self._declarant.request_log
        self._settler = Settler(
            store=store,
            worker=self.id,
            rng=rng,
            observer=observer,
            is_reported=lambda name: name in self._declarant.reporting,
            redaction=settings.redaction,
        )
        self._scheduler = (
            Scheduler(
                store=store,
                publisher=publisher,
                by=by,
                planned=schedules,
                serves_stored=provider is not None,
                clock=clock,
                executor=executor,
                observer=observer,
                on_store_lost=self._lose_store,
            )
            if publisher is not None and (schedules or provider is not None)
            else None
        )
        self._caretaker = Caretaker(
            store=store,
            worker=self.id,
            lease=settings.lease,
            serving=lambda: self._declarant.serving,
            clock=clock,
            executor=executor,
            observer=observer,
            on_store_lost=self._lose_store,
            housekeeper=Housekeeper(
                store, self.id, settings.upkeep, clock=clock, executor=executor, observer=observer
            ),
            publish_due=None if self._scheduler is None else self._scheduler.publish_due,
        )
        self._projector = Projector(
            store=store,
            worker=self.id,
            endpoints=endpoints,
            settler=self._settler,
            lease=settings.lease,
            poll=settings.poll,
            generation=settings.generations[0],
            clock=clock,
            on_store_lost=self._lose_store,
        )
        self._heartbeat = Heartbeat(
            worker=self.id,
            open_store=open_store,
            carrier=self._carrier,
            serving=lambda: Serving(self._declarant.names, settings.generations),
            lease=settings.lease,
            clock=clock,
            observer=observer,
            on_missed=self._doubt_store,
            on_wedged=on_wedged,
            noted_at=lambda: self._link.noted_at,
        )

    def projections(self) -> dict[str, str]:
        """Say how reading for each projection is; may be called from any thread."""
        return self._projector.standings()

    def stop(self) -> None:
        """Claim nothing more, finish what runs within the grace time, then end."""
        self._stopping.set()
        self._progress.set()

    def quit(self) -> None:
        """End now; what ends is given back."""
        self.stop()
        self._quitting.set()

    @property
    def tally(self) -> Tally:
        """What it has settled and given up so far."""
        failed = self._settled.failed + self._caretaker.given_up
        return msgspec.structs.replace(self._settled, failed=failed)

    @property
    def is_wedged(self) -> bool:
        """Whether it stopped because handlers that do not end keep others from running."""
        return self._is_wedged

    @property
    def leaves_handlers(self) -> bool:
        """Whether it stopped while handlers still ran; some may never end."""
        return self._leaves_handlers

    async def run(self, *, until_idle: bool = False) -> Tally:
        """Work until stopped; with `until_idle`, until nothing more is due now."""
        await self._store.check_keys()
        await self._declarant.begin()
        if self._scheduler is not None:
            await self._scheduler.begin()
        names, concurrency = self._declarant.names, self._settings.concurrency
        self._observer.notice(
            WorkerStarted(worker=self.id, destinations=names, concurrency=concurrency)
        )
        heartbeat = self._executor.start(self._heartbeat.run, name="redrive-heartbeat")
        chores = [
            asyncio.create_task(self._carrier.watch()),
            asyncio.create_task(self._heartbeat.tick()),
            asyncio.create_task(self._caretaker.run()),
            asyncio.create_task(self._declarant.run()),
            asyncio.create_task(self._recorder.run()),
        ]
        if until_idle:  # whoever waits for idleness asks for checks and ticks itself
            self._caretaker.trust_the_clock()
        else:
            chores.append(asyncio.create_task(self._caretaker.examiner.run()))
            self._reading = asyncio.create_task(self._projector.run())
            chores.append(self._reading)
            if self._scheduler is not None:
                chores.append(asyncio.create_task(self._scheduler.run()))
        for chore in chores:
            chore.add_done_callback(self._quit_if_broken)
        try:
            await self._work(until_idle=until_idle)
            await self._wind_down()
        finally:
            ended = await self._carrier.stop()
            left = self._carrier.left()
            self._leaves_handlers = bool(self._carrier.stuck() or left)
            for chore in chores:
                chore.cancel()
            ends = await asyncio.gather(*chores, return_exceptions=True)
            await heartbeat.stop()
            if left:
                name = "redrive-lingering"
                self._lingering = self._executor.start(self._heartbeat.linger, name=name)
            await self._sign_off(ended, left)
            ends += await self._close_transports()
        for end in ends:
            if isinstance(end, Exception):
                raise end
        return self.tally

    def _quit_if_broken(self, chore: asyncio.Task[None]) -> None:
        """A worker that no longer watches time-outs or rescues must not look healthy."""
        if not chore.cancelled() and chore.exception() is not None:
            self.quit()

    async def _work(self, *, until_idle: bool) -> None:
        is_quiet = False
        while not self._stopping.is_set():
            if self._lacks_places():
                self._is_wedged = True
                return
            self._progress.clear()
            sent, was_quiet, is_quiet = self._caretaker.sent, is_quiet, False
            is_reached = await self._step(claims=True)
            if not is_reached:
                await wait_at_most(self._stopping, self._link.pause, self._clock)
            elif not until_idle or not self._is_idle():
                await self._rest()
            elif self._last_claim and self._last_claim.is_held:
                await _REAL_TIME.sleep(_HELD_SECONDS)
            elif was_quiet and self._caretaker.sent == sent:
                return
            else:  # another worker may change what this one is about to find unchanged
                has_read = await self._catch_up()
                is_quiet = not await self._caretaker.attend() and not has_read

    async def _catch_up(self) -> bool:
        """Read the log for projections up to its end; tell whether there may be more to do."""
        try:
            return await self._projector.catch_up()
        except StoreError as error:
            self._lose_store(error)
            return True

    async def _step(self, *, claims: bool) -> bool:
        """Settle and claim in one round trip; tells whether the store could be reached."""
        fresh: Sequence[Decision] = self._decide()
        is_told = any(one.if_down is not None for one in fresh)
        if is_told:
            fresh = await self._tell(fresh)
        decisions, self._unsettled = [*self._unsettled, *fresh], []
        # In this order: a claim must meet breakers that know of these attempts.
        reported, settled, claimed = await _together(
            self._settler.report(() if is_told else fresh),
            self._settle(decisions),
            self._claim(is_settled=not decisions) if claims else _no_claim(),
        )
        claim = self._last_claim = None if isinstance(claimed, BaseException) else claimed
        for result in (reported, settled, claimed):
            if isinstance(result, StoreError):
                self._lose_store(result)
                return False
            if isinstance(result, BaseException):
                raise result
        if decisions and self._ring.is_crowded:  # it may have looked before these were settled
            self._progress.set()
        if decisions or claim is not None:
            has_written = decisions or (claim and (claim.deliveries or claim.is_heartbeat))
            if not has_written and not self._link.is_sure and not await self._can_write():
                return False
            self._link.regain()
        return True

    async def _can_write(self) -> bool:
        """Prove that the store can be written, by the one thing that is always to be said."""
        try:
            await self._store.heartbeat(self.id, (), lease=self._settings.lease)
        except StoreError as error:
            self._lose_store(error)
            return False
        return True

    async def _tell(self, fresh: Sequence[Decision]) -> Sequence[Decision]:
        """Report first: whether a failure is its delivery's own depends on the breaker's answer."""
        kept, self._unsettled = self._unsettled, [*self._unsettled, *fresh]
        with suppress(StoreError):  # the settlements will meet the same, and say so
            fresh = await self._settler.report(fresh)
        self._unsettled = kept
        return fresh

    def _lacks_places(self) -> bool:
        """Tell whether a destination, or a suspect, cannot run because of handlers that are stuck.

        A suspect never runs beside one: it would be blamed if that one ended the process.
        """
        stuck = self._carrier.stuck()
        if not stuck:
            return False
        if self._suspects and self._carrier.is_empty:
            return True
        return self._places.starves(self._declarant.serving, stuck)

    async def _settle(self, decisions: Sequence[Decision]) -> None:
        if not decisions:
            return
        try:
            accepted = await self._settler.settle(decisions, unsure=self._unsure)
        except StoreError:
            self._unsettled = [*decisions, *self._unsettled]
            self._unsure.update(one.settled.lease for one in decisions)
            raise
        self._unsure.clear()
        self._settled.refused += len(decisions) - len(accepted)
        for one in accepted:
            self._settled.count(one.settled.settlement)
        self._caretaker.heed(one.leased.kind for one in accepted)

    async def _claim(self, *, is_settled: bool) -> Claim | None:
        running = self._carrier.running()
        if self._is_kept_from_writing(running):
            return None
        free = self._settings.concurrency - sum(running.values())
        endpoints = self._declarant.serving
        asked = self._clock.monotonic()
        if self._suspects or self._is_alone:
            # What runs beside a suspect, or is only unsettled, would be blamed with it.
            if not is_settled:
                self._progress.set()
            if not (is_settled and self._carrier.is_empty):
                return None
        self._is_alone = self._suspects > 0
        if self._is_alone:
            claim = await self._claimer.claim_suspect(self._ring.ask_again(endpoints, running))
            if not claim.deliveries and not claim.is_held:  # another worker has it: on to the rest
                self._progress.set()
        elif free > 0:
            claim = await self._claim_in_turn(endpoints, running, limit=free)
        else:
            return None
        self._link.note(claim, asked=asked)
        if self._polls:
            self._polling.heed(found=bool(claim.deliveries))
        self._polls = False
        self._suspects = claim.suspects
        self._declarant.hear(claim.routes_version)
        self._carrier.start(loads_of(claim.deliveries, endpoints, claimed=asked))
        return claim

    async def _claim_in_turn(
        self, endpoints: Mapping[str, Endpoint], running: Mapping[str, int], *, limit: int
    ) -> Claim:
        """Ask until somebody has something, or everybody was asked in vain."""
        ring = self._ring
        ring.begin()
        while True:
            asked = await ring.ask(endpoints, running)
            if isinstance(asked, Claim):
                return asked
            claim = await self._claimer.claim(asked, limit=limit)
            ring.heed(claim, limit=limit)
            is_vain = not claim.deliveries and not claim.suspects
            # What has ended meanwhile is settled first.
            if not is_vain or not ring.is_crowded or self._progress.is_set():
                return claim

    def _is_kept_from_writing(self, running: Mapping[str, int]) -> bool:
        """Tell whether an effect is under way that a claim would have to wait for."""
        blocks = self._store.capabilities.effects_block_writers
        return blocks and any(self._declarant.is_transactional(name) for name in running)

    def _decide(self) -> list[Decision]:
        return [
            decision
            for load in self._carrier.take_finished()
            for leased, outcome in zip(load.deliveries, load.outcomes, strict=True)
            for decision in self._settler.decide_with_followers(
                leased, outcome, load.endpoint.terms, waited=load.waited, took=load.took
            )
        ]

    def _is_idle(self) -> bool:
        return (
            _found_nothing(self._last_claim)
            and self._carrier.is_empty
            and not self._unsettled
            and not self._progress.is_set()
        )

    async def _rest(self) -> None:
        """Wait for a handler to finish, and if there is room also for new work or a due time."""
        claim = self._last_claim
        if self._progress.is_set() or (claim and (claim.deliveries or claim.suspects)):
            return
        waits: list[asyncio.Future[bool]] = [asyncio.ensure_future(self._progress.wait())]
        if claim is not None:
            at_most = self._polling.interval
            if claim.next_due is not None:
                at_most = min(at_most, max(timedelta(0), claim.next_due - claim.now))
            waits.append(asyncio.ensure_future(self._wait_for_work(at_most)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _wait_for_work(self, at_most: timedelta) -> bool:
        begun = self._clock.monotonic()
        await self._store.wait(at_most=at_most)
        rested = self._clock.monotonic() - begun + _EARLY_SECONDS
        self._polls = rested >= self._polling.interval.total_seconds()
        return True

    async def _wind_down(self) -> None:
        """Finish and settle what runs, within the grace time."""
        if self._reading is not None:
            self._reading.cancel()
        carrying = sum(self._carrier.running().values())
        self._observer.notice(WorkerStopping(worker=self.id, carrying=carrying))
        grace = asyncio.ensure_future(self._clock.sleep(self._settings.grace.total_seconds()))
        quitting = asyncio.ensure_future(self._quitting.wait())
        try:
            while not (self._carrier.is_empty or grace.done() or quitting.done()):
                self._progress.clear()
                await self._step(claims=False)
                if self._carrier.is_empty:
                    break
                progress = asyncio.ensure_future(self._progress.wait())
                await asyncio.wait([progress, grace, quitting], return_when=asyncio.FIRST_COMPLETED)
                progress.cancel()
        finally:
            grace.cancel()
            quitting.cancel()

    async def _sign_off(self, ended: Sequence[Leased], left: Sequence[Load]) -> None:
        """Settle the last outcomes, give back what has ended, and retire.

        What is left keeps its lease: another try of it, or of its lane, must not begin beside it.
        """
        fresh = self._decide()
        leaving = _Leaving(ended=ended, left=self._leave(left))
        lost = "there was no answer"
        try:
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                while lost := await self._last_words(fresh, leaving):
                    await self._clock.sleep(FIRST_PAUSE_SECONDS)
        except TimeoutError:
            self._observer.notice(StoreLost(worker=self.id, error=lost))
        self._observer.notice(
            WorkerStopped(
                worker=self.id,
                released=len(ended),
                left=tuple(one.lease.delivery_id for one in leaving.left),
            )
        )

    def _leave(self, loads: Sequence[Load]) -> list[Left]:
        now = self._clock.monotonic()
        return [
            self._settler.leave(leased, waited=now - load.claimed, took=now - load.begun)
            for load in loads
            for leased in load.deliveries
        ]

    async def _last_words(self, fresh: list[Decision], leaving: _Leaving) -> str:
        """Tell the store the last things; returns the error, so that the caller may try again."""
        try:
            self._unsettled += await self._settler.report(fresh)
            fresh.clear()
            unsettled, self._unsettled = self._unsettled, []
            await self._settle(unsettled)
            if leaving.ended:
                await self._store.release([leased.lease for leased in leaving.ended])
            await self._recorder.write()
            await self._store.retire(self.id, left=leaving.left)
        except StoreError as error:
            return str(error)
        return ""

    async def _close_transports(self) -> list[BaseException | None]:
        return await asyncio.gather(
            *(_close_transport(one) for one in self._declarant.endpoints()), return_exceptions=True
        )

    def _doubt_store(self) -> None:
        """Look more closely: a heartbeat has failed, on a thread and a connection of its own."""
        self._link.doubt()
        self._caretaker.hold_back()

    def _lose_store(self, error: StoreError) -> None:
        self._link.lose(error)
        self._caretaker.hold_back()


async def _close_transport(endpoint: Endpoint) -> None:
    try:
        is_closing = isinstance(endpoint.transport, Closing)
    except Exception:  # noqa: BLE001 - it was asked for `close`, and may answer anything to that
        return
    if is_closing:
        await cast("Closing", endpoint.transport).close()


async def _no_claim() -> None:
    """Stand in for the claim of a step that makes none."""


async def _together(
    report: Awaitable[object], settle: Awaitable[None], claim: Awaitable[Claim | None]
) -> tuple[object, BaseException | None, Claim | BaseException | None]:
    """Await all to the end, even when cancelled: an answer from the store is never dropped."""
    begun = asyncio.gather(report, settle, claim, return_exceptions=True)
    try:
        reported, settled, claimed = await asyncio.shield(begun)
    except asyncio.CancelledError:
        await begun
        raise
    return reported, settled, claimed


def _found_nothing(claim: Claim | None) -> bool:
    """Tell whether a claim was made, and nothing is due now that anybody could have."""
    return (
        claim is not None
        and not claim.deliveries
        and not claim.suspects
        and (claim.next_due is None or claim.next_due > claim.now)
    )
