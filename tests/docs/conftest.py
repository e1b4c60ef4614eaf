from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tests.servers.postgres import Database

_numbers = itertools.count(1)


@pytest.fixture
def database_name(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A new database, at the server that every driver finds by the environment."""
    server, name = database.url.partition("?")[0], f"docs_{os.getpid()}_{next(_numbers)}"
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
