"""Secrets are kept encrypted, by keys that are not in the store."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import msgspec
import pytest

from redrive import ConfigurationError, NotFoundError, Redrive, SecretError, UsageError
from redrive.observer import Fact, Operated

WHY = {"by": "ada", "why": "a test"}


def key(number: int) -> str:
    return f"k{number}:" + base64.b64encode(str(number).encode() * 32).decode()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text(key(1))
    return file


def write(file: Path, text: str) -> None:
    file.write_text(text)


@pytest.fixture
def app(sqlite: str, keys: Path) -> Redrive:
    return Redrive(sqlite, keys_file=keys)


async def test_a_secret_is_set_and_reaches_who_refers_to_it(app: Redrive) -> None:
    async with app:
        made = await app.operations.set_secret("crm", "hunter2", **WHY)
        again = await app.operations.set_secret("crm", "hunter3", **WHY)

        assert (made.name, made.version, made.key_id) == ("crm", 1, "k1")
        assert again.version == 2
        assert await app.operations.secrets() == [again]
        assert await app.secrets.value("secret:crm") == "hunter3"


async def test_what_is_told_of_a_secret_never_has_it(app: Redrive) -> None:
    told: list[Fact] = []

    class Listener:
        def notice(self, fact: Fact) -> None:
            told.append(fact)

    app.observe(Listener())
    async with app:
        await app.operations.set_secret("crm", "hunter2", **WHY)
        await app.operations.delete_secret("crm", **WHY)
        entries = await app.operations.audit()

    acts = [one for one in told if isinstance(one, Operated)]
    assert [(one.action, one.secret) for one in acts] == [
        ("set_secret", "crm"),
        ("delete_secret", "crm"),
    ]
    assert [one.action for one in entries] == ["delete_secret", "set_secret"]
    assert "hunter2" not in repr(told) + msgspec.json.encode(entries).decode()


async def test_rotation_encrypts_all_by_the_first_key(app: Redrive, keys: Path) -> None:
    async with app:
        for name in ("crm", "erp"):
            await app.operations.set_secret(name, f"of {name}", **WHY)
        write(keys, f"{key(2)}\n{key(1)}")
        await app.operations.set_secret("new", "of new", **WHY)

        done = await app.operations.rotate_secrets(**WHY)
        write(keys, key(2))
        again = await app.operations.rotate_secrets(**WHY)

        assert (done.key_id, done.rotated, done.unchanged) == ("k2", ("crm", "erp"), ("new",))
        assert (again.rotated, again.unchanged) == ((), ("crm", "erp", "new"))
        assert [one.version for one in await app.operations.secrets()] == [1, 1, 1]
        assert await app.secrets.value("secret:crm") == "of crm"


async def test_a_rotation_without_an_old_key_changes_nothing(app: Redrive, keys: Path) -> None:
    async with app:
        await app.operations.set_secret("crm", "hunter2", **WHY)
        write(keys, f"{key(2)}\n{key(1)}")
        await app.operations.set_secret("erp", "hunter3", **WHY)
        write(keys, f"{key(3)}\n{key(2)}")

        with pytest.raises(SecretError, match="The secret crm is encrypted by the key 'k1'"):
            await app.operations.rotate_secrets(**WHY)

        assert [one.key_id for one in await app.operations.secrets()] == ["k1", "k2"]
        write(keys, f"{key(1)}\n{key(2)}")
        assert await app.secrets.value("secret:crm") == "hunter2"
        assert await app.secrets.value("secret:erp") == "hunter3"


async def test_the_doctor_names_secrets_whose_key_is_missing(app: Redrive, keys: Path) -> None:
    async def told() -> list[str]:
        findings = await app.operations.examine()
        return [one.what for one in findings if "encrypted" in one.what]

    async with app:
        for place in range(7):
            await app.operations.set_secret(f"s{place}", "hunter2", **WHY)
        with_it = await told()
        write(keys, key(2))
        with_another = await told()
        write(keys, "# none here")
        with_none = await told()
        write(keys, "no key")
        with_odd_ones = await told()

    missing = (
        "The key 'k1' is not among those here, and 7 secrets are encrypted by it: "
        "s0, s1, s2, s3, s4 …."
    )
    assert (with_it, with_another, with_none) == ([], [missing], [])
    assert with_odd_ones == [missing]


async def test_secrets_that_are_set_while_keys_rotate_are_not_lost(
    app: Redrive, keys: Path
) -> None:
    async with app:
        for place in range(10):
            await app.operations.set_secret(f"s{place}", "old", **WHY)
        write(keys, f"{key(2)}\n{key(1)}")

        await asyncio.gather(
            app.operations.rotate_secrets(**WHY),
            app.operations.rotate_secrets(**WHY),
            *(app.operations.set_secret(f"s{place}", "new", **WHY) for place in range(5)),
        )

        write(keys, key(2))
        values = [await app.secrets.value(f"secret:s{place}") for place in range(10)]
        assert values == ["new"] * 5 + ["old"] * 5


async def test_without_keys_nothing_is_set(sqlite: str) -> None:
    async with Redrive(sqlite) as app:
        with pytest.raises(ConfigurationError, match="There is no key to encrypt with"):
            await app.operations.set_secret("crm", "hunter2", **WHY)
        assert await app.operations.secrets() == []


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("a b", "hunter2", "The name of a secret"),
        ("", "hunter2", "The name of a secret"),
        ("crm", "", "is empty"),
        ("crm", "  ", "is empty"),
        ("crm", "hunter2\0", "a zero byte"),
        ("crm", "hunter2" * 10_000, "more than 65,536 bytes"),
        ("crm", "hunter2\ud800", "no text that can be kept"),
    ],
)
async def test_what_is_no_secret_is_refused_and_not_shown(
    app: Redrive, name: str, value: str, complaint: str
) -> None:
    async with app:
        with pytest.raises(ConfigurationError, match=complaint) as caught:
            await app.operations.set_secret(name, value, **WHY)

    assert "hunter2" not in str(caught.value)


async def test_each_act_needs_a_reason_and_a_secret(app: Redrive) -> None:
    async with app:
        with pytest.raises(UsageError, match="A reason is needed to set a secret"):
            await app.operations.set_secret("crm", "hunter2", by="ada", why=" ")
        with pytest.raises(UsageError, match="A reason is needed to rotate keys"):
            await app.operations.rotate_secrets(by="ada", why="")
        await app.operations.set_secret("crm", "hunter2", **WHY)
        with pytest.raises(NotFoundError, match="did you mean 'crm'"):
            await app.operations.delete_secret("cmr", **WHY)


async def test_the_keys_are_no_setting_that_is_shown(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_KEYS", key(1))

    async with Redrive(sqlite) as app:
        await app.operations.set_secret("crm", "hunter2", **WHY)

        assert key(1)[3:] not in repr(app.settings)
        assert await app.secrets.value("secret:crm") == "hunter2"
        with pytest.raises(ConfigurationError, match="Redrive's own"):
            await app.secrets.value("env:REDRIVE_KEYS")
