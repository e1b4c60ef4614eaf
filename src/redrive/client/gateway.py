"""Services, rules, sources and schedules through a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redrive.client.remote import RemoteContext
from redrive.model.request_log import LoggedRequest
from redrive.model.rule import Stored
from redrive.operations import (
    GatewayDocument,
    GatewayPlan,
    RulePreview,
    SampleEvent,
    ServiceTest,
)
from redrive.store import KeptVersion
from redrive.web import answers, drafts, requests

__all__ = ["RemoteServicing"]

Document = Mapping[str, object]


class RemoteServicing(RemoteContext):
    """Look at services, rules, sources and schedules, and change them, through a server."""

    async def services(self, *, name: str | None = None) -> Sequence[Stored]:
        """Return the services that are in force, or one of them."""
        given = drafts.ListServices(name=name)
        return (await self._sender.ask("services", answers.Documents, given)).documents

    async def rules(
        self, *, name: str | None = None, service: str | None = None
    ) -> Sequence[Stored]:
        """Return the rules that are in force: all, one of them, or those to a service."""
        given = drafts.ListRules(name=name, service=service)
        return (await self._sender.ask("rules", answers.Documents, given)).documents

    async def save_service(
        self,
        name: str,
        document: Document,
        *,
        by: str = "",
        why: str = "",
        is_new: bool | None = None,
    ) -> Stored:
        """Put a service in force as a document says, in the place of what there was of it."""
        given = drafts.SaveDocument(document=dict(document), why=why, is_new=is_new)
        return await self._do("save_service", Stored, given, by, name=name)

    async def alter_service(
        self, name: str, changes: Document, *, by: str = "", why: str = ""
    ) -> Stored:
        """Change some keys of a service; `None` takes one out."""
        given = drafts.AlterDocument(changes=dict(changes), why=why)
        return await self._do("alter_service", Stored, given, by, name=name)

    async def delete_service(
        self, name: str, *, by: str = "", why: str = "", leave_waiting: bool = False
    ) -> bool:
        """Delete a service and all rules to it; nothing is sent there any more."""
        given = drafts.DeleteService(why=why, leave_waiting=leave_waiting)
        return await self._act("delete_service", given, by, name=name)

    async def request_log(self, name: str, *, limit: int = 50) -> Sequence[LoggedRequest]:
        """Return the last requests to a destination, the latest first: successes too, if kept."""
        given, path = drafts.ListRequests(limit=limit), {"name": name}
        found = await self._sender.ask("request_log", answers.LoggedRequests, given, path=path)
        return found.requests

    async def try_service(
        self,
        name: str,
        payload: object = None,
        *,
        type: str = "test",  # noqa: A002 - as an event calls it
        key: str | None = None,
        tenant: str | None = None,
        rule: str | None = None,
        by: str = "",
        why: str = "",
    ) -> ServiceTest:
        """Send one request to a service now, and return it with its answer, without secrets."""
        given = drafts.TestService(
            payload=payload, type=type, key=key, tenant=tenant, rule=rule, why=why
        )
        return await self._do("try_service", ServiceTest, given, by, name=name)

    async def save_rule(
        self,
        name: str,
        document: Document,
        *,
        by: str = "",
        why: str = "",
        is_new: bool | None = None,
    ) -> Stored:
        """Put a rule in force as a document says, in the place of what there was of it."""
        given = drafts.SaveDocument(document=dict(document), why=why, is_new=is_new)
        return await self._do("save_rule", Stored, given, by, name=name)

    async def alter_rule(
        self, name: str, changes: Document, *, by: str = "", why: str = ""
    ) -> Stored:
        """Change some keys of a rule; `None` takes one out."""
        given = drafts.AlterDocument(changes=dict(changes), why=why)
        return await self._do("alter_rule", Stored, given, by, name=name)

    async def delete_rule(self, name: str, *, by: str = "", why: str = "") -> bool:
        """Delete a rule; what it has given goes on. Tells whether there was one."""
        return await self._act("delete_rule", requests.Act(why=why), by, name=name)

    async def sources(self, *, name: str | None = None) -> Sequence[Stored]:
        """Return the sources that are in force, or one of them."""
        given = drafts.ListServices(name=name)
        return (await self._sender.ask("sources", answers.Documents, given)).documents

    async def save_source(
        self,
        name: str,
        document: Document,
        *,
        by: str = "",
        why: str = "",
        is_new: bool | None = None,
    ) -> Stored:
        """Put a source in force as a document says; what it sends is let in within seconds."""
        given = drafts.SaveDocument(document=dict(document), why=why, is_new=is_new)
        return await self._do("save_source", Stored, given, by, name=name)

    async def alter_source(
        self, name: str, changes: Document, *, by: str = "", why: str = ""
    ) -> Stored:
        """Change some keys of a source; `None` takes one out."""
        given = drafts.AlterDocument(changes=dict(changes), why=why)
        return await self._do("alter_source", Stored, given, by, name=name)

    async def delete_source(self, name: str, *, by: str = "", why: str = "") -> bool:
        """Delete a source; nothing of it is let in any more. Tells whether there was one."""
        return await self._act("delete_source", requests.Act(why=why), by, name=name)

    async def save_schedule(
        self,
        name: str,
        document: Document,
        *,
        by: str = "",
        why: str = "",
        is_new: bool | None = None,
    ) -> Stored:
        """Put a schedule in force as a document says; workers that serve services publish it."""
        given = drafts.SaveDocument(document=dict(document), why=why, is_new=is_new)
        return await self._do("save_schedule", Stored, given, by, name=name)

    async def alter_schedule(
        self, name: str, changes: Document, *, by: str = "", why: str = ""
    ) -> Stored:
        """Change some keys of a stored schedule; `None` takes one out."""
        given = drafts.AlterDocument(changes=dict(changes), why=why)
        return await self._do("alter_schedule", Stored, given, by, name=name)

    async def delete_schedule(self, name: str, *, by: str = "", why: str = "") -> bool:
        """Delete a schedule, stored or declared by code that is gone; tells whether there was one.

        While the code of a live worker declares it that is refused.
        """
        return await self._act("delete_schedule", requests.Act(why=why), by, name=name)

    async def preview_rule(
        self,
        name: str,
        *,
        changes: Document | None = None,
        event_id: str | None = None,
        sample: SampleEvent | None = None,
        limit: int = 10,
    ) -> RulePreview:
        """Return what a rule would make of a past event, of a sample, or of the last that fit."""
        given = drafts.PreviewRule(
            changes=None if changes is None else dict(changes),
            event_id=event_id,
            sample=sample,
            limit=limit,
        )
        return await self._sender.ask("preview_rule", RulePreview, given, path={"name": name})

    async def past_versions(
        self, kind: str, name: str, *, limit: int = 20
    ) -> Sequence[KeptVersion]:
        """Return the versions of a `"service"`, `"rule"`, `"source"` or `"schedule"`."""
        given, path = drafts.ListVersions(limit=limit), {"kind": kind, "name": name}
        found = await self._sender.ask("past_versions", answers.Versions, given, path=path)
        return found.versions

    async def export_gateway(self) -> GatewayDocument:
        """Return all services, rules, sources and schedules as a file can have them."""
        return await self._sender.ask("export_gateway", GatewayDocument)

    async def plan_gateway(
        self, wanted: GatewayDocument, *, keep_others: bool = False
    ) -> GatewayPlan:
        """Return what would change if services, rules, sources and schedules were to be these."""
        given = drafts.PlanGateway(gateway=wanted, keep_others=keep_others)
        return await self._sender.ask("plan_gateway", GatewayPlan, given)

    async def apply_gateway(
        self,
        wanted: GatewayDocument,
        *,
        by: str = "",
        why: str = "",
        keep_others: bool = False,
        leave_waiting: bool = False,
    ) -> GatewayPlan:
        """Have services, rules, sources and schedules be these, all at once."""
        given = drafts.ApplyGateway(
            gateway=wanted, why=why, keep_others=keep_others, leave_waiting=leave_waiting
        )
        return await self._do("apply_gateway", GatewayPlan, given, by)
