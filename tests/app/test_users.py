"""Users: who knows the password is let in, for a while, and guessing leads nowhere."""

from __future__ import annotations

import pytest

from redrive import ConfigurationError, DeniedError, LoginThrottledError, NotFoundError
from redrive.model.access import Grant, NewSession, Role, User
from redrive.observer import Fact
from redrive.operations import Operations
from redrive.policies.password import Cost, cost_of
from redrive.stores.memory import MemoryStore
from redrive.testing.clock import FakeClock
from redrive.testing.fakes import InlineExecutor

CHEAP = Cost(n=2, r=1, p=1)
PASSWORD = "correct horse battery"  # noqa: S105 - of nobody


class House:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.facts: list[Fact] = []
        self.operations = self.costing(CHEAP)

    def notice(self, fact: Fact) -> None:
        self.facts.append(fact)

    def costing(self, cost: Cost) -> Operations:
        async def store() -> MemoryStore:
            return self.store

        return Operations(store, self, executor=InlineExecutor(), password_cost=cost)

    async def add(self, name: str = "ann", **options: object) -> User:
        given = {"role": "operate", "by": "ada", "why": "a test", **options}
        return await self.operations.add_user(name, PASSWORD, **given)  # type: ignore[arg-type]

    async def log_in(self, **options: str) -> NewSession:
        user = await self.operations.check_password("ann", PASSWORD)
        assert user is not None
        opened = await self.operations.open_session(user, **options)
        assert opened is not None
        return opened


@pytest.fixture
def house() -> House:
    return House()


async def test_who_knows_the_password_is_let_in_and_nobody_else(house: House) -> None:
    user = await house.add()

    assert await house.operations.check_password("ann", PASSWORD) == user
    assert await house.operations.check_password("ann", "wrong horse battery") is None
    assert await house.operations.check_password("eve", PASSWORD) is None
    assert await house.operations.check_password("ANN", PASSWORD) is None


async def test_who_was_given_no_password_is_let_in_by_none(house: House) -> None:
    user = await house.operations.add_user("bob", None, role="view", by="ada", why="by the proxy")

    assert await house.operations.find_user("bob") == user
    for guess in ("", "None", "bob"):
        assert await house.operations.check_password("bob", guess) is None
    await house.operations.set_password("bob", PASSWORD, by="ada", why="works from home")
    assert await house.operations.check_password("bob", PASSWORD)


async def test_there_is_no_user_at_first(house: House) -> None:
    assert await house.operations.users() == []
    for name in ("admin", "root", ""):
        assert await house.operations.check_password(name, "admin") is None


@pytest.mark.parametrize("name", ["ann", "eve"], ids=["known", "unknown"])
async def test_guessing_has_to_wait_whether_there_is_such_a_user_or_not(
    name: str, house: House
) -> None:
    await house.add()
    for _ in range(5):
        assert await house.operations.check_password(name, "wrong") is None

    with pytest.raises(LoginThrottledError, match="wait until 12:15 UTC") as refused:
        await house.operations.check_password(name, PASSWORD)

    assert refused.value.until is not None
    assert (refused.value.until - house.clock.now()).total_seconds() == 900
    house.clock.advance("15m")
    assert (await house.operations.check_password(name, PASSWORD) is not None) is (name == "ann")


async def test_who_logs_in_in_the_end_has_five_tries_again(house: House) -> None:
    await house.add()

    for _ in range(3):
        for _ in range(4):
            await house.operations.check_password("ann", "wrong")
        assert await house.operations.check_password("ann", PASSWORD)


async def test_others_do_not_wait_for_who_guesses(house: House) -> None:
    await house.add()
    for _ in range(5):
        await house.operations.check_password("eve", "wrong")

    assert await house.operations.check_password("ann", PASSWORD)


async def test_who_guesses_from_one_address_keeps_out_nobody_elsewhere(house: House) -> None:
    await house.add()
    check = house.operations.check_password
    for _ in range(5):
        await check("ann", "wrong", address="2001:db8::1")

    for near in ("2001:db8::1", "2001:db8:0:0:ffff::2"):
        with pytest.raises(LoginThrottledError):
            await check("ann", PASSWORD, address=near)
    assert await check("ann", PASSWORD, address="2001:db8:0:1::1")


async def test_many_names_from_one_address_have_to_wait_together(house: House) -> None:
    await house.add()
    check = house.operations.check_password
    for number in range(50):
        await check(f"user{number}", "wrong", address="203.0.113.9")

    with pytest.raises(LoginThrottledError):
        await check("ann", PASSWORD, address="203.0.113.9")
    assert await check("ann", PASSWORD, address="203.0.113.10")


