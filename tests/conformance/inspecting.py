"""What a store promises to those who look into it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from redrive.errors import UsageError
from redrive.model.delivery import Delivery, DeliveryId, Kind, Status
from redrive.model.destination import Destination
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered, FailureReason, Requeued, Snoozed
from redrive.store import DestinationFigures, Query, Rescue
from tests.conformance.world import OPERATOR, World, a_fault, an_event, entries

__all__ = ["FigureConformance", "FindingConformance", "PagingConformance"]


class FindingConformance:
    """`Inspection.find`: every filter."""

    async def test_an_unknown_delivery_is_not_found(self, world: World) -> None:
        assert await world.store.find_delivery(DeliveryId(999_999)) is None

    async def test_without_a_filter_all_dead_letters_are_found(self, world: World) -> None:
        dead = await world.dead_letter()
        await world.publish(an_event())

        assert _ids(await world.found()) == [dead]

    async def test_a_list_shows_deliveries_whole(self, world: World) -> None:
        delivery_id = await world.dead_letter(an_event(key="k", tenant="t"))

        assert await world.found() == (await world.show(delivery_id),)

    async def test_deliveries_are_found_by_status(self, world: World) -> None:
        failed = await world.dead_letter()
        delivered, in_flight, pending = await world.publish(*[an_event() for _ in range(3)])
        await world.settle(await world.claim_one(), Delivered())
        await world.claim_one()

        found = [_ids(await world.found(status=status)) for status in Status]

        assert found == [[pending], [in_flight], [delivered], [failed]]

    async def test_without_a_status_all_are_found_the_latest_delivery_first(
        self, world: World
    ) -> None:
        event = an_event()
        await world.append(entries(event, to=["billing", "mailing"]))
        await world.fail(await world.claim_one("billing"))
        dead = (await world.find_one(event, "billing")).id
        await world.store.resolve([dead], actor=OPERATOR)
        mailing = (await world.find_one(event, "mailing")).id
        [other] = await world.publish(an_event())

        assert _ids(await world.found(status=None)) == sorted([dead, mailing, other], reverse=True)
        assert set(_ids(await world.found(status=None, event_id=event.id))) == {dead, mailing}
        first = await world.store.find(Query(status=None), limit=2)
        rest = await world.store.find(Query(status=None), cursor=first.next_cursor, limit=2)
        found = [*_ids(first.deliveries), *_ids(rest.deliveries)]
        assert (found, rest.next_cursor) == (sorted(found, reverse=True), None)
        assert len(found) == 3

    async def test_deliveries_are_found_by_destination(self, world: World) -> None:
        dead = await world.dead_letter(to="mailing")
        await world.dead_letter(to="billing")

        assert _ids(await world.found(destination="mailing")) == [dead]
        assert await world.found(destination="nowhere") == ()

    async def test_deliveries_are_found_by_event_type(self, world: World) -> None:
        paid = await world.dead_letter(an_event(type="order.paid"))
        late = await world.dead_letter(an_event(type="order.late"))
        await world.dead_letter(an_event(type="mail.sent"))

        assert _ids(await world.found(event_type="order.paid")) == [paid]
        assert _ids(await world.found(event_type="order.*")) == sorted([paid, late], reverse=True)
        assert _ids(await world.found(event_type="*.paid")) == [paid]
        assert await world.found(event_type="order") == ()

    async def test_only_the_asterisk_stands_for_other_characters(self, world: World) -> None:
        await world.dead_letter(an_event(type="order.paid"))

        for pattern in ("order.pai?", "order.[p]aid", "order.pai_", "order.%", "ORDER.paid"):
            assert await world.found(event_type=pattern) == ()

    async def test_deliveries_are_found_by_event(self, world: World) -> None:
        event = an_event()
        await world.dead_letter()
        dead = await world.dead_letter(event)

        assert _ids(await world.found(event_id=event.id)) == [dead]
        assert await world.found(event_id="no-such-event") == ()

    async def test_deliveries_are_found_by_key_and_tenant(self, world: World) -> None:
        dead = await world.dead_letter(an_event(key="order-1", tenant="acme"))
        await world.dead_letter(an_event(key="order-2", tenant="umbrella"))
        await world.dead_letter(an_event())

        assert _ids(await world.found(key="order-1")) == [dead]
        assert _ids(await world.found(tenant="acme")) == [dead]
        assert await world.found(key="order-1", tenant="umbrella") == ()

    async def test_deliveries_are_found_by_reason_and_error(self, world: World) -> None:
        terminal = await world.dead_letter(fault=a_fault("no", "ValidationError"))
        exhausted = await world.dead_letter(
            reason=FailureReason.EXHAUSTED, fault=a_fault("no", "TimeoutError")
        )

        assert _ids(await world.found(reason=FailureReason.TERMINAL)) == [terminal]
        assert _ids(await world.found(error_class="TimeoutError")) == [exhausted]
        assert await world.found(error_class="Timeout") == ()

    async def test_deliveries_are_found_by_group(self, world: World) -> None:
        dead = await world.dead_letter(fault=a_fault(group="itches"))
        await world.dead_letter(fault=a_fault(group="hurts"))

        assert _ids(await world.found(group="itches")) == [dead]
        assert await world.found(group="itch") == ()

    async def test_times_are_those_of_the_last_change_of_status(self, world: World) -> None:
        dead = []
        for _ in range(3):
            dead.append(await world.dead_letter())
            world.clock.advance("1m")
        middle = (await world.show(dead[1])).settled_at

        since = await world.found(since=middle)
        until = await world.found(until=middle)

        assert _ids(since) == [dead[2], dead[1]]
        assert _ids(until) == [dead[0]]

    async def test_what_waits_is_found_by_when_it_was_enqueued(self, world: World) -> None:
        await world.publish(an_event())
        world.clock.advance("1m")
        [later] = await world.publish(an_event())

        assert _ids(await world.found(status=Status.PENDING, since=world.now)) == [later]

    async def test_text_is_found_in_the_error_and_in_the_payload(self, world: World) -> None:
        in_message = await world.dead_letter(fault=a_fault("Card 4711 was declined", "PayError"))
        in_payload = await world.dead_letter(an_event({"card": "4711"}), fault=a_fault("no"))
        in_class = await world.dead_letter(fault=a_fault("no", "Error4711"))
        await world.dead_letter(an_event({"card": "0815"}), fault=a_fault("no"))

        assert _ids(await world.found(text="4711")) == [in_class, in_payload, in_message]
        assert _ids(await world.found(text="cARD 4711 WAS")) == [in_message]
        assert _ids(await world.found(text='"CARD":"4711"')) == [in_payload]

    async def test_text_stands_for_itself(self, world: World) -> None:
        percent = await world.dead_letter(fault=a_fault("100% full"))
        await world.dead_letter(fault=a_fault("100 full"))

        assert _ids(await world.found(text="0% f")) == [percent]
        assert await world.found(text="1*l") == ()
        assert await world.found(text="1__") == ()

    async def test_text_finds_deliveries_without_an_error(self, world: World) -> None:
        [delivery_id, _] = await world.publish(an_event({"card": "4711"}), an_event())

        assert _ids(await world.found(status=Status.PENDING, text="4711")) == [delivery_id]

    @pytest.mark.parametrize("status", [Status.FAILED, None])
    async def test_text_is_looked_for_in_so_many_of_what_the_rest_leaves(
        self, world: World, status: Status | None
    ) -> None:
        said = ("sought", "other", "sought", "other", "other")
        dead = [await world.dead_letter(an_event(tenant="t"), fault=a_fault(one)) for one in said]
        await world.dead_letter(an_event(tenant="u"), fault=a_fault("sought"))
        query, pages, cursor = Query(status=status, tenant="t", text="sought"), [], None

        for _ in range(3):
            page = await world.store.find(query, cursor=cursor, limit=10, most_read=2)
            pages.append(_ids(page.deliveries))
            cursor = page.next_cursor
            if cursor is None:
                break

        assert pages == [[], [dead[2]], [dead[0]]]
        assert cursor is None

    async def test_of_a_destination_so_many_of_its_own_letters_are_looked_at(
        self, world: World
    ) -> None:
        for group, to in (("old", "billing"), ("new", "billing"), ("other", "mailing")):
            await world.dead_letter(fault=a_fault(group=group), to=to)
            world.clock.advance("1s")

        found = [
            [one.id for one in await world.groups(destination="billing", most_read=most)]
            for most in (1, 2)
        ]

        assert found == [["new"], ["new", "old"]]

    async def test_without_a_text_so_many_of_its_status_are_looked_at(self, world: World) -> None:
        tenants = ("t", "u", "u", "t", "u")
        dead = [await world.dead_letter(an_event(tenant=one)) for one in tenants]
        query = Query(tenant="t")

        first = await world.store.find(query, limit=10, most_read=3)
        second = await world.store.find(query, cursor=first.next_cursor, limit=10, most_read=3)
        counts = [
            [one.count for one in await world.store.groups(query, most_read=most)]
            for most in (None, 3)
        ]

        assert _ids(first.deliveries) == [dead[3]]
        assert (_ids(second.deliveries), second.next_cursor) == ([dead[0]], None)
        assert counts == [[2], [1]]

    async def test_text_is_found_in_any_case_of_any_script(self, world: World) -> None:
        said = {
            one: await world.dead_letter(fault=a_fault(f"say {one} now"))
            for one in ("STRASSE", "Straße", "ÄÖÜ", "äöü", "İzmir", "ΣΊΣΥΦΟΣ", "Ёж", "ﬁle")
        }

        async def found(text: str) -> set[str]:
            ids = _ids(await world.found(text=text))
            return {one for one, number in said.items() if number in ids}

        assert await found("straße") == await found("STRASSE") == {"STRASSE", "Straße"}
        assert await found("äÖü") == {"ÄÖÜ", "äöü"}
        assert await found("AOU") == set()
        assert await found("SAY İZMIR") == await found("i\u0307zmir") == {"İzmir"}
        assert await found("σίσυφος") == {"ΣΊΣΥΦΟΣ"}
        assert await found("ёЖ") == {"Ёж"}
        assert await found("FILE") == await found("ﬁL") == {"ﬁle"}
        assert await found("S NOW") == set()
        assert await found("ße") == await found("SSE") == {"STRASSE", "Straße"}

    async def test_text_of_any_script_is_found_in_a_payload(self, world: World) -> None:
        there = await world.dead_letter(an_event({"Straße": "ÄÖÜ"}))
        await world.dead_letter(an_event({"Weg": "AOU"}))

        assert _ids(await world.found(text="strasse")) == [there]
        assert _ids(await world.found(text="äöü")) == [there]

    async def test_a_nul_in_a_payload_stops_no_search(self, world: World) -> None:
        odd = await world.dead_letter(an_event({"a\x00": "\x00 and \\u0000 and 4711"}))
        await world.dead_letter(an_event({"card": "0815"}))

        assert _ids(await world.found(text="and 4711")) == [odd]

    async def test_filters_count_together(self, world: World) -> None:
        dead = await world.dead_letter(an_event(tenant="acme", type="order.late"))
        await world.dead_letter(an_event(tenant="acme", type="order.paid"))
        await world.dead_letter(an_event(tenant="umbrella", type="order.late"))

        assert _ids(await world.found(tenant="acme", event_type="*.late")) == [dead]

    async def test_resolved_dead_letters_are_left_out_unless_asked_for(self, world: World) -> None:
        resolved, open_one = await world.dead_letter(), await world.dead_letter()
        await world.store.resolve([resolved], actor=OPERATOR)

        assert _ids(await world.found()) == [open_one]
        assert _ids(await world.found(with_resolved=True)) == [open_one, resolved]


class PagingConformance:
    """`Inspection.find`: pages neither repeat nor skip."""

    async def test_the_latest_change_comes_first(self, world: World) -> None:
        first, second = await world.publish(an_event(), an_event())
        earlier, later = (await world.claim()).deliveries
        await world.fail(later)
        world.clock.advance("1s")
        await world.fail(earlier)

        assert _ids(await world.found()) == [first, second]

    async def test_changes_of_one_instant_come_in_reverse_publish_order(self, world: World) -> None:
        ids = await world.publish(*[an_event() for _ in range(3)])

        assert _ids(await world.found(status=Status.PENDING)) == sorted(ids, reverse=True)

    async def test_pages_cover_everything_once(self, world: World) -> None:
        ids = await _dead_letters(world, 7)

        pages = await _pages(world, Query(), limit=3)

        assert [len(page) for page in pages] == [3, 3, 1]
        assert [one for page in pages for one in page] == ids

    async def test_the_last_page_has_no_cursor_even_when_it_is_full(self, world: World) -> None:
        await _dead_letters(world, 4)

        assert [len(page) for page in await _pages(world, Query(), limit=2)] == [2, 2]

    async def test_a_page_of_nothing_is_empty(self, world: World) -> None:
        page = await world.store.find(Query())

        assert (page.deliveries, page.next_cursor) == ((), None)

    async def test_filters_come_before_pages(self, world: World) -> None:
        wanted = []
        for number in range(8):
            dead = await world.dead_letter(an_event(tenant="acme" if number % 4 == 0 else "other"))
            wanted += [dead] if number % 4 == 0 else []

        page = await world.store.find(Query(tenant="acme"), limit=2)

        assert _ids(page.deliveries) == sorted(wanted, reverse=True)
        assert page.next_cursor is None

    async def test_new_entries_do_not_repeat_old_ones_on_the_next_page(self, world: World) -> None:
        ids = await _dead_letters(world, 4)
        first = await world.store.find(Query(), limit=2)

        await _dead_letters(world, 3)
        second = await world.store.find(Query(), cursor=first.next_cursor, limit=2)

        assert _ids(first.deliveries) + _ids(second.deliveries) == ids

    async def test_entries_that_vanish_make_none_skipped(self, world: World) -> None:
        ids = await _dead_letters(world, 6)
        first = await world.store.find(Query(), limit=3)

        await world.store.delete([ids[0]], actor=OPERATOR)
        await world.store.replay([ids[2]], actor=OPERATOR)
        second = await world.store.find(Query(), cursor=first.next_cursor, limit=3)

        assert _ids(second.deliveries) == ids[3:]

    async def test_pages_within_one_instant_cover_everything_once(self, world: World) -> None:
        ids = await world.publish(*[an_event() for _ in range(5)])

        pages = await _pages(world, Query(status=Status.PENDING), limit=2)

        assert [one for page in pages for one in page] == sorted(ids, reverse=True)

    async def test_a_cursor_that_is_not_ours_is_refused(self, world: World) -> None:
        for cursor in ("", "first", "-", "1-x", "1-2-3", "²-²", f"{10**30}-1"):
            with pytest.raises(UsageError, match="cursor"):
                await world.store.find(Query(), cursor=cursor)


class FigureConformance:
    """`Inspection.figures`."""

    async def test_every_registered_destination_is_listed(self, world: World) -> None:
        await world.version()

        figures = await world.store.figures()

        assert figures.now == world.now
        assert figures.destinations == (
            DestinationFigures(name="billing", patterns=("order.*",)),
            DestinationFigures(name="ledger", patterns=("order.*",)),
            DestinationFigures(name="mailing", patterns=("order.*", "mail.*")),
        )

    async def test_the_figures_equal_a_recount(self, world: World) -> None:
        await _a_busy_day(world)

        figures = await world.store.figures()

        for one in figures.destinations:
            assert one == await _recount(world, one)
        assert (figures.events, figures.unrouted) == (len(await world.read_events()), 1)
        assert (figures.refused_settlements, figures.deleted) == (1, 1)

    async def test_whatever_is_done_the_figures_equal_a_recount(self, world: World) -> None:
        store = world.store
        await _a_busy_day(world)
        async for what in _everything_that_is_done(world):
            figures = await store.figures()

            for one in figures.destinations:
                counted = await _recount(world, one)
                wanted = msgspec.structs.replace(
                    counted, pruned=one.pruned, is_removed=one.is_removed
                )
                assert one == wanted, what
            assert figures.events == len(await world.read_events()), what
            dead = [one for one in await world.found() if one.is_dead_letter]
            assert figures.letters.count == len(dead), what
            assert dict(figures.letters.by_reason) == Counter(one.reason for one in dead), what
            tenants = Counter(one.tenant for one in dead if one.tenant)
            assert dict(figures.letters.by_tenant) == tenants, what
            assert list(await store.miscounts()) == [], what
        assert list(await store.recount()) == []

    async def test_no_delivery_gets_lost_in_the_figures(self, world: World) -> None:
        await _a_busy_day(world)

        figures = await world.store.figures()

        counted = sum(
            one.pending + one.in_flight + one.delivered + one.failed + one.resolved
            for one in figures.destinations
        )
        assert counted + figures.deleted + figures.unrouted == figures.events

    async def test_deliveries_not_due_yet_are_waiting(self, world: World) -> None:
        await world.publish(an_event(due=world.after("1s")), an_event(due=world.after("2s")))
        world.clock.advance("1s")

        figures = await world.figures_of()

        assert (figures.pending, figures.waiting) == (2, 1)

    async def test_the_oldest_due_is_what_could_have_run_for_longest(self, world: World) -> None:
        await world.publish(an_event(key="a"), to="ledger")
        await world.fail(await world.claim_one("ledger"))
        await world.publish(an_event(key="a"), to="ledger")
        world.clock.advance("1m")
        oldest = world.now
        await world.publish(
            an_event(key="b", due=world.after("1h")), an_event(key="c"), to="ledger"
        )
        world.clock.advance("1m")
        await world.publish(an_event(key="d"), to="ledger")

        assert (await world.figures_of("ledger")).oldest_due == oldest
        assert (await world.figures_of("billing")).oldest_due is None

    async def test_resolved_dead_letters_are_counted_apart(self, world: World) -> None:
        resolved, _ = await world.dead_letter(), await world.dead_letter()
        await world.store.resolve([resolved], actor=OPERATOR)

        figures = await world.figures_of()

        assert (figures.failed, figures.resolved) == (1, 1)


def _ids(deliveries: tuple[Delivery, ...]) -> list[DeliveryId]:
    return [one.id for one in deliveries]


async def _dead_letters(world: World, count: int) -> list[DeliveryId]:
    """Make dead letters a second apart, and return the latest first."""
    ids = []
    for _ in range(count):
        ids.append(await world.dead_letter())
        world.clock.advance("1s")
    return ids[::-1]


async def _pages(world: World, query: Query, *, limit: int) -> list[list[DeliveryId]]:
    page = await world.store.find(query, limit=limit)
    pages = [_ids(page.deliveries)]
    while page.next_cursor is not None:
        page = await world.store.find(query, cursor=page.next_cursor, limit=limit)
        pages.append(_ids(page.deliveries))
        assert len(pages) < 100
    return pages


async def _a_busy_day(world: World) -> None:
    """Leave deliveries in every status, one of them deleted and one settled too late."""
    await world.append(entries(an_event(), to=[]))
    await world.store.delete([await world.dead_letter()], actor=OPERATOR)
    await world.store.resolve([await world.dead_letter()], actor=OPERATOR)
    await world.dead_letter(to="mailing")
    await world.publish(*[an_event(key=key) for key in "aabb"], to="ledger")
    await world.fail(await world.claim_one("ledger"))
    await world.publish(*[an_event() for _ in range(5)], an_event(due=world.after("1h")))
    delivered, retried, _running = (await world.claim(total=3)).deliveries
    await world.settle(delivered, Delivered())
    await world.settle(delivered, Delivered())
    await world.retry(retried, "1m")
    world.clock.advance("10s")


async def _everything_that_is_done(world: World) -> AsyncIterator[str]:
    """Change deliveries and events in every way there is, and say what was done."""
    store = world.store
    soon = [an_event(due=world.after("1m"), tenant="t") for _ in range(6)]
    ids = await world.publish(*soon, to="mailing")
    yield "scheduled"
    await store.reschedule(ids[:4], due=world.now, actor=OPERATOR)
    yield "rescheduled"
    await world.cancel(ids[4:5])
    yield "cancelled"
    snoozed, failed, released, crashed = (await world.claim("mailing", total=4)).deliveries
    await world.settle(snoozed, Snoozed(until=world.after("1m")))
    await world.fail(failed)
    await store.release([released.lease])
    yield "snoozed, failed, released"
    world.clock.advance("1h")
    recovery = Requeued(when=world.after("1m"), crashes=1, last_crash_at=world.now)
    await store.rescue([Rescue(lease=crashed.lease, recovery=recovery)])
    yield "rescued, and what was scheduled has come due"
    await world.claim("mailing", total=1)
    yield "made ready"
    await store.move([failed.lease.delivery_id], target="ledger", actor=OPERATOR)
    yield "moved"
    await store.replay([failed.lease.delivery_id], actor=OPERATOR, generation="next")
    yield "replayed"
    first, _ = await world.publish(an_event(key="x"), an_event(key="x"), to="ledger")
    yield "put in a lane"
    await world.cancel([first])
    await store.resolve([first], actor=OPERATOR)
    yield "resolved, and the next of the lane freed"
    await world.publish(an_event(deadline=world.after("1s")), to="mailing")
    world.clock.advance("2s")
    await world.expire()
    yield "expired"
    await store.register([Destination(name="late", patterns=("*",))])
    positions = [one.position.number for one in await world.read_events()]
    await store.backfill("late", positions, actor=OPERATOR)
    yield "backfilled"
    letters = (await store.letters(Query())).letters
    await store.discard(letters, actor=OPERATOR, detail="away")
    yield "exported"
    await store.restore(letters, actor=OPERATOR)
    yield "restored"
    await store.unregister("late", actor=OPERATOR)
    await world.run_all("billing")
    world.clock.advance("90d")
    await store.prune(Retention(delivered=timedelta(days=1), events=timedelta(days=1)))
    yield "pruned"


async def _recount(world: World, shown: DestinationFigures) -> DestinationFigures:
    of = {
        status: await world.found(status=status, destination=shown.name, with_resolved=True)
        for status in Status
    }
    pending, failed = of[Status.PENDING], of[Status.FAILED]
    startable = [one.due for one in pending if one.due <= world.now and one.behind is None]
    return DestinationFigures(
        name=shown.name,
        patterns=shown.patterns,
        pending=len(pending),
        waiting=len([one for one in pending if one.due > world.now]),
        retrying=len([one for one in pending if one.due > world.now and one.kind is Kind.RETRY]),
        behind=len([one for one in pending if one.behind is not None]),
        due=len(startable),
        in_flight=len(of[Status.IN_FLIGHT]),
        delivered=len(of[Status.DELIVERED]),
        failed=len([one for one in failed if one.is_dead_letter]),
        resolved=len([one for one in failed if not one.is_dead_letter]),
        oldest_due=min(startable, default=None),
        oldest_failed=min(
            (one.settled_at for one in failed if one.is_dead_letter and one.settled_at),
            default=None,
        ),
    )
