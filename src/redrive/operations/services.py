"""Services, rules and sources that the store describes: what is there, and what is to change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from redrive.errors import UsageError, not_found
from redrive.model.audit import Actor
from redrive.model.rule import NO_SERVICE, DocumentKind, Stored
from redrive.observer import Operated
from redrive.operations.context import OperationContext
from redrive.operations.drafting import Document
from redrive.policies.difference import spelled
from redrive.store import Gateway, GatewayChange, Store

__all__ = ["GatewayDocument", "GatewayPlan", "PlanStep", "Servicing"]

_TRIES = 20


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is to change, and what is different of it."""

    action: Literal["add", "change", "delete"]
    kind: DocumentKind
    name: str
    difference: str = ""

    @property
    def said(self) -> str:
        """What the audit log says of it."""
        said = {"add": "new", "delete": "deleted"}.get(self.action, self.difference)
        return f"{self.kind} {self.name}: {said}"


class GatewayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to change so that the store says what was asked for; nothing if it does."""

    steps: tuple[PlanStep, ...] = ()


class GatewayDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Services, rules and sources by their names, as a file has them."""

    services: dict[str, dict[str, Any]] = {}
    rules: dict[str, dict[str, Any]] = {}
    sources: dict[str, dict[str, Any]] = {}


class Servicing(OperationContext):
    """Look at services, rules and sources, and change them."""

    async def services(self, *, name: str | None = None) -> Sequence[Stored]:
        """Return the services that are in force, or one of them."""
        store = await self._store()
        found = (await store.gateway(None if name is None else [name])).services
        if name is not None and not found:
            raise not_found(name, await _names(store, "service"), what="service")
        return found

    async def rules(
        self, *, name: str | None = None, service: str | None = None
    ) -> Sequence[Stored]:
        """Return the rules that are in force: all, one of them, or those to a service."""
        store = await self._store()
        if name is None:
            return (await store.gateway(None if service is None else [service])).rules
        found = await store.find_rules([name])
        if not found:
            raise not_found(name, await _names(store, "rule"), what="rule")
        return found

    async def save_service(
        self,
        name: str,
        document: Document,
        *,
        by: str,
        why: str = "",
        is_new: bool | None = None,
    ) -> Stored:
        """Put a service in force as a document says, in the place of what there was of it.

        With `is_new` it has to be new, or not to be.
        """
        self._drafter.check_service(name, document)

        def change(kept: Kept) -> None:
            _check_new("service", name, kept.services, is_new=is_new)
            kept.services[name] = document

        gateway = await self._change([name], change, by=by, why=why)
        return gateway.services[name]

    async def alter_service(
        self, name: str, changes: Document, *, by: str, why: str = ""
    ) -> Stored:
        """Change some keys of a service; `None` takes one out."""

        def change(kept: Kept) -> None:
            _check_new("service", name, kept.services, is_new=False)
            kept.services[name] = _altered(kept.services[name], changes)
            self._drafter.check_service(name, kept.services[name])

        gateway = await self._change([name], change, by=by, why=why)
        return gateway.services[name]

    async def delete_service(
        self, name: str, *, by: str, why: str = "", leave_waiting: bool = False
    ) -> bool:
        """Delete a service and all rules to it; nothing is sent there any more.

        While deliveries wait for it that is refused, unless they are to be left waiting, for a
        person to move, fail or delete them. Tells whether there was such a service.
        """

        def change(kept: Kept) -> None:
            kept.services.pop(name, None)
            kept.rules.clear()

        if not (await (await self._store()).gateway([name])).services:
            return False
        await self._change([name], change, by=by, why=why, leave_waiting=leave_waiting)
        return True

    async def save_rule(
        self,
        name: str,
        document: Document,
        *,
        by: str,
        why: str = "",
        is_new: bool | None = None,
    ) -> Stored:
        """Put a rule in force as a document says, in the place of what there was of it.

        What was published before goes by the version that was in force then.
        """

        def change(kept: Kept) -> None:
            _check_new("rule", name, kept.rules, is_new=is_new)
            kept.rules[name] = document

        service = self._drafter.check_rule(name, document)
        gateway = await self._change([service], change, by=by, why=why, rule=name)
        return gateway.rules[name]

    async def alter_rule(self, name: str, changes: Document, *, by: str, why: str = "") -> Stored:
        """Change some keys of a rule; `None` takes one out."""

        def change(kept: Kept) -> None:
            _check_new("rule", name, kept.rules, is_new=False)
            kept.rules[name] = _altered(kept.rules[name], changes)
            self._drafter.check_rule(name, kept.rules[name])

        moves_to = changes.get("service")
        services = [moves_to] if isinstance(moves_to, str) else []
        gateway = await self._change(services, change, by=by, why=why, rule=name)
        return gateway.rules[name]

    async def delete_rule(self, name: str, *, by: str, why: str = "") -> bool:
        """Delete a rule; what it has given goes on. Tells whether there was one."""

        def change(kept: Kept) -> None:
            kept.rules.pop(name, None)

        if not await (await self._store()).find_rules([name]):
            return False
        await self._change([], change, by=by, why=why, rule=name)
        return True

    async def sources(self, *, name: str | None = None) -> Sequence[Stored]:
        """Return the sources that are in force, or one of them."""
        found = (await (await self._store()).gateway([NO_SERVICE])).sources
        if name is None:
            return found
        if name not in (known := [one.name for one in found]):
            raise not_found(name, known, what="source")
        return [one for one in found if one.name == name]

    async def save_source(
        self,
        name: str,
        document: Document,
        *,
        by: str,
        why: str = "",
        is_new: bool | None = None,
    ) -> Stored:
        """Put a source in force as a document says; what it sends is let in within seconds."""

        def change(kept: Kept) -> None:
            _check_new("source", name, kept.sources, is_new=is_new)
            kept.sources[name] = document

        gateway = await self._change([NO_SERVICE], change, by=by, why=why)
        return gateway.sources[name]

    async def alter_source(self, name: str, changes: Document, *, by: str, why: str = "") -> Stored:
        """Change some keys of a source; `None` takes one out."""

        def change(kept: Kept) -> None:
            _check_new("source", name, kept.sources, is_new=False)
            kept.sources[name] = _altered(kept.sources[name], changes)

        gateway = await self._change([NO_SERVICE], change, by=by, why=why)
        return gateway.sources[name]

    async def delete_source(self, name: str, *, by: str, why: str = "") -> bool:
        """Delete a source; nothing of it is let in any more. Tells whether there was one."""

        def change(kept: Kept) -> None:
            kept.sources.pop(name, None)

        done = await self._change([NO_SERVICE], change, by=by, why=why)
        return bool(done.steps)

    async def export_gateway(self) -> GatewayDocument:
        """Return all services, rules and sources as documents, as a file can have them."""
        gateway = await (await self._store()).gateway()
        return GatewayDocument(
            services={one.name: one.document for one in gateway.services},
            rules={one.name: one.document for one in gateway.rules},
            sources={one.name: one.document for one in gateway.sources},
        )

    async def plan_gateway(
        self, wanted: GatewayDocument, *, keep_others: bool = False
    ) -> GatewayPlan:
        """Return what would change if services, rules and sources were to be these.

        With `keep_others`, those that are not named stay as they are.
        """
        store = await self._store()
        before = await store.gateway()
        kept = Kept(before)
        kept.replace(wanted, keep_others=keep_others)
        self._check(kept)
        await _refuse_astray(store, kept)
        return GatewayPlan(steps=tuple(kept.steps()))

    async def apply_gateway(
        self,
        wanted: GatewayDocument,
        *,
        by: str,
        why: str = "",
        keep_others: bool = False,
        leave_waiting: bool = False,
    ) -> GatewayPlan:
        """Have services, rules and sources be these, all at once; return what has changed.

        A service that goes while deliveries wait for it is refused, unless they are to be left
        waiting, for a person to move, fail or delete them.
        """

        def change(kept: Kept) -> None:
            kept.replace(wanted, keep_others=keep_others)

        done = await self._change(None, change, by=by, why=why, leave_waiting=leave_waiting)
        return GatewayPlan(steps=done.steps)

    async def _change(
        self,
        services: Collection[str] | None,
        change: Callable[[Kept], None],
        *,
        by: str,
        why: str,
        rule: str | None = None,
        leave_waiting: bool = False,
    ) -> Changed:
        """Change what is kept of some services, or of all; again if somebody else was quicker."""
        store = await self._to_change()
        actor = Actor(by, why)
        for _ in range(_TRIES):
            names = None if services is None else set(services)
            if names is not None and rule is not None:
                names |= {one.service for one in await store.find_rules([rule])}
            before = await store.gateway(names)
            kept = Kept(before)
            change(kept)
            self._check(kept)
            await _refuse_astray(store, kept)
            steps = kept.steps()
            done = await self._worked_out(store, kept, steps)
            if not steps:
                return done[0]
            if not leave_waiting:
                await _refuse_waiting(store, done[1].gone)
            if await store.change_gateway(done[1], revision=before.revision, actor=actor):
                for step in steps:
                    self._observer.notice(Operated(action="gateway", by=by, why=step.said))
                return done[0]
        raise UsageError(
            "Others have changed services, rules or sources again and again meanwhile; nothing was "
            "changed. Try again."
        )

    def _check(self, kept: Kept) -> None:
        """Refuse documents that are wrong, and find out where rules lead."""
        for name, document in kept.services.items():
            known = kept.services_before.get(name)
            if known is None or known.document != document:
                self._drafter.check_service(name, document)
        for name, document in kept.rules.items():
            service = self._drafter.check_rule(name, document, kept.services)
            kept.leads_to[name] = service
        for name, document in kept.sources.items():
            known = kept.sources_before.get(name)
            if known is None or known.document != document:
                self._drafter.check_source(name, document)

    async def _worked_out(
        self, store: Store, kept: Kept, steps: Sequence[PlanStep]
    ) -> tuple[Changed, GatewayChange]:
        """Return what is in force afterwards, and what the store has to change for it."""
        versions = await store.next_versions([(one.kind, one.name) for one in steps])
        services = _after("service", kept.services_before, kept.services, versions, {})
        rules = _after("rule", kept.rules_before, kept.rules, versions, kept.leads_to)
        lead_nowhere = dict.fromkeys(kept.sources, NO_SERVICE)
        sources = _after("source", kept.sources_before, kept.sources, versions, lead_nowhere)
        before = {
            "service": kept.services_before,
            "rule": kept.rules_before,
            "source": kept.sources_before,
        }
        after = {"service": services, "rule": rules, "source": sources}
        of_service: dict[str, list[Stored]] = {}
        for rule in rules.values():
            of_service.setdefault(rule.service, []).append(rule)
        touched = {
            stored.service
            for one in steps
            for stored in (before[one.kind].get(one.name), after[one.kind].get(one.name))
            if stored is not None
        }
        change = GatewayChange(
            kept=tuple(after[one.kind][one.name] for one in steps if one.action != "delete"),
            gone=tuple(before[one.kind][one.name] for one in steps if one.action == "delete"),
            destinations=tuple(
                self._drafter.destination(services[name], of_service.get(name, ()))
                for name in sorted(touched & services.keys())
            ),
            details=tuple(one.said for one in steps),
        )
        return Changed(tuple(steps), services, rules, sources), change


