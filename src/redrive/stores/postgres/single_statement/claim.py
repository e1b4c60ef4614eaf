"""Claiming at once: fresh deliveries, where nothing has to be decided.

A gate is plain when a first attempt passes it and leaves it as it was: no limit, no outage, no
pause, no tenants who take turns. What it looked like is remembered by the claim that found out, and
a claim at once holds only while it looks the same. It shares the gate with others of its kind, who
pick other deliveries. When there is anything but fresh work, the claim that decides takes over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from redrive.claiming.ready import SOON
from redrive.model.delivery import Kind, Lease, Leased
from redrive.store import Claim, ClaimRequest
from redrive.stores.codec import event_from
from redrive.stores.postgres.codec import columns
from redrive.stores.postgres.scan_bounds import Reading
from redrive.stores.postgres.single_statement.duties import DUTY_COLUMNS, Duties
from redrive.stores.postgres.single_statement.idle import NOTHING_TO_SORT_OUT, heard, is_on_record
from redrive.stores.postgres.single_statement.report import Breakers

__all__ = ["CLAIM", "CLAIM_AND_LOOK", "Plain", "PlainGates", "duties"]

_MOST_LEFT_ALONE = 64
_WIDTH = 11

_TENANT = """coalesce(d.tenant, '') COLLATE "C" """
_READY = f"""
    SELECT true FROM redrive.deliveries d
    WHERE d.destination = q.destination AND d.generation = $2 AND {{which}}
      AND d.status = 0 AND d.is_ready AND NOT d.is_behind AND d.crashes < 2
    ORDER BY {_TENANT}, (-d.priority), d.id LIMIT 1
"""
_IS_OTHER = " OR ".join(
    f"coalesce(({_READY.format(which=which)}), false)"
    for which in ("d.kind = 0", "d.kind = 1", "d.kind = 2", f"d.kind = 3 AND {_TENANT} > ''")
)
_LINE = f"""
    FROM redrive.deliveries d
    WHERE d.destination = q.destination AND d.generation = $2 AND d.kind = 3 AND {_TENANT} = ''
      AND d.status = 0 AND d.is_ready AND NOT d.is_behind AND d.crashes < 2
      AND (-d.priority, d.id) > (0::smallint, q.floor)
      AND (d.deadline IS NULL OR d.deadline > present.now)
      {{more}} ORDER BY {_TENANT}, (-d.priority), d.id
