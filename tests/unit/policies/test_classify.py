"""Every rule that says whether an exception is worth another try."""

import asyncio
import errno
import os
import socket
import sqlite3
from datetime import timedelta

import apsw
import msgspec
import pydantic
import pytest

from redrive.errors import PayloadError, StoreUnavailableError, Terminal, Transient
from redrive.model.outcome import Nature
from redrive.policies.classify import Verdict, classify


class Order(msgspec.Struct):
    number: int


class Invoice(pydantic.BaseModel):
    number: int


class NotFoundButSure(Terminal):
    pass


class Forgetful(Transient):
    def __init__(self) -> None:
        """Leave `retry_after` unset, as a subclass without `super().__init__()` does."""


def foreign(name: str, *bases: type[Exception]) -> type[Exception]:
    """Make a class as a driver has it that is not installed here."""
    module, _, short = name.rpartition(".")
    return type(short, bases or (Exception,), {"__module__": module})


def sqlite_refusal() -> Exception:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t (a UNIQUE)")
        connection.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(sqlite3.IntegrityError) as caught:
            connection.execute("INSERT INTO t VALUES (1)")
    connection.close()
    return caught.value


def sqlite_outage() -> Exception:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute("SELECT * FROM missing")
    connection.close()
    return caught.value


def apsw_refusal() -> Exception:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t (a UNIQUE); INSERT INTO t VALUES (1)")
    with pytest.raises(apsw.ConstraintError) as caught:
        connection.execute("INSERT INTO t VALUES (1)")
    return caught.value


def msgspec_misfit() -> Exception:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(b'{"number": "x"}', type=Order)
    return caught.value


def pydantic_misfit() -> Exception:
    with pytest.raises(pydantic.ValidationError) as caught:
        Invoice.model_validate({"number": "x"})
    return caught.value


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        (Terminal("no such customer"), "raised Terminal"),
        (NotFoundButSure(), "raised Terminal"),
        (sqlite_refusal(), "database: IntegrityError"),
        (apsw_refusal(), "database: ConstraintError"),
        (foreign("psycopg.errors.IntegrityError")(), "database: IntegrityError"),
        (
            foreign("psycopg.errors.UniqueViolation", foreign("psycopg.errors.IntegrityError"))(),
            "database: UniqueViolation",
        ),
        (foreign("sqlalchemy.exc.IntegrityError")(), "database: IntegrityError"),
        (foreign("django.db.utils.IntegrityError")(), "database: IntegrityError"),
        (
            foreign(
                "asyncpg.exceptions.UniqueViolationError",
                foreign("asyncpg.exceptions._base.IntegrityConstraintViolationError"),
            )(),
            "database: UniqueViolationError",
        ),
        (msgspec_misfit(), "payload does not fit"),
        (msgspec.DecodeError("truncated"), "payload does not fit"),
        (pydantic_misfit(), "payload does not fit"),
        (foreign("pydantic.error_wrappers.ValidationError", ValueError)(), "payload does not fit"),
        (PayloadError("not JSON"), "payload does not fit"),
    ],
)
def test_what_cannot_heal_is_terminal(error: Exception, rule: str) -> None:
    assert classify(error) == Verdict(nature=Nature.TERMINAL, rule=rule)


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        (Transient("try later"), "raised Transient"),
        (Forgetful(), "raised Transient"),
        (ConnectionRefusedError(), "network: ConnectionRefusedError"),
        (BrokenPipeError(), "network: BrokenPipeError"),
        (TimeoutError(), "network: TimeoutError"),
        (asyncio.TimeoutError(), "network: TimeoutError"),  # noqa: UP041 - as users write it
        (asyncio.IncompleteReadError(b"", 4), "network: IncompleteReadError"),
        (socket.gaierror(socket.EAI_NONAME, "unknown host"), "network: gaierror"),
        (OSError(errno.EHOSTUNREACH, "no route"), "network: EHOSTUNREACH"),
        (OSError(errno.ENETUNREACH, "no network"), "network: ENETUNREACH"),
        (sqlite_outage(), "database: OperationalError"),
        (apsw.BusyError("locked"), "database: BusyError"),
        (foreign("psycopg.OperationalError")(), "database: OperationalError"),
        (foreign("sqlalchemy.exc.OperationalError")(), "database: OperationalError"),
        (foreign("django.db.utils.OperationalError")(), "database: OperationalError"),
        (foreign("django.db.utils.InterfaceError")(), "database: InterfaceError"),
        (
            foreign(
                "asyncpg.exceptions.ConnectionDoesNotExistError",
                foreign("asyncpg.exceptions.PostgresConnectionError"),
            )(),
            "database: ConnectionDoesNotExistError",
        ),
        (ValueError("odd"), "default"),
        (KeyError("missing"), "default"),
        (OSError(errno.ENOENT, "no such file"), "default"),
        (OSError(["odd"], "an errno that is none"), "default"),
        (StoreUnavailableError("locked"), "default"),
        (foreign("shop.models.IntegrityError")(), "default"),
        (foreign("shop.forms.ValidationError", ValueError)(), "default"),
    ],
)
def test_what_may_heal_is_transient(error: Exception, rule: str) -> None:
    assert classify(error) == Verdict(nature=Nature.TRANSIENT, rule=rule)


