"""What Prometheus reads of tracking: the same as the figures, to the last event."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from redrive import Event, Filter, Redrive, Retry, Tracking
from redrive.observers.prometheus import PrometheusObserver
from redrive.testing import Kit
from tests.tracking.sinks import Dead, Good
from tests.unit.observers.test_prometheus import Readings
from tests.web.client import Client


async def test_what_is_tracked_is_told_to_the_last_event(tmp_path: Path) -> None:
    terms = Tracking(rate="3/s", sampling={"debug.*": 0.0}, filter=Filter(never_save=("page.two",)))
    app = Redrive("memory://", tracking=terms, journal=tmp_path)
    app.destination("good", "*", transport=Good())
    app.destination("dead", "page.*", transport=Dead())
    observer = PrometheusObserver(
        tracking=lambda: app.tracking.figures(),  # noqa: PLW0108 - the kit gives it another
        journal=lambda: app.tracking.journal_sizes(),  # noqa: PLW0108 - as above
    )
    async with Kit(app):
        app.track("debug.seen")
        app.track("page.one")
        app.track("page.two")
        app.track("other.seen")
        app.track("page.one")  # one too many
        app.track("page.two")
        await app.flush()
        read = Readings(observer.render())
        registry = CollectorRegistry()
        registry.register(observer)
        same = Readings(generate_latest(registry))

    assert read.of("redrive_tracked_total") == same.of("redrive_tracked_total") == 6
    assert read.by("redrive_tracked_ends_total", "end") == {"sent": 1, "stored": 2, "spilled": 0}
    dropped = {"sampled": 1, "filtered": 1, "rate_limited": 1}
    assert read.by("redrive_tracked_dropped_total", "reason") == dropped
    assert read.of("redrive_tracked_filtered_total") == 2
    limits = {"allowed": 3, "limited": 2}
    assert read.by("redrive_tracked_limits_total", "verdict") == limits
    assert read.of("redrive_tracked_waiting") == 0
    arrived = read.of("redrive_tracked_parts_total", destination="good", result="arrived")
    failed = read.of("redrive_tracked_parts_total", destination="dead", result="failed")
    assert (arrived, failed) == (3, 1)
    shares = read.by("redrive_tracked_fan_out_share_bucket", "le")
    assert (shares["0.25"], shares["0.5"], shares["+Inf"]) == (1, 3, 4)
    assert read.of("redrive_tracked_fan_out_share_sum") == 0.0 + 0.5 + 0.5 + 1.0


async def test_the_size_of_the_journal_is_told(tmp_path: Path) -> None:
    app = Redrive("memory://", journal=tmp_path)
    (tmp_path / "a.drained").write_bytes(b"four")
    (tmp_path / "b.drained").write_bytes(b"two")

    answer = await Client(app.asgi(login=False)).get("/metrics")
    await app.close()

    read = Readings(answer.body)
    assert read.by("redrive_journal_files", "state") == {"to_drain": 0, "drained": 2, "damaged": 0}
    assert read.of("redrive_journal_bytes", state="drained") == 7
    assert read.of("redrive_tracked_total") is None  # nothing was, and no thread was begun for it


async def test_a_retry_is_told_with_its_delay_and_what_came_of_it() -> None:
    app, observer = Redrive("memory://"), PrometheusObserver()
    app.observe(observer)
    tries = []

    @app.handler("order.*", name="billing", retry=Retry(max_attempts=3, base="20s", jitter="none"))
    async def bill(event: Event[object]) -> None:
        tries.append(event)
        if len(tries) < 2:
            raise ConnectionError

    async with Kit(app) as kit:
        await app.publish("order.paid", 1)
        await app.publish("order.paid", 2)
        await kit.drain()
        await kit.drain(until="1m")

    read = Readings(observer.render())
    delays = read.of("redrive_retry_delay_seconds_sum", destination="billing")
    assert delays is not None
    assert 19 < delays < 21
    assert read.of("redrive_recovered_total", destination="billing") == 1
