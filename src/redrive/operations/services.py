"""Services, rules, sources and schedules that the store describes, and what is to change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from redrive.errors import ConfigurationError, UsageError, not_found
from redrive.model.audit import Actor
from redrive.model.rule import DOCUMENT_KINDS, NO_SERVICE, DocumentKind, Stored
from redrive.observer import Operated
from redrive.operations.context import OperationContext
from redrive.operations.drafting import Document
from redrive.policies.attention import live_workers
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
    """Services, rules, sources and schedules by their names, as a file has them."""

    services: dict[str, dict[str, Any]] = {}
    rules: dict[str, dict[str, Any]] = {}
    sources: dict[str, dict[str, Any]] = {}
    schedules: dict[str, dict[str, Any]] = {}

    def of(self, kind: DocumentKind) -> dict[str, dict[str, Any]]:
        """Return the documents of a kind."""
        found: dict[str, dict[str, Any]] = getattr(self, f"{kind}s")
        return found


class Servicing(OperationContext):
    """Look at services, rules, sources and schedules, and change them."""

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
        change = _saving("service", name, document, is_new=is_new)
        done = await self._change([name], change, by=by, why=why)
        return done.in_force["service"][name]

    async def alter_service(
        self, name: str, changes: Document, *, by: str, why: str = ""
    ) -> Stored:
        """Change some keys of a service; `None` takes one out."""
        change = _altering("service", name, changes)
        done = await self._change([name], change, by=by, why=why)
        return done.in_force["service"][name]

    async def delete_service(
        self, name: str, *, by: str, why: str = "", leave_waiting: bool = False
    ) -> bool:
        """Delete a service and all rules to it; nothing is sent there any more.

        While deliveries wait for it that is refused, unless they are to be left waiting, for a
        person to move, fail or delete them. Tells whether there was such a service.
        """

        def change(kept: Kept) -> None:
            kept.after["service"].pop(name, None)
            kept.after["rule"].clear()

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
        service = self._drafter.check_rule(name, document)
        change = _saving("rule", name, document, is_new=is_new)
        done = await self._change([service], change, by=by, why=why, rule=name)
        return done.in_force["rule"][name]

    async def alter_rule(self, name: str, changes: Document, *, by: str, why: str = "") -> Stored:
        """Change some keys of a rule; `None` takes one out."""
        moves_to = changes.get("service")
        services = [moves_to] if isinstance(moves_to, str) else []
        change = _altering("rule", name, changes)
        done = await self._change(services, change, by=by, why=why, rule=name)
        return done.in_force["rule"][name]

    async def delete_rule(self, name: str, *, by: str, why: str = "") -> bool:
        """Delete a rule; what it has given goes on. Tells whether there was one."""
        if not await (await self._store()).find_rules([name]):
            return False
        await self._change([], _deleting("rule", name), by=by, why=why, rule=name)
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
        change = _saving("source", name, document, is_new=is_new)
        done = await self._change([NO_SERVICE], change, by=by, why=why)
        return done.in_force["source"][name]

    async def alter_source(self, name: str, changes: Document, *, by: str, why: str = "") -> Stored:
        """Change some keys of a source; `None` takes one out."""
        change = _altering("source", name, changes)
        done = await self._change([NO_SERVICE], change, by=by, why=why)
        return done.in_force["source"][name]

    async def delete_source(self, name: str, *, by: str, why: str = "") -> bool:
        """Delete a source; nothing of it is let in any more. Tells whether there was one."""
        done = await self._change([NO_SERVICE], _deleting("source", name), by=by, why=why)
        return bool(done.steps)

    async def save_schedule(
        self,
        name: str,
        document: Document,
        *,
        by: str,
        why: str = "",
        is_new: bool | None = None,
    ) -> Stored:
        """Put a schedule in force as a document says; workers that serve services publish it.

        It ticks from now on. A name that an app's code declares is refused.
        """
        self._drafter.check_schedule(name, document)
        change = _saving("schedule", name, document, is_new=is_new)
        done = await self._change([NO_SERVICE], change, by=by, why=why)
        return done.in_force["schedule"][name]

    async def alter_schedule(
        self, name: str, changes: Document, *, by: str, why: str = ""
    ) -> Stored:
        """Change some keys of a stored schedule; `None` takes one out."""
        change = _altering("schedule", name, changes)
        done = await self._change([NO_SERVICE], change, by=by, why=why)
        return done.in_force["schedule"][name]

    async def delete_schedule(self, name: str, *, by: str, why: str = "") -> bool:
        """Delete a schedule, stored or declared by code that is gone; tells whether there was one.

        While the code of a live worker declares it that is refused.
        """
        done = await self._change([NO_SERVICE], _deleting("schedule", name), by=by, why=why)
        if done.steps:
            return True
        store = await self._to_change()
        alive = live_workers(await store.workload())
        for one in (await store.timetable([name])).schedules:
            if alive & one.standing.declared.keys():
                raise UsageError(
                    f"The code of a live worker declares the schedule {name!r}; take it out of the "
                    "code first, or pause it."
                )
        is_new = await store.forget_schedule(name, actor=Actor(by, why))
        if is_new:
            self._observer.notice(Operated(action="forget_schedule", by=by, why=why, schedule=name))
        return is_new

    async def export_gateway(self) -> GatewayDocument:
        """Return all services, rules, sources and schedules as a file can have them."""
        gateway = await (await self._store()).gateway()
        return GatewayDocument(
            **{
                f"{kind}s": {one.name: one.document for one in gateway.of(kind)}
                for kind in DOCUMENT_KINDS
            }
        )

    async def plan_gateway(
        self, wanted: GatewayDocument, *, keep_others: bool = False
    ) -> GatewayPlan:
        """Return what would change if services, rules, sources and schedules were to be these.

        With `keep_others`, those that are not named stay as they are.
        """
        store = await self._store()
        before = await store.gateway()
        kept = Kept(before)
        kept.replace(wanted, keep_others=keep_others)
        self._check(kept)
        await _refuse_astray(store, kept)
        await self._refuse_unknown_secrets(store, kept)
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
        """Have services, rules, sources and schedules be these, all at once; tell what has changed.

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
            before = await _kept(store, services, rule)
            kept = Kept(before)
            change(kept)
            self._check(kept)
            await _refuse_astray(store, kept)
            await self._refuse_unknown_secrets(store, kept)
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
            "Others have changed services, rules and the like again and again meanwhile; nothing "
            "was changed. Try again."
        )

    def _check(self, kept: Kept) -> None:
        """Refuse documents that are wrong, and find out where rules lead."""
        services = kept.after["service"]
        for name, document in kept.after["rule"].items():
            kept.leads_to[name] = self._drafter.check_rule(name, document, services)
        for name, document in kept.changed("service"):
            self._drafter.check_service(name, document)
        for name, document in kept.changed("source"):
            self._drafter.check_source(name, document)
        for name, document in kept.changed("schedule"):
            self._drafter.check_schedule(name, document)

    async def _refuse_unknown_secrets(self, store: Store, kept: Kept) -> None:
        """Refuse a document that refers to a secret which is not in the store."""
        wanted: dict[str, str] = {}
        for kind in ("service", "source"):
            for name, document in kept.changed(kind):
                for secret in sorted(self._drafter.secrets_of(document)):
                    wanted.setdefault(secret, f"the {kind} {name!r} refers to as secret:{secret}")
        known = {one.name for one in await store.secrets()} if wanted else set()
        for secret, who in wanted.items():
            if secret not in known:
                raise ConfigurationError(
                    f"There is no secret {secret!r}, which {who}; keep it first with `redrive "
                    f"secret set {secret}`, or write where else it is."
                )

    async def _worked_out(
        self, store: Store, kept: Kept, steps: Sequence[PlanStep]
    ) -> tuple[Changed, GatewayChange]:
        """Return what is in force afterwards, and what the store has to change for it."""
        versions = await store.next_versions([(one.kind, one.name) for one in steps])
        before, after = (
            kept.before,
            {kind: kept.in_force(kind, versions) for kind in DOCUMENT_KINDS},
        )
        services, rules = after["service"], after["rule"]
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
            schedules=tuple(
                self._drafter.schedule(after["schedule"][one.name])
                for one in steps
                if one.kind == "schedule" and one.action != "delete"
            ),
            details=tuple(one.said for one in steps),
        )
        return Changed(tuple(steps), after), change


