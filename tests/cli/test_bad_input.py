"""Whatever is typed wrong is answered in one sentence, with the exit code that says whose fault."""

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import apsw
import pytest

from tests.cli.shell import Shell, Shop

USAGE = 2
STORE = 3


@pytest.fixture
def store(sqlite: str) -> str:
    """One kind of store is enough here: this is about what was typed."""
    return sqlite


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["publish", "order.paid", "{order: 7}"], "The payload is not JSON: "),
        (["publish", "order.paid", "hello"], "The payload is not JSON: "),
        (["publish", "order.paid", "NaN"], "The payload is not JSON: "),
        (["publish", "order.paid", ""], "The payload is not JSON: "),
        (["publish", "order.paid", "-"], "The payload is not JSON: "),
        (["publish", "order.paid", "@missing.json"], "cannot be read from missing.json: No such"),
        (["publish", "order.paid", "@."], "cannot be read from .: Is a directory"),
        (["publish", "order paid"], "The event type is 'order paid'"),
        (["publish"], "Missing argument 'TYPE'"),
        (["publish", "order.paid", "1", "--header", "trace"], "write name=value"),
        (["publish", "order.paid", "1", "--header", "=x"], "write name=value"),
        (["publish", "order.paid", "1", "--severity", "loud"], "severity is 'loud'; it is one of"),
        (["publish", "order.paid", "1", "--priority", "high"], "'--priority'"),
        (["publish", "order.paid", "1", "--priority", "101"], "'--priority'"),
        (["publish", "order.paid", "1", "--due", "soon"], "due is 'soon'; write how long from now"),
        (["publish", "order.paid", "1", "--due", "2h ago"], "due is '2h ago'; write how long from"),
        (["publish", "order.paid", "1", "--due", "99999999999d"], "due is '99999999999d'"),
        (["publish", "order.paid", "1", "--deadline", "5"], "deadline is '5'"),
        (["publish", "order.paid", "1", "--key", "k" * 201], "key is 'kkk"),
        (["publish", "order.paid", "1", "--colour", "red"], "No such option: --colour"),
        (["dlq", "list", "--since", "yesterday"], "since is 'yesterday'; write how long ago"),
        (["dlq", "list", "--since", "in 5m"], "since is 'in 5m'; write how long ago"),
        (["dlq", "list", "--until", "-5m"], "until is '-5m'"),
        (["dlq", "list", "--reason", "bad"], "reason is 'bad'; it is one of exhausted, terminal"),
        (["dlq", "list", "--type", "order?"], "The pattern 'order?' is not one of event types"),
        (["dlq", "list", "--limit", "0"], "'--limit'"),
        (["dlq", "list", "--limit", "many"], "'--limit'"),
        (["dlq", "list", "--cursor", "top"], "The cursor 'top' is not one of ours"),
        (["dlq", "show", "first"], "'first' is neither the number of a delivery"),
        (["dlq", "show", "99"], "There is no delivery 99"),
        (["dlq", "show", "99999999999999999999"], "Nothing has the number 99999999999999999999"),
        (["dlq", "replay"], "Name the dead letters to replay by their ids"),
        (["dlq", "replay", "1", "--all-matching"], "Name the dead letters to replay"),
        (["dlq", "replay", "1", "--key", "k"], "Name the dead letters to replay"),
        (["dlq", "replay", "--key", "k"], "Name the dead letters to replay"),
        (["dlq", "replay", "0"], "Nothing has the number 0"),
        (["dlq", "delete", "1"], "Missing option '--why'"),
        (["dlq", "replay", "1", "--group", "abc"], "Name the dead letters to replay"),
        (["dlq", "delete", "--why", "old"], "Name the dead letters to delete by their ids"),
        (["dlq", "resolve", "--why", "old"], "Name the dead letters to resolve by their ids"),
        (["dlq", "delete", "1", "--why", ""], "A reason is needed to delete dead letters"),
        (["dlq", "resolve", "1", "--why", ""], "A reason is needed to resolve dead letters"),
        (["delivery", "list", "--status", "done"], "status is 'done'; it is one of pending"),
        (["delivery", "reschedule", "1"], "Missing option '--due'"),
        (["delivery", "reschedule", "1", "--due", "later"], "due is 'later'"),
        (["delivery", "prioritise", "1", "--priority", "-101"], "'--priority'"),
        (["destination", "pause", "bill", "--why", "x"], "There is no destination 'bill'; did you"),
        (["destination", "resume", "crm"], "no destination 'crm'; there are billing, mail."),
        (["destination", "pause", "billing"], "Missing option '--why'"),
        (["destination", "pause", "billing", "--why", ""], "A reason is needed to pause"),
        (["breaker", "open", "biling", "--why", "x"], "did you mean 'billing'?"),
        (["breaker", "open", "billing", "--why", "x", "--for", "ever"], "for is 'ever'; write how"),
        (["breaker", "open", "billing", "--why", ""], "A reason is needed to open a breaker"),
        (["breaker", "reset", "malo", "--why", "x"], "did you mean 'mail'?"),
        (["breaker", "reset", "mail", "--why", ""], "A reason is needed to reset a breaker"),
        (["audit", "--before", "0"], "Nothing has the number 0"),
        (["status", "--store", "shop.db"], "The store URL 'shop.db' is of no kind Redrive knows"),
        (["status", "--store", "sqlite://"], "names no file"),
        (["status", "--store", "memory://"], "lives inside one process"),
        *(
            ([command, "--store", f"postgresql://shop:p@ss:word@db/shop?{wrong}"], says)
            for command in ("init", "doctor", "status")
            for wrong, says in (
                ("schema=BAD", "The schema in the store URL is 'BAD'"),
                (
                    "colour=red",
                    "There is no option of a store URL 'colour'; there are schema, pool",
                ),
                ("shema=shop", "There is no option of a store URL 'shema'; did you mean 'schema'?"),
                ("sslmode=sometimes", "The store URL of postgresql://db/shop (schema redrive) is"),
            )
        ),
        (
            ["status", "--store", "postgresql+asyncpg://shop:p@ss:word@db/shop"],
            "so leave out +asyncpg: postgresql://…",
        ),
        (
            ["publish", "order.paid", "1", "--key", "k", "--expected-version", "4"],
            "The key 'k' is at version 0, not 4 as expected",
        ),
        (["worker", "--only", "billing"], "There is no destination 'billing'"),
        (["worker", "shop:app", "--processes", "0"], "'--processes'"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else None,
)
def test_a_mistake_of_the_caller_is_told_in_one_sentence(
    arguments: Sequence[str], says: str, shell: Shell, shop: Shop
) -> None:
    answer = shell(*arguments)

    assert answer.code == USAGE
    assert says in answer.err
    assert answer.err.startswith("redrive: ")
    assert answer.err.count("\n") == 1
    assert answer.out == ""
    assert "ss:word" not in answer.err


