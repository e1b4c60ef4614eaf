"""What is kept, from the command line: prune, export, import."""

import asyncio
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from redrive.cli import asking, printing
from redrive.clock import SystemClock
from redrive.model.duration import duration
from redrive.stores.postgres.connection import named, read_address
from redrive.stores.sqlite import SqliteStore
from tests.cli.shell import Shell, Shop, ids

_TIMES = ("settled_at", "resolved_at", "enqueued_at", "due")


def age(shop: Shop, by: str) -> None:
    """Let everything in the store be that much older."""
    times = ", ".join(f"{column} = {column} - ?" for column in _TIMES)
    asyncio.run(_carry_out(shop, f"UPDATE redrive.deliveries SET {times}", by))  # noqa: S608 - ours
    asyncio.run(_carry_out(shop, "UPDATE redrive.idle SET since = since - ?", by))


async def _carry_out(shop: Shop, statement: str, by: str) -> None:
    if shop.url.startswith("sqlite"):
        store = SqliteStore(shop.path, clock=SystemClock())
        await store.open()
        async with store.transaction() as transaction:
            micros = int(duration(by).total_seconds() * 1_000_000)
            values = (micros,) * statement.count("?")
            transaction.execute(statement.replace("redrive.", "redrive_"), values)
        await store.close()
        return
    address = read_address(shop.url)
    connection = await asyncpg.connect(address.dsn)
    span = f"interval '{duration(by).total_seconds()} seconds'"
    await connection.execute(named(statement.replace("?", span), address.schema))
    await connection.close()


def test_a_dry_run_says_what_would_go_and_changes_nothing(shell: Shell, shop: Shop) -> None:
    shop.deliver({"order": 1}, {"order": 2}, {"error": "refused"})
    age(shop, "2d")

    answer = shell("prune", "--dry-run")

    assert answer.code == 0
    assert answer.out == "Would remove 2 deliveries, arrived 1d ago or more.\n"
    assert shell("status", "--json").json["pruned"] == 0


def test_a_prune_removes_what_was_kept_long_enough(shell: Shell, shop: Shop) -> None:
    shop.deliver({"order": 1}, {"order": 2}, {"error": "refused"}, idempotency_key=None)
    age(shop, "40d")

    answer = shell("prune", "--yes")
    again = shell("prune", "--yes")
    figures = shell("status", "--json").json

    assert answer.out == "Removed 2 delivered deliveries, 2 events.\n"
    assert again.out == "Nothing was kept longer than it has to be.\n"
    assert (figures["pruned"], figures["pruned_events"], figures["events"]) == (2, 2, 1)
    assert ids(shell("dlq", "list", "--json")) == [3]