"""
_FIRST = f"{_LINE.format(more='')} LIMIT 1"
# What came due before the gate was reopened has tokens of its own to wait for.
_FRESH = _LINE.format(more="AND (q.reopened_at IS NULL OR d.due > q.reopened_at)")
# What was found comes in the first row, and then each delivery in one: a row for all of it would
# have the driver read the same again with every delivery.
_CLAIM = f"""
WITH present AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), asked AS MATERIALIZED (
    SELECT q.* FROM unnest(
        (SELECT $5::integer[]), (SELECT $6::text[]), (SELECT $7::text[]), (SELECT $8::bigint[]),
        (SELECT $9::integer[]), (SELECT $10::integer[]), (SELECT $11::timestamptz[])
    ) AS q (destination, description, gate, floor, most, breaker_generation, reopened_at)
    JOIN redrive.destinations t ON t.id = q.destination AND t.document = q.description
    JOIN redrive.gates g ON g.destination = q.destination AND g.document = q.gate
    WHERE t.removed_at IS NULL
    ORDER BY t.id FOR SHARE OF g  -- in the order in which everybody locks them
), outlook AS MATERIALIZED (
    SELECT (SELECT count(*) FROM asked) = cardinality($5::integer[])
               AND {NOTHING_TO_SORT_OUT}
               AND NOT EXISTS (
                   SELECT FROM asked q
                   WHERE {_IS_OTHER} OR coalesce((SELECT d.due <= q.reopened_at {_FIRST}), false)
               ) AS is_plain,
           (
               SELECT due FROM redrive.deliveries
               WHERE status = 0 AND NOT is_ready AND NOT is_behind AND generation = $2
                 AND destination = ANY ((SELECT $5::integer[])::integer[])
               ORDER BY due LIMIT 1
           ) AS next_due
    FROM present
), front AS MATERIALIZED (
    SELECT array_agg(q.destination) AS destinations,
           array_agg((SELECT d.id {_FIRST})) AS firsts
    FROM present CROSS JOIN asked q
), picked AS MATERIALIZED (
    SELECT fresh.place, fresh.position, q.breaker_generation
    FROM present CROSS JOIN asked q CROSS JOIN LATERAL (
        SELECT d.ctid AS place, d.position {_FRESH} LIMIT q.most FOR NO KEY UPDATE SKIP LOCKED
    ) AS fresh
    WHERE (SELECT is_plain FROM outlook)
), fitting AS MATERIALIZED (
    SELECT place, breaker_generation FROM (
        SELECT picked.*, row_number() OVER in_order AS number,
               sum(octet_length(e.document)) OVER in_order AS bytes
        FROM picked JOIN redrive.events e ON e.position = picked.position
        WINDOW in_order AS (ORDER BY picked.position, picked.place ROWS UNBOUNDED PRECEDING)
    ) AS picked
    WHERE number = 1 OR bytes <= $12
), leased AS (
    UPDATE redrive.deliveries d
    SET status = 1, token = token + 1, attempts = attempts + 1, worker = $3,
        lease_until = present.now + $4, is_alone = false, kind = 0,
        breaker_generation = fitting.breaker_generation
    FROM present CROSS JOIN fitting WHERE d.ctid = fitting.place
    RETURNING d.id, d.token, d.destination, d.position, d.enqueued_at
), counted AS MATERIALIZED (
    SELECT q.*, (SELECT count(*) FROM leased WHERE destination = q.destination) AS leased
    FROM asked q
), passed_by AS MATERIALIZED (
    SELECT coalesce(bool_or(
        (SELECT count(*) FROM (SELECT {_FRESH} LIMIT q.most) AS fresh) > q.leased
    ), false) AS are_any
    FROM present CROSS JOIN counted q WHERE q.leased < q.most
){{heard}}
SELECT present.now, outlook.is_plain, outlook.next_due, passed_by.are_any, front.destinations,
       front.firsts, NULL::integer AS destination, NULL::bigint AS id, NULL::bigint AS token,
       NULL::timestamptz AS enqueued_at, NULL::text AS document{{glanced}}
FROM present CROSS JOIN outlook CROSS JOIN front CROSS JOIN passed_by
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL,
       leased.destination, leased.id, leased.token, leased.enqueued_at, e.document{{not_glanced}}
