"""Claiming in SQL: which deliveries may start now, and the leases on them.

Rows of a claim come back as one JSON document, and batches go in as one: each statement then
crosses between SQLite and Python once, not once per row, which matters because every crossing has
to win the interpreter's lock from the handlers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import apsw
import msgspec

from redrive.claiming.fair_selection import FairSelection, all_sorts, place_among
from redrive.claiming.ready import KINDS, SOON, Candidate, TenantState, fitting
from redrive.claiming.round_robin import Line, Served, Share, serve
from redrive.claiming.turnstile import Turnstile
from redrive.model.delivery import SUSPECT_AFTER, Lease, Leased
from redrive.model.fairness import Fairness
from redrive.model.gate import Gate
from redrive.policies.breaker import last_probed
from redrive.policies.gate import marked, passed
from redrive.store import Claim, ClaimRequest
from redrive.stores.codec import (
    carrying,
    event_from,
    from_micros,
    json_text,
    maybe_from_micros,
    micros,
)
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.leases import see_worker
from redrive.stores.sqlite.append import count
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.ready import SqliteReady
from redrive.stores.sqlite.session import SqliteSession, finish
from redrive.stores.sqlite.tenants import keep_account, tenant_states

__all__ = ["claim"]

_MOST_PROMOTED = 2_000

"""Notes that a worker was heard of."""

_EARLIEST_WAITING = """
SELECT due FROM redrive_deliveries WHERE status = 0 AND is_ready = 0 ORDER BY due LIMIT 1
"""
_PROMOTE = """
UPDATE redrive_deliveries SET is_ready = 1 WHERE id IN (
    SELECT id FROM redrive_deliveries WHERE status = 0 AND is_ready = 0 AND due <= ?
    ORDER BY due LIMIT ?
)
"""
_SUSPECTS = """
SELECT json_group_array(
    json_array(-priority, id, kind, due, destination, ifnull(tenant, ''))
) FROM (
    SELECT priority, id, kind, due, destination, tenant FROM redrive_deliveries
    WHERE destination IN (SELECT value FROM json_each(?))
      AND generation IN (SELECT value FROM json_each(?))
      AND status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes >= 2
      AND (deadline IS NULL OR deadline > ?)
    ORDER BY priority DESC, id LIMIT 100
)
"""
_MORE = """
SELECT 1 FROM redrive_deliveries
WHERE destination = +:destination AND generation IN (SELECT value FROM json_each(:generations))
  AND status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes < 2
  AND (deadline IS NULL OR deadline > +:now)
  AND id NOT IN (SELECT value FROM json_each(:chosen))
LIMIT 1
"""
_NEXT_DUE = """
SELECT min((
    SELECT due FROM redrive_deliveries
    WHERE destination = q.value AND generation = g.value
      AND status = 0 AND is_ready = 0 AND is_behind = 0
    ORDER BY due LIMIT 1
)) FROM json_each(?) AS q CROSS JOIN json_each(?) AS g
"""
_LEASE = """
UPDATE redrive_deliveries
SET status = 1, token = token + 1, attempts = attempts + 1, worker = ?, lease_until = ?,
    is_alone = ?, breaker_generation = ?
WHERE id IN (SELECT value FROM json_each(?))
"""
_LEASED = """
SELECT '[' || group_concat('[[' || d.id || ',' || d.token || '],' || json_quote(t.name) || ','
    || iif(d.payload IS NULL, e.document, json_set(e.document, '$.payload', json(d.payload)))
    || ',' || d.attempts || ',"'
    || CASE d.kind WHEN 0 THEN 'first' WHEN 1 THEN 'retry' ELSE 'replay' END || '",'
    || :now || ',' || format('%.6f', d.enqueued_at / 1e6) || ','
    || d.snoozes || ',' || d.crashes || ','
    || iif(d.last_crash_at IS NULL, 'null', format('%.6f', d.last_crash_at / 1e6)) || ','
    || :alone || ',' || d.breaker_generation || ']') || ']'
