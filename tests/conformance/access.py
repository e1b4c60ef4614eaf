"""What a store promises about who may: tokens without secrets, ended when somebody says so."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from redrive.model.access import Grant, LoginSession, Role, User
from redrive.store import TOKENS_KEPT, TokenTerms
from tests.conformance.world import OPERATOR, World, only

__all__ = ["TokenConformance", "UserConformance"]


def _terms(name: str = "a", *, lasts: timedelta | None = None) -> TokenTerms:
    grant = Grant(role=Role.OPERATE, tenant="acme", destinations=("billing", "mailing"))
    return TokenTerms(id=name, digest=f"digest of {name}", name="shop", grant=grant, lasts=lasts)


class TokenConformance:
    """`Access`, as far as tokens go."""

    async def test_a_token_is_kept_with_what_it_allows_and_who_made_it(self, world: World) -> None:
        made = await world.store.add_token(_terms(lasts=timedelta(days=2)), actor=OPERATOR)

        kept = await world.store.find_token("a")
        assert made is not None
        assert kept is not None
        assert (kept.token, kept.digest, kept.now) == (made, "digest of a", world.now)
        assert made.grant == _terms().grant
        assert (made.name, made.created_by, made.created_at) == ("shop", "ada", world.now)
        assert made.expires_at == world.after("2d")
        assert (made.revoked_at, made.last_used_at) == (None, None)
        assert await world.store.find_token("b") is None

    async def test_the_present_of_a_token_is_the_stores(self, world: World) -> None:
        await world.store.add_token(_terms(lasts=timedelta(hours=1)), actor=OPERATOR)
        world.clock.advance("1h")

        kept = await world.store.find_token("a")

        assert kept is not None
        assert not kept.token.is_current(kept.now)
        assert kept.token.is_current(kept.now - timedelta(microseconds=1))

    async def test_an_id_of_a_token_is_given_once(self, world: World) -> None:
        first = await world.store.add_token(_terms(), actor=OPERATOR)

        other = TokenTerms(id="a", digest="mine", name="mine", grant=Grant(role=Role.ADMIN))
        assert await world.store.add_token(other, actor=OPERATOR) is None

        kept = await world.store.find_token("a")
        assert kept is not None
        assert (kept.token, kept.digest) == (first, "digest of a")
        assert len(await world.store.audit()) == 1

    async def test_tokens_are_listed_with_the_latest_first(self, world: World) -> None:
        for name in ("c", "a", "b"):
            await world.store.add_token(_terms(name), actor=OPERATOR)
            world.clock.advance("1s")
        await world.store.revoke_token("c", actor=OPERATOR)

        assert [one.id for one in await world.store.tokens()] == ["b", "a", "c"]

    async def test_tokens_that_ended_long_ago_are_forgotten(self, world: World) -> None:
        for name, lasts in (("a", timedelta(days=1)), ("b", None), ("c", None)):
            await world.store.add_token(_terms(name, lasts=lasts), actor=OPERATOR)
        world.clock.advance(timedelta(days=1))
        await world.store.add_token(_terms("d"), actor=OPERATOR)
        await world.store.revoke_token("b", actor=OPERATOR)

        world.clock.advance(TOKENS_KEPT - timedelta(seconds=1))
        await world.store.add_token(_terms("e"), actor=OPERATOR)
        soon = {one.id for one in await world.store.tokens()}
        world.clock.advance(timedelta(seconds=1))
        await world.store.add_token(_terms("f"), actor=OPERATOR)

        assert soon == {"a", "b", "c", "d", "e"}
        assert {one.id for one in await world.store.tokens()} == {"c", "d", "e", "f"}

    async def test_a_revoked_token_is_revoked_for_whoever_asks_next(self, world: World) -> None:
        await world.store.add_token(_terms(), actor=OPERATOR)
        await world.store.add_token(_terms("b"), actor=OPERATOR)
        world.clock.advance("1m")

        assert await world.store.revoke_token("a", actor=OPERATOR) is True

        kept, other = await world.store.find_token("a"), await world.store.find_token("b")
        assert kept is not None
        assert other is not None
        assert kept.token.revoked_at == world.now
        assert not kept.token.is_current(kept.now)
        assert other.token.is_current(other.now)

    async def test_a_token_is_revoked_once_however_many_do(self, world: World) -> None:
        await world.store.add_token(_terms(), actor=OPERATOR)
        revoked_at = world.now

        done = await asyncio.gather(
            *(world.store.revoke_token("a", actor=OPERATOR) for _ in range(3))
        )
        world.clock.advance("1m")
        again = await world.store.revoke_token("a", actor=OPERATOR)

        assert sorted(map(bool, done)) == [False, False, True]
        assert again is False
        assert only(await world.store.tokens()).revoked_at == revoked_at
        assert await world.store.revoke_token("b", actor=OPERATOR) is None

    async def test_when_a_token_was_used_is_remembered_and_changes_nothing_else(
        self, world: World
    ) -> None:
        await world.store.add_token(_terms(), actor=OPERATOR)
        await world.store.add_token(_terms("b"), actor=OPERATOR)
        await world.store.revoke_token("a", actor=OPERATOR)
        revoked_at = world.now
        world.clock.advance("5m")

        await world.store.use_token("a")

        used = {one.id: one for one in await world.store.tokens()}
        assert (used["a"].last_used_at, used["a"].revoked_at) == (world.now, revoked_at)
        assert used["b"].last_used_at is None

    async def test_who_made_and_revoked_a_token_is_on_record_without_its_digest(
        self, world: World
    ) -> None:
        await world.store.add_token(_terms(), actor=OPERATOR)
        await world.store.revoke_token("a", actor=OPERATOR)
        await world.store.revoke_token("a", actor=OPERATOR)
        await world.store.use_token("a")

        revoked, created = await world.store.audit()

        assert (created.action, revoked.action) == ("create_token", "revoke_token")
        for entry in (created, revoked):
            assert (entry.by, entry.why, entry.count) == ("ada", "the customer called", 1)
            assert entry.detail == "shop (a), operate for acme at billing, mailing"


_VIEWER = Grant(role=Role.VIEW, tenant="acme")
_IDLE, _LASTS = timedelta(minutes=30), timedelta(hours=12)
_WHILE = timedelta(minutes=15)


async def _user(world: World, name: str = "ann") -> User:
    user = await world.store.add_user(name, _VIEWER, f"of {name}", actor=OPERATOR)
    assert user is not None
    return user


async def _opened(world: World, session_id: str, user: User) -> LoginSession | None:
    return await world.store.open_session(session_id, user, idle=_IDLE, lasts=_LASTS)


async def _actions(world: World) -> list[str]:
    return [one.action for one in reversed(await world.store.audit())]


class UserConformance:
    """`Access`, as far as users and their sessions go."""

    async def test_a_user_is_kept_with_what_they_may(self, world: World) -> None:
        user = await _user(world)
        await _user(world, "bob")

        kept = await world.store.find_user("ann")
        assert kept is not None
        assert (kept.user, kept.password) == (user, "of ann")
        assert (user.grant, user.created_by, user.created_at) == (_VIEWER, "ada", world.now)
        assert user.password_changed_at == world.now
        assert [one.name for one in await world.store.users()] == ["ann", "bob"]
        assert await world.store.find_user("eve") is None

    async def test_a_name_of_a_user_is_given_once(self, world: World) -> None:
        user = await _user(world)

        taken = await world.store.add_user("ann", Grant(role=Role.ADMIN), "mine", actor=OPERATOR)

        kept = await world.store.find_user("ann")
        assert taken is None
        assert kept is not None
        assert (kept.user, kept.password) == (user, "of ann")

    async def test_a_changed_password_ends_the_sessions_of_that_user_alone(
        self, world: World
    ) -> None:
        user, other = await _user(world), await _user(world, "bob")
        for session_id in ("a", "b"):
            assert await _opened(world, session_id, user)
        assert await _opened(world, "c", other)
        world.clock.advance("1m")

        assert await world.store.set_password("ann", "new", actor=OPERATOR)

        kept = await world.store.find_user("ann")
        assert kept is not None
        assert (kept.password, kept.user.password_changed_at) == ("new", world.now)
        assert [await world.store.find_session(one) for one in ("a", "b")] == [None, None]
        assert await world.store.find_session("c")
        assert not await world.store.set_password("eve", "new", actor=OPERATOR)

    async def test_a_removed_user_is_gone_with_all_sessions(self, world: World) -> None:
        user = await _user(world)
        assert await _opened(world, "a", user)

        assert await world.store.remove_user("ann", actor=OPERATOR)
        assert not await world.store.remove_user("ann", actor=OPERATOR)

        await _user(world)
        assert await world.store.find_session("a") is None

    async def test_nobody_logs_in_by_a_password_of_the_past(self, world: World) -> None:
        user = await _user(world)
        world.clock.advance("1s")
        await world.store.set_password("ann", "new", actor=OPERATOR)
        assert await _opened(world, "a", user) is None
        await world.store.remove_user("ann", actor=OPERATOR)

        assert await _opened(world, "b", user) is None
        assert await world.store.find_session("a") is None
        assert await world.store.find_session("b") is None

    async def test_a_password_is_kept_otherwise_unless_it_has_changed(self, world: World) -> None:
        user = await _user(world)
        assert await _opened(world, "a", user)
        before = await world.store.find_user("ann")
        assert before is not None

        await world.store.renew_password(before, "slower")
        await world.store.renew_password(before, "late")

        kept = await world.store.find_user("ann")
        assert kept is not None
        assert (kept.user, kept.password) == (user, "slower")
        assert await world.store.find_session("a")

    async def test_of_those_who_try_to_log_in_at_once_only_so_many_may(self, world: World) -> None:
        tries = [world.store.count_login(7, most=3, within=_WHILE) for _ in range(8)]

        waits = await asyncio.gather(*tries)

        assert waits.count(None) == 3
        assert waits.count(world.after("15m")) == 5
        assert await world.store.count_login(8, most=3, within=_WHILE) is None

    async def test_who_waited_long_enough_may_log_in_again(self, world: World) -> None:
        until = world.after("15m")
        for _ in range(2):
            await world.store.count_login(7, most=2, within=_WHILE)
            world.clock.advance("5m")

        assert await world.store.count_login(7, most=2, within=_WHILE) == until
        world.clock.advance("5m")
        assert await world.store.count_login(7, most=2, within=_WHILE) is None

    async def test_who_has_logged_in_begins_anew(self, world: World) -> None:
        for place in (7, 7, 8, 8):
            await world.store.count_login(place, most=2, within=_WHILE)

        await world.store.forget_logins(7)

        assert await world.store.count_login(7, most=2, within=_WHILE) is None
        assert await world.store.count_login(8, most=2, within=_WHILE) is not None

    async def test_a_session_is_its_users_and_ends_when_it_says(self, world: World) -> None:
        user = await _user(world)

        opened = await _opened(world, "a", user)
        world.clock.advance("1m")

        found = await world.store.find_session("a")
        assert opened is not None
        assert found is not None
        assert (found.session, found.now) == (opened, world.now)
        assert (opened.user, opened.idle, opened.ends_at - opened.opened_at) == (
            user,
            _IDLE,
            _LASTS,
        )
        assert await world.store.find_session("b") is None

    async def test_what_is_seen_of_a_session_moves_its_idle_end_alone(self, world: World) -> None:
        opened = await _opened(world, "a", await _user(world))
        world.clock.advance("20m")

        await world.store.see_session("a")

        found = await world.store.find_session("a")
        assert opened is not None
        assert found is not None
        assert (found.session.seen_at, found.session.ends_at) == (world.now, opened.ends_at)

    async def test_a_closed_session_is_gone(self, world: World) -> None:
        user = await _user(world)
        assert await _opened(world, "a", user)
        assert await _opened(world, "b", user)

        assert await world.store.close_session("a")
        assert not await world.store.close_session("a")

        assert await world.store.find_session("a") is None
        assert await world.store.find_session("b")

    async def test_sessions_that_have_ended_are_cleared_away(self, world: World) -> None:
        user = await _user(world)
        assert await _opened(world, "a", user)
        world.clock.advance(_LASTS)
        assert await world.store.find_session("a")

        assert await _opened(world, "b", user)

        assert await world.store.find_session("a") is None
        assert await world.store.find_session("b")

    async def test_what_is_done_about_users_is_on_record_without_passwords(
        self, world: World
    ) -> None:
        user = await _user(world)
        digest = "0123456789abcdef" * 4
        await _opened(world, digest, user)
        await world.store.close_session(digest)
        await world.store.set_password("ann", "secret b", actor=OPERATOR)
        await world.store.remove_user("ann", actor=OPERATOR)

        entries = await world.store.audit()

        assert await _actions(world) == [
            *("add_user", "log_in", "log_out", "change_password", "remove_user")
        ]
        assert {one.by for one in entries} == {"ada", "user:ann:0123456789ab"}
        assert all("ann" in one.detail for one in entries)
        assert not any(word in one.detail for one in entries for word in ("secret", "of ann"))
