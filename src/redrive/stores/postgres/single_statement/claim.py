"""Claiming in one statement: fresh deliveries, where nothing has to be decided.

A gate is plain when a first attempt passes it and leaves it as it was. What it looked like is
remembered by the claim in steps that found out, and this one holds only while it looks the same. It
shares the gate with others of its kind, who pick other deliveries. When there is anything but fresh
work, the steps take over.

An idle worker asks in the same way for gates that are not plain: where nothing is ready, there is
nothing to decide, whatever limits, tenants or lanes there are. Only a breaker that is not closed
may have to change by being asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from redrive.claiming.ready import SOON
from redrive.model.delivery import Kind, Lease, Leased
from redrive.model.gate import Closed
from redrive.store import Claim, ClaimRequest
from redrive.stores.postgres.codec import columns
from redrive.stores.postgres.facts import Duties, Facts, KnownGate
from redrive.stores.postgres.ready import NEXT_DUE
from redrive.stores.postgres.scan_bounds import Reading
from redrive.stores.postgres.single_statement.duties import DUTY_COLUMNS

__all__ = ["ClaimStatement"]

_MOST_LEFT_ALONE = 64
_WIDTH = 13

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
      AND (-d.priority, d.id) > (0::smallint, q.bound)
      AND (d.deadline IS NULL OR d.deadline > present.now)
      {{more}} ORDER BY {_TENANT}, (-d.priority), d.id
"""
_FIRST = f"{_LINE.format(more='')} LIMIT 1"
# What came due before the gate was reopened has tokens of its own to wait for.
_FRESH = _LINE.format(more="AND (q.reopened_at IS NULL OR d.due > q.reopened_at)")
# In the order of each index and with a limit, so that it is a look at the first of each.
_NOTHING_TO_SORT_OUT = """NOT coalesce((
           SELECT due <= present.now FROM redrive.deliveries
           WHERE status = 0 AND NOT is_ready ORDER BY due LIMIT 1
       ), false)
       AND NOT coalesce((
           SELECT true FROM redrive.deliveries
           WHERE status = 0 AND is_ready AND NOT is_behind AND crashes >= 2
           ORDER BY destination, generation, priority DESC, id LIMIT 1
       ), false)
       AND NOT EXISTS (SELECT FROM redrive.late_lanes)"""
"""Whether nothing has come due that is not in its line yet, nobody is suspect and no lane late."""

