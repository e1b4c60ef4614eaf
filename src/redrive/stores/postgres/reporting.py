"""Reporting: what breakers learn from attempts.

Most attempts succeed, and a closed breaker that has counted no failure does not change by that. How
the breakers looked is remembered by the claim that read them; whether they still do takes one
statement, and nobody has to be waited for.
"""

from __future__ import annotations

from collections.abc import Sequence

from redrive.model.gate import Closed, Gate
from redrive.policies import outage
from redrive.store import Report, Reported
from redrive.stores.codec import destination_from, json_text
from redrive.stores.postgres.codec import columns
from redrive.stores.postgres.core import Core
from redrive.stores.postgres.facts import KnownGate
from redrive.stores.postgres.gating import lock_gates
from redrive.stores.postgres.session import PostgresSession

__all__ = ["ReportsRole"]

_UNCHANGED = f"""
SELECT count(*)
FROM unnest((SELECT $1::integer[]), (SELECT $2::text[]), (SELECT $3::text[]))
    AS q (destination, description, breaker)
JOIN redrive.destinations t ON t.id = q.destination AND t.document = q.description
JOIN redrive.gates g ON g.destination = q.destination
    AND coalesce(g.document::json ->> 'breaker', '{json_text(Closed())}') = q.breaker
"""


class ReportsRole(Core):
    """The reports of `Gates`."""

    async def report(self, batch: Sequence[Report], *, chance: float) -> Reported:
        if (unchanged := await self._report_in_one_statement(batch)) is not None:
            return unchanged
        self.facts.went("report", "steps")

        async def job(session: PostgresSession) -> Reported:
            # With those that the claim of this turn will lock, so that all are locked in one
            # order. It was called before this runs, and may ask others than the claim before it.
            names = self.facts.served.union(one.destination for one in batch)
            gates = await lock_gates(session, names, now=self._given_now)
            return await gates.hear(batch, chance=chance)

        reported = await self._share(job)
        if reported.changes or any(one.call for one in batch):
            self._notify()
        return reported

    async def _report_in_one_statement(self, batch: Sequence[Report]) -> Reported | None:
        """Return the breakers as they are, if this is no news to them."""
        gates = {one.destination: self.facts.gates.get(one.destination) for one in batch}
        known = {name: gate for name, gate in gates.items() if gate is not None}
        if (
            self._is_shared
            or not known
            or len(known) < len(gates)
            or any(_is_news(one, known[one.destination]) for one in batch)
        ):
            return None
        rows = [(one.number, one.description, json_text(one.breaker)) for one in known.values()]
        [(count,)] = await self._statement(
            _UNCHANGED, *columns(rows, 3), within=self.facts.patience, changes=False
        )
        if count < len(known):
            self.facts.gates = {}
            return None
        self.facts.went("report", "statement")
        return Reported(breakers={name: gate.breaker for name, gate in known.items()})


def _is_news(report: Report, known: KnownGate) -> bool:
    """Tell whether a report would change a breaker; the instant only matters if it would."""
    gate, limits = Gate(breaker=known.breaker), destination_from(known.description).limits
    after = outage.after_report(gate, limits, report, now=known.read_at, chance=0.0)
    return report.is_check or bool(report.call) or after != gate
