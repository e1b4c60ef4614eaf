"""Editing a dead letter from the command line."""

from pathlib import Path

import pytest

from redrive import Redrive
from redrive.cli import asking
from redrive.operations import Story
from tests.cli.shell import Shell, Shop

WHY = ("--why", "no total")


def story(shop: Shop) -> Story:
    async def show(app: Redrive) -> Story:
        return await app.operations.show(1)

    return shop.do(show)


@pytest.fixture
def letter(shop: Shop) -> Shop:
    shop.deliver({"error": "refused", "n": 12345678901234567890})
    return shop


def test_an_edit_shows_the_difference_and_sends_it_again(shell: Shell, letter: Shop) -> None:
    answer = shell("dlq", "edit", "1", *WHY, "--payload", '{"n": 2}', "--yes", "--by", "ann")
    told = story(letter)

    assert answer.code == 0
    assert answer.out.splitlines() == [
        '- error: "refused"',
        "~ n: 12345678901234567890 → 2",
        "Edited delivery 1 and sent it again.",
    ]
    assert (told.delivery.status, told.payload) == ("pending", {"n": 2})
    letter.do(lambda app: app.drain())
    assert story(letter).delivery.status == "delivered"


def test_an_edit_may_leave_it_where_it_is(shell: Shell, letter: Shop, folder: Path) -> None:
    (folder / "new.json").write_text('{"n": 3}')

    answer = shell("dlq", "edit", "1", *WHY, "--file", "new.json", "--yes", "--no-replay")
    shown = shell("dlq", "show", "1")

    assert answer.out.splitlines()[-1] == "Edited delivery 1 and left it where it is."
    assert (story(letter).delivery.status, story(letter).payload) == ("failed", {"n": 3})
    assert "Edits" in shown.out
    assert ": no total" in shown.out
    assert "~ n: 12345678901234567890 → 3" in shown.out
    assert "Payload, as edited" in shown.out
    assert shell("dlq", "show", "1", "--json").json["delivery"]["edits"][0]["why"] == "no total"


def test_an_edit_takes_standard_input_and_answers_in_json(shell: Shell, letter: Shop) -> None:
    answer = shell("dlq", "edit", "1", *WHY, "--file", "-", "--yes", "--json", stdin=b'{"n": 4}')

    assert answer.json["delivery"]["payload"] == {"n": 4}
    assert answer.json["event"]["payload"] == {"error": "refused", "n": 12345678901234567890}


def test_an_editor_opens_on_what_it_carries(
    shell: Shell, letter: Shop, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = folder / "editor"
    editor.write_text('#!/bin/sh\nsed -i \'s/"refused"/"mended"/\' "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    monkeypatch.setattr(asking, "is_attended", lambda: True)

    refused = shell("dlq", "edit", "1", *WHY, stdin=b"n\n")
    accepted = shell("dlq", "edit", "1", *WHY, stdin=b"y\n")
    again = shell("dlq", "edit", "1", *WHY)

    assert (refused.code, accepted.code) == (1, 0)
    assert '~ error: "refused" → "mended"' in refused.out
    assert story(letter).payload == {"error": "mended", "n": 12345678901234567890}
    assert again.code == 2


def test_an_editor_that_removes_its_file_changes_nothing(
    shell: Shell, shop: Shop, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.deliver({"error": "refused"})
    editor = folder / "editor"
    editor.write_text('#!/bin/sh\nrm "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    monkeypatch.setattr("redrive.cli.asking.is_attended", lambda: True)

    answer = shell("dlq", "edit", "1", "--why", "mend", "--yes")

    assert answer.code == 2
    assert answer.err.startswith("redrive: The editor left no file behind")


def test_an_editor_that_changes_nothing_changes_nothing(
    shell: Shell, letter: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", "true")
    monkeypatch.setattr(asking, "is_attended", lambda: True)

    answer = shell("dlq", "edit", "1", *WHY)

    assert answer.code == 2
    assert "Nothing was changed in the editor" in answer.err
    assert story(letter).delivery.edits == ()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["1", *WHY], "There is nobody to edit here; give the payload by --payload or --file."),
        (["1", *WHY, "--payload", "1"], "Change this and send it again? There is nobody to ask"),
        (["1", *WHY, "--payload", "1", "--file", "x"], "The payload is given twice"),
        (["1", *WHY, "--payload", "{", "--yes"], "The payload is not JSON"),
        (["1", *WHY, "--file", "nowhere", "--yes"], "cannot be read from nowhere"),
        (["9", *WHY, "--payload", "1", "--yes"], "There is no delivery 9"),
        (["1", "--payload", "1", "--yes"], "--why"),
        (["1", "--why", " ", "--payload", "1", "--yes"], "A reason is needed to edit"),
        (
            ["1", *WHY, "--payload", '{"error": "refused", "n": 12345678901234567890}', "--yes"],
            "Delivery 1 carries that payload already.",
        ),
    ],
)
def test_a_mistake_is_told_in_one_sentence(
    arguments: list[str], complaint: str, shell: Shell, letter: Shop
) -> None:
    answer = shell("dlq", "edit", *arguments)

    assert answer.code == 2
    assert complaint in answer.err
    assert len(answer.err.splitlines()) == 1
    assert story(letter).delivery.edits == ()


def test_what_is_no_dead_letter_is_not_edited(shell: Shell, shop: Shop) -> None:
    shop.deliver({"order": 1})

    answer = shell("dlq", "edit", "1", *WHY, "--payload", "1", "--yes")

    assert answer.code == 2
    assert "Delivery 1 is delivered; only a dead letter that nobody has resolved" in answer.err
