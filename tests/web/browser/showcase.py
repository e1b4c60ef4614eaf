"""A shop on a bad morning: everything that the dashboard can show, at a time that stands still."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from redrive import Breaker, Event, Redrive, Retry
from redrive.journal.line import EventRecord
from redrive.journal.writer import JournalWriter
from redrive.model.audit import AuditQuery
from redrive.model.delivery import Leased
from redrive.model.outcome import Exchange, Fault, Faulted, Nature, Outcome, Succeeded
from redrive.operations import GatewayDocument
from redrive.testing import Kit
from redrive.web.server import HttpServer, listen
from tests.conformance.world import an_event

TENANTS = ("acme", "globex", "initech")
EXPIRED = "certificate verify failed: certificate has expired"
GATEWAY = GatewayDocument(
    services={
        "hubspot": {
            "url": "https://api.hubspot.example/crm",
            "auth": {"bearer": "env:HUBSPOT_TOKEN"},
            "rate": "10/s",
        },
        "erp": {"url": "https://erp.example/in", "tenant": "acme"},
    },
    rules={
        "contacts": {
            "service": "hubspot",
            "event": "order.*",
            "condition": "payload.total >= 100",
            "method": "PUT",
            "path": "/v2/contacts",
            "template": {"order": "{{ payload.order }}", "total": "{{ payload.total }}"},
        },
        "invoices": {"service": "erp", "event": ["order.paid", "invoice.*"]},
    },
    sources={
        "stripe": {
            "kind": "stripe",
            "secrets": ["env:STRIPE_SECRET"],
            "key": "{{ payload.data.object.customer }}",
        },
        "lamp": {"kind": "open", "event": "lamp.lit", "enabled": False},
    },
)
EVIL = "<script>hit()</script><img src=x onerror=hit()><svg onload=hit()>\"'`{{7*7}}"
"""What would call `hit` wherever it became markup; pages count the calls."""


class Service:
    """A service over HTTP, as its transport sees it: well, or answering with an error."""

    batch = 1

    def __init__(self, name: str) -> None:
        self.name = name
        self.error = ""
        self.status: int | None = None

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        return [self._answer(one) for one in deliveries]

    def _answer(self, leased: Leased) -> Outcome:
        if not self.error:
            return Succeeded()
        exchange = Exchange(
            method="POST",
            url=f"https://{self.name}.example/hooks/orders",
            headers={
                "Content-Type": "application/json",
                "Webhook-Id": str(leased.event.id),
                "Authorization": "[redacted]",
            },
            size=len(leased.event.payload),
            status=self.status,
            reason="Unprocessable Entity" if self.status else "",
            answer_headers={"Content-Type": "application/json"} if self.status else {},
            body='{"error": "voucher is unknown"}' if self.status else "",
            sent=bytes(leased.event.payload).decode(),
        )
        fault = Fault(
            error_class="HttpError" if self.status else "ClientConnectorCertificateError",
            message=f"{self.status}: {self.error}" if self.status else self.error,
            rule="http",
            stack="" if self.status else _STACK.format(name=self.name, error=self.error),
        )
        nature = Nature.TERMINAL if self.status else Nature.TRANSIENT
        return Faulted(fault=fault, nature=nature, exchange=exchange)


_STACK = """Traceback (most recent call last):
  File "/srv/shop/delivery.py", line 88, in send
    async with self._session.post(url, data=body) as answer:
  File "/srv/shop/connector.py", line 1043, in _create_connection
    raise ClientConnectorCertificateError(key, error) from error
