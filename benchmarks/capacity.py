"""What a node carries, and how many nodes much needs: arithmetic on what was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.results import Results
from redrive.model.retention import Retention

__all__ = ["ASSUMED", "SECONDS_A_DAY", "Assumptions", "Bound", "Capacity", "capacity_of"]

SECONDS_A_DAY = 86_400


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """What nobody can measure for a reader: how traffic and machines are."""

    per_day: float = 1e9
    peak: float = 2.0
    """The busiest hour, as a multiple of the mean."""
    utilisation: float = 0.7
    """How much of what it has a node gives in that hour, or of its disk at any time."""
    disk_bytes: float = 2e12
    disk_bytes_per_second: float = 200e6
    connections: int = 100
    connections_a_worker: int = 6
    connections_a_publisher: int = 2
    publishers: int = 10
    """How many processes publish to one node."""
    transactions_before_freezing: float = 200e6

    @property
    def per_second(self) -> float:
        """The mean."""
        return self.per_day / SECONDS_A_DAY

    @property
    def head_room(self) -> float:
        """What a node must be able to do, as a multiple of the mean it is asked for."""
        return self.peak / self.utilisation

    def a_day(self, per_second: float) -> float:
        """Return how many a day fit into what can be done in a second."""
        return per_second / self.head_room * SECONDS_A_DAY

    @property
    def workers(self) -> int:
        """How many worker processes the connections of one server are enough for."""
        taken = self.publishers * self.connections_a_publisher
        return (self.connections - taken) // self.connections_a_worker


ASSUMED = Assumptions()


@dataclass(frozen=True, kw_only=True)
class Bound:
    """How many events a day one node can take before something ends, and how that was found."""

    what: str
    reckoning: str
    per_day: float


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What is known of one node of a store; `None` was not measured."""

    store: str
    published: float | None = None
    drained: float | None = None
    at_half: float | None = None
    kept: float | None = None
    kept_in_log: float | None = None
    written: float | None = None
    assumed: Assumptions = ASSUMED

    @property
    def carried(self) -> float | None:
        """Events per second, published and delivered at once."""
        if self.at_half is not None:
            return 2 * self.at_half
        if not self.published or not self.drained:
            return None
        return 1 / (1 / self.published + 1 / self.drained)

    @property
    def per_day(self) -> float | None:
        """How many events a day it takes with head room."""
        return None if self.carried is None else self.assumed.a_day(self.carried)

    @property
    def nodes(self) -> int | None:
        """How many nodes all of it needs."""
        return math.ceil(self.assumed.per_day / self.per_day) if self.per_day else None

    @property
    def byte_days(self) -> float | None:
        """Bytes times days of one event: it is kept longer than what tells of its delivery."""
        if self.kept is None or self.kept_in_log is None:
            return None
        kept = Retention()
        days = kept.events.total_seconds() / SECONDS_A_DAY
        days_of_delivery = kept.delivered.total_seconds() / SECONDS_A_DAY
        return self.kept_in_log * days + (self.kept - self.kept_in_log) * days_of_delivery

    def bounds(self) -> list[Bound]:
        """Return what ends first, first; of what was not measured nothing is said."""
        found: list[Bound] = []
        if self.carried is not None:
            found.append(
                Bound(
                    what="processor and commits",
                    reckoning=f"{self.carried:,.0f}/s / {self.assumed.head_room:.2f} x 86,400 s",
                    per_day=self.assumed.a_day(self.carried),
                )
            )
        return sorted([*found, *self._of_disk(), *self._of_connections()], key=lambda x: x.per_day)

    def _of_disk(self) -> list[Bound]:
        assumed, found = self.assumed, []
        if self.written:
            speed = assumed.disk_bytes_per_second
            found.append(
                Bound(
                    what="writing to the disk",
                    reckoning=f"{speed / 1e6:,.0f} MB/s / {self.written:,.0f} bytes"
                    f" / {assumed.head_room:.2f} x 86,400 s",
                    per_day=assumed.a_day(speed / self.written),
                )
            )
        if self.byte_days:
            room = assumed.disk_bytes * assumed.utilisation
            found.append(
                Bound(
                    what="room on the disk, with the retention there is by default",
                    reckoning=f"{room / 1e12:,.1f} TB / {self.byte_days:,.0f} bytes times days",
                    per_day=room / self.byte_days,
                )
            )
        return found

    def _of_connections(self) -> list[Bound]:
        if self.store != "postgres" or not self.drained:
            return []
        workers = self.assumed.workers
        return [
            Bound(
                what="connections for workers",
                reckoning=f"{workers} workers x {self.drained:,.0f}/s"
                f" / {self.assumed.head_room:.2f} x 86,400 s",
                per_day=self.assumed.a_day(workers * self.drained),
            )
        ]


def capacity_of(results: Results, store: str, assumed: Assumptions = ASSUMED) -> Capacity:
    """Return what a run says of one store."""
    engine = f"redrive_{store}"

    def stored(figure: str) -> float | None:
        return results.best("resources", "storage", engine, figure, "delivered")

    return Capacity(
        store=store,
        published=results.best(store, "concurrent", engine, "per_second"),
        drained=results.best(store, "drain", engine, "per_second"),
        at_half=results.best(store, "latency_at_half", engine, "offered"),
        kept=stored("bytes_each"),
        kept_in_log=stored("log_bytes_each"),
        written=stored("written_each"),
        assumed=assumed,
    )