# What was found comes in the first row, and then each delivery in one: a row for all of it would
# have the driver read the same again with every delivery.
_CLAIM = f"""
WITH present AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), asked AS MATERIALIZED (
    SELECT q.* FROM unnest(
        (SELECT $5::integer[]), (SELECT $6::text[]), (SELECT $7::text[]), (SELECT $8::bigint[]),
        (SELECT $9::integer[]), (SELECT $10::integer[]), (SELECT $11::timestamptz[])
    ) AS q (destination, description, gate, bound, most, breaker_generation, reopened_at)
    JOIN redrive.destinations t ON t.id = q.destination AND t.document = q.description
    JOIN redrive.gates g ON g.destination = q.destination AND g.document = q.gate
        AND (g.override_until IS NULL OR g.override_until <= (SELECT now FROM present))
    WHERE t.removed_at IS NULL
    ORDER BY t.id FOR SHARE OF g  -- in the order in which everybody locks them
), outlook AS MATERIALIZED (
    SELECT (SELECT count(*) FROM asked) = cardinality($5::integer[])
               AND {_NOTHING_TO_SORT_OUT}
               {{closed}}
               AND NOT EXISTS (
                   SELECT FROM asked q
                   WHERE {_IS_OTHER} OR coalesce((SELECT d.due <= q.reopened_at {_FIRST}), false)
               ) AS is_plain,
           ({{next_due}}) AS next_due
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
    RETURNING d.id, d.token, d.destination, d.position, d.enqueued_at, d.deadline, d.rule
), counted AS MATERIALIZED (
    SELECT q.*, (SELECT count(*) FROM leased WHERE destination = q.destination) AS leased
    FROM asked q
), passed_by AS MATERIALIZED (
    SELECT coalesce(bool_or(
        (SELECT count(*) FROM (SELECT {_FRESH} LIMIT q.most) AS fresh) > q.leased
    ), false) AS are_any
    FROM present CROSS JOIN counted q WHERE q.leased < q.most
), heard AS (
    UPDATE redrive.workers w SET seen_at = present.now FROM present
    WHERE w.id = $3 AND (EXISTS (SELECT FROM leased){{heard}})
)
SELECT present.now, outlook.is_plain, outlook.next_due, passed_by.are_any, front.destinations,
       front.firsts, NULL::integer AS destination, NULL::bigint AS id, NULL::bigint AS token,
       NULL::timestamptz AS enqueued_at, NULL::timestamptz AS deadline,
       NULL::text AS document, NULL::text AS rule{{duties}}
FROM present CROSS JOIN outlook CROSS JOIN front CROSS JOIN passed_by
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL,
       leased.destination, leased.id, leased.token, leased.enqueued_at, leased.deadline,
       e.document, leased.rule{{no_duties}}
FROM leased JOIN redrive.events e ON e.position = leased.position
ORDER BY id NULLS FIRST
"""
CLAIM = _CLAIM.format(
    closed="",
    next_due=NEXT_DUE.format(destinations="$5", generations="ARRAY[$2::text]"),
    heard="",
    duties="",
    no_duties="",
)
CLAIM_WHEN_IDLE = _CLAIM.format(
    # In the order of the index and with a limit, so that it is a look at the first of each.
    closed="""AND NOT EXISTS (
                   SELECT FROM unnest((SELECT $13::integer[])) AS q (destination)
                   CROSS JOIN unnest((SELECT $15::text[])) AS g (generation)
                   CROSS JOIN generate_series(0, 3) AS k (kind)
                   CROSS JOIN LATERAL (
                       SELECT FROM redrive.deliveries d
                       WHERE d.destination = q.destination AND d.generation = g.generation
                         AND d.kind = k.kind
                         AND d.status = 0 AND d.is_ready AND NOT d.is_behind AND d.crashes < 2
                       ORDER BY coalesce(d.tenant, '') COLLATE "C", (-d.priority), d.id LIMIT 1
                   ) first
               )""",
    next_due=NEXT_DUE.format(destinations="$14", generations="$15::text[]"),
    heard=" OR w.seen_at < present.now - $4::interval / 6",
    duties=f""", EXISTS (
           SELECT FROM redrive.workers WHERE id = $3 AND serving IS NOT NULL
       ) AS is_on_record, {DUTY_COLUMNS}""",
    no_duties=", NULL" * len(Duties._fields),
)
"""The same for a worker that had nothing to do: it is heard of even if it is given nothing, and
asks for its duties.

Gates that are not plain may be asked too, as long as they have nothing ready. Whoever was silent
for long has been forgotten, and only a heartbeat brings it back: it is not on record.
"""


