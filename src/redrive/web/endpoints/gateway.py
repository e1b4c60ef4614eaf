"""Services, rules, sources and stored schedules: what there is, and to change it."""

from __future__ import annotations

from redrive.model.rule import Stored
from redrive.operations import GatewayDocument, GatewayPlan, RulePreview, ServiceTest
from redrive.web.answers import Acted, Documents, LoggedRequests, Versions
from redrive.web.drafts import (
    AlterDocument,
    ApplyGateway,
    DeleteService,
    ListRequests,
    ListRules,
    ListServices,
    ListVersions,
    PlanGateway,
    PreviewRule,
    SaveDocument,
    TestService,
)
from redrive.web.requests import Act, Nothing
from redrive.web.route import Call

__all__ = [
    "alter_rule",
    "alter_schedule",
    "alter_service",
    "alter_source",
    "apply_gateway",
    "delete_rule",
    "delete_schedule",
    "delete_service",
    "delete_source",
    "export_gateway",
    "past_versions",
    "plan_gateway",
    "preview_rule",
    "request_log",
    "rules",
    "save_rule",
    "save_schedule",
    "save_service",
    "save_source",
    "services",
    "sources",
    "try_service",
]


async def services(call: Call, given: ListServices) -> Documents:
    """List services that are in force."""
    return Documents(tuple(await call.operations.services(name=given.name)))


async def rules(call: Call, given: ListRules) -> Documents:
    """List rules that are in force."""
    found = await call.operations.rules(name=given.name, service=given.service)
    return Documents(tuple(found))


async def save_service(call: Call, given: SaveDocument) -> Stored:
    """Put a service in force as a document says."""
    return await call.operations.save_service(
        call.name, given.document, by=call.by, why=given.why, is_new=given.is_new
    )


async def alter_service(call: Call, given: AlterDocument) -> Stored:
    """Change some keys of a service."""
    return await call.operations.alter_service(call.name, given.changes, by=call.by, why=given.why)


async def delete_service(call: Call, given: DeleteService) -> Acted:
    """Delete a service and all rules to it."""
    return Acted(
        await call.operations.delete_service(
            call.name, by=call.by, why=given.why, leave_waiting=given.leave_waiting
        )
    )


async def request_log(call: Call, given: ListRequests) -> LoggedRequests:
    """List the last requests to a destination with status and latency, as far as they are kept."""
    call.narrow(destination=call.name)
    found = await call.operations.request_log(call.name, limit=given.limit)
    return LoggedRequests(tuple(found))


async def try_service(call: Call, given: TestService) -> ServiceTest:
    """Send one request to a service now, and return it with its answer; no delivery is left."""
    call.narrow(destination=call.name)
    return await call.operations.try_service(
        call.name,
        given.payload,
        type=given.type,
        key=given.key,
        tenant=given.tenant,
        rule=given.rule,
        by=call.by,
        why=given.why,
    )


async def save_rule(call: Call, given: SaveDocument) -> Stored:
    """Put a rule in force as a document says."""
    return await call.operations.save_rule(
        call.name, given.document, by=call.by, why=given.why, is_new=given.is_new
    )


async def alter_rule(call: Call, given: AlterDocument) -> Stored:
    """Change some keys of a rule."""
    return await call.operations.alter_rule(call.name, given.changes, by=call.by, why=given.why)


async def delete_rule(call: Call, given: Act) -> Acted:
    """Delete a rule; what it has given goes on."""
    return Acted(await call.operations.delete_rule(call.name, by=call.by, why=given.why))


async def sources(call: Call, given: ListServices) -> Documents:
    """List sources that are in force."""
    return Documents(tuple(await call.operations.sources(name=given.name)))


async def save_source(call: Call, given: SaveDocument) -> Stored:
    """Put a source in force as a document says."""
    return await call.operations.save_source(
        call.name, given.document, by=call.by, why=given.why, is_new=given.is_new
    )


async def alter_source(call: Call, given: AlterDocument) -> Stored:
    """Change some keys of a source."""
    return await call.operations.alter_source(call.name, given.changes, by=call.by, why=given.why)


async def delete_source(call: Call, given: Act) -> Acted:
    """Delete a source; nothing of it is let in any more."""
    return Acted(await call.operations.delete_source(call.name, by=call.by, why=given.why))


async def save_schedule(call: Call, given: SaveDocument) -> Stored:
    """Put a schedule in force as a document says."""
    return await call.operations.save_schedule(
        call.name, given.document, by=call.by, why=given.why, is_new=given.is_new
    )


async def alter_schedule(call: Call, given: AlterDocument) -> Stored:
    """Change some keys of a stored schedule."""
    return await call.operations.alter_schedule(call.name, given.changes, by=call.by, why=given.why)


async def delete_schedule(call: Call, given: Act) -> Acted:
    """Delete a schedule that is stored, or that no live worker's code declares any more."""
    return Acted(await call.operations.delete_schedule(call.name, by=call.by, why=given.why))


async def preview_rule(call: Call, given: PreviewRule) -> RulePreview:
    """Tell what a rule would make of a past event, of a sample, or of the last that fit."""
    return await call.operations.preview_rule(
        call.name,
        changes=given.changes,
        event_id=given.event_id,
        sample=given.sample,
        limit=given.limit,
    )


async def past_versions(call: Call, given: ListVersions) -> Versions:
    """List the versions of a service, rule, source or schedule, the latest first."""
    kind = str(call.path["kind"])
    found = await call.operations.past_versions(kind, call.name, limit=given.limit)
    return Versions(tuple(found))


async def export_gateway(call: Call, _: Nothing) -> GatewayDocument:
    """Return all services, rules, sources and schedules as documents."""
    return await call.operations.export_gateway()


async def plan_gateway(call: Call, given: PlanGateway) -> GatewayPlan:
    """Tell what would change if services, rules, sources and schedules were to be these."""
    return await call.operations.plan_gateway(given.gateway, keep_others=given.keep_others)


async def apply_gateway(call: Call, given: ApplyGateway) -> GatewayPlan:
    """Have services, rules, sources and schedules be these, all at once."""
    return await call.operations.apply_gateway(
        given.gateway,
        by=call.by,
        why=given.why,
        keep_others=given.keep_others,
        leave_waiting=given.leave_waiting,
    )
