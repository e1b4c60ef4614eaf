"""Failures as libraries really raise them: each cause, with failures that differ in values only."""

from __future__ import annotations

import asyncio
import json
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from uuid import uuid4

import aiohttp
import asyncpg
import django
import django.conf
import msgspec
import psycopg
import psycopg2  # type: ignore[import-untyped]  # it has no stubs
import pydantic
import sqlalchemy
from aiohttp import web
from django.core.exceptions import ValidationError as DjangoError
from django.core.validators import EmailValidator, MaxLengthValidator, URLValidator

from redrive.model.outcome import Fault
from redrive.policies.capture import capture

__all__ = ["CAUSES", "FROM_POSTGRES", "Cause", "faults_of"]

Work = Callable[[], object]


@dataclass(frozen=True)
class Cause:
    """One cause, and things to do that all fail of it."""

    name: str
    works: Sequence[Work]


def faults_of(cause: Cause) -> list[Fault]:
    """Return what each of them raises, without its stack: only what is said may tell."""
    return [_fault(work) for work in cause.works]


def _fault(work: Work) -> Fault:
    try:
        answer = work()
        if asyncio.iscoroutine(answer):
            asyncio.run(answer)
    except Exception as error:  # noqa: BLE001 - whatever it raises
        return msgspec.structs.replace(capture(error, rule="default"), stack="")
    raise AssertionError(f"{work} should have failed")


class Line(msgspec.Struct):
    sku: str
    count: int


class Status(StrEnum):
    OPEN = "open"
    PAID = "paid"


class Order(msgspec.Struct, forbid_unknown_fields=True):
    total: int
    number: int
    lines: list[Line] = []
    status: Status = Status.OPEN


@dataclass
class Parcel:
    weight: int
    street: str


class Invoice(pydantic.BaseModel):
    total: int
    iban: str = pydantic.Field(max_length=5)
    lines: list[dict[str, int]] = []


def msgspec_(text: str, kind: type = Order) -> Work:
    return lambda: msgspec.json.decode(text, type=kind)


def pydantic_(**fields: object) -> Work:
    return lambda: Invoice(**fields)  # type: ignore[arg-type]


MSGSPEC = [
    Cause(
        "msgspec: no total",
        [msgspec_('{"number": 1}'), msgspec_('{"number": 2, "lines": []}')],
    ),
    Cause("msgspec: no number", [msgspec_('{"total": 1}'), msgspec_('{"total": 17}')]),
    Cause(
        "msgspec: total is text",
        [msgspec_('{"total": "a", "number": 1}'), msgspec_('{"total": "b", "number": 2}')],
    ),
    Cause("msgspec: number is text", [msgspec_('{"total": 1, "number": "a"}')]),
    Cause(
        "msgspec: no sku in a line",
        [
            msgspec_('{"total": 1, "number": 1, "lines": [{"count": 1}]}'),
            msgspec_('{"total": 1, "number": 1, "lines": [{"sku": "a", "count": 1}, {}]}'),
        ],
    ),
    Cause("msgspec: unknown field", [msgspec_('{"total": 1, "number": 1, "vat": 1}')]),
    Cause(
        "msgspec: unknown status",
        [
            msgspec_('{"total": 1, "number": 1, "status": "lost"}'),
            msgspec_('{"total": 1, "number": 2, "status": "gone"}'),
        ],
    ),
    Cause(
        "msgspec: cut off", [lambda: msgspec.json.decode(b'{"a'), lambda: msgspec.json.decode(b"[")]
    ),
    Cause(
        "msgspec: malformed",
        [lambda: msgspec.json.decode(b'{"a": x}'), lambda: msgspec.json.decode(b'{"abc": x}')],
    ),
]
DATACLASSES = [
    Cause("dataclass: no street", [lambda: Parcel(weight=1)]),  # type: ignore[call-arg]
    Cause("dataclass: no weight", [lambda: Parcel(street="a")]),  # type: ignore[call-arg]
    Cause("dataclass: unknown", [lambda: Parcel(weight=1, street="a", zip=1)]),  # type: ignore[call-arg]
    Cause("dataclass, read: no street", [msgspec_('{"weight": 1}', Parcel)]),
    Cause(
        "dataclass, read: weight is text",
        [msgspec_('{"weight": "a"}', Parcel), msgspec_('{"weight": "17", "street": ""}', Parcel)],
    ),
]
PYDANTIC = [
    Cause("pydantic: no total", [pydantic_(iban="DE1"), pydantic_(iban="FR2", lines=[{"a": 1}])]),
    Cause("pydantic: no iban", [pydantic_(total=1), pydantic_(total=17)]),
    Cause(
        "pydantic: total is text",
        [pydantic_(total="abc", iban="a"), pydantic_(total="19,90", iban="b")],
    ),
    Cause(
        "pydantic: iban too long",
        [pydantic_(total=1, iban="DE1234"), pydantic_(total=2, iban="FR1234567")],
    ),
    Cause(
        "pydantic: a line is text",
        [
            pydantic_(total=1, iban="a", lines=[{"a": "x"}]),
            pydantic_(total=1, iban="a", lines=[{"a": 1}, {"a": "y"}]),
        ],
    ),
]
EMPTY: dict[object, int] = {}
PYTHON = [
    Cause("key: total", [lambda: EMPTY["total"]]),
    Cause("key: price", [lambda: EMPTY["price"]]),
    Cause("key: a number", [lambda: EMPTY[17], lambda: EMPTY[18]]),
    Cause("key: an id", [lambda: EMPTY["order-17"], lambda: EMPTY["order-18"]]),
    Cause("attribute", [lambda: None.total]),  # type: ignore[attr-defined]
    Cause("no integer", [lambda: int("abc"), lambda: int("x_17"), lambda: int("")]),
    Cause("no float", [lambda: float("19,90"), lambda: float("abc")]),
    Cause("no decimal", [lambda: Decimal("abc"), lambda: Decimal("x")]),
    Cause(
        "no instant",
        [lambda: datetime.fromisoformat("31.1.2026"), lambda: datetime.fromisoformat("soon")],
    ),
    Cause("no such day", [lambda: date(2026, 2, 30), lambda: date(2025, 4, 31)]),
    Cause(
        "json: comma",
        [lambda: json.loads('{"a": 1 "b": 2}'), lambda: json.loads('{"abc": 17 "b": 2}')],
    ),
    Cause("json: colon", [lambda: json.loads('{"a" 1}'), lambda: json.loads('{"abc" 17}')]),
    Cause("json: empty", [lambda: json.loads("")]),
    Cause("no file", [lambda: open("/tmp/none/17.csv"), lambda: open("/tmp/none/18.csv")]),  # noqa: PTH123, S108, SIM115 - as people write it
    Cause("not utf-8", [b"abc\xff".decode, b"a\xff".decode]),
    Cause("refused", [lambda: _connect(1), lambda: _connect(2)]),
]


