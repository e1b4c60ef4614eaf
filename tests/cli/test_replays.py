"""Replays of many from the command line: plan, start, follow, steer."""

import asyncio
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from redrive import AutoReplay, Redrive
from redrive.cli import asking
from redrive.cli.show.progress import watching
from redrive.clock import SystemClock
from redrive.model.replay import ReplayState, Wave
from redrive.store import Replay
from tests.cli.shell import Shell, Shop
from tests.waiting import PATIENCE_SECONDS

NOW = SystemClock().now()
COUNTS = ("selected", "sent", "delivered", "failed", "skipped")


class Mended(Shop):
    """A shop in which nothing fails any more."""

    def app(self) -> Redrive:
        app = Redrive(self.url)
        app.handler("order.*", name="billing")(lambda event: None)
        app.handler("letter.*", name="mail", order="park")(lambda event: None)
        return app


def fail(shop: Shop, count: int, **attributes: Any) -> None:  # noqa: ANN401 - of an event
    shop.deliver(*[{"error": f"order {number}"} for number in range(count)], **attributes)


def drain(shop: Shop) -> None:
    shop.do(lambda app: app.drain())


@contextmanager
def a_worker(shop: Shop) -> Iterator[None]:
    """Run a worker in a thread beside the block."""
    stopped, started = threading.Event(), threading.Event()

    async def work(app: Redrive) -> None:
        async with app.worker():
            started.set()
            await asyncio.to_thread(stopped.wait)

    thread = threading.Thread(target=lambda: shop.do(work))
    thread.start()
    started.wait(PATIENCE_SECONDS)
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def counts(answer: dict[str, Any]) -> list[int]:
    return [answer[name] for name in COUNTS]


def test_plan_shows_what_a_replay_would_take(shell: Shell, shop: Shop) -> None:
    fail(shop, 30, tenant="acme")
    shell("destination", "pause", "billing", "--why", "audit")

    answer = shell("replay", "plan", "--destination", "billing", "--rate", "2/s")
    group = shell("dlq", "groups", "--json").json["groups"][0]["id"]

    assert answer.code == 0
    lines = [line.split() for line in answer.out.splitlines()]
    assert lines[0] == ["A", "replay", "would", "take", "30", "dead", "letters."]
    assert ["destination", "30", "billing"] in lines
    assert ["reason", "30", "exhausted"] in lines
    assert ["tenant", "30", "acme"] in lines
    assert any(line[:3] == ["group", "30", group] for line in lines)
    assert "billing is paused: what is sent waits until it is resumed." in answer.out
    assert "At the rates that hold it takes 14 s or more." in answer.out
    assert shell("dlq", "list", "--json", "--limit", "99").json["deliveries"][0]["cycles"] == []


def test_plan_names_the_rate_even_if_it_hardly_holds_back(shell: Shell, shop: Shop) -> None:
    fail(shop, 3)

    answer = shell("replay", "plan")

    assert "At the rates that hold (billing 100/s) it takes less than a second." in answer.out


def test_plan_of_ids_and_of_nothing(shell: Shell, shop: Shop) -> None:
    fail(shop, 3)

    planned = shell("replay", "plan", "1", "3", "--json").json
    nothing = shell("replay", "plan", "--tenant", "nobody")

    assert planned["survey"]["selected"] == 2
    assert (nothing.code, nothing.out) == (
        0,
        "No dead letter matches, so there is nothing to replay.\n",
    )


def test_a_replay_is_started_and_seen_to_its_end(shell: Shell, shop: Shop) -> None:
    fail(shop, 9)
    mended = Mended(shop.url)

    begun = shell("replay", "start", "--all-matching", "--yes", "--detach", "--why", "1.2 is out")
    running = shell("replay", "show", "1")
    drain(mended)
    done = shell("replay", "show", "1", "--json")

    assert begun.code == 0
    assert begun.out.splitlines() == [
        "Started replay 1 of 9 dead letters; workers drive it.",
        "Follow it with: redrive replay show 1 --follow",
    ]
    assert running.out.startswith("Replay 1: running\n")
    assert "redrive replay pause 1" in running.out
    assert done.json["state"] == "done"
    assert counts(done.json) == [9, 9, 9, 0, 0]


