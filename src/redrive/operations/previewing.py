"""Previewing: what a rule makes of events, before any is sent by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from redrive.errors import ConditionError, UsageError, not_found
from redrive.model.event import Event, EventId, NewEvent
from redrive.model.rule import DOCUMENT_KINDS, Stored
from redrive.operations.context import OperationContext, check_limit
from redrive.operations.drafting import Document, Previewed
from redrive.policies.payload import encode_payload
from redrive.store import EventQuery, KeptVersion, Store

__all__ = ["Previewing", "RulePreview", "SampleEvent"]

_MOST_LOOKED_AT = 200
_MOST_STRETCHES = 5
_MOST_PREVIEWS = 50
_SAMPLE = EventId("sample")


class SampleEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that nobody has published, to try a rule with."""

    type: str
    payload: Any = None
    key: str | None = None
    tenant: str | None = None
    source: str = ""
    headers: dict[str, str] = {}


class RulePreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule makes of some events, the latest first; nothing of it was sent.

    Where the last that fit were asked for, `looked_at` counts the events of its types that were
    looked at, `fitting` those that it is about, and `undecided` those for which its condition
    fails, such as for `why`.
    """

    previews: tuple[Previewed, ...] = ()
    looked_at: int = 0
    fitting: int = 0
    undecided: int = 0
    why: str = ""


class Previewing(OperationContext):
    """Try rules with events, and look at what rules and services were before."""

    async def preview_rule(
        self,
        name: str,
        *,
        changes: Document | None = None,
        event_id: str | None = None,
        sample: SampleEvent | None = None,
        limit: int = 10,
    ) -> RulePreview:
        """Return what a rule would make of a past event, of a sample, or of the last that fit.

        With `changes`, it is the rule as it would be with these keys, and it need not exist yet.
        What is blanked where an event is shown is blanked before the rule sees it, too; a sample
        is used as it is. Nothing is sent, and nothing is changed.
        """
        check_limit(limit)
        if event_id is not None and sample is not None:
            raise UsageError("event_id and sample are both given; preview a rule with one of them.")
        store = await self._store()
        service, rule = await self._drafted(store, name, changes)
        preview, decide = (
            self._drafter.previewer(service, rule),
            self._drafter.decider(service, rule),
        )
        if sample is not None:
            events = [self._sampled(sample)]
        elif event_id is not None:
            events = [await self._past(store, event_id)]
        else:
            events = await self._latest(store, rule, _MOST_LOOKED_AT)
        is_named = sample is not None or event_id is not None

        def find() -> RulePreview:
            if is_named:
                return RulePreview(previews=tuple(map(preview, events)))
            fitting, whys = [], []
            for one in events:
                try:
                    if decide(one):
                        fitting.append(one)
                except ConditionError as error:
                    whys.append(str(error))
                    if rule.document.get("on_error", "hold") == "hold":
                        fitting.append(one)
            shown = fitting[: min(limit, _MOST_PREVIEWS)]
            return RulePreview(
                previews=tuple(map(preview, shown)),
                looked_at=len(events),
                fitting=len(fitting),
                undecided=len(whys),
                why=whys[0] if whys else "",
            )

        # A template may take its time, and whoever shares this event loop has none to spare.
        found = await self._executor.submit(find)
        return msgspec.structs.replace(found, previews=tuple(map(self._shown, found.previews)))

    async def past_versions(
        self, kind: str, name: str, *, limit: int = 20
    ) -> Sequence[KeptVersion]:
        """Return the versions of a `"service"`, `"rule"`, `"source"` or `"schedule"`."""
        check_limit(limit)
        if kind not in DOCUMENT_KINDS:
            raise UsageError(f"kind is {kind!r}; it is one of {', '.join(DOCUMENT_KINDS)}.")
        store = await self._store()
        found = await store.past_versions(kind, name, limit=limit)
        if not found:
            known = (await store.gateway()).of(kind)
            raise not_found(name, [one.name for one in known], what=kind)
        told = self._redaction.text
        return [msgspec.structs.replace(one, why=told(one.why)) for one in found]

    async def _drafted(
        self, store: Store, name: str, changes: Document | None
    ) -> tuple[Stored, Stored]:
        """Return a rule as it is or would be, and its service."""
        known = await store.find_rules([name])
        if not known and not changes:
            rules = (await store.gateway()).rules
            raise not_found(name, [one.name for one in rules], what="rule")
        both = {**(known[0].document if known else {}), **(changes or {})}
        document = {key: value for key, value in both.items() if value is not None}
        leads_to = self._drafter.check_rule(name, document)
        services = (await store.gateway([leads_to])).services
        if not services:
            every = (await store.gateway()).services
            what = f"service, to which the rule {name!r} leads:"
            raise not_found(leads_to, [one.name for one in every], what=what)
        self._drafter.check_rule(name, document, {leads_to: services[0].document})
        version = known[0].version if known else 0
        rule = Stored(kind="rule", name=name, service=leads_to, version=version, document=document)
        return services[0], rule

    def _sampled(self, sample: SampleEvent) -> Event[msgspec.Raw]:
        now = self._clock.now()
        NewEvent(
            type=sample.type,
            key=sample.key,
            tenant=sample.tenant,
            source=sample.source,
            headers=sample.headers,
        )  # as a publish would check it
        return Event(
            id=_SAMPLE,
            type=sample.type,
            payload=msgspec.Raw(encode_payload(sample.payload)),
            published_at=now,
            occurred_at=now,
            key=sample.key,
            tenant=sample.tenant,
            source=sample.source,
            headers=sample.headers,
        )

    async def _past(self, store: Store, event_id: str) -> Event[msgspec.Raw]:
        EventQuery(event_id=event_id)  # as a search would check it
        event = await store.find_event(EventId(event_id))
        if event is None:
            raise not_found(event_id, (), what="event")
        return self._redaction.event(event)

    async def _latest(self, store: Store, rule: Stored, limit: int) -> list[Event[msgspec.Raw]]:
        """Return the latest events of the types that a rule is about, whoever got them."""
        given = rule.document["event"]
        ids = {}
        for pattern in [given] if isinstance(given, str) else given:
            cursor: str | None = None
            for _ in range(_MOST_STRETCHES):
                page = await store.find_events(
                    EventQuery(event_type=pattern), cursor=cursor, limit=limit
                )
                ids.update({one.id: one.published_at for one in page.events})
                cursor = page.next_cursor
                if cursor is None or len(ids) >= limit:
                    break
        latest = sorted(ids, key=lambda one: (ids[one], one), reverse=True)[:limit]
        found = [await store.find_event(one) for one in latest]
        return [self._redaction.event(one) for one in found if one is not None]

    def _shown(self, one: Previewed) -> Previewed:
        """Return a preview with nothing of an address that may be a secret."""
        return msgspec.structs.replace(one, url=self._redaction.url(one.url) if one.url else "")
