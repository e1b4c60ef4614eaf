"""Passwords: what is asked of them, and what is kept of them."""

from __future__ import annotations

import pytest

from redrive.errors import ConfigurationError
from redrive.policies.password import (
    USUAL,
    Cost,
    check_password,
    cost_of,
    digest_password,
    is_password,
    nobodys_password,
)

CHEAP = Cost(n=2, r=1, p=1)
SALT = b"\1" * 16


def test_a_password_is_known_again_and_no_other() -> None:
    kept = digest_password("correct horse battery", SALT, CHEAP)

    assert is_password("correct horse battery", kept)
    for wrong in ("", "Correct horse battery", "correct horse battery ", "x" * 2_000, None, 7):
        assert not is_password(wrong, kept)


def test_the_same_password_is_kept_otherwise_with_another_salt_or_cost() -> None:
    kept = digest_password("correct horse battery", SALT, CHEAP)

    assert "horse" not in kept
    assert kept != digest_password("correct horse battery", b"\2" * 16, CHEAP)
    assert cost_of(kept) == CHEAP
    assert cost_of(digest_password("correct horse battery", SALT, Cost(4, 1, 1))).work > CHEAP.work


def test_a_letter_may_be_typed_in_more_than_one_way() -> None:
    assert is_password("cafe\u0301 cafe\u0301", digest_password("café café", SALT, CHEAP))


@pytest.mark.parametrize("password", ["", "\0" * 12, "correct horse battery"])
def test_nobodys_password_is_none(password: str) -> None:
    kept = nobodys_password(CHEAP)

    assert cost_of(kept) == CHEAP
    assert not is_password(password, kept)


def test_the_usual_cost_is_what_a_guess_should_cost() -> None:
    """Sixteen megabytes and five rounds are what is advised for scrypt at that size."""
    assert Cost(n=16_384, r=8, p=5) == USUAL
    assert is_password("correct horse", digest_password("correct horse", SALT))


@pytest.mark.parametrize("password", ["", "short", "x" * 11, "x" * 1_001, 7, None])
def test_a_bad_password_is_refused_and_never_repeated(password: object) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_password(password, name="ann")

    assert str(refused.value).startswith("A password has 12 to 1000 characters")


def test_a_name_is_no_password() -> None:
    with pytest.raises(ConfigurationError, match="The password is the user's name"):
        check_password("Ann@example.com", name="ann@example.com")
