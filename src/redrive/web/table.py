"""The table of the API: every route, and what is behind it.

Routing, decoding, roles and the OpenAPI document come from it, and a test compares it with
`Operations`: what is in there and has no route is named in `LEFT_OUT`, with the reason.
"""

from __future__ import annotations

from redrive.journal.draining import Drained
from redrive.model.access import NewToken
from redrive.model.encryption import Encryption
from redrive.model.event import Receipt
from redrive.model.gate import BreakerChange, Override
from redrive.model.rule import Stored
from redrive.model.secret import Rotated, Secret
from redrive.operations import (
    BackfillPlan,
    Erasure,
    ErasurePlan,
    EventStory,
    GatewayDocument,
    GatewayPlan,
    Journal,
    JournalPage,
    PrunePlan,
    ReplayPlan,
    RulePreview,
    ScheduleFigures,
    ServiceTest,
    Story,
)
from redrive.store import (
    Backfilled,
    EventDelivery,
    EventPage,
    Figures,
    LetterPage,
    Moved,
    Page,
    ProjectionFigures,
    Replay,
    Restored,
)
from redrive.web import answers, drafts, erased, journaled, published, requests
from redrive.web.endpoints import (
    acting,
    gateway,
    granting,
    journal,
    keeping,
    looking,
    publishing,
    steering,
)
from redrive.web.route import Endpoint, Route

__all__ = ["LEFT_OUT", "ROUTES"]

_IDS = {"ids": [7], "why": "the bug is fixed"}
_WHY = {"why": "the bug is fixed"}
_GATEWAY = {
    "services": {"crm": {"url": "https://api.example.com/hooks"}},
    "rules": {"orders": {"service": "crm", "event": "order.*"}},
}
_EVENT = {"type": "order.paid", "payload": {"order": 42}, "key": "order-42"}


def _get(
    path: str, endpoint: Endpoint, result: object, given: type = requests.Nothing, name: str = ""
) -> Route:
    operation = name or endpoint.__name__
    return Route(
        method="GET", path=path, operation=operation, endpoint=endpoint, result=result, given=given
    )


def _post(
    path: str,
    endpoint: Endpoint,
    result: object,
    given: type = requests.Act,
    *,
    example: object = None,
    name: str = "",
) -> Route:
    return Route(
        method="POST",
        path=path,
        operation=name or endpoint.__name__,
        endpoint=endpoint,
        result=result,
        given=given,
        example=example,
    )


def _put_in_force(
    path: str, save: Endpoint, alter: Endpoint, *, example: object, changes: object
) -> tuple[Route, Route]:
    """Return the routes of a kind of documents: to put one in force, and to change keys of it."""
    return (
        _post(path, save, Stored, drafts.SaveDocument, example={"document": example}),
        _post(f"{path}/alter", alter, Stored, drafts.AlterDocument, example={"changes": changes}),
    )