def _connect(port: int) -> None:
    with socket.socket() as one:
        one.connect(("127.0.0.1", port))


def validation(validator: Callable[[str], None], *values: str) -> list[Work]:
    return [lambda value=value: validator(value) for value in values]  # type: ignore[misc]


def _fields(**errors: str) -> None:
    raise DjangoError({name: [said] for name, said in errors.items()})


def _django(statement: str, *values: object) -> Work:
    def work() -> None:
        _set_up()
        from django.db.backends.sqlite3.base import DatabaseWrapper  # noqa: PLC0415 - it reads settings

        settings = {"NAME": ":memory:", "OPTIONS": {}, "CONN_MAX_AGE": 0, "AUTOCOMMIT": True}
        settings |= {"ATOMIC_REQUESTS": False, "CONN_HEALTH_CHECKS": False, "TIME_ZONE": None}
        settings |= {"TEST": {}, "HOST": "", "PORT": "", "USER": "", "PASSWORD": ""}
        wrapper = DatabaseWrapper(settings)
        with closing(wrapper), wrapper.cursor() as cursor:
            cursor.execute("CREATE TABLE item (sku text NOT NULL UNIQUE, iban text NOT NULL)")
            cursor.execute("INSERT INTO item VALUES ('a', 'b')")
            cursor.execute(statement, values)

    return work


def _set_up() -> None:
    if not django.conf.settings.configured:
        django.conf.settings.configure(USE_I18N=False)
    django.setup()


def django_error(work: Work) -> Work:
    def within() -> object:
        _set_up()
        return work()

    return within


DJANGO = [
    Cause(
        "django: e-mail",
        [django_error(one) for one in validation(EmailValidator(), "ann", "bob@")],
    ),
    Cause("django: url", [django_error(one) for one in validation(URLValidator(), "ann", "x y")]),
    Cause(
        "django: too long",
        [django_error(one) for one in validation(MaxLengthValidator(3), "abcd", "abcdefghij")],
    ),
    Cause("django: field sku", [django_error(lambda: _fields(sku="This field is required."))]),
    Cause("django: field iban", [django_error(lambda: _fields(iban="This field is required."))]),
    Cause(
        "django: null sku",
        [
            _django("INSERT INTO item VALUES (NULL, %s)", "a"),
            _django("INSERT INTO item VALUES (NULL, %s)", "b"),
        ],
    ),
    Cause("django: null iban", [_django("INSERT INTO item VALUES (%s, NULL)", "c")]),
    Cause("django: same sku", [_django("INSERT INTO item VALUES (%s, %s)", "a", "b")]),
    Cause("django: no column", [_django("SELECT price FROM item")]),
    Cause("django: no table", [_django("SELECT 1 FROM price")]),
]


