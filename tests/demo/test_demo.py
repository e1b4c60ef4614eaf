"""The demo tells the truth: it ends well only if every delivery is accounted for."""

from __future__ import annotations

import io
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import apsw
import pytest
from rich.console import Console
from typer.core import TyperGroup
from typer.main import get_command

from redrive.cli.main import app
from redrive.config import parse_store
from redrive.demo import perform, run_demo
from redrive.demo.count import Count
from redrive.demo.narrator import Scene
from redrive.demo.narrators.lines import Lines
from redrive.demo.narrators.picture import Picture
from redrive.errors import ConfigurationError

FAST = 20.0


class Saboteur(Lines):
    """Deletes one delivery behind the demo's back when an act begins."""

    def __init__(self, *, in_act: int, status: int) -> None:
        self.out = io.StringIO()
        super().__init__(self.out)
        self._in_act = in_act
        self._status = status
        self._store = ""

    def begin(self, *, store: str) -> None:
        super().begin(store=store)
        self._store = store

    def scene(self, scene: Scene) -> None:
        super().scene(scene)
        if scene.act == self._in_act:
            self._in_act = 0
            # In a thread: the shop may hold the write lock, and needs its event loop to let go.
            threading.Thread(target=self._delete).start()

    def _delete(self) -> None:
        connection = apsw.Connection(str(parse_store(self._store).path))
        connection.set_busy_timeout(5_000)
        connection.execute(
            "DELETE FROM redrive_deliveries WHERE id = "
            "(SELECT min(id) FROM redrive_deliveries WHERE status = ?)",
            (self._status,),
        )
        connection.close()


def test_the_demo_ends_with_nothing_lost(capsys: pytest.CaptureFixture[str]) -> None:
    """This is the promise, so it is the last thing the demo says."""
    code = run_demo(plain=True, speed=FAST)

    told = capsys.readouterr().out
    assert "lost: 0" in told
    assert code == 0, told


def test_plain_lines_tell_every_act_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Plain output ends up in logs, where anything but text is noise."""
    run_demo(plain=True, speed=FAST)

    told = capsys.readouterr().out
    assert [act for act in range(1, 6) if f"Act {act} of 5" not in told] == []
    assert "16  search: KeyError: 'category'" in told
    assert "8  search: ValueError: could not convert string to float: '#'" in told
    assert all(letter == "\n" or letter.isprintable() for letter in told)
    assert told.isascii()


def test_without_a_terminal_the_story_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody has to know the option to get a readable log."""
    run_demo(speed=FAST)

    assert "Act 5 of 5" in capsys.readouterr().out


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo that litters is run once."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    perform(Lines(io.StringIO()), speed=FAST)

    assert list(tmp_path.iterdir()) == []


def test_a_dead_letter_deleted_behind_its_back_is_reported_as_lost() -> None:
    """A count that cannot fail proves nothing."""
    saboteur = Saboteur(in_act=4, status=3)

    code = perform(saboteur, speed=FAST)

    told = saboteur.out.getvalue()
    assert "lost: 1" in told
    assert "The count does not add up" in told
    assert code == 1


def test_a_finished_delivery_deleted_behind_its_back_does_not_add_up() -> None:
    """It arrived, so it is not lost, but the store's book is wrong."""
    saboteur = Saboteur(in_act=5, status=2)

    code = perform(saboteur, speed=FAST)

    told = saboteur.out.getvalue()
    assert "lost: 0" in told
    assert "1 of the expected deliveries are not in the store" in told
    assert code == 1


def test_the_picture_gives_the_terminal_back() -> None:
    """The other screen is left and the cursor shown again before the count is printed."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=24, legacy_windows=False)

    code = perform(Picture(console), speed=FAST)

    running, _, after = out.getvalue().rpartition("\x1b[?1049l")
    assert "redrive dlq replay" in running
    assert "\x1b[?25h" in out.getvalue().rpartition("\x1b[?25l")[2]
    assert "lost: 0" in after
    assert code == 0


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_breaking_it_off_leaves_nothing_behind(tmp_path: Path, signal_number: int) -> None:
    """Ctrl-C is how most demos end."""
    code = (
        "import signal, sys; from redrive.demo import run_demo; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "sys.exit(run_demo(plain=True))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "delivered:" in line:
                break
        demo.send_signal(signal_number)
        told, complaints = demo.communicate(timeout=20)

    assert complaints == ""
    assert "Stopped before the end" in told
    assert demo.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_every_command_it_shows_is_one_the_cli_knows() -> None:
    """People type what they see."""
    prompt = "    $ redrive "
    out = io.StringIO()

    perform(Lines(out), speed=FAST)

    shown = {line for line in out.getvalue().splitlines() if line.startswith(prompt)}
    assert len(shown) >= 5
    for line in sorted(shown):
        arguments = shlex.split(line.removeprefix(prompt))
        command = get_command(app)
        while isinstance(command, TyperGroup):
            command = command.commands[arguments.pop(0)]
        command.make_context(command.name, arguments)


def test_a_speed_that_makes_no_sense_is_refused() -> None:
    """Zero would never end."""
    with pytest.raises(ConfigurationError, match="speed is 0"):
        run_demo(plain=True, speed=0)


def test_a_service_that_missed_an_event_does_not_add_up() -> None:
    """The store's word alone does not count."""
    count = Count(
        published=1,
        stored=1,
        orders_paid=1,
        orders_written=1,
        expected=2,
        effects=1,
        repeated=0,
        delivered=2,
        failed=0,
        pending=0,
        lost=(("event", "mail"),),
    )

    assert not count.adds_up
    assert count.problems == ["1 lost: event to mail."]
