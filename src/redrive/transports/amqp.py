"""AMQP 0-9-1, such as RabbitMQ: each event is a message that the broker has confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack, get_args
from urllib.parse import quote

import msgspec

from redrive.clock import Clock
from redrive.errors import refuse_unknown
from redrive.model.delivery import Leased
from redrive.model.event import Event
from redrive.model.health import HealthCheck
from redrive.model.outcome import Faulted, Nature, Outcome, Succeeded
from redrive.policies.terms import Terms
from redrive.transport import Transport
from redrive.transports.confirmed import Publication, confirmed, written
from redrive.transports.envelope import Body, encode_event
from redrive.transports.failures import broken, refused
from redrive.transports.options import need, read_choice, read_count, read_name
from redrive.transports.server import Server, ServerOptions, read_login, read_server
from redrive.transports.shared import SharedLine

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel
    from aio_pika.connection import Connection
    from aiormq.channel import Channel
    from pamqp.commands import Basic

__all__ = ["AmqpBlueprint", "AmqpOptions", "AmqpTransport", "amqp"]

_SUCCEEDED = Succeeded()
_PORTS = {"amqp": 5672, "amqps": 5671}
_LONGEST_KEY = 255


class AmqpOptions(ServerOptions, total=False):
    """What `amqp` takes beside the address; see there."""

    exchange: str
    """The exchange that is published to; the default one if none is said."""
    routing_key: str | None
    """The routing key of every message; the type of the event if none is said."""
    body: Body
    """What the message carries: the payload alone, or the whole event."""
    batch: int
    """How many events are under way together at most."""


class AmqpBlueprint(msgspec.Struct, frozen=True, kw_only=True):
    """A checked broker and exchange, from which each worker makes a transport of its own."""

    server: Server
    exchange: str
    routing_key: str | None
    login: tuple[str, str] | None
    body: Body
    batch: int

    def build(self, *, terms: Terms, clock: Clock) -> Transport:  # noqa: ARG002 - as the port has it
        """Return a transport for one worker; it connects when it first sends."""
        return AmqpTransport(self, terms=terms)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        return () if self.login is None else (self.login[1], quote(self.login[1], safe=""))

    def __repr__(self) -> str:
        return f"amqp({self.server.shown!r}, exchange={self.exchange!r}, …)"


def amqp(url: str, **options: Unpack[AmqpOptions]) -> AmqpBlueprint:
    """Declare a broker such as RabbitMQ, for `app.destination(..., transport=amqp(...))`.

    - the address is `amqp://host/virtual-host`, with TLS `amqps://…`; `user` and `password` beside
    - `exchange`: where to publish; without one the routing key is the name of a queue
    - `routing_key`: of every message; without it, it is the type of the event
    - `body`: `"payload"` by default, or `"event"`; id, type and time are properties of the message
    - `batch`: how many events are under way together, 100 by default; each has its own outcome
    - `allow_private`, `allow_networks`, `tls`, `connect_timeout`: as for `http`

    >>> amqp("amqp://broker.example.com/shop", exchange="orders")
    amqp('broker.example.com:5672', exchange='orders', …)
    """
    refuse_unknown(options, AmqpOptions.__annotations__, what="amqp option")
    need("AMQP destinations", extra="amqp", modules=("aio_pika",))
    key, exchange = options.get("routing_key"), options.get("exchange", "")
    return AmqpBlueprint(
        server=read_server(url, options, ports=_PORTS),
        exchange=exchange and read_name("exchange", exchange, example="orders"),
        routing_key=None if key is None else read_name("routing_key", key, example="orders.paid"),
        login=read_login(options),
        body=read_choice("body", options.get("body", "payload"), get_args(Body)),
        batch=read_count("batch", options.get("batch", 100)),
    )


class _Channel(NamedTuple):
    connection: Connection
    channel: AbstractChannel
    confirming: Channel


class AmqpTransport:
    """Publishes over one channel; belongs to one worker, and so to one event loop.

    The broker confirms each message, and gives back what no queue takes: both are asked for.
    """

    def __init__(self, plan: AmqpBlueprint, *, terms: Terms) -> None:
        self.batch = plan.batch
        self._plan = plan
        self._terms = terms
        self._line = SharedLine(self._connect, _disconnect, _is_open)

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        try:
            async with self._line.use() as line:
                return await self._publish(line, deliveries)
        except Exception as error:  # noqa: BLE001 - whatever the client raises is an outcome
            return [self._failed(error)] * len(deliveries)

    async def close(self) -> None:
        await self._line.close()

    async def check_health(self, health: HealthCheck) -> str:  # noqa: ARG002 - it has no URL
        try:
            async with self._line.use() as line:
                if self._plan.exchange:
                    await line.channel.get_exchange(self._plan.exchange)
        except Exception as error:  # noqa: BLE001 - whatever the client raises, it is not well
            return self._failed(error).fault.message
        return ""

    async def _publish(self, line: _Channel, deliveries: Sequence[Leased]) -> list[Outcome]:
        """Publish all, and wait for all confirms at once: a task for each costs more."""
        outcomes: list[Outcome] = [_SUCCEEDED] * len(deliveries)
        publications: dict[int, Publication] = {}
        for place, one in enumerate(deliveries):
            made = self._written(line, one)
            if isinstance(made, Faulted):
                outcomes[place] = made
            else:
                publications[place] = made
        if not publications:
            return outcomes
        answers = await confirmed(line.confirming, list(publications.values()))
        for place, wrong in zip(publications, answers, strict=True):
            if wrong is None:
                continue
            if not _is_about_message(wrong):
                self._line.doubt(line)
            outcomes[place] = self._failed(_broken_off(wrong))
        return outcomes

    def _written(self, line: _Channel, one: Leased) -> Publication | Faulted:
        plan, event = self._plan, one.event
        key = plan.routing_key or event.type
        if len(key.encode()) > _LONGEST_KEY:
            return self._refused(f"the routing key {key[:40]!r}… is too long", rule="bad key")
        try:
            body = encode_event(event, plan.body)
            return written(line.confirming, plan.exchange, key, _properties(event), body)
        except Exception as error:  # noqa: BLE001 - whatever the client raises is an outcome
            return self._failed(error)

    def _failed(  # noqa: PLR0911 - one row per kind of failure
        self, error: Exception
    ) -> Faulted:
        from aiormq import exceptions  # noqa: PLC0415 - the extra

        match error:
            case exceptions.PublishError(message=message):
                returned: Any = message and message.delivery
                return self._refused(
                    f"no queue takes the routing key {returned.routing_key!r}: bind one, then "
                    "replay",
                    rule="returned",
                    code=str(returned.reply_code),
                )
            case exceptions.DeliveryError():
                return self._refused(
                    "the broker did not take the message", rule="nack", nature=Nature.TRANSIENT
                )
            case exceptions.ChannelNotFoundEntity():
                # It is missing for all of them: a breaker holds them until somebody has made it.
                return self._refused(
                    f"there is no exchange {self._plan.exchange!r}",
                    rule="no exchange",
                    code="404",
                    nature=Nature.TRANSIENT,
                )
            case exceptions.ChannelAccessRefused():
                return self._refused("this user may not publish there", rule="refused", code="403")
            case exceptions.ChannelPreconditionFailed():
                return self._refused(f"{error}", rule="precondition failed", code="406")
            case exceptions.AuthenticationError() | exceptions.ProbableAuthenticationError():
                return self._refused(
                    "user or password are wrong", rule="not authorized", code="403"
                )
            case exceptions.ConnectionNotAllowed():
                return self._refused(f"{error}", rule="not allowed", code="530")
        plan = self._plan
        return broken(plan.server, error, self._terms, secrets=plan.secrets)

    def _refused(
        self, said: str, *, rule: str, code: str = "", nature: Nature = Nature.TERMINAL
    ) -> Faulted:
        plan = self._plan
        return refused(
            f"{plan.server.shown}: {said}.",
            error_class=f"AMQP {rule}",
            rule=rule,
            nature=nature,
            code=code,
            secrets=plan.secrets,
        )

    async def _connect(self) -> _Channel:
        from aio_pika.connection import Connection  # noqa: PLC0415 - the extra
        from aiormq.channel import Channel  # noqa: PLC0415 - the extra
        from yarl import URL  # noqa: PLC0415 - the extra

        plan = self._plan
        user, password = plan.login or ("guest", "guest")
        url = URL.build(
            scheme=plan.server.scheme,
            host=plan.server.host,
            port=plan.server.port,
            user=user,
            password=password,
            path=f"/{quote(plan.server.path, safe='')}",
            encoded=False,
        )
        connection = Connection(url, ssl_context=plan.server.tls)
        connection.kwargs["transport_factory"] = _Guarded(plan.server)
        try:
            await connection.connect()
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            confirming = await channel.get_underlay_channel()
            assert isinstance(confirming, Channel)  # noqa: S101 - it is the only one there is
        except BaseException:
            with suppress(Exception):
                await connection.close()
            raise
        return _Channel(connection, channel, confirming)


class _Guarded:
    """Connects to addresses that are allowed, and to no others."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def create(
        self,
        url: object,  # noqa: ARG002 - as the library has it
        **_: object,
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await self._server.open(tls=self._server.scheme == "amqps")


