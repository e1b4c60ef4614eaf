"""A shop with a store of its own, and a shell to type commands into."""

import asyncio
import io
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, Unpack

import pytest
import structlog

from redrive import Event, Redrive, Retry, Terminal
from redrive.cli.main import main
from redrive.model.event import EventAttributes

T = TypeVar("T")


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the command has printed
        return json.loads(self.out)


@contextmanager
def _own_log() -> Iterator[None]:
    """Let a command set up its log, as some do, and take it back: its stream ends with the test."""
    root, config = logging.getLogger(), structlog.get_config()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.configure(**config)


class Shell:
    """Runs commands in this process; each answer is what came out since the one before."""

    def __init__(self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._patch = patch

    def narrow(self, columns: int) -> None:
        """Let lines be no longer, as on a terminal of that width."""
        self._patch.setenv("COLUMNS", str(columns))

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Answer:
        self._patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._capsys.readouterr()
        with _own_log():
            code = main(arguments)
        return Answer(code, *self._capsys.readouterr())


class Shop:
    """An app whose destinations fail when the payload says so."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def path(self) -> Path:
        """The file of a store in one; only tests on SQLite ask for it."""
        return Path(self.url.removeprefix("sqlite:///"))

    def app(self) -> Redrive:
        app = Redrive(self.url)

        @app.handler("order.*", retry=Retry(max_attempts=1))
        async def billing(event: Event[Any]) -> None:
            fail(event)

        @app.handler("letter.*", order="park", retry=Retry(max_attempts=1))
        async def mail(event: Event[Any]) -> None:
            fail(event)

        return app

    def do(self, work: Callable[[Redrive], Awaitable[T]]) -> T:
        async def session() -> T:
            async with self.app() as app:
                return await work(app)

        return asyncio.run(session())

    def publish(
        self,
        *payloads: object,
        event_type: str = "order.paid",
        **attributes: Unpack[EventAttributes],
    ) -> None:
        async def work(app: Redrive) -> None:
            for payload in payloads:
                await app.publish(event_type, payload, **attributes)

        self.do(work)

    def deliver(
        self,
        *payloads: object,
        event_type: str = "order.paid",
        **attributes: Unpack[EventAttributes],
    ) -> None:
        async def work(app: Redrive) -> None:
            for payload in payloads:
                await app.publish(event_type, payload, **attributes)
            await app.drain()

        self.do(work)


def fail(event: Event[Any]) -> None:
    match event.payload:
        case {"error": str(message)}:
            raise ConnectionError(message)
        case {"terminal": str(message)}:
            raise Terminal(message)


def ids(answer: Answer) -> Sequence[int]:
    return [one["id"] for one in answer.json["deliveries"]]
