"""What a store promises about dead letters that failed in the same way."""

from __future__ import annotations

import msgspec

from redrive.model.delivery import Status
from redrive.model.settlement import Failed, FailureReason
from redrive.store import Group, Rescue
from tests.conformance.world import (
    OPERATOR,
    World,
    a_fault,
    an_event,
    blame,
    only,
)

__all__ = ["GroupConformance"]

_ITCH = a_fault("it itches", "SkinError", group="itches")


class GroupConformance:
    """`Inspection.groups`."""

    async def test_without_dead_letters_there_is_no_group(self, world: World) -> None:
        await world.publish(an_event())

        assert await world.groups() == []

    async def test_a_group_tells_what_its_letters_share(self, world: World) -> None:
        first = world.now
        await world.dead_letter(to="mailing", fault=_ITCH)
        world.clock.advance("1m")
        again = msgspec.structs.replace(_ITCH, message="it itches again")
        latest = await world.dead_letter(to="mailing", reason=FailureReason.EXHAUSTED, fault=again)

        assert await world.groups() == [
            Group(
                id="itches",
                title="all that itches",
                destination="mailing",
                error_class="SkinError",
                reason=FailureReason.EXHAUSTED,
                count=2,
                first_seen=first,
                last_seen=world.now,
                example=latest,
                message="it itches again",
            )
        ]

    async def test_the_largest_group_comes_first(self, world: World) -> None:
        for group in ("rare", "common", "usual", "common", "usual", "common"):
            await world.dead_letter(fault=a_fault(group=group))

        counts = [(one.id, one.count) for one in await world.groups()]

        assert counts == [("common", 3), ("usual", 2), ("rare", 1)]

    async def test_of_equal_groups_the_one_seen_last_comes_first(self, world: World) -> None:
        for group in ("old", "new", "old", "new"):
            await world.dead_letter(fault=a_fault(group=group))
            world.clock.advance("1s")

        assert _ids(await world.groups()) == ["new", "old"]

    async def test_of_equal_groups_of_one_instant_the_id_decides(self, world: World) -> None:
        for group in ("b", "c", "a"):
            await world.dead_letter(fault=a_fault(group=group))

        assert _ids(await world.groups()) == ["a", "b", "c"]

    async def test_a_limit_keeps_the_largest(self, world: World) -> None:
        for group in ("a", "b", "b", "c", "c", "c"):
            await world.dead_letter(fault=a_fault(group=group))
            world.clock.advance("1s")

        assert _ids(await world.groups(limit=2)) == ["c", "b"]

    async def test_the_example_is_the_latest_letter(self, world: World) -> None:
        await world.publish(an_event(), an_event())
        earlier, later = (await world.claim()).deliveries
        await world.fail(later)
        world.clock.advance("1s")
        await world.fail(earlier)

        assert only(await world.groups()).example == earlier.lease.delivery_id

    async def test_of_one_instant_the_example_is_the_later_publish(self, world: World) -> None:
        await world.dead_letter()
        latest = await world.dead_letter()

        assert only(await world.groups()).example == latest

    async def test_the_three_tenants_with_the_most_letters_are_named(self, world: World) -> None:
        for tenant in ("d", "c", "a", "b", "c", "b", "c", None, None, None, None):
            await world.dead_letter(an_event(tenant=tenant))

        assert only(await world.groups()).top_tenants == (("c", 3), ("b", 2), ("a", 1))

    async def test_each_group_has_its_own_tenants(self, world: World) -> None:
        await world.dead_letter(an_event(tenant="acme"))
        await world.dead_letter(an_event(tenant="umbrella"), fault=_ITCH)

        tenants = {one.id: one.top_tenants for one in await world.groups()}

        assert tenants == {"hurts": (("acme", 1),), "itches": (("umbrella", 1),)}

    async def test_only_letters_that_fit_the_filters_count(self, world: World) -> None:
        start = world.now
        await world.dead_letter(an_event({"card": "4711"}, tenant="acme", key="k"))
        world.clock.advance("1m")
        await world.dead_letter(an_event(type="mail.sent"), reason=FailureReason.EXHAUSTED)
        world.clock.advance("1m")
        event = an_event()
        await world.dead_letter(event, to="mailing", fault=a_fault("4711", "Other"))

        for count, query in (
            (3, {}),
            (2, {"destination": "billing"}),
            (1, {"event_type": "mail.*"}),
            (1, {"event_id": event.id}),
            (1, {"key": "k"}),
            (1, {"tenant": "acme"}),
            (1, {"reason": FailureReason.EXHAUSTED}),
            (2, {"error_class": "ConnectionError"}),
            (3, {"group": "hurts"}),
            (0, {"group": "itches"}),
            (2, {"since": start.replace(second=1)}),
            (1, {"until": start.replace(second=1)}),
            (2, {"text": "4711"}),
            (1, {"text": "4711", "destination": "billing"}),
        ):
            found = await world.groups(**query)
            assert sum(one.count for one in found) == count, query

    async def test_resolved_letters_count_only_when_asked_for(self, world: World) -> None:
        resolved, _ = await world.dead_letter(), await world.dead_letter()
        await world.store.resolve([resolved], actor=OPERATOR)

        assert only(await world.groups()).count == 1
        assert only(await world.groups(with_resolved=True)).count == 2

    async def test_replayed_and_deleted_letters_leave_their_group(self, world: World) -> None:
        replayed, deleted, left = [await world.dead_letter() for _ in range(3)]

        await world.store.replay([replayed], actor=OPERATOR)
        await world.store.delete([deleted], actor=OPERATOR)

        group = only(await world.groups())
        assert (group.count, group.example) == (1, left)

    async def test_a_letter_that_fails_again_is_in_the_group_of_its_last_failure(
        self, world: World
    ) -> None:
        dead = await world.dead_letter()
        await world.store.replay([dead], actor=OPERATOR)

        await world.fail(await world.claim_one(), fault=_ITCH)

        assert _ids(await world.groups()) == ["itches"]

    async def test_what_waits_for_a_retry_is_in_no_group(self, world: World) -> None:
        await world.publish(an_event())
        await world.retry(await world.claim_one())

        assert await world.groups() == []
        assert await world.groups(status=Status.PENDING) == []
        assert await world.found(status=Status.PENDING, group="hurts") == ()

    async def test_a_letter_without_a_group_is_in_none(self, world: World) -> None:
        await world.dead_letter(fault=a_fault(group=""))

        assert await world.groups() == []

    async def test_whatever_ends_a_delivery_its_group_is_kept(self, world: World) -> None:
        """Settled, crashed, cancelled or expired, each in the group of its destination."""
        await world.dead_letter()
        await world.suspect()
        alone = await world.claim_one(alone=True)
        world.clock.advance("30s")
        crashed = Failed(reason=FailureReason.CRASH_LOOP, fault=_ITCH)
        await world.store.rescue([Rescue(alone.lease, crashed)])
        await world.cancel(
            [*await world.publish(an_event()), *await world.publish(an_event(), to="mailing")]
        )
        await world.publish(an_event(deadline=world.after("1s")), to="ledger")
        world.clock.advance("1s")
        await world.expire()

        found = {one.id: (one.destination, one.title) for one in await world.groups()}

        assert found == {
            "hurts": ("billing", "all that hurts"),
            "itches": ("billing", "all that itches"),
            **{
                f"hopeless {name}": (name, blame(name).title)
                for name in ("billing", "ledger", "mailing")
            },
        }


def _ids(groups: list[Group]) -> list[str]:
    return [one.id for one in groups]
