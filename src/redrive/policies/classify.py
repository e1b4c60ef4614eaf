"""Classification: whether an exception is worth another try, and which rule says so."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from datetime import timedelta
from itertools import product
from types import MappingProxyType

import msgspec

from redrive.errors import ConfigurationError, Terminal, Throttled, Transient
from redrive.model.duration import duration
from redrive.model.outcome import Nature
from redrive.policies.retry import bounded_retry_after

__all__ = ["Verdict", "classify"]

_PEP_249 = (
    *("MySQLdb", "asyncmy", "cx_Oracle", "django", "duckdb", "mariadb", "mysql", "oracledb"),
    *("peewee", "pg8000", "psycopg", "psycopg2", "pymssql", "pymysql", "pyodbc", "sqlalchemy"),
    "sqlite3",
)
_APSW_OUTAGES = ("BusyError", "CantOpenError", "FullError", "IOError", "LockedError")
_ASYNCPG_OUTAGES = (
    *("CannotConnectNowError", "InsufficientResourcesError", "InterfaceError"),
    *("OperatorInterventionError", "PostgresConnectionError", "TransactionRollbackError"),
)

# Classes are known by their top package and name, so that no driver has to be installed.
_TABLE: Mapping[tuple[str, str], tuple[Nature, str]] = MappingProxyType(
    {
        ("builtins", "ConnectionError"): (Nature.TRANSIENT, "network: {}"),
        ("builtins", "TimeoutError"): (Nature.TRANSIENT, "network: {}"),
        ("asyncio", "IncompleteReadError"): (Nature.TRANSIENT, "network: {}"),
        ("socket", "gaierror"): (Nature.TRANSIENT, "network: {}"),
        **dict.fromkeys(
            (
                *product(_PEP_249, ("OperationalError", "InterfaceError")),
                *product(("apsw",), _APSW_OUTAGES),
                *product(("asyncpg",), _ASYNCPG_OUTAGES),
            ),
            (Nature.TRANSIENT, "database: {}"),
        ),
        **dict.fromkeys(
            (
                *product(_PEP_249, ("IntegrityError",)),
                ("apsw", "ConstraintError"),
                ("asyncpg", "IntegrityConstraintViolationError"),
            ),
            (Nature.TERMINAL, "database: {}"),
        ),
        **dict.fromkeys(
            (
                ("msgspec", "DecodeError"),
                ("pydantic", "ValidationError"),
                ("pydantic_core", "ValidationError"),
                ("redrive", "PayloadError"),
            ),
            (Nature.TERMINAL, "payload does not fit"),
        ),
        ("redrive", "RenderError"): (Nature.TERMINAL, "template does not fit"),
    }
)
_NETWORK_CODES = frozenset(
    {
        errno.EADDRNOTAVAIL,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.ENOTCONN,
        errno.EPIPE,
        errno.ESHUTDOWN,
        errno.ETIMEDOUT,
    }
)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of failure it is, which rule said so, and the least wait that was asked for.

    `is_gone` says that the destination is no more, for this delivery and for all others.
    """

    nature: Nature
    rule: str
    retry_after: timedelta | None = None
    is_gone: bool = False


def classify(
    error: BaseException,
    *,
    terminal: tuple[type[BaseException], ...] = (),
    transient: tuple[type[BaseException], ...] = (),
) -> Verdict:
    """Decide about an exception; `terminal` and `transient` are the destination's own rules.

    `Terminal`, `Transient` and `Throttled` speak for themselves, then the destination's rules hold
    (the class nearest to the raised one wins, and terminal wins a tie), then what is known of
    Python, databases and validation. Anything else is transient. A group is terminal if one member
    is.

    >>> classify(ConnectionRefusedError()).rule
    'network: ConnectionRefusedError'
    >>> classify(KeyError("iban"), terminal=(LookupError,)).rule
    'destination says terminal: LookupError'
    """
    verdict = _own_word(error) or _by_destination(error, terminal, transient)
    if verdict is not None:
        return verdict
    if isinstance(error, BaseExceptionGroup):
        members = [
            classify(one, terminal=terminal, transient=transient) for one in error.exceptions
        ]
        return _worst(members)
    return _by_table(error) or Verdict(nature=Nature.TRANSIENT, rule="default")


def _own_word(error: BaseException) -> Verdict | None:
    match error:
        case Terminal():
            return Verdict(nature=Nature.TERMINAL, rule="raised Terminal")
        case Transient():
            return Verdict(
                nature=Nature.TRANSIENT,
                rule="raised Transient",
                retry_after=_read_retry_after(getattr(error, "retry_after", None)),
            )
        case Throttled():
            return Verdict(
                nature=Nature.THROTTLED,
                rule="raised Throttled",
                retry_after=_read_retry_after(getattr(error, "retry_after", None)),
            )
    return None


def _by_destination(
    error: BaseException,
    terminal: tuple[type[BaseException], ...],
    transient: tuple[type[BaseException], ...],
) -> Verdict | None:
    for kind in type(error).__mro__:
        for nature, listed in ((Nature.TERMINAL, terminal), (Nature.TRANSIENT, transient)):
            if kind in listed:
                return Verdict(nature=nature, rule=f"destination says {nature}: {kind.__name__}")
    return None


def _by_table(error: BaseException) -> Verdict | None:
    for kind in type(error).__mro__:
        found = _TABLE.get((str(kind.__module__).partition(".")[0], kind.__name__))
        if found is not None:
            nature, rule = found
            return Verdict(nature=nature, rule=rule.format(type(error).__name__))
    if (
        isinstance(error, OSError)
        and isinstance(error.errno, int)
        and error.errno in _NETWORK_CODES
    ):
        return Verdict(nature=Nature.TRANSIENT, rule=f"network: {errno.errorcode[error.errno]}")
    return None


def _worst(members: list[Verdict]) -> Verdict:
    deciding = next((one for one in members if one.nature is Nature.TERMINAL), members[0])
    waits = [one.retry_after for one in members if one.retry_after is not None]
    return Verdict(
        nature=deciding.nature,
        rule=f"in a group: {deciding.rule}",
        retry_after=max(waits, default=None),
    )


def _read_retry_after(value: object) -> timedelta | None:
    """Bare numbers are taken as seconds: ignoring what was meant would be worse."""
    try:
        match value:
            case bool():
                return None
            case int() | float():
                return bounded_retry_after(timedelta(seconds=value))
            case timedelta():
                return bounded_retry_after(value)
            case _:
                return bounded_retry_after(duration(value, longest=timedelta.max))
    except (ConfigurationError, ValueError, OverflowError):
        return None
