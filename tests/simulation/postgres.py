"""The real PostgreSQL store on a real server, reached by a driver that is simulated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from unittest.mock import patch

from redrive.clock import Clock
from redrive.model.delivery import Delivery, Kind, Lease, Leased, Status
from redrive.model.destination import Destination
from redrive.model.event import Receipt
from redrive.model.position import LogPosition
from redrive.store import (
    Append,
    Appended,
    Backfilled,
    CaughtUp,
    Claim,
    Entry,
    LoggedEvent,
    Query,
    Store,
)
from redrive.stores.codec import event_from
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.scan_bounds import ScanBounds
from tests.proof.checkers.records import Call, ClockSet, Looked, Made, Silenced
from tests.simulation.backend import RealServer, real_server
from tests.simulation.driver import LAST_USED, Driver
from tests.simulation.follower import Follower
from tests.simulation.history import History
from tests.simulation.loop import SimulationLoop
from tests.simulation.machine import Machine
from tests.simulation.network import WITNESSED, given_by_name, tells
from tests.simulation.plan import Plan
from tests.simulation.ports import HostClock

__all__ = ["ServerGround"]

_ALL = 100_000
_MADE = """
SELECT e.id::text, t.name, d.id, COALESCE(d.rule, '') FROM redrive.deliveries d
JOIN redrive.events e ON e.position = d.position JOIN redrive.destinations t ON t.id = d.destination
WHERE {which} ORDER BY d.id
"""
_MADE_OF_EVENTS = _MADE.format(which="e.id::text = ANY ($1::text[])")
_MADE_FOR = _MADE.format(which="t.name = $1 AND d.status = 0")
_MADE_LATER = _MADE.format(which="d.status = 0")
_EVENTS = "SELECT document FROM redrive.events ORDER BY position"
_LEASED = """
SELECT d.id, t.name, d.token, d.enqueued_at, d.breaker_generation, e.document
FROM redrive.deliveries d
JOIN redrive.events e ON e.position = d.position JOIN redrive.destinations t ON t.id = d.destination
WHERE d.id = ANY ($1::bigint[]) ORDER BY d.id
"""
_DOES = {
    "append": "INSERT INTO",
    "claim": "leased AS (",
    "settle": "done AS (",
    "heartbeat": "UPDATE",
    "extend": "UPDATE",
}
"""What a statement has that alone does what the call is for; others look whether there is work."""


class _About(NamedTuple):
    """The call of the contract that a statement belongs to."""

    method: str
    given: dict[str, Any]


_about: ContextVar[_About | None] = ContextVar("about", default=None)


class _SimulatedStore(PostgresStore):
    """The real store of one process, with a witness for what its transactions commit."""

    def __init__(self, ground: ServerGround, url: str, clock: Clock) -> None:
        super().__init__(url, clock=clock, history=20)
        self._ground = ground

    async def _share(self, job: Any) -> Any:  # noqa: ANN401 - as the store has it
        return await super()._share(self._told(job))

    async def _run_together(self, gathered: Any) -> None:  # noqa: ANN401 - as above
        _about.set(None)  # it belongs to all of them, and each tells for itself
        await super()._run_together(gathered)

    async def _run(self, job: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
        is_reading = "READ ONLY" in options.get("begin", "")
        return await super()._run(job if is_reading else self._told(job), **options)

    def _told(self, job: Any) -> Any:  # noqa: ANN401 - as above
        about = _about.get()
        if about is None:
            return job

        async def told(session: Any) -> Any:  # noqa: ANN401 - as above
            since = self._ground.time()
            answer = await job(session)
            connection = LAST_USED.get()
            # A claim that chooses again asks for the time once more, and goes by the first.
            now = answer.now if isinstance(answer, Claim) else connection.now
            connection.on_commit.append(lambda: self._ground.witness_job(about, answer, now, since))
            return answer

        return told

    async def _append(
        self, entries: Sequence[Entry], *, routes_version: int, is_patient: bool
    ) -> Append:
        """Append some of a call's entries: those that need not wait, or have waited."""
        given = {"entries": entries, "routes_version": routes_version, "all_or_nothing": is_patient}
        before = _about.get()
        _about.set(_About("append", given))
        try:
            return await super()._append(
                entries, routes_version=routes_version, is_patient=is_patient
            )
        finally:
            _about.set(before)


