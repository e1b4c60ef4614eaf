from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

_numbers = itertools.count(1)


@pytest.fixture
def postgres_url() -> str:
    """The URL of an empty store in PostgreSQL."""
    return "postgresql://redrive@127.0.0.1:54329/postgres?schema=unused"


@pytest.fixture
def database_name(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A new database, at the server that every driver finds by the environment."""
    server, name = postgres_url.partition("?")[0], f"docs_{os.getpid()}_{next(_numbers)}"
    parts = urlsplit(server)
    for variable, value in (
        ("PGHOST", parts.hostname),
        ("PGPORT", parts.port),
        ("PGUSER", parts.username),
        ("PGPASSWORD", parts.password),
    ):
        if value:
            monkeypatch.setenv(variable, str(value))
    with closing(psycopg.connect(server, autocommit=True)) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        yield name
        connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))