FROM json_each(:ids) CROSS JOIN redrive_deliveries d ON d.id = value
CROSS JOIN redrive_events e ON e.position = d.position
CROSS JOIN redrive_destinations t ON t.id = d.destination
"""
"""Each row is a `Leased` as JSON, in the order of its fields."""

_SIZE = "octet_length(e.document) + ifnull(octet_length(d.payload), 0)"
_BYTES = f"""
SELECT sum({_SIZE}) FROM json_each(?) CROSS JOIN redrive_deliveries d ON d.id = value
CROSS JOIN redrive_events e ON e.position = d.position
"""
_SIZES = f"""
SELECT {_SIZE} FROM json_each(?) CROSS JOIN redrive_deliveries d ON d.id = value
CROSS JOIN redrive_events e ON e.position = d.position ORDER BY json_each.key
"""
_APART = """
SELECT d.id, d.token, t.name, CAST(e.document AS BLOB), CAST(d.payload AS BLOB), d.attempts, d.kind,
       d.enqueued_at, d.snoozes, d.crashes, d.last_crash_at, d.breaker_generation
FROM json_each(?) CROSS JOIN redrive_deliveries d ON d.id = value
CROSS JOIN redrive_events e ON e.position = d.position
CROSS JOIN redrive_destinations t ON t.id = d.destination
"""

_candidates = msgspec.json.Decoder(list[Candidate])
# Instants come as seconds with six decimals, which only a decoder that is not strict reads.
_leased = msgspec.json.Decoder(tuple[Leased, ...], strict=False)


def claim(connection: apsw.Connection, request: ClaimRequest, *, now: datetime) -> Claim:
    """Lease what may start now, and say when to ask again."""
    moment = micros(now)
    earliest = connection.execute(_EARLIEST_WAITING).get
    is_flooded = False
    if earliest is not None and earliest <= moment:
        connection.execute(_PROMOTE, (moment, _MOST_PROMOTED))
        is_flooded = connection.changes() == _MOST_PROMOTED
    limit = request.limit
    while True:
        keeper = finish(GateRepository.read(SqliteSession(connection, now)))
        limited = msgspec.structs.replace(request, limit=limit)
        claiming = _Claiming(connection, keeper, limited, is_flooded=is_flooded, now=now)
        suspects = claiming.suspects()
        chosen = claiming.choose_suspect(suspects) if request.alone else claiming.choose()
        most = _fitting(connection, chosen, request.most_bytes)
        if most is None:
            break
        limit = most
    claiming.keep_accounts()
    if limit != request.limit:
        claiming.ask_again(now + SOON)
    leased = _lease(connection, chosen, keeper, request, now=now) if chosen else ()
    deliveries = tuple(claiming.marked(one) for one in leased)
    return Claim(
        now=now,
        deliveries=deliveries,
        next_due=claiming.next_due(),
        suspects=len(suspects) - len(deliveries if request.alone else ()),
        changes=finish(keeper.write()),
        routes_version=count(connection, "routes_version"),
    )


class _Claiming:
    """One claim: what passes the gates, and in which order."""

    def __init__(
        self,
        connection: apsw.Connection,
        keeper: GateRepository,
        request: ClaimRequest,
        *,
        is_flooded: bool,
        now: datetime,
    ) -> None:
        self._connection = connection
        self._keeper = keeper
        self._request = request
        self._is_flooded = is_flooded
        self._now = now
        self._moment = micros(now)
        self._allowances = {
            one.destination: one for one in request.allowances if one.destination in keeper.numbers
        }
        self._names = {number: name for name, number in keeper.numbers.items()}
        self._opening: list[datetime] = []
        self._accounts: list[tuple[int, Fairness, Sequence[Served], Mapping[str, TenantState]]] = []
        self._before: dict[str, Gate] = {}

    def suspects(self) -> list[Candidate]:
        """Return the deliveries that may only run alone, if their gate lets them through now."""
        startable = [
            self._keeper.numbers[name] for name, one in self._allowances.items() if one.total > 0
        ]
        found = _candidates.decode(
            self._connection.execute(
                _SUSPECTS,
                (json_text(startable), json_text(self._request.generations), self._moment),
            ).get
        )
        return [one for one in found if self._may_start_alone(one)]

    def choose_suspect(self, suspects: list[Candidate]) -> dict[str, list[int]]:
        """Return the first suspect, and charge its gate and its tenant."""
        if not suspects:
            return {}
        one = min(suspects, key=self._last_probed)
        name = self._names[one.destination]
        turnstile = self._turnstile(name, total=1)
        line = Line(
            tenant=one.tenant,
            turn=self._keeper.fairness(name).turn_of(one.tenant),
            work=[one],
            tokens=self._tokens(one),
        )
        serving = serve(
            [line],
            turnstile.gate.rotation,
            room=1,
            admit=lambda one: turnstile.admit(KINDS[one.kind], was_held=_was_held(one, turnstile)),
        )
        return {name: self._charge(name, turnstile, serving, self._states(one))}

    def choose(self) -> dict[str, list[int]]:
        """Return what may start, by destination: tenants in turn, each by priority and age."""
        chosen: dict[str, list[int]] = {}
        left = self._request.limit
        for name, allowance in self._allowances.items():
            total = min(allowance.total, left)
            if total <= 0:
                continue
            selection = FairSelection(
                SqliteReady(self._connection, self._keeper.numbers[name], now=self._now),
                self._keeper.fairness(name),
                sorts=all_sorts(self._request.generations),
                turnstile=self._turnstile(name, total=total),
                is_flooded=self._is_flooded,
                now=self._now,
            )
            serving = finish(selection.serve())
            if selection.again_at is not None:
                self._opening.append(selection.again_at)
            chosen[name] = self._charge(name, selection.turnstile, serving, selection.states())
            left -= len(chosen[name])
        return chosen

    def keep_accounts(self) -> None:
        """Write down what tenants were given."""
        for account in self._accounts:
            keep_account(self._connection, *account, now=self._now)

    def ask_again(self, when: datetime) -> None:
        """Note that there is more than was chosen."""
        self._opening.append(when)

    def marked(self, leased: Leased) -> Leased:
        """Return a lease that tells whether it is a probe."""
        return marked(leased, self._before[leased.destination])

    def next_due(self) -> datetime | None:
        """Return when something more may be claimed."""
        numbers = json_text([self._keeper.numbers[name] for name in self._allowances])
        due = self._connection.execute(
            _NEXT_DUE, (numbers, json_text(self._request.generations))
        ).get
        return min([*self._opening, *([] if due is None else [from_micros(due)])], default=None)

    def _turnstile(self, name: str, *, total: int) -> Turnstile:
        passage = finish(self._keeper.passage(name))
        return Turnstile(self._keeper.gate(name), passage, total=total)

    def _charge(
        self,
        name: str,
        turnstile: Turnstile,
        serving: Share[Candidate],
        states: Mapping[str, TenantState],
    ) -> list[int]:
        """Return the ids of those who were served, and charge gate and tenants for them."""
        if turnstile.again_at is not None and self._has_more(name, serving.chosen):
            self._opening.append(turnstile.again_at)
        gate = turnstile.charged(self._keeper.limits(name), now=self._now)
        if serving.rotation != gate.rotation:
            gate = msgspec.structs.replace(gate, rotation=serving.rotation)
        self._keeper.put(name, gate)
        number, fairness = self._keeper.numbers[name], self._keeper.fairness(name)
        self._accounts.append((number, fairness, serving.served, states))
        chosen = [one.id for one in serving.chosen]
        self._before[name] = gate
        self._keeper.put(name, passed(gate, chosen, now=self._now))
        return chosen

    def _has_more(self, name: str, chosen: Sequence[Candidate]) -> bool:
        """Tell whether something is due beside what was chosen."""
        found = self._connection.execute(
            _MORE,
            {
                "destination": self._keeper.numbers[name],
                "generations": json_text(self._request.generations),
                "chosen": json_text([one.id for one in chosen]),
                "now": self._moment,
            },
        ).get
        return found is not None

    def _may_start_alone(self, one: Candidate) -> bool:
        turnstile = self._turnstile(self._names[one.destination], total=1)
        is_let = turnstile.admit(KINDS[one.kind], was_held=_was_held(one, turnstile))
        return is_let and self._tokens(one) > 0

    def _last_probed(self, one: Candidate) -> int:
        state = self._keeper.gate(self._names[one.destination]).breaker
        return place_among(last_probed(state), one.id)

    def _tokens(self, one: Candidate) -> int:
        fairness = self._keeper.fairness(self._names[one.destination])
        return self._states(one)[one.tenant].affordable(fairness, now=self._now)

    def _states(self, one: Candidate) -> dict[str, TenantState]:
        return tenant_states(self._connection, one.destination, [one.tenant])


def _fitting(
    connection: apsw.Connection, chosen: Mapping[str, Sequence[int]], most_bytes: int
) -> int | None:
    """Return how many of the chosen there is room for, if not for all."""
    ids = [number for numbers in chosen.values() for number in numbers]
    if len(ids) <= 1 or connection.execute(_BYTES, (json_text(ids),)).get <= most_bytes:
        return None
    sizes = [size for (size,) in rows(connection, _SIZES, (json_text(ids),))]
    return fitting(sizes, most_bytes)


def _was_held(one: Candidate, turnstile: Turnstile) -> bool:
    reopened_at = turnstile.gate.reopened_at
    return reopened_at is not None and one.due <= micros(reopened_at)


def _lease(
    connection: apsw.Connection,
    chosen: dict[str, list[int]],
    keeper: GateRepository,
    request: ClaimRequest,
    *,
    now: datetime,
) -> tuple[Leased, ...]:
    moment, until = micros(now), micros(now + request.lease)
    everything: list[int] = []
    for name, numbers in chosen.items():
        if numbers:
            generation = keeper.gate(name).breaker.generation
            connection.execute(
                _LEASE, (request.worker, until, request.alone, generation, json_text(numbers))
            )
            everything += numbers
    if not everything:
        return ()
    finish(see_worker(keeper.session, request.worker))
    instant = f"{moment // 1_000_000}.{moment % 1_000_000:06}"
    ids = json_text(everything)
    try:
        found = connection.execute(
            _LEASED, {"ids": ids, "now": instant, "alone": json_text(request.alone)}
        ).get
        return _leased.decode(found)
    except (ValueError, RecursionError, apsw.SQLError):
        # One of them cannot be read, and is to fail alone.
        return _read_apart(connection, ids, is_alone=request.alone, now=now)


def _read_apart(
    connection: apsw.Connection, ids: str, *, is_alone: bool, now: datetime
) -> tuple[Leased, ...]:
    """Return what was leased, each row read by itself."""
    return tuple(
        Leased(
            lease=Lease(number, token),
            destination=name,
            event=carrying(event_from(document), payload),
            attempt=attempts,
            kind=KINDS[kind],
            claimed_at=now,
            enqueued_at=from_micros(enqueued_at),
            snoozes=snoozes,
            crashes=crashes,
            last_crash_at=maybe_from_micros(last_crash_at),
            is_alone=is_alone,
            breaker_generation=breaker_generation,
        )
        for (
            number,
            token,
            name,
            document,
            payload,
            attempts,
            kind,
            enqueued_at,
            snoozes,
            crashes,
            last_crash_at,
            breaker_generation,
        ) in rows(connection, _APART, (ids,))
    )


assert SUSPECT_AFTER == 2, "the partial indexes and queries above say 2"  # noqa: S101, PLR2004
