"""The door of requests: a destination is asked, and its answer is what the caller gets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, get_args

import msgspec

from redrive.app.declaration import BoundToStore, Declaration, Ports
from redrive.app.session import Session
from redrive.app.tracking import AppParts, make_preparer
from redrive.app.working import make_provider
from redrive.calling.caller import Answered, Caller, Question
from redrive.calling.response import Response
from redrive.errors import (
    ConfigurationError,
    RequestError,
    RequestRefusedError,
    UsageError,
    refuse_unknown,
)
from redrive.model.destination import Destination
from redrive.model.duration import Duration, duration
from redrive.model.event import NewEvent
from redrive.model.gate import Hold
from redrive.model.outcome import Fault
from redrive.operations import ServiceTest
from redrive.store import Store, refuse_in_transaction
from redrive.transport import Closing, Endpoint, Shape
from redrive.transports.http.headers import check_headers
from redrive.transports.http.options import Method

if TYPE_CHECKING:
    from redrive.sealing import Secrets
    from redrive.worker.provider import Provider

__all__ = ["CallMethod", "CallingDesk", "CallingDoor", "Inquiry", "RequestOptions"]

CallMethod = Literal["GET", "HEAD"] | Method
_METHODS = tuple(name for one in get_args(CallMethod) for name in (get_args(one) or (one,)))
_BODILESS = ("GET", "HEAD", "DELETE")
_LONGEST_TEST = timedelta(minutes=5)
_SLACK = timedelta(seconds=60)
"""How long after its last use, at the least, a way is closed whose service has changed."""


class RequestOptions(TypedDict, total=False):
    """How a destination is asked."""

    method: CallMethod
    """The method, instead of the destination's own."""
    path: str
    """What follows the address of the destination, such as `/orders/42?full=1`."""
    headers: Mapping[str, str]
    """Headers beside those of the destination."""
    type: str
    """The type of the event that is published instead; `retry_overrides` go by it, too."""
    key: str | None
    """The key of that event."""
    tenant: str | None
    """The tenant for whom it is asked."""
    timeout: Duration
    """How long it may take, with all tries and the waits between them; 30s by default."""
    fallback: Literal["publish"] | None
    """What becomes of a request that was not answered, but may be later."""


class CallingDoor:
    """What an app asks by; `Redrive` is one."""

    _calling_desk: CallingDesk

    async def request(
        self, service: str, payload: object = None, **options: Unpack[RequestOptions]
    ) -> Response:
        """Ask a service, or an HTTP destination of the code, and return what it answers.

        It goes through the same gate as deliveries, is retried as they are within the `timeout`,
        and leaves none behind. Whatever is answered in the end is returned, an error too. If the
        gate lets nothing through, `RequestRefusedError` says so at once; `RequestError` is for no
        answer at all. With `fallback="publish"` what may still succeed later is published to the
        destination instead, as an event of this `type`, under the id that was sent before.
        """
        return await self._calling_desk.ask(Inquiry(service, payload, options))


class Inquiry:
    """What is asked of whom, checked."""

    def __init__(self, service: str, payload: object, options: RequestOptions) -> None:
        refuse_unknown(options, RequestOptions.__annotations__, what="request option")
        method, path = options.get("method"), options.get("path", "")
        if method is not None and method not in _METHODS:
            raise ConfigurationError(f"method is {method!r}; it is one of {', '.join(_METHODS)}.")
        if path and not (isinstance(path, str) and path.startswith("/")):
            raise ConfigurationError(
                f'path is {path!r}; it begins with a slash, such as "/orders/42", and follows the '
                "address of the destination."
            )
        self.timeout = duration(options.get("timeout", "30s"), name="timeout")
        if not self.timeout:
            raise ConfigurationError('timeout is 0s, and nobody answers in no time; try "5s".')
        self.service = service
        self.event = NewEvent(
            type=options.get("type", "request"),
            payload=payload,
            key=options.get("key"),
            tenant=options.get("tenant"),
            to=service,
        )
        self.shape = Shape(
            body=b"" if method in _BODILESS and payload is None else None,
            method=method or "",
            path=path,
            headers=check_headers(options.get("headers", {})),
        )
        self.is_published = options.get("fallback") is not None
        if self.is_published:
            self._check_fallback(options.get("fallback"))

    def _check_fallback(self, fallback: object) -> None:
        """Refuse what cannot be published in the place of it."""
        if fallback != "publish":
            raise ConfigurationError(f'fallback is {fallback!r}; write "publish", or leave it out.')
        if self.shape != Shape():
            raise UsageError(
                'fallback="publish" does not go with method, path and headers: what is published '
                "is sent as the destination says. Leave them out, or catch RequestError and "
                "publish what a rule gives its shape."
            )


