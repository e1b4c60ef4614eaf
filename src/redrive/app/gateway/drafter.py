"""The drafter: checks documents for whoever changes them, and says what routing gets of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from redrive.app.gateway.previewing import decider, previewer
from redrive.app.gateway.rule import read_rule, route_of
from redrive.app.gateway.schedule import read_schedule
from redrive.app.gateway.secrets import placeholder, references_in
from redrive.app.gateway.service import check_request, kind_of, read_service
from redrive.inbound import read_source
from redrive.model.destination import Destination, check_destination_name
from redrive.model.rule import Stored
from redrive.model.schedule import Schedule
from redrive.operations.drafting import Decide, Preview

__all__ = ["Drafter"]

_STORED = "secret:"


class Drafter:
    """`operations.services.Drafting`, by the kinds of ways that are installed here."""

    def check_service(self, name: str, document: Mapping[str, object]) -> None:
        """Refuse what is wrong with a service."""
        check_destination_name(name)
        read_service(name, document)

    def check_rule(
        self,
        name: str,
        document: Mapping[str, object],
        services: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
    ) -> str:
        """Refuse what is wrong with a rule, by the services known; return where it leads."""
        service = read_rule(name, document).service
        if service in services:
            check_request(name, document, kind_of(services[service]))
        return service

    def check_source(self, name: str, document: Mapping[str, object]) -> None:
        """Refuse what is wrong with a source."""
        read_source(name, document, resolve=placeholder)

    def check_schedule(self, name: str, document: Mapping[str, object]) -> None:
        """Refuse what is wrong with a schedule."""
        read_schedule(name, document)

    def schedule(self, kept: Stored) -> Schedule:
        """Return a stored schedule as workers go by it."""
        return read_schedule(kept.name, kept.document, version=kept.version)

    def secrets_of(self, document: Mapping[str, object]) -> frozenset[str]:
        """Return the names of the stored secrets that a document refers to."""
        found = references_in(dict(document))
        return frozenset(one.removeprefix(_STORED) for one in found if one.startswith(_STORED))

    def decider(self, service: Stored, rule: Stored) -> Decide:
        """Return what tells whether a rule would give an event to its service."""
        return decider(
            read_service(service.name, service.document), read_rule(rule.name, rule.document)
        )

    def previewer(self, service: Stored, rule: Stored) -> Preview:
        """Return what tells what a rule makes of events, enabled or not."""
        return previewer(
            read_service(service.name, service.document),
            read_rule(rule.name, rule.document),
            version=rule.version,
        )

    def destination(self, service: Stored, rules: Sequence[Stored]) -> Destination:
        """Return a service with its rules as routing has it."""
        routes = tuple(route for one in rules if (route := route_of(one)) is not None)
        return read_service(service.name, service.document).destination(service.version, routes)
