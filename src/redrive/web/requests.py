"""Requests: what the parameters and bodies of the API may hold; the OpenAPI document says so."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.access import Role
from redrive.model.audit import AuditQuery
from redrive.model.checks import check_instant
from redrive.model.delivery import Status
from redrive.model.duration import duration
from redrive.model.pattern import check_pattern
from redrive.model.replay import Pace
from redrive.model.secret import LONGEST_SECRET
from redrive.model.settlement import FailureReason
from redrive.model.trend import Window
from redrive.operations import DeliveryState
from redrive.operations.context import MOST_PER_PAGE
from redrive.operations.trends import MOST_TRENDS
from redrive.store import EventQuery, Query

__all__ = [
    "Act",
    "ActOnIds",
    "ActOnIdsWithReason",
    "ActOnTenant",
    "ActOnVersion",
    "ActWithReason",
    "AskConditions",
    "AskTrends",
    "AwaitResult",
    "ChooseVersion",
    "CreateToken",
    "EditPayload",
    "Filter",
    "FindDelivery",
    "ListAudit",
    "ListDeadLetters",
    "ListDeliveries",
    "ListEvents",
    "ListGroups",
    "ListLanes",
    "ListReplays",
    "ListTenants",
    "ListTokens",
    "MoveDeliveries",
    "Nothing",
    "OpenBreaker",
    "OverrideLimits",
    "PlanBackfill",
    "PlanReplay",
    "PreviewEdit",
    "Prioritise",
    "ReadLog",
    "RebuildProjection",
    "ReopenIds",
    "ReplayIds",
    "Reschedule",
    "ResetProjection",
    "RestoreLetters",
    "RunBackfill",
    "Show",
    "StartReplay",
    "SwapProjection",
    "read_instant",
    "read_moment",
]

LARGEST = 2**63 - 1
MOST_AT_ONCE = 1_000
"""How many events, or letters, one request brings."""
_LONGEST_WAIT = timedelta(seconds=25)

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""With its time zone; without one nobody knows when it is."""
Limit = Annotated[int, msgspec.Meta(ge=1, le=MOST_PER_PAGE)]
Number = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
Numbers = Annotated[list[Number], msgspec.Meta(min_length=1, max_length=MOST_PER_PAGE)]
Text = Annotated[str, msgspec.Meta(max_length=10_000)]


class Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What a request says; a name that it does not know is refused."""


class Nothing(Given, frozen=True, kw_only=True):
    """A request without parameters."""


class Filter(Given, frozen=True, kw_only=True):
    """Which deliveries are meant; what is left out does not matter.

    `event_type` may be a glob, and `text` is looked for in the error and the payload. The time is
    when it was settled or, until then, enqueued: from `since` on, before `until`.
    """

    destination: Text | None = None
    event_type: Text | None = None
    event_id: Text | None = None
    key: Text | None = None
    tenant: Text | None = None
    reason: FailureReason | None = None
    error_class: Text | None = None
    group: Text | None = None
    since: Instant | None = None
    until: Instant | None = None
    text: Text | None = None
    with_resolved: bool = False

    def query(self, *, tenant: str | None, destination: str | None) -> Query:
        """Return it for the store, with the tenant and the destination that it is narrowed to."""
        return Query(
            **{
                **{name: getattr(self, name) for name in Filter.__struct_fields__},
                "status": self.chosen_status,
                "event_type": _pattern(self.event_type),
                "since": _instant("since", self.since),
                "until": _instant("until", self.until),
                "tenant": tenant,
                "destination": destination,
            }
        )

    @property
    def chosen_status(self) -> Status | None:
        """The status that deliveries must have, if any."""
        return Status.FAILED


class ListDeliveries(Filter, frozen=True, kw_only=True):
    """Which deliveries, and which page of them; of any status if it is left out.

    `most_read` is how many are looked at: for a `text`, of what the rest leaves, and without one,
    of all in their status; the cursor goes on.
    """

    status: Status | None = None
    cursor: Text | None = None
    limit: Limit = 50
    most_read: Number | None = None

    @property
    def chosen_status(self) -> Status | None:
        """The status that deliveries must have, if any."""
        return self.status


class ListDeadLetters(Filter, frozen=True, kw_only=True):
    """Which dead letters, and which page of them."""

    cursor: Text | None = None
    limit: Limit = 50


class ListGroups(Filter, frozen=True, kw_only=True):
    """Which dead letters to group, and how many groups to show.

    `most_read` is how many of the latest are looked at: for a `text`, of what the rest leaves.
    """

    limit: Limit = 50
    most_read: Number | None = None


class Show(Given, frozen=True, kw_only=True):
    """Whether to show what was carried, sent and answered, with secrets blanked."""

    payload: bool = False


class AskConditions(Given, frozen=True, kw_only=True):
    """The numbers of deliveries; the parameter is repeated."""

    id: Numbers


class AskTrends(Given, frozen=True, kw_only=True):
    """Of which destinations, the parameter repeated, and how far back; of all together if none."""

    destination: Annotated[list[Text], msgspec.Meta(max_length=MOST_TRENDS)] = []
    over: Window = Window.HOUR


class FindDelivery(Given, frozen=True, kw_only=True):
    """In which conditions the delivery may be; any if it is left out."""

    fits: list[DeliveryState] = []


class AwaitResult(Given, frozen=True, kw_only=True):
    """How long to wait for the result, such as `10s`; at most 25 seconds."""

    timeout: Text = "0s"

    @property
    def span(self) -> timedelta:
        """How long that is."""
        return duration(self.timeout, name="timeout", longest=_LONGEST_WAIT)


class ChooseVersion(Given, frozen=True, kw_only=True):
    """Which version of a projection; the one that readers have if it is left out."""

    version: Number | None = None


class ReadLog(Given, frozen=True, kw_only=True):
    """From behind which position of the log, and how many events."""

    after: Text = "0-0"
    limit: Limit = 50
    payload: bool = False


class ListEvents(Given, frozen=True, kw_only=True):
    """Which events, and which page of them. The time is when they were published.

    `most_stretches` is how many stretches of the log are read, each of 2,000 events or fewer.
    """

    event_id: Text | None = None
    event_type: Text | None = None
    key: Text | None = None
    tenant: Text | None = None
    source: Text | None = None
    status: Status | None = None
    unrouted: bool = False
    since: Instant | None = None
    until: Instant | None = None
    cursor: Text | None = None
    limit: Limit = 50
    most_stretches: Number | None = None

    def query(self, *, tenant: str | None) -> EventQuery:
        """Return it for the store, with the tenant that it is narrowed to."""
        return EventQuery(
            event_id=self.event_id,
            event_type=_pattern(self.event_type),
            key=self.key,
            tenant=tenant,
            source=self.source,
            status=self.status,
            unrouted=self.unrouted,
            since=_instant("since", self.since),
            until=_instant("until", self.until),
        )


class ListAudit(Given, frozen=True, kw_only=True):
    """Which acts of the past, and which page of them; `delivery` may be repeated."""

    by: Text | None = None
    action: Text | None = None
    delivery: Annotated[list[Number], msgspec.Meta(max_length=MOST_PER_PAGE)] = []
    name: Text | None = None
    since: Instant | None = None
    until: Instant | None = None
    cursor: Number | None = None
    limit: Limit = 50

    @property
    def query(self) -> AuditQuery:
        """Return it for the store."""
        return AuditQuery(
            by=self.by,
            action=self.action,
            deliveries=tuple(self.delivery) or None,
            name=self.name,
            since=_instant("since", self.since),
            until=_instant("until", self.until),
        )


class ListLanes(Given, frozen=True, kw_only=True):
    """The keys of which destination, and how many to show."""

    destination: Text | None = None
    limit: Limit = 50


class ListReplays(Given, frozen=True, kw_only=True):
    """Which page, and how many."""

    cursor: Number | None = None
    limit: Limit = 50


class ListTokens(Given, frozen=True, kw_only=True):
    """Which page, and how many."""

    cursor: Text | None = None
    limit: Limit = 50


class ListTenants(Given, frozen=True, kw_only=True):
    """Which tenants."""

    destination: Text | None = None
    tenant: Text | None = None
    only_paused: bool = False
    limit: Limit = 50


class PlanBackfill(Given, frozen=True, kw_only=True):
    """Which events of the log a backfill is about. The time is when they were published."""

    since: Instant | None = None
    until: Instant | None = None
    event_type: Text | None = None

    @property
    def given(self) -> dict[str, Any]:
        """Return it as keywords of the operation."""
        return {
            "since": self.since,
            "until": self.until,
            "event_type": _pattern(self.event_type),
        }


class Act(Given, frozen=True, kw_only=True):
    """Why it is done, for the audit log."""

    why: Text = ""


class ActWithReason(Given, frozen=True, kw_only=True):
    """Why it is done, which is needed."""

    why: Text


class ActOnIds(Act, frozen=True, kw_only=True):
    """The numbers of deliveries, and why."""

    ids: Numbers


class ActOnIdsWithReason(ActWithReason, frozen=True, kw_only=True):
    """The numbers of deliveries, and why, which is needed."""

    ids: Numbers


class ReopenIds(ActOnIdsWithReason, frozen=True, kw_only=True):
    """The numbers of resolved dead letters; `out_of_order` says that a projection's may be."""

    out_of_order: bool = False


class ReplayIds(ActOnIds, frozen=True, kw_only=True):
    """The numbers of dead letters, and the generation that delivers them; as it was by default."""

    generation: Text | None = None


class Reschedule(ActOnIds, frozen=True, kw_only=True):
    """The numbers of deliveries, and when they are due: an instant, or `5m` for in five minutes."""

    due: Text


class Prioritise(ActOnIds, frozen=True, kw_only=True):
    """The numbers of deliveries, and their priority: the higher one goes first."""

    priority: Annotated[int, msgspec.Meta(ge=-100, le=100)]