class Kept:
    """Documents by kind and name, as they were read and as they are to be."""

    def __init__(self, before: Gateway) -> None:
        self.before = {kind: {one.name: one for one in before.of(kind)} for kind in DOCUMENT_KINDS}
        self.after: dict[DocumentKind, dict[str, Document]] = {
            kind: {name: one.document for name, one in kept.items()}
            for kind, kept in self.before.items()
        }
        self.leads_to: dict[str, str] = {}

    def replace(self, wanted: GatewayDocument, *, keep_others: bool) -> None:
        """Have it be what is wanted, beside what there is or in its place."""
        for kind in DOCUMENT_KINDS:
            kept = self.after[kind] if keep_others else {}
            self.after[kind] = {**kept, **wanted.of(kind)}

    def changed(self, kind: DocumentKind) -> list[tuple[str, Document]]:
        """Return the documents of a kind that are new or others than before."""
        before = self.before[kind]
        return [
            (name, document)
            for name, document in self.after[kind].items()
            if name not in before or before[name].document != document
        ]

    def steps(self) -> list[PlanStep]:
        """Return what changes."""
        return [
            step
            for kind in DOCUMENT_KINDS
            for step in _steps(kind, self.before[kind], self.after[kind])
        ]

    def in_force(
        self, kind: DocumentKind, versions: Mapping[tuple[str, str], int]
    ) -> dict[str, Stored]:
        """Return the documents of a kind as they are kept from then on."""
        return {
            name: self.before[kind][name]
            if (kind, name) not in versions
            else Stored(
                kind=kind,
                name=name,
                service=self._leads_to(kind, name),
                version=versions[kind, name],
                document=dict(document),
            )
            for name, document in self.after[kind].items()
        }

    def _leads_to(self, kind: DocumentKind, name: str) -> str:
        return {"service": name, "rule": self.leads_to.get(name, "")}.get(kind, NO_SERVICE)


