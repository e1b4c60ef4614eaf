"""Declaring: which declaration of a destination is in force.

Releases of an app are rolled out and back, one process after the other, and each brings what its
code declares. The store keeps a standing for each destination, and changes it in the transaction
of whoever brings something.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from redrive.model.destination import Destination
from redrive.model.schedule import Schedule, ScheduleStanding
from redrive.model.standing import Seen, Standing
from redrive.policies.difference import difference

__all__ = [
    "LOOKS_AGAIN_AFTER",
    "MOST_SEEN",
    "as_found",
    "brought",
    "brought_schedule",
    "changed",
    "differing",
    "digest",
    "removed",
    "restored",
    "schedule_changed",
    "schedule_digest",
]

MOST_SEEN = 50
"""How many declarations of a destination are told from those never seen."""

LOOKS_AGAIN_AFTER = timedelta(seconds=3)
"""How often a worker that declares another looks whether it is its turn."""

_LONGEST_DIFFERENCE = 1_000
_ADDED = ("expire_after", "passing", "reads", "service", "rules", "is_disabled")
_destinations = msgspec.json.Decoder(Destination)


@lru_cache(maxsize=20_000)
def digest(destination: Destination) -> str:
    """Return what two declarations have in common exactly when they say the same.

    They are compared as they come back from a store: there, a rate of 5 is one of 5.0. What a
    release before did not know is left out where nothing is said of it, so that both agree.
    """
    said = msgspec.to_builtins(_destinations.decode(msgspec.json.encode(destination)))
    kept = msgspec.json.encode(
        {name: value for name, value in said.items() if name not in _ADDED or value}
    )
    return hashlib.sha256(kept).hexdigest()[:20]


@lru_cache(maxsize=1_000)
def schedule_digest(schedule: Schedule) -> str:
    """Return what two declarations of a schedule have in common exactly when they say the same."""
    return hashlib.sha256(msgspec.json.encode(schedule)).hexdigest()[:20]


def as_found(destination: Destination, *, is_removed: bool, kept: Standing | None) -> Standing:
    """Return the standing of a destination that is in the store like this.

    It is the one that was kept, unless a release that knows of no standings has changed the
    destination since: what that one has brought is in force then.
    """
    if kept is None:
        seen = (Seen(digest(destination), is_whole=True),) if is_removed else ()
        return Standing(in_force=destination, is_removed=is_removed, seen=seen)
    if kept.is_removed == is_removed and kept.destination == destination:
        return kept
    return msgspec.structs.replace(kept, in_force=destination, added=(), is_removed=is_removed)


def brought(
    standing: Standing | None,
    declared: Destination,
    *,
    is_worker: bool,
    by_others: Collection[str],
    now: datetime,
    lease: timedelta,
) -> Standing:
    """Decide what becomes of a declaration that somebody brings.

    One never seen takes effect at once: as a whole if a worker brings it, and otherwise only what
    it adds. One seen before takes effect if a worker brings it, nobody removed the destination,
    and none of the live workers declares what is in force; `by_others` are the digests of what
    they declare. It does not follow another that came back within a `lease`: of two releases that
    take turns at crashing neither gets anywhere, and settings are not to change with each start.
    """
    mark = digest(declared)
    if standing is None:
        return Standing(in_force=declared, seen=(Seen(mark, is_worker),))
    in_force = digest(standing.in_force)
    known = next((one for one in standing.seen if one.digest == mark), None)
    is_news = known is None or (is_worker and not known.is_whole)
    after = _remembered(standing, mark, is_whole=is_worker) if is_news else standing
    if mark == in_force:
        return after
    if is_news and (is_worker or standing.is_removed):
        return _in_force(after, declared)
    if is_news:
        wanted = standing.destination.patterns
        new = tuple(one for one in declared.patterns if one not in wanted)
        return msgspec.structs.replace(after, added=standing.added + new)
    is_calm = standing.returned_at is None or now - standing.returned_at >= lease
    if is_worker and not standing.is_removed and in_force not in by_others and is_calm:
        latest = _remembered(standing, mark, is_whole=True)
        return msgspec.structs.replace(_in_force(latest, declared), returned_at=now)
    return after


def brought_schedule(
    standing: ScheduleStanding | None,
    declared: Schedule,
    *,
    worker: str,
    others: Collection[str],
    now: datetime,
    lease: timedelta,
) -> ScheduleStanding:
    """Decide what becomes of a declaration that a worker brings, as with those of destinations.

    `others` are the live workers beside it. A schedule counts from when it is first seen, and from
    when other times take effect: what it would have ticked before is nothing that was missed.
    """
    mark = schedule_digest(declared)
    if standing is None:
        return ScheduleStanding(in_force=declared, since=now, seen=(mark,), declared={worker: mark})
    kept = {name: one for name, one in standing.declared.items() if name in others}
    after = msgspec.structs.replace(standing, declared=kept | {worker: mark})
    in_force = schedule_digest(standing.in_force)
    if mark == in_force:
        return after
    is_new = mark not in standing.seen
    is_calm = standing.returned_at is None or now - standing.returned_at >= lease
    if not is_new and (in_force in kept.values() or not is_calm):
        return after
    return msgspec.structs.replace(
        after,
        in_force=declared,
        seen=(*(one for one in standing.seen if one != mark), mark)[-MOST_SEEN:],
        returned_at=None if is_new else now,
        since=standing.since if declared.has_times_of(standing.in_force) else now,
    )


def schedule_changed(before: ScheduleStanding | None, after: ScheduleStanding) -> str:
    """Say what is different of a schedule from now on, for the audit log; nothing if nothing is."""
    if before is None:
        return f"schedule {after.name}: new"
    if before.in_force == after.in_force:
        return ""
    said = _difference(_plain(before.in_force), _plain(after.in_force))
    return f"schedule {after.name}: {said}"


def removed(standing: Standing) -> Standing:
    """Return the standing after a person has removed the destination.

    Whatever was seen until then, even if it was only offered, does not bring it back.
    """
    seen = tuple(Seen(one.digest, is_whole=True) for one in standing.seen)
    after = msgspec.structs.replace(standing, is_removed=True, seen=seen)
    mark = digest(standing.in_force)
    return after if any(one.digest == mark for one in seen) else _remembered(after, mark)


def restored(standing: Standing) -> Standing:
    """Return the standing after a person has taken a removal back."""
    return msgspec.structs.replace(standing, is_removed=False)


def changed(before: Standing | None, after: Standing) -> str:
    """Say what is different from now on, for the audit log."""
    if before is None:
        return "new"
    is_back = before.is_removed and not after.is_removed
    first = ["no longer removed"] if is_back else []
    return _difference(_plain(before.destination), _plain(after.destination), first)


def differing(declared: Mapping[str, str], standings: Mapping[str, Standing]) -> tuple[str, ...]:
    """Return the destinations of which a worker declares another than the one in force.

    What it declares are digests by the names of the destinations.
    """
    return tuple(
        sorted(
            name
            for name, mark in declared.items()
            if name in standings
            and (standings[name].is_removed or digest(standings[name].in_force) != mark)
        )
    )


def _difference(before: object, after: object, first: Sequence[str] = ()) -> str:
    changes, more = difference(before, after)
    parts = [f"{one.path}: {one.before or 'nothing'} → {one.after or 'nothing'}" for one in changes]
    said = "; ".join([*first, *parts, *([f"and {more} more"] if more else [])])
    return said if len(said) <= _LONGEST_DIFFERENCE else said[: _LONGEST_DIFFERENCE - 1] + "…"


def _plain(declared: Destination | Schedule) -> object:
    return msgspec.json.decode(msgspec.json.encode(declared))


def _in_force(standing: Standing, declared: Destination) -> Standing:
    seen, before = standing.seen, digest(standing.in_force)
    if all(one.digest != before for one in seen):  # brought by a release that keeps no standings
        seen = (Seen(before, is_whole=True), *seen)[-MOST_SEEN:]
    return msgspec.structs.replace(
        standing, in_force=declared, added=(), is_removed=False, seen=seen, returned_at=None
    )


def _remembered(standing: Standing, mark: str, *, is_whole: bool = True) -> Standing:
    """Return the standing with this declaration as the one that was seen last."""
    others = [one for one in standing.seen if one.digest != mark]
    seen = (*others, Seen(mark, is_whole))[-MOST_SEEN:]
    return msgspec.structs.replace(standing, seen=seen)
