"""Drafts: what requests about services, rules and other documents may hold."""

from __future__ import annotations

from typing import Any

from redrive.operations import GatewayDocument, SampleEvent
from redrive.web.requests import Act, Given, Limit, Text

__all__ = [
    "AlterDocument",
    "ApplyGateway",
    "DeleteService",
    "ListRequests",
    "ListRules",
    "ListServices",
    "ListVersions",
    "PlanGateway",
    "PreviewRule",
    "SaveDocument",
    "TestService",
]


class ListServices(Given, frozen=True, kw_only=True):
    """Which of them, by its name, if not all."""

    name: Text | None = None


class ListRules(ListServices, frozen=True, kw_only=True):
    """Which rule, or those to which service."""

    service: Text | None = None


class ListVersions(Given, frozen=True, kw_only=True):
    """How many versions, at most."""

    limit: Limit = 20


class PreviewRule(Given, frozen=True, kw_only=True):
    """With which event, and with which keys of the rule changed; the last that fit if neither."""

    changes: dict[str, Any] | None = None
    event_id: Text | None = None
    sample: SampleEvent | None = None
    limit: Limit = 10


class PlanGateway(Given, frozen=True, kw_only=True):
    """What is to be in the store, and whether what is not named stays."""

    gateway: GatewayDocument
    keep_others: bool = False


class ApplyGateway(Act, frozen=True, kw_only=True):
    """What is to be in the store, and what becomes of the rest."""

    gateway: GatewayDocument
    keep_others: bool = False
    leave_waiting: bool = False


class ListRequests(Given, frozen=True, kw_only=True):
    """How many of the last."""

    limit: Limit = 50


class TestService(Act, frozen=True, kw_only=True):
    """What is sent: a payload, as an event of a type, in the shape of a rule if one is named."""

    payload: Any = None
    type: Text = "test"
    key: Text | None = None
    tenant: Text | None = None
    rule: Text | None = None


class SaveDocument(Act, frozen=True, kw_only=True):
    """The whole document, and whether it has to be new, or not to be."""

    document: dict[str, Any]
    is_new: bool | None = None


class AlterDocument(Act, frozen=True, kw_only=True):
    """The keys that change; `null` takes one out."""

    changes: dict[str, Any]


class DeleteService(Act, frozen=True, kw_only=True):
    """Whether what waits is left waiting, for a person to decide about."""

    leave_waiting: bool = False