class Changed(NamedTuple):
    """What has changed, and what is in force afterwards of all that was looked at."""

    steps: tuple[PlanStep, ...]
    in_force: Mapping[DocumentKind, Mapping[str, Stored]]


def _saving(
    kind: DocumentKind, name: str, document: Document, *, is_new: bool | None
) -> Callable[[Kept], None]:
    def change(kept: Kept) -> None:
        _check_new(kind, name, kept.after[kind], is_new=is_new)
        kept.after[kind][name] = document

    return change


def _altering(kind: DocumentKind, name: str, changes: Document) -> Callable[[Kept], None]:
    def change(kept: Kept) -> None:
        _check_new(kind, name, kept.after[kind], is_new=False)
        both = {**kept.after[kind][name], **changes}
        kept.after[kind][name] = {key: value for key, value in both.items() if value is not None}

    return change


def _deleting(kind: DocumentKind, name: str) -> Callable[[Kept], None]:
    def change(kept: Kept) -> None:
        kept.after[kind].pop(name, None)

    return change


def _check_new(kind: str, name: str, known: Collection[str], *, is_new: bool | None) -> None:
    if is_new and name in known:
        raise UsageError(
            f"There is a {kind} {name!r} already; change it with `redrive {kind} set {name}`, or "
            "choose another name."
        )
    if is_new is False and name not in known:
        raise not_found(name, sorted(known), what=kind)


async def _kept(store: Store, services: Collection[str] | None, rule: str | None) -> Gateway:
    """Return what is kept of some services, or of all, and of the one that a rule leads to."""
    if services is None or rule is None:
        return await store.gateway(services)
    names = {*services, *await _led_to(store, rule)}
    while True:
        before = await store.gateway(names)
        # Somebody may have moved the rule before that was read; who does it later is noticed.
        led_to = await _led_to(store, rule)
        if led_to <= names:
            return before
        names |= led_to


async def _led_to(store: Store, rule: str) -> set[str]:
    return {one.service for one in await store.find_rules([rule])}


async def _names(store: Store, kind: DocumentKind) -> list[str]:
    return [one.name for one in (await store.gateway()).of(kind)]


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


async def _refuse_astray(store: Store, kept: Kept) -> None:
    """Refuse a rule that leads to a service which is not there."""
    for name, service in kept.leads_to.items():
        if service not in kept.after["service"]:
            known = sorted({*kept.after["service"], *await _names(store, "service")} - {service})
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