@pytest.mark.parametrize(
    "code", ["ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "EPIPE", "ETIMEDOUT", "ESHUTDOWN"]
)
def test_python_turns_some_codes_into_classes_of_their_own(code: str) -> None:
    number = getattr(errno, code)

    verdict = classify(OSError(number, os.strerror(number)))

    assert verdict.rule.startswith("network: ")
    assert verdict.nature is Nature.TRANSIENT


def test_a_destination_may_call_a_transient_error_terminal() -> None:
    verdict = classify(KeyError("iban"), terminal=(LookupError,))

    assert verdict == Verdict(nature=Nature.TERMINAL, rule="destination says terminal: LookupError")


def test_a_destination_may_call_a_terminal_error_transient() -> None:
    verdict = classify(sqlite_refusal(), transient=(sqlite3.IntegrityError,))

    assert verdict == Verdict(
        nature=Nature.TRANSIENT, rule="destination says transient: IntegrityError"
    )


def test_the_class_nearest_to_the_raised_one_wins() -> None:
    verdict = classify(KeyError("iban"), terminal=(Exception,), transient=(KeyError,))

    assert verdict.rule == "destination says transient: KeyError"


def test_terminal_wins_a_tie() -> None:
    verdict = classify(KeyError("iban"), terminal=(KeyError,), transient=(KeyError,))

    assert verdict.nature is Nature.TERMINAL


def test_an_exception_that_speaks_for_itself_is_heard_before_the_destination() -> None:
    assert classify(Terminal(), transient=(Exception,)).rule == "raised Terminal"
    assert classify(Transient(), terminal=(Exception,)).rule == "raised Transient"


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        ("30s", timedelta(seconds=30)),
        (timedelta(minutes=2), timedelta(minutes=2)),
        (90, timedelta(seconds=90)),
        (2.5, timedelta(seconds=2.5)),
        ("10ms", timedelta(seconds=1)),
        (-5, timedelta(seconds=1)),
        (timedelta(days=-1), timedelta(seconds=1)),
        ("400d", timedelta(hours=24)),
        (timedelta.max, timedelta(hours=24)),
    ],
)
def test_the_wait_an_exception_asks_for_is_clamped(asked: object, granted: timedelta) -> None:
    assert classify(Transient(retry_after=asked)).retry_after == granted


@pytest.mark.parametrize(
    "asked", ["soon", "", object(), float("nan"), float("inf"), 10**400, True, None]
)
def test_a_wait_that_makes_no_sense_is_ignored(asked: object) -> None:
    assert classify(Transient(retry_after=asked)).retry_after is None


def test_a_group_is_terminal_if_one_of_its_members_is() -> None:
    group = ExceptionGroup("tasks", [ConnectionResetError(), Terminal("gone")])

    verdict = classify(ExceptionGroup("outer", [OSError(), group]))

    assert verdict.nature is Nature.TERMINAL
    assert verdict.rule == "in a group: in a group: raised Terminal"


def test_a_group_of_transient_errors_waits_for_the_most_patient_one() -> None:
    group = ExceptionGroup(
        "tasks", [Transient(retry_after="5s"), Transient(retry_after="1m"), ValueError()]
    )

    verdict = classify(group)

    assert verdict.nature is Nature.TRANSIENT
    assert verdict.retry_after == timedelta(minutes=1)


def test_a_destination_may_list_the_group_itself() -> None:
    group = ExceptionGroup("tasks", [Terminal()])

    assert classify(group, transient=(ExceptionGroup,)).nature is Nature.TRANSIENT