def test_start_follows_until_it_ends(shell: Shell, shop: Shop) -> None:
    fail(shop, 5)

    with a_worker(Mended(shop.url)):
        answer = shell("replay", "start", "--all-matching", "--yes", "--canary", "2")

    assert answer.code == 0
    assert answer.out.startswith("Replay 1: done\n")
    assert ["Delivered", "5"] in [line.split() for line in answer.out.splitlines()]


def test_a_replay_that_stops_itself_says_why_and_ends_with_1(shell: Shell, shop: Shop) -> None:
    fail(shop, 5)

    with a_worker(shop):
        answer = shell("replay", "start", "--all-matching", "--yes")
    listed = shell("replay", "list")

    assert answer.code == 1
    assert answer.out.startswith("Replay 1: stopped: 1 of 1 in the canary failed again\n")
    assert "redrive replay resume 1" in answer.out
    assert " 1  stopped        0/5       1 " in listed.out
    assert "1 of 1 in the canary failed again" in listed.out


def test_who_resumes_is_told_what_is_left_behind_and_how_to_send_it(
    shell: Shell, shop: Shop
) -> None:
    fail(shop, 5, tenant="acme")
    shell("replay", "start", "--all-matching", "--tenant", "acme", "--yes", "--detach")
    drain(shop)

    resumed = shell("replay", "resume", "1")
    drain(Mended(shop.url))
    done = shell("replay", "show", "1")
    again = next(line.strip() for line in resumed.out.splitlines() if " replay start " in line)
    started = shell(*again.split()[1:], "--yes", "--detach")
    drain(Mended(shop.url))

    assert "1 letter that failed again in it is not sent once more" in resumed.out
    assert again.startswith(
        "redrive replay start --all-matching --destination billing --tenant acme --since 20"
    )
    assert done.out.startswith("Replay 1: done\n")
    assert again in done.out
    assert "See what failed again  redrive dlq list --since 20" in done.out
    assert started.out.startswith("Started replay 2 of 1 dead letter;")
    assert counts(shell("replay", "show", "2", "--json").json) == [1, 1, 1, 0, 0]
    assert shell("dlq", "list").out == "No dead letter.\n"


def test_a_group_is_replayed_by_its_id(shell: Shell, shop: Shop) -> None:
    fail(shop, 3)
    shop.deliver({"terminal": "other"})
    groups = shell("dlq", "groups", "--json").json["groups"]

    shell("replay", "start", "--group", groups[0]["id"], "--yes", "--detach", "--rate", "5/s")
    replay = shell("replay", "show", "1", "--json").json
    shown = shell("replay", "show", "1")

    assert (replay["selected"], replay["query"]["group"]) == (3, groups[0]["id"])
    assert f"group {groups[0]['id']}" in shown.out
    assert ["Rate", "5/s"] in [line.split() for line in shown.out.splitlines()]


