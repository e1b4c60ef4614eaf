"""NATS JetStream: each event is stored in a stream, and acknowledged by it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Unpack, get_args

import msgspec

from redrive.clock import Clock
from redrive.errors import ConfigurationError, refuse_unknown
from redrive.model.delivery import Leased
from redrive.model.health import HealthCheck
from redrive.model.outcome import Faulted, Nature, Outcome, Succeeded
from redrive.policies.terms import Terms
from redrive.transport import Transport
from redrive.transports.acknowledged import Acknowledged, Link
from redrive.transports.envelope import Body, encode_event
from redrive.transports.failures import broken, refused
from redrive.transports.options import need, read_choice, read_count, read_name
from redrive.transports.server import Server, ServerOptions, read_login, read_server
from redrive.transports.shared import SharedLine

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.transport import TcpTransport

__all__ = ["NatsBlueprint", "NatsOptions", "NatsTransport", "nats"]

_SUCCEEDED = Succeeded()
_PORTS = {"nats": 4222, "tls": 4222}
_WILD = frozenset("*> \t")
_SERVER_ERRORS = range(500, 600)
_TOO_MANY = 429
_BUFFER = 2**15
_EXPECTED_STREAM = "Nats-Expected-Stream"
_NOBODY = "503"
_UNANSWERED = "the connection was closed, or too slow, while an answer was awaited"


class _Answer(msgspec.Struct, frozen=True):
    error: dict[str, Any] | None = None


_answers = msgspec.json.Decoder(_Answer)


class NatsOptions(ServerOptions, total=False):
    """What `nats` takes beside the address; see there."""

    subject: str | None
    """The subject of every message; the type of the event if none is said."""
    prefix: str
    """What stands before the type of the event in the subject."""
    stream: str | None
    """The stream that must take it."""
    body: Body
    """What the message carries: the payload alone, or the whole event."""
    batch: int
    """How many events are under way together at most."""


class NatsBlueprint(msgspec.Struct, frozen=True, kw_only=True):
    """A checked server and subject, from which each worker makes a transport of its own."""

    server: Server
    subject: str | None
    prefix: str
    stream: str | None
    login: tuple[str, str] | None
    body: Body
    batch: int

    def build(self, *, terms: Terms, clock: Clock) -> Transport:  # noqa: ARG002 - as the port has it
        """Return a transport for one worker; it connects when it first sends."""
        return NatsTransport(self, terms=terms)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        return () if self.login is None else (self.login[1],)

    def __repr__(self) -> str:
        return f"nats({self.server.shown!r}, …)"


def nats(url: str, **options: Unpack[NatsOptions]) -> NatsBlueprint:
    """Declare a JetStream server, for `app.destination(..., transport=nats(...))`.

    - the address is `nats://host:4222`, with TLS `tls://…`; `user` and `password` beside it
    - `subject`: where every message goes; without it the subject is the type of the event, after
      `prefix` and a dot if there is one
    - `stream`: refuse to be stored by any other stream than this
    - `body`: `"payload"` by default, or `"event"`; id and type stand in the headers
    - `batch`: how many events are under way together, 100 by default; each has its own outcome
    - `allow_private`, `allow_networks`, `tls`, `connect_timeout`: as for `http`

    >>> nats("nats://broker.example.com", prefix="shop")
    nats('broker.example.com:4222', …)
    """
    refuse_unknown(options, NatsOptions.__annotations__, what="nats option")
    need("NATS destinations", extra="nats", modules=("nats",))
    server = read_server(url, options, ports=_PORTS)
    subject, prefix, stream = (
        options.get("subject"),
        options.get("prefix", ""),
        options.get("stream"),
    )
    if subject is not None and prefix:
        raise ConfigurationError(
            "subject is where every message goes, and prefix stands before the type of each event; "
            "leave one of them out."
        )
    for name, value in (("subject", subject), ("prefix", prefix or None), ("stream", stream)):
        if value is not None:
            _check_subject(name, value)
    return NatsBlueprint(
        server=server,
        subject=subject,
        prefix=f"{prefix}." if prefix else "",
        stream=stream,
        login=read_login(options),
        body=read_choice("body", options.get("body", "payload"), get_args(Body)),
        batch=read_count("batch", options.get("batch", 100)),
    )


class NatsTransport:
    """Publishes over one connection; belongs to one worker, and so to one event loop.

    A message is known to its stream by the event and the destination: a repeat within the stream's
    window for duplicates is stored once, and two destinations do not swallow each other's.
    """

    def __init__(self, plan: NatsBlueprint, *, terms: Terms) -> None:
        self.batch = plan.batch
        self._plan = plan
        self._terms = terms
        self._line = SharedLine(self._connect, _disconnect, _is_open)

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        try:
            async with self._line.use() as link:
                return await self._publish(link, deliveries)
        except Exception as error:  # noqa: BLE001 - whatever the client raises is an outcome
            return [self._failed(error)] * len(deliveries)

    async def close(self) -> None:
        await self._line.close()

    async def check_health(self, health: HealthCheck) -> str:  # noqa: ARG002 - it has no URL
        try:
            async with self._line.use() as link:
                await link.client.flush(int(self._patience()))
        except Exception as error:  # noqa: BLE001 - whatever the client raises, it is not well
            return self._failed(error).fault.message
        return ""

    async def _publish(self, link: Link, deliveries: Sequence[Leased]) -> list[Outcome]:
        """Publish all, and wait for all answers at once: a task and a timer for each cost more."""
        failed: dict[int, Exception] = {}
        asked = Acknowledged(link, len(deliveries))
        for place, one in enumerate(deliveries):
            try:
                await link.client.publish(
                    self._plan.subject or f"{self._plan.prefix}{one.event.type}",
                    encode_event(one.event, self._plan.body),
                    reply=asked.inbox(place),
                    headers=self._headers(one),
                )
            except Exception as error:  # noqa: BLE001 - whatever the client raises is an outcome
                failed[place] = error
                asked.forgo()
        await asked.wait(self._patience())
        outcomes = [
            self._failed(failed[place]) if place in failed else self._read(asked.answers.get(place))
            for place in range(len(deliveries))
        ]
        if any(
            isinstance(one, Faulted) and one.fault.rule.startswith("network: ") for one in outcomes
        ):
            self._line.doubt(link)
        return outcomes

    def _headers(self, one: Leased) -> dict[str, str]:
        event = one.event
        headers = {
            "Nats-Msg-Id": f"{event.id}:{one.destination}",
            "Redrive-Id": event.id,
            "Redrive-Type": event.type,
            "Redrive-Attempt": str(one.attempt),
        }
        if self._plan.stream is not None:
            headers[_EXPECTED_STREAM] = self._plan.stream
        if "traceparent" in event.headers and event.headers["traceparent"].isprintable():
            headers["traceparent"] = event.headers["traceparent"]
        return headers

    def _read(self, answer: Msg | None) -> Outcome:
        """Return what a stream says of a message; nothing, if the connection or the time ended."""
        if answer is None:
            return self._failed(ConnectionResetError(_UNANSWERED))
        if not answer.data and answer.headers and answer.headers.get("Status") == _NOBODY:
            from nats.js.errors import NoStreamResponseError  # noqa: PLC0415 - the extra

            return self._failed(NoStreamResponseError())
        error = _answers.decode(answer.data).error
        if error is None:
            return _SUCCEEDED
        from nats.js.errors import APIError  # noqa: PLC0415 - the extra

        try:
            APIError.from_error(error)
        except APIError as refusal:
            return self._failed(refusal)
        return self._failed(APIError(**error))

    def _patience(self) -> float:
        """Return for how many seconds to wait at most; the engine ends a try before."""
        return self._terms.timeout.total_seconds() + 1

    def _failed(self, error: Exception) -> Faulted:
        from nats import errors  # noqa: PLC0415 - the extra
        from nats.js.errors import APIError, NoStreamResponseError  # noqa: PLC0415

        plan, text = self._plan, str(error)
        nature, rule, code = Nature.TERMINAL, "", ""
        match error:
            case APIError(code=int(number)):
                heals = number in _SERVER_ERRORS or number == _TOO_MANY
                nature = Nature.TRANSIENT if heals else Nature.TERMINAL
                code = str(error.err_code or number)
                rule, text = f"JetStream {number}", error.description or text
            case NoStreamResponseError():
                nature, rule = Nature.TRANSIENT, "no stream"
                text = "no stream takes this subject; make one that lists it"
            case errors.MaxPayloadError():
                rule, text = "too large", "the message is larger than the server takes"
            case errors.AuthorizationError() | errors.InvalidUserCredentialsError():
                rule, text = "not authorized", "user or password are wrong, or may not publish here"
            case errors.Error() if "authorization" in text.lower():
                rule, text = "not authorized", "user or password are wrong, or may not publish here"
            case errors.BadSubjectError():
                rule, text = "bad subject", "the subject is none that NATS knows"
            case errors.Error():
                # The library's words for a connection that ended, or was never made.
                return broken(plan.server, error.__cause__ or EOFError(text), self._terms)
            case _:
                return broken(plan.server, error, self._terms, secrets=plan.secrets)
        return refused(
            f"{plan.server.shown} answered: {text}",
            error_class=f"NATS {type(error).__name__}",
            rule=rule,
            nature=nature,
            code=code,
            secrets=plan.secrets,
        )

    async def _connect(self) -> Link:
        from nats.aio.client import Client  # noqa: PLC0415 - the extra

        plan, client = self._plan, Client()
        # Before the library does: it would try again for ever where an address is not allowed.
        ends = await plan.server.open(tls=False, limit=_BUFFER)
        line = _connected(ends)
        client._transport = line  # noqa: SLF001 - the library has no other door for a connection

        waiting: dict[str, tuple[Acknowledged, int]] = {}

        async def give_up() -> None:
            for asking, _ in list(waiting.values()):
                asking.give_up()

        user, password = plan.login or (None, None)
        is_tls = plan.server.scheme == "tls"
        try:
            await client.connect(
                servers=[f"{plan.server.scheme}://{plan.server.shown}"],
                allow_reconnect=False,
                max_reconnect_attempts=0,
                connect_timeout=max(int(plan.server.connect_timeout.total_seconds()), 1),
                user=user,
                password=password,
                tls=plan.server.trust() if is_tls or plan.server.tls else None,
                error_cb=_ignore,
                closed_cb=give_up,
                name="redrive",
            )
        except BaseException:
            line.close()  # type: ignore[no-untyped-call]
            with suppress(Exception):
                await line.wait_closed()  # type: ignore[no-untyped-call]
            raise
        return await Link.over(client, waiting)


async def _ignore(_: Exception) -> None:
    """What went wrong is raised where somebody waits."""


async def _disconnect(link: Link) -> None:
    await link.client.close()


def _is_open(link: Link) -> bool:
    return link.client.is_connected


def _connected(ends: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> TcpTransport:
    from nats.aio.transport import TcpTransport  # noqa: PLC0415 - the extra

    class Connected(TcpTransport):
        """Has its connection already."""

        async def connect(self, *_: object, **__: object) -> None:
            return

    line = Connected()  # type: ignore[no-untyped-call]
    line._bare_io_reader, line._bare_io_writer = ends  # noqa: SLF001
    line._io_reader, line._io_writer = ends  # noqa: SLF001
    return line


def _check_subject(name: str, value: object) -> None:
    text = read_name(name, value, example="shop.orders")
    if _WILD & set(text) or text.startswith(".") or text.endswith(".") or ".." in text:
        raise ConfigurationError(
            f"{name} is {value!r}; it is words with dots between them, without '*', '>' or blanks, "
            'such as "shop.orders".'
        )
