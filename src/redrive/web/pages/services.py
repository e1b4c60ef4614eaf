"""Services that the store describes: what there is, one of them, and stopping it."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from redrive.model.request_log import LoggedRequest
from redrive.model.rule import Stored
from redrive.store import DestinationFigures
from redrive.web.pages.documents import VersionRow, back, text_of, version_rows
from redrive.web.pages.numbered import Numbered, Sought
from redrive.web.pages.page import Moved, Page, Visit

__all__ = [
    "ServiceRow",
    "ServiceView",
    "delete_service",
    "disable_service",
    "enable_service",
    "show_service",
    "show_services",
]

_MOST_REQUESTS = 20


class ServiceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A service, where it leads, by how many rules, and how its destination fares."""

    service: Stored
    where: str
    rules: int
    figures: DestinationFigures | None = None

    @property
    def kind(self) -> str:
        """By which way it is sent to."""
        return str(self.service.document.get("kind", "http"))

    @property
    def tenant(self) -> str:
        """Whose events it gets; everybody's if it is empty."""
        return str(self.service.document.get("tenant", ""))


class ServiceView(msgspec.Struct, frozen=True, kw_only=True):
    """A service, its rules, and its versions."""

    row: ServiceRow
    text: str
    rules: tuple[Stored, ...]
    versions: tuple[VersionRow, ...]
    requests: tuple[LoggedRequest, ...]


async def show_services(visit: Visit) -> Page:
    """Show the services that the store describes."""
    sought = Sought.by(visit)
    found = [one for one in await visit.operations.services() if sought.fits(one.name)]
    shown = sought.shown(found)
    rules: dict[str, int] = {}
    for one in await visit.operations.rules() if shown else ():
        rules[one.service] = rules.get(one.service, 0) + 1
    figures = await _figures(visit) if shown else {}
    rows = tuple(_row(one, rules.get(one.name, 0), figures.get(one.name)) for one in shown)
    model = Numbered(path="/services", rows=rows, sought=sought, found=len(found))
    return Page(template="services.html", title="Services", model=model)


async def show_service(visit: Visit) -> Page:
    """Show one service, what leads there, and what it was before."""
    [service] = await visit.operations.services(name=visit.name)
    rules = await visit.operations.rules(service=visit.name)
    versions = await visit.operations.past_versions("service", visit.name)
    model = ServiceView(
        row=_row(service, len(rules), (await _figures(visit)).get(service.name)),
        text=text_of(service.document),
        rules=tuple(rules),
        versions=version_rows(versions),
        requests=tuple(await visit.operations.request_log(visit.name, limit=_MOST_REQUESTS)),
    )
    return Page(template="service.html", title=service.name, model=model)


async def enable_service(visit: Visit) -> Moved:
    """Serve a service again."""
    await visit.operations.alter_service(visit.name, {"enabled": True}, by=visit.by, why=visit.why)
    return back("service", visit, f"{visit.name} is served again; what waited for it is sent.")


async def disable_service(visit: Visit) -> Moved:
    """Send a service nothing, so that what it gets waits."""
    await visit.operations.alter_service(visit.name, {"enabled": False}, by=visit.by, why=visit.why)
    return back("service", visit, f"{visit.name} is disabled; what it gets waits.")


async def delete_service(visit: Visit) -> Moved:
    """Delete a service and all rules to it."""
    await visit.operations.delete_service(
        visit.name,
        by=visit.by,
        why=visit.why,
        leave_waiting=visit.form.get("leave_waiting") == "yes",
    )
    return Moved("/services", f"{visit.name} and the rules to it were deleted.")


async def _figures(visit: Visit) -> dict[str, DestinationFigures]:
    return {one.name: one for one in (await visit.operations.status()).destinations}


def _row(service: Stored, rules: int, figures: DestinationFigures | None) -> ServiceRow:
    url = service.document.get("url")
    where = (
        urlsplit(url).netloc or url if isinstance(url, str) else service.document.get("path", "")
    )
    return ServiceRow(service=service, where=str(where), rules=rules, figures=figures)