async def test_one_name_from_many_addresses_has_to_wait(house: House) -> None:
    await house.add()
    check = house.operations.check_password
    for number in range(50):
        await check("ann", "wrong", address=f"203.0.113.{number}")

    with pytest.raises(LoginThrottledError):
        await check("ann", PASSWORD, address="198.51.100.1")


async def test_a_password_is_kept_at_higher_costs_when_they_grow(house: House) -> None:
    await house.add()
    dearer = house.costing(Cost(n=4, r=1, p=1))

    assert await dearer.check_password("ann", "wrong") is None
    before = await house.store.find_user("ann")
    assert await dearer.check_password("ann", PASSWORD)
    after = await house.store.find_user("ann")
    assert await house.operations.check_password("ann", PASSWORD)

    assert before is not None
    assert after is not None
    assert (cost_of(before.password), cost_of(after.password)) == (CHEAP, Cost(4, 1, 1))
    assert await house.store.find_user("ann") == after


async def test_who_has_logged_in_is_known_until_they_log_out(house: House) -> None:
    user = await house.add()
    opened = await house.log_in()

    assert await house.operations.session(opened.secret) == opened.session
    assert opened.session.user == user
    assert await house.operations.close_session(opened.secret)
    assert not await house.operations.close_session(opened.secret)
    assert await house.operations.session(opened.secret) is None


@pytest.mark.parametrize("secret", ["", "rds_", "a" * 63])
async def test_what_is_no_session_is_nobodys(secret: str, house: House) -> None:
    assert await house.operations.session(secret) is None
    assert not await house.operations.close_session(secret)


async def test_a_session_ends_when_nothing_is_seen_of_it(house: House) -> None:
    await house.add()
    opened = await house.log_in(idle="10m")
    for _ in range(3):
        house.clock.advance("9m")
        assert await house.operations.session(opened.secret)

    house.clock.advance("10m")

    assert await house.operations.session(opened.secret) is None


async def test_a_session_ends_however_much_is_seen_of_it(house: House) -> None:
    await house.add()
    opened = await house.log_in(lasts="1h")
    for _ in range(5):
        house.clock.advance("10m")
        assert await house.operations.session(opened.secret)

    house.clock.advance("10m")

    assert await house.operations.session(opened.secret) is None


async def test_a_changed_password_ends_all_sessions(house: House) -> None:
    await house.add()
    opened = await house.log_in()

    await house.operations.set_password("ann", "another horse battery", by="ada", why="it leaked")

    assert await house.operations.session(opened.secret) is None
    assert await house.operations.check_password("ann", PASSWORD) is None
    assert await house.operations.check_password("ann", "another horse battery")


async def test_a_removed_user_is_let_in_no_more(house: House) -> None:
    await house.add()
    opened = await house.log_in()

    await house.operations.remove_user("ann", by="ada", why="has left")

    assert await house.operations.session(opened.secret) is None
    assert await house.operations.check_password("ann", PASSWORD) is None


async def test_no_password_and_no_session_is_told_to_anybody(house: House) -> None:
    await house.add()
    opened = await house.log_in()

    told = repr([house.facts, await house.operations.audit(), house.store._sessions])  # noqa: SLF001 - all that is kept

    assert PASSWORD not in told
    assert opened.secret[4:56] not in told
    assert "add_user" in told


async def test_nobody_lets_in_or_changes_who_may_more(house: House) -> None:
    acme = Grant(role=Role.ADMIN, tenant="acme")
    operations = house.operations
    await house.add()
    await house.add("bob", tenant="acme", caller=acme)

    with pytest.raises(DeniedError, match="Nobody gives more than they have"):
        await house.add("eve", caller=acme)
    assert [one.name for one in await operations.users(caller=acme)] == ["bob"]
    for name in ("ann", "nobody"):
        with pytest.raises(NotFoundError, match=f"There is no user '{name}'"):
            await operations.set_password(name, PASSWORD, by="x", why="x", caller=acme)
        with pytest.raises(NotFoundError, match=f"There is no user '{name}'"):
            await operations.remove_user(name, by="x", why="x", caller=acme)
    await operations.remove_user("bob", by="x", why="x", caller=acme)


async def test_what_is_wrong_is_said(house: House) -> None:
    await house.add()

    with pytest.raises(ConfigurationError, match="There is a user 'ann' already"):
        await house.add()
    with pytest.raises(ConfigurationError, match="A session lasts 2m or longer"):
        await house.log_in(idle="1m")
