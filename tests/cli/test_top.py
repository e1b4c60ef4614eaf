"""`redrive top` as it is typed: one frame, frames in a pipe, and a picture in a real terminal."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import Redrive
from redrive.cli.top.lookout import Lookout
from redrive.errors import StoreUnavailableError
from tests.cli.shell import Shell, Shop
from tests.waiting import PATIENCE_SECONDS

COMMAND = (sys.executable, "-m", "redrive", "top")
OTHER_SCREEN, OWN_SCREEN, CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


@pytest.fixture
def store(sqlite: str) -> str:
    """One kind of store is enough here: this is about the terminal."""
    return sqlite


class Terminal:
    """A terminal of its own with `redrive top` in it."""

    def __init__(self, store: str, *options: str, columns: int = 80, lines: int = 24) -> None:
        self._ours, self._theirs = pty.openpty()
        self.resize(columns, lines)
        self.settings = termios.tcgetattr(self._theirs)
        given = {"TERM": "xterm-256color", "REDRIVE_STORE": store}
        self.process = subprocess.Popen(
            [*COMMAND, "--every", "100ms", *options],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env={**os.environ, **given},
            start_new_session=True,
            preexec_fn=self._take_control,  # noqa: PLW1509 - only so are its keys its own
        )
        self.seen = b""

    def _take_control(self) -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def resize(self, columns: int, lines: int) -> None:
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, size)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def until(self, words: str, *, after: int = 0) -> int:
        """Read until these words were drawn; returns how much was read."""
        while words.encode() not in self.seen[after:]:
            ready, _, _ = select.select([self._ours], [], [], PATIENCE_SECONDS)
            assert ready, f"{words!r} was not drawn, but {self.seen[-2000:]!r}"
            self.seen += os.read(self._ours, 65_536)
        return len(self.seen)

    def leave(self) -> int:
        """Wait for the end; returns the exit code."""
        code = self.process.wait(PATIENCE_SECONDS)
        while select.select([self._ours], [], [], 0)[0]:
            self.seen += os.read(self._ours, 65_536)
        return code

    @property
    def is_clean(self) -> bool:
        """Whether the terminal is as it was: own screen, a cursor, echo and whole lines."""
        return (
            self.seen.count(OTHER_SCREEN) == self.seen.count(OWN_SCREEN) == 1
            and CURSOR in self.seen[self.seen.rindex(OWN_SCREEN) - 20 :]
            and termios.tcgetattr(self._theirs) == self.settings
        )

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@contextlib.contextmanager
def in_terminal(store: str, *options: str) -> Iterator[Terminal]:
    terminal = Terminal(store, *options)
    try:
        yield terminal
    finally:
        terminal.close()


def test_one_frame_is_printed_as_plain_text(shell: Shell, shop: Shop) -> None:
    shop.deliver({"order": 1}, {"terminal": "no such customer"})
    shop.deliver({"terminal": "no mailbox"}, {"a": 1}, event_type="letter.sent", key="ann")
    shell("destination", "pause", "billing", "--why", "they migrate", "--by", "ann")

    answer = shell("top", "--once", "--every", "100ms")

    assert answer.code == 0
    assert "4 events · 1 pending · 0 in flight · 1 delivered · 2 failed · 0/s" in answer.out
    assert re.search(r"‖ billing +- .*\n  paused by ann .*: they migrate\n", answer.out)
    assert re.search(r"1 ▲ .* billing .*no such cus", answer.out)
    assert re.search(r"ann +mail +1 3 terminal", answer.out)
    assert max(map(len, answer.out.splitlines())) <= 80
    assert "\x1b" not in answer.out


def test_one_frame_is_json_for_programs(shell: Shell, shop: Shop) -> None:
    shop.deliver({"order": 1}, {"terminal": "no such customer"})

    told = shell("top", "--once", "--every", "100ms", "--json").json

    assert [one["name"] for one in told["destinations"]] == ["billing", "mail"]
    assert told["per_second"] == {"billing": 0.0, "mail": 0.0}
    assert [one["count"] for one in told["groups"]] == [1]
    assert told["replays"] == []
    assert (told["lanes"], [one["destination"] for one in told["gates"]]) == (
        [],
        ["billing", "mail"],
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--json"], "--json prints one document, so it needs --once."),
        (["--once", "--every", "1ms"], "every is '1ms'; it is between 100ms and 1h."),
        (["--once", "--every", "soon"], "every is 'soon', which is not a duration"),
        (["--once", "--sort", "luck"], "sort is 'luck'; it is one of trouble, name, pending"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: list[str], complaint: str, shell: Shell, shop: Shop
) -> None:
    answer = shell("top", *options)

    assert answer.code == 2
    assert complaint in answer.err


@pytest.mark.parametrize("options", [[], ["--once"]])
def test_a_store_that_is_not_there_is_refused_at_the_beginning(
    options: list[str], shell: Shell
) -> None:
    answer = shell("top", *options, "--store", "sqlite:///nowhere.db")

    assert answer.code == 3
    assert "There is no store at nowhere.db" in answer.err


def test_in_a_pipe_it_prints_frame_after_frame(shop: Shop) -> None:
    with subprocess.Popen(
        [*COMMAND, "--every", "100ms"], stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        titles = 0
        for line in watching.stdout:
            titles += line.startswith("redrive top")
            if titles == 3:
                break
        watching.send_signal(signal.SIGINT)
        assert watching.wait(PATIENCE_SECONDS) == 130


def test_the_picture_follows_what_happens_and_q_leaves(shop: Shop) -> None:
    with in_terminal(shop.url) as terminal:
        terminal.until("q quit")
        shop.publish({"order": 1})
        drawn = terminal.until("1 event ")
        terminal.type("s")
        drawn = terminal.until("sort (by name)", after=drawn)
        terminal.type("p")
        drawn = terminal.until("p go on", after=drawn)
        terminal.type("q")

        assert terminal.leave() == 0
        assert terminal.is_clean


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_clean(name: signal.Signals, shop: Shop) -> None:
    with in_terminal(shop.url) as terminal:
        terminal.until("q quit")
        terminal.process.send_signal(name)

        assert terminal.leave() == 130
        assert terminal.is_clean


def test_control_c_leaves_the_terminal_clean(shop: Shop) -> None:
    with in_terminal(shop.url) as terminal:
        terminal.until("q quit")
        terminal.type("\x1a\x03")

        assert terminal.leave() == 130
        assert terminal.is_clean


def test_it_uses_the_width_it_is_given(shop: Shop) -> None:
    with in_terminal(shop.url, "--every", "1h") as terminal:
        drawn = terminal.until("q quit")
        assert b"Held" not in terminal.seen
        terminal.resize(140, 40)
        os.kill(terminal.process.pid, signal.SIGWINCH)
        terminal.until("Held", after=drawn)


def test_a_store_that_went_away_is_told_in_the_picture_until_it_is_back(shop: Shop) -> None:
    with in_terminal(shop.url) as terminal:
        drawn = terminal.until("q quit")
        away = shop.path.with_suffix(".away")
        shop.path.rename(away)
        drawn = terminal.until("There is no store at", after=drawn)
        away.rename(shop.path)
        shop.publish({"order": 1})
        terminal.until("1 event ", after=drawn)
        terminal.type("q")

        assert terminal.leave() == 0


async def test_a_store_that_takes_the_place_of_another_is_found(folder: Path) -> None:
    async def publish(name: str, count: int) -> None:
        async with Redrive(f"sqlite:///{folder / name}") as app:
            for number in range(count):
                await app.publish("order.paid", number)

    await publish("old.db", 1)
    await publish("new.db", 2)
    app = Redrive(f"sqlite:///{folder / 'old.db'}")
    lookout = Lookout(app)
    first = await lookout.read()

    (folder / "new.db").rename(folder / "old.db")
    second = await lookout.read()
    (folder / "old.db").unlink()
    with pytest.raises(StoreUnavailableError, match="There is no store"):
        await lookout.read()

    assert (first.figures.events, second.figures.events) == (1, 2)
    await app.close()
