"""Who may: tokens are made, listed and revoked, and their secret is seen once."""

from __future__ import annotations

import re

import pytest

from tests.cli.shell import Shell, Shop

SECRET = re.compile(r"rdt_([a-z2-7]{12})_[a-z2-7]{59}\n")
PUBLISH = ("token", "create", "shop", "--role", "publish", "--why", "the web shop")


@pytest.fixture
def store(sqlite: str) -> str:
    """One kind of store is enough here: the stores are compared elsewhere."""
    return sqlite


def test_the_secret_alone_is_printed_and_it_works(shell: Shell, shop: Shop) -> None:
    made = shell(*PUBLISH, "--tenant", "acme", "--expires-in", "90d", "--by", "ann")

    found = SECRET.fullmatch(made.out)
    assert found
    assert "may publish for acme, until 20" in made.err
    assert made.out.strip() not in made.err
    token = shop.do(lambda app: app.operations.authenticate(made.out.strip()))
    assert token is not None
    assert (token.name, token.tenant, token.created_by) == ("shop", "acme", "ann")
    assert found[1] == token.id


def test_tokens_are_listed_without_their_secrets(shell: Shell, shop: Shop) -> None:
    assert shell("token", "list").out.startswith("No access token yet")
    made = shell(*PUBLISH).out
    shell("token", "create", "ci", "--role", "operate", "--destination", "billing", "--why", "x")

    said, listed = shell("token", "list").out, shell("token", "list", "--json")

    assert re.search(r"shop +publish +never +current", said)
    assert re.search(r"ci +operate at billing +never +current", said)
    assert made.strip() not in said + listed.out
    assert [one["name"] for one in listed.json["tokens"]] == ["ci", "shop"]


def test_a_revoked_token_is_on_record_and_opens_nothing(shell: Shell, shop: Shop) -> None:
    made = shell(*PUBLISH, "--json").json
    token_id = made["token"]["id"]

    revoked = shell("token", "revoke", token_id, "--why", "it leaked", "--by", "ann")
    again = shell("token", "revoke", token_id, "--why", "it leaked", "--json")

    assert revoked.out == f"Revoked {token_id}.\n"
    assert (again.code, again.json) == (1, {"changed": [], "unchanged": [token_id]})
    assert shop.do(lambda app: app.operations.authenticate(made["secret"])) is None
    assert "revoked" in shell("token", "list").out
    entries = shell("audit", "--json").json["entries"]
    assert [(one["action"], one["why"]) for one in entries] == [
        ("revoke_token", "it leaked"),
        ("create_token", "the web shop"),
    ]
    assert made["secret"] not in shell("audit").out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("create", "shop", "--role", "owner", "--why", "x"), "role is 'owner'; it is one of"),
        (("create", "shop", "--role", "view", "--why", ""), "A reason is needed to make a token"),
        (("create", "a b", "--role", "view", "--why", "x"), "The name is 'a b'; use letters"),
        (("create", "shop", "--role", "view"), "Missing option '--why'"),
        (("revoke", "nothing", "--why", "x"), "There is no token with the id 'nothing'"),
        (
            ("create", "a", "--role", "view", "--why", "x", "--expires-in", "soon"),
            "expires_in is 'soon', which is not a duration",
        ),
    ],
)
def test_what_is_typed_wrong_is_answered_in_a_sentence(
    arguments: tuple[str, ...], says: str, shell: Shell, shop: Shop
) -> None:
    answer = shell("token", *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err


ADD = ("user", "add", "ann", "--role", "operate", "--why", "joins")
PASSWORD = b"correct horse battery\n"


def test_a_user_is_added_with_a_password_from_standard_input(shell: Shell, shop: Shop) -> None:
    assert shell("user", "list").out.startswith("No user yet")

    added = shell(*ADD, "--tenant", "acme", stdin=PASSWORD)

    assert added.out == "Added ann, who may operate for acme.\n"
    assert re.search(r"ann +operate for acme", shell("user", "list").out)
    assert [one["name"] for one in shell("user", "list", "--json").json["users"]] == ["ann"]
    user = shop.do(lambda app: app.operations.check_password("ann", "correct horse battery"))
    assert user is not None
    assert user.name == "ann"


def test_a_user_whom_a_proxy_lets_in_needs_no_password(shell: Shell, shop: Shop) -> None:
    added = shell(*ADD, "--no-password", stdin=PASSWORD)

    assert added.out == "Added ann, who may operate.\n"
    assert shop.do(lambda app: app.operations.find_user("ann")) is not None
    known = shop.do(lambda app: app.operations.check_password("ann", "correct horse battery"))
    assert known is None


def test_a_password_is_changed_and_a_user_removed_on_record(shell: Shell, shop: Shop) -> None:
    shell(*ADD, stdin=PASSWORD)

    changed = shell("user", "password", "ann", "--why", "it leaked", stdin=b"another horse battery")
    removed = shell("user", "remove", "ann", "--why", "has left", "--json")

    assert changed.out == "Changed the password of ann; all sessions have ended.\n"
    assert removed.json == {"changed": ["ann"]}
    entries = shell("audit", "--json")
    assert [(one["action"], one["why"]) for one in entries.json["entries"]] == [
        ("remove_user", "has left"),
        ("change_password", "it leaked"),
        ("add_user", "joins"),
    ]
    assert "horse" not in entries.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (ADD, "A password has 12 to 1000 characters"),
        (("user", "password", "eve", "--why", "x"), "There is no user 'eve'"),
        (("user", "remove", "eve", "--why", "x"), "There is no user 'eve'"),
    ],
)
def test_what_cannot_be_done_to_a_user_is_said(
    arguments: tuple[str, ...], says: str, shell: Shell, shop: Shop
) -> None:
    answer = shell(*arguments, stdin=b"short")

    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err