ROUTES: tuple[Route, ...] = (
    _post("/events", publishing.publish, Receipt, published.PublishEvent, example=_EVENT),
    _post(
        "/events/batch",
        publishing.publish_batch,
        answers.Receipts,
        published.PublishBatch,
        example={"events": [_EVENT]},
        name="publish_many",
    ),
    _get("/events", looking.find_events, EventPage, requests.ListEvents),
    _get("/events/{name}", looking.show_event, EventStory, requests.Show),
    _post("/events/{name}/reveal", looking.reveal_event, EventStory),
    _get("/events/{name}/delivery", looking.delivery_of, EventDelivery, requests.FindDelivery),
    _get(
        "/events/{name}/results/{destination}",
        looking.result,
        answers.ResultTold,
        requests.AwaitResult,
    ),
    _get("/log", looking.events, answers.LogStretch, requests.ReadLog),
    _get("/deliveries", looking.deliveries, Page, requests.ListDeliveries),
    _get("/deliveries/conditions", looking.conditions, answers.Conditions, requests.AskConditions),
    _get("/deliveries/stuck", looking.stuck, answers.Stuck),
    _post("/deliveries/cancel", acting.cancel, answers.Changed, requests.ActOnIds, example=_IDS),
    _post(
        "/deliveries/reschedule",
        acting.reschedule,
        answers.Changed,
        requests.Reschedule,
        example={"ids": [7], "due": "5m"},
    ),
    _post(
        "/deliveries/prioritise",
        acting.prioritise,
        answers.Changed,
        requests.Prioritise,
        example={"ids": [7], "priority": 10},
    ),
    _get("/deliveries/{id:int}", looking.show, Story, requests.Show),
    _post("/deliveries/{id:int}/reveal", looking.reveal, Story),
    _get("/dead-letters", looking.dead_letters, Page, requests.ListDeadLetters),
    _get("/dead-letters/groups", looking.groups, answers.Groups, requests.ListGroups),
    _get("/dead-letters/groups/outdated", looking.outdated_groups, answers.Counted),
    _get("/dead-letters/export", keeping.export_page, LetterPage, requests.ListDeadLetters),
    _post("/dead-letters/import", keeping.restore, Restored, requests.RestoreLetters),
    _post("/dead-letters/replay", acting.replay, answers.Changed, requests.ReplayIds, example=_IDS),
    _post(
        "/dead-letters/render-again",
        acting.render_again,
        answers.Changed,
        requests.ActOnIds,
        example=_IDS,
    ),
    _post(
        "/dead-letters/resolve",
        acting.resolve,
        answers.Changed,
        requests.ActOnIdsWithReason,
        example=_IDS,
    ),
    _post(
        "/dead-letters/reopen",
        acting.reopen,
        answers.Changed,
        requests.ReopenIds,
        example=_IDS,
    ),
    _post(
        "/dead-letters/delete",
        acting.delete,
        answers.Changed,
        requests.ActOnIdsWithReason,
        example=_IDS,
    ),
    _post(
        "/dead-letters/{id:int}/edit",
        acting.edit,
        Story,
        requests.EditPayload,
        example={"payload": {"order": 42}, "why": "the order number was missing"},
    ),
    _post(
        "/dead-letters/{id:int}/edit/preview",
        acting.preview_edit,
        answers.Changes,
        requests.PreviewEdit,
        example={"payload": {"order": 42}},
    ),
    _get("/replays", steering.replays, answers.Replays, requests.ListReplays),
    _post(
        "/replays",
        steering.start_replay,
        Replay,
        requests.StartReplay,
        example={"filter": {"destination": "billing"}, "why": "the bug is fixed"},
    ),
    _post(
        "/replays/plan",
        steering.plan_replay,
        ReplayPlan,
        requests.PlanReplay,
        example={"filter": {"destination": "billing"}},
    ),
    _get("/replays/automatic", steering.auto_replays, answers.AutoReplays),
    _get("/replays/{id:int}", steering.show_replay, Replay),
    _post("/replays/{id:int}/pause", steering.pause_replay, answers.Acted),
    _post("/replays/{id:int}/resume", steering.resume_replay, answers.Acted),
    _post("/replays/{id:int}/cancel", steering.cancel_replay, answers.Acted),
    _get("/gates", looking.gates, answers.Gates),
    _get("/lanes", looking.lanes, answers.Lanes, requests.ListLanes),
    _post("/destinations/{name}/pause", steering.pause, answers.Acted, example=_WHY),
    _post("/destinations/{name}/resume", steering.resume, answers.Acted, example=_WHY),
    _post("/destinations/{name}/remove", keeping.remove_destination, answers.Acted),
    _post("/destinations/{name}/restore", keeping.restore_destination, answers.Acted),
    _post("/destinations/{name}/move", keeping.move, Moved, requests.MoveDeliveries),
    _post(
        "/destinations/{name}/fail-pending",
        keeping.fail_pending,
        answers.Counted,
        requests.ActWithReason,
    ),
    _post(
        "/destinations/{name}/delete-pending",
        keeping.delete_pending,
        answers.Counted,
        requests.ActWithReason,
    ),
    _get(
        "/destinations/{name}/backfill",
        keeping.plan_backfill,
        BackfillPlan,
        requests.PlanBackfill,
    ),
    _post("/destinations/{name}/backfill", keeping.backfill, Backfilled, requests.RunBackfill),
    _post(
        "/destinations/{name}/limits",
        steering.override,
        Override,
        requests.OverrideLimits,
        example={"lasts": "2h", "rate": "5/s", "why": "they asked for less"},
    ),
    _post("/destinations/{name}/limits/end", steering.end_override, answers.Acted),
    _post("/breakers/reset", steering.reset_breakers, answers.BreakerChanges),
    _post("/breakers/{name}/open", steering.open_breaker, BreakerChange, requests.OpenBreaker),
    _post("/breakers/{name}/reset", steering.reset_breaker, BreakerChange),
    _get("/tenants", steering.tenants, answers.TenantList, requests.ListTenants),
    _post("/tenants/{name}/pause", steering.pause_tenant, answers.Acted, requests.ActOnTenant),
    _post("/tenants/{name}/resume", steering.resume_tenant, answers.Acted, requests.ActOnTenant),
    _get("/schedules", steering.schedules, answers.Schedules),
    _get("/schedules/{name}", steering.show_schedule, ScheduleFigures),
    _post("/schedules/{name}/pause", steering.pause_schedule, answers.Acted),
    _post("/schedules/{name}/resume", steering.resume_schedule, answers.Acted),
    _post("/schedules/{name}/run", steering.run_schedule, answers.Acted),
    *_put_in_force(
        "/schedules/{name}",
        gateway.save_schedule,
        gateway.alter_schedule,
        example={"event": "report.due", "cron": "0 2 * * *"},
        changes={"cron": "30 2 * * *"},
    ),
    _post("/schedules/{name}/delete", gateway.delete_schedule, answers.Acted),
    _get("/projections", keeping.projections, answers.Projections),
    _get("/projections/{name}", keeping.projection, ProjectionFigures, requests.ChooseVersion),
    _post(
        "/projections/{name}/reset",
        keeping.reset_projection,
        answers.Counted,
        requests.ResetProjection,
    ),
    _post(
        "/projections/{name}/rebuild",
        keeping.rebuild_projection,
        answers.Counted,
        requests.RebuildProjection,
        example={"version": 2, "rate": "500/s", "why": "the totals were wrong"},
    ),
    _post(
        "/projections/{name}/rebuild/cancel",
        keeping.cancel_rebuild,
        answers.Acted,
        requests.ActOnVersion,
    ),
    _post(
        "/projections/{name}/swap",
        keeping.swap_projection,
        ProjectionFigures,
        requests.SwapProjection,
        example={"version": 2, "why": "orders have a state"},
    ),
    _post(
        "/projections/{name}/drop",
        keeping.drop_projection,
        answers.Counted,
        requests.ActOnVersion,
    ),
    _get(
        "/projections/{name}/events/{event}",
        keeping.reached,
        answers.Reached,
        requests.AwaitResult,
    ),
    _get("/tokens", granting.tokens, answers.Tokens, requests.ListTokens),
    _post(
        "/tokens",
        granting.create_token,
        NewToken,
        requests.CreateToken,
        example={"name": "shop", "role": "publish", "why": "the shop publishes orders"},
    ),
    _post("/tokens/{name}/revoke", granting.revoke_token, answers.Acted, requests.ActWithReason),
    _get("/secrets", granting.secrets, answers.Secrets),
    _post(
        "/secrets",
        granting.set_secret,
        Secret,
        requests.SetSecret,
        example={"name": "crm-token", "value": "t0ps3cret", "why": "the new contract"},
    ),
    _post("/secrets/rotate", granting.rotate_secrets, Rotated, requests.ActWithReason),
    _post("/secrets/{name}/delete", granting.delete_secret, answers.Acted, requests.ActWithReason),
    _get("/encryption", granting.encryption, answers.Encrypted),
    _post("/encryption", granting.encrypt, Encryption, requests.ActWithReason),
    _post("/encryption/off", granting.decrypt, Encryption, requests.ActWithReason),
    _post("/encryption/finish", granting.finish_encryption, answers.Encrypted, requests.Nothing),
    _get("/services", gateway.services, answers.Documents, drafts.ListServices),
    *_put_in_force(
        "/services/{name}",
        gateway.save_service,
        gateway.alter_service,
        example={"url": "https://api.example.com/hooks"},
        changes={"rate": "10/s", "enabled": True},
    ),
    _get(
        "/services/{name}/requests",
        gateway.request_log,
        answers.LoggedRequests,
        drafts.ListRequests,
    ),
    _post(
        "/services/{name}/test",
        gateway.try_service,
        ServiceTest,
        drafts.TestService,
        example={"payload": {"order": 42}, "type": "order.paid"},
    ),
    _post("/services/{name}/delete", gateway.delete_service, answers.Acted, drafts.DeleteService),
    _get("/rules", gateway.rules, answers.Documents, drafts.ListRules),
    *_put_in_force(
        "/rules/{name}",
        gateway.save_rule,
        gateway.alter_rule,
        example={"service": "crm", "event": "order.*"},
        changes={"path": "/orders"},
    ),
    _post("/rules/{name}/delete", gateway.delete_rule, answers.Acted),
    _get("/sources", gateway.sources, answers.Documents, drafts.ListServices),
    *_put_in_force(
        "/sources/{name}",
        gateway.save_source,
        gateway.alter_source,
        example={"kind": "github", "secrets": "env:GITHUB_SECRET"},
        changes={"unique_for": "1d"},
    ),
    _post("/sources/{name}/delete", gateway.delete_source, answers.Acted),
    _post(
        "/rules/{name}/preview",
        gateway.preview_rule,
        RulePreview,
        drafts.PreviewRule,
        example={"sample": {"type": "order.paid", "payload": {"order": 42}}},
    ),
    _get(
        "/gateway/{kind}/{name}/versions",
        gateway.past_versions,
        answers.Versions,
        drafts.ListVersions,
    ),
    _get("/gateway", gateway.export_gateway, GatewayDocument),
    _post(
        "/gateway/plan",
        gateway.plan_gateway,
        GatewayPlan,
        drafts.PlanGateway,
        example={"gateway": _GATEWAY},
    ),
    _post(
        "/gateway/apply",
        gateway.apply_gateway,
        GatewayPlan,
        drafts.ApplyGateway,
        example={"gateway": _GATEWAY, "why": "orders go to the CRM"},
    ),
    _get("/journal", journal.journal, Journal, journaled.LookIntoJournal),
    _get("/journal/{name}", journal.journal_records, JournalPage, journaled.ShowRecords),
    _post("/journal/drain", journal.drain_journal, Drained, journaled.DrainJournal),
    _get("/status", looking.status, Figures),
    _get("/trends", looking.trends, answers.TrendList, requests.AskTrends),
    _get("/doctor", looking.examine, answers.Findings),
    _get("/schema", looking.schema_version, answers.SchemaVersion),
    _get("/audit", looking.audit, answers.AuditEntries, requests.ListAudit),
    _get("/prune", keeping.prunable, PrunePlan),
    _post("/prune", keeping.prune, PrunePlan),
    _post(
        "/erasures/plan",
        keeping.plan_erase,
        ErasurePlan,
        erased.PlanErasure,
        example={"key": "customer-42"},
    ),
    _post(
        "/erasures",
        keeping.erase,
        Erasure,
        erased.RunErasure,
        example={"key": "customer-42", "why": "request 17 of the privacy desk"},
    ),
    _post("/recount", keeping.recount, answers.Miscounts, requests.Nothing),
)

LEFT_OUT = {
    "select": "it has no end: /dead-letters gives the same page by page, and a replay takes a "
    "filter",
    "export": "it is /dead-letters/export, page after page",
    "carry_out": "POST /destinations/{name}/backfill takes the positions of a plan",
    "authenticate": "it is how the server finds out who asks",
    "check_password": "it is how a login finds out who asks, and no call of a program",
    "find_user": "as above",
    "open_session": "as above",
    "session": "as above",
    "close_session": "as above",
    "within": "it is how the server bounds what a caller reaches",
    "users": "people are let in from the command line, where the store is",
    "add_user": "as above",
    "set_password": "as above",
    "remove_user": "as above",
}
"""The operations without a route, each with the reason."""
