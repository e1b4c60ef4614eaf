"""Metrics: what real runs count, what the store's figures show, and that labels stay few."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, get_args

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import redrive
from redrive import Event, Redrive, Retry, Snooze, Terminal
from redrive.model.delivery import DeliveryId, Lease
from redrive.observer import (
    AlreadyApplied,
    Claimed,
    Fact,
    HandlerStuck,
    LeasesLost,
    ListeningLost,
    Rescued,
    SettlementsRefused,
    StoreLost,
)
from redrive.observers.prometheus import OTHER, PrometheusObserver
from redrive.store import DestinationFigures, Figures, LetterFigures
from redrive.testing import FakeClock, Kit
from tests.unit.observers.test_logging import CARD, EVENT, FACTS, LEASED

NOW = FakeClock().now()
LABELS = {
    *("state", "action", "destination", "le", "reason", "result", "status", "verdict", "what"),
    *("version", "python", "rule"),
}


class Readings:
    """What Prometheus would read, by name and labels."""

    def __init__(self, text: bytes) -> None:
        self.samples = [
            sample
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
        ]

    def of(self, name: str, **labels: str) -> float | None:
        found = [one.value for one in self.samples if (one.name, one.labels) == (name, labels)]
        return found[0] if found else None

    def by(self, name: str, label: str) -> Mapping[str, float]:
        return {one.labels[label]: one.value for one in self.samples if one.name == name}


def observed(*facts: Fact) -> Readings:
    observer = PrometheusObserver()
    for fact in facts:
        observer.notice(fact)
    return Readings(observer.render())


def shop() -> tuple[Redrive, PrometheusObserver]:
    """An app that does what the payload says, and who counts."""
    app, observer = Redrive("memory://"), PrometheusObserver()
    app.observe(observer)

    @app.handler("order.*", name="billing", retry=Retry(max_attempts=2, base="1s"))
    async def bill(event: Event[Any]) -> Snooze | None:
        match event.payload:
            case "retry":
                raise ConnectionError
            case "snooze":
                return Snooze("1h")
            case "fail":
                raise Terminal("no such customer")
        return None

    return app, observer


async def test_publishes_are_counted_once_and_by_what_became_of_them() -> None:
    app, observer = shop()
    async with Kit(app):
        for _ in range(2):
            await app.publish("order.paid", idempotency_key="a")
        await app.publish("nobody.cares")

    read = Readings(observer.render())
    assert read.of("redrive_events_published_total") == 2
    assert read.of("redrive_events_duplicate_total") == 1
    assert read.of("redrive_events_unrouted_total") == 1


async def test_attempts_are_counted_by_their_result() -> None:
    app, observer = shop()
    async with Kit(app) as kit:
        for payload in ("done", "done", "retry", "snooze", "fail"):
            await app.publish("order.paid", payload)
        await kit.drain()

    read = Readings(observer.render())
    assert read.by("redrive_deliveries_claimed_total", "destination") == {"billing": 5}
    assert read.by("redrive_attempts_total", "result") == {
        "delivered": 2,
        "retry": 1,
        "snoozed": 1,
        "failed": 1,
    }
    assert read.of("redrive_attempt_seconds_count", destination="billing") == 5


async def test_dead_letters_are_counted_by_their_reason() -> None:
    app, observer = shop()
    async with Kit(app) as kit:
        for payload in ("retry", "fail", "fail"):
            await app.publish("order.paid", payload)
        await kit.drain(until="1h")

    read = Readings(observer.render())
    assert read.by("redrive_dead_letters_total", "reason") == {"terminal": 2, "exhausted": 1}


async def test_the_time_of_each_attempt_falls_into_its_bucket() -> None:
    app, observer = Redrive("memory://"), PrometheusObserver()
    app.observe(observer)
    async with Kit(app) as kit:

        @app.handler("order.*")
        async def billing(event: Event[Any]) -> None:
            kit.clock.advance(event.payload)

        for took in ("20ms", "2s", "7s"):
            await app.publish("order.paid", took)
        await kit.drain()

    read = Readings(observer.render())
    buckets = read.by("redrive_attempt_seconds_bucket", "le")
    assert (buckets["0.01"], buckets["0.025"], buckets["1.0"], buckets["2.5"]) == (0, 1, 1, 2)
    assert (buckets["5.0"], buckets["10.0"], buckets["+Inf"]) == (2, 3, 3)
    assert read.of("redrive_attempt_seconds_sum", destination="billing") == pytest.approx(9.02)


async def test_deliveries_are_timed_from_when_they_could_run_until_they_are_done() -> None:
    app, observer = Redrive("memory://"), PrometheusObserver()
    app.observe(observer)
    async with Kit(app) as kit:

        @app.handler("order.*", retry=Retry(max_attempts=2, base="10s", jitter="none"))
        async def billing(event: Event[Any]) -> None:
            kit.clock.advance("2s")
            if event.payload == "retry" and kit.clock.now() < begun + timedelta(seconds=10):
                raise ConnectionError

        begun = kit.clock.now()
        await app.publish("order.paid", "retry")
        await kit.run_for("1m")
        await app.publish("order.paid", "later", due="1h")
        await kit.run_for("2h")

    read = Readings(observer.render())
    buckets = read.by("redrive_delivery_seconds_bucket", "le")
    assert (buckets["1.0"], buckets["5.0"], buckets["15.0"], buckets["+Inf"]) == (0, 1, 2, 2)
    assert read.of("redrive_delivery_seconds_count", destination="billing") == 2


def test_the_build_is_told() -> None:
    [sample] = [one for one in observed().samples if one.name == "redrive_build_info"]

    assert sample.labels == {
        "version": redrive.__version__,
        "python": platform.python_version(),
    }
    assert sample.value == 1


async def test_acts_of_people_are_counted_by_action() -> None:
    app, observer = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid", "fail")
        await kit.drain()
        await kit.operations.replay([kit.dead_letters()[0].id], by="ada")

    read = Readings(observer.render())
    assert read.by("redrive_operations_total", "action") == {"replay": 1}


async def test_the_figures_of_the_store_are_shown_with_the_counts() -> None:
    app, observer = shop()
    async with Kit(app) as kit:
        for payload in ("done", "fail"):
            await app.publish("order.paid", payload)
        await kit.drain()
        await app.publish("order.paid", "done")
        kit.clock.advance("90s")
        read = Readings(observer.render(await kit.operations.status()))

    assert read.by("redrive_deliveries", "status") == {
        "pending": 1,
        "in_flight": 0,
        "delivered": 1,
        "failed": 1,
        "resolved": 0,
    }
    assert read.of("redrive_oldest_due_seconds", destination="billing") == 90
    assert (read.of("redrive_workers"), read.of("redrive_in_flight")) == (0, 0)
    assert read.of("redrive_store_up") == 1


async def test_a_breaker_is_one_series_whatever_its_state() -> None:
    """A label for the state would leave a series at `open` for ever."""
    app, observer = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid")
        states = []
        for act in (kit.operations.open_breaker, kit.operations.reset_breaker):
            await act("billing", by="ada")
            read = Readings(
                observer.render(await kit.operations.status(), await kit.operations.gates())
            )
            states.append(read.by("redrive_breaker_state", "destination"))

    assert states == [{"billing": 2}, {"billing": 0}]


def test_a_store_without_an_answer_shows_no_old_figures() -> None:
    read = observed()

    assert read.of("redrive_store_up") == 0
    assert read.of("redrive_workers") is None


def test_what_goes_wrong_in_the_engine_is_counted() -> None:
    leases = (Lease(DeliveryId(1), 1), Lease(DeliveryId(2), 1))
    rescues = [fact for fact, _, _ in FACTS if isinstance(fact, Rescued)]

    read = observed(
        SettlementsRefused(worker="w1", leases=leases),
        AlreadyApplied(worker="w1", leased=LEASED),
        LeasesLost(worker="w1", leases=leases),
        HandlerStuck(worker="w1", destination="billing", deliveries=(DeliveryId(1),)),
        StoreLost(worker="w1", error="disk full"),
        ListeningLost(store="db", error="terminated"),
        *rescues,
    )

    assert read.of("redrive_settlements_refused_total") == 2
    assert read.of("redrive_effects_already_applied_total", destination="billing") == 1
    assert read.of("redrive_leases_lost_total") == 2
    assert read.of("redrive_handlers_stuck_total", destination="billing") == 1
    assert read.of("redrive_store_lost_total") == 1
    assert read.of("redrive_listening_lost_total") == 1
    assert read.by("redrive_rescues_total", "verdict") == {"requeued": 1, "failed": 1}


def test_the_series_of_a_worker_begin_at_zero() -> None:
    """Prometheus cannot see the first step of a series that begins at 1."""
    facts = [fact for fact, _, said in FACTS if said == "worker started"]

    read = observed(*facts)

    assert read.by("redrive_deliveries_claimed_total", "destination") == {"billing": 0}
    assert set(read.by("redrive_attempts_total", "result").values()) == {0}
    assert read.of("redrive_events_published_total") == 0


def test_no_label_holds_an_id_a_type_a_tenant_or_free_text() -> None:
    facts = [fact for fact, _, _ in FACTS]

    read = observed(*facts)

    values = {value for one in read.samples for value in one.labels.values()}
    assert {type(fact) for fact in facts} == set(get_args(Fact))
    assert {name for one in read.samples for name in one.labels} <= LABELS
    assert values.isdisjoint({EVENT.id, EVENT.type, "w1", "acme", "7", "ann", CARD})


def test_destinations_beyond_the_limit_share_a_label() -> None:
    observer = PrometheusObserver(most_destinations=2)
    names = ["a", "b", "c", "d", "a"]
    for name in names:
        observer.notice(HandlerStuck(worker="w1", destination=name, deliveries=()))
    figures = Figures(
        now=NOW,
        events=0,
        unrouted=0,
        refused_settlements=0,
        deleted=0,
        destinations=tuple(
            DestinationFigures(
                name=name,
                patterns=(),
                pending=1,
                in_flight=2,
                oldest_due=NOW - timedelta(seconds=age),
            )
            for age, name in enumerate("abcd")
        ),
        workers=(),
    )

    read = Readings(observer.render(figures))

    assert read.by("redrive_handlers_stuck_total", "destination") == {"a": 2, "b": 1, OTHER: 2}
    assert read.of("redrive_deliveries", destination=OTHER, status="pending") == 2
    assert read.of("redrive_oldest_due_seconds", destination=OTHER) == 3
    assert read.of("redrive_in_flight") == 8


def test_two_observers_share_nothing() -> None:
    one, other = PrometheusObserver(), PrometheusObserver()

    one.notice(StoreLost(worker="w1", error="disk full"))

    assert Readings(one.render()).of("redrive_store_lost_total") == 1
    assert Readings(other.render()).of("redrive_store_lost_total") == 0


def test_a_registry_of_ones_own_can_collect_it() -> None:
    observer, registry = PrometheusObserver(), CollectorRegistry()
    registry.register(observer)

    observer.notice(Claimed(worker="w1", deliveries=(LEASED, LEASED)))

    read = Readings(generate_latest(registry))
    assert read.of("redrive_deliveries_claimed_total", destination="billing") == 2


def test_tenants_are_few_however_many_come_and_go() -> None:
    metrics = PrometheusObserver()

    def scrape(*tenants: str) -> list[str]:
        letters = LetterFigures(by_tenant=tuple((one, 2) for one in tenants))
        figures = Figures(
            now=NOW,
            events=0,
            unrouted=0,
            refused_settlements=0,
            deleted=0,
            destinations=(),
            workers=(),
            letters=letters,
        )
        lines = metrics.render(figures).decode().splitlines()
        return [line for line in lines if line.startswith("redrive_dead_letters_by_tenant{")]

    for first in range(0, 200, 10):
        scrape(*(f"t{number}" for number in range(first, first + 10)))

    assert scrape("t7", "t198", "t199") == [
        'redrive_dead_letters_by_tenant{tenant="t7"} 2.0',
        'redrive_dead_letters_by_tenant{tenant="(other)"} 4.0',
    ]