async def _disconnect(line: _Channel) -> None:
    await line.connection.close()


def _is_open(line: _Channel) -> bool:
    return not (line.connection.is_closed or line.channel.is_closed)


def _is_about_message(error: BaseException) -> bool:
    from aiormq.exceptions import DeliveryError  # noqa: PLC0415 - the extra

    return isinstance(error, DeliveryError)


def _broken_off(error: BaseException) -> Exception:
    """Return what it means that the library has cancelled what we wait for: a closed connection."""
    if isinstance(error, Exception):
        return error
    return ConnectionResetError("the connection was closed while an answer was awaited")


def _properties(event: Event[msgspec.Raw]) -> Basic.Properties:
    from aio_pika import DeliveryMode  # noqa: PLC0415 - the extra
    from pamqp.commands import Basic  # noqa: PLC0415

    told = {"key": event.key, "tenant": event.tenant, "source": event.source}
    headers: dict[str, Any] = {name: value for name, value in told.items() if value}
    headers |= {name: event.headers[name] for name in ("traceparent",) if name in event.headers}
    return Basic.Properties(
        message_id=event.id,
        message_type=event.type if len(event.type.encode()) <= _LONGEST_KEY else None,
        timestamp=event.occurred_at,
        content_type="application/json",
        delivery_mode=DeliveryMode.PERSISTENT,
        headers=headers,
    )
