"""What a store promises about the life of a delivery: no act takes it where it may not go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from redrive.model.delivery import Lease, Status, is_legal
from redrive.model.settlement import Delivered, Failed, FailureReason, Requeued, RetryAt, Snoozed
from redrive.store import Rescue, Settled
from tests.conformance.world import OPERATOR, World, a_fault, an_event

__all__ = ["TransitionConformance"]

_FAILED = Failed(reason=FailureReason.TERMINAL, fault=a_fault())
Act = Callable[[World, Lease], Awaitable[object]]


def _settling(settlement: Delivered | RetryAt | Failed | Snoozed) -> Act:
    return lambda world, lease: world.store.settle([Settled(lease=lease, settlement=settlement)])


_ACTS: dict[str, Act] = {
    "claim": lambda world, _: world.claim(),
    "deliver": _settling(Delivered()),
    "fail": _settling(_FAILED),
    "retry": lambda world, lease: _settling(RetryAt(when=world.now, fault=a_fault()))(world, lease),
    "snooze": lambda world, lease: _settling(Snoozed(until=world.now))(world, lease),
    "release": lambda world, lease: world.store.release([lease]),
    "requeue": lambda world, lease: world.store.rescue(
        [Rescue(lease, Requeued(when=world.now, crashes=1, last_crash_at=world.now))]
    ),
    "condemn": lambda world, lease: world.store.rescue([Rescue(lease, _FAILED)]),
    "expire": lambda world, _: world.expire(),
    "replay": lambda world, lease: world.store.replay([lease.delivery_id], actor=OPERATOR),
    "resolve": lambda world, lease: world.store.resolve([lease.delivery_id], actor=OPERATOR),
    "cancel": lambda world, lease: world.cancel([lease.delivery_id]),
    "reschedule": lambda world, lease: world.store.reschedule(
        [lease.delivery_id], due=world.now, actor=OPERATOR
    ),
}


class TransitionConformance:
    """Every act on a delivery in every status, with its lease in force and after its end."""

    async def test_no_act_takes_a_delivery_where_it_may_not_go(self, world: World) -> None:
        taken = set()
        for is_late in (False, True):
            for status in Status:
                for name, act in _ACTS.items():
                    lease = await _a_delivery(world, status)
                    if is_late:
                        world.clock.advance("1h")

                    await act(world, lease)

                    after = (await world.show(lease.delivery_id)).status
                    assert after is status or is_legal(status, after), (name, status, after)
                    taken.add((status, after))
        assert {(before, after) for before, after in taken if before is not after} == {
            (before, after) for before in Status for after in Status if is_legal(before, after)
        }


async def _a_delivery(world: World, status: Status) -> Lease:
    """Return the latest lease of a delivery that is the only one in this status."""
    deadline = None if status is Status.IN_FLIGHT else world.after("30m")
    [delivery_id] = await world.publish(an_event(deadline=deadline))
    # What earlier acts have left behind must not be claimed in its place.
    others = [one.id for one in await world.found(status=Status.PENDING) if one.id != delivery_id]
    await world.cancel(others)
    if status is Status.PENDING:
        return Lease(delivery_id, 0)
    leased = await world.claim_one()
    if status is Status.DELIVERED:
        await world.settle(leased, Delivered())
    elif status is Status.FAILED:
        await world.settle(leased, _FAILED)
    return leased.lease