def test_a_payload_over_the_limit_is_refused(shell: Shell, shop: Shop) -> None:
    answer = shell("publish", "order.paid", "-", stdin=b'"' + b"x" * 2**20 + b'"')

    assert answer.code == USAGE
    assert "more than the limit of 1,048,576" in answer.err


def test_a_payload_that_is_not_text_is_refused(shell: Shell, shop: Shop) -> None:
    answer = shell("publish", "order.paid", "-", stdin=b'"\xff"')

    assert answer.code == USAGE
    assert "The payload is not JSON: " in answer.err


def test_a_payload_that_is_nested_too_deep_is_refused(
    shell: Shell, shop: Shop, folder: Path
) -> None:
    (folder / "deep.json").write_text("[" * 100_000 + "]" * 100_000)

    answer = shell("publish", "order.paid", "@deep.json")

    assert answer.code == USAGE
    assert "The payload has lists or objects within each other too deep to be read" in answer.err
    assert answer.err.count("\n") == 1


def test_the_same_idempotency_key_with_another_body_is_refused(shell: Shell, shop: Shop) -> None:
    shell("publish", "order.paid", "1", "--idempotency-key", "k")

    answer = shell("publish", "order.paid", "2", "--idempotency-key", "k")

    assert answer.code == USAGE
    assert "with another body; nothing was stored" in answer.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["publish", "order.paid"],
        ["dlq", "list"],
        ["dlq", "replay", "1"],
        ["dlq", "replay", "--all-matching"],
        ["delivery", "list"],
        ["destination", "list"],
        ["destination", "pause", "billing", "--why", "x"],
        ["breaker", "list"],
        ["audit"],
    ],
    ids=" ".join,
)
def test_a_store_that_is_not_there_is_not_created_by_looking(
    arguments: Sequence[str], shell: Shell, folder: Path
) -> None:
    """A mistyped address must not look like a store where all is well."""
    answer = shell(*arguments, "--store", "sqlite:///typo.db")

    assert answer.code == STORE
    assert "create it with `redrive init --store sqlite:///typo.db`" in answer.err
    assert answer.err.count("\n") == 1
    assert not (folder / "typo.db").exists()