def test_a_prune_asks_and_shows_what_it_is_about(
    shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.deliver({"order": 1})
    age(shop, "2d")
    alone = shell("prune")
    monkeypatch.setattr(asking, "is_attended", lambda: True)

    no = shell("prune", stdin=b"n\n")
    yes = shell("prune", stdin=b"y\n")

    assert (alone.code, "say --yes" in alone.err) == (2, True)
    assert (no.code, no.out.strip()) == (1, "Would remove 1 delivery, arrived 1d ago or more.")
    assert yes.out.endswith("Removed 1 delivered delivery.\n")


def test_a_prune_takes_the_settings_of_the_environment(
    shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.deliver({"order": 1})
    age(shop, "2d")
    monkeypatch.setenv("REDRIVE_KEEP_DELIVERED", "7d")

    assert shell("prune", "--dry-run").out.startswith("Nothing was kept longer")


def test_a_prune_takes_the_settings_of_an_app(shell: Shell, shop: Shop, folder: Path) -> None:
    shop.deliver({"order": 1})
    age(shop, "2d")
    (folder / "patient_shop.py").write_text(
        f'from redrive import Redrive\napp = Redrive("{shop.url}", keep_delivered="7d")\n'
    )

    assert shell("prune", "patient_shop:app", "--dry-run").out.startswith("Nothing was kept")


def test_a_prune_speaks_json(shell: Shell, shop: Shop) -> None:
    shop.deliver({"order": 1})
    age(shop, "2d")

    plan = shell("prune", "--dry-run", "--json").json["would_prune"]
    done = shell("prune", "--yes", "--json").json["pruned"]

    assert (
        plan["pruned"]
        == done["pruned"]
        == {
            "delivered": 1,
            "resolved": 0,
            "events": 0,
            "keys": 0,
            "inbox": 0,
            "audit": 0,
            "replays": 0,
        }
    )


def test_the_status_still_tells_how_many_arrived(shell: Shell, shop: Shop) -> None:
    shop.deliver(*({"order": number} for number in range(7)))
    age(shop, "40d")
    shell("prune", "--yes")
    shop.publish({"order": 8})

    said = shell("status").out

    [billing] = [line.split() for line in said.splitlines() if line.startswith("billing")]
    assert billing[:5] == ["billing", "1", "-", "7", "-"]
    assert "1 event · 7 more pruned" in said


def test_dead_letters_are_exported_to_a_file_and_come_back(
    shell: Shell, shop: Shop, folder: Path
) -> None:
    shop.deliver({"error": "refused"}, {"terminal": "no such order"}, tenant="acme")
    before = [shell("dlq", "show", str(one), "--json").json for one in (1, 2)]

    exported = shell("dlq", "export", "--file", "letters.jsonl")
    shell("dlq", "delete", "1", "2", "--why", "moving house")
    imported = shell("dlq", "import", "letters.jsonl", "--why", "moved")
    again = shell("dlq", "import", "letters.jsonl", "--json")

    header, *lines = (folder / "letters.jsonl").read_text().splitlines()
    assert exported.out == "Exported 2 dead letters to letters.jsonl.\n"
    assert json.loads(header)["form"] == "whole"
    assert "with the secrets" in json.loads(header)["note"]
    assert [json.loads(line)["version"] for line in lines] == [1, 1]
    assert (imported.code, imported.out) == (0, "Imported 2 dead letters.\n")
    assert again.json == {"imported": [], "known": 2, "bad": [], "removed": []}
    back = [shell("dlq", "show", str(one), "--json").json for one in (3, 4)]
    for old, new in zip(before, back, strict=True):
        old["delivery"].pop("id")
        new["delivery"].pop("id")
        assert new["delivery"] == old["delivery"]
        assert new["event"] == old["event"]
    assert (folder / "letters.jsonl").stat().st_mode & 0o077 == 0


def test_an_export_takes_filters_and_goes_to_standard_output(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"}, {"terminal": "no such order"})

    answer = shell("dlq", "export", "--reason", "terminal")

    _, line = answer.out.splitlines()
    assert json.loads(line)["delivery"]["reason"] == "terminal"


@pytest.mark.parametrize("strict", [(), ("--strict",)], ids=["", "strict"])
def test_an_export_is_imported_from_standard_input(
    strict: tuple[str, ...], shell: Shell, shop: Shop
) -> None:
    shop.deliver({"error": "refused"}, {"terminal": "no such order"})
    exported = shell("dlq", "export").out.encode()
    shell("dlq", "delete", "1", "2", "--why", "moving house")

    broken = shell("dlq", "import", "-", "--strict", stdin=b"x\n" + exported)
    imported = shell("dlq", "import", "-", *strict, stdin=exported)

    assert broken.code == 2
    assert "1 of 3 lines of standard input cannot be imported, so nothing was." in broken.err
    assert (imported.code, imported.out) == (0, "Imported 2 dead letters.\n")


def test_an_export_is_imported_from_a_pipe(shell: Shell, shop: Shop, folder: Path) -> None:
    shop.deliver({"error": "refused"})
    exported = shell("dlq", "export").out.encode()
    shell("dlq", "delete", "1", "--why", "moving house")
    os.mkfifo(folder / "pipe")
    writer = threading.Thread(target=(folder / "pipe").write_bytes, args=[exported])
    writer.start()

    imported = shell("dlq", "import", "pipe")

    writer.join()
    assert (imported.code, imported.out) == (0, "Imported 1 dead letter.\n")


def test_a_redacted_export_is_there_to_be_shared_and_never_imported(
    shell: Shell, shop: Shop, folder: Path
) -> None:
    shop.deliver({"error": "refused", "password": "hunter2-hunter2"})

    exported = shell("dlq", "export", "--redacted", "--file", "shared.jsonl")
    refused = shell("dlq", "import", "shared.jsonl")
    letter = (folder / "shared.jsonl").read_text().splitlines()[1]
    (folder / "headless.jsonl").write_text(f"{letter}\n")
    headless = shell("dlq", "import", "headless.jsonl")

    assert exported.out == "Exported 1 dead letter to shared.jsonl.\n"
    assert json.loads(letter)["event"]["payload"] == {"error": "refused", "password": "[redacted]"}
    assert refused.code == 2
    assert refused.err == (
        "redrive: The secrets of these dead letters are blanked, so they are there to be read and "
        "cannot be imported; import what `redrive dlq export` has written without --redacted.\n"
    )
    assert (headless.code, headless.out) == (1, "Imported 0 dead letters.\n")
    assert headless.err.startswith("redrive: line 1: The secrets of these dead letters are blanked")


def test_files_that_were_put_together_are_imported(shell: Shell, shop: Shop, folder: Path) -> None:
    shop.deliver({"error": "refused"}, {"terminal": "no such order"})
    shell("dlq", "export", "--reason", "terminal", "--file", "one.jsonl")
    shell("dlq", "export", "--reason", "exhausted", "--file", "two.jsonl")
    shell("dlq", "delete", "1", "2", "--why", "moving house")
    both = (folder / "one.jsonl").read_text() + (folder / "two.jsonl").read_text()
    (folder / "both.jsonl").write_text(both)

    answer = shell("dlq", "import", "both.jsonl")

    assert (answer.code, answer.out) == (0, "Imported 2 dead letters.\n")


def test_an_export_never_overwrites_a_file(shell: Shell, shop: Shop, folder: Path) -> None:
    (folder / "letters.jsonl").write_text("precious")

    answer = shell("dlq", "export", "--file", "letters.jsonl")
    nowhere = shell("dlq", "export", "--file", "no/such/folder.jsonl")

    assert answer.code == 2
    assert answer.err == (
        "redrive: There is a file letters.jsonl already; name a new one with --file.\n"
    )
    assert nowhere.err == (
        "redrive: no/such/folder.jsonl cannot be written: No such file or directory.\n"
    )
    assert (folder / "letters.jsonl").read_text() == "precious"
    assert [one.name for one in folder.glob("*.part")] == []


def test_an_export_speaks_json(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})

    answer = shell("dlq", "export", "--file", "letters.jsonl", "--json")

    assert answer.json == {"exported": 1, "file": "letters.jsonl"}


def test_bad_lines_are_named_and_the_good_ones_imported(
    shell: Shell, shop: Shop, folder: Path
) -> None:
    shop.deliver({"error": "refused"}, {"error": "refused"})
    shell("dlq", "export", "--file", "letters.jsonl")
    shell("dlq", "delete", "1", "2", "--why", "moving house")
    _, first, second = (folder / "letters.jsonl").read_text().splitlines()
    torn = second[: len(second) // 2]
    (folder / "mixed.jsonl").write_text(f"{first}\n\nnonsense\n{torn}\n{second}\n{torn}")

    answer = shell("dlq", "import", "mixed.jsonl")
    as_json = shell("dlq", "import", "mixed.jsonl", "--json")

    assert (answer.code, answer.out) == (1, "Imported 2 dead letters.\n")
    assert [line.split(":")[1].strip() for line in answer.err.splitlines()] == [
        *("line 3", "line 4", "line 6"),
    ]
    assert (as_json.code, [one["line"] for one in as_json.json["bad"]]) == (1, [3, 4, 6])
    assert as_json.json["known"] == 2


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda one: one["delivery"].update(attempts=10**30), "The count attempts is 1e+30"),
        (lambda one: one["delivery"].update(auto_replays=2**31), "The count auto_replays is 2.15e"),
        (lambda one: one["delivery"]["log"][0].update(number=2**40), "The count number is 1.1e+12"),
        (lambda one: one["event"].update(payload="x" * 2**20), "more than the limit of 1,048,576"),
    ],
)
def test_a_letter_that_no_store_could_keep_is_named_with_its_line(
    spoil: Callable[[Any], None], complaint: str, shell: Shell, shop: Shop, folder: Path
) -> None:
    shop.deliver({"error": "refused"}, {"error": "refused"})
    shell("dlq", "export", "--file", "letters.jsonl")
    shell("dlq", "delete", "1", "2", "--why", "moving house")
    _, first, second = (folder / "letters.jsonl").read_text().splitlines()
    spoiled = json.loads(first)
    spoil(spoiled)
    (folder / "mixed.jsonl").write_text(f"{json.dumps(spoiled)}\n{second}\n")

    strict = shell("dlq", "import", "mixed.jsonl", "--strict")
    answer = shell("dlq", "import", "mixed.jsonl")

    assert (strict.code, answer.code) == (2, 1)
    for one in (strict, answer):
        assert one.err.startswith("redrive: line 1: ")
        assert complaint in one.err
    assert answer.out == "Imported 1 dead letter.\n"


