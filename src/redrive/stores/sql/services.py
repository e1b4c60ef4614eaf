"""Services, rules, sources and schedules: documents, every version of which is kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

import msgspec

from redrive.model.access import WHOLE_STORE, Scope
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.recipient import split_pin
from redrive.model.rule import DOCUMENT_KINDS, DocumentKind, Stored
from redrive.policies.declaring import removed
from redrive.store import Gateway, GatewayChange, KeptVersion
from redrive.stores.codec import json_text
from redrive.stores.declaring import put_in_force
from redrive.stores.sql.audit import record
from redrive.stores.sql.gates import add_gates
from redrive.stores.sql.intervention import in_status
from redrive.stores.sql.lanes import relane
from redrive.stores.sql.registering import (
    hold_routes,
    keep_standings,
    read_standings,
    write_destinations,
)
from redrive.stores.sql.schedules import change_schedules
from redrive.stores.sql.session import Either, Session, instant
from redrive.stores.sql.store import SqlStore, reading, writing

__all__ = ["ServicesRole"]

_REVISION = "SELECT value FROM redrive.counters WHERE name = 'gateway_revision'"
_TAKE_REVISION = """
UPDATE redrive.counters SET value = value + 1 WHERE name = 'gateway_revision' AND value = $1
RETURNING value
"""
_KEPT = "SELECT kind, name, service, version, document FROM redrive.gateway"
_ALL = f"{_KEPT} WHERE is_current = true ORDER BY kind, name"
_OF_SERVICES = f"""
{_KEPT} WHERE is_current = true AND service = ANY ($1::text[]) ORDER BY kind, name
"""
_RULES = f"""
{_KEPT} WHERE is_current = true AND kind = 'rule' AND name = ANY ($1::text[]) ORDER BY name
"""
_VERSIONS_OF_RULES = f"{_KEPT} WHERE kind = 'rule' AND name = ANY ($1::text[])"
_LAST = """
SELECT kind, name, max(version) FROM redrive.gateway WHERE name = ANY ($1::text[])
GROUP BY kind, name
"""
_PAST = """
SELECT kind, name, service, version, document, made_at, made_by, why, is_current
FROM redrive.gateway WHERE kind = $1 AND name = $2 ORDER BY version DESC LIMIT $3
"""
_SET_PAST = """
UPDATE redrive.gateway SET is_current = false
WHERE kind = $1 AND name = ANY ($2::text[]) AND is_current = true
"""
_KEEP = """
INSERT INTO redrive.gateway
    (kind, name, version, service, document, is_current, made_at, made_by, why)
SELECT kind, name, version, service, document, true, $2::timestamptz, $3::text, $4::text
FROM json_to_recordset($1::json) AS given (
    kind text, name text, version integer, service text, document text
)
"""
# SQLite has no function that takes a text apart from its end; a rule's name has no @ in it.
_RENDER_AGAIN = Either(
    sqlite="substr(d.rule, 1, instr(d.rule, '@') - 1)", postgres="split_part(d.rule, '@', 1)"
).within("""
UPDATE redrive.deliveries AS d SET rule = g.name || '@' || g.version
FROM redrive.gateway g JOIN redrive.destinations t ON t.name = g.service
WHERE d.id = ANY ($1::bigint[])
  AND g.is_current = true AND g.kind = 'rule' AND g.name = {} AND t.id = d.destination
  AND d.rule <> g.name || '@' || g.version
