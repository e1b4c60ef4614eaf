"""Replays of many dead letters, the auto-replays that start some by themselves, and edits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

import msgspec

from redrive.model.access import WHOLE_STORE, Scope
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId, Status
from redrive.model.edit import Change, Edit
from redrive.model.gate import Closed, Gate
from redrive.model.projection import destination_of
from redrive.model.replay import AutoReplay, ReplayState
from redrive.policies import replay as policy
from redrive.store import (
    AUTO_REPLAY,
    MOST_NEWCOMERS,
    Advance,
    Due,
    NewReplay,
    Query,
    Replay,
    ReplayStep,
    SeenAutoReplay,
    Selection,
    Survey,
)
from redrive.stores.codec import destination_from, json_text
from redrive.stores.sql.audit import record
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.inspection import conditions_of, events_for, within
from redrive.stores.sql.session import Either, Session, instant
from redrive.stores.sql.store import SqlStore, reading, surveying, writing
from redrive.stores.sql.surveying import (
    BLOCKING,
    HEAD,
    SELECTED,
    STOPPED_BLOCKS,
    selected,
    sendable,
    survey,
)

__all__ = ["EDIT", "ReplaysRole", "find_replays"]

_NO_LAST = 2**63 - 1
_UNCOUNTED = "(SELECT count(*) FROM redrive.replay_outcomes o WHERE o.replay = r.id AND {})"
# Whoever settles in PostgreSQL only adds an outcome, which the replay's next step counts.
_OUTCOMES = Either(
    sqlite="r.delivered, r.failed",
    postgres=f"""r.delivered + {_UNCOUNTED.format("o.is_delivered")},
       r.failed + {_UNCOUNTED.format("NOT o.is_delivered")}""",
)
_READ = """
SELECT r.document, r.state, r.id, r.selected, r.sent, r.skipped, {} FROM redrive.replays r
"""
_COUNTS = ("id", "selected", "sent", "skipped", "delivered", "failed")
_LOCK = "SELECT id FROM redrive.replays WHERE id = $1 FOR NO KEY UPDATE"
_BEGIN = "INSERT INTO redrive.replays (state, selected, document) VALUES ($1, 0, $2) RETURNING id"
_SELECT_ITEMS = """
INSERT INTO redrive.replay_items (replay, delivery, token)
SELECT {number}::bigint, d.id, d.token {found}
"""
_COUNT_ITEMS = """
SELECT t.name, count(*) FROM redrive.replay_items i
LEFT JOIN redrive.deliveries d ON d.id = i.delivery
LEFT JOIN redrive.destinations t ON t.id = d.destination
WHERE i.replay = $1 GROUP BY t.name ORDER BY t.name COLLATE "C"
"""
_KEEP = """
UPDATE redrive.replays SET state = $2, selected = $3, sent = $4, skipped = $5, document = $6
WHERE id = $1
"""
# OFFSET 0 keeps the plan to a walk along the items that ends with the last letter wanted.
_NEXT = Either(
    sqlite="""
SELECT i.delivery, i.token, d.destination
FROM redrive_replay_items i CROSS JOIN redrive_deliveries d ON d.id = i.delivery
WHERE i.replay = ?1 AND d.status = 3 AND d.resolution IS NULL AND d.token = i.token
ORDER BY i.delivery LIMIT ?2
""",
    postgres="""
SELECT i.delivery, i.token, d.destination FROM (
    SELECT delivery, token FROM redrive.replay_items WHERE replay = $1 ORDER BY delivery
) AS i CROSS JOIN LATERAL (
    SELECT destination FROM redrive.deliveries
    WHERE id = i.delivery AND status = 3 AND resolution IS NULL AND token = i.token
    OFFSET 0
) AS d
ORDER BY i.delivery LIMIT $2
""",
)
_REST_OF = """
SELECT i.delivery, i.token
FROM redrive.replay_items i JOIN redrive.deliveries d ON d.id = i.delivery
WHERE i.replay = $1 AND d.status = 3 AND d.resolution IS NULL AND d.token = i.token
  AND d.destination = ANY ($2::integer[]) AND i.delivery > $3
