"""The `eventsourcing` library as a log, whatever its database."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.contender import Place
from benchmarks.measures.reading import KEYS, TABLE, UPSERT, Log, Row

__all__ = ["SourcedLog"]

_PATIENCE = 3_600.0
_PAGE = 500


class SourcedLog(Log):
    """Aggregates that are kept at hand, and a projection run by the library's own runner."""

    way = "an event in each transaction"

    def __init__(
        self,
        place: Place,
        *,
        environment: Mapping[str, str],
        recorder: str,
        sign: str,
        has_subscriptions: bool,
    ) -> None:
        super().__init__(place)
        self._environment = dict(environment)
        self._model: Any = importlib.import_module("benchmarks.measures.ordering")
        module, _, name = recorder.partition(":")
        self._view = self._model.view_of(
            getattr(importlib.import_module(module), name), TABLE, re.sub(r"\$\d", sign, UPSERT)
        )
        self._has_subscriptions = has_subscriptions
        self._app: Any = None
        self._known: dict[str, Any] = {}
        self._last = 0
        self._count = 0

    async def open(self, *, lists: bool = False) -> None:
        """Open its database, and store an aggregate for each key."""
        if lists:
            raise NotImplementedError("a projection of this library gets one event at a time")
        self._app = self._model.Orders(self._environment)
        self._known = {key: self._model.Order(key) for key in (f"k{n}" for n in range(KEYS))}
        self._app.save(*self._known.values())

    async def append(self, rows: Sequence[Row]) -> None:
        """Save all aggregates with what has happened to them, in one transaction."""
        for key, number in rows:
            self._known[key].pay(key, number)
        recorded = self._app.save(*{key: self._known[key] for key, _ in rows}.values())
        self._last = max(one.notification.id for one in recorded)

    async def project(self) -> None:
        """Run a projection until it is there."""
        run = self._subscribed if self._has_subscriptions else self._paged
        self._count = run()

    def _subscribed(self) -> int:
        runner_of: Any = importlib.import_module("eventsourcing.projection").ProjectionRunner
        with runner_of(
            application_class=self._model.Orders,
            projection_class=self._model.Paid,
            view_class=self._view,
            env=self._environment,
        ) as runner:
            runner.wait(self._last, timeout=_PATIENCE)
            return int(runner.view.counted())

    def _paged(self) -> int:
        """Read its log page by page, which is what a runner would do if there were one."""
        tracking_of: Any = importlib.import_module("eventsourcing.persistence").Tracking
        app = self._app
        view = app.factory.tracking_recorder(self._view)
        projection = self._model.Paid(view)
        place = 0
        while place < self._last:
            page = app.recorder.select_notifications(
                place + 1, _PAGE, topics=self._model.Paid.topics
            )
            for one in page:
                event = app.mapper.to_domain_event(one)
                projection.process_event(event, tracking_of(app.name, one.id))
                place = one.id
        return int(view.counted())

    async def counted(self) -> int:
        """Return how many it has applied."""
        return self._count

    async def close(self) -> None:
        """Close its database."""
        self._app.close()
