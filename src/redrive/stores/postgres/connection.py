"""Connections to one PostgreSQL database: their address, and what their errors mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import SimpleNamespace
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import asyncpg
import msgspec

from redrive.errors import (
    ConfigurationError,
    RedriveError,
    SchemaError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    refuse_unknown,
)

__all__ = ["LOST", "Address", "Connection", "named", "quoted", "read_address", "translated"]

LOST = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""What the driver raises when a connection is no longer of use, a time-out included."""

_LONGEST_SCHEMA = 48
_SCHEMA_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")
_OURS = ("schema", "pool")
_THEIRS = (
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslpassword",
    "sslcrl",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "target_session_attrs",
    "application_name",
    "options",
    "host",
    "port",
    "user",
    "password",
    "passfile",
    "dbname",
    "database",
    "service",
    "krbsrvname",
    "gsslib",
    "search_path",
    "statement_timeout",
    "lock_timeout",
    "synchronous_commit",
    "default_transaction_isolation",
)
"""What the driver knows, and the settings of a session that are asked for most."""
_SECRET = ("password", "sslpassword")
_SLOW_SECONDS = 0.1
_BETWEEN_PLANS_SECONDS = 2.0
_FIRST_FOREIGN_TYPE = 10_000
"""Types with a lower number are PostgreSQL's own, and the same on every server."""
_described: dict[frozenset[int], Any] = {}
_NOT_ASKED = SimpleNamespace(name="none")
"""In place of the driver's question; one with a name, as it has displaced no other statement."""


class Connection(asyncpg.Connection):  # type: ignore[misc]  # the driver has no types
    """A connection that knows whether somebody here has closed it, and it was not just lost.

    It also knows whether its plans are to be thrown away. The server keeps the plan of a prepared
    statement until the table is analysed, which may be a minute after 100,000 events came to an
    empty one. To make a plan takes a millisecond; to ask for it anew needs no right that a user
    may lack.
    """

    was_closed = False
    wants_new_plans = False
    _replanned_at = -math.inf

    def took(self, seconds: float, *, now: float) -> None:
        """Hear how long a transaction took, and when; there are other reasons to be slow."""
        if seconds >= _SLOW_SECONDS and now - self._replanned_at >= _BETWEEN_PLANS_SECONDS:
            self.wants_new_plans, self._replanned_at = True, now

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the driver's
        """Close it, as whoever has it wants."""
        self.was_closed = True
        await super().close(timeout=timeout)

    def terminate(self) -> None:
        """Close it without a word to the server."""
        self.was_closed = True
        super().terminate()

    async def _introspect_types(
        self,
        typeoids: Iterable[int],
        timeout: float,  # noqa: ASYNC109 - the driver's
    ) -> tuple[Any, Any]:
        """Tell the driver what the types of arrays are, which takes a server longer than our work.

        It asks on every connection anew. Should it come without this method, which is not public,
        it asks again.
        """
        types = frozenset(typeoids)
        if types in _described:
            return _described[types], _NOT_ASKED
        found, question = await super()._introspect_types(typeoids, timeout)
        if max(types) < _FIRST_FOREIGN_TYPE:
            _described[types] = found
        return found, question


@lru_cache(maxsize=1_000)
def named(statement: str, schema: str) -> str:
    """Return a statement of ours for a schema that may have another name than `redrive`."""
    return statement if schema == "redrive" else statement.replace("redrive.", f"{schema}.")


