"""The HTTP transport: one request per delivery or batch, over connections that are used again."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import Sequence
from urllib.parse import urljoin

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from redrive.clock import Clock
from redrive.model.delivery import Leased
from redrive.model.health import HealthCheck
from redrive.model.outcome import Faulted, Nature, Outcome, Succeeded
from redrive.policies.http import classify_status
from redrive.policies.terms import Terms
from redrive.transports.http.declaration import HttpBlueprint
from redrive.transports.http.exchange import exchange_of
from redrive.transports.http.faults import Answer, refused, unreachable
from redrive.transports.http.request import Request, compose
from redrive.transports.ssrf import AddressRefused, Network, check_address, guarded

__all__ = ["HttpTransport"]

_READ_BUFFER = 2**14
_LARGE_BODY = 2**20
_SUCCESSES = range(200, 300)
_SUCCEEDED = Succeeded()
_ABOUT_CONTENT = ("400", "413", "422")


class HttpTransport:
    """Sends events to one URL; belongs to one worker, and so to one event loop.

    A redirect is not followed, a cookie not kept, a proxy of the environment not used: each would
    lead somewhere that nobody has checked.
    """

    def __init__(
        self,
        plan: HttpBlueprint,
        *,
        terms: Terms,
        clock: Clock,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self.batch = plan.batch or 1
        self._plan = plan
        self._terms = terms
        self._clock = clock
        self._resolver = resolver
        self._url = URL(plan.url)
        self._client: aiohttp.ClientSession | None = None

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        outcome = await self._attempt(deliveries)
        if len(deliveries) == 1 or not _is_about_content(outcome):
            return [outcome] * len(deliveries)
        # One event that the destination cannot take must not condemn those beside it.
        async with asyncio.TaskGroup() as group:
            alone = [group.create_task(self._attempt([one])) for one in deliveries]
        return [task.result() for task in alone]

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _attempt(self, deliveries: Sequence[Leased]) -> Outcome:
        plan = self._plan
        request = compose(plan, deliveries, now=self._clock.now())
        body = request.body
        try:
            async with self._open().request(
                plan.method,
                self._url,
                headers=request.headers,
                data=body if len(body) <= _LARGE_BODY else io.BytesIO(body),
                allow_redirects=False,
            ) as response:
                read = b"" if response.content.at_eof() else await self._read(response)
                if response.status in _SUCCESSES:
                    return _SUCCEEDED
        except Exception as error:  # noqa: BLE001 - whatever the client raises is an outcome
            faulted = unreachable(plan, error, self._terms)
            exchange = exchange_of(plan, request)
            return msgspec.structs.replace(faulted, exchange=exchange)
        return self._refused(request, response, read)

    def _refused(self, request: Request, response: aiohttp.ClientResponse, read: bytes) -> Outcome:
        plan = self._plan
        answer = Answer(
            status=response.status,
            reason=response.reason or "",
            headers=tuple(response.headers.items()),
            body=b"" if "content-encoding" in response.headers else read,
        )
        verdict = classify_status(
            answer.status,
            now=self._clock.now(),
            retry_after=response.headers.get("retry-after"),
            retry_on_status=plan.retry_on_status,
        )
        if verdict is None:
            return _SUCCEEDED
        exchange = exchange_of(plan, request, answer)
        return msgspec.structs.replace(refused(plan, answer, verdict), exchange=exchange)

    async def check_health(self, health: HealthCheck) -> str:
        url = URL(urljoin(self._plan.url, str(health.ask)))
        headers = self._plan.headers if url.origin() == self._url.origin() else {}
        try:
            async with self._open().request(
                health.method, url, headers=headers, allow_redirects=False
            ) as response:
                is_well = response.status in _SUCCESSES
                return "" if is_well else f"{self._plan.host} answered {response.status}"
        except Exception as error:  # noqa: BLE001 - whatever the client raises, it is not well
            return unreachable(self._plan, error, self._terms).fault.message

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the answer's body as far as it is worth reading."""
        limit, read = self._plan.response_limit, bytearray()
        try:
            while chunk := await response.content.read(limit - len(read)):
                read += chunk
                if len(read) >= limit:
                    # The rest would only be read to be thrown away; a new connection is cheaper.
                    response.close()
                    break
        except (aiohttp.ClientError, OSError):
            # Half of a success is none: the destination may not have finished its work.
            # What refuses us has said so in its first line.
            if response.ok:
                raise
        return bytes(read)

    def _open(self) -> aiohttp.ClientSession:
        if self._client is None:
            plan = self._plan
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=plan.connections,
                    ssl=plan.tls or True,
                    resolver=_GuardedResolver(self._resolver, plan.allowed),
                    socket_factory=guarded(plan.allowed),
                ),
                # The engine ends an attempt that takes too long; only connecting has its own limit.
                timeout=aiohttp.ClientTimeout(sock_connect=plan.connect_timeout.total_seconds()),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                read_bufsize=_READ_BUFFER,
            )
        return self._client


class _GuardedResolver(AbstractResolver):
    """Leaves out the addresses that the socket would refuse anyway.

    So a host that has a public address and a private one is reached by the first, and its failure
    is that of the first; one that has only private ones is refused.
    """

    def __init__(self, resolver: AbstractResolver | None, allowed: Sequence[Network]) -> None:
        self._resolver = resolver or aiohttp.ThreadedResolver()
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        if not found:
            raise OSError("the name has no address")
        refusals = [check_address(one["host"], self._allowed) for one in found]
        allowed = [one for one, why in zip(found, refusals, strict=True) if why is None]
        if not allowed:
            raise AddressRefused(found[0]["host"], refusals[0] or "")
        return allowed

    async def close(self) -> None:
        await self._resolver.close()


def _is_about_content(outcome: Outcome) -> bool:
    return (
        isinstance(outcome, Faulted)
        and outcome.nature is Nature.TERMINAL
        and outcome.fault.code in _ABOUT_CONTENT
    )
