"""A week of trends of ten thousand destinations takes less than 200 MB."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import apsw

from redrive.model.instant import micros
from redrive.model.trend import Measure
from redrive.stores.sqlite import SqliteStore
from redrive.stores.trending import TIERS, Row, block_of, packed
from redrive.testing.clock import FakeClock

_DESTINATIONS = 10_000
_MEASURED = 2
"""So many blocks are filled, and the size of all reckoned from them."""
_MOST_BYTES = 200_000_000


def _busy(rng: Random, seconds: int) -> Measure:
    """Return what becomes of about a delivery in two seconds."""
    count = rng.randrange(seconds // 4, seconds)
    latencies = [0] * 12
    for _ in range(20):
        latencies[min(11, max(0, round(rng.gauss(4, 1.5))))] += count // 20 + 1
    return Measure(
        delivered=count,
        retried=rng.randrange(count // 4 + 1),
        failed=rng.randrange(3),
        overdue=rng.randrange(60),
        latencies=tuple(latencies),
    )


def _rows() -> Iterator[Row]:
    rng = Random(18)  # noqa: S311 - the same each time
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    names = [f"customer-{number:05}.webhooks" for number in range(_DESTINATIONS)]
    mine = [name for name in names if 0 <= block_of(name) < _MEASURED]
    for tier, (span, length, kept) in list(enumerate(TIERS))[1:]:
        # Of a tier there is what is kept, and a row that is not old enough as a whole.
        yield from packed(
            tier,
            [
                (name, begin + timedelta(seconds=place * span), _busy(rng, span))
                for name in mine
                for place in range((kept + length) // span)
            ],
        )


async def test_a_week_of_ten_thousand_busy_destinations_fits(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "trends.db", clock=FakeClock())
    await store.open()
    await store.close()
    file = apsw.Connection(str(tmp_path / "trends.db"))
    size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    before = file.execute(size).get

    with file:
        file.executemany(
            "INSERT INTO redrive_trends (tier, block, starts_at, body) VALUES (?, ?, ?, ?)",
            [(row.tier, row.block, micros(row.start), row.body) for row in _rows()],
        )

    blocks = file.execute("SELECT count(DISTINCT block) FROM redrive_trends").get
    assert blocks == _MEASURED
    assert (file.execute(size).get - before) * 1024 / blocks < _MOST_BYTES
    file.close()
