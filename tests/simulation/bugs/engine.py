"""Planted bugs of what workers and publishers do around the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from redrive.conditions.routing import recipients
from redrive.model.delivery import Leased
from redrive.model.event import Receipt
from redrive.model.outcome import Faulted, Nature, Outcome, Succeeded
from redrive.model.settlement import Delivered
from redrive.pipeline import settle as settling
from redrive.pipeline.deliver import Carrier, Load
from redrive.pipeline.publish import Prepared, Publisher
from redrive.policies import settlement
from redrive.worker.worker import Worker
from tests.simulation.bugs.bug import Bug

__all__ = ["BUGS"]


async def _settle_before_send(self: Carrier, load: Load) -> None:
    load.task, load.started = asyncio.current_task(), self._clock.monotonic()
    self._running.pop(load, None)
    self._end(load, [Succeeded()] * len(load.deliveries))
    await load.endpoint.transport.send(load.deliveries)


async def _acknowledge_before_commit(
    self: Publisher,
    events: Sequence[Prepared],
    *,
    all_or_nothing: bool,
    within: object,
) -> Sequence[Receipt]:
    async def append() -> None:
        with suppress(Exception):  # that is the bug
            await _append(self, events, all_or_nothing=all_or_nothing, within=within)

    routes = (await self._store.routes()) if hasattr(self._store, "routes") else self._routes
    _unwatched.append(asyncio.ensure_future(append()))
    return [
        Receipt(event_id=one.event.id, destinations=recipients(routes, one.event)) for one in events
    ]


_append = Publisher._append  # noqa: SLF001 - what the bug is in the place of
_unwatched: list[asyncio.Future[None]] = []


async def _release_everything(self: Worker, ended: Sequence[Leased], left: Sequence[Load]) -> None:
    fresh = self._decide()
    decided = [one.leased for one in [*self._unsettled, *fresh]]
    await self._settle([*self._unsettled, *fresh])
    await _sign_off(self, [*ended, *decided], left)


_sign_off = Worker._sign_off  # noqa: SLF001 - what the bug is in the place of


def _once_more(outcome: Outcome, leased: Leased, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the policy has it
    return settlement.settle(
        outcome, msgspec.structs.replace(leased, attempt=leased.attempt - 1), *args, **options
    )


def _terminal_is_retried(outcome: Outcome, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the policy has it
    if isinstance(outcome, Faulted) and outcome.nature is Nature.TERMINAL:
        outcome = msgspec.structs.replace(outcome, nature=Nature.TRANSIENT)
    return settlement.settle(outcome, *args, **options)


def _exhausted_is_success(outcome: Outcome, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the policy has it
    decided = settlement.settle(outcome, *args, **options)
    return Delivered() if getattr(decided, "reason", None) == "exhausted" else decided


BUGS: tuple[Bug, ...] = (
    Bug("settle before send", patches=((Carrier, "_carry", _settle_before_send),)),
    Bug("acknowledge before commit", patches=((Publisher, "_append", _acknowledge_before_commit),)),
    Bug("shutdown releases settled work", patches=((Worker, "_sign_off", _release_everything),)),
    Bug("one try too many", patches=((settling, "settle", _once_more),)),
    Bug("terminal is retried", patches=((settling, "settle", _terminal_is_retried),)),
    Bug("exhausted counts as delivered", patches=((settling, "settle", _exhausted_is_success),)),
)
