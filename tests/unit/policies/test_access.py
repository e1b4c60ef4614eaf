"""Who may do what: what is not allowed is refused, and nobody gives more than they have."""

from __future__ import annotations

import inspect

import pytest

from redrive.errors import ConfigurationError, DeniedError
from redrive.model.access import Grant, Role, Token, check_access_name
from redrive.operations import Operations
from redrive.policies.access import DOOR, NEEDS, Reach, check_given, includes, narrowed, refusal
from redrive.testing.clock import FakeClock

ALL = Grant(role=Role.ADMIN)
ACME = Grant(role=Role.OPERATE, tenant="acme")
BILLING = Grant(role=Role.OPERATE, destinations=("billing", "mail"))


def test_every_operation_says_who_may() -> None:
    """A new one belongs into the table of `policies/access.py`; until then it is refused."""
    offered = {
        name
        for name, one in inspect.getmembers(Operations, inspect.isfunction)
        if not name.startswith("_")
    }

    assert offered | {"publish", "publish_many"} == set(NEEDS) | set(DOOR)
    assert not set(NEEDS) & set(DOOR)


@pytest.mark.parametrize(
    ("role", "may"),
    [
        (Role.PUBLISH, {Role.PUBLISH}),
        (Role.VIEW, {Role.VIEW}),
        (Role.OPERATE, {Role.VIEW, Role.OPERATE}),
        (Role.ADMIN, set(Role)),
    ],
)
def test_a_role_includes(role: Role, may: set[Role]) -> None:
    assert {one for one in Role if role.includes(one)} == may
    allowed = {name for name in NEEDS if refusal(Grant(role=role), name) is None}
    assert allowed == {name for name, need in NEEDS.items() if need.role in may}


@pytest.mark.parametrize("operation", [*DOOR, "nonsense", "_store", ""])
def test_what_is_not_in_the_table_is_refused_to_everybody(operation: str) -> None:
    assert refusal(ALL, operation) is not None


@pytest.mark.parametrize("operation", NEEDS)
def test_who_acts_for_a_tenant_does_nothing_to_others_or_to_all(operation: str) -> None:
    grant = Grant(role=Role.ADMIN, tenant="acme")
    reach = NEEDS[operation].reach
    can_be_limited = reach in {Reach.DELIVERIES, Reach.EVENTS, Reach.TENANT, Reach.GRANTS}

    assert (refusal(grant, operation, tenant="acme") is None) is can_be_limited
    if reach is not Reach.GRANTS:
        assert refusal(grant, operation) is not None
        assert refusal(grant, operation, tenant="other") is not None
        assert refusal(grant, operation, destination="acme") is not None


@pytest.mark.parametrize("operation", NEEDS)
def test_who_acts_at_destinations_does_nothing_to_others_or_to_all(operation: str) -> None:
    grant = Grant(role=Role.ADMIN, destinations=("billing", "mail"))
    reach = NEEDS[operation].reach
    can_be_limited = reach in {Reach.DELIVERIES, Reach.DESTINATION, Reach.TENANT, Reach.GRANTS}

    assert (refusal(grant, operation, destination="mail") is None) is can_be_limited
    if reach is not Reach.GRANTS:
        assert refusal(grant, operation) is not None
        assert refusal(grant, operation, destination="ledger") is not None


def test_both_limits_hold_together() -> None:
    grant = Grant(role=Role.OPERATE, tenant="acme", destinations=("billing",))

    assert refusal(grant, "replay", tenant="acme", destination="billing") is None
    assert refusal(grant, "replay", tenant="acme", destination="mail") is not None
    assert refusal(grant, "replay", tenant="other", destination="billing") is not None
    assert refusal(grant, "pause", destination="billing") is not None
    assert refusal(grant, "find_events", tenant="acme") is not None


def test_a_refusal_names_nobody_else() -> None:
    said = refusal(ACME, "replay", tenant="secret tenant", destination="secret place")

    assert said == "This is another tenant's."
    assert "secret" not in str(refusal(BILLING, "replay", destination="secret place"))