def test_a_letter_that_only_this_store_refuses_keeps_no_other_out(
    shell: Shell, shop: Shop, folder: Path
) -> None:
    shop.deliver({"error": "refused"}, {"error": "refused"}, {"error": "refused"})
    shell("dlq", "export", "--file", "letters.jsonl")
    shell("dlq", "delete", "1", "2", "3", "--why", "moving house")
    _, first, second, third = (folder / "letters.jsonl").read_text().splitlines()
    event_id = json.loads(second)["event"]["id"]
    foreign = second.replace(event_id, "not-a-uuid")
    (folder / "mixed.jsonl").write_text(f"{first}\n{foreign}\n{third}\n")

    answer = shell("dlq", "import", "mixed.jsonl", "--json")

    is_refused = shop.url.startswith("postgres")
    assert (answer.code, len(answer.json["imported"])) == ((1, 2) if is_refused else (0, 3))
    assert [one["line"] for one in answer.json["bad"]] == ([2] if is_refused else [])


def test_a_strict_import_is_all_or_nothing(shell: Shell, shop: Shop, folder: Path) -> None:
    shop.deliver({"error": "refused"})
    shell("dlq", "export", "--file", "letters.jsonl")
    shell("dlq", "delete", "1", "--why", "moving house")
    good = (folder / "letters.jsonl").read_text()
    (folder / "mixed.jsonl").write_text(f"{good}nonsense\n")

    refused = shell("dlq", "import", "mixed.jsonl", "--strict")
    nothing = ids(shell("dlq", "list", "--json"))
    done = shell("dlq", "import", "letters.jsonl", "--strict")

    assert refused.code == 2
    assert "1 of 2 lines of mixed.jsonl cannot be imported, so nothing was." in refused.err
    assert "line 3: It is no dead letter" in refused.err
    assert (nothing, done.code) == ([], 0)


