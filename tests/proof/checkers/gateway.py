"""I18: services and rules that change while events flow are gone by, each as it was meant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

import msgspec

from redrive.conditions import compile_condition
from redrive.model.delivery import Kind
from redrive.model.event import Event
from redrive.model.pattern import matches
from redrive.model.recipient import pinned, recipient
from redrive.model.rule import Stored
from redrive.store import GatewayChange
from tests.proof.checkers.check import Check
from tests.proof.checkers.ledger import Entry, Ledger, Step
from tests.proof.checkers.records import (
    Hampered,
    Healed,
    Intended,
    Looked,
    Record,
    Requested,
    Silenced,
)

__all__ = ["ChangedAsMeant", "FollowedSoon", "GivenByRules", "HeldIfAsked", "RenderedByPin"]

_Documents = dict[tuple[str, str], dict[str, Any]]
_SOON = 5.0
"""A worker polls every second, and may be busy with calls of two."""
_UNHEARD = 25.0
"""How long a lost or late answer may keep a process from hearing what has changed, and more."""


class GivenByRules(Check):
    """An event has one delivery for each rule in force that fits it, by the version in force."""

    name = "I18 given by rules"

    def __init__(self) -> None:
        self._past: list[tuple[float, dict[tuple[str, str], Stored]]] = []

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        if step.how == "gateway":
            self._past.append((step.call.at, dict(ledger.documents)))
            yield from _astray(ledger)
        elif step.how == "stored":
            event, made = step.detail
            got = sorted(one.recipient for one in made if one.rule)
            since = step.call.since
            earlier = [one for until, one in self._past if since is not None and until >= since]
            wanted = [_fitting(event, one) for one in (*earlier, ledger.documents)]
            if got not in wanted:
                yield f"{event.id} was given to {got}, and the rules in force say {wanted[-1]}"

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if isinstance(record, Looked):
            yield from _astray(ledger)


def _astray(ledger: Ledger) -> Iterator[str]:
    """Look whether routing has what the documents say."""
    for (kind, name), service in ledger.documents.items():
        if kind != "service":
            continue
        routed = ledger.promises[name].destination
        rules = sorted(one.pin for one in routed.rules)
        meant = sorted(
            one.pin
            for one in ledger.documents.values()
            if one.kind == "rule" and one.service == name and _is_enabled(one)
        )
        if rules != meant:
            yield f"{name} is routed to by {rules}, and its rules are {meant}"
        if routed.service != service.version or routed.is_disabled is _is_enabled(service):
            yield f"{name} is routed to as version {routed.service}, and is {service}"


def _fitting(event: Event[msgspec.Raw], documents: Mapping[tuple[str, str], Stored]) -> list[str]:
    return sorted(
        recipient(one.service, pinned(one.name, one.version))
        for one in documents.values()
        if one.kind == "rule" and _is_enabled(one) and _fits(event, one, documents)
    )


def _fits(
    event: Event[msgspec.Raw], rule: Stored, documents: Mapping[tuple[str, str], Stored]
) -> bool:
    owner = documents["service", rule.service].document.get("tenant")
    condition = rule.document.get("condition")
    return (
        any(matches(pattern, event.type) for pattern in rule.document["event"])
        and (owner is None or (event.tenant is not None and matches(owner, event.tenant)))
        and (condition is None or compile_condition(condition).holds(event))
    )


def _is_enabled(one: Stored) -> bool:
    return bool(one.document.get("enabled", True))


class RenderedByPin(Check):
    """A request has the shape of the version of the rule that is pinned to its delivery."""

    name = "I18 rendered by pin"

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if not isinstance(record, Requested):
            return
        leased = record.leased
        entry = ledger.entries[leased.lease.delivery_id]
        is_current = entry.token == leased.lease.token
        if is_current and leased.rule != entry.rule:
            yield f"{entry} is sent by {leased.rule}, and {entry.rule} is pinned to it"
        rule = ledger.rules[leased.rule]
        meant = rule.document["template"]["by"]
        told = msgspec.json.decode(record.body)["by"]
        if told != meant:
            yield f"{entry} by {leased.rule} is rendered as {told!r}, which says {meant!r}"
        if record.message_id != f"{entry.event.id}-{rule.name}":
            yield f"{entry} by {leased.rule} is sent as {record.message_id}"


class FollowedSoon(Check):
    """Seconds after a service was changed, disabled or deleted, no worker goes by what it was."""

    name = "I18 followed soon"

    def __init__(self) -> None:
        self._was: dict[str, list[tuple[float, str]]] = defaultdict(list)
        """Addresses that services had, and until when; an empty one where nobody was to serve."""
        self._hampered: dict[str, float] = {}

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        if step.how == "gateway":
            change: GatewayChange = step.detail
            for one in (*change.kept, *change.gone):
                if one.kind == "service":
                    was = _address(ledger.documents.get(("service", one.name)))
                    self._was[one.name].append((step.call.at, was))
        yield from ()

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        match record:
            case Hampered(machine=machine, until=until):
                self._hamper(machine, until)
            case Silenced(machine=machine):
                self._hamper(machine, record.at + _UNHEARD)
            case Healed():
                self._hampered = {"": record.at}
            case Requested():
                yield from self._look(ledger, record)
            case _:
                pass

    def _hamper(self, machine: str, until: float) -> None:
        self._hampered[machine] = max(self._hampered.get(machine, 0.0), until)

    def _look(self, ledger: Ledger, record: Requested) -> Iterator[str]:
        name = record.leased.destination
        hampered = max(self._hampered.get(one, -inf) for one in (record.machine, ""))
        since = record.at - _SOON
        now = _address(ledger.documents.get(("service", name)))
        had = [now, *(was for until, was in self._was[name] if until >= since)]
        if record.url not in had and hampered < since:
            yield (
                f"{record.machine} asks {name} at {record.url}, and for {_SOON:.0f} s it was "
                f"{' or '.join(one or 'not to be served' for one in had)}"
            )


def _address(service: Stored | None) -> str:
    if service is None or not _is_enabled(service):
        return ""
    return str(service.document["url"])


class ChangedAsMeant(Check):
    """A change is all of what somebody meant by it, made of what there was at its commit.

    So two who apply at once do not mix. Versions are never given again.
    """

    name = "I18 changed as meant"

    def __init__(self) -> None:
        self._intended: dict[str, Intended] = {}
        self._last: dict[tuple[str, str], int] = {}

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        if step.how != "gateway":
            return
        change: GatewayChange = step.detail
        for one in change.kept:
            if one.version <= self._last.get((one.kind, one.name), 0):
                yield f"{one.kind} {one.name} has version {one.version} again"
            self._last[one.kind, one.name] = one.version
        before = {place: dict(one.document) for place, one in ledger.documents.items()}
        after = {
            place: one
            for place, one in before.items()
            if place not in {(gone.kind, gone.name) for gone in change.gone}
        }
        after |= {(one.kind, one.name): dict(one.document) for one in change.kept}
        why = step.call.given["actor"].why
        meant = _as_meant(self._intended[why], before)
        for place in sorted({*after, *meant}):
            if after.get(place) != meant.get(place):
                yield (
                    f"after {why!r} the {' '.join(place)} is {after.get(place)}, "
                    f"and is to be {meant.get(place)}"
                )

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if isinstance(record, Intended):
            self._intended[record.why] = record
        yield from ()


def _as_meant(intended: Intended, before: _Documents) -> _Documents:
    after = {} if intended.replaces else dict(before)
    for place, document in intended.sets.items():
        if document is None:
            after.pop(place, None)
            if place[0] == "service":
                after = {rule: one for rule, one in after.items() if one.get("service") != place[1]}
        else:
            after[place] = document
    for place, changes in intended.alters.items():
        both = {**before.get(place, {}), **changes}
        after[place] = {key: value for key, value in both.items() if value is not None}
    return after


class HeldIfAsked(Check):
    """No service goes while something waits for it, unless somebody wants that left waiting."""

    name = "I18 held if asked"

    def __init__(self) -> None:
        self._intended: dict[str, Intended] = {}
        self._stored: dict[int, float] = {}

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        if step.how == "stored":
            self._stored |= {int(one.id): step.call.at for one in step.detail[1]}
        elif step.how == "gateway":
            intended = self._intended[step.call.given["actor"].why]
            gone = [one.name for one in step.detail.gone if one.kind == "service"]
            for name in () if intended.leaves_waiting else gone:
                for entry in ledger.of_destination.get(name, ()):
                    if self._has_waited(entry, since=intended.at):
                        yield f"{name} goes while {entry} waits, and nobody has asked for that"

    def _has_waited(self, entry: Entry, *, since: float) -> bool:
        """Tell whether a delivery has done nothing but wait since then."""
        is_new = entry.kind is Kind.FIRST and not (entry.token or entry.been)
        return entry.is_waiting and is_new and self._stored[entry.id] < since

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if isinstance(record, Intended):
            self._intended[record.why] = record
        yield from ()
