"""The HTTP transport: one request per delivery or batch, over connections that are used again."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from urllib.parse import urljoin

import aiohttp
import msgspec
from yarl import URL

from redrive.clock import Clock
from redrive.model.delivery import Leased
from redrive.model.health import HealthCheck
from redrive.model.outcome import Exchange, Faulted, Nature, Outcome, Succeeded
from redrive.policies.http import classify_status
from redrive.policies.terms import Terms
from redrive.transport import Answer, Asked, Shape, Shaping
from redrive.transports.http.declaration import HttpBlueprint
from redrive.transports.http.exchange import exchange_of
from redrive.transports.http.faults import refused, unreachable
from redrive.transports.http.format import PARTIAL, Format
from redrive.transports.http.request import Request, compose
from redrive.transports.http.tokens import NoToken, Tokens
from redrive.transports.http.wires import Wire, Wires

__all__ = ["HttpTransport"]

_LARGE_BODY = 2**20
_SUCCESSES = range(200, 300)
_SUCCEEDED = Succeeded()
_TAKEN = Asked(outcome=_SUCCEEDED)
_AS_IT_IS = Shape()
_UNAUTHORIZED = "401"
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
        shaping: Shaping | None = None,
        written: Format | None = None,
        batch: int | None = None,
        wires: Wires | None = None,
    ) -> None:
        self.batch = batch or plan.batch or 1
        self._format = written
        self.takes_shapes = written is None
        self._plan = plan
        self._terms = terms
        self._clock = clock
        self._shaping = shaping
        self._url = URL(plan.url)
        self._wire = Wire(plan, wires or Wires())
        self._taken: dict[int, Asked] = {}
        self._tokens = (
            None if plan.oauth2 is None else Tokens(plan, plan.oauth2, terms=terms, clock=clock)
        )

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        outcome = await self._attempt(deliveries)
        if len(deliveries) == 1 or not _is_about_content(outcome):
            return [outcome] * len(deliveries)
        # One event that the destination cannot take must not condemn those beside it.
        async with asyncio.TaskGroup() as group:
            alone = [group.create_task(self._attempt([one])) for one in deliveries]
        return [task.result() for task in alone]

    async def close(self) -> None:
        await self._wire.close()

    async def ask(self, delivery: Leased, shape: Shape) -> Asked:
        return await self._exchange([delivery], shape, tells=True)

    async def _attempt(self, deliveries: Sequence[Leased]) -> Outcome:
        return (await self._exchange(deliveries, _AS_IT_IS)).outcome

    async def _exchange(
        self, deliveries: Sequence[Leased], shape: Shape, *, tells: bool = False
    ) -> Asked:
        """Send once; if it `tells`, a success comes with its answer."""
        request = await self._compose(deliveries, shape)
        if not isinstance(request, Request):
            return Asked(outcome=request)
        if self._tokens is None:
            return await self._request(self._plan, request, tells=tells)
        return await self._with_token(self._tokens, request, tells=tells)

    async def _with_token(self, tokens: Tokens, request: Request, *, tells: bool) -> Asked:
        """Send with a token, and once more with a new one if that is refused."""
        refused = ""
        while True:
            try:
                token = await tokens.token(self._wire, but=refused)
            except NoToken as none:
                exchange = exchange_of(self._plan, request)
                faulted = msgspec.structs.replace(none.faulted, exchange=exchange)
                return Asked(outcome=faulted, exchange=exchange)
            headers = {**request.headers, "authorization": f"Bearer {token}"}
            secrets = sorted((*self._plan.secrets, token), key=len, reverse=True)
            asked = await self._request(
                msgspec.structs.replace(self._plan, secrets=tuple(secrets)),
                msgspec.structs.replace(request, headers=headers),
                tells=tells,
            )
            if refused or not _is_unauthorized(asked.outcome):
                return asked
            refused = token

    async def _request(self, plan: HttpBlueprint, request: Request, *, tells: bool) -> Asked:
        body = request.body
        try:
            async with (
                self._wire.places,
                self._wire.request(
                    request.method,
                    self._url if request.url == plan.url else URL(request.url),
                    headers=request.headers,
                    data=body if len(body) <= _LARGE_BODY else io.BytesIO(body),
                ) as response,
            ):
                read = b"" if response.content.at_eof() else await self._read(response)
                if response.status in _SUCCESSES and not tells and self._is_taken(response, read):
                    return self._took(response.status)
        except Exception as error:  # noqa: BLE001 - whatever the client raises is an outcome
            faulted = unreachable(plan, error, self._terms)
            exchange = exchange_of(plan, request)
            faulted = msgspec.structs.replace(faulted, exchange=exchange)
            return Asked(outcome=faulted, exchange=exchange)
        return self._answered(plan, request, response, read)

    def _took(self, status: int) -> Asked:
        """Return a success, with its status where there is a log to tell it."""
        if self._terms.request_log is None:
            return _TAKEN
        if status not in self._taken:
            self._taken[status] = Asked(outcome=Succeeded(code=str(status)))
        return self._taken[status]

    async def _compose(self, deliveries: Sequence[Leased], shape: Shape) -> Request | Outcome:
        now = self._clock.now()
        if self._format is not None:
            return await self._format.compose(deliveries, now=now)
        if self._shaping is not None and deliveries[0].rule:
            shaped = await self._shaping.shape(deliveries[0])
            if not isinstance(shaped, Shape):
                return shaped
            shape = shaped
        return compose(self._plan, deliveries, now=now, shape=shape)

    def _answered(
        self, plan: HttpBlueprint, request: Request, response: aiohttp.ClientResponse, read: bytes
    ) -> Asked:
        answer = self._answer(response, read)
        exchange = exchange_of(plan, request, answer)
        outcome = self._judged(plan, answer, response, exchange)
        return Asked(outcome=outcome, answer=answer, exchange=exchange)

    def _answer(self, response: aiohttp.ClientResponse, read: bytes) -> Answer:
        return Answer(
            status=response.status,
            reason=response.reason or "",
            headers=tuple(response.headers.items()),
            body=b"" if "content-encoding" in response.headers else read,
            is_cut=len(read) >= self._plan.response_limit,
        )

    def _is_taken(self, response: aiohttp.ClientResponse, read: bytes) -> bool:
        """Tell whether a success means that all was taken."""
        if self._format is None:
            return True
        return self._format.judge(self._answer(response, read), None) is None

    def _judged(
        self,
        plan: HttpBlueprint,
        answer: Answer,
        response: aiohttp.ClientResponse,
        exchange: Exchange,
    ) -> Outcome:
        verdict = classify_status(
            answer.status,
            now=self._clock.now(),
            retry_after=response.headers.get("retry-after"),
            retry_on_status=plan.retry_on_status,
        )
        if self._format is not None:
            verdict = self._format.judge(answer, verdict)
        if verdict is None:
            return _SUCCEEDED
        return msgspec.structs.replace(refused(plan, answer, verdict), exchange=exchange)

    async def check_health(self, health: HealthCheck) -> str:
        url = URL(urljoin(self._plan.url, str(health.ask)))
        is_theirs = url.origin() == self._url.origin()
        headers = dict(self._plan.headers) if is_theirs else {}
        try:
            if is_theirs and self._tokens is not None:
                token = await self._tokens.token(self._wire)
                headers["authorization"] = f"Bearer {token}"
            async with self._wire.request(health.method, url, headers=headers) as response:
                is_well = response.status in _SUCCESSES
                return "" if is_well else f"{self._plan.host} answered {response.status}"
        except NoToken as none:
            return none.faulted.fault.message
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


def _is_unauthorized(outcome: Outcome) -> bool:
    return isinstance(outcome, Faulted) and outcome.fault.code == _UNAUTHORIZED


def _is_about_content(outcome: Outcome) -> bool:
    return (
        isinstance(outcome, Faulted)
        and outcome.nature is Nature.TERMINAL
        and (outcome.fault.code in _ABOUT_CONTENT or outcome.fault.rule == PARTIAL)
    )
