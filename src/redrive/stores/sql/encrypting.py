"""Encryption at rest: begun in one transaction, then walked through a few rows at a time.

The walk goes by rounds, each to where the tables ended when it began. It ends with a round that has
found nothing to change, so that what was written meanwhile by whoever did not know yet is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from redrive.model.audit import Actor
from redrive.model.encryption import Encryption
from redrive.stores.codec import json_text
from redrive.stores.deduplicate import remains_from
from redrive.stores.sealed import (
    ADDRESSEES,
    CYCLES,
    EDITS,
    EXCHANGE,
    FAULT,
    LOG,
    READ_ENCRYPTION,
    REQUESTS,
    SCHEDULE,
    KeptEncryption,
    Kind,
    Place,
    kept_from,
)
from redrive.stores.sql.audit import record
from redrive.stores.sql.registering import hold_routes
from redrive.stores.sql.session import Session
from redrive.stores.sql.store import PRESENT, SqlStore, writing

__all__ = ["STAGES", "EncryptingRole", "Stage"]

_LOOK = f"SELECT e.document FROM {PRESENT} CROSS JOIN redrive.encryption e"
_KEEP = """
INSERT INTO redrive.encryption (id, document) VALUES (1, $1)
ON CONFLICT (id) DO UPDATE SET document = excluded.document
"""
# Code that does not know of encryption would take what is hidden for what is missing.
_KEEP_OLD_CODE_OUT = "UPDATE redrive.schema SET oldest_code = version"
_UNIQUES = "SELECT source, key FROM redrive.uniques WHERE substr(key, 1, 1) = '='"
_KEY_UNIQUE = "UPDATE redrive.uniques SET key = $3 WHERE source = $1 AND key = $2"

_Row = Sequence[Any]
_Rewrite = Callable[[Session, _Row], Sequence[str | None]]


class Stage(NamedTuple):
    """A table that is walked through, in the order of what names its rows.

    Of each row `rewrite` is handed what `needs` says, and then the columns that it returns anew.
    `names` and `columns` are with their types. Where publishers put new names between old ones,
    `since` is a column of times that stands before the names in the order, and rows without a time
    are passed by.
    """

    table: str
    names: tuple[str, ...]
    columns: tuple[str, ...]
    rewrite: _Rewrite
    needs: tuple[str, ...] = ()
    since: str = ""

    @property
    def next(self) -> str:
        """What selects the next rows behind a place and up to another, each as a place."""
        size = len(self._place)
        behind, end = self._given_places(2), self._given_places(2 + size)
        return self._places(f"{self._order} > ({behind}) AND {self._order} <= ({end})", "")

    @property
    def first(self) -> str:
        """What selects the first rows up to a place, each as a place."""
        return self._places(f"{self._order} <= ({self._given_places(2)})", "")

    @property
    def last(self) -> str:
        """What selects the place of the last row."""
        return self._places("", " DESC")

    @property
    def there(self) -> str:
        """What selects the names of rows that are still there, of those with these names."""
        names = ", ".join(f"t.{one}" for one in _bare(self.names))
        return (
            f"SELECT {names} FROM {self._given(self.names)} JOIN redrive.{self.table} t "
            f"ON {self._is_it}"
        )

    def named(self, place: Place) -> Place:
        """Return the names of the row at a place."""
        return place[len(place) - len(self.names) :]

    @property
    def _place(self) -> tuple[str, ...]:
        return (f"{self.since} timestamptz", *self.names) if self.since else self.names

    @property
    def _order(self) -> str:
        return f"({', '.join(_bare(self._place))})"

    def _given_places(self, first: int) -> str:
        kinds = [one.split()[1] for one in self._place]
        return ", ".join(
            f"${number}::text::timestamptz" if kind == "timestamptz" else f"${number}"
            for number, kind in enumerate(kinds, first)
        )

    def _places(self, condition: str, direction: str) -> str:
        columns = [
            f"{name}::text" if kind == "timestamptz" else name
            for name, kind in map(str.split, self._place)
        ]
        order = ", ".join(f"{name}{direction}" for name in _bare(self._place))
        known = f"{self.since} IS NOT NULL" if self.since else ""
        where = " AND ".join(filter(None, (known, condition)))
        return (
            f"SELECT {', '.join(columns)} FROM redrive.{self.table} "
            f"{where and f'WHERE {where} '}ORDER BY {order} LIMIT $1"
        )

    @property
    def read(self) -> str:
        """What selects rows by their names, but for those that somebody else has in hand."""
        texts = [f"t.{one}::text" for one in _bare(self.columns)]
        columns = ", ".join([*(f"t.{one}" for one in _bare(self.names)), *self.needs, *texts])
        return (
            f"SELECT {columns} FROM {self._given(self.names)} JOIN redrive.{self.table} t "
            f"ON {self._is_it} FOR NO KEY UPDATE OF t SKIP LOCKED"
        )

    @property
    def write(self) -> str:
        """What writes columns of many rows."""
        columns = ", ".join(
            f"{name} = given.{name}::{kind}" for name, kind in map(str.split, self.columns)
        )
        given = [*self.names, *(f"{name} text" for name in _bare(self.columns))]
        return (
            f"UPDATE redrive.{self.table} AS t SET {columns} FROM {self._given(given)} "
            f"WHERE {self._is_it}"
        )

    @property
    def _is_it(self) -> str:
        return " AND ".join(f"t.{one} = given.{one}" for one in _bare(self.names))

    @staticmethod
    def _given(columns: Sequence[str]) -> str:
        return f"json_to_recordset($1::json) AS given ({', '.join(columns)})"


def _bare(columns: Sequence[str]) -> list[str]:
    return [one.split()[0] for one in columns]


def _event(session: Session, row: _Row) -> Sequence[str | None]:
    event_id, event_type, document = row
    codec = session.codec
    if codec.is_current_event(document):
        return (document,)
    return (codec.event_text(codec.event(document, event_id, event_type)),)


def _delivery(session: Session, row: _Row) -> Sequence[str | None]:
    event_id, *documents, payload = row
    kinds = (FAULT, LOG, CYCLES, EDITS)
    kept = [_as_kept(session, one, kind) for one, kind in zip(documents, kinds, strict=True)]
    return (*kept, _payload_as_kept(session, payload, event_id))


def _projection_edit(session: Session, row: _Row) -> Sequence[str | None]:
    event_id, payload, edits = row
    return _payload_as_kept(session, payload, event_id), _as_kept(session, edits, EDITS)


def _remains(session: Session, row: _Row) -> Sequence[str | None]:
    if row[0] is None:
        return (None,)
    kept = remains_from(row[0])
    return (json_text(replace(kept, digest=session.codec.keyed(kept.digest))),)


def _gate(session: Session, row: _Row) -> Sequence[str | None]:
    gate = msgspec.json.decode(row[0])
    if not session.codec.is_sealing or not (failure := gate.get("last_failure")):
        return (row[0],)
    failure["error"] = failure["error"].partition(":")[0]
    return (json_text(gate),)


def _document(kind: Kind) -> _Rewrite:
    def rewrite(session: Session, row: _Row) -> Sequence[str | None]:
        document = row[0]
        if session.codec.is_current(document, kind):
            return (document,)
        return (json_text(session.codec.closed(kind.read(session.codec, document))),)

    return rewrite


def _as_kept(session: Session, document: str | None, kind: Kind) -> str | None:
    if document is None or session.codec.is_current(document, kind):
        return document
    return session.json(kind.read(session.codec, document))


def _payload_as_kept(session: Session, payload: str | None, event_id: str) -> str | None:
    codec = session.codec
    if payload is None or codec.is_current_payload(payload):
        return payload
    return codec.payload_text(codec.payload(payload, event_id) or b"null", event_id)


_EVENT_ID = "(SELECT e.id::text FROM redrive.events e WHERE e.position = t.position)"
STAGES: tuple[Stage, ...] = (
    Stage("gates", ("destination bigint",), ("document text",), _gate),
    Stage("publishing_schedules", ("name text",), ("document text",), _document(SCHEDULE)),
    Stage(
        "deliveries",
        ("id bigint",),
        ("fault jsonb", "log jsonb", "cycles jsonb", "edits jsonb", "payload text"),
        _delivery,
        needs=(_EVENT_ID,),
    ),
    Stage("exchanges", ("delivery bigint",), ("document text",), _document(EXCHANGE)),
    Stage("addressees", ("delivery bigint",), ("document text",), _document(ADDRESSEES)),
    Stage("request_log", ("id bigint",), ("body text",), _document(REQUESTS)),
    Stage(
        "projection_edits",
        ("projection text", "position bigint"),
        ("payload text", "edits text"),
        _projection_edit,
        needs=(_EVENT_ID,),
    ),
    Stage("idempotency", ("source text", "key text"), ("remains text",), _remains, since="since"),
    Stage(
        "events", ("position bigint",), ("document text",), _event, needs=("t.id::text", "t.type")
    ),
)
"""All that is rewritten. What else carries no payload is told in decision 0074."""

_AT_MOST = " + ".join(
    f"(SELECT coalesce(max({name}) - min({name}) + 1, 0) FROM redrive.{one.table})"
    for one in STAGES
    for name, kind in [one.names[0].split()]
    if kind == "bigint"
)


class EncryptingRole(SqlStore):
    """`Encrypting`."""

    async def encryption(self) -> Encryption | None:
        rows = await self._query(_LOOK)
        document = rows[0][0] if rows else None
        self.codec.learn(document)
        kept = kept_from(document)
        return None if kept is None else kept.encryption

    async def encrypt(self, key_id: str, *, actor: Actor) -> Encryption:
        document = await self._write(lambda one, _: _begin(one, key_id, actor=actor))
        self.codec.learn(document)
        kept = kept_from(document)
        assert kept is not None  # noqa: S101 - it was just written
        return kept.encryption

    async def reseal(self, *, limit: int = 200) -> int:
        encryption = await self.encryption()
        if encryption is None or not encryption.is_under_way:
            return 0
        return await self._step(limit)

    @writing()
    async def _step(self, session: Session, limit: int) -> int:
        document = await session.value(f"{READ_ENCRYPTION} FOR UPDATE")
        session.codec.learn(document)
        session.codec.check()
        kept = kept_from(document)
        if kept is None or not kept.encryption.is_under_way:
            return 0
        looked_at, after = await _walk(session, kept, limit)
        await session.fetch(_KEEP, json_text(after))
        return looked_at if after.encryption.is_under_way else 0

    async def check_keys(self) -> None:
        await self.encryption()
        self.codec.check()


async def _begin(session: Session, key_id: str, *, actor: Actor) -> str:
    """Have everybody write by a key from now on; returns what is kept of that."""
    await hold_routes(session)
    before = await session.value(f"{READ_ENCRYPTION} FOR UPDATE")
    codec = session.codec.anew(before)
    kept = kept_from(before)
    if kept is not None and kept.encryption.key_id == key_id:
        return str(before)
    digests = codec.digests_under(key_id)
    encryption = Encryption(
        key_id=key_id,
        began_at=session.now,
        began_by=actor.by,
        at_most=int(await session.value(f"SELECT {_AT_MOST}")),
        former=_former(kept, key_id),
    )
    document = json_text(KeptEncryption(encryption=encryption, digests=digests))
    await session.fetch(_KEEP, document)
    await session.fetch(_KEEP_OLD_CODE_OUT)
    codec.learn(document)
    for source, key in await session.fetch(_UNIQUES):
        await session.fetch(_KEY_UNIQUE, source, key, "=" + codec.keyed(key[1:]))
    await session.change_routes([])
    await record(session, "encrypt" if key_id else "decrypt", (), actor, count=1, detail=key_id)
    return document


def _former(kept: KeptEncryption | None, key_id: str) -> tuple[str, ...]:
    """Return the keys that what is there may need beside the one that is begun with."""
    if kept is None:
        return ()
    known = kept.encryption
    before = (known.key_id, *(known.former if known.is_under_way else ()))
    return tuple(sorted({one for one in before if one} - {key_id}))


async def _walk(session: Session, kept: KeptEncryption, limit: int) -> tuple[int, KeptEncryption]:
    """Rewrite the next rows that have to be; returns how many were looked at, and how far it is.

    What is new behind the ends of the round is written as it is to be: whoever publishes cannot
    make a round longer.
    """
    if not kept.ends:
        kept = replace(kept, ends=await _ends(session), after=(), left=())
    stage, left = STAGES[kept.stage], kept.left
    places = await _next_places(session, kept, limit - len(left)) if len(left) < limit else []
    names = [*left, *map(stage.named, places)]
    if not names:
        return 1, _went_on(session, kept)
    labels = _bare(stage.names)
    found = await session.fetch(stage.read, _records(session, labels, names))
    changed: list[dict[str, object]] = []
    for row in found:
        own, rest = row[: len(labels)], row[len(labels) :]
        before = tuple(rest[len(stage.needs) :])
        after = tuple(stage.rewrite(session, tuple(rest)))
        if after != before:
            columns = zip(_bare(stage.columns), after, strict=True)
            changed.append(dict(zip(labels, own, strict=True)) | dict(columns))
    if changed:
        await session.fetch(stage.write, session.records(changed))
    seen = {tuple(row[: len(labels)]) for row in found}
    if unseen := [one for one in names if one not in seen]:
        there = await session.fetch(stage.there, _records(session, labels, unseen))
        unseen = [tuple(row) for row in there]
    encryption = replace(
        kept.encryption,
        done=kept.encryption.done + len(places),
        changed=kept.encryption.changed + len(changed),
    )
    return len(names), replace(
        kept,
        encryption=encryption,
        after=places[-1] if places else kept.after,
        left=tuple(unseen),
        is_again=kept.is_again or bool(changed),
    )


async def _ends(session: Session) -> tuple[Place, ...]:
    """Return where each of the tables ends now."""
    rows = [await session.fetch(stage.last, 1) for stage in STAGES]
    return tuple(tuple(found[0]) if found else () for found in rows)


async def _next_places(session: Session, kept: KeptEncryption, limit: int) -> list[Place]:
    stage, end = STAGES[kept.stage], kept.ends[kept.stage]
    if not end:
        return []
    statement = stage.next if kept.after else stage.first
    return [tuple(row) for row in await session.fetch(statement, limit, *kept.after, *end)]


def _records(session: Session, labels: Sequence[str], names: Sequence[Place]) -> str:
    return session.records([dict(zip(labels, one, strict=True)) for one in names])


def _went_on(session: Session, kept: KeptEncryption) -> KeptEncryption:
    """Return where the walk goes on behind a table."""
    if kept.stage + 1 < len(STAGES):
        return replace(kept, stage=kept.stage + 1, after=())
    if kept.is_again:
        encryption = replace(kept.encryption, done=0)
        return replace(
            kept, encryption=encryption, stage=0, after=(), ends=(), left=(), is_again=False
        )
    return replace(kept, encryption=replace(kept.encryption, finished_at=session.now, former=()))