class ClaimStatement:
    """One claim in one statement: what it asks for, and what came of it."""

    _bounds: Reading

    def __init__(
        self,
        facts: Facts,
        request: ClaimRequest,
        *,
        plain: Mapping[str, KnownGate],
        closed: list[int],
    ) -> None:
        self._facts = facts
        self._request = request
        self._plain = plain
        self._closed = closed
        self._shares = _shares(facts, request, plain)
        self.is_of_idle = facts.is_idle
        """Whether it asks for the duties too."""
        if self.is_of_idle:
            self.text = CLAIM_WHEN_IDLE
            self._asked = [facts.gates[one.destination].number for one in request.allowances]
        else:
            self.text = CLAIM

    @classmethod
    def of(cls, facts: Facts, request: ClaimRequest) -> ClaimStatement | None:
        """Return the statement for a claim, or `None` if there seems to be more to decide."""
        if request.alone or request.worker != facts.worker:
            return None
        wanted = [one for one in request.allowances if one.total > 0]
        asked = request.allowances if facts.is_idle else wanted
        if not asked or facts.known([one.destination for one in asked]) is None:
            return None
        plain: dict[str, KnownGate] = {}
        closed: list[int] = []
        may_lease = len(request.generations) == 1 and request.limit >= len(wanted)
        for one in wanted:
            gate = facts.gates[one.destination]
            if may_lease and gate.gate is not None:
                plain[one.destination] = gate
            elif isinstance(gate.breaker, Closed):
                closed.append(gate.number)
            else:
                return None
        if not facts.is_idle:
            if closed:
                return None
            if facts.rest > 0:
                facts.rest -= 1
                return None
        return cls(facts, request, plain=plain, closed=closed)

    def values(self, now: datetime | None) -> list[object]:
        """Return the values of the statement; without an instant, it is the server's present."""
        request, generation = self._request, self._request.generations[0]
        self._bounds = self._facts.bounds.reading()
        rows = []
        for name, most in self._shares.items():
            gate = self._plain[name]
            bound = self._bounds.below((gate.number, generation, ""))
            state = (gate.breaker.generation, gate.reopened_at)
            rows.append((gate.number, gate.description, gate.gate, bound, most, *state))
        given: list[object] = [now, generation, request.worker, request.lease]
        given += [*columns(rows, 7), request.most_bytes]
        if self.is_of_idle:
            given += [self._closed, self._asked, list(request.generations)]
        return given

    def read(self, rows: Sequence[Sequence[Any]]) -> tuple[Claim | None, Duties | None]:
        """Return what was claimed, unless it has to be decided about, and what duties have asked.

        After several claims in vain, the next go by steps at once, ever more of them.
        """
        facts = self._facts
        now, is_plain, next_due, are_passed_by, numbers, firsts = rows[0][:6]
        if not is_plain:
            facts.misses = min(_MOST_LEFT_ALONE, 2 * facts.misses + 1)
            facts.rest = facts.misses
            return None, None
        facts.misses = 0
        known = {gate.number: (name, gate) for name, gate in self._plain.items()}
        ids: dict[int, list[int]] = {number: [] for number in known}
        deliveries = []
        for row in rows[1:]:
            destination, number, token, enqueued_at, deadline, document, rule = row[6:_WIDTH]
            name, gate = known[destination]
            ids[destination].append(number)
            deliveries.append(
                Leased(
                    lease=Lease(number, token),
                    destination=name,
                    event=facts.codec.event(document, is_strict=False),
                    attempt=1,
                    kind=Kind.FIRST,
                    claimed_at=now,
                    enqueued_at=enqueued_at,
                    snoozes=0,
                    crashes=0,
                    last_crash_at=None,
                    is_alone=False,
                    breaker_generation=gate.breaker.generation,
                    deadline=deadline,
                    rule=rule or "",
                )
            )
        facts.taken = Counter({known[number][0]: len(some) for number, some in ids.items()})
        generation = self._request.generations[0]
        for destination, first in zip(numbers or (), firsts or (), strict=True):
            last = max(ids[destination], default=0)
            seen = [] if first is None else [first, max(first, last)]
            self._bounds.saw((destination, generation, ""), seen)
        if are_passed_by:  # somebody has them, and may give them back
            next_due = min(next_due or now + SOON, now + SOON)
        is_heard, *asked = rows[0][_WIDTH:] or (False,)
        duties = Duties(now, *asked) if asked else None
        claim = Claim(
            now=now,
            deliveries=tuple(deliveries),
            next_due=next_due,
            is_held=are_passed_by,
            is_heartbeat=is_heard,
            routes_version=duties and duties.routes_version,
        )
        return claim, duties


def _shares(
    facts: Facts, request: ClaimRequest, plain: Mapping[str, KnownGate]
) -> Mapping[str, int]:
    """Return how many each may give: an equal part to all who gave all they could last time.

    Of the others it is a little more than they had then.
    """
    totals = {one.destination: one.total for one in request.allowances if one.destination in plain}
    limit = request.limit
    if sum(totals.values()) > limit:
        equal = limit // len(totals)
        quiet = {
            name: min(facts.taken[name] + 1, equal)
            for name in totals
            if facts.taken[name] < facts.asked.get(name, 0)
        }
        busy = len(totals) - len(quiet)
        part = (limit - sum(quiet.values())) // busy if busy else 0
        totals = {
            name: min(total, quiet.get(name, part) if busy else equal)
            for name, total in totals.items()
        }
    facts.asked = totals
    return totals
