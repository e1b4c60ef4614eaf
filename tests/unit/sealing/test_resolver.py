"""References say where secrets are, and are looked up when they are needed."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from redrive.clock import SystemEntropy
from redrive.errors import ConfigurationError, SecretError, StoreUnavailableError
from redrive.model.audit import Actor
from redrive.sealing import Folders, KeyRing, Secrets, check_reference, is_reference
from redrive.store import KeptSecret, about_secret
from redrive.stores.memory import MemoryStore
from redrive.testing.clock import FakeClock

KEYS = KeyRing.read("k1:" + base64.b64encode(b"1" * 32).decode(), origin="a test")

ANYWHERE = Folders(["/"])


class Lookup(MemoryStore):
    """A store that counts how often a secret is asked for, and can be out of reach."""

    asked = 0
    is_away = False

    async def find_secret(self, name: str) -> KeptSecret | None:
        self.asked += 1
        if self.is_away:
            raise StoreUnavailableError("The store went away.")
        return await super().find_secret(name)

    async def put(self, name: str, value: str) -> None:
        about = about_secret(name)
        sealed = KEYS.seal(value.encode(), about=about, entropy=SystemEntropy())
        await self.set_secret(name, sealed, key_id="k1", actor=Actor("ada"))


class Desk:
    def __init__(self, keys: KeyRing = KEYS, folders: Folders = ANYWHERE) -> None:
        self.clock = FakeClock()
        self.store = Lookup(self.clock)
        self.variables = {"CRM_TOKEN": "of the environment"}
        self.secrets = Secrets(
            self.find_store,
            lambda: keys,
            clock=self.clock,
            folders=folders,
            environment=self.variables,
        )

    async def find_store(self) -> Lookup:
        return self.store


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_each_kind_is_looked_up(desk: Desk, tmp_path: Path) -> None:
    await desk.store.put("crm", "of the store")
    (tmp_path / "token").write_text("of the file\n")
    file = f"file:{tmp_path}/token"

    values = await desk.secrets.values(["secret:crm", "env:CRM_TOKEN", file])

    assert values == {
        "secret:crm": "of the store",
        "env:CRM_TOKEN": "of the environment",
        file: "of the file",
    }


async def test_what_was_read_is_gone_by_for_some_seconds(desk: Desk) -> None:
    await desk.store.put("crm", "one")
    assert await desk.secrets.value("secret:crm") == "one"
    await desk.store.put("crm", "two")

    desk.clock.advance("4s")
    soon = await desk.secrets.value("secret:crm")
    desk.clock.advance("1s")
    later = await desk.secrets.value("secret:crm")

    assert (soon, later, desk.store.asked) == ("one", "two", 2)


async def test_a_store_that_is_away_keeps_nobody_from_what_was_read_before(desk: Desk) -> None:
    await desk.store.put("crm", "one")
    await desk.secrets.value("secret:crm")
    desk.store.is_away = True
    desk.clock.advance("1h")

    assert await desk.secrets.value("secret:crm") == "one"
    with pytest.raises(StoreUnavailableError):
        await desk.secrets.value("secret:erp")


async def test_a_deleted_secret_is_gone_though_it_was_read_before(desk: Desk) -> None:
    await desk.store.put("crm", "one")
    await desk.secrets.value("secret:crm")
    await desk.store.delete_secret("crm", actor=Actor("ada"))
    desk.clock.advance("5s")

    with pytest.raises(SecretError, match="set it with: redrive secret set crm"):
        await desk.secrets.value("secret:crm")


async def test_what_is_not_there_is_said_by_its_reference(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "large").write_text("x" * 70_000)
    (tmp_path / "odd").write_bytes(b"\xff")

    for reference, complaint in (
        ("env:NONE", "has no such variable"),
        ("secret:none", "set it with"),
        (f"file:{tmp_path}/none", "cannot be read: No such file"),
        (f"file:{tmp_path}", "cannot be read: Is a directory"),
        (f"file:{tmp_path}/empty", "is empty, or too large"),
        (f"file:{tmp_path}/large", "is empty, or too large"),
        (f"file:{tmp_path}/odd", "is no text"),
    ):
        with pytest.raises(SecretError, match=complaint) as caught:
            await desk.secrets.value(reference)
        assert reference in str(caught.value)


async def test_files_elsewhere_are_nobodys_secrets(tmp_path: Path) -> None:
    folder, keys = tmp_path / "secrets", tmp_path / "secrets" / "keys"
    folder.mkdir()
    keys.write_text("k1:…")
    (tmp_path / "private").write_text("of the machine")
    (folder / "crm").symlink_to(tmp_path / "private")
    (folder / "..data").mkdir()
    (folder / "..data" / "erp").write_text("as containers mount it")
    (folder / "erp").symlink_to("..data/erp")
    desk = Desk(folders=Folders([str(folder)], never=[str(keys)]))

    assert await desk.secrets.value(f"file:{folder}/erp") == "as containers mount it"
    for path, complaint in (
        (f"{tmp_path}/private", "setting service_folders"),
        (f"{folder}/../private", "setting service_folders"),
        (f"{folder}/crm", "setting service_folders"),
        ("/proc/self/environ", "setting service_folders"),
        (str(keys), "has the keys"),
    ):
        with pytest.raises(ConfigurationError, match=complaint):
            await desk.secrets.value(f"file:{path}")


async def test_a_key_that_is_missing_is_named_and_nothing_is_changed() -> None:
    desk = Desk(keys=KeyRing({"k2": b"2" * 32}))
    await desk.store.put("crm", "one")
    before = await desk.store.find_secret("crm")

    with pytest.raises(SecretError, match="The secret crm is encrypted by the key 'k1'"):
        await desk.secrets.value("secret:crm")

    assert await desk.store.find_secret("crm") == before


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("hunter2", "is written out"),
        ("hunter2:crm", "is written out"),
        (7, "is written out"),
        ("env:", "without the name of a variable"),
        ("env:hunter2 x", "without the name of a variable"),
        ("env:REDRIVE_KEYS", "is Redrive's own"),
        ("env:redrive_token", "is Redrive's own"),
        ("file:", "without a path"),
        ("secret:", "The name of a secret"),
        ("secret:hunter2/x", "The name of a secret"),
    ],
)
def test_what_is_no_reference_is_refused_and_not_shown(value: object, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        check_reference(value)

    assert "hunter2" not in str(caught.value)


def test_a_reference_is_known_by_its_kind() -> None:
    assert [is_reference(one) for one in ("env:A", "file:a", "secret:a")] == [True] * 3
    assert [is_reference(one) for one in ("Env:A", "a", "", 7, "https://a")] == [False] * 5
    assert str(check_reference("env:CRM_TOKEN")) == "env:CRM_TOKEN"


async def test_it_shows_nothing_of_what_it_knows(desk: Desk) -> None:
    await desk.store.put("crm", "hunter2")
    await desk.secrets.value("secret:crm")

    assert repr(desk.secrets) == "Secrets(…)"
