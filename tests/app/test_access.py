"""Access tokens: who holds the secret is known again, until it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from redrive import ConfigurationError, DeniedError, NotFoundError, Redrive, UsageError
from redrive.app.declaration import Ports
from redrive.model.access import Grant, NewToken, Role
from redrive.model.audit import Actor
from redrive.observer import Fact, Operated
from redrive.operations import Operations
from redrive.policies.secret import write_token
from redrive.store import TokenTerms
from redrive.stores.memory import MemoryStore
from redrive.testing.clock import FakeClock


class Uses(MemoryStore):
    """A store that counts how often it is told that a token was used."""

    uses = 0

    async def use_token(self, token_id: str) -> None:
        self.uses += 1
        await super().use_token(token_id)


class Repeating:
    """Chance that says the same thing twice."""

    def __init__(self) -> None:
        self._said = 0

    def random_bytes(self, size: int) -> bytes:
        self._said += 1
        return bytes([self._said // 5]) * size


class House:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = Uses(self.clock)
        self.app = Redrive("memory://")

    @property
    def operations(self) -> Operations:
        return self.app.operations

    async def token(self, role: str = "view", **options: object) -> NewToken:
        made = self.operations.create_token("shop", role=role, by="ada", why="a test", **options)  # type: ignore[arg-type]
        return await made


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House()
    with house.app.rewired(Ports(clock=house.clock), lambda: house.store):
        async with house.app:
            yield house


async def test_who_shows_the_secret_is_known_and_nobody_else(house: House) -> None:
    made, other = await house.token(), await house.token("admin")

    assert await house.operations.authenticate(made.secret) == made.token
    assert made.secret != other.secret
    mixed = made.secret[:17] + other.secret[17:]
    for wrong in (mixed, made.secret[:-1], "", made.token.id):
        assert await house.operations.authenticate(wrong) is None


async def test_a_wrong_secret_of_a_known_id_is_nobodys(house: House) -> None:
    """The checksum is right, and so is the id."""
    forged, kept = write_token(b"\7" * 7, b"\0" * 32)
    terms = TokenTerms(id=kept.id, digest="f" * 64, name="shop", grant=Grant(role=Role.ADMIN))
    await house.store.add_token(terms, actor=Actor("ada"))

    assert await house.operations.authenticate(forged) is None


async def test_the_secret_is_nowhere_in_the_store_or_in_what_is_told(house: House) -> None:
    made = await house.token()
    random = made.secret[17:69]

    entries = await house.operations.audit()
    kept = await house.store.find_token(made.token.id)

    assert [one.action for one in entries] == ["create_token"]
    assert random not in msgspec.json.encode([entries, kept, made.token]).decode()


async def test_a_token_expires(house: House) -> None:
    made = await house.token(expires_in="1h")
    house.clock.advance("59m")
    assert await house.operations.authenticate(made.secret) is not None

    house.clock.advance("1m")

    assert await house.operations.authenticate(made.secret) is None


async def test_a_revoked_token_opens_nothing_from_then_on(house: House) -> None:
    made = await house.token()

    revoked = await house.operations.revoke_token(made.token.id, by="ada", why="it leaked")
    again = await house.operations.revoke_token(made.token.id, by="ada", why="it leaked")

    assert (revoked, again) == (True, False)
    assert await house.operations.authenticate(made.secret) is None
    assert [one.why for one in await house.operations.audit()] == ["it leaked", "a test"]


async def test_what_was_done_is_told_to_observers(house: House) -> None:
    told: list[Fact] = []

    class Ear:
        def notice(self, fact: Fact) -> None:
            told.append(fact)

    house.app.observe(Ear())
    made = await house.token()
    await house.operations.revoke_token(made.token.id, by="ada", why="it leaked")

    assert [(one.action, one.token) for one in told if isinstance(one, Operated)] == [
        ("create_token", made.token.id),
        ("revoke_token", made.token.id),
    ]


async def test_when_it_was_used_is_written_once_a_minute(house: House) -> None:
    made = await house.token()

    for _ in range(10):
        await house.operations.authenticate(made.secret)
        house.clock.advance("7s")

    [token] = await house.operations.tokens()
    assert house.store.uses == 2
    assert token.last_used_at == house.clock.now() - timedelta(seconds=7)


async def test_an_id_that_is_taken_is_not_given_again() -> None:
    house = House()
    ports = Ports(clock=house.clock, entropy=Repeating())
    with house.app.rewired(ports, lambda: house.store):
        async with house.app:
            ids = [(await house.token()).token.id for _ in range(4)]

    assert len(set(ids)) == 4


async def test_nobody_gives_more_than_they_have(house: House) -> None:
    acme = Grant(role=Role.ADMIN, tenant="acme")
    await house.token("view", tenant="acme", caller=acme)

    for options in ({}, {"tenant": "other"}):
        with pytest.raises(DeniedError, match="Nobody gives more than they have"):
            await house.token("view", caller=acme, **options)
    with pytest.raises(DeniedError):
        await house.token("view", tenant="acme", caller=Grant(role=Role.OPERATE, tenant="acme"))
    assert len(await house.operations.tokens()) == 1


async def test_tokens_are_listed_page_by_page(house: House) -> None:
    made = [await house.token(tenant=one) for one in ("acme", "other", "acme", "acme")]
    acme = Grant(role=Role.ADMIN, tenant="acme")
    listed = await house.operations.tokens(caller=acme)

    first = await house.operations.tokens(limit=2, caller=acme)
    rest = await house.operations.tokens(before=first[-1].id, limit=2, caller=acme)

    assert [*first, *rest] == listed
    assert (len(first), len(rest)) == (2, 1)
    for unknown in ("nothing", made[1].token.id):
        with pytest.raises(UsageError, match="begin with the first"):
            await house.operations.tokens(before=unknown, caller=acme)


async def test_who_is_limited_sees_and_revokes_nothing_of_others(house: House) -> None:
    acme = Grant(role=Role.ADMIN, tenant="acme")
    mine, other = await house.token(tenant="acme"), await house.token(tenant="other")

    assert await house.operations.tokens(caller=acme) == [mine.token]
    for unknown in (other.token.id, "nothing"):
        with pytest.raises(NotFoundError, match="There is no token with the id"):
            await house.operations.revoke_token(unknown, by="ann", why="mine", caller=acme)
    assert await house.operations.revoke_token(mine.token.id, by="ann", why="mine", caller=acme)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"role": "owner"}, "role is 'owner'"),
        ({"expires_in": "soon"}, "expires_in is 'soon', which is not a duration"),
        ({"expires_in": "0s"}, "a token lasts one second or longer"),
        ({"destinations": ["a b"]}, "The destination name is"),
    ],
)
async def test_what_is_wrong_is_said_and_nothing_is_made(
    options: dict[str, object], says: str, house: House
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        await house.token(**options)  # type: ignore[arg-type]

    assert await house.operations.tokens() == []


async def test_a_token_needs_a_reason(house: House) -> None:
    with pytest.raises(UsageError, match="A reason is needed to make a token"):
        await house.operations.create_token("shop", role="view", by="ada", why=" ")
    with pytest.raises(UsageError, match="A reason is needed to revoke a token"):
        await house.operations.revoke_token("a", by="ada", why="")
