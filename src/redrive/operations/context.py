"""The context of every operation: the store, and who is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

from redrive.archive import Archive
from redrive.clock import Clock, Entropy, SystemClock, SystemEntropy
from redrive.errors import UsageError
from redrive.executor import Executor, ThreadExecutor
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.retention import Retention
from redrive.observer import DeadLettered, Observer, Operated
from redrive.policies.password import USUAL, Cost
from redrive.policies.redact import Redaction
from redrive.store import Store

__all__ = [
    "MOST_PER_PAGE",
    "OperationContext",
    "check_limit",
    "known_ids",
    "projections_of",
    "refuse_out_of_order",
    "with_reason",
]

MOST_PER_PAGE = 1_000
_LARGEST_ID = 2**63 - 1
_DEFAULT = Retention()
_USUAL = Redaction()


class OperationContext:
    """What the operations of every kind stand on."""

    def __init__(
        self,
        store: Callable[[], Awaitable[Store]],
        observer: Observer,
        *,
        to_change: Callable[[], Awaitable[Store]] | None = None,
        payload_limit: int = 2**20,
        retention: Retention = _DEFAULT,
        archive: Archive | None = None,
        executor: Executor | None = None,
        redaction: Redaction = _USUAL,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        password_cost: Cost = USUAL,
    ) -> None:
        self._password_cost = password_cost
        self._entropy = entropy or SystemEntropy()
        self._clock = clock or SystemClock()
        self._redaction = redaction
        self._retention = retention
        self._archive = archive
        self._executor = executor or ThreadExecutor()
        self._store = store
        self._to_change = to_change or store
        self._observer = observer
        self._payload_limit = payload_limit

    def _acted(self, action: str, destination: str, actor: Actor, *, is_new: bool) -> bool:
        if is_new:
            self._observer.notice(
                Operated(action=action, by=actor.by, why=actor.why, destination=destination)
            )
        return is_new

    async def _failed(
        self, store: Store, changed: Sequence[DeliveryId], actor: Actor
    ) -> list[DeliveryId]:
        """Tell of an act that has made dead letters, and of each of them."""
        self._done("cancel", changed, actor)
        for one in changed:
            delivery = await store.find_delivery(one)
            # Somebody may have replayed it already.
            if delivery and delivery.is_dead_letter and delivery.fault and delivery.reason:
                self._observer.notice(DeadLettered.of(delivery, delivery.reason, delivery.fault))
        return list(changed)

    def _done(self, action: str, changed: Sequence[DeliveryId], actor: Actor) -> list[DeliveryId]:
        if changed:
            self._observer.notice(
                Operated(action=action, by=actor.by, why=actor.why, deliveries=tuple(changed))
            )
        return list(changed)


def check_limit(limit: object) -> None:
    """Refuse what is no size of a page."""
    if type(limit) is not int or not 1 <= limit <= MOST_PER_PAGE:
        raise UsageError(f"limit is {limit!r}; it is a whole number from 1 to {MOST_PER_PAGE}.")


async def projections_of(store: Store) -> frozenset[str]:
    """Return the names of the destinations that are projections."""
    return frozenset(one.name for one in (await store.routes()).destinations if one.is_projection)


def refuse_out_of_order(projections: Collection[str], destination: str, *, act: str) -> None:
    """Refuse to bring dead letters back to a projection: it may have applied later events."""
    if destination in projections:
        raise UsageError(
            f"{destination} is a projection, and may have applied later events of the same key; to "
            f"{act} its dead letters all the same, out of order, say out_of_order=True, or "
            "--out-of-order."
        )


def known_ids(ids: Sequence[int]) -> list[DeliveryId]:
    """Return those of the numbers that can be ids of deliveries."""
    if isinstance(ids, str) or not all(type(one) is int for one in ids):
        raise UsageError(f"The ids are {ids!r:.300}; pass the numbers of deliveries, such as [7].")
    return [DeliveryId(one) for one in ids if 0 < one <= _LARGEST_ID]


def with_reason(by: str, why: str, action: str) -> Actor:
    """Return who acts, and insist on why."""
    if not isinstance(why, str) or not why.strip():
        raise UsageError(f"A reason is needed to {action}; say why.")
    return Actor(by, why)