class CallingDesk:
    """What asks for an app, on whichever event loop it runs."""

    def __init__(
        self,
        session: Callable[[], Awaitable[Session]],
        parts: Callable[[], AppParts],
        *,
        secrets: Callable[[], Secrets],
        wait: Callable[..., Awaitable[object]],
    ) -> None:
        self._session = session
        self._parts = parts
        self._secrets = secrets
        self._wait = wait

    async def ask(self, inquiry: Inquiry) -> Response:
        """Ask, and return the answer; what has none is published, if it is to be, or raised."""
        session, parts = await self._open()
        prepared = make_preparer(parts.settings, parts.ports).prepare(inquiry.event)
        answered = await self._caller(session, parts).ask(
            Question(
                service=inquiry.service,
                event=prepared.event,
                shape=inquiry.shape,
                timeout=inquiry.timeout,
            )
        )
        response = _response(inquiry.service, answered)
        if inquiry.is_published and answered.may_heal:
            receipt = await session.publisher.publish_prepared(inquiry.event, prepared)
            receipt.__dict__["wait"] = self._wait
            return msgspec.structs.replace(response, status=None, receipt=receipt)
        if answered.entrance.hold is not None:
            raise _refusal(inquiry.service, answered)
        if response.status is None:
            said = answered.fault.message if answered.fault else "There was no answer."
            tries = "1 try" if answered.attempts == 1 else f"{answered.attempts} tries"
            raise RequestError(
                f"The destination {inquiry.service!r} gave no answer in {tries}: {said}",
                service=inquiry.service,
                attempts=answered.attempts,
            )
        return response

    async def test(self, service: str, event: NewEvent, rule: str) -> ServiceTest:
        """Send an event once, in the shape of a version of a rule if one is named."""
        session, parts = await self._open()
        prepared = make_preparer(parts.settings, parts.ports).prepare(event)
        answered = await self._caller(session, parts).ask(
            Question(
                service=service,
                event=prepared.event,
                timeout=_LONGEST_TEST,
                most_attempts=1,
                rule=rule,
            )
        )
        hold, fault = answered.entrance.hold, answered.fault
        if hold is not None:
            said = str(_refusal(service, answered))
            fault = Fault(error_class="RequestRefusedError", message=said, rule=str(hold))
        return ServiceTest(
            service=service,
            is_success=hold is None and fault is None,
            rule=rule,
            status=answered.answer.status if answered.answer else None,
            latency=answered.latency,
            hold=str(hold or ""),
            fault=fault,
            exchange=answered.exchange,
        )

    async def _open(self) -> tuple[Session, AppParts]:
        refuse_in_transaction("make a request")
        return await self._session(), self._parts()

    def _caller(self, session: Session, parts: AppParts) -> Caller:
        if session.caller is None:
            session.caller = _make_caller(session.store, parts, self._secrets())
        return session.caller


def _make_caller(store: Store, parts: AppParts, secrets: Secrets) -> Caller:
    """Return what asks for an app, on the event loop of an open store."""
    ways = OwnWays(
        store,
        declared=parts.declared,
        ports=parts.ports,
        lease=parts.settings.lease,
        provider=lambda: make_provider(store, parts.ports, secrets),
    )
    return Caller(
        store,
        ways,
        clock=parts.ports.clock,
        rng=parts.ports.rng,
        observer=parts.observer,
        redaction=parts.settings.redaction,
    )


