"""Looking: the system in numbers, deliveries, dead letters and their groups, the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from redrive.errors import ConfigurationError, NotFoundError, SecretError, UsageError
from redrive.journal.folder import files_of
from redrive.model.audit import Actor, AuditEntry, AuditQuery
from redrive.model.delivery import Delivery, DeliveryId, Status
from redrive.model.event import Event
from redrive.model.gate import GateFigures
from redrive.model.position import LOG_START, LogPosition
from redrive.model.secret import Secret
from redrive.operations.context import MOST_PER_PAGE, OperationContext, check_limit, known_ids
from redrive.operations.explain.diagnosis import diagnose
from redrive.operations.explain.journal import journal_findings
from redrive.operations.explain.schedules import ScheduleFigures, schedule_figures
from redrive.operations.explain.waiting import Waiting, why_waiting
from redrive.policies.attention import live_workers
from redrive.policies.fingerprint import GROUPING
from redrive.store import (
    Figures,
    Finding,
    Group,
    LaneFigures,
    Level,
    LoggedEvent,
    Miscount,
    Page,
    Query,
    Store,
)

__all__ = ["Looking", "Story"]


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery with everything known of it: its event, its tries, its earlier cycles.

    `group` is what a dead letter shares with others that failed in the same way; `waiting` is
    everything that a pending delivery waits for, what comes first first.
    """

    delivery: Delivery
    event: Event[msgspec.Raw]
    group: Group | None = None
    waiting: tuple[Waiting, ...] = ()

    @property
    def mark(self) -> str:
        """Changes whenever what it carries or where it stands does; says nothing of a payload."""
        delivery = self.delivery
        edited = delivery.edits[-1].at.timestamp() if delivery.edits else 0
        return f"{delivery.id}.{delivery.status}.{len(delivery.cycles)}.{edited:.6f}"

    @property
    def carried(self) -> msgspec.Raw:
        """The payload a try carries, as JSON: the event's, unless a person has edited it."""
        return self.event.payload if self.delivery.payload is None else self.delivery.payload

    @property
    def payload(self) -> object:
        """The payload a try carries, decoded; as text, if no reader could."""
        try:
            return msgspec.json.decode(self.carried)
        except (ValueError, RecursionError):
            return bytes(self.carried).decode(errors="replace")


_GIVE_KEY = "Give this process the key, in REDRIVE_KEYS or the file of keys."


