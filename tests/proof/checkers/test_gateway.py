"""The checkers of services and rules: each finds what it watches for, and lets the rest pass."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId, Kind, Lease, Leased
from redrive.model.destination import BY_RULES, Destination
from redrive.model.event import Event, EventId, Receipt
from redrive.model.rule import RuleRoute, Stored
from redrive.store import Appended, Entry, GatewayChange
from tests.proof.checkers import CHECKS, Promise
from tests.proof.checkers.gateway import (
    ChangedAsMeant,
    FollowedSoon,
    GivenByRules,
    HeldIfAsked,
    RenderedByPin,
)
from tests.proof.checkers.inspector import Inspector
from tests.proof.checkers.records import Call, Hampered, Intended, Made, Requested
from tests.proof.checkers.scene import NOW

PLACE = ("service", "s"), ("rule", "r")


class Office:
    """A service, a rule to it, and people who change them."""

    def __init__(self) -> None:
        service = Destination(name="s", patterns=BY_RULES, service=1)
        checks = (GivenByRules, RenderedByPin, FollowedSoon, ChangedAsMeant, HeldIfAsked)
        assert not {*checks} & {*CHECKS}
        self.inspector = Inspector({"s": Promise(service, 3)}, checks)
        self.at = 0.0
        self._versions = {"service": 0, "rule": 0}
        self._asked = 0
        self._routes: tuple[RuleRoute, ...] = ()

    @property
    def wrong(self) -> list[str]:
        return [one.check for one in self.inspector.violations]

    def change(
        self,
        *,
        meant: dict[str, Any] | None = None,
        gone: tuple[str, ...] = (),
        version: int | None = None,
        leaves: bool = False,
        **documents: dict[str, Any],
    ) -> None:
        """Have documents of a service or a rule changed; `meant` are those that were to be."""
        self._asked += 1
        why = f"change {self._asked}"
        sets = {(kind, kind[0]): one for kind, one in (meant or documents).items()}
        sets |= {(kind, kind[0]): None for kind in gone}
        self.inspector.hear(Intended(at=self.at, why=why, sets=sets, leaves_waiting=leaves))
        kept = []
        for kind, document in documents.items():
            self._versions[kind] = version or self._versions[kind] + 1
            kept.append(self._stored(kind, document))
        if "rule" in documents:
            patterns = tuple(documents["rule"]["event"])
            route = RuleRoute(rule="r", version=self._versions["rule"], patterns=patterns)
            self._routes = (route,) if documents["rule"].get("enabled", True) else ()
        known = self.inspector.ledger.documents
        service = {**{place: one.document for place, one in known.items()}, **sets}[PLACE[0]]
        destination = Destination(
            name="s",
            patterns=BY_RULES,
            service=self._versions["service"],
            rules=self._routes,
            is_disabled=service is not None and not service.get("enabled", True),
        )
        change = GatewayChange(
            kept=tuple(kept),
            gone=tuple(known[kind, kind[0]] for kind in gone),
            destinations=(destination,) if "service" not in gone else (),
        )
        self._call("change_gateway", 1, change=change, revision=0, actor=Actor("me", why))

    def _stored(self, kind: Any, document: dict[str, Any]) -> Stored:  # noqa: ANN401 - a kind
        version = self._versions[kind]
        return Stored(kind=kind, name=kind[0], service="s", version=version, document=document)

    def publish(self, *rules: str) -> None:
        """Have the first event of all be given by these rules."""
        event = Event(
            id=EventId("e1"),
            type="a.x",
            payload=msgspec.Raw(b"{}"),
            published_at=NOW,
            occurred_at=NOW,
        )
        made = tuple(Made(event.id, "s", DeliveryId(1), one) for one in rules)
        names = tuple(one.recipient for one in made)
        receipt = Receipt(event_id=event.id, destinations=names)
        self._call("append", Appended((receipt,)), made=made, entries=[Entry(event, names)])

    def request(self, *, by: str = "one", url: str = "here", rule: str = "r@1") -> None:
        """Have the event be sent."""
        event = self.inspector.ledger.events[EventId("e1")]
        leased = Leased(
            lease=Lease(DeliveryId(1), 0),
            destination="s",
            event=event,
            attempt=1,
            kind=Kind.FIRST,
            claimed_at=NOW,
            enqueued_at=NOW,
            rule=rule,
        )
        body = msgspec.json.encode({"by": by})
        self.inspector.hear(
            Requested(at=self.at, machine="m", leased=leased, url=url, message_id="e1-r", body=body)
        )

    def _call(
        self,
        method: str,
        answer: object,
        *,
        made: tuple[Made, ...] = (),
        **given: Any,  # noqa: ANN401 - as the store has it
    ) -> None:
        call = Call(at=self.at, now=NOW, method=method, given=given, answer=answer, made=made)
        self.inspector.hear(call)


def service(url: str = "here", **keys: object) -> dict[str, Any]:
    return {"url": url, **keys}


def rule(by: str = "one", **keys: object) -> dict[str, Any]:
    return {"service": "s", "event": ["a.*"], "template": {"by": by}, **keys}


@pytest.fixture
def office() -> Office:
    opened = Office()
    opened.change(service=service(), rule=rule())
    return opened


def test_what_is_given_and_sent_by_the_version_in_force_is_well(office: Office) -> None:
    office.publish("r@1")
    office.change(rule=rule("two"))
    office.request()

    assert not office.wrong


@pytest.mark.parametrize("given", [(), ("r@1", "r@1"), ("r@2",), ("other@1",)])
def test_an_event_that_is_not_given_as_the_rules_say_is_found(
    office: Office, given: tuple[str, ...]
) -> None:
    office.publish(*given)

    assert office.wrong == ["I18 given by rules"]


def test_routing_that_is_not_as_the_documents_say_is_found(office: Office) -> None:
    disabled = office.inspector.ledger.documents["rule", "r"]
    document = {**disabled.document, "enabled": False}
    office.inspector.ledger.documents["rule", "r"] = msgspec.structs.replace(
        disabled, document=document
    )

    office.change(meant={"service": service("there")}, service=service("there"))

    assert "I18 given by rules" in office.wrong


def test_a_request_in_the_shape_of_another_version_is_found(office: Office) -> None:
    office.publish("r@1")
    office.change(rule=rule("two"))
    office.request(by="two")

    assert office.wrong == ["I18 rendered by pin"]


@pytest.mark.parametrize(
    ("later", "is_wrong"), [(1.0, False), (6.0, True)], ids=["at once", "later"]
)
@pytest.mark.parametrize("now", [service("there"), service(enabled=False)], ids=["moved", "off"])
def test_who_goes_by_what_a_service_was_is_found_after_seconds(
    office: Office, now: dict[str, Any], later: float, *, is_wrong: bool
) -> None:
    office.publish("r@1")
    office.change(service=now)
    office.at += later
    office.request()

    assert office.wrong == ["I18 followed soon"] * is_wrong


def test_who_could_not_hear_of_a_change_is_excused(office: Office) -> None:
    office.publish("r@1")
    office.change(service=service("there"))
    office.inspector.hear(Hampered(at=office.at, machine="m", until=20.0))
    office.at = 22.0
    office.request()

    assert not office.wrong


def test_half_of_what_was_meant_is_found(office: Office) -> None:
    meant = {"service": service("there"), "rule": rule("two")}
    office.change(meant=meant, service=service("there"))

    assert office.wrong == ["I18 changed as meant"]


def test_a_version_that_is_given_again_is_found(office: Office) -> None:
    office.change(rule=rule("two"), version=1)

    assert office.wrong == ["I18 changed as meant"]


@pytest.mark.parametrize("leaves", [False, True])
def test_a_service_that_goes_under_what_waits_is_found(office: Office, *, leaves: bool) -> None:
    office.publish("r@1")
    office.at += 1.0
    office.change(gone=("service", "rule"), leaves=leaves)

    assert office.wrong == ["I18 held if asked"] * (not leaves)
