"""The context of every operation: the store, and who is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from copy import copy
from typing import Self

from redrive.archive import Archive
from redrive.clock import Clock, Entropy, SystemClock, SystemEntropy
from redrive.errors import UsageError
from redrive.executor import Executor, ThreadExecutor
from redrive.journal.folder import JournalPlace
from redrive.model.access import WHOLE_STORE, Scope
from redrive.model.audit import Actor
from redrive.model.delivery import Delivery, DeliveryId
from redrive.model.retention import Retention
from redrive.observer import DeadLettered, Observer, Operated
from redrive.operations.drafting import Drafting
from redrive.operations.testing import Testing
from redrive.policies.password import USUAL, Cost
from redrive.policies.redact import Redaction
from redrive.sealing import KeySource
from redrive.store import Store

__all__ = [
    "HEEDING",
    "MOST_PER_PAGE",
    "OperationContext",
    "check_limit",
    "known_ids",
    "projections_of",
    "refuse_out_of_order",
    "with_reason",
]

HEEDING = (
    *(
        "replay",
        "render_again",
        "delete",
        "resolve",
        "reopen",
        "cancel",
        "reschedule",
        "prioritise",
    ),
    *("edit", "preview_edit", "show", "reveal", "conditions", "result"),
    *("find_events", "show_event", "reveal_event", "delivery_of", "plan_erase", "erase"),
)
"""The operations that keep to a part of the store, where that is all somebody may see."""

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
        keys_file: str = "",
        drafter: Callable[[], Drafting] | None = None,
        testing: Testing | None = None,
        journal: Callable[[], JournalPlace] | None = None,
    ) -> None:
        self._scope = WHOLE_STORE
        self._keys = KeySource(keys_file)
        self._drafting = drafter
        self._testing = testing
        self._journal = journal
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

    def within(self, scope: Scope) -> Self:
        """Return the same operations, of which those in `HEEDING` keep to a part of the store.

        To them what is outside is as if it were not there; an act leaves it alone in the very
        transaction that it acts in. The others do not heed it: who may ask what, and narrowed to
        what, is for `policies.access` to say.
        """
        limited = copy(self)
        limited._scope = scope  # noqa: SLF001 - it is of the same kind
        return limited

    def _is_within(self, delivery: Delivery) -> bool:
        return self._scope.holds(tenant=delivery.tenant, destination=delivery.destination)

    @property
    def _drafter(self) -> Drafting:
        if self._drafting is None:
            raise UsageError("Services are changed through an app, or through its server.")
        return self._drafting()

    @property
    def _journal_place(self) -> JournalPlace:
        if self._journal is None:
            raise UsageError("There is no journal here: it is asked for through an app.")
        return self._journal()

    async def _refuse_erased(self, store: Store, ids: Sequence[DeliveryId]) -> None:
        """Refuse to send again what nobody knows any more."""
        for one in await store.erased_of(ids):
            found = await store.find_delivery(one)
            if found is not None and self._is_within(found):
                raise UsageError(
                    f"The payload of delivery {one}, of event {found.event_id}, was erased: there "
                    "is nothing left to send. Leave it out; it stays resolved, with its story."
                )

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
