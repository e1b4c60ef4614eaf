"""What a store promises about who may: tokens without secrets, ended when somebody says so."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from redrive.model.access import Grant, Role
from redrive.store import TokenTerms
from tests.conformance.world import OPERATOR, World, only

__all__ = ["TokenConformance"]


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
