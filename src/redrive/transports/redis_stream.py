"""Streams of Redis and Valkey: each event is an entry, acknowledged by as many as you ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack, get_args

import msgspec

from redrive.clock import Clock
from redrive.errors import ConfigurationError, refuse_unknown
from redrive.model.delivery import Leased
from redrive.model.event import Event
from redrive.model.health import HealthCheck
from redrive.model.outcome import Faulted, Nature, Outcome, Succeeded
from redrive.policies.terms import Terms
from redrive.transport import Transport
from redrive.transports.envelope import Body, encode_event
from redrive.transports.failures import broken, cause_of, refused
from redrive.transports.options import need, read_choice, read_count, read_name
from redrive.transports.server import Server, ServerOptions, read_login, read_server

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["RedisStreamBlueprint", "RedisStreamOptions", "RedisStreamTransport", "redis_stream"]

_SUCCEEDED = Succeeded()
_PORTS = {"redis": 6379, "rediss": 6379}
_MAY_HEAL = frozenset(
    {
        *("BUSY", "BUSYGROUP", "CLUSTERDOWN", "ERR_MAX_CLIENTS", "LOADING", "MASTERDOWN"),
        *("MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN", "UNBLOCKED"),
    }
)
_FULL = "max number of clients reached"


class RedisStreamOptions(ServerOptions, total=False):
    """What `redis_stream` takes beside the address; see there."""

    stream: str
    """The name of the stream."""
    body: Body
    """What the entry carries: the payload alone, or the whole event."""
    batch: int
    """How many events travel together at most."""
    max_length: int | None
    """About how many entries the stream keeps."""
    replicas: int
    """How many replicas must have an entry before it counts."""
    connections: int
    """How many connections a worker keeps to it at once."""


class RedisStreamBlueprint(msgspec.Struct, frozen=True, kw_only=True):
    """A checked stream, from which each worker makes a transport of its own."""

    server: Server
    database: int
    stream: str
    login: tuple[str, str] | None
    body: Body
    batch: int
    max_length: int | None
    replicas: int
    connections: int

    def build(self, *, terms: Terms, clock: Clock) -> Transport:  # noqa: ARG002 - as the port has it
        """Return a transport for one worker; it connects when it first sends."""
        return RedisStreamTransport(self, terms=terms)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        return () if self.login is None else (self.login[1],)

    def __repr__(self) -> str:
        return f"redis_stream({self.server.shown!r}, stream={self.stream!r}, …)"


def redis_stream(url: str, **options: Unpack[RedisStreamOptions]) -> RedisStreamBlueprint:
    """Declare a stream of Redis or Valkey, for `app.destination(..., transport=redis_stream(...))`.

    - the address is `redis://host:6379/0`, with TLS `rediss://…`; `user` and `password` beside it
    - `stream`: the name of the stream, which need not exist
    - `body`: `"payload"` by default, or `"event"`; the event's id, type and time stand beside it
    - `batch`: how many events go in one round trip, 100 by default; each has its own outcome
    - `max_length`: trim the stream to about so many entries; nothing is trimmed by default
    - `replicas`: how many replicas must have it before it counts as delivered
    - `allow_private`, `allow_networks`, `tls`, `connect_timeout`, `connections`: as for `http`

    >>> redis_stream("redis://cache.example.com", stream="orders")
    redis_stream('cache.example.com:6379', stream='orders', …)
    """
    refuse_unknown(options, RedisStreamOptions.__annotations__, what="redis_stream option")
    need("Redis streams", extra="redis", modules=("redis",))
    server = read_server(url, options, ports=_PORTS)
    if server.path and not server.path.isdigit():
        raise ConfigurationError(
            f"The address of {server.host!r} ends in {server.path!r}; what follows the host is the "
            'number of a database, such as "redis://cache.example.com/0".'
        )
    if "stream" not in options:
        raise ConfigurationError('redis_stream needs a stream, such as stream="orders".')
    longest = options.get("max_length")
    return RedisStreamBlueprint(
        server=server,
        database=int(server.path or "0"),
        stream=read_name("stream", options["stream"], example="orders"),
        login=read_login(options),
        body=read_choice("body", options.get("body", "payload"), get_args(Body)),
        batch=read_count("batch", options.get("batch", 100)),
        max_length=None if longest is None else read_count("max_length", longest),
        replicas=read_count("replicas", options.get("replicas", 0), least=0),
        connections=read_count("connections", options.get("connections", 10)),
    )


class RedisStreamTransport:
    """Adds entries in one round trip; belongs to one worker, and so to one event loop.

    The client's own retries are off: they would hide that an answer was lost.
    """

    def __init__(self, plan: RedisStreamBlueprint, *, terms: Terms) -> None:
        self.batch = plan.batch
        self._plan = plan
        self._terms = terms
        self._client: Redis | None = None

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        plan = self._plan
        pipe = self._open().pipeline(transaction=False)
        for one in deliveries:
            limit = {} if plan.max_length is None else {"maxlen": plan.max_length}
            pipe.xadd(plan.stream, _fields(one.event, plan.body), **limit)  # type: ignore[arg-type]
        if plan.replicas:
            pipe.execute_command("WAIT", plan.replicas, self._patience())
        try:
            answers = await pipe.execute(raise_on_error=False)
        except Exception as error:  # noqa: BLE001 - whatever the client raises is an outcome
            return [self._failed(error)] * len(deliveries)
        heard = answers.pop() if plan.replicas else 0
        if not isinstance(heard, int) or heard < plan.replicas:
            return [self._not_copied(heard)] * len(deliveries)
        return [self._failed(one) if isinstance(one, Exception) else _SUCCEEDED for one in answers]

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def check_health(self, health: HealthCheck) -> str:  # noqa: ARG002 - it has no URL
        try:
            await self._open().execute_command("PING")  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 - whatever the client raises, it is not well
            return self._failed(error).fault.message
        return ""

    def _patience(self) -> int:
        """Return for how many milliseconds replicas are waited for: less than a try may take."""
        return max(int(self._terms.timeout.total_seconds() * 500), 1)

    def _failed(self, error: Exception) -> Faulted:
        from redis import exceptions  # noqa: PLC0415 - the extra

        plan = self._plan
        text = str(error)
        is_unreached = isinstance(error, exceptions.ConnectionError)
        has_answered = isinstance(error, exceptions.ResponseError) or (
            is_unreached and (_FULL in text or _word_of(text) in _MAY_HEAL)
        )
        if isinstance(error, exceptions.AuthenticationError):
            has_answered = True
        if not has_answered:
            if is_unreached and cause_of(error) is error:
                error = EOFError(text)
            return broken(plan.server, error, self._terms, secrets=plan.secrets)
        code = _code_of(error, text)
        heals = code in _MAY_HEAL
        return refused(
            f"{plan.server.shown} answered {code}: {text}",
            error_class=f"Redis {code}",
            rule=f"reply {code}",
            nature=Nature.TRANSIENT if heals else Nature.TERMINAL,
            code=code,
            secrets=plan.secrets,
        )

    def _not_copied(self, heard: object) -> Faulted:
        count = heard if isinstance(heard, int) else 0
        return refused(
            f"{count} of {self._plan.replicas} replicas of {self._plan.server.shown} have it; it "
            "may be lost with the server, so it is sent again.",
            error_class="Redis WAIT",
            rule="too few replicas",
            nature=Nature.TRANSIENT,
        )

    def _open(self) -> Redis:
        if self._client is None:
            self._client = _client_of(self._plan)
        return self._client


def _client_of(plan: RedisStreamBlueprint) -> Redis:
    from redis.asyncio import BlockingConnectionPool, Connection, Redis  # noqa: PLC0415 - the extra
    from redis.asyncio.retry import Retry  # noqa: PLC0415
    from redis.backoff import NoBackoff  # noqa: PLC0415

    class Guarded(Connection):
        """Connects to addresses that are allowed, and to no others."""

        async def _connect(self) -> None:
            is_tls = plan.server.scheme == "rediss"
            self._reader, self._writer = await plan.server.open(tls=is_tls)

    user, password = plan.login or (None, None)
    pool = BlockingConnectionPool(
        connection_class=Guarded,
        max_connections=plan.connections,
        timeout=None,
        host=plan.server.host,
        port=plan.server.port,
        db=plan.database,
        username=user,
        password=password,
        protocol=2,
        socket_timeout=None,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        health_check_interval=0,
    )
    return Redis.from_pool(pool)


def _fields(event: Event[msgspec.Raw], body: Body) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": event.id,
        "type": event.type,
        "occurred_at": event.occurred_at.isoformat(),
        body: encode_event(event, body),
    }
    told = {"key": event.key, "tenant": event.tenant, "source": event.source}
    fields |= {name: value for name, value in told.items() if value}
    fields |= {name: event.headers[name] for name in ("traceparent",) if name in event.headers}
    return fields


def _word_of(text: str) -> str:
    return text.partition(" ")[0]


def _code_of(error: Exception, text: str) -> str:
    """Return the word that a reply begins with; the client takes it off some of them."""
    name = type(error).__name__
    if _FULL in text:
        return "ERR_MAX_CLIENTS"
    known = {
        "AuthenticationError": "NOAUTH",
        "AuthenticationWrongNumberOfArgsError": "NOAUTH",
        "AuthorizationError": "NOPERM",
        "BusyLoadingError": "LOADING",
        "ClusterDownError": "CLUSTERDOWN",
        "MasterDownError": "MASTERDOWN",
        "NoPermissionError": "NOPERM",
        "OutOfMemoryError": "OOM",
        "ReadOnlyError": "READONLY",
        "TryAgainError": "TRYAGAIN",
    }
    word = _word_of(text)
    return known.get(name) or (word if word.isupper() else "ERR")
