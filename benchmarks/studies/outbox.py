"""How soon a handler runs after the commit of a transaction that an event was published within."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connection as django_connection
from django.db import transaction
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from benchmarks.contender import Arena, Place, Run
from benchmarks.figures import percentile
from benchmarks.measures.engine import TYPE
from benchmarks.measures.shop import store_url
from benchmarks.study import Scale, Section, Study
from redrive import Event, Redrive

__all__ = ["STUDY"]

_PAUSE_SECONDS = 0.03
_PATIENCE_SECONDS = 10.0

Commit = Callable[[Any], Awaitable[float]]
"""Publishes a payload, commits, and returns when it began to commit."""


async def _measure(scale: Scale, arena: Arena, place: Place) -> AsyncIterator[Run]:
    url = store_url(arena, place, "outbox")
    began: dict[int, float] = {}
    waits: dict[str, list[float]] = {}
    handled = asyncio.Event()
    publisher, worker = Redrive(url), Redrive(url)

    @worker.handler("order.*", name="noop")
    async def handle(event: Event[int]) -> None:
        began[event.payload] = time.perf_counter()
        handled.set()

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(publisher)
        stack.callback(publisher.sync.close)
        await stack.enter_async_context(worker)
        await stack.enter_async_context(worker.worker())
        ways = await _ways(stack, publisher, place.url)
        for number in range(max(2, scale.sample // 80)):
            for place_of, (name, commit) in enumerate(ways.items()):
                order = number * len(ways) + place_of
                handled.clear()
                committing = await commit(order)
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    while order not in began:
                        await handled.wait()
                        handled.clear()
                waits.setdefault(name, []).append(began[order] - committing)
                await asyncio.sleep(_PAUSE_SECONDS)
    for name, seconds in waits.items():
        figures = {f"p{p}_ms": percentile(seconds, p / 100) * 1e3 for p in (50, 95)}
        yield Run(figures=figures, point=name)


async def _ways(stack: AsyncExitStack, app: Redrive, url: str) -> dict[str, Commit]:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    stack.callback(engine.dispose)
    async_engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    stack.push_async_callback(async_engine.dispose)
    _configure_django(url)

    async def plain(order: int) -> float:
        began = time.perf_counter()
        await app.publish(TYPE, order)
        return began

    def by_session(order: int) -> float:
        with Session(engine) as session, session.begin():
            app.sync.publish(TYPE, order, within=session)
            return time.perf_counter()

    def by_connection(order: int) -> float:
        with engine.begin() as connection:
            app.sync.publish(TYPE, order, within=connection)
            return time.perf_counter()

    async def by_async_session(order: int) -> float:
        async with AsyncSession(async_engine) as session, session.begin():
            await app.publish(TYPE, order, within=session)
            return time.perf_counter()

    def by_django(order: int) -> float:
        try:
            with transaction.atomic():
                app.sync.publish(TYPE, order, within=django_connection)
                return time.perf_counter()
        finally:
            django_connection.close()  # the next one may run in another thread

    return {
        "plain publish": plain,
        "SQLAlchemy, session": lambda order: asyncio.to_thread(by_session, order),
        "SQLAlchemy, connection": lambda order: asyncio.to_thread(by_connection, order),
        "SQLAlchemy, async session": by_async_session,
        "Django, atomic": lambda order: asyncio.to_thread(by_django, order),
    }


def _configure_django(url: str) -> None:
    parts = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "USER": parts.username,
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
    if not settings.configured:
        settings.configure(DATABASES={"default": database}, USE_TZ=False)
        django.setup()


STUDY = Study(
    title="from commit to handler",
    section=Section.PROMISES,
    axis="published by",
    figures=("p50_ms", "p95_ms"),
    measure=_measure,
    arenas=(Arena.POSTGRES,),
)