def test_many_bad_lines_are_counted(shell: Shell, shop: Shop, folder: Path) -> None:
    (folder / "bad.jsonl").write_text("nonsense\n" * 50)

    answer = shell("dlq", "import", "bad.jsonl")

    assert answer.out == "Imported 0 dead letters.\n"
    assert len(answer.err.splitlines()) == 21
    assert answer.err.endswith("and 30 more lines.\n")


def test_a_file_that_is_not_there_is_named(shell: Shell, shop: Shop) -> None:
    answer = shell("dlq", "import", "nowhere.jsonl")

    assert (answer.code, answer.err) == (
        2,
        "redrive: nowhere.jsonl cannot be read: No such file or directory.\n",
    )


def test_a_dash_is_standard_output(shell: Shell, shop: Shop, folder: Path) -> None:
    shop.deliver({"error": "refused"})

    answer = shell("dlq", "export", "--file", "-")

    assert [json.loads(line).get("version") for line in answer.out.splitlines()] == [None, 1]
    assert not (folder / "-").exists()


def test_letters_for_an_unknown_destination_are_imported_and_shown_as_removed(
    shell: Shell, shop: Shop, folder: Path
) -> None:
    shop.deliver({"error": "refused"})
    shell("dlq", "export", "--file", "letters.jsonl")
    moved = (folder / "letters.jsonl").read_text().replace('"billing"', '"elsewhere"')
    (folder / "moved.jsonl").write_text(moved)

    answer = shell("dlq", "import", "moved.jsonl")

    assert answer.code == 0
    assert "no destination is declared as elsewhere" in answer.err
    assert "elsewhere" in shell("status").out
    listed = shell("destination", "list").out.split()
    assert listed[listed.index("elsewhere") :].count("removed") == 1
    shell("dlq", "replay", "--all-matching", "--destination", "elsewhere", "--yes")
    assert "orphaned" in shell("status").out
    assert shell("destination", "list", "--json").json["destinations"][1]["orphaned"]


def test_a_large_import_shows_how_far_it_is(
    shell: Shell, shop: Shop, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.deliver(*({"error": "refused"} for _ in range(3)))
    shell("dlq", "export", "--file", "letters.jsonl")
    totals: list[int] = []
    real = printing.progress

    def watched(title: str, total: int) -> object:
        totals.append(total)
        return real(title, total)

    monkeypatch.setattr("redrive.cli.archiving.progress", watched)

    shell("dlq", "import", "letters.jsonl")

    assert totals == [3]