def _witnessed(method: str) -> Callable[..., Any]:
    names = given_by_name(method)
    plain = getattr(PostgresStore, method)

    async def call(self: _SimulatedStore, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the store has it
        before = _about.get()
        _about.set(_About(method, names(args, kwargs)))
        try:
            return await plain(self, *args, **kwargs)
        finally:
            _about.set(before)

    return call


for _method in (*WITNESSED, "catch_up"):
    if _method == "append":
        continue  # it may be divided, and each part tells for itself
    setattr(_SimulatedStore, _method, _witnessed(_method))


class ServerGround:
    """One server with a clock of its own, and processes that reach it over connections."""

    def __init__(
        self,
        plan: Plan,
        loop: SimulationLoop,
        history: History,
        *,
        spoils: tuple[str, str] | None = None,
    ) -> None:
        self.ways: Counter[str] = Counter()
        """How often each call went by steps, by one statement, or by one that only looks."""
        self._plan = plan
        self._loop = loop
        self._history = history
        self._clock = HostClock(loop, ahead=plan.ahead)
        self._real: RealServer = real_server()
        self._real.empty()
        self._eye = self._real.store(_Given(self._clock))
        # The beginning of the log is before the first transaction, in which an event may be.
        self._first_transaction = self._real.transaction() - 1
        self.driver = Driver(
            plan,
            self._real,
            loop=loop,
            history=history,
            clock=self._clock,
            watch=self._watch,
            spoils=spoils,
        )
        self._installed = ExitStack()
        self._installed.enter_context(self.driver.installed())
        # A world has few events: where the bounds of scans are to rise, they rise soon.
        soon = patch.dict(ScanBounds.__init__.__kwdefaults__, {"far": 2})
        self._installed.enter_context(soon)
        self._follower = Follower(self._read_log, history, loop)

    def time(self) -> float:
        """Return the true time."""
        return self._loop.time()

    def clock_for(self, number: int) -> HostClock:
        drift = self._plan.drift if number % 2 else 0.0
        return HostClock(self._loop, drift=drift, ahead=self._plan.ahead)

    def begin(self, destinations: list[Destination]) -> None:
        answer = self._real.run(self._eye.register(destinations))
        self._write("register", {"destinations": destinations}, answer, self._clock.now())

    def make_store(self, machine: Machine) -> Store:
        return _SimulatedStore(self, f"{self._real.url}&pool={self._plan.pool}", machine.clock)

    def lose_store(self, machine: Machine) -> None:
        self.driver.lose(machine.name)

    def fail(self, *, is_down: bool) -> None:
        self.driver.fail(is_down=is_down)

    def step(self, by: timedelta, machines: list[Machine]) -> None:
        self._history.write(ClockSet(at=self._loop.time(), was=self._clock.now()))
        self._clock.step(by)
        for machine in machines:
            why = "the clock of the store was set"
            self._history.write(Silenced(at=self._loop.time(), machine=machine.name, why=why))

    def step_machine(self, machine: Machine, by: timedelta) -> None:
        machine.clock.step(by)

    def heal(self) -> None:
        self.driver.heal()

    def look(self, *, is_final: bool = False) -> Looked:
        run, eye = self._real.run, self._eye
        self._follower.go_on()
        return Looked(
            at=self._loop.time(),
            now=self._clock.now(),
            deliveries=tuple(one for status in Status for one in self._in(status)),
            # What is there, though it cannot be read while an earlier transaction is open.
            events=tuple(event_from(document) for (document,) in self._see(_EVENTS)),
            figures=run(eye.figures()),
            audit=tuple(run(eye.audit(limit=_ALL))),
            replays=tuple(run(eye.replays(limit=_ALL))),
            stuck=tuple(run(eye.stuck())),
            miscounts=tuple(run(eye.miscounts())),
            is_final=is_final,
        )

    def unsettled(self) -> tuple[datetime, list[Delivery]]:
        found = [
            one
            for status in (Status.PENDING, Status.IN_FLIGHT, Status.FAILED)
            for one in self._in(status)
            if one.resolution is None
        ]
        return self._clock.now(), found

    def end(self) -> None:
        self.driver.end()
        self._installed.close()
        self._real.run(self._eye.close())

    def witness_job(self, about: _About, answer: Any, now: datetime, since: float) -> None:  # noqa: ANN401 - any answer
        """Take down what a transaction in steps has committed."""
        self.ways[f"{about.method}: steps"] += 1
        if about.method == "settle":
            answer, _ = answer
        self._write(about.method, about.given, answer, now, since=since)

    def _watch(self, statement: str) -> Callable[[list[Any]], None] | None:
        about = _about.get()
        if about is None:
            return None
        does = _DOES.get(about.method, "SELECT") in statement
        return lambda rows: self._witness_statement(about, rows, does=does)

    def _witness_statement(self, about: _About, rows: list[Any], *, does: bool) -> None:
        """Take down what a single statement has committed, unless it only looks."""
        method, given, now = about.method, about.given, self._clock.now()
        self.ways[f"{method}: {'statement' if does else 'look'}"] += 1
        if not does:
            return
        match method:
            case "append" if rows:
                receipts = tuple(
                    Receipt(event_id=one.event.id, destinations=one.destinations)
                    for one in given["entries"]
                )
                self._write(method, given, Appended(receipts), now)
            case "claim" if len(rows) > 1:
                claim = Claim(now=now, deliveries=self._leased([row[7] for row in rows[1:]], now))
                self._write(method, given, claim, now)
            case "settle":
                left = {number for (number,) in rows}
                batch = [one for one in given["batch"] if one.lease.delivery_id not in left]
                self._write(method, {"batch": batch}, (), now)
                # What is left goes on by steps.
                given["batch"] = [one for one in given["batch"] if one not in batch]
            case "heartbeat" | "extend":
                kept = {Lease(number, token) for number, token in rows}
                refused = [one for one in given["leases"] if one not in kept]
                self._write(method, given, refused, now)
            case _:
                pass

    def _leased(self, numbers: Sequence[int], now: datetime) -> tuple[Leased, ...]:
        return tuple(
            Leased(
                lease=Lease(number, token),
                destination=name,
                event=event_from(document),
                attempt=1,
                kind=Kind.FIRST,
                claimed_at=now,
                enqueued_at=enqueued_at,
                snoozes=0,
                crashes=0,
                last_crash_at=None,
                is_alone=False,
                breaker_generation=generation,
            )
            for number, name, token, enqueued_at, generation, document in self._see(
                _LEASED, list(numbers)
            )
        )

    def _write(
        self,
        method: str,
        given: dict[str, Any],
        answer: Any,  # noqa: ANN401 - any answer
        now: datetime,
        *,
        since: float | None = None,
    ) -> None:
        if not tells(method, answer):
            return
        made: list[Made] = []
        if isinstance(answer, Backfilled):
            made = [Made(*row) for row in self._see(_MADE_FOR, given["destination"])]
        if isinstance(answer, CaughtUp):
            made = [Made(*row) for row in self._see(_MADE_LATER)]
        if isinstance(answer, Appended):
            ids = [one.event.id for one in given["entries"]]
            made = [Made(*row) for row in self._see(_MADE_OF_EVENTS, ids)]
        self._history.write(
            Call(
                at=self._loop.time(),
                now=now,
                method=method,
                given={name: value for name, value in given.items() if name != "within"},
                answer=answer,
                made=tuple(made),
                since=since,
            )
        )
        if isinstance(answer, Appended):
            self._follower.go_on()

    def _see(self, statement: str, *values: object) -> list[Any]:
        schema = self._eye.address.schema
        return self._real.fetch(statement.replace("redrive.", f"{schema}."), *values)

    def _read_log(self, after: LogPosition) -> Sequence[LoggedEvent]:
        """Read on; the numbers of transactions are told from where this world has begun."""
        first = self._first_transaction
        begin = LogPosition(after.time + first, after.number) if after.time else after
        return [
            LoggedEvent(
                LogPosition(one.position.time - first, one.position.number), one.event, one.version
            )
            for one in self._real.run(self._eye.read_events(after=begin, limit=_ALL)).events
        ]

    def _in(self, status: Status) -> tuple[Delivery, ...]:
        query = Query(status=status, with_resolved=True)
        return tuple(self._real.run(self._eye.find(query, limit=_ALL)).deliveries)


class _Given:
    """The time as an eye that is no process is given it."""

    def __init__(self, clock: HostClock) -> None:
        self.now = clock.now
        self.monotonic = clock.monotonic
        self.sleep = clock.sleep
