"""Deliveries to send, and a transport to send them by."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Unpack

import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult

from redrive.clock import Clock, SystemClock
from redrive.model.delivery import DeliveryId, Kind, Lease, Leased
from redrive.model.event import Event, EventId
from redrive.model.outcome import Faulted, Outcome
from redrive.policies.terms import Terms
from redrive.transports.http import HttpOptions, http
from redrive.transports.http.transport import HttpTransport
from redrive.transports.http.wires import Wires
from redrive.transports.options import read_networks


class FakeResolver(AbstractResolver):
    """Answers each question with the next list of addresses."""

    def __init__(self, *answers: tuple[str, ...]) -> None:
        self._answers = list(answers)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                "proto": 0,
                "flags": 0,
            }
            for address in addresses
        ]

    async def close(self) -> None: ...


def leased(payload: bytes = b'{"order":42}', *, number: int = 1, **headers: str) -> Leased:
    now = SystemClock().now()
    return Leased(
        lease=Lease(DeliveryId(number), 1),
        destination="crm",
        event=Event(
            id=EventId(f"01890000-0000-7000-8000-{number:012x}"),
            type="order.paid",
            payload=msgspec.Raw(payload),
            published_at=now,
            occurred_at=now,
            headers=headers,
        ),
        attempt=1,
        kind=Kind.FIRST,
        claimed_at=now,
        enqueued_at=now,
    )


@asynccontextmanager
async def transport_to(
    url: str,
    *,
    terms: Terms | None = None,
    clock: Clock | None = None,
    resolver: AbstractResolver | None = None,
    **options: Unpack[HttpOptions],
) -> AsyncIterator[HttpTransport]:
    """Make a transport that may reach loopback, unless the options say what it may reach.

    An address that they do not allow is declared all the same: it is the transport that is tried.
    """
    if "allow_private" not in options and "allow_networks" not in options:
        options["allow_networks"] = ("127.0.0.1",)
    allowed = read_networks(options.get("allow_private", False), options.get("allow_networks", ()))
    options["allow_private"] = True
    transport = HttpTransport(
        msgspec.structs.replace(http(url, **options), allowed=allowed),
        terms=terms or Terms(),
        clock=clock or SystemClock(),
        wires=Wires(resolver),
    )
    try:
        yield transport
    finally:
        await transport.close()


async def send(url: str, *deliveries: Leased, **options: Unpack[HttpOptions]) -> Outcome:
    """Send what may be one delivery or a batch, and return the outcome that all of it has."""
    async with transport_to(url, **options) as transport:
        sent = deliveries or (leased(),)
        outcomes = await transport.send(sent)
    assert len(outcomes) == len(sent)
    assert all(one == outcomes[0] for one in outcomes)
    return outcomes[0]


async def fail(url: str, *deliveries: Leased, **options: Unpack[HttpOptions]) -> Faulted:
    """Send, and return the failure."""
    outcome = await send(url, *deliveries, **options)
    assert isinstance(outcome, Faulted)
    return outcome
