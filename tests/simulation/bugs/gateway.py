"""Planted bugs of stored services and rules that change while events flow."""

# ruff: noqa: SLF001 - bugs are planted inside

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from redrive.app.gateway import drafter
from redrive.app.gateway.rule import read_rule
from redrive.conditions import routing
from redrive.model.audit import Actor
from redrive.model.delivery import Status
from redrive.model.destination import Destination
from redrive.model.recipient import destination_of
from redrive.model.rule import RuleRoute, Stored
from redrive.operations import services as servicing
from redrive.operations.services import Servicing
from redrive.pipeline import publish
from redrive.store import Append, Gateway, GatewayChange, Store
from redrive.stores.memory import MemoryStore
from redrive.worker import provider
from redrive.worker.provider import StoredServices
from tests.simulation.bugs.bug import Bug

__all__ = ["BUGS"]

_recipients = routing.recipients
_worked_out = Servicing._worked_out
_change = Servicing._change


class RenderedByTheNewest(MemoryStore):
    """Whichever version is asked for, the one in force is given."""

    async def rule_versions(self, pins: Collection[str]) -> Sequence[Stored]:
        found = await super().rule_versions(pins)
        latest = {one.name: one for (kind, _), one in self._in_force.items() if kind == "rule"}
        return [latest.get(one.name, one) for one in found]


class DisabledIsDropped(MemoryStore):
    async def change_gateway(
        self, change: GatewayChange, *, revision: int, actor: Actor
    ) -> int | None:
        taken = await super().change_gateway(change, revision=revision, actor=actor)
        disabled = [one.name for one in change.destinations if one.is_disabled and taken]
        for row in list(self._rows.values()):
            if row.destination in disabled and row.status is Status.PENDING:
                self._rows[row.id].status = Status.DELIVERED
        return taken


class PublishedByOldRules(MemoryStore):
    """Whoever publishes is never told that rules have changed."""

    async def append(self, entries: Any, *, routes_version: int, **options: Any) -> Append:  # noqa: ANN401 - as the store has it
        known = self._routes_version if routes_version else routes_version
        return await super().append(entries, routes_version=known, **options)


class AnyRevisionWill(MemoryStore):
    """Two who change at once do not notice each other."""

    async def change_gateway(
        self,
        change: GatewayChange,
        *,
        revision: int,
        actor: Actor,
    ) -> int | None:
        now = self._gateway_revision
        return await super().change_gateway(change, revision=now, actor=actor)


class VersionsFromOneAgain(MemoryStore):
    """A rule that was deleted and comes back begins with its first version."""

    async def next_versions(self, names: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
        found = await super().next_versions(names)
        return {one: version if one in self._in_force else 1 for one, version in found.items()}


def _once_per_service(*given: Any) -> tuple[str, ...]:  # noqa: ANN401 - as it is
    """Give a service an event once, though several rules say so."""
    found = {destination_of(one): one for one in _recipients(*given)}
    return tuple(sorted(found.values()))


def _never_fresh(self: StoredServices, service: Destination) -> bool:
    """Keep the way that was made first for ever."""
    return service.name not in self.endpoints


def _is_served_anyway(service: Destination | None) -> bool:
    """Serve a service that is disabled."""
    return service is not None and service.service > 0


def _disabled_too(rule: Stored) -> RuleRoute | None:
    return read_rule(rule.name, rule.document).route(rule.version)


async def _kept_before(store: Store, services: Collection[str] | None, rule: str | None) -> Gateway:
    """Go by where a rule led when it was looked up, though somebody has moved it since."""
    if services is not None and rule is not None:
        services = {*services, *[one.service for one in await store.find_rules([rule])]}
    return await store.gateway(services)


async def _refuse_nothing(*_given: object) -> None:
    """Let a service go, whatever waits for it."""


async def _only_rules(
    self: Servicing,
    *given: Any,  # noqa: ANN401 - as it is
) -> Any:  # noqa: ANN401 - as it is
    """Leave the destinations of services to which rules led until now as they are."""
    changed, change = await _worked_out(self, *given)
    named = {one.service for one in change.kept} | {one.name for one in change.kept}
    destinations = tuple(one for one in change.destinations if one.name in named)
    return changed, msgspec.structs.replace(change, destinations=destinations)


async def _change_in_two(
    self: Servicing,
    services: Collection[str] | None,
    change: Callable[[servicing.Kept], None],
    **options: Any,  # noqa: ANN401 - as it is
) -> Any:  # noqa: ANN401 - as it is
    """Change what there is of services first, and of rules in a transaction after that."""

    def first(kept: servicing.Kept) -> None:
        rules = dict(kept.after["rule"])
        change(kept)
        known = kept.after["service"]
        kept.after["rule"] = {name: one for name, one in rules.items() if one["service"] in known}

    await _change(self, services, first, **options)
    return await _change(self, services, change, **options)


def _bug(
    name: str,
    store: type[MemoryStore] = MemoryStore,
    patches: tuple[tuple[Any, str, Any], ...] = (),
) -> Bug:
    return Bug(name, store, patches, has_services=True)


BUGS: tuple[Bug, ...] = (
    _bug("rendered by the newest version", RenderedByTheNewest),
    _bug("what waits for a disabled service is dropped", DisabledIsDropped),
    _bug("a publisher goes by old rules", PublishedByOldRules),
    _bug("a delivery per service", patches=((publish, "recipients", _once_per_service),)),
    _bug("applied in two transactions", patches=((Servicing, "_change", _change_in_two),)),
    _bug("two apply at once", AnyRevisionWill),
    _bug("a version is given again", VersionsFromOneAgain),
    _bug("an old address for ever", patches=((StoredServices, "_is_fresh", _never_fresh),)),
    _bug("a disabled service is served", patches=((provider, "_is_served", _is_served_anyway),)),
    _bug("a disabled rule gives events", patches=((drafter, "route_of", _disabled_too),)),
    _bug("a rule stays where it led", patches=((Servicing, "_worked_out", _only_rules),)),
    _bug("a rule is moved by two at once", patches=((servicing, "_kept", _kept_before),)),
    _bug("deleted under what waits", patches=((servicing, "_refuse_waiting", _refuse_nothing),)),
)
