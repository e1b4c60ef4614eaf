"""What somebody declares, held against the standings of one transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

import msgspec

from redrive.errors import ConfigurationError, UsageError
from redrive.model.destination import Destination, Order, Routes
from redrive.model.gate import Override
from redrive.model.standing import Standing
from redrive.policies import declaring as policy
from redrive.store import Declarer, Redeclared, Registered
from redrive.stores.codec import json_text

__all__ = [
    "Release",
    "Ruling",
    "audited",
    "is_contested",
    "put_in_force",
    "refuse_service",
    "registered",
    "release_from",
    "release_of",
    "rule",
    "standing_from",
]

Release = Mapping[str, str]
"""What a worker declares: digests by the names of the destinations."""

_standings = msgspec.json.Decoder(Standing)
_releases = msgspec.json.Decoder(dict[str, str])
_MOST_NAMED = 20


class Ruling(msgspec.Struct, frozen=True):
    """What became of one declaration."""

    declared: Destination
    before: Standing | None
    after: Standing

    @property
    def name(self) -> str:
        """The destination's."""
        return self.declared.name

    @property
    def is_kept(self) -> bool:
        """Whether the standing is as it was."""
        return self.before == self.after

    @property
    def is_change(self) -> bool:
        """Whether everybody has another destination from now on."""
        return (
            self.before is None
            or self.before.is_removed != self.after.is_removed
            or self.before.destination != self.after.destination
        )

    @property
    def begins_order(self) -> bool:
        """Whether it keeps order from now on, and kept none."""
        return (
            self.before is not None
            and self.before.destination.order is Order.NONE
            and self.after.destination.order is not Order.NONE
        )

    @property
    def difference(self) -> str:
        """What is different from now on."""
        return policy.changed(self.before, self.after)

    @property
    def is_other(self) -> bool:
        """Whether another declaration than this one is in force."""
        return self.after.is_removed or self.after.in_force != self.declared


def standing_from(destination: Destination, document: str | None, *, is_removed: bool) -> Standing:
    """Return the standing of a destination, of which this document was kept, if any was."""
    kept = None if document is None else _kept(document)
    return policy.as_found(destination, is_removed=is_removed, kept=kept)


@lru_cache(maxsize=20_000)
def _kept(document: str) -> Standing:
    """Read a standing; the same ones are read again and again."""
    return _standings.decode(document)


def release_of(destinations: Iterable[Destination]) -> tuple[str, str]:
    """Return what a worker declares as a document, and the name of that."""
    marks = {one.name: policy.digest(one) for one in destinations}
    document = json_text(dict(sorted(marks.items())))
    return hashlib.sha256(document.encode()).hexdigest()[:20], document


def release_from(document: str) -> Release:
    """Read what a worker declares."""
    return _releases.decode(document)


def is_contested(destinations: Iterable[Destination], standings: Mapping[str, Standing]) -> bool:
    """Tell whether it matters what others declare: another than what is brought is in force."""
    return any(
        one.name in standings and standings[one.name].in_force != one for one in destinations
    )


def rule(
    destinations: Sequence[Destination],
    standings: Mapping[str, Standing],
    *,
    by: Declarer,
    live: Sequence[Release],
    now: datetime,
) -> list[Ruling]:
    """Decide about each declaration; `live` is what other live workers declare."""
    rulings = []
    for one in {one.name: one for one in destinations}.values():
        before = standings.get(one.name)
        if before is not None and before.in_force.service and not before.is_removed:
            raise ConfigurationError(
                f"The name {one.name!r} belongs to a service that is stored (version "
                f"{before.in_force.service}); give your destination another name, or delete the "
                f"service with `redrive service delete {one.name}`."
            )
        after = policy.brought(
            before,
            one,
            is_worker=bool(by.worker),
            by_others=[release[one.name] for release in live if one.name in release],
            now=now,
            lease=by.lease,
        )
        rulings.append(Ruling(one, before, after))
    return rulings


def put_in_force(service: Destination, before: Standing | None) -> Ruling:
    """Put a stored service in force, unless the name is one of a destination of somebody's code."""
    if before is not None and not before.is_removed and not before.in_force.service:
        raise ConfigurationError(
            f"The name {service.name!r} belongs to a destination that an app declares in its code; "
            "give the service another name, or take the destination out of the code and remove it "
            f"with `redrive destination remove {service.name}`."
        )
    seen = () if before is None else before.seen
    return Ruling(service, before, Standing(in_force=service, seen=seen))


def refuse_service(standing: Standing, instead: str) -> None:
    """Leave a stored service to who keeps its document in step with what is routed."""
    if standing.in_force.service:
        name = standing.in_force.name
        raise UsageError(
            f"{name} is a service that the store describes; use `redrive service {instead} {name}`."
        )


def audited(rulings: Sequence[Ruling], *, is_first: bool) -> list[tuple[int, str]]:
    """Return a count and a detail for each entry in the audit log.

    Those that were not there before are one entry, and none if nothing was.
    """
    entries = [
        (1, f"{one.name}: {one.difference}") for one in rulings if one.before and one.is_change
    ]
    new = [one.name for one in rulings if one.before is None]
    if new and not is_first:
        more = len(new) - _MOST_NAMED
        names = ", ".join(new[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        entries.append((len(new), f"{names}: new"))
    return entries


def registered(
    routes: Routes, rulings: Sequence[Ruling], overrides: Mapping[str, Override]
) -> Registered:
    """Return what came of all of them."""
    return Registered(
        overrides=overrides,
        routes=routes,
        changes=tuple(
            Redeclared(destination=one.name, difference=one.difference)
            for one in rulings
            if one.before is not None and one.is_change
        ),
        others=tuple(one.name for one in rulings if one.is_other),
    )
