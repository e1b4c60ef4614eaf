"""The demo tells the truth: it ends well only if every delivery is accounted for."""

from __future__ import annotations

import contextlib
import io
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path
from typing import ClassVar, NamedTuple

import apsw
import pytest
from rich.console import Console

from redrive.app.config import parse_store
from redrive.demo import dashboard, perform, run_demo
from redrive.demo.count import Count
from redrive.demo.narrator import Scene
from redrive.demo.narrators.lines import Lines
from redrive.demo.narrators.picture import Picture
from redrive.demo.venue import Venue
from redrive.errors import ConfigurationError
from tests.demo.commands import read_commands
from tests.waiting import PATIENCE_SECONDS, spend_at_once

FAST = 10.0

# In one process, so that the story is told once for all who ask about it.


class Saboteur(Lines):
    """Deletes one delivery behind the demo's back, at the scene that begins so."""

    def __init__(self, *, at: str, status: int) -> None:
        self.out = io.StringIO()
        super().__init__(self.out)
        self._at = at
        self._status = status
        self._store = ""

    def begin(self, venue: Venue, *, dashboard: str = "") -> None:
        super().begin(venue, dashboard=dashboard)
        self._store = venue.store

    def scene(self, scene: Scene) -> None:
        super().scene(scene)
        if self._at and scene.sentence.startswith(self._at):
            self._at = ""
            # In a thread: the shop may hold the write lock, and needs its event loop to let go.
            threading.Thread(target=self._delete).start()

    def _delete(self) -> None:
        connection = apsw.Connection(str(parse_store(self._store).path))
        # SQLite's own pauses grow, and would starve beside a shop that writes all the time.
        connection.set_busy_handler(_look_again)
        connection.execute(
            "DELETE FROM redrive_deliveries WHERE id = "
            "(SELECT min(id) FROM redrive_deliveries WHERE status = ?)",
            (self._status,),
        )
        connection.close()


def _look_again(_: int) -> bool:
    spend_at_once(0.001)
    return True


class Onlooker(Lines):
    """Looks at the dashboard when the dead letters are told of."""

    seen: ClassVar[dict[str, str]] = {}

    def begin(self, venue: Venue, *, dashboard: str = "") -> None:
        super().begin(venue, dashboard=dashboard)
        self.url = dashboard

    def scene(self, scene: Scene) -> None:
        super().scene(scene)
        if scene.act == 4:
            # In a thread: the dashboard is served by the loop that tells the story.
            threading.Thread(target=self._look, args=(scene.page,)).start()

    def _look(self, page: str) -> None:
        with urllib.request.urlopen(self.url + page) as answer:  # noqa: S310 - our own
            self.seen[page] = answer.read().decode()


