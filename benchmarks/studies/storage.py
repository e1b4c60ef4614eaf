"""What an event costs on disk: what it takes up, and what is written until it is delivered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import apsw
import asyncpg

from benchmarks.contender import Arena, Place, Run
from benchmarks.measures.shop import CONCURRENCY, Shop, store_url
from benchmarks.study import Scale, Section, Study

__all__ = ["STUDY"]

_SCHEMA = "storage"
_POSTGRES_SIZE = f"""
SELECT sum(pg_total_relation_size(c.oid))::bigint,
       sum(pg_total_relation_size(c.oid)) FILTER (WHERE c.relname = 'events')::bigint,
       pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint
FROM pg_class c WHERE c.relnamespace = '{_SCHEMA}'::regnamespace AND c.relkind IN ('r', 'p')
"""
_SQLITE_SIZE = """
SELECT sum(pgsize), sum(iif(name = 'redrive_events' OR name LIKE '%redrive_events_%', pgsize, 0))
FROM dbstat
"""

Sizes = tuple[int, int, int]
"""Bytes of everything, of the log of events alone, and written so far."""


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    count = scale.small * 2
    shop = Shop(url=store_url(arena, place, _SCHEMA), concurrency=CONCURRENCY[arena])
    async with shop.app:
        await shop.app.open()
        before = await _sizes(arena, place)
        await shop.publish(count)
        yield _run(before, await _sizes(arena, place), count, "published")
        await shop.drain_some(count)
        yield _run(before, await _sizes(arena, place), count, "delivered")


async def _sizes(arena: Arena, place: Place) -> Sizes:
    if arena is Arena.POSTGRES:
        connection = await asyncpg.connect(place.url)
        try:
            everything, events, written = await connection.fetchrow(_POSTGRES_SIZE)
        finally:
            await connection.close()
        return everything, events, written
    path = place.folder / f"{_SCHEMA}.db"
    with closing(apsw.Connection(str(path))) as reader:
        everything, events = reader.execute(_SQLITE_SIZE).get
    return everything, events, _written_by_us()


def _written_by_us() -> int:
    """Return what this process has written: to the log of SQLite, and from there to its file."""
    lines = Path("/proc/self/io").read_text("utf-8").splitlines()
    (written,) = (line.split()[1] for line in lines if line.startswith("wchar:"))
    return int(written)


def _run(before: Sizes, after: Sizes, count: int, point: str) -> Run:
    kept, log, written = ((late - early) / count for early, late in zip(before, after, strict=True))
    figures = {"bytes_each": kept, "log_bytes_each": log, "written_each": written}
    return Run(figures=figures, point=point)


STUDY = Study(
    title="room on the disk",
    section=Section.RESOURCES,
    axis="events that are",
    figures=("bytes_each", "log_bytes_each", "written_each"),
    measure=_measure,
)