class Looking(OperationContext):
    """Look at the system, without changing anything; what is shown has its secrets blanked."""

    async def status(self) -> Figures:
        """Return the whole system in numbers."""
        return await (await self._store()).figures()

    async def schema_version(self) -> int:
        """Return the version of the store's schema, brought up to date by opening it.

        A store that cannot be written, such as a standby, is refused: nobody could work with it.
        """
        store = await self._store()
        await store.retire("nobody")  # a change that changes nothing
        return store.schema_version

    async def examine(self) -> Sequence[Finding]:
        """Look for what is wrong with the store and the system, and say what to do about it."""
        store = await self._store()
        figures, gates = await store.figures(), await self.gates()
        tenants = await store.tenants(only_paused=True)
        schedules, unread = await self._readable_schedules()
        return (
            *await store.check(),
            *diagnose(
                figures,
                gates,
                paused=[self._redaction.tenant(one) for one in tenants],
                overdue=len(await store.overdue()),
                stuck=await store.stuck(),
                miscounts=await store.miscounts(),
                schedules=schedules,
                projections=await store.projections(),
                keeps=self._retention.keeps,
                unopened=self._unopened(await store.secrets()),
            ),
            *await _sealed(store, self._ids_here() or ()),
            *unread,
            *await self._examine_journal(),
        )

    async def _examine_journal(self) -> Sequence[Finding]:
        if self._journal is None:
            return ()
        place = self._journal()
        files = await self._executor.submit(lambda: files_of(place.folder))
        return tuple(
            journal_findings(files, host=place.host, store=place.store, now=self._clock.now())
        )

    def _unopened(self, secrets: Sequence[Secret]) -> Mapping[str, Sequence[str]]:
        """Return secrets by their keys that are missing; who is given no keys needs none."""
        here = self._ids_here()
        is_needed = here is None or bool(here)
        missing = sorted({one.key_id for one in secrets if one.key_id not in (here or ())})
        return {
            key_id: [one.name for one in secrets if one.key_id == key_id]
            for key_id in (missing if is_needed else ())
        }

    def _ids_here(self) -> Sequence[str] | None:
        """Return the ids of the keys that are here; `None` if there should be some."""
        try:
            return self._keys().ids
        except ConfigurationError:
            return None

    async def _readable_schedules(self) -> tuple[Sequence[ScheduleFigures], Sequence[Finding]]:
        """Return the schedules, or why they cannot be read: that must not hide all the rest."""
        try:
            return await self.schedules(), ()
        except SecretError as error:
            what = f"Schedules were not looked at. {error}"
            return (), [Finding(level=Level.ERROR, what=what, advice=_GIVE_KEY)]

    async def schedules(self) -> Sequence[ScheduleFigures]:
        """Return every schedule that is stored or that a worker has ever declared, by name."""
        store = await self._store()
        alive, timetable = live_workers(await store.workload()), await store.timetable()
        return [
            schedule_figures(one.standing, alive=alive, rule=self._redaction, now=timetable.now)
            for one in timetable.schedules
        ]

    async def recount(self) -> Sequence[Miscount]:
        """Count all deliveries and events, and correct the counts that are kept of them.

        Returns those that were wrong, of which there are none unless something is. Nobody waits
        meanwhile.
        """
        return await (await self._store()).recount()

    async def stuck(self) -> Sequence[DeliveryId]:
        """Return pending deliveries that wait behind nobody, which nothing would ever free.

        There are none, unless something is wrong; `examine` says so as well.
        """
        return await (await self._store()).stuck()

    async def deliveries(
        self,
        query: Query | None = None,
        *,
        cursor: str | None = None,
        limit: int = 50,
        most_read: int | None = None,
    ) -> Page:
        """Return the deliveries a query finds, latest change first; dead letters by default.

        With `most_read`, only so many are looked at: for a text, of those that the rest of the
        query leaves, and without one, of all in its status, or of the dead letters of its
        destination; the cursor goes on behind them.
        """
        check_limit(limit)
        page = await (await self._store()).find(
            query or Query(), cursor=cursor, limit=limit, most_read=most_read
        )
        shown = tuple(self._redaction.delivery(one) for one in page.deliveries)
        return msgspec.structs.replace(page, deliveries=shown)

    async def dead_letters(
        self, query: Query | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> Page:
        """Return the dead letters a query finds, the latest first."""
        chosen = msgspec.structs.replace(query or Query(), status=Status.FAILED)
        return await self.deliveries(chosen, cursor=cursor, limit=limit)

    async def groups(
        self, query: Query | None = None, *, limit: int = 50, most_read: int | None = None
    ) -> Sequence[Group]:
        """Return the dead letters a query finds by what they failed of, the largest group first.

        With `most_read`, only so many of the latest are looked at, as by `deliveries`.
        `Query(group=...)` with the id of one finds its letters; `select` takes them all.
        """
        check_limit(limit)
        chosen = msgspec.structs.replace(query or Query(), status=Status.FAILED)
        found = await (await self._store()).groups(chosen, limit=limit, most_read=most_read)
        return [self._shown_group(one) for one in found]

    async def outdated_groups(self) -> int:
        """Count the dead letters that workers have not yet put in their groups of today."""
        return await (await self._store()).outdated(before=GROUPING)

    async def select(
        self, query: Query | None = None, *, resolved: bool = False
    ) -> list[DeliveryId]:
        """Return the ids of all dead letters a query finds now, to act on exactly those.

        What fails later is not among them, and what changes meanwhile is left alone by the act.
        With `resolved` they are those that were resolved, to be reopened.
        """
        selected: list[DeliveryId] = []
        chosen = msgspec.structs.replace(query or Query(), status=Status.FAILED)
        if resolved:
            chosen = msgspec.structs.replace(chosen, with_resolved=True)
        cursor = None
        while True:
            page = await (await self._store()).find(chosen, cursor=cursor, limit=MOST_PER_PAGE)
            selected += [
                one.id for one in page.deliveries if not resolved or one.resolution is not None
            ]
            cursor = page.next_cursor
            if cursor is None:
                return selected

    async def show(self, delivery_id: int) -> Story:
        """Return one delivery with its whole story, its secrets blanked; see `Redaction`."""
        told = await self._tell(delivery_id)
        rule = self._redaction
        return msgspec.structs.replace(
            told,
            delivery=rule.delivery(told.delivery, rule.secrets_of(told.event, told.delivery)),
            event=rule.event(told.event),
            group=None if told.group is None else self._shown_group(told.group),
            waiting=tuple(
                msgspec.structs.replace(one, what=rule.text(one.what)) for one in told.waiting
            ),
        )

    async def reveal(self, delivery_id: int, *, by: str, why: str = "") -> Story:
        """Return what `show` does with nothing blanked, and write down who has seen it."""
        actor = Actor(by, why)
        told = await self._tell(delivery_id)
        await (await self._to_change()).note("reveal", [told.delivery.id], actor=actor)
        self._done("reveal", [told.delivery.id], actor)
        return told

    async def _tell(self, delivery_id: int) -> Story:
        [known] = known_ids([delivery_id]) or [DeliveryId(0)]
        store = await self._store()
        delivery = await store.find_delivery(known)
        if delivery is None or not self._is_within(delivery):
            raise NotFoundError(
                f"There is no delivery {delivery_id}; it may have been deleted. "
                "`redrive dlq list` shows the dead letters there are."
            )
        event = await store.find_event(delivery.event_id)
        if event is None:
            raise NotFoundError(
                f"The event {delivery.event_id} of delivery {delivery_id} is no longer in the log."
            )
        return Story(
            delivery=delivery,
            event=event,
            group=await self._group_of(delivery),
            waiting=await self._waiting(delivery),
        )

    async def events(
        self, *, after: LogPosition | str = LOG_START, limit: int = 50
    ) -> Sequence[LoggedEvent]:
        """Return published events in the order of the log, from behind a position.

        A reader that always goes on from the last position it has seen sees every event once. A
        position may be kept as text, and stays valid when its event has gone.
        """
        if type(limit) is not int or limit < 1:
            raise UsageError(f"limit is {limit!r}; it is a whole number from 1.")
        place = after if isinstance(after, LogPosition) else LogPosition.parse(after)
        return (await (await self._store()).read_events(after=place, limit=limit)).events

    async def audit(
        self, query: AuditQuery | None = None, *, before: int | None = None, limit: int = 50
    ) -> Sequence[AuditEntry]:
        """Return the past operations a query finds, the latest first."""
        found = await (await self._store()).audit(query or AuditQuery(), before=before, limit=limit)
        return [self._redaction.audit(one) for one in found]

    async def lanes(
        self, *, destination: str | None = None, limit: int = 50
    ) -> Sequence[LaneFigures]:
        """Return the keys that wait behind a dead letter, of one destination or all.

        Those that have waited the longest come first.
        """
        return await (await self._store()).lanes(destination=destination, limit=limit)

    async def gates(self) -> Sequence[GateFigures]:
        """Return the gate of each destination: breaker, buckets, pause, and what holds it now."""
        return [self._redaction.gate(one) for one in await (await self._store()).gates()]

    async def _waiting(self, delivery: Delivery) -> tuple[Waiting, ...]:
        if delivery.status is not Status.PENDING:
            return ()
        store = await self._store()
        gate = next(iter(await store.gates([delivery.destination])), None)
        if gate is None:  # it went meanwhile, with a destination that was removed
            return ()
        tenants = await store.tenants(
            destination=delivery.destination, tenant=delivery.tenant or "", limit=1
        )
        workers = (await store.workload()).workers
        return why_waiting(delivery, gate, workers, next(iter(tenants), None))

    def _shown_group(self, group: Group) -> Group:
        return msgspec.structs.replace(group, title=self._redaction.text(group.title))

    async def _group_of(self, delivery: Delivery) -> Group | None:
        if not delivery.is_dead_letter or delivery.fault is None or not delivery.fault.group:
            return None
        named = delivery.fault.group
        query = Query(group=named, tenant=self._scope.tenant)
        found = await (await self._store()).groups(query, limit=MOST_PER_PAGE)
        return next((one for one in found if one.id == named), None)


async def _sealed(store: Store, here: Sequence[str]) -> Sequence[Finding]:
    """Tell of payloads that are encrypted, and of every key they need that is not here."""
    kept = await store.encryption()
    if kept is None:
        return ()
    rows = "1 row" if kept.left == 1 else f"{kept.left:,} rows"
    some = f"up to {rows}" if kept.left else "some rows"
    findings = [
        Finding(
            level=Level.ERROR,
            what=f"The key {key_id!r} is not among those here, and {some} may "
            "still be encrypted by it: they can be neither read nor rewritten here.",
            advice="Add the key to REDRIVE_KEYS or the file of keys, and keep it until redrive "
            "encryption show names it no more.",
        )
        for key_id in kept.former
        if key_id not in here
    ]
    try:
        await store.check_keys()
    except SecretError as error:
        return [Finding(level=Level.ERROR, what=str(error), advice=_GIVE_KEY), *findings]
    if kept.is_under_way:
        how = f"encrypted by the key {kept.key_id!r}" if kept.is_on else "decrypted"
        what = f"Payloads are being {how}: {kept.changed:,} rows have been rewritten so far."
        advice = "Workers go on with it; by hand: redrive encryption finish"
        return [*findings, Finding(level=Level.WARNING, what=what, advice=advice)]
    if not kept.is_on:
        return ()
    what = f"Payloads are encrypted by the key {kept.key_id!r}, which is here."
    return [Finding(level=Level.OK, what=what)]
