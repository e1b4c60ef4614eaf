"""Addresses of PostgreSQL stores: read, shown without secrets, and refused when wrong."""

import pytest

from redrive import ConfigurationError
from redrive.stores.postgres import read_address


def test_an_address_names_a_schema_and_a_pool_and_leaves_the_rest_to_the_driver() -> None:
    address = read_address("postgresql://shop@db/shop?schema=events&pool=4&sslmode=require")

    assert (address.schema, address.pool) == ("events", 4)
    assert address.dsn == "postgresql://shop@db/shop?sslmode=require"


def test_an_address_is_shown_without_its_password() -> None:
    address = read_address("postgres://shop:very%40secret@db:5433/shop")

    assert address.name == "postgresql://db:5433/shop (schema redrive)"


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
        ("postgresql://db:port/shop", "cannot be read: Port could not be cast"),
        ("postgresql://db/shop?schema", "cannot be read: bad query field"),
    ],
)
def test_a_wrong_address_is_refused_in_one_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        read_address(url)


def test_an_address_that_cannot_be_read_keeps_its_secret() -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_address("postgresql://shop:secret@db:port/shop")

    assert "secret" not in str(refused.value)