def test_following_without_a_worker_is_warned_of(
    shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(shop, 2)
    shell("replay", "start", "1", "--yes", "--detach")

    async def interrupted(clock: object, seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SystemClock, "sleep", interrupted)
    answer = shell("replay", "show", "1", "--follow")

    assert answer.code == 130
    assert "no worker is running, and only workers send letters" in answer.err
    assert "no longer following, and replay 1 goes on." in answer.err
    assert "redrive replay show 1 --follow" in answer.err
    assert shell("replay", "show", "1", "--json").json["state"] == "running"


def test_a_replay_is_paused_resumed_and_cancelled(shell: Shell, shop: Shop) -> None:
    fail(shop, 2)
    shell("replay", "start", "1", "2", "--yes", "--detach", "--by", "ann")

    answers = [
        shell("replay", act, "1", "--why", f"to {act}", "--by", "bob")
        for act in ("pause", "pause", "resume", "resume", "cancel", "cancel")
    ]
    shown = shell("replay", "show", "1")
    audit = shell("audit")

    assert [(one.code, one.out) for one in answers] == [
        (0, "Paused replay 1.\n"),
        (1, "Replay 1 is not running, so nothing was changed.\n"),
        (0, "Resumed replay 1.\n"),
        (1, "Replay 1 is neither paused nor stopped, so nothing was changed.\n"),
        (0, "Cancelled replay 1.\n"),
        (1, "Replay 1 is over already, so nothing was changed.\n"),
    ]
    assert shown.out.startswith("Replay 1: cancelled by bob: to cancel\n")
    assert "start replay 1 of 2 deliveries" in audit.out
    assert "cancel replay 1" in audit.out
    assert shell("replay", "pause", "1", "--json").json == {"replay": 1, "changed": False}


def test_replays_are_asked_about_first(
    shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(shop, 3)

    unattended = shell("replay", "start", "--all-matching", "--detach")
    monkeypatch.setattr(asking, "is_attended", lambda: True)
    refused = shell("replay", "start", "--all-matching", "--detach", stdin=b"n\n")
    accepted = shell("replay", "start", "--all-matching", "--detach", stdin=b"y\n")

    assert unattended.code == 2
    assert "Replay 3 dead letters, one first? There is nobody to ask here; say --yes." in (
        unattended.err
    )
    assert refused.code == 1
    assert accepted.code == 0
    assert len(shell("replay", "list", "--json").json["replays"]) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["start", "--yes"], "Name the dead letters to replay by their ids, or replay a group"),
        (["start", "1", "--all-matching"], "Name the dead letters to replay by their ids"),
        (["start", "1", "--tenant", "acme", "--yes"], "leave the filters out"),
        (["start", "9", "--yes"], "No dead letter matches, so there is nothing to replay."),
        (["start", "--all-matching", "--yes", "--rate", "fast"], "rate is 'fast'"),
        (["start", "0", "--yes"], "Nothing has the number 0"),
        (["show", "7"], "There is no replay 7; `redrive replay list` shows those there are."),
        (["cancel", "7"], "There is no replay 7"),
        (["plan", "--rate", "-1/s"], "rate is '-1/s'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_told_in_one_sentence(
    arguments: list[str], complaint: str, shell: Shell, shop: Shop
) -> None:
    fail(shop, 1)

    answer = shell("replay", *arguments)

    assert answer.code == 2
    assert complaint in answer.err
    assert len(answer.err.splitlines()) == 1


def test_the_list_tells_of_auto_replays_and_of_nothing(shell: Shell, shop: Shop) -> None:
    shop.publish()
    empty = shell("replay", "list")

    async def auto_replay(app: Redrive) -> None:
        app.handler("mail.*", name="nightly", auto_replay=AutoReplay(cron="0 3 * * *", cycles=1))(
            print
        )
        await app.drain()

    shop.do(auto_replay)
    listed = shell("replay", "list")
    told = shell("replay", "list", "--json").json

    assert empty.out == "Nothing was replayed in bulk yet.\n"
    assert "By themselves" in listed.out
    assert "nightly  0 3 * * *, due in" in listed.out
    assert "each 1 time at most" in " ".join(listed.out.split())
    assert [one["destination"] for one in told["auto_replays"]] == ["nightly"]


def test_the_group_of_commands_alone_shows_its_help(shell: Shell) -> None:
    answer = shell("replay")

    assert answer.code == 0
    for command in ("plan", "start", "list", "show", "pause", "resume", "cancel"):
        assert f"\n  {command} " in answer.out


class Terminal(io.StringIO):
    """A terminal that keeps what was drawn on it."""

    def isatty(self) -> bool:
        return True


def test_bars_show_how_far_a_replay_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    replay = Replay(
        id=1,
        state=ReplayState.RUNNING,
        by="ann",
        why="",
        started_at=NOW,
        changed_at=NOW,
        selected=10_000,
        sent=1_023,
        delivered=900,
        failed=2,
        skipped=7,
        newcomers=5,
        wave=Wave(number=10, size=512),
    )

    with watching(replay) as tell:
        tell(replay)
    drawn = terminal.getvalue()

    assert "Sent" in drawn
    assert "1,023/9,993  wave 10 of 512" in drawn
    assert "900/9,993  2 failed again  7 skipped  5 new meanwhile" in drawn


def test_nobody_at_a_terminal_gets_no_bars(capsys: pytest.CaptureFixture[str]) -> None:
    replay = Replay(
        id=1,
        state=ReplayState.RUNNING,
        by="ann",
        why="",
        started_at=NOW,
        changed_at=NOW,
        selected=1,
    )

    with watching(replay) as tell:
        tell(replay)

    assert capsys.readouterr() == ("", "")