class Kept:
    """Services, rules and sources by name, as they were read and as they are to be."""

    def __init__(self, before: Gateway) -> None:
        self.services_before = {one.name: one for one in before.services}
        self.rules_before = {one.name: one for one in before.rules}
        self.sources_before = {one.name: one for one in before.sources}
        self.services: dict[str, Document] = {one.name: one.document for one in before.services}
        self.rules: dict[str, Document] = {one.name: one.document for one in before.rules}
        self.sources: dict[str, Document] = {one.name: one.document for one in before.sources}
        self.leads_to: dict[str, str] = {}

    def replace(self, wanted: GatewayDocument, *, keep_others: bool) -> None:
        """Have it be what is wanted, beside what there is or in its place."""
        if not keep_others:
            self.services, self.rules, self.sources = {}, {}, {}
        self.services = {**self.services, **wanted.services}
        self.rules = {**self.rules, **wanted.rules}
        self.sources = {**self.sources, **wanted.sources}

    def steps(self) -> list[PlanStep]:
        """Return what changes."""
        return [
            *_steps("service", self.services_before, self.services),
            *_steps("rule", self.rules_before, self.rules),
            *_steps("source", self.sources_before, self.sources),
        ]


class Changed(NamedTuple):
    """What has changed, and what is in force afterwards of all that was looked at."""

    steps: tuple[PlanStep, ...]
    services: Mapping[str, Stored]
    rules: Mapping[str, Stored]
    sources: Mapping[str, Stored]