"""
_LOCK_LETTERS = """
SELECT d.id FROM json_to_recordset($1::json) AS given (id bigint, token bigint)
JOIN redrive.deliveries d ON d.id = given.id
WHERE d.status = 3 AND d.resolution IS NULL AND d.token = given.token
ORDER BY d.id FOR NO KEY UPDATE OF d
"""
_TAKE_OFF = """
DELETE FROM redrive.replay_items
WHERE (replay = $1 AND delivery <= $2) OR (replay = $1 AND delivery = ANY ($3::bigint[]))
RETURNING delivery
"""
_HELD = f"""
SELECT count(*) FROM redrive.deliveries d
WHERE d.replay = $1 AND d.status = 0 AND (
    d.destination = ANY ($2::integer[]) OR (d.is_behind AND (SELECT head.status = 3 {HEAD}))
)
"""
# In the order of an index and with a limit: without, the planner would read all letters there are.
_NEWCOMERS = f"""
SELECT count(*) FROM (
    SELECT d.* FROM redrive.deliveries d WHERE {{latest}} AND d.settled_at > {{since}}
    ORDER BY d.settled_at DESC, d.id DESC LIMIT {MOST_NEWCOMERS}
) AS d {{events}}
WHERE {{where}} AND coalesce(d.replay, 0) <> {{sender}}
"""
_AUTO_REPLAYS = """
SELECT t.id, t.name, t.document, s.since
FROM redrive.destinations t LEFT JOIN redrive.schedules s ON s.destination = t.id
WHERE strpos(t.document, '"auto_replay":{') > 0 AND t.removed_at IS NULL
  AND t.document::json ->> 'auto_replay' IS NOT NULL
ORDER BY t.name COLLATE "C"
"""
_FIRST_SEEN = "INSERT INTO redrive.schedules VALUES ($1, $2) ON CONFLICT DO NOTHING"
# Of those who find the same due time, one still finds the instant it counted from.
_TAKE = """
UPDATE redrive.schedules SET since = $3 WHERE destination = $1 AND since = $2
RETURNING destination
"""
_NEGLECTED = """
SELECT id FROM redrive.deliveries
WHERE status = 3 AND resolution IS NULL AND destination = $1 AND enqueued_at >= $2
  AND auto_replays < $3
