"""Published: what a request to publish may hold; the OpenAPI document says so."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, cast

import msgspec

from redrive.model.event import EventAttributes, NewEvent, Severity, new_event
from redrive.web.requests import LARGEST, MOST_AT_ONCE, Given, Instant, Text, read_moment

__all__ = ["PublishBatch", "PublishEvent"]

_NULL = msgspec.Raw(b"null")


class PublishEvent(Given, frozen=True, kw_only=True):
    """An event to publish.

    `due` and `deadline` are instants, or durations from now such as `5m`. Everything but the type
    may be left out.
    """

    type: Text
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: _NULL)
    key: Text | None = None
    tenant: Text | None = None
    source: Text | None = None
    idempotency_key: Text | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    severity: Severity = Severity.INFO
    priority: Annotated[int, msgspec.Meta(ge=-100, le=100)] = 0
    generation: Text | None = None
    occurred_at: Instant | None = None
    deadline: Text | None = None
    due: Text | None = None
    expected_version: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None = None
    to: list[Text] | None = None
    unique_for: Text | None = None
    unique_by: Text | None = None

    def attributes(self, *, source: str, tenant: str | None, key: str | None) -> EventAttributes:
        """Return what `publish` takes beside type and payload."""
        given = self._given(source=source, tenant=tenant, key=key)
        del given["type"], given["payload"]
        return cast("EventAttributes", given)

    def event(self, *, source: str, tenant: str | None, key: str | None, now: datetime) -> NewEvent:
        """Return what `publish_many` takes; durations count from `now`."""
        if not self._says_more:  # in bulk, each argument counts
            return NewEvent(
                type=self.type,
                payload=self.payload,
                key=self.key,
                tenant=tenant,
                source=source,
                idempotency_key=key,
            )
        attributes = self.attributes(source=source, tenant=tenant, key=key)
        return new_event(self.type, self.payload, attributes, now=now)

    @property
    def _says_more(self) -> bool:
        """Whether it has any of the attributes that few have."""
        return (
            bool(self.headers)
            or self.severity is not Severity.INFO
            or self.priority != 0
            or self.generation is not None
            or self.occurred_at is not None
            or self.deadline is not None
            or self.due is not None
            or self.expected_version is not None
            or self.to is not None
            or self.unique_for is not None
            or self.unique_by is not None
        )

    def _given(self, *, source: str, tenant: str | None, key: str | None) -> dict[str, Any]:
        given = msgspec.structs.asdict(self)
        given["source"], given["tenant"], given["idempotency_key"] = source, tenant, key
        if self.due is not None:
            given["due"] = read_moment("due", self.due)
        if self.deadline is not None:
            given["deadline"] = read_moment("deadline", self.deadline)
        return given


class PublishBatch(Given, frozen=True, kw_only=True):
    """Events to publish, all of them or none."""

    events: Annotated[list[PublishEvent], msgspec.Meta(min_length=1, max_length=MOST_AT_ONCE)]
