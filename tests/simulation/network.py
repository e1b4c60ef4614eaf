"""A store on a server, and the way to it: requests and replies get lost, late and doubled."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from random import Random
from typing import Any, cast

from redrive.errors import StoreUnavailableError
from redrive.model.position import LogPosition
from redrive.store import Appended, Backfilled, LoggedEvent, LogPage, Store
from redrive.stores.memory import MemoryStore
from tests.proof.checkers.records import Call, Made, Silenced
from tests.simulation.follower import Follower
from tests.simulation.history import History
from tests.simulation.late import LateCommits, Transaction
from tests.simulation.loop import SimulationLoop, Strand
from tests.simulation.plan import Plan

__all__ = ["WITNESSED", "Link", "Server", "at_once", "given_by_name", "tells"]

WITNESSED = (
    *(
        "append",
        "claim",
        "settle",
        "release",
        "heartbeat",
        "extend",
        "retire",
        "rescue",
        "expire",
        "shed",
    ),
    "report",
    *("replay", "delete", "resolve", "cancel", "reschedule", "edit", "advance_replays", "discard"),
    "start_auto_replays",
    *("register", "unregister", "reregister", "move", "drop", "backfill"),
    *("change_gateway", "render_again"),
    *("pause", "resume", "open_breaker", "reset_breaker", "pause_tenant", "resume_tenant"),
)
"""The calls that change what a checker goes by."""
_REPEATABLE = (
    *("append", "claim", "settle", "release", "heartbeat", "extend", "rescue", "retire", "expire"),
    *("move", "drop", "backfill", "change_gateway"),
)
_ALL = 100_000
_ROLLED_BACK = 0.1
"""The share of late transactions that never commit."""
_LEAST_PATIENCE, _MOST_PATIENCE = 0.05, 3.0
"""How long a caller waits for an answer that does not come, in seconds."""


class Server:
    """The store, in a process of its own that never loses what it has done."""

    def __init__(
        self,
        plan: Plan,
        store: MemoryStore,
        *,
        loop: SimulationLoop,
        history: History,
        now: Callable[[], datetime],
    ) -> None:
        self.store = store
        self.is_down = False
        self.is_faulty = True
        self._plan = plan
        self._loop = loop
        self._history = history
        self._now = now
        self.follower = Follower(self._read_log, history, loop)
        self._context = Strand("store").context()
        self._chance = Random(f"network of {plan.seed}")  # noqa: S311 - a simulation
        self._lateness = Random(f"commits of {plan.seed}")  # noqa: S311 - as above
        self._commits: dict[Transaction, Callable[[], None]] = {}

    def heal(self) -> None:
        """Let nothing go wrong any more, and what is under way come to its end."""
        self.is_down = self.is_faulty = False
        for transaction in list(self._commits):
            self._commit(transaction)

    def request(self, machine: str, method: str, given: dict[str, Any]) -> asyncio.Future[Any]:
        """Send a request; the answer, or what went wrong, comes to the future."""
        plan, chance = self._plan, self._chance
        reply = self._loop.create_future()
        there, back = chance.random() * plan.latency, chance.random() * plan.latency
        match self._fate(method):
            case "request lost":
                self._lose(machine, method, reply, "request")
                return reply
            case "reply lost":
                self._lose(machine, method, reply, "reply")
                self._send(there, method, given, None, 0.0)
                return reply
            case "late":
                back = plan.lease * chance.uniform(0.3, 3.0)
                self._silence(machine, f"the reply to {method} is {back:.3f} s late")
            case "doubled":
                again = there + chance.uniform(0.0, plan.lease * 2)
                self._silence(machine, f"the request {method} comes twice")
                self._send(again, method, given, None, 0.0)
            case _:
                pass
        self._send(there, method, given, reply, back)
        return reply

    async def wait(self, given: dict[str, Any]) -> None:
        """Wait at the server; a caller that gives up lets go of it there too."""
        if self.is_down:
            await self._loop.pause(_LEAST_PATIENCE)
            raise _unreachable("wait")
        waiting = self._loop.create_task(self.store.wait(**given), context=self._context.copy())
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            waiting.cancel()
            raise

    def _fate(self, method: str) -> str:
        if not self.is_faulty:
            return ""
        plan, drawn = self._plan, self._chance.random()
        for fate, share in (
            ("request lost", plan.lost_requests),
            ("reply lost", plan.lost_replies),
            ("late", plan.late_replies),
            ("doubled", plan.duplicates if method in _REPEATABLE else 0.0),
        ):
            if drawn < share:
                return fate
            drawn -= share
        return ""

    def _lose(self, machine: str, method: str, reply: asyncio.Future[Any], what: str) -> None:
        why = f"the {what} of {method} is lost"
        if (method, what) == ("claim", "reply"):
            # No excuse: whoever never hears what it was given goes on beating.
            self._history.note(self._loop.time(), f"{machine}: {why}")
        else:
            self._silence(machine, why)
        patience = self._chance.uniform(_LEAST_PATIENCE, _MOST_PATIENCE)
        self._loop.call_later(patience, _fail, reply, method, context=self._context)

    def _silence(self, machine: str, why: str) -> None:
        self._history.write(Silenced(at=self._loop.time(), machine=machine, why=why))

    def _send(
        self,
        delay: float,
        method: str,
        given: dict[str, Any],
        reply: asyncio.Future[Any] | None,
        back: float,
    ) -> None:
        self._loop.call_later(
            delay, self._arrive, method, given, reply, back, context=self._context
        )

    def _arrive(
        self, method: str, given: dict[str, Any], reply: asyncio.Future[Any] | None, back: float
    ) -> None:
        if self.is_down:
            if reply is not None:
                patience = self._chance.uniform(0.0, _LEAST_PATIENCE)
                self._loop.call_later(patience, _fail, reply, method, context=self._context)
            return
        if method != "append" or not self._is_put_off(given, reply, back):
            self._carry_out(method, given, reply, back)

    def _is_put_off(
        self, given: dict[str, Any], reply: asyncio.Future[Any] | None, back: float
    ) -> bool:
        """Tell whether an append ends later: it takes its time, or waits for another that does."""
        store, chance, now = self.store, self._lateness, self._loop.time()
        if not isinstance(store, LateCommits):
            return False
        held_until = store.held_until(given["entries"])
        if held_until is not None:
            self._send(max(0.001, held_until - now), "append", given, reply, back)
            return True
        if not self.is_faulty or chance.random() >= self._plan.late_commits:
            return False
        transaction = store.begin(
            given["entries"],
            ends_at=now + chance.uniform(0.0, self._plan.lease * 2),
            is_placed=chance.random() < 0.5,
        )
        self._history.note(now, f"transaction {transaction.number} has begun")

        def commit() -> None:
            with store.committing(transaction):
                self._carry_out("append", given, reply, back)
            self.follower.go_on()

        self._commits[transaction] = commit
        wait = transaction.ends_at - now
        self._loop.call_later(wait, self._end, transaction, reply, context=self._context)
        return True

    def _end(self, transaction: Transaction, reply: asyncio.Future[Any] | None) -> None:
        """Commit a transaction, unless it is lost with the server or for a reason of its own."""
        if self.is_down or self._lateness.random() < _ROLLED_BACK:
            if self._commits.pop(transaction, None) is not None:
                self._history.note(self._loop.time(), f"transaction {transaction.number} is lost")
                cast("LateCommits", self.store).roll_back(transaction)
                if reply is not None:
                    _fail(reply, "append")
        else:
            self._commit(transaction)

    def _commit(self, transaction: Transaction) -> None:
        commit = self._commits.pop(transaction, None)
        if commit is not None:
            self._history.note(self._loop.time(), f"transaction {transaction.number} commits")
            commit()

    def _carry_out(
        self, method: str, given: dict[str, Any], reply: asyncio.Future[Any] | None, back: float
    ) -> None:
        error: Exception | None = None
        answer: Any = None
        try:
            answer = self.perform(method, given)
        except Exception as raised:  # noqa: BLE001 - it belongs to whoever asked
            error = raised
        if reply is not None:
            self._loop.call_later(back, _answer, reply, answer, error, context=self._context)

    def perform(self, method: str, given: dict[str, Any]) -> Any:  # noqa: ANN401 - any answer
        """Carry out a call at once, and take it down."""
        last = self.store._last_delivery_id  # noqa: SLF001 - the witness looks into the store
        answer = at_once(getattr(self.store, method)(**given))
        if method in WITNESSED and tells(method, answer):
            made: tuple[Made, ...] = ()
            if isinstance(answer, Appended | Backfilled):
                made = tuple(
                    Made(row.event.id, row.destination, row.id, row.rule)
                    for number, row in self.store._rows.items()  # noqa: SLF001 - as above
                    if number > last
                )
            self._history.write(
                Call(
                    at=self._loop.time(),
                    now=self._now(),
                    method=method,
                    given=given,
                    answer=answer,
                    made=made,
                )
            )
        if method == "append":
            self.follower.go_on()
        return answer

    def _read_log(self, after: LogPosition) -> Sequence[LoggedEvent]:
        page: LogPage = at_once(self.store.read_events(after=after, limit=_ALL))
        return page.events


def tells(method: str, answer: Any) -> bool:  # noqa: ANN401 - any answer
    """Tell whether a call did anything worth taking down."""
    match method:
        case "claim":
            return bool(answer.deliveries or answer.changes)
        case "report":
            return bool(answer.changes or answer.paused)
        case "advance_replays":
            return bool(answer.steps)
        case "move" | "backfill" | "catch_up":
            return bool(answer.moved if method == "move" else answer.added)
        case "settle" | "release" | "rescue" | "append" | "heartbeat" | "extend" | "retire":
            return True
        case _:
            return bool(answer)


class Link:
    """The store as one process sees it: every call is a request to the server."""

    def __init__(self, server: Server, machine: str) -> None:
        self._server = server
        self._machine = machine
        self.capabilities = server.store.capabilities
        self.schema_version = 0

    async def open(self) -> None:
        if self._server.is_down:
            raise _unreachable("open")

    async def close(self) -> None:
        pass

    def __getattr__(self, method: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        names = given_by_name(method)
        server, machine = self._server, self._machine

        async def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the store has it
            given = names(args, kwargs)
            if method == "wait":
                return await server.wait(given)
            return await server.request(machine, method, given)

        setattr(self, method, call)
        return call


def at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - any answer
    """Run what never waits to its end."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError(f"{coroutine!r} waits, and must not")


_PARAMETERS: dict[str, dict[str, Any]] = {}


def given_by_name(
    method: str,
) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]:
    """Return what names the arguments of a method of the store contract, defaults included."""
    known = _PARAMETERS.get(method)
    if known is None:
        parameters = list(inspect.signature(getattr(Store, method)).parameters.values())[1:]
        known = {one.name: one.default for one in parameters if one.kind is not one.VAR_KEYWORD}
        _PARAMETERS[method] = known
    defaults = {
        name: default for name, default in known.items() if default is not inspect.Parameter.empty
    }

    def named(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        return {**defaults, **dict(zip(known, args, strict=False)), **kwargs}

    return named


def _fail(reply: asyncio.Future[Any], method: str) -> None:
    if not reply.done():
        reply.set_exception(_unreachable(method))


def _answer(reply: asyncio.Future[Any], answer: object, error: Exception | None) -> None:
    if reply.done():
        return
    if error is not None:
        reply.set_exception(error)
    else:
        reply.set_result(answer)


def _unreachable(method: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"The store did not answer to {method}; nothing is known of it.")