class PreviewEdit(Given, frozen=True, kw_only=True):
    """Another payload for a dead letter."""

    payload: msgspec.Raw


class EditPayload(PreviewEdit, frozen=True, kw_only=True):
    """Another payload for a dead letter, why, and whether to send it again at once."""

    why: Text
    replay: bool = True


class PlanReplay(Given, frozen=True, kw_only=True):
    """The dead letters that a replay would take: by number, or by what they have in common."""

    ids: Numbers | None = None
    filter: Filter | None = None
    rate: Text | None = None


class StartReplay(PlanReplay, frozen=True, kw_only=True):
    """The dead letters to send again, and at what pace."""

    why: Text = ""
    generation: Text | None = None
    canary: Annotated[int, msgspec.Meta(ge=1, le=LARGEST)] = Pace().canary
    largest_wave: Annotated[int, msgspec.Meta(ge=1, le=LARGEST)] = Pace().largest_wave
    failure_limit: Annotated[float, msgspec.Meta(ge=0, le=1)] = Pace().failure_limit
    render_again: bool = False


class OpenBreaker(Act, frozen=True, kw_only=True):
    """Until when the breaker stays open: an instant, or `1h` from now; until reset if left out."""

    until: Text | None = None


class ActOnTenant(Act, frozen=True, kw_only=True):
    """At which destination; at all of them if it is left out."""

    destination: Text | None = None


class CreateToken(ActWithReason, frozen=True, kw_only=True):
    """Whom a token is for, what its bearer may, and how long it lasts, such as `90d`."""

    name: Text
    role: Role
    tenant: Text | None = None
    destinations: list[Text] = []
    expires_in: Text | None = None


class SetSecret(ActWithReason, frozen=True, kw_only=True):
    """A secret, such as a token of somebody else's API, and why it is set."""

    name: Text
    value: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_SECRET)]

    def __repr__(self) -> str:
        return f"SetSecret(name={self.name!r}, value=…)"


class OverrideLimits(ActWithReason, frozen=True, kw_only=True):
    """Which limits a destination has for a while, such as `2h`, and why."""

    lasts: Text
    rate: Text | None = None
    retry_rate: Text | None = None
    replay_rate: Text | None = None
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None


class ActOnVersion(Act, frozen=True, kw_only=True):
    """Which version of a projection; it may be left out where there is one."""

    version: Number | None = None


class SwapProjection(ActOnVersion, frozen=True, kw_only=True):
    """Which version readers get, whether also if events have failed, and how long to wait."""

    parked: bool = False
    timeout: Text = "10s"

    @property
    def span(self) -> timedelta:
        """How long that is."""
        return duration(self.timeout, name="timeout", longest=_LONGEST_WAIT)


class ResetProjection(ActOnVersion, frozen=True, kw_only=True):
    """Behind which position of the log it begins; from the start if it is left out."""

    after: Text | None = None


class RebuildProjection(ResetProjection, frozen=True, kw_only=True):
    """At which rate at most, such as `500/s`, and whether to wait at each event that fails."""

    rate: Text | None = None
    strict: bool = False


class MoveDeliveries(ActWithReason, frozen=True, kw_only=True):
    """To which destination what waits goes, and why."""

    target: Text


class RunBackfill(PlanBackfill, frozen=True, kw_only=True):
    """Which events of the log to give, and to which generation of workers.

    `positions` are those of a plan: then exactly these are given, and nothing is looked for.
    """

    generation: Text | None = None
    why: Text = ""
    positions: Numbers | None = None


class RestoreLetters(Act, frozen=True, kw_only=True):
    """Dead letters, each as an export has them: the schema `Letter`.

    `out_of_order` says that those of a projection may come back, too.
    """

    out_of_order: bool = False
    letters: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=MOST_AT_ONCE)]


def read_instant(name: str, text: str, now: datetime) -> datetime:
    """Read an instant, or a duration from now."""
    moment = read_moment(name, text)
    if isinstance(moment, datetime):
        return moment
    try:
        return check_instant(name, now + duration(moment, name=name))
    except OverflowError:
        raise _no_moment(name, text) from None


def read_moment(name: str, text: str | None) -> datetime | str | None:
    """Read an instant; what is no instant is a duration, and read where the time is known."""
    if text is None:
        return None
    try:
        duration(text, name=name)
    except ConfigurationError:
        try:
            return check_instant(name, msgspec.convert(text, Instant))
        except msgspec.ValidationError:
            raise _no_moment(name, text) from None
    return text


def _no_moment(name: str, text: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name} is {text!r:.300}; write an instant with its time zone, such as "
        "2026-01-31T14:00:00Z, or how long from now, such as 30m, 2h or 1d."
    )


def _instant(name: str, value: datetime | None) -> datetime | None:
    return None if value is None else check_instant(name, value)


def _pattern(value: str | None) -> str | None:
    return None if value is None else check_pattern(value)