def test_a_question_that_names_nobody_is_about_the_callers_own() -> None:
    assert narrowed(ALL) == (None, None)
    assert narrowed(ALL, tenant="acme", destination="mail") == ("acme", "mail")
    assert narrowed(ACME) == ("acme", None)
    assert narrowed(ACME, tenant="other") == ("other", None)
    assert narrowed(BILLING) == (None, None)
    assert "billing or mail" in str(refusal(BILLING, "deliveries"))
    assert narrowed(Grant(role=Role.VIEW, destinations=("mail",))) == (None, "mail")


@pytest.mark.parametrize(
    ("giver", "given", "may"),
    [
        (None, ALL, True),
        (ALL, ALL, True),
        (ALL, ACME, True),
        (ACME, ACME, False),
        (Grant(role=Role.OPERATE), Grant(role=Role.VIEW), False),
        (Grant(role=Role.ADMIN, tenant="acme"), ACME, True),
        (Grant(role=Role.ADMIN, tenant="acme"), Grant(role=Role.PUBLISH, tenant="acme"), True),
        (Grant(role=Role.ADMIN, tenant="acme"), Grant(role=Role.VIEW), False),
        (Grant(role=Role.ADMIN, tenant="acme"), Grant(role=Role.VIEW, tenant="b"), False),
        (Grant(role=Role.ADMIN, destinations=("a", "b")), Grant(role=Role.VIEW), False),
        (
            Grant(role=Role.ADMIN, destinations=("a", "b")),
            Grant(role=Role.ADMIN, destinations=("b",)),
            True,
        ),
        (
            Grant(role=Role.ADMIN, destinations=("a", "b")),
            Grant(role=Role.VIEW, destinations=("b", "c")),
            False,
        ),
        (Grant(role=Role.ADMIN, destinations=("a",)), Grant(role=Role.PUBLISH), False),
    ],
)
def test_nobody_gives_more_than_they_have(giver: Grant | None, given: Grant, *, may: bool) -> None:
    if may:
        check_given(giver, given)
    else:
        with pytest.raises(DeniedError, match="Nobody gives more than they have"):
            check_given(giver, given)


def test_an_operator_includes_a_viewer_of_the_same_tenant() -> None:
    assert includes(ACME, Grant(role=Role.VIEW, tenant="acme", destinations=("billing",)))
    assert not includes(Grant(role=Role.VIEW, tenant="acme"), ACME)


def test_tokens_of_different_tenants_never_share_a_source() -> None:
    now = FakeClock().now()

    def token(name: str, tenant: str | None) -> Token:
        return Token(
            id="a", name=name, role=Role.PUBLISH, tenant=tenant, created_at=now, created_by="ada"
        )

    assert token("shop", None).source == "shop"
    assert token("shop", "acme").source == "acme/shop"
    assert token("web", "acme/shop").source == "acme%2Fshop/web"
    assert token("web", "acme%2Fshop").source == "acme%252Fshop/web"
    with pytest.raises(ConfigurationError, match="use letters"):
        check_access_name("acme/shop", ALL)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"role": "owner"}, "role is 'owner'; it is one of publish, view, operate, admin"),
        ({"role": "view", "tenant": ""}, "tenant is ''; name one"),
        ({"role": "view", "tenant": "a\0"}, "tenant is"),
        ({"role": "view", "destinations": "billing"}, "it is a list"),
        ({"role": "view", "destinations": ["a b"]}, "The destination name is 'a b'"),
        ({"role": "view", "destinations": ["a"] * 101}, "at most 100"),
        ({"role": "publish", "destinations": ["a"]}, "publish cannot be limited to destinations"),
    ],
)
def test_a_wrong_grant_says_what_to_write(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Grant(**fields)  # type: ignore[arg-type]

    assert says in str(refused.value)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a:b", "é", "n" * 101, 7])
def test_a_wrong_name_says_what_to_write(name: object) -> None:
    with pytest.raises(ConfigurationError, match="The name is"):
        check_access_name(name, ALL)


def test_a_name_and_a_tenant_fit_into_a_source() -> None:
    with pytest.raises(ConfigurationError, match="too long together"):
        check_access_name("n" * 100, Grant(role=Role.VIEW, tenant="t" * 100))

    assert check_access_name("n" * 99, Grant(role=Role.VIEW, tenant="t" * 100))
