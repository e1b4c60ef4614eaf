"""Access: may this caller do this, and may they let somebody else?

Everything that is not in the table is refused, and whoever is limited to a part of the store may
only do what can be limited to that part.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from redrive.errors import DeniedError
from redrive.model.access import Grant, Role

__all__ = [
    "DOOR",
    "NEEDS",
    "Need",
    "Reach",
    "check_given",
    "includes",
    "narrowed",
    "refusal",
]


class Reach(StrEnum):
    """What an operation is about, and so what it can be limited to."""

    DELIVERIES = "deliveries"
    """Each has a tenant and a destination."""
    EVENTS = "events"
    """Each has a tenant, and goes to any destination."""
    DESTINATION = "a destination"
    """Shared by all tenants."""
    TENANT = "a tenant"
    """Its part in one destination, or in all."""
    GRANTS = "who may"
    """Those who may no more than who asks."""
    STORE = "the store"
    """All of it, always."""


class Need(NamedTuple):
    """What it takes to do something."""

    role: Role
    reach: Reach


def _table() -> Mapping[str, Need]:
    view, operate, admin = Role.VIEW, Role.OPERATE, Role.ADMIN
    rows = {
        (Role.PUBLISH, Reach.EVENTS): ("publish", "publish_many"),
        (view, Reach.DELIVERIES): (
            *("deliveries", "dead_letters", "groups", "select", "show", "conditions", "result"),
            *("delivery_of", "plan_replay", "preview_edit"),
        ),
        (view, Reach.EVENTS): ("events", "find_events", "show_event"),
        (view, Reach.DESTINATION): ("gates", "lanes", "auto_replays", "trends", "request_log"),
        (view, Reach.TENANT): ("tenants",),
        (view, Reach.STORE): (
            *("status", "schema_version", "examine", "stuck", "outdated_groups", "audit"),
            *("schedules", "show_schedule", "replays", "show_replay", "prunable"),
            *("plan_backfill", "projections", "projection", "reached"),
            *("export_gateway", "plan_gateway", "services", "rules", "sources"),
            *("journal", "journal_records"),
            *("preview_rule", "past_versions", "encryption"),
        ),
        (operate, Reach.DELIVERIES): (
            *(
                "replay",
                "render_again",
                "resolve",
                "reopen",
                "delete",
                "cancel",
                "reschedule",
                "prioritise",
            ),
            *("edit", "reveal", "export", "export_page"),
        ),
        (operate, Reach.EVENTS): ("reveal_event",),
        (operate, Reach.DESTINATION): (
            *("pause", "resume", "override", "end_override", "open_breaker", "reset_breaker"),
            *("fail_pending", "delete_pending", "try_service"),
        ),
        (operate, Reach.TENANT): ("pause_tenant", "resume_tenant"),
        (operate, Reach.STORE): (
            *("reset_breakers", "start_replay", "pause_replay", "resume_replay", "cancel_replay"),
            *("pause_schedule", "resume_schedule", "run_schedule", "restore", "move"),
            *("backfill", "carry_out", "drain_journal"),
        ),
        (admin, Reach.STORE): (
            *("prune", "recount", "remove_destination", "restore_destination"),
            *("reset_projection", "swap_projection", "drop_projection"),
            *("rebuild_projection", "cancel_rebuild"),
            *("secrets", "set_secret", "rotate_secrets", "delete_secret"),
            *("encrypt", "decrypt", "finish_encryption"),
            *("apply_gateway", "save_service", "alter_service", "delete_service"),
            *("save_rule", "alter_rule", "delete_rule"),
            *("save_source", "alter_source", "delete_source"),
            *("save_schedule", "alter_schedule", "delete_schedule"),
        ),
        (admin, Reach.EVENTS): ("plan_erase", "erase"),
        (admin, Reach.GRANTS): (
            *("tokens", "create_token", "revoke_token"),
            *("users", "add_user", "set_password", "remove_user"),
        ),
    }
    return MappingProxyType(
        {name: Need(*need) for need, names in rows.items() for name in names},
    )


NEEDS: Mapping[str, Need] = _table()
"""What each operation needs, by its name."""

DOOR = (
    *("authenticate", "check_password", "find_user"),
    *("open_session", "session", "close_session", "within"),
)
"""What a server finds out by who asks, and bounds what they reach; nobody is given it."""

_BY_TENANT = (Reach.DELIVERIES, Reach.EVENTS, Reach.TENANT)
_BY_DESTINATION = (Reach.DELIVERIES, Reach.DESTINATION, Reach.TENANT)


def refusal(
    grant: Grant, operation: str, *, tenant: str | None = None, destination: str | None = None
) -> str | None:
    """Say why somebody may not do this, or `None` if they may.

    `tenant` and `destination` are those of what it is done to; `None` is everybody's. `narrowed`
    gives those of a question that names none.
    """
    need = NEEDS.get(operation)
    if need is None:
        return f"Nobody may {operation} from outside."
    if not grant.role.includes(need.role):
        return f"This needs the role {need.role}, and yours is {grant.role}."
    if need.reach is Reach.GRANTS:  # each of them is looked at, by `includes`
        return None
    return _foreign_tenant(grant, need, tenant) or _foreign_place(grant, need, destination)


def _foreign_tenant(grant: Grant, need: Need, tenant: str | None) -> str | None:
    if grant.tenant is None or (need.reach in _BY_TENANT and tenant == grant.tenant):
        return None
    if need.reach in _BY_TENANT:
        return "This is another tenant's."
    return f"This is about {need.reach}, and you may act for one tenant only."


def _foreign_place(grant: Grant, need: Need, destination: str | None) -> str | None:
    if not grant.destinations:
        return None
    if need.reach not in _BY_DESTINATION:
        return f"This is about {need.reach}, and you may act at some destinations only."
    if destination is None:
        names = " or ".join(grant.destinations)
        return f"This is about all destinations; name one of yours: {names}."
    return None if destination in grant.destinations else "This is another destination's."


def narrowed(
    grant: Grant, *, tenant: str | None = None, destination: str | None = None
) -> tuple[str | None, str | None]:
    """Return the tenant and destination that a question is about which need not name them.

    >>> narrowed(Grant(role=Role.VIEW, tenant="acme", destinations=("billing",)))
    ('acme', 'billing')
    """
    only = grant.destinations[0] if len(grant.destinations) == 1 else None
    return tenant or grant.tenant, destination or only


def includes(grant: Grant, other: Grant) -> bool:
    """Tell whether who has the one may all that the other allows."""
    return (
        grant.role.includes(other.role)
        and grant.tenant in (None, other.tenant)
        and (not grant.destinations or _is_within(other.destinations, grant.destinations))
    )


def check_given(giver: Grant | None, given: Grant) -> None:
    """Refuse to give somebody more than the giver has; without a giver, it is the store's owner."""
    if giver is None or (giver.role is Role.ADMIN and includes(giver, given)):
        return
    raise DeniedError(
        f"Nobody gives more than they have: you have {giver}, and this is "
        f"{given}. Only admins let others in."
    )


def _is_within(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return bool(some) and set(some).issubset(others)