class Told(NamedTuple):
    code: int
    text: str
    left_behind: list[str]
    seen: dict[str, str]

    def numbers(self, pattern: str) -> list[int]:
        """Return the numbers that stand where the pattern has a group."""
        found = re.search(pattern, " ".join(self.text.split()))
        assert found, f"{pattern!r} is not told in\n{self.text}"
        return [int(one) for one in found.groups()]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The whole story without a terminal, told once for all who ask about it."""
    folder, out = tmp_path_factory.mktemp("demo"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(tempfile, "tempdir", str(folder))
        patch.setattr("redrive.demo.narrators.lines.Lines", Onlooker)
        code = run_demo(speed=FAST, web=True)
    left_behind = [path.name for path in folder.iterdir()]
    return Told(code, out.getvalue(), left_behind, Onlooker.seen)


def test_the_demo_ends_with_nothing_lost(told: Told) -> None:
    """This is the promise, so it is the last thing the demo says."""
    assert "lost: 0" in told.text
    assert told.code == 0, told.text


def test_the_dashboard_shows_the_story_beside_it(told: Told) -> None:
    [letter] = [page for page in told.seen if page.startswith("/deliveries/")]

    assert "Dead letters by cause" in told.seen["/dead-letters"]
    assert "422" in told.seen[letter]
    assert re.search(r"see http://127\.0\.0\.1:\d+/replays/1", told.text)


def test_plain_lines_tell_every_act_without_control_characters(told: Told) -> None:
    """Plain output ends up in logs, where anything but text is noise."""
    assert [act for act in range(1, 7) if f"Act {act} of 6" not in told.text] == []
    assert all(letter == "\n" or letter.isprintable() for letter in told.text)
    assert told.text.isascii()


def test_a_killed_worker_s_deliveries_are_taken_over(told: Told) -> None:
    [held] = told.numbers(r"in the middle of (\d+) deliveries")

    assert held > 0
    assert "Taken over after" in told.text


def test_an_outage_opens_the_breaker_and_what_is_held_spends_no_try(told: Told) -> None:
    waiting, untried, spent = told.numbers(
        r"(\d+) orders wait for the warehouse\. (\d+) of them have not spent a single try, "
        r"and all together only (\d+)"
    )

    assert "warehouse: breaker open for" in told.text
    assert untried >= waiting / 2
    assert spent < waiting


def test_the_warehouse_never_sees_more_than_it_can_take(told: Told) -> None:
    """By its own book, and over a few seconds: at this speed, one is short enough to blur."""
    seen = [int(one) for one in re.findall(r"the warehouse sees +(\d+)/s", told.text)]
    [limit] = {int(one) for one in re.findall(r"limit (\d+)/s", told.text)}

    assert 0 in seen
    assert max(seen) > 3
    assert max(sum(seen[begin : begin + 5]) for begin in range(len(seen))) <= 5 * limit * 1.2


def test_the_dead_letters_of_one_bug_are_one_group(told: Told) -> None:
    groups = {line.split(maxsplit=1)[1] for line in told.text.splitlines() if "HTTP 422" in line}
    [group] = [one for one in groups if "parcels" not in one]
    [letters] = told.numbers(r"became dead letters: (\d+) of them, and one cause")

    assert "voucher GIFT-# is not a number" in group
    assert letters > 1
    assert 'the answer was {"error": "voucher GIFT-' in " ".join(told.text.split())


def test_a_replay_with_the_wrong_fix_stops_itself_after_the_canary(told: Told) -> None:
    sent, safe = told.numbers(r"stopped itself: (\d+) letter sent, (\d+) still safe")

    assert sent == 1
    assert safe > 1
    assert "replay 1 stopped: 1 of" in told.text
    assert "no dead letters left" in told.text


def test_a_replay_with_the_right_fix_sends_every_letter(told: Told) -> None:
    selected, delivered = told.numbers(
        r"replay 2 done: \d+ of (\d+) sent, (\d+) delivered, 0 failed again"
    )

    assert selected == delivered > 1


def test_an_order_that_no_release_can_read_is_corrected_and_arrives(told: Told) -> None:
    said = " ".join(told.text.split())

    assert 'It is delivered, with 1 edit on record: parcels "two" -> 2.' in said


def test_a_projection_of_the_last_act_makes_its_read_model_from_the_first_order(
    told: Told,
) -> None:
    [read] = told.numbers(r"It has read (\d+) events, each one once")
    published, stored = told.numbers(r"events published (\d+) (\d+)")
    taken, summed_up = told.numbers(r"takings (\d+) (\d+)")

    assert read == published == stored
    assert taken == summed_up > published
    assert f"takings: {read} events read, caught up" in told.text


def test_nothing_is_left_behind(told: Told) -> None:
    """A demo that litters is run once."""
    assert told.left_behind == []


def test_a_dead_letter_deleted_behind_its_back_is_reported_as_lost() -> None:
    """A count that cannot fail proves nothing."""
    saboteur = Saboteur(at="The operator looks at one", status=3)

    code = perform(saboteur, speed=FAST)

    said = saboteur.out.getvalue()
    assert "lost: 1" in said
    assert "The count does not add up" in said
    assert code == 1


def test_a_finished_delivery_deleted_behind_its_back_does_not_add_up() -> None:
    """It arrived, so it is not lost, but the store's book is wrong."""
    saboteur = Saboteur(at="The shop closes", status=2)

    code = perform(saboteur, speed=FAST)

    said = saboteur.out.getvalue()
    assert "lost: 0" in said
    assert "1 of the expected deliveries are not in the store" in said
    assert code == 1


def test_the_picture_gives_the_terminal_back() -> None:
    """The other screen is left and the cursor shown again before the count is printed."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=24, legacy_windows=False)

    code = perform(Picture(console), speed=FAST)

    running, _, after = out.getvalue().rpartition("\x1b[?1049l")
    assert "redrive replay start" in running
    assert "\x1b[?25h" in out.getvalue().rpartition("\x1b[?25l")[2]
    assert "lost: 0" in after
    assert "events read, caught up" in running
    assert "takings" in after
    assert code == 0, after


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
        said, complaints = demo.communicate(timeout=PATIENCE_SECONDS)

    assert complaints == ""
    assert "Stopped before the end" in said
    assert demo.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_workers_end_with_a_demo_that_was_killed(tmp_path: Path) -> None:
    """Nobody is left to tell them; they notice."""
    with subprocess.Popen(
        [sys.executable, "-m", "redrive", "demo", "--plain"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "delivered:" in line:
                break
        children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text("ascii").split()
        workers = [os.pidfd_open(int(one)) for one in children]
        demo.kill()

    assert len(workers) == 2
    for one in workers:
        ended, _, _ = select.select([one], [], [], 20)
        assert ended
        os.close(one)


def test_every_command_it_shows_is_one_the_cli_knows(told: Told) -> None:
    """People type what they see."""
    assert read_commands(told.text) >= 5


def test_without_aiohttp_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(ConfigurationError, match=r"pip install 'redrive\[http\]'"):
        run_demo(plain=True)


def test_without_jinja2_no_dashboard_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "find_spec", lambda name: None if name == "jinja2" else name)

    with pytest.raises(ConfigurationError, match=r"pip install 'redrive\[web\]'"):
        run_demo(web=True)


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


def test_a_read_model_that_says_something_else_does_not_add_up() -> None:
    count = Count(
        published=1,
        stored=1,
        orders_paid=1,
        orders_written=1,
        takings=7,
        takings_read=14,
        expected=1,
        effects=1,
        repeated=0,
        delivered=1,
        failed=0,
        pending=0,
    )

    assert count.problems == ["The shop took 7, and its read model says 14."]


def test_an_effect_that_was_repeated_for_no_reason_does_not_add_up() -> None:
    """At least once is no excuse for a worker that sends twice what was answered."""
    count = Count(
        published=1,
        stored=1,
        orders_paid=1,
        orders_written=1,
        expected=2,
        effects=2,
        repeated=1,
        delivered=2,
        failed=0,
        pending=0,
        unexcused=(("event", "mail"),),
    )

    assert not count.adds_up
    assert "took effect more than once" in count.problems[0]
