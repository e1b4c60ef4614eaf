"""What a store promises about secrets: encrypted as they came, and every change on record."""

from __future__ import annotations

import asyncio

from redrive.store import KeptSecret
from tests.conformance.world import OPERATOR, World, only

__all__ = ["SecretConformance"]

_SEALED = bytes(range(256))


async def _kept(world: World, name: str = "crm") -> KeptSecret:
    kept = await world.store.find_secret(name)
    assert kept is not None
    return kept


class SecretConformance:
    """`SealedSecrets`."""

    async def test_a_secret_is_kept_as_it_came_with_who_set_it(self, world: World) -> None:
        made = await world.store.set_secret("crm", _SEALED, key_id="k1", actor=OPERATOR)

        kept = await _kept(world)
        assert kept == KeptSecret(secret=made, sealed=_SEALED)
        assert (made.name, made.version, made.key_id) == ("crm", 1, "k1")
        assert (made.changed_at, made.changed_by) == (world.now, "ada")
        assert await world.store.find_secret("CRM") is None

    async def test_a_secret_that_is_set_again_is_the_next_version(self, world: World) -> None:
        await world.store.set_secret("crm", b"one", key_id="k1", actor=OPERATOR)
        await world.store.set_secret("erp", b"other", key_id="k1", actor=OPERATOR)
        world.clock.advance("1m")

        made = await world.store.set_secret("crm", b"two", key_id="k2", actor=OPERATOR)

        assert (made.version, made.key_id, made.changed_at) == (2, "k2", world.now)
        assert (await _kept(world)).sealed == b"two"
        assert ((await _kept(world, "erp")).sealed, (await _kept(world, "erp")).secret.version) == (
            b"other",
            1,
        )

    async def test_of_those_who_set_a_secret_at_once_each_makes_a_version(
        self, world: World
    ) -> None:
        values = [f"value {n}".encode() for n in range(5)]

        made = await asyncio.gather(
            *(world.store.set_secret("crm", one, key_id="k1", actor=OPERATOR) for one in values)
        )

        assert sorted(one.version for one in made) == [1, 2, 3, 4, 5]
        kept = await _kept(world)
        last = max(range(5), key=lambda place: made[place].version)
        assert (kept.secret, kept.sealed) == (made[last], values[last])

    async def test_secrets_are_listed_by_name(self, world: World) -> None:
        for name in ("b", "a-1", "B", "a"):
            await world.store.set_secret(name, b"", key_id="k1", actor=OPERATOR)

        assert [one.name for one in await world.store.secrets()] == ["B", "a", "a-1", "b"]

    async def test_a_secret_that_is_encrypted_otherwise_stays_what_it_is(
        self, world: World
    ) -> None:
        made = await world.store.set_secret("crm", b"old", key_id="k1", actor=OPERATOR)
        world.clock.advance("1m")

        done = await world.store.reseal_secret(
            await _kept(world), b"new", key_id="k2", actor=OPERATOR
        )

        kept = await _kept(world)
        assert done
        assert (kept.sealed, kept.secret.key_id) == (b"new", "k2")
        assert (kept.secret.version, kept.secret.changed_at) == (1, made.changed_at)

    async def test_nobody_encrypts_what_has_changed_meanwhile(self, world: World) -> None:
        await world.store.set_secret("crm", b"old", key_id="k1", actor=OPERATOR)
        before = await _kept(world)
        await world.store.set_secret("crm", b"newer", key_id="k1", actor=OPERATOR)
        between = await _kept(world)

        late = await world.store.reseal_secret(before, b"lost", key_id="k2", actor=OPERATOR)
        at_once = await asyncio.gather(
            *(
                world.store.reseal_secret(between, b"two", key_id="k2", actor=OPERATOR)
                for _ in range(3)
            )
        )

        assert late is False
        assert sorted(at_once) == [False, False, True]
        assert (await _kept(world)).sealed == b"two"
        await world.store.delete_secret("crm", actor=OPERATOR)
        gone = await world.store.reseal_secret(between, b"back", key_id="k2", actor=OPERATOR)
        assert gone is False
        assert await world.store.find_secret("crm") is None

    async def test_a_deleted_secret_is_gone_and_no_other(self, world: World) -> None:
        for name in ("crm", "erp"):
            await world.store.set_secret(name, b"x", key_id="k1", actor=OPERATOR)

        assert await world.store.delete_secret("crm", actor=OPERATOR) is True

        assert await world.store.find_secret("crm") is None
        assert only(await world.store.secrets()).name == "erp"
        assert await world.store.delete_secret("crm", actor=OPERATOR) is False

    async def test_each_change_of_a_secret_is_on_record_by_its_name_alone(
        self, world: World
    ) -> None:
        await world.store.set_secret("crm", b"sealed", key_id="k1", actor=OPERATOR)
        kept = await _kept(world)
        await world.store.reseal_secret(kept, b"sealed", key_id="k2", actor=OPERATOR)
        await world.store.reseal_secret(kept, b"sealed", key_id="k2", actor=OPERATOR)
        await world.store.delete_secret("crm", actor=OPERATOR)
        await world.store.delete_secret("crm", actor=OPERATOR)

        entries = list(reversed(await world.store.audit()))

        actions = ["set_secret", "rotate_secret", "delete_secret"]
        assert [one.action for one in entries] == actions
        for entry in entries:
            assert (entry.by, entry.count, entry.detail) == ("ada", 1, "crm")
