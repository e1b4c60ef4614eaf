"""What a store promises to those who look for events."""

from __future__ import annotations

import pytest

from redrive.errors import UsageError
from redrive.model.delivery import Status
from redrive.model.event import EventId
from redrive.model.settlement import Delivered
from redrive.store import EventPage, EventQuery
from tests.conformance.world import OPERATOR, World, an_event, entries

__all__ = ["EventSearchConformance"]


async def found(world: World, **query: object) -> list[EventId]:
    page = await world.store.find_events(EventQuery(**query), limit=100)  # type: ignore[arg-type]
    assert page.next_cursor is None
    return [one.id for one in page.events]


class EventSearchConformance:
    """`EventSearch.find_events`: every filter, and pages."""

    async def test_the_latest_event_is_found_first(self, world: World) -> None:
        first, second = an_event(), an_event()
        await world.append(entries(first))
        await world.append(entries(second))

        assert await found(world) == [second.id, first.id]

    async def test_a_found_event_tells_whom_it_was_given_to_and_how_that_went(
        self, world: World
    ) -> None:
        event = an_event(type="order.paid", key="k", tenant="acme", source="web")
        await world.append(entries(event, to=["billing", "mailing", "ledger"]))
        await world.settle(await world.claim_one("billing"), Delivered())
        await world.fail(await world.claim_one("mailing"))
        mailed = await world.find_one(event, "mailing")
        await world.store.resolve([mailed.id], actor=OPERATOR)

        [one] = (await world.store.find_events(EventQuery())).events

        assert (one.id, one.type, one.published_at) == (event.id, event.type, event.published_at)
        assert (one.key, one.tenant, one.source, one.version) == ("k", "acme", "web", 1)
        assert sorted(one.destinations) == ["billing", "ledger", "mailing"]
        assert {(each.destination, each.status, each.is_resolved) for each in one.deliveries} == {
            ("billing", Status.DELIVERED, False),
            ("ledger", Status.PENDING, False),
            ("mailing", Status.FAILED, True),
        }
        assert mailed.id in [each.id for each in one.deliveries]

    async def test_events_are_found_by_what_they_say(self, world: World) -> None:
        event = an_event(type="order.paid", key="k", tenant="acme", source="web")
        await world.append(
            entries(event, an_event(type="order", key="l"), an_event(type="a.b", tenant="b"))
        )

        assert await found(world, event_id=event.id) == [event.id]
        assert await found(world, event_id="no-such-event") == []
        assert await found(world, event_type="order.*") == [event.id]
        assert await found(world, key="k") == [event.id]
        assert await found(world, key="K") == []
        assert await found(world, tenant="acme") == [event.id]
        assert await found(world, source="web") == [event.id]
        assert await found(world, key="k", tenant="b") == []

    async def test_events_are_found_by_when_they_were_published(self, world: World) -> None:
        events = [an_event(published_at=world.after(span)) for span in ("1m", "2m", "3m")]
        await world.append(entries(*events))
        middle = events[1].published_at

        assert await found(world, since=middle) == [events[2].id, events[1].id]
        assert await found(world, until=middle) == [events[0].id]

    async def test_unrouted_events_are_found(self, world: World) -> None:
        lost = an_event()
        await world.append([*entries(an_event()), *entries(lost, to=[])])

        assert await found(world, unrouted=True) == [lost.id]

    async def test_an_event_whose_delivery_has_gone_is_not_unrouted(self, world: World) -> None:
        dead = await world.dead_letter()
        await world.store.delete([dead], actor=OPERATOR)

        assert await found(world, unrouted=True) == []
        [one] = (await world.store.find_events(EventQuery())).events
        assert (one.destinations, one.deliveries) == (("billing",), ())

    async def test_events_are_found_by_the_status_of_a_delivery(self, world: World) -> None:
        failed, waiting = an_event(), an_event()
        dead = await world.dead_letter(failed)
        await world.append(entries(waiting))

        assert await found(world, status=Status.FAILED) == [failed.id]
        assert await found(world, status=Status.PENDING) == [waiting.id]
        await world.store.resolve([dead], actor=OPERATOR)
        assert await found(world, status=Status.FAILED) == []

    async def test_pages_of_events_neither_repeat_nor_skip(self, world: World) -> None:
        events = [an_event(key="k" if number % 2 else None) for number in range(7)]
        await world.append(entries(*events))
        wanted = [one.id for one in reversed(events) if one.key]

        for query, expected in (
            (EventQuery(), [one.id for one in reversed(events)]),
            (EventQuery(key="k"), wanted),
        ):
            seen: list[EventId] = []
            page = EventPage(next_cursor="9" * 18)
            while page.next_cursor is not None:
                page = await world.store.find_events(query, cursor=page.next_cursor, limit=2)
                seen += [one.id for one in page.events]
                await world.append(entries(an_event(key="k")))
            assert [one for one in seen if one in {each.id for each in events}] == expected
            assert len(seen) == len(set(seen))

    async def test_a_cursor_of_another_list_is_refused(self, world: World) -> None:
        for cursor in ("", "1-2", "x", "9" * 30):
            with pytest.raises(UsageError, match="not one of ours"):
                await world.store.find_events(EventQuery(), cursor=cursor)
