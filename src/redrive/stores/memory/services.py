"""Services, rules, sources and schedules, in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from redrive.model.access import WHOLE_STORE, Scope
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.rule import Stored
from redrive.policies.declaring import removed
from redrive.store import Gateway, GatewayChange, KeptVersion
from redrive.stores.declaring import put_in_force
from redrive.stores.memory.tables import Tables
from redrive.stores.scheduling import put_schedule_in_force

__all__ = ["MemoryServices"]


class MemoryServices(Tables):
    """`Services` over the tables."""

    async def gateway(self, services: Collection[str] | None = None) -> Gateway:
        with self._lock:
            kept = sorted(self._in_force.values(), key=lambda one: one.name)
            if services is not None:
                kept = [one for one in kept if one.service in services]
            return Gateway.holding(kept, revision=self._gateway_revision)

    async def change_gateway(
        self, change: GatewayChange, *, revision: int, actor: Actor
    ) -> int | None:
        with self._lock:
            if revision != self._gateway_revision:
                return None
            now = self._clock.now()
            rulings = [
                put_in_force(
                    one, self._standing(one.name) if one.name in self._destinations else None
                )
                for one in change.destinations
            ]
            schedules = [
                put_schedule_in_force(one, self._schedules.get(one.name), now)
                for one in change.schedules
            ]
            self._gateway_revision += 1
            for standing in schedules:
                self._schedules[standing.name] = standing
            for one in change.gone:
                if one.kind == "schedule":
                    self._schedules.pop(one.name, None)
                self._in_force.pop((one.kind, one.name), None)
            for one in change.kept:
                self._in_force[one.kind, one.name] = one
                version = KeptVersion(kept=one, at=now, by=actor.by, why=actor.why, is_current=True)
                self._gateway_past.setdefault((one.kind, one.name), []).append(version)
            self._pass_by()
            for ruling in rulings:
                self._standings[ruling.name] = ruling.after
                self._destinations[ruling.name] = ruling.after.destination
                self._removed.pop(ruling.name, None)
            for one in change.gone:
                if one.kind == "service":
                    self._remove_service(one.name, now=now)
            self._routes_version += 1
            for detail in change.details:
                self._note("gateway", actor, now=now, count=1, detail=detail)
            return self._gateway_revision

    async def next_versions(self, names: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
        with self._lock:
            return {one: len(self._gateway_past.get(one, ())) + 1 for one in names}

    async def rule_versions(self, pins: Collection[str]) -> Sequence[Stored]:
        with self._lock:
            return [
                one.kept
                for (kind, _), past in self._gateway_past.items()
                for one in past
                if kind == "rule" and one.kept.pin in pins
            ]

    async def find_rules(self, names: Collection[str]) -> Sequence[Stored]:
        with self._lock:
            found = [self._in_force.get(("rule", one)) for one in sorted(names)]
            return [one for one in found if one is not None]

    async def render_again(
        self, ids: Sequence[DeliveryId], *, actor: Actor, scope: Scope = WHOLE_STORE
    ) -> Sequence[DeliveryId]:
        with self._lock:
            changed = []
            for row in self._found(ids, scope):
                rule = self._in_force.get(("rule", row.rule.partition("@")[0]))
                is_same = rule is None or rule.pin == row.rule or rule.service != row.destination
                if rule is not None and not is_same and row.is_dead_letter:
                    row.rule = rule.pin
                    changed.append(row.id)
            if changed:
                self._note("render_again", actor, now=self._clock.now(), ids=sorted(changed))
            return sorted(changed)

    async def past_versions(
        self, kind: str, name: str, *, limit: int = 20
    ) -> Sequence[KeptVersion]:
        with self._lock:
            current = self._in_force.get((kind, name))
            past = self._gateway_past.get((kind, name), [])
            return [
                KeptVersion(
                    kept=one.kept,
                    at=one.at,
                    by=one.by,
                    why=one.why,
                    is_current=current is not None and current.version == one.kept.version,
                )
                for one in reversed(past)
            ][:limit]

    def _remove_service(self, name: str, *, now: datetime) -> None:
        self._standings[name] = removed(self._standing(name))
        self._removed[name] = now