class OwnWays:
    """The ways of a process to destinations: of its own code, and to services of the store.

    Each is made when it is first asked for, and made anew when its service has changed.
    """

    def __init__(
        self,
        store: Store,
        *,
        declared: Mapping[str, Declaration],
        ports: Ports,
        lease: timedelta,
        provider: Callable[[], Provider],
    ) -> None:
        self._store = store
        self._declared = declared
        self._ports = ports
        self._lease = lease
        self._make_provider = provider
        self._provider: Provider | None = None
        self._known: dict[str, Endpoint] = {}
        self._retired: list[tuple[float, Endpoint]] = []
        self._making = asyncio.Lock()

    async def way(self, destination: Destination) -> Endpoint:
        """Return the way to a destination as it is in force, or say why there is none here."""
        known = self._known.get(destination.name)
        if known is not None and known.destination.service == destination.service:
            return known
        async with self._making:
            known = self._known.get(destination.name)
            if known is None or known.destination.service != destination.service:
                made = await self._make(destination)
                await self._retire(known)
                self._known[destination.name] = made
        return self._known[destination.name]

    async def close(self) -> None:
        """Close all of them; they are made again when they are asked for."""
        open_ones = [*self._known.values(), *(one for _, one in self._retired)]
        self._known, self._retired = {}, []
        for one in open_ones:
            await _close(one)

    async def _make(self, destination: Destination) -> Endpoint:
        name = destination.name
        if destination.service:
            self._provider = self._provider or self._make_provider()
            made = await self._provider.provide([destination])
            if name in made.endpoints:
                return made.endpoints[name]
            raise ConfigurationError(made.unserved.get(name, f"The service {name!r} has gone."))
        declared = self._declared.get(name)
        if declared is None:
            raise UsageError(
                f"The destination {name!r} is declared by code that this process has not; only an "
                "app that declares it can ask it. A service of the store can be asked by all."
            )
        if isinstance(declared.make_transport, BoundToStore):
            raise UsageError(
                f"The destination {name!r} is a handler that writes into the store; a request "
                "needs one that is reached by HTTP."
            )
        return declared.endpoint(self._ports, self._store, lease=self._lease)

    async def _retire(self, known: Endpoint | None) -> None:
        """Let what is under way go on by the way that it has begun with."""
        now = self._ports.clock.monotonic()
        over = [one for until, one in self._retired if until <= now]
        self._retired = [one for one in self._retired if one[0] > now]
        if known is not None:
            slack = max(_SLACK, 2 * known.terms.timeout)
            self._retired.append((now + slack.total_seconds(), known))
        for one in over:
            await _close(one)


async def _close(endpoint: Endpoint) -> None:
    if isinstance(endpoint.transport, Closing):
        await endpoint.transport.close()


def _response(service: str, answered: Answered) -> Response:
    answer = answered.answer
    headers: dict[str, str] = {}
    for name, value in answer.headers if answer else ():
        lower = name.lower()
        headers[lower] = f"{headers[lower]}, {value}" if lower in headers else value
    return Response(
        service=service,
        status=answer.status if answer else None,
        headers=headers,
        body=answer.body if answer else b"",
        is_cut=answer is not None and answer.is_cut,
        attempts=answered.attempts,
        latency=answered.latency,
        took=answered.took,
    )


def _refusal(service: str, answered: Answered) -> RequestRefusedError:
    """Return the error that says why the gate let nothing through."""
    entrance = answered.entrance
    hold = entrance.hold
    assert hold is not None  # noqa: S101 - whoever asks has looked
    why = _REFUSALS[hold]
    if entrance.why:
        why = f"it is paused: {entrance.why}" if hold is Hold.PAUSED else entrance.why
    if hold is Hold.BREAKER_OPEN and entrance.failure is not None:
        why = f"{why} The last failure was: {entrance.failure.error}"
    when = f" It may be asked again at {entrance.until:%H:%M:%S} UTC." if entrance.until else ""
    return RequestRefusedError(
        f"The destination {service!r} was not asked: {why.rstrip('.')}.{when}",
        service=service,
        hold=str(hold),
        until=entrance.until,
    )


_REFUSALS: Mapping[Hold, str] = {
    Hold.PAUSED: "it is paused",
    Hold.BLOCKED: "a dead letter stops the whole destination, in order",
    Hold.BREAKER_OPEN: "its breaker is open, because it was down.",
    Hold.SLOWED: "it has asked for less",
    Hold.PROBING: "it was down, and others are finding out whether it is back",
    Hold.CONCURRENCY: "as many run as it may have at once",
    Hold.RATE: "its rate is used up",
    Hold.SHARED_RATE: "the rate that it shares with others is used up",
}
