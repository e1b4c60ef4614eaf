"""The doctor: what it looks at, what it advises, and how it ends."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from tests.cli.shell import Shell, Shop


@pytest.fixture
def store(sqlite: str) -> str:
    """One kind of store is enough here: this is about the file."""
    return sqlite


def test_a_healthy_system_gets_a_clean_bill(shell: Shell, shop: Shop) -> None:
    answer = shell("doctor")

    assert answer.code == 0
    assert "ok  The file is sound." in answer.out
    assert answer.out.endswith("\nAll is well.\n")


def test_warnings_do_not_fail_the_examination(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})

    answer = shell("doctor")

    assert answer.code == 0
    assert "warning  1 dead letter waits for a person (billing 1)." in answer.out
    assert "Look at them with: redrive dlq groups" in answer.out
    assert answer.out.endswith("\n0 errors, 1 warning.\n")


def test_warnings_fail_a_strict_examination(shell: Shell, shop: Shop) -> None:
    assert shell("doctor", "--strict").code == 0
    shop.deliver({"error": "refused"})

    answer = shell("doctor", "--strict")

    assert answer.code == 1
    assert answer.out.endswith("\n0 errors, 1 warning.\n")


def test_work_that_nobody_does_is_an_error(shell: Shell, shop: Shop) -> None:
    shop.publish({"order": 1}, due=datetime.now(UTC) - timedelta(minutes=5))

    answer = shell("doctor")

    assert answer.code == 1
    assert "error  Work has been due for 5 min, and no worker is alive." in answer.out
    assert "redrive worker module:app" in answer.out


def test_wrong_counts_are_mended_on_request(shell: Shell, shop: Shop, folder: Path) -> None:
    shop.deliver({"order": 1})
    connection = apsw.Connection(str(next(folder.glob("*.db"))))
    connection.execute("INSERT INTO redrive_counts VALUES (0, 41, '', '', 7)")
    connection.close()

    told, mended = shell("doctor"), shell("doctor", "--recount")

    assert (told.code, mended.code) == (1, 0)
    assert "unrouted events: 7 are told, and there are 0" in " ".join(told.out.split())
    assert mended.out.endswith("\nAll is well.\n")


def test_a_store_that_cannot_be_opened_is_an_error(shell: Shell, folder: Path) -> None:
    (folder / "notes.txt").write_text("dear diary " * 100)

    missing = shell("doctor", "--store", "sqlite:///missing.db")
    foreign = shell("doctor", "--store", "sqlite:///notes.txt")

    assert (missing.code, foreign.code) == (1, 1)
    assert "error  There is no store at missing.db;" in missing.out
    assert "is not a SQLite database. Choose another path" in foreign.out


def test_a_damaged_file_is_an_error(shell: Shell, shop: Shop) -> None:
    connection = apsw.Connection(str(shop.path))
    connection.execute("PRAGMA journal_mode = DELETE")
    size = connection.execute("PRAGMA page_size").get
    page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'redrive_audit'").get
    connection.close()
    content = bytearray(shop.path.read_bytes())
    content[(page - 1) * size : page * size] = b"\xff" * size
    shop.path.write_bytes(content)

    answer = shell("doctor")

    assert answer.code == 1
    assert "damaged" in answer.out


def test_the_findings_are_json_for_programs(shell: Shell, shop: Shop) -> None:
    findings = shell("doctor", "--json").json["findings"]

    [sound] = [one for one in findings if one["what"] == "The file is sound."]
    assert sound == {"level": "ok", "what": sound["what"], "advice": "", "topic": None, "name": ""}