ORDER BY auto_replays, id LIMIT $4
"""
_CARRIED = """
SELECT convert_to(e.document, 'UTF8'), convert_to(d.payload, 'UTF8'), d.edits
FROM redrive.deliveries d JOIN redrive.events e ON e.position = d.position
WHERE d.id = $1 AND d.status = 3 AND d.resolution IS NULL{within}
FOR NO KEY UPDATE OF d
"""
_OF_PROJECTION = """
SELECT c.projection, c.version, d.position FROM redrive.deliveries d
JOIN redrive.destinations t ON t.id = d.destination
JOIN redrive.checkpoints c ON c.projection = t.name
WHERE d.id = $1 AND c.log_partition = 0
"""
_KEEP_EDIT = """
INSERT INTO redrive.projection_edits (projection, position, payload, edits)
VALUES ($1, $2, $3, $4)
ON CONFLICT (projection, position) DO UPDATE
SET payload = excluded.payload, edits = excluded.edits
"""
EDIT = "UPDATE redrive.deliveries SET payload = $2, edits = $3::jsonb WHERE id = $1"

_replays = msgspec.json.Decoder(Replay)
_Watched = tuple[int, str, AutoReplay, datetime | None]
"""The number and the name of a destination, its auto-replay, and since when that counts."""


class ReplaysRole(SqlStore):
    """`Replays` and `Editing`; each step of a replay is a transaction of its own."""

    @surveying
    async def survey(self, session: Session, selection: Selection) -> Survey:
        return await survey(session, selection)

    @writing(notifies=True)
    async def start_replay(
        self, session: Session, new: NewReplay, *, actor: Actor
    ) -> Replay | None:
        return await _start(session, new, actor=actor)

    async def advance_replays(self) -> Advance:
        idle_at = await self._idle("has_replays")
        if idle_at is not None:
            return Advance(now=idle_at)
        now, running = await self._read(_running, is_prompt=True)
        taken = [await self._advance(number) for number in running]
        advance = Advance(
            now=now,
            steps=tuple(step for one in taken for step in one.steps),
            running=sum(one.running for one in taken),
            next_at=min((one.next_at for one in taken if one.next_at), default=None),
        )
        if any(step.sent for step in advance.steps):
            self._notify()
        return advance

    async def _advance(self, replay_id: int) -> Advance:
        return await self._write(
            lambda session, _: _take_step(session, replay_id, history=self._history),
            is_prompt=True,
        )

    @reading
    async def replays(
        self, session: Session, *, before: int | None = None, limit: int = 50
    ) -> Sequence[Replay]:
        where = "WHERE $1::bigint IS NULL OR r.id < $1 ORDER BY r.id DESC LIMIT $2"
        return await find_replays(session, where, before, limit)

    @reading
    async def find_replay(self, session: Session, replay_id: int) -> Replay | None:
        for replay in await find_replays(session, "WHERE r.id = $1", replay_id):
            return msgspec.structs.replace(replay, newcomers=await _newcomers(session, replay))
        return None

    @writing(notifies=True)
    async def steer_replay(
        self, session: Session, replay_id: int, state: ReplayState, *, actor: Actor
    ) -> bool:
        found = await _locked(session, replay_id)
        replay = None if found is None else policy.steered(found, state)
        if replay is None:
            return False
        await _keep(session, _in_state(session, replay, state, actor.why, by=actor.by))
        action = policy.ACTIONS[state]
        await record(session, action, (), actor, count=1, detail=str(replay_id))
        return True

    async def start_auto_replays(self, *, due: Due) -> Sequence[Replay]:
        if await self._idle("has_auto_replays") is not None:
            return ()
        if not await self._read(lambda one, _: _has_due(one, due), is_prompt=True):
            return ()
        return await self._write(lambda one, _: _start_due(one, due), is_prompt=True)

    @reading
    async def auto_replays(self, session: Session) -> Sequence[SeenAutoReplay]:
        return [
            SeenAutoReplay(destination=name, auto_replay=auto_replay, since=since)
            for _, name, auto_replay, since in await _auto_replays(session)
            if since is not None
        ]

    @writing(notifies=True)
    async def edit(
        self,
        session: Session,
        delivery_id: DeliveryId,
        *,
        before: msgspec.Raw,
        payload: msgspec.Raw,
        changes: tuple[Change, ...],
        more: int,
        actor: Actor,
        is_replayed: bool,
        scope: Scope = WHOLE_STORE,
    ) -> bool:
        await session.look_at_encryption()
        theirs, values = within(scope, 2)
        carrying = _CARRIED.format(within=theirs)
        for document, edited, earlier in await session.fetch(carrying, delivery_id, *values):
            if session.codec.carried(document, edited) != bytes(before):
                return False
            made = Edit(by=actor.by, at=session.now, why=actor.why, changes=changes, more=more)
            edits = session.json((*session.codec.edits(earlier), made)[-self._history :])
            event_id = session.codec.event(document, is_strict=False).id
            kept = session.codec.payload_text(payload, event_id)
            await session.fetch(EDIT, delivery_id, kept, edits)
            await _keep_for_rebuilds(session, delivery_id, kept, edits)
            await record(session, "edit", [delivery_id], actor)
            if is_replayed:
                ids = [delivery_id]
                await session.replay(ids, actor=actor, generation=None, history=self._history)
            return True
        return False


async def _keep_for_rebuilds(
    session: Session, delivery_id: DeliveryId, payload: str, edits: str
) -> None:
    """Remember an edit of an event that a projection could not apply, beyond its delivery."""
    for destination, version, position in await session.fetch(_OF_PROJECTION, delivery_id):
        name = destination.removesuffix(destination_of("", version))
        await session.fetch(_KEEP_EDIT, name, position, payload, edits)


async def _start(session: Session, new: NewReplay, *, actor: Actor) -> Replay | None:
    """Begin a replay of what is selected now; `None` if that is nothing."""
    condition, values = await selected(session, new.selection)
    found = SELECTED.format(where=condition)
    if await session.value(f"SELECT 1 {found} LIMIT 1", *values) is None:
        return None
    replay = Replay(
        id=0,
        state=ReplayState.RUNNING,
        by=actor.by,
        why=actor.why,
        started_at=session.now,
        changed_at=session.now,
        selected=0,
        pace=new.pace,
        generation=new.generation,
        query=new.selection.query,
    )
    number = await session.value(_BEGIN, str(replay.state), json_text(replay))
    statement = _SELECT_ITEMS.format(number=f"${len(values) + 1}", found=found)
    await session.fetch(statement, *values, number)
    counted = await session.fetch(_COUNT_ITEMS, number)
    if not counted:
        await session.fetch("DELETE FROM redrive.replays WHERE id = $1", number)
        return None
    count = sum(letters for _, letters in counted)
    names = tuple(name for name, _ in counted if name is not None)
    replay = msgspec.structs.replace(replay, id=number, selected=count, destinations=names)
    await _keep(session, replay)
    await record(session, "start_replay", (), actor, count=count, detail=str(number))
    return replay


async def _running(session: Session, now: datetime) -> tuple[datetime, list[int]]:
    """Return the present, and which replays are to be driven."""
    return now, [one.id for one in await _not_over(session) if one.state is ReplayState.RUNNING]


async def _not_over(session: Session) -> list[Replay]:
    return await find_replays(session, "WHERE r.state IN ('running', 'paused') ORDER BY r.id")


async def _take_step(session: Session, replay_id: int, *, history: int) -> Advance:
    """Take the next step of one replay, decided and carried out as one.

    There is none if nothing has changed, or it is not running any more.
    """
    replay = await _locked(session, replay_id)
    if replay is None or replay.state is not ReplayState.RUNNING:
        return Advance(now=session.now)
    sent: Sequence[DeliveryId] = ()
    match policy.decide(replay, held=await _held(session, replay), now=session.now):
        case policy.Send(count=count, wave=wave):
            sent, skipped, behind = await _send(session, replay, count, history=history)
            after = policy.moved(
                replay, wave, sent=len(sent), skipped=skipped, behind=behind, now=session.now
            )
        case policy.Wait(until=until):
            after = msgspec.structs.replace(replay, next_at=until)
            if after != replay:
                await _keep(session, after)
            return Advance(now=session.now, running=1, next_at=until)
        case policy.Stop(why=why):
            after = _in_state(session, replay, ReplayState.STOPPED, why)
        case policy.Done(why=why):
            after = _in_state(session, replay, ReplayState.DONE, why)
        case never:
            assert_never(never)
    await _keep(session, after)
    return Advance(
        now=session.now,
        steps=(ReplayStep(replay=after, sent=tuple(sent)),),
        running=int(after.state is ReplayState.RUNNING),
        next_at=after.next_at,
    )


async def _send(
    session: Session, replay: Replay, count: int, *, history: int
) -> tuple[Sequence[DeliveryId], int, int]:
    """Send the next letters; return them, how many were not, and how many of those wait behind."""
    found = await session.fetch(_NEXT, replay.id, count)
    letters = [(number, token) for number, token, _ in found]
    last = letters[-1][0] if len(letters) == count else _NO_LAST
    touched = {destination for _, _, destination in found}
    whole = [number for (number,) in await session.fetch(BLOCKING) if number in touched]
    if whole and last != _NO_LAST:
        letters += [tuple(row) for row in await session.fetch(_REST_OF, replay.id, whole, last)]
    # Locked: what is a letter now stays one until it is sent.
    rows = session.records([{"id": number, "token": token} for number, token in letters])
    chosen = [DeliveryId(number) for (number,) in await session.fetch(_LOCK_LETTERS, rows)]
    numbers = [number for number, _ in letters]
    passed = len(await session.fetch(_TAKE_OFF, replay.id, last, numbers))
    sent = await session.replay(
        await sendable(session, chosen),
        actor=Actor(replay.by, replay.why),
        generation=replay.generation,
        history=history,
        of_replay=replay.id,
        is_automatic=replay.is_automatic,
    )
    return sent, passed - len(sent), len(chosen) - len(sent)


async def _held(session: Session, replay: Replay) -> int:
    """Count the letters under way that wait behind a dead letter."""
    if not replay.under_way:
        return 0
    blocked = [number for (number,) in await session.fetch(STOPPED_BLOCKS, [])]
    return int(await session.value(_HELD, replay.id, blocked))


async def _newcomers(session: Session, replay: Replay) -> int:
    """Count along the index that knows most of it; of a flood, as many as a page looks at."""
    if replay.query is None:
        return 0
    query = msgspec.structs.replace(replay.query, status=Status.FAILED, with_resolved=False)
    near = Query(destination=query.destination, group=query.group)
    if near == Query():
        near = Query(with_resolved=True)
    latest, values = await conditions_of(session, near, "d.settled_at")
    where, values = await conditions_of(session, query, "d.settled_at", values)
    statement = _NEWCOMERS.format(
        latest=" AND ".join(latest),
        since=f"${len(values) + 1}",
        events=events_for(query),
        where=" AND ".join(where),
        sender=f"${len(values) + 2}",
    )
    return int(await session.value(statement, *values, replay.started_at, replay.id))


async def _locked(session: Session, replay_id: int) -> Replay | None:
    """Return a replay that nobody else changes until the transaction ends.

    It is read after it was locked: whoever held it before may have counted its outcomes.
    """
    if await session.value(_LOCK, replay_id) is None:
        return None
    await session.count_outcomes(replay_id)
    [replay] = await find_replays(session, "WHERE r.id = $1", replay_id)
    return replay


async def find_replays(session: Session, where: str, *values: object) -> list[Replay]:
    """Return replays; what is counted beside their documents is right, not what is in them."""
    return [
        msgspec.structs.replace(
            _replays.decode(document),
            state=ReplayState(state),
            **dict(zip(_COUNTS, counts, strict=True)),
        )
        for document, state, *counts in await session.fetch(
            _OUTCOMES.within(_READ + where), *values
        )
    ]


def _in_state(
    session: Session, replay: Replay, state: ReplayState, why: str, *, by: str = ""
) -> Replay:
    return msgspec.structs.replace(
        replay, state=state, reason=why, changed_at=session.now, changed_by=by, next_at=None
    )


async def _keep(session: Session, replay: Replay) -> None:
    """Write down how a replay stands; what has become of its letters is counted elsewhere."""
    counts = (replay.selected, replay.sent, replay.skipped)
    await session.fetch(_KEEP, replay.id, str(replay.state), *counts, json_text(replay))
    if replay.state in (ReplayState.CANCELLED, ReplayState.DONE):
        await session.fetch("DELETE FROM redrive.replay_items WHERE replay = $1", replay.id)


async def _has_due(session: Session, due: Due) -> bool:
    """Tell whether an auto-replay wants attention; takes no lock, unlike `_start_due`."""
    auto_replays = await _auto_replays(session)
    is_new = any(since is None for *_, since in auto_replays)
    return is_new or bool(await _startable(session, auto_replays, due, locks=False))


async def _start_due(session: Session, due: Due) -> Sequence[Replay]:
    started = []
    auto_replays = await _auto_replays(session)
    for number in [number for number, _, _, since in auto_replays if since is None]:
        await session.fetch(_FIRST_SEEN, number, session.now)
    # Locked: a gate that is open now stays so until the replay has begun.
    for number, auto_replay, since in await _startable(session, auto_replays, due, locks=True):
        if await session.value(_TAKE, number, since, session.now) is None:
            continue
        oldest = session.now - auto_replay.max_age
        found = await session.fetch(
            _NEGLECTED, number, oldest, auto_replay.cycles, auto_replay.batch
        )
        new = NewReplay(selection=Selection(ids=tuple(one for (one,) in found)))
        actor = Actor(AUTO_REPLAY, auto_replay.cron)
        replay = await _start(session, new, actor=actor) if found else None
        started += [] if replay is None else [replay]
    return started


async def _auto_replays(session: Session) -> list[_Watched]:
    return [
        (number, name, auto_replay, instant(since))
        for number, name, document, since in await session.fetch(_AUTO_REPLAYS)
        if (auto_replay := destination_from(document).auto_replay) is not None
    ]


async def _startable(
    session: Session, auto_replays: Sequence[_Watched], due: Due, *, locks: bool
) -> list[tuple[int, AutoReplay, datetime]]:
    """Return what is due of destinations that an automatic replay may begin at."""
    found = [
        (number, name, auto_replay, since)
        for number, name, auto_replay, since in auto_replays
        if since is not None and due(auto_replay, since, session.now)
    ]
    if not found:
        return []
    names = [name for _, name, *_ in found]
    gates = await (GateRepository.lock if locks else GateRepository.read)(session, names)
    busy = [one.destinations for one in await _not_over(session) if one.is_automatic]
    return [
        (number, auto_replay, since)
        for number, name, auto_replay, since in found
        if name in gates.numbers and _is_open(gates.gate(name)) and (name,) not in busy
    ]


def _is_open(gate: Gate) -> bool:
    return gate.pause is None and isinstance(gate.breaker, Closed)
