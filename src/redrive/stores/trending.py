"""How trends are kept: points of many destinations in one packed row, fewer points the older."""

from __future__ import annotations

import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from redrive.model.instant import from_micros, micros
from redrive.model.trend import Measure, TrendPoint
from redrive.store import EVERYWHERE

__all__ = [
    "LONGEST_ROW",
    "TIERS",
    "Row",
    "block_of",
    "floor",
    "packed",
    "points_of",
    "rolled_up",
    "span_at",
    "with_all",
]

_BLOCKS = 1024
"""Over so many rows destinations are spread, so that reading one of them reads few others."""
_BLOCK_EVERYWHERE = -1
_MICROS = 1_000_000


class Tier(NamedTuple):
    """How many seconds a point stands for, a row covers, and a row is kept after its end."""

    span: int
    row: int
    kept: int


_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
TIERS = (
    Tier(_MINUTE, _MINUTE, _MINUTE),  # as workers wrote them, many for each minute
    Tier(_MINUTE, 10 * _MINUTE, 3 * _HOUR),
    Tier(10 * _MINUTE, 2 * _HOUR, 2 * _DAY),
    Tier(_HOUR, _DAY, 7 * _DAY),
)
LONGEST_ROW = timedelta(seconds=max(one.row for one in TIERS))

_Packed = tuple[int, int, int, int, tuple[int, ...]]
_Body = dict[str, dict[int, _Packed]]
"""By destination, and by the place of the point in its row."""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Body)


class Row(NamedTuple):
    """Points of the destinations of a block, from an instant on."""

    tier: int
    block: int
    start: datetime
    body: bytes

    def points(
        self, names: Container[str] | None = None
    ) -> Iterator[tuple[str, datetime, Measure]]:
        """Return what is packed in it, of these destinations or of all."""
        span = timedelta(seconds=TIERS[self.tier].span)
        for name, points in _decoder.decode(zlib.decompress(self.body)).items():
            if names is not None and name not in names:
                continue
            for place, (delivered, retried, failed, overdue, latencies) in points.items():
                measure = Measure(
                    delivered=delivered,
                    retried=retried,
                    failed=failed,
                    overdue=overdue,
                    latencies=latencies,
                )
                yield name, self.start + place * span, measure


def block_of(name: str) -> int:
    """Return the block whose rows a destination is in."""
    if name == EVERYWHERE:
        return _BLOCK_EVERYWHERE
    return zlib.crc32(name.encode()) % _BLOCKS


def floor(instant: datetime, seconds: int) -> datetime:
    """Return the start of the stretch of so many seconds that an instant is in."""
    length = seconds * _MICROS
    return from_micros(micros(instant) // length * length)


def span_at(start: datetime, *, now: datetime) -> int | None:
    """Return how many seconds a point of this age stands for; `None` if it is kept no longer."""
    age = (now - start).total_seconds()
    return next((one.span for one in TIERS[1:] if age < one.kept), None)


def with_all(measures: Mapping[str, Measure]) -> dict[str, Measure]:
    """Return the measures, and their sum as that of all destinations together."""
    everywhere = Measure()
    for one in measures.values():
        everywhere += one
    return {**measures, EVERYWHERE: everywhere}


def packed(tier: int, points: Iterable[tuple[str, datetime, Measure]]) -> list[Row]:
    """Return points as rows of a tier; those that fall together are added up."""
    span, length, _ = TIERS[tier]
    found: dict[tuple[int, datetime], dict[str, dict[int, Measure]]] = {}
    for name, at, measure in points:
        start = floor(at, length)
        places = found.setdefault((block_of(name), start), {}).setdefault(name, {})
        place = int((at - start).total_seconds()) // span
        places[place] = places[place] + measure if place in places else measure
    return [Row(tier, block, start, _pack(body)) for (block, start), body in found.items()]


def rolled_up(due: Iterable[Row], others: Iterable[Row]) -> list[Row]:
    """Return rows in place of those whose time has come, and of those they are added to."""
    by_tier: dict[int, list[tuple[str, datetime, Measure]]] = {}
    for row in due:
        if row.tier + 1 < len(TIERS):
            by_tier.setdefault(row.tier + 1, []).extend(row.points())
    for row in others:
        by_tier.setdefault(row.tier, []).extend(row.points())
    return [row for tier, points in by_tier.items() for row in packed(tier, points)]


def points_of(
    rows: Iterable[Row], names: Sequence[str], *, since: datetime
) -> dict[str, list[TrendPoint]]:
    """Return the points of these destinations in the order of time, each added up."""
    found: dict[str, dict[datetime, Measure]] = {one: {} for one in names}
    for row in rows:
        span = timedelta(seconds=TIERS[row.tier].span)
        for name, start, measure in row.points(found):
            if start + span > since:
                known = found[name]
                known[start] = known[start] + measure if start in known else measure
    return {
        name: [TrendPoint(start=start, measure=one) for start, one in sorted(points.items())]
        for name, points in found.items()
    }


def _pack(body: Mapping[str, Mapping[int, Measure]]) -> bytes:
    plain = {
        name: {
            place: (one.delivered, one.retried, one.failed, one.overdue, one.latencies)
            for place, one in points.items()
        }
        for name, points in body.items()
    }
    return zlib.compress(_encoder.encode(plain))