ClientConnectorCertificateError: {name}.example:443: {error}"""


class Showcase:
    """The shop, its services, and where its dashboard is."""

    def __init__(self, kit: Kit, app: Redrive, services: dict[str, Service], url: str) -> None:
        self.kit = kit
        self.app = app
        self.operations = app.operations
        self.services = services
        self.url = url
        self._number = 0

    async def sell(self, count: int, *, every: str = "0s", **more: Any) -> None:  # noqa: ANN401 - attributes of an event
        """Publish orders of all tenants, with a little time between them."""
        for _ in range(count):
            self._number += 1
            number = 1000 + self._number
            payload = {"order": number, "total": 49.9, "voucher": "SPRING", "card": "visa-4111"}
            attributes = {
                "key": f"order-{number}",
                "tenant": TENANTS[self._number % len(TENANTS)],
                "source": "shop",
                "headers": {"trace": f"7f3a{number}"},
                **more,
            }
            await self.app.publish("order.paid", attributes.pop("payload", payload), **attributes)
            await self.kit.drain()
            self.kit.clock.advance(every)

    async def group(self, part: str = "") -> str:
        """Where the largest group is shown whose title says this."""
        found = [one for one in await self.operations.groups() if part in one.title]
        return f"/dead-letters/groups/{found[0].id}"

    async def edited(self) -> int:
        """The number of the delivery that somebody has edited."""
        [entry] = await self.operations.audit(AuditQuery(action="edit"), limit=1)
        return entry.deliveries[0]

    async def letter(self, destination: str) -> int:
        """The number of the latest dead letter of a destination."""
        page = await self.operations.dead_letters(limit=200)
        return next(one.id for one in page.deliveries if one.destination == destination)


def a_shop() -> tuple[Redrive, dict[str, Service]]:
    """Declare the shop: two services over HTTP, two handlers, a schedule and a projection."""
    app = Redrive(lease="60s", concurrency=50)
    services = {name: Service(name) for name in ("billing", "warehouse", "crm")}
    quick = Retry(max_attempts=3, base="10s", jitter="none")
    app.destination(
        "billing",
        "order.*",
        transport=services["billing"],
        retry=quick,
        breaker=None,
        order="park",
        rate="50/s",
        retry_rate="5/s",
        replay_rate="10/s",
    )
    app.destination(
        "warehouse", "order.*", transport=services["warehouse"], retry=quick, breaker=None
    )
    app.destination(
        "crm",
        "order.*",
        transport=services["crm"],
        breaker=Breaker(failures=3, open_for="5m", longest_open="5m"),
        retry=Retry(max_attempts=20, base="1m"),
    )

    @app.handler("order.*", name="mail")
    async def mail(event: Event[Any]) -> None: ...

    @app.projection("order.*", name="sales")
    async def sales(event: Event[Any], model: Any) -> None: ...  # noqa: ANN401 - whatever the store has

    app.schedule("0 2 * * *", "report.due", name="nightly-report", timezone="Europe/Berlin")
    app.schedule(every="15m", type="stock.checked", name="stock-check")
    return app, services


@asynccontextmanager
async def serving(kit: Kit, app: Redrive, services: dict[str, Service]) -> AsyncIterator[Showcase]:
    """Serve the dashboard of an app at a port of its own."""
    with listen("127.0.0.1", 0) as listening:
        server = HttpServer(app.asgi(login=False), proxies=(), root_path="", grace=1)
        task = asyncio.create_task(server.serve([listening]))
        port = listening.getsockname()[1]
        try:
            yield Showcase(kit, app, services, f"http://127.0.0.1:{port}")
        finally:
            server.stop()
            await task


async def places(shop: Showcase) -> dict[str, str]:
    """Return a name and the path of each page that there is something on."""
    letter = await shop.letter("warehouse")
    event = (await shop.operations.show(letter)).event
    group = await shop.group("certificate")
    return {
        "overview": "/",
        "causes": "/dead-letters",
        "group": group,
        "plan": f"{group}/replay",
        "delivery": f"/deliveries/{letter}",
        "edited": f"/deliveries/{await shop.edited()}",
        "destinations": "/destinations",
        "destination": "/destinations/billing",
        "search": "/search?text=voucher",
        "event": f"/events/{event.id}",
        "replays": "/replays",
        "replay": "/replays/1",
        "projections": "/projections",
        "schedules": "/schedules",
        "services": "/services",
        "service": "/services/hubspot",
        "rules": "/rules",
        "rule": "/rules/contacts",
        "sources": "/sources",
        "source": "/sources/stripe",
        "erase": f"/erase?event={event.id}",
        "tenants": "/tenants",
        "workers": "/workers",
        "journal": "/journal",
        "audit": "/audit",
        "access": "/access",
        "settings": "/settings",
        "problem": "/deliveries/999999",
    }


def _write_journal(kit: Kit) -> None:
    """Leave what a process wrote down while the store was away, and never came back to."""
    folder = kit._ports.journal  # noqa: SLF001 - where the kit keeps it
    assert folder is not None
    writer = JournalWriter(folder, clock=kit.clock, host="web-2")
    seen = [an_event({"page": number}, type="page.seen", tenant="acme") for number in range(3)]
    writer.append([EventRecord(event=one) for one in seen])
    writer.let_go()
    at = (kit.clock.now() - timedelta(minutes=12)).timestamp()
    for file in folder.iterdir():
        os.utime(file, (at, at))


async def tell(shop: Showcase) -> None:
    """Let the morning pass: first all is well, then certificates expire, and people act."""
    operations, clock, services = shop.operations, shop.kit.clock, shop.services
    await shop.sell(6, every="20m")
    services["warehouse"].error, services["warehouse"].status = "voucher is unknown", 422
    await shop.sell(4, every="10m")
    services["warehouse"].error = ""
    await operations.start_replay(by="user:ann", why="release 41 knows vouchers", canary=1)
    await shop.kit.run_for("1m")
    services["warehouse"].error = "voucher is unknown"
    await shop.sell(3, every="5m")
    services["warehouse"].error, services["warehouse"].status = "", None
    services["billing"].error = EXPIRED
    await shop.sell(9, every="2m")
    await shop.kit.run_for("3m")
    services["crm"].error = "Cannot connect to host crm.example:443"
    await shop.sell(5, every="20s")
    letter = await shop.letter("billing")
    await operations.edit(
        letter, {"order": 1027, "total": 59.9}, by="user:ann", why="the total was wrong"
    )
    await shop.kit.run_for("1m")
    await operations.pause("mail", by="user:bob", why="the provider asked us to wait until noon")
    await operations.override(
        "warehouse", lasts="2h", by="user:ann", why="they asked for less", rate="5/s"
    )
    await operations.pause_tenant("initech", by="user:bob", why="they are over quota")
    await operations.create_token(
        "shop", role="publish", by="user:ann", why="the shop publishes orders", expires_in="90d"
    )
    await operations.add_user(
        "ann", "a long enough password", role="admin", by="local", why="she runs it"
    )
    await operations.pause_schedule("nightly-report", by="user:bob", why="year-end closing")
    services["billing"].error = ""
    clock.advance("40s")
    await shop.sell(2)
    _write_journal(shop.kit)
    await operations.apply_gateway(GATEWAY, by="user:ann", why="sales want contacts")
    await operations.alter_rule(
        "contacts", {"path": "/v3/contacts"}, by="user:bob", why="their second version goes"
    )
    await operations.alter_service("erp", {"enabled": False}, by="user:bob", why="they move")
    clock.advance("15s")
