"""Addresses of PostgreSQL stores: read, shown without secrets, and refused when wrong."""

from urllib.parse import parse_qs, urlsplit

import pytest

from redrive import ConfigurationError, Redrive
from redrive.stores.postgres import read_address


def test_an_address_names_a_schema_and_a_pool_and_leaves_the_rest_to_the_driver() -> None:
    address = read_address("postgresql://shop@db/shop?schema=events&pool=4&sslmode=require")

    assert (address.schema, address.pool) == ("events", 4)
    assert address.dsn == "postgresql://shop@db/shop?sslmode=require"


def test_an_address_is_shown_without_its_password() -> None:
    address = read_address("postgres://shop:very%40secret@db:5433/shop")

    assert address.name == "postgresql://db:5433/shop (schema redrive)"


def test_a_password_may_hold_the_sign_that_ends_it() -> None:
    address = read_address("postgresql://shop:p@ss:word@db/shop")

    assert address.dsn == "postgresql://shop:p%40ss:word@db/shop"


def test_an_address_may_name_a_server_and_its_standbys() -> None:
    address = read_address("postgresql://shop:secret@db1:5432,[::1]:5433/shop")

    assert address.name == "postgresql://db1:5432,[::1]:5433/shop (schema redrive)"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgresql://db/shop?schema=Shop", "schema in the store URL is 'Shop'; use small"),
        ("postgresql://db/shop?schema=pg_mine", "schema in the store URL is 'pg_mine'"),
        ("postgresql://db/shop?schema=1st", "schema in the store URL is '1st'"),
        (f"postgresql://db/shop?schema={'s' * 49}", "at most 48 characters"),
        ("postgresql://db/shop?pool=1", "pool in the store URL is '1'; .* from 2"),
        ("postgresql://db/shop?pool=many", "pool in the store URL is 'many'"),
        ("postgresql://db:port/shop", "cannot be read: its port is not a number"),
        ("postgresql://db:70000/shop", "cannot be read: its port is not a number up to 65535"),
        ("postgresql:///shop?host=/run&port=five", "cannot be read: its port is not a number"),
        ("postgresql://[::1/shop", "cannot be read: its host is malformed"),
        ("postgresql://db/shop?schema", "cannot be read: after its '\\?' there is something else"),
        (
            "postgresql://db/shop?shema=events",
            "option of a store URL 'shema'; did you mean 'schema'",
        ),
        ("postgresql://db/shop?colour=red", "'colour'; there are schema, pool, sslmode, .*options"),
    ],
)
def test_a_wrong_address_is_refused_in_one_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        read_address(url)


@pytest.mark.parametrize(
    "option",
    [
        "sslmode=verify-full&sslrootcert=/etc/ca.pem",
        "target_session_attrs=read-write",
        "application_name=shop",
        "options=-c%20work_mem%3D8MB",
        "host=/run/postgresql&port=5433",
        "statement_timeout=5000",
    ],
)
def test_options_of_the_driver_are_left_to_it(option: str) -> None:
    address = read_address(f"postgresql://shop@db/shop?pool=4&{option}")

    assert parse_qs(urlsplit(address.dsn).query) == parse_qs(option)


PARTS = ("Wq", "Xz", "Kv")
"""Parts of a password, around whatever a person forgot to write with a percent sign."""
MARKS = ("", "@", ":", "/", "?", "#", "%", "[", "]", "&", "=", " ", "?a=", "?a=@", "12/", "@/", "℀")


def told(url: str) -> str:
    """Return all that anybody is told about an address, right or wrong."""
    try:
        settings, address = Redrive(url).settings, read_address(url)
    except ConfigurationError as error:
        context = None if error.__suppress_context__ else error.__context__
        return f"{error} {error.__cause__} {context}"
    return f"{settings!r} {address!r} {address.name} {address.censored(address.dsn)}"


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize(
    "rest", ["@db/shop?schema=BAD", "@db:port/shop", "@db", "@", "@db/shop?colour=1", "@[::1"]
)
@pytest.mark.parametrize("start", ["postgresql://shop:", "postgresql+asyncpg://shop:", "shop:"])
def test_no_message_about_an_address_tells_its_password(start: str, mark: str, rest: str) -> None:
    said = told(f"{start}{mark.join(PARTS)}{rest}")

    assert not [part for part in PARTS if part in said]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db/shop?password=WqXzKv&schema=BAD",
        "postgresql://db/shop?password=WqXzKv&sslpassword=Wq&pool=x",
        "postgresql://db/shop?password=WqXzKv&sslmode=prefer",
        "postgresql://db/shop?WqXzKv",
        "postgresql://shop:WqXzKv",
        "host=db password=WqXzKv",
    ],
)
def test_no_message_about_an_address_tells_a_password_in_the_wrong_place(url: str) -> None:
    said = told(url)

    assert not [part for part in PARTS if part in said]


def test_what_the_driver_says_is_told_without_the_password() -> None:
    address = read_address("postgresql://shop:very%40secret@db/shop?sslpassword=other")

    assert address.censored("no 'very%40secret', very@secret or other") == "no '…', … or …"