FROM leased JOIN redrive.events e ON e.position = leased.position
ORDER BY id NULLS FIRST
"""
CLAIM = _CLAIM.format(glanced="", not_glanced="", heard="")
CLAIM_AND_LOOK = _CLAIM.format(
    glanced=f", {is_on_record('$3')}, {DUTY_COLUMNS}",
    not_glanced=", NULL" * len(Duties._fields),
    heard=f", {heard('$3', '$4')}",
)
"""The same for a worker that had nothing to do, which is heard of by it and looks around."""


class Plain(NamedTuple):
    """A plain gate: the number of its destination, how both look, and what a lease tells of it.

    What came due before it was reopened is not claimed at once.
    """

    number: int
    description: str
    gate: str
    breaker_generation: int
    reopened_at: datetime | None


class PlainGates:
    """Which gates are plain, as far as this process knows."""

    def __init__(self) -> None:
        self.breakers = Breakers()
        self.looked_at: datetime | None = None
        """When a claim was made last, by the server's clock."""
        self.counts_leases = True
        """Whether what the last claim in steps was let take depends on how much is in flight."""
        self.keeps_order = True
        """Whether some of what it asked for stands in lanes."""
        self._known: dict[str, Plain] = {}
        self._worker = ""
        self._asked: Mapping[str, int] = {}
        self._taken: Counter[str] = Counter()
        self._patience = 0
        self._left_alone = 0

    def hear_of(self, worker: str) -> None:
        """Take note of who has claimed, and is on record for it."""
        self._worker = worker

    def has_heard_of(self, worker: str) -> bool:
        """Tell whether a worker is on record."""
        return worker == self._worker

    def learn(self, destination: str, plain: Plain | None) -> None:
        """Take note of how a gate looks, if it is plain."""
        if plain is None:
            self._known.pop(destination, None)
        else:
            self._known[destination] = plain

    def covers(self, destinations: Collection[str]) -> bool:
        """Tell whether all of these are plain."""
        return self._known.keys() >= set(destinations)

    def may_serve(self, request: ClaimRequest) -> bool:
        """Tell whether a claim may be worth a try at once."""
        if self._left_alone > 0:
            self._left_alone -= 1
            return False
        wanted = [one for one in request.allowances if one.total > 0]
        return (
            not request.alone
            and request.worker == self._worker
            and len(request.generations) == 1
            and bool(wanted)
            and self.covers([one.destination for one in wanted])
            and request.limit >= len(wanted)
        )

    def values(
        self, request: ClaimRequest, *, bounds: Reading, now: datetime | None
    ) -> list[object]:
        """Return what `CLAIM` takes; without an instant, it is the server's present."""
        (generation,) = request.generations
        rows = []
        for name, most in self._shares(request).items():
            plain = self._known[name]
            floor = bounds.below((plain.number, generation, ""))
            rows.append(
                (
                    plain.number,
                    plain.description,
                    plain.gate,
                    floor,
                    most,
                    plain.breaker_generation,
                    plain.reopened_at,
                )
            )
        asked = columns(rows, 7)
        return [now, generation, request.worker, request.lease, *asked, request.most_bytes]

    def _shares(self, request: ClaimRequest) -> Mapping[str, int]:
        """Return how many each may give: an equal part to all who gave all they could last time.

        Of the others it is a little more than they had then.
        """
        totals = {one.destination: one.total for one in request.allowances if one.total > 0}
        limit = request.limit
        if sum(totals.values()) <= limit:
            self._asked = totals
            return totals
        equal = limit // len(totals)
        quiet = {
            name: min(self._taken[name] + 1, equal)
            for name in totals
            if self._taken[name] < self._asked.get(name, 0)
        }
        busy = len(totals) - len(quiet)
        part = (limit - sum(quiet.values())) // busy if busy else 0
        self._asked = {
            name: min(total, quiet.get(name, part) if busy else equal)
            for name, total in totals.items()
        }
        return self._asked

    def read(
        self, request: ClaimRequest, rows: Sequence[Sequence[Any]], *, bounds: Reading
    ) -> Claim | None:
        """Return what was claimed, or `None` when it has to be decided about after all."""
        now, is_plain, next_due, are_passed_by, numbers, firsts = rows[0][:6]
        if not is_plain:
            self._patience = min(_MOST_LEFT_ALONE, 2 * self._patience + 1)
            self._left_alone = self._patience
            return None
        self._patience = 0
        known = {plain.number: (name, plain) for name, plain in self._known.items()}
        ids: dict[int, list[int]] = {number: [] for number in numbers}
        deliveries = []
        for row in rows[1:]:
            destination, number, token, enqueued_at, document = row[6:_WIDTH]
            name, plain = known[destination]
            ids[destination].append(number)
            deliveries.append(
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
                    breaker_generation=plain.breaker_generation,
                )
            )
        self._taken = Counter({known[number][0]: len(some) for number, some in ids.items()})
        (generation,) = request.generations
        for destination, first in zip(numbers, firsts, strict=True):
            last = max(ids[destination], default=0)
            seen = [] if first is None else [first, max(first, last)]
            bounds.saw((destination, generation, ""), seen)
        if are_passed_by:  # somebody has them, and may give them back
            next_due = min(next_due or now + SOON, now + SOON)
        around = duties(rows)
        return Claim(
            now=now,
            deliveries=tuple(deliveries),
            next_due=next_due,
            is_heartbeat=around is not None and rows[0][_WIDTH],
            routes_version=None if around is None else around.routes_version,
        )


def duties(rows: Sequence[Sequence[Any]]) -> Duties | None:
    """Return what was seen besides, if that was asked for."""
    first = rows[0]
    return Duties(first[0], *first[_WIDTH + 1 :]) if len(first) > _WIDTH else None