RETURNING d.id
""")
_SET_REMOVED = """
UPDATE redrive.destinations SET removed_at = $2 WHERE id = ANY ($1::integer[])
"""
_documents = msgspec.json.Decoder(dict[str, object])


class ServicesRole(SqlStore):
    """`Services`."""

    @reading
    async def gateway(self, session: Session, services: Collection[str] | None = None) -> Gateway:
        if services is None:
            rows = await session.fetch(_ALL)
        else:
            rows = await session.fetch(_OF_SERVICES, sorted(services))
        kept = [_kept(*row) for row in rows]
        return Gateway.holding(kept, revision=await session.value(_REVISION))

    @writing(notifies=True)
    async def change_gateway(
        self, session: Session, change: GatewayChange, *, revision: int, actor: Actor
    ) -> int | None:
        taken = await session.value(_TAKE_REVISION, revision)
        if taken is None:
            return None
        await _keep_versions(session, change, actor)
        # Before the routes are held, as whoever publishes ticks has them in that order.
        gone = [one.name for one in change.gone if one.kind == "schedule"]
        await change_schedules(session, change.schedules, gone)
        await _change_destinations(session, change)
        for detail in change.details:
            await record(session, "gateway", (), actor, count=1, detail=detail)
        return int(taken)

    @reading
    async def next_versions(
        self, session: Session, names: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], int]:
        found = await session.fetch(_LAST, sorted({name for _, name in names}))
        last = {(kind, name): version for kind, name, version in found}
        return {one: last.get(one, 0) + 1 for one in names}

    @reading
    async def rule_versions(self, session: Session, pins: Collection[str]) -> Sequence[Stored]:
        names = sorted({split_pin(one)[0] for one in pins})
        found = [_kept(*row) for row in await session.fetch(_VERSIONS_OF_RULES, names)]
        return [one for one in found if one.pin in pins]

    @reading
    async def find_rules(self, session: Session, names: Collection[str]) -> Sequence[Stored]:
        return [_kept(*row) for row in await session.fetch(_RULES, sorted(names))]

    @writing()
    async def render_again(
        self,
        session: Session,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        letters = await in_status(session, ids, "status = 3 AND resolution IS NULL", scope)
        found = await session.fetch(_RENDER_AGAIN, list(letters))
        changed = sorted(DeliveryId(one) for (one,) in found)
        if changed:
            await record(session, "render_again", changed, actor)
        return changed

    @reading
    async def past_versions(
        self, session: Session, kind: str, name: str, *, limit: int = 20
    ) -> Sequence[KeptVersion]:
        return [
            KeptVersion(
                kept=_kept(*kept), at=instant(at), by=by, why=why, is_current=bool(is_current)
            )
            for *kept, at, by, why, is_current in await session.fetch(_PAST, kind, name, limit)
        ]


def _kept(kind: str, name: str, service: str, version: int, document: Any) -> Stored:  # noqa: ANN401 - a column
    return Stored(
        kind=cast("DocumentKind", kind),
        name=name,
        service=service,
        version=version,
        document=_documents.decode(document),
    )


async def _keep_versions(session: Session, change: GatewayChange, actor: Actor) -> None:
    for kind in DOCUMENT_KINDS:
        names = [one.name for one in (*change.kept, *change.gone) if one.kind == kind]
        if names:
            await session.fetch(_SET_PAST, kind, names)
    rows: list[dict[str, object]] = [
        {
            "kind": one.kind,
            "name": one.name,
            "version": one.version,
            "service": one.service,
            "document": json_text(one.document),
        }
        for one in change.kept
    ]
    if rows:
        await session.fetch(_KEEP, session.records(rows), session.now, actor.by, actor.why)


async def _change_destinations(session: Session, change: GatewayChange) -> None:
    """Have everybody route by the services as they are from now on."""
    await hold_routes(session)
    gone = [one.name for one in change.gone if one.kind == "service"]
    known = await read_standings(session, [*(one.name for one in change.destinations), *gone])
    rulings = [
        put_in_force(one, known[one.name][1] if one.name in known else None)
        for one in change.destinations
    ]
    await session.change_routes(
        [one.after.destination for one in rulings],
        begins_order=any(one.begins_order for one in rulings),
    )
    numbers = {name: number for name, (number, _) in known.items()}
    for one in rulings:
        if one.before is not None:
            before, after = one.before.destination.order, one.after.destination.order
            if before is not after:
                await relane(session, numbers[one.name], before=before, after=after)
    if rulings:
        numbers |= await write_destinations(session, [one.after.destination for one in rulings])
        await add_gates(session, [one.name for one in rulings])
        await keep_standings(session, {numbers[one.name]: one.after for one in rulings})
    if gone:
        await session.fetch(_SET_REMOVED, [numbers[one] for one in gone], session.now)
        await keep_standings(session, {numbers[one]: removed(known[one][1]) for one in gone})