def _check_new(kind: str, name: str, known: Collection[str], *, is_new: bool | None) -> None:
    if is_new and name in known:
        raise UsageError(
            f"There is a {kind} {name!r} already; change it with `redrive {kind} set {name}`, or "
            "choose another name."
        )
    if is_new is False and name not in known:
        raise not_found(name, sorted(known), what=kind)


def _altered(document: Document, changes: Document) -> Document:
    both = {**document, **changes}
    return {key: value for key, value in both.items() if value is not None}


async def _names(store: Store, kind: str) -> list[str]:
    gateway = await store.gateway()
    return [one.name for one in (gateway.services if kind == "service" else gateway.rules)]


def _steps(
    kind: DocumentKind, before: Mapping[str, Stored], after: Mapping[str, Document]
) -> list[PlanStep]:
    steps = []
    for name in sorted({*before, *after}):
        if name not in after:
            steps.append(PlanStep(action="delete", kind=kind, name=name))
        elif name not in before:
            steps.append(PlanStep(action="add", kind=kind, name=name))
        elif before[name].document != after[name]:
            said = spelled(before[name].document, after[name])
            steps.append(PlanStep(action="change", kind=kind, name=name, difference=said))
    return steps


def _after(
    kind: DocumentKind,
    before: Mapping[str, Stored],
    after: Mapping[str, Document],
    versions: Mapping[tuple[str, str], int],
    leads_to: Mapping[str, str],
) -> dict[str, Stored]:
    return {
        name: before[name]
        if (kind, name) not in versions
        else Stored(
            kind=kind,
            name=name,
            service=leads_to.get(name, name),
            version=versions[kind, name],
            document=dict(document),
        )
        for name, document in after.items()
    }


async def _refuse_astray(store: Store, kept: Kept) -> None:
    """Refuse a rule that leads to a service which is not there."""
    for name, service in kept.leads_to.items():
        if service not in kept.services:
            known = sorted({*kept.services, *await _names(store, "service")} - {service})
            what = f"service, to which the rule {name!r} leads:"
            raise not_found(service, known, what=what)


async def _refuse_waiting(store: Store, gone: Collection[Stored]) -> None:
    for one in gone:
        if one.kind == "service" and await store.waiting_for(one.name, limit=1):
            raise UsageError(
                f"Deliveries wait for the service {one.name!r}, which would go; say "
                "leave_waiting=True, or --leave-waiting, to keep them held until somebody moves, "
                "fails or deletes them, or disable the service instead."
            )
