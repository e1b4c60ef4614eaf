"""Brokers for the tests: Valkey, NATS with JetStream and RabbitMQ, each in a folder of its own."""

from __future__ import annotations

import shutil
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from tests.servers.daemon import Daemon, a_folder, free_port
from tests.servers.programs import nats_program, rabbit_programs, valkey_program
from tests.waiting import PATIENCE_SECONDS

__all__ = ["Broker", "Nats", "Rabbit", "Valkey", "a_broker"]


class Broker(ABC):
    """A server of our own at a port of its own, which keeps what it has over a restart."""

    end = signal.SIGKILL

    def __init__(self) -> None:
        self.folder = a_folder(type(self).__name__.lower())
        self.port = free_port()
        self._server: Daemon | None = None

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return what starts it."""

    @abstractmethod
    def greets(self, line: socket.socket) -> bool:
        """Tell whether it answers."""

    def start(self) -> None:
        """Start it, and wait until it answers."""
        if self._server is None:
            self._server = Daemon(self.command(), folder=self.folder, end=self.end)
            self._server.until(self._is_ready, within=PATIENCE_SECONDS, what="it answers")

    def stop(self) -> None:
        """End it at once, as a crash does."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def remove(self) -> None:
        """Stop it for good, and remove its files."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _is_ready(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0) as line:
            line.settimeout(1.0)
            return self.greets(line)
        return False


class Valkey(Broker):
    """A Valkey that writes each command to its disk before it answers."""

    def command(self) -> Sequence[str]:
        return [
            *(str(valkey_program()), "--port", str(self.port), "--bind", "127.0.0.1"),
            *("--dir", str(self.folder), "--save", "", "--appendonly", "yes"),
            *("--appendfsync", "always", "--maxmemory-policy", "noeviction"),
        ]

    def greets(self, line: socket.socket) -> bool:
        line.sendall(b"PING\r\n")
        return line.recv(7) == b"+PONG\r\n"


class Nats(Broker):
    """A NATS server with JetStream."""

    def command(self) -> Sequence[str]:
        return [
            *(str(nats_program()), "-a", "127.0.0.1", "-p", str(self.port)),
            *("-js", "-sd", str(self.folder / "store")),
        ]

    def greets(self, line: socket.socket) -> bool:
        return line.recv(5) == b"INFO "


class Rabbit(Broker):
    """A RabbitMQ node, and the port mapper that Erlang wants: it would stay when the node ends."""

    def __init__(self) -> None:
        super().__init__()
        self._programs = rabbit_programs()
        self._mapper_port = free_port()
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nlog.console = true\nlog.file = false\n"
        )
        (self.folder / "plugins").write_text("[].\n")
        mapping = [str(self._programs.epmd), "-port", str(self._mapper_port)]
        self._mapper = Daemon(
            [*mapping, "-address", "127.0.0.1"], folder=self.folder, end=signal.SIGKILL
        )
        self._mapper.until(self._is_mapping, within=PATIENCE_SECONDS, what="epmd answers")

    def command(self) -> Sequence[str]:
        settings = {
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_NODENAME": f"redrive{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1 +sbwt none -noinput"
            ),
            # It then runs in the foreground of whoever has started it, and ends with that.
            "RABBITMQ_ALLOW_INPUT": "1",
        }
        named = [f"{name}={value}" for name, value in settings.items()]
        return ["env", *named, str(self._programs.server)]

    def greets(self, line: socket.socket) -> bool:
        line.sendall(b"AMQP\x00\x00\x09\x01")
        return bool(line.recv(1))

    def remove(self) -> None:
        self.stop()
        self._mapper.stop()
        super().remove()

    def _is_mapping(self) -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self._mapper_port), 1.0).close()
            return True
        return False


@contextmanager
def a_broker(kind: type[Broker]) -> Iterator[Broker]:
    """Run one while the block lasts."""
    broker = kind()
    try:
        broker.start()
        yield broker
    finally:
        broker.remove()