def test_a_store_in_a_folder_that_is_not_there_cannot_be_created(shell: Shell) -> None:
    answer = shell("init", "--store", "sqlite:///missing/shop.db")

    assert answer.code == STORE
    assert "missing does not exist. Create the folder" in answer.err


def test_a_folder_is_no_store(shell: Shell, folder: Path) -> None:
    answer = shell("status", "--store", f"sqlite:///{folder}")

    assert answer.code == STORE
    assert "is a folder; name a file in it" in answer.err


@pytest.mark.parametrize("command", ["init", "status"])
def test_a_store_in_a_folder_that_is_closed_to_this_user_cannot_be_reached(
    command: str, shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, to whom every folder is open."""

    def refuse(path: Path, **_: object) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)

    answer = shell(command)

    assert answer.code == STORE
    assert "a folder on the way is closed to this user" in answer.err
    assert answer.err.count("\n") == 1


def test_a_file_that_is_no_database_is_left_alone(shell: Shell, folder: Path) -> None:
    notes = folder / "notes.txt"
    notes.write_text("dear diary " * 100)

    answer = shell("init", "--store", "sqlite:///notes.txt")

    assert answer.code == STORE
    assert "notes.txt is not a SQLite database" in answer.err
    assert notes.read_text() == "dear diary " * 100


def test_a_store_of_a_newer_redrive_is_refused(shell: Shell, shop: Shop) -> None:
    connection = apsw.Connection(str(shop.path))
    connection.execute("UPDATE redrive_schema SET version = 99, oldest_code = 99")
    connection.close()

    answer = shell("status")

    assert answer.code == STORE
    assert "has schema version 99, made by a newer Redrive" in answer.err
    assert answer.err.count("\n") == 1


def test_a_wrong_setting_in_the_environment_is_named(
    shell: Shell, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_LEASE", "long")

    answer = shell("status")

    assert answer.code == USAGE
    assert "lease is 'long', which is not a duration" in answer.err


def test_a_wrong_setting_in_the_file_is_named(shell: Shell, shop: Shop, folder: Path) -> None:
    (folder / "redrive.toml").write_text('stor = "sqlite:///shop.db"\n')

    answer = shell("status")

    assert answer.code == USAGE
    assert "did you mean 'store'?" in answer.err


def test_replaying_all_asks_first_and_nobody_is_there_to_answer(shell: Shell, shop: Shop) -> None:
    shop.deliver({"error": "refused"})

    answer = shell("dlq", "replay", "--all-matching")

    assert answer.code == USAGE
    assert answer.err == (
        "redrive: Replay 1 dead letter? There is nobody to ask here; say --yes.\n"
    )
