"""What a store promises about services, rules, sources and schedules of nobody's code."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol, Self

import msgspec

from redrive.model.access import WHOLE_STORE, Scope
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.destination import Destination
from redrive.model.rule import DOCUMENT_KINDS, DocumentKind, Stored
from redrive.model.schedule import Schedule

__all__ = ["Gateway", "GatewayChange", "KeptVersion", "Services"]


class Gateway(msgspec.Struct, frozen=True, kw_only=True):
    """What is in force, as of a revision that grows with each change."""

    revision: int
    services: tuple[Stored, ...] = ()
    rules: tuple[Stored, ...] = ()
    sources: tuple[Stored, ...] = ()
    schedules: tuple[Stored, ...] = ()

    @classmethod
    def holding(cls, kept: Collection[Stored], *, revision: int) -> Self:
        """Return documents by their kinds."""
        by_kind = {
            f"{kind}s": tuple(one for one in kept if one.kind == kind) for kind in DOCUMENT_KINDS
        }
        return cls(revision=revision, **by_kind)

    def of(self, kind: DocumentKind) -> tuple[Stored, ...]:
        """Return the documents of a kind."""
        found: tuple[Stored, ...] = getattr(self, f"{kind}s")
        return found


class GatewayChange(msgspec.Struct, frozen=True, kw_only=True):
    """What changes together: versions that take effect, what goes, and what routing gets of it.

    `destinations` are those of the services concerned and `schedules` those that are kept, as they
    are from then on. `details` are what the audit log says, an entry each.
    """

    kept: tuple[Stored, ...] = ()
    gone: tuple[Stored, ...] = ()
    destinations: tuple[Destination, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    details: tuple[str, ...] = ()


class KeptVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version that was kept at some time: when, by whom, and whether it is in force."""

    kept: Stored
    at: datetime
    by: str
    why: str
    is_current: bool


class Services(Protocol):
    """Services, rules, sources and schedules, of which every version is kept."""

    async def gateway(self, services: Collection[str] | None = None) -> Gateway:
        """Return these services and all rules to them; without names, everything.

        `NO_SERVICE` among the names gives sources and schedules.
        """

    async def change_gateway(
        self, change: GatewayChange, *, revision: int, actor: Actor
    ) -> int | None:
        """Carry out a change worked out from a revision; `None`, and nothing, if that is past.

        It gives a new version of the routes. A destination that code has declared, and nobody has
        removed, is left to it, and so is a schedule: `ConfigurationError`. A schedule counts from
        when it or its times are changed. Returns the new revision.
        """

    async def next_versions(self, names: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """Return for each kind and name the version that comes next; none is ever given again."""

    async def rule_versions(self, pins: Collection[str]) -> Sequence[Stored]:
        """Return versions of rules by their pins, those no longer in force too."""

    async def find_rules(self, names: Collection[str]) -> Sequence[Stored]:
        """Return rules that are in force, by name."""

    async def render_again(
        self, ids: Sequence[DeliveryId], *, actor: Actor, scope: Scope = WHOLE_STORE
    ) -> Sequence[DeliveryId]:
        """Pin the versions of rules that are in force to dead letters; return those that change.

        A rule that leads to another service by now, or is gone, is left as it was.
        """

    async def past_versions(
        self, kind: str, name: str, *, limit: int = 20
    ) -> Sequence[KeptVersion]:
        """Return the versions of a document of some kind, the latest first."""