def quoted(name: str) -> str:
    """Return the name of a role or another thing as a statement has it."""
    return '"{}"'.format(name.replace('"', '""'))


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A store URL, read: where the server is, which schema is ours, how many connections."""

    dsn: str
    schema: str = "redrive"
    pool: int = 10

    @property
    def name(self) -> str:
        """The address as people see it, without a password."""
        parts = urlsplit(self.dsn)
        hosts = parts.netloc.rpartition("@")[2] or "localhost"
        return f"postgresql://{hosts}{parts.path} (schema {self.schema})"

    def grants(self, user: str | None = None) -> str:
        """Return how its owner lets a user work with it, by default the one in the address."""
        who = quoted(user or unquote(urlsplit(self.dsn).username or "") or "…")
        return "".join(
            f"GRANT {rights} {self.schema} TO {who}; "
            for rights in (
                "USAGE ON SCHEMA",
                "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA",
                "SELECT, USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA",
                "EXECUTE ON ALL FUNCTIONS IN SCHEMA",
            )
        ).rstrip()

    def __repr__(self) -> str:
        return f"Address({self.name}, pool={self.pool})"

    def censored(self, text: str) -> str:
        """Return what the driver has said without the passwords of this address."""
        parts = urlsplit(self.dsn)
        given = parts.netloc.rpartition("@")[0].partition(":")[2]
        secrets = [given, *(value for name, value in parse_qsl(parts.query) if name in _SECRET)]
        for secret in secrets:
            for form in (secret, unquote(secret)):
                text = text.replace(form, "…") if form else text
        return text


def read_address(url: str) -> Address:
    """Read a store URL; `?schema=` and `?pool=` are ours, the rest is the driver's.

    >>> read_address("postgresql://localhost/shop?schema=events").schema
    'events'
    """
    parts, given = _split(url)
    refuse_unknown(given, (*_OURS, *_THEIRS), what="option of a store URL")
    schema, pool = given.get("schema", "redrive"), given.get("pool", "10")
    if (
        not 0 < len(schema) <= _LONGEST_SCHEMA
        or not _SCHEMA_LETTERS.issuperset(schema)
        or schema[0].isdigit()
        or schema.startswith("pg_")
    ):
        raise ConfigurationError(
            f"The schema in the store URL is {schema!r}; use small letters, digits and '_', at "
            'most 48 characters, such as "redrive".'
        )
    if not pool.isdigit() or int(pool) < 2:  # noqa: PLR2004 - one that works, one that listens
        raise ConfigurationError(
            f"The pool in the store URL is {pool!r}; it is how many connections a process may "
            "open, a whole number from 2."
        )
    rest = urlencode({name: value for name, value in given.items() if name not in _OURS})
    who, at, hosts = parts.netloc.rpartition("@")
    # The driver looks for the first '@', which may be one of the password's.
    netloc = f"{who.replace('@', '%40')}{at}{hosts}"
    dsn = urlunsplit(("postgresql", netloc, parts.path, rest, ""))
    return Address(dsn=dsn, schema=schema, pool=int(pool))


def _split(url: str) -> tuple[SplitResult, dict[str, str]]:
    """Split a URL into its parts and options; what is wrong is told without a word of it.

    Where a password ends that was written as it is can only be guessed.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _unreadable("its host is malformed") from None
    if parts.fragment or "@" in parts.path + parts.query:
        raise _unreadable("it has a '#', or an '@' after the first '/' or '?'")
    given = parse_qsl(parts.query)
    if parts.query and len(given) != len(parts.query.split("&")):
        raise _unreadable("after its '?' there is something else than name=value&name=value")
    options = dict(given)
    try:
        for host in parts.netloc.rpartition("@")[2].split(","):  # a server and its standbys
            _ = urlsplit(f"//{host}").port
        for port in options.get("port", "0").split(","):
            _ = urlsplit(f"//host:{port}").port
    except ValueError:
        raise _unreadable("its port is not a number up to 65535") from None
    return parts, options


def _unreadable(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"The store URL cannot be read: {why}. Write postgresql://user:password@host:5432/name, "
        "and within the password %40 for '@', %3A for ':', %2F for '/', %3F for '?', %23 for '#' "
        "and %25 for '%'."
    )


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Turn the driver's errors into ours: the one place where that happens."""
    try:
        yield
    except (asyncpg.PostgresError, *LOST) as error:
        raise _ours(error, address) from error


_Theirs = type[Exception]
_MEANINGS: tuple[tuple[tuple[_Theirs, ...], type[RedriveError], str], ...] = (
    (
        (asyncpg.ClientConfigurationError,),
        ConfigurationError,
        "The store URL of {name} is wrong: {error}.",
    ),
    (
        (asyncpg.DiskFullError,),
        StoreFullError,
        (
            "The disk of {name} is full; nothing of this call was stored. "
            "Free some space and try again."
        ),
    ),
    (
        (asyncpg.InvalidCatalogNameError,),
        StoreUnavailableError,
        "The server of {name} has no such database. Create it with createdb, or correct the URL.",
    ),
    (
        (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError),
        StoreUnavailableError,
        "{name} refuses this user or password ({error}). Correct the URL, or pg_hba.conf.",
    ),
    (
        (asyncpg.TooManyConnectionsError,),
        StoreUnavailableError,
        (
            "{name} has no connection left. Lower `?pool=` in the store URL, raise "
            "max_connections, or put a pooling proxy in front."
        ),
    ),
    (
        (asyncpg.ReadOnlySQLTransactionError,),
        StoreReadOnlyError,
        "{name} is read only, as a standby is. Point the URL at the primary.",
    ),
    (
        (asyncpg.InsufficientPrivilegeError,),
        StoreUnavailableError,
        (
            "This user may not do that in {name}: {error}. Let the owner of the schema run: "
            "{grants} Or, if there is no schema yet, run `redrive init` once as a user who may "
            "create it."
        ),
    ),
    (
        (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.InvalidSchemaNameError),
        SchemaError,
        "{name} lacks something this version needs: {error}. Run `redrive init`.",
    ),
    (
        (TimeoutError,),
        StoreUnavailableError,
        "{name} did not answer in time. Whether the last call took effect is not known.",
    ),
    (
        (
            asyncpg.ConnectionDoesNotExistError,
            asyncpg.AdminShutdownError,
            asyncpg.CrashShutdownError,
            asyncpg.InternalClientError,
            ConnectionResetError,
            BrokenPipeError,
        ),
        StoreUnavailableError,
        (
            "The connection to {name} was lost ({error}). Whether the last call took effect is "
            "not known."
        ),
    ),
    (
        (OSError, asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError),
        StoreUnavailableError,
        "{name} cannot be reached ({error}). Check that the server runs and the URL is right.",
    ),
    ((Exception,), StoreUnavailableError, "The store {name} failed: {error}."),
)


def _ours(error: Exception, address: Address) -> RedriveError:
    text = str(error) or type(error).__name__
    if not isinstance(error, asyncpg.PostgresError):  # a server does not know the password
        text = address.censored(text)
    return next(
        ours(message.format(name=address.name, error=text.rstrip("."), grants=address.grants()))
        for theirs, ours, message in _MEANINGS
        if isinstance(error, theirs)
    )