async def _get(status: int, body: object = None, *, path: str = "/orders/17") -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_get(path, answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{path}") as said,
        ):
            if body is not None:
                text = await said.text()
                raise RuntimeError(f"payments answered {said.status}: {text}")
            said.raise_for_status()
    finally:
        await runner.cleanup()


async def _call(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(url):
        pass


AIOHTTP = [
    Cause("aiohttp: 502", [lambda: _get(502), lambda: _get(502, path="/orders/18")]),
    Cause("aiohttp: 401", [lambda: _get(401), lambda: _get(401, path="/orders/18")]),
    Cause("aiohttp: 404", [lambda: _get(404)]),
    Cause(
        "aiohttp: refused",
        [lambda: _call("http://127.0.0.1:1/a"), lambda: _call("http://127.0.0.1:2/b")],
    ),
    Cause("aiohttp: no url", [lambda: _call("nowhere")]),
    Cause(
        "json body: declined",
        [
            lambda: _get(
                402, {"error": "card declined", "customer": "ann", "request": str(uuid4())}
            ),
            lambda: _get(
                402, {"error": "card declined", "customer": "bob", "request": str(uuid4())}
            ),
        ],
    ),
    Cause(
        "json body: expired",
        [lambda: _get(402, {"error": "card expired", "customer": "ann", "request": str(uuid4())})],
    ),
    Cause(
        "json body: declined, 503",
        [lambda: _get(503, {"error": "card declined", "customer": "ann", "request": "17"})],
    ),
    Cause(
        "json body: field iban",
        [
            lambda: _get(422, {"detail": [{"loc": ["body", "iban"], "msg": "Field required"}]}),
        ],
    ),
    Cause(
        "json body: field total",
        [
            lambda: _get(422, {"detail": [{"loc": ["body", "total"], "msg": "Field required"}]}),
        ],
    ),
    Cause(
        "json body: code 1042",
        [lambda: _get(400, {"code": 1042, "at": "2026-01-31T14:00:00Z"})],
    ),
    Cause(
        "json body: code 1043",
        [
            lambda: _get(400, {"code": 1043, "at": "2026-01-31T14:00:00Z"}),
            lambda: _get(400, {"code": 1043, "at": "2027-02-28T15:30:00Z"}),
        ],
    ),
]


@contextmanager
def _mail_server(*answers: str) -> Iterator[int]:
    """Serve one connection: each line that comes is answered with the next of these."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as file:
            file.write(b"220 mail.example ready\r\n")
            file.flush()
            for answer in answers:
                if not file.readline():
                    return
                file.write(f"{answer}\r\n".encode())
                file.flush()

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.join(10)
        listener.close()


def _send(*answers: str, to: str = "ann@example.org", greets: str = "250 hello") -> None:
    with _mail_server(greets, *answers) as port, closing(smtplib.SMTP("127.0.0.1", port)) as mail:
        mail.sendmail("shop@example.org", [to], "Subject: your order\n\nThank you.")


SMTP = [
    Cause(
        "smtp: no such user",
        [
            lambda: _send("250 ok", "550 5.1.1 No such user here", "250 reset"),
            lambda: _send(
                "250 ok", "550 5.1.1 No such user here", "250 reset", to="bob.lee@mail.example"
            ),
        ],
    ),
    Cause("smtp: try later", [lambda: _send("250 ok", "451 4.3.0 Try again later", "250 reset")]),
    Cause("smtp: full", [lambda: _send("250 ok", "552 5.2.2 Mailbox full", "250 reset")]),
    Cause(
        "smtp: sender refused",
        [
            lambda: _send("553 5.1.8 Domain of sender 17 is unknown", "250 reset"),
            lambda: _send("553 5.1.8 Domain of sender 18 is unknown", "250 reset"),
        ],
    ),
    Cause(
        "smtp: spam",
        [lambda: _send("250 ok", "250 ok", "354 go on", "554 5.7.1 It is spam", "250 reset")],
    ),
    Cause("smtp: hung up", [lambda: _send(greets="421 4.3.2 closing")]),
]


def _sqlalchemy(statement: str, *values: dict[str, object], url: str = "sqlite://") -> Work:
    def work() -> None:
        engine = sqlalchemy.create_engine(url)
        try:
            with engine.connect() as connection:
                connection.execute(sqlalchemy.text(_TABLE))
                connection.execute(sqlalchemy.text("INSERT INTO item VALUES (1, 'a', 'b')"))
                connection.execute(sqlalchemy.text(statement), values or None)
        finally:
            engine.dispose()

    return work


_TABLE = """
CREATE TEMPORARY TABLE item (
    id int PRIMARY KEY, sku varchar(10) NOT NULL UNIQUE, iban varchar(10) NOT NULL
)
"""
_FILLED = f"{_TABLE}; INSERT INTO item VALUES (1, 'a', 'b')"  # noqa: S608 - no input of anybody
_ADD = "INSERT INTO item VALUES (:id, :sku, :iban)"

SQLALCHEMY = [
    Cause(
        "sqlalchemy: null sku",
        [
            _sqlalchemy(_ADD, {"id": 2, "sku": None, "iban": "x"}),
            _sqlalchemy(_ADD, {"id": 3, "sku": None, "iban": "y z"}),
            _sqlalchemy(
                _ADD, {"id": 4, "sku": None, "iban": "x"}, {"id": 5, "sku": None, "iban": "x"}
            ),
        ],
    ),
    Cause("sqlalchemy: null iban", [_sqlalchemy(_ADD, {"id": 2, "sku": "x", "iban": None})]),
    Cause(
        "sqlalchemy: same id",
        [
            _sqlalchemy(_ADD, {"id": 1, "sku": "x", "iban": "y"}),
            _sqlalchemy(_ADD, {"id": 1, "sku": "z", "iban": "z"}),
        ],
    ),
    Cause("sqlalchemy: no column", [_sqlalchemy("SELECT price FROM item")]),
    Cause("sqlalchemy: no parameter", [_sqlalchemy("SELECT :total", {"number": 1})]),
]
TLS = [
    Cause(
        "tls: no such file",
        [
            lambda: ssl.create_default_context(cafile="/tmp/none/17.pem"),  # noqa: S108 - not there
            lambda: ssl.create_default_context(cafile="/tmp/none/18.pem"),  # noqa: S108 - not there
        ],
    ),
    Cause(
        "dns",
        [
            lambda: socket.getaddrinfo("shop-1.invalid", 80),
            lambda: socket.getaddrinfo("shop-2.invalid", 80),
        ],
    ),
]

CAUSES = [
    *MSGSPEC,
    *DATACLASSES,
    *PYDANTIC,
    *PYTHON,
    *DJANGO,
    *AIOHTTP,
    *SMTP,
    *SQLALCHEMY,
    *TLS,
]


def FROM_POSTGRES(url: str) -> list[Cause]:  # noqa: N802 - a list that needs a server
    """Return what a PostgreSQL server says, through each driver."""
    return [
        cause
        for name, say in (
            ("asyncpg", _by_asyncpg),
            ("psycopg", _by_psycopg),
            ("psycopg2", _by_psycopg2),
            ("sqlalchemy", _by_sqlalchemy),
        )
        for cause in _said(name, lambda statement, say=say: say(url, statement))  # type: ignore[misc]
    ]


def _said(name: str, say: Callable[[str], Work]) -> list[Cause]:
    add = "INSERT INTO item VALUES ({})"
    return [
        Cause(
            f"{name}: null sku",
            [say(add.format("2, NULL, 'x'")), say(add.format("3, NULL, 'y (z) a'"))],
        ),
        Cause(f"{name}: null iban", [say(add.format("2, 'x', NULL"))]),
        Cause(
            f"{name}: same sku",
            [say(add.format("2, 'a', 'x'")), say(add.format("3, 'a', 'some thing'"))],
        ),
        Cause(f"{name}: same id", [say(add.format("1, 'x', 'x'")), say(add.format("1, 'y', 'y'"))]),
        Cause(f"{name}: too long", [say(add.format("2, 'abcdefghijklm', 'x'"))]),
        Cause(f"{name}: no column price", [say("SELECT price FROM item")]),
        Cause(f"{name}: no column weight", [say("SELECT weight FROM item")]),
        Cause(f"{name}: no table", [say("SELECT 1 FROM price")]),
        Cause(
            f"{name}: no integer",
            [say("SELECT 'abc'::text::int"), say("SELECT 'x_17'::text::int")],
        ),
        Cause(f"{name}: by zero", [say("SELECT 1 / 0"), say("SELECT 17 / 0")]),
    ]


def _by_asyncpg(url: str, statement: str) -> Work:
    async def work() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(_FILLED)
            await connection.execute(statement)
        finally:
            await connection.close()

    return work


def _by_psycopg(url: str, statement: str) -> Work:
    def work() -> None:
        with psycopg.connect(url) as connection:
            connection.execute(_FILLED)
            connection.execute(statement)

    return work


def _by_psycopg2(url: str, statement: str) -> Work:
    def work() -> None:
        with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
            cursor.execute(_FILLED)
            cursor.execute(statement)

    return work


def _by_sqlalchemy(url: str, statement: str) -> Work:
    return _sqlalchemy(statement, url=url.replace("postgresql://", "postgresql+psycopg://"))
