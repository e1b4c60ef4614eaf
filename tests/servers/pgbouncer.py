"""PgBouncer for the tests: pools transactions in front of a PostgreSQL server."""

from __future__ import annotations

import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

from tests.servers.daemon import Daemon, a_folder, free_port
from tests.servers.programs import bouncer_program

__all__ = ["bouncing"]

_CONFIGURATION = """
[databases]
* = {server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {here}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 200
"""


@contextmanager
def bouncing(url: str, *, size: int = 3) -> Iterator[str]:
    """Run a PgBouncer with this many connections to the server at `url`; yields its own URL."""
    parts = urlsplit(url)
    given = {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": parts.password,
    }
    target = " ".join(f"{name}={value}" for name, value in given.items() if value)
    here = free_port()
    program, folder = bouncer_program(), a_folder("pgbouncer")
    configuration = folder / "pgbouncer.ini"
    configuration.write_text(_CONFIGURATION.format(server=target, here=here, size=size))
    server = Daemon([str(program), str(configuration)], folder=folder, end=signal.SIGTERM)
    try:
        server.until(lambda: _answers(here), within=60, what="it takes connections")
        yield urlunsplit(parts._replace(netloc=f"anybody@127.0.0.1:{here}"))
    finally:
        server.stop()
        shutil.rmtree(folder)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
