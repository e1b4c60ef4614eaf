"""Secrets of our own: unmistakable, and a slip of the hand is told from a wrong one."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest

from redrive.policies.redact import BLANK, Redaction
from redrive.policies.secret import is_same, read_session, read_token, write_session, write_token

TOKEN, KEPT = write_token(b"\1" * 7, b"\2" * 32)
SESSION, DIGEST = write_session(b"\3" * 32)


def test_a_token_has_the_form_that_scanners_look_for() -> None:
    assert re.fullmatch(r"rdt_[a-z2-7]{12}_[a-z2-7]{59}", TOKEN)
    assert re.fullmatch(r"rds_[a-z2-7]{59}", SESSION)
    assert TOKEN.startswith(f"rdt_{KEPT.id}_")


def test_what_is_kept_is_the_digest_of_the_random_part() -> None:
    random = TOKEN[-59:-7]

    assert read_token(TOKEN) == KEPT
    assert read_session(SESSION) == DIGEST
    assert sha256(random.encode()).hexdigest() == KEPT.digest
    assert random not in KEPT.digest


def test_each_bit_of_chance_counts() -> None:
    others = {write_token(b"\1" * 7, bytes([*[2] * 31, last]))[1].digest for last in range(256)}

    assert len(others) == 256


@pytest.mark.parametrize("place", [4, 15, 16, 17, 40, 68, 69, 75])
def test_a_slip_of_the_hand_is_found(place: int) -> None:
    mistyped = TOKEN[:place] + ("b" if TOKEN[place] != "b" else "c") + TOKEN[place + 1 :]

    assert read_token(mistyped) is None


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "rdt_",
        TOKEN[:-1],
        TOKEN + "a",
        TOKEN.upper(),
        f" {TOKEN}",
        f"{TOKEN}\n",
        SESSION,
        7,
        None,
    ],
)
def test_what_is_no_token_of_ours_is_nobodys(secret: object) -> None:
    assert read_token(secret) is None


@pytest.mark.parametrize("secret", ["", SESSION[:-1], SESSION + "\n", SESSION[:-1] + "1", TOKEN])
def test_what_is_no_session_of_ours_is_nobodys(secret: str) -> None:
    assert read_session(secret) is None


def test_digests_are_compared() -> None:
    assert is_same(KEPT.digest, KEPT.digest)
    assert not is_same(KEPT.digest, DIGEST)


@pytest.mark.parametrize("secret", [TOKEN, SESSION])
def test_a_secret_is_blanked_wherever_it_is_written(secret: str) -> None:
    for text in (
        f"got {secret} from them",
        f"GET /x/{secret}/y",
        f'{{"note": "{secret}"}}',
        secret,
    ):
        assert secret not in Redaction().text(text)
        assert BLANK in Redaction().text(text)
    assert Redaction().text(f"id {KEPT.id} stays") == f"id {KEPT.id} stays"
