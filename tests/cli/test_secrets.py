"""Secrets are set from standard input, and found nowhere after that."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.waiting import PATIENCE_SECONDS, until

PLANTED = {
    "store": "planted/in the+store",
    "env": "planted-in-the-environment",
    "file": "planted-in-a-file",
    "key": base64.b64encode(b"planted key of thirty-two bytes!").decode(),
}
APP = """
import hashlib, os, sys
from redrive import Redrive, Retry, Terminal, log_fields

app = Redrive(service_folders=["."])


@app.handler("order.*", retry=Retry(max_attempts=1))
async def crm(event):
    values = await app.secrets.values(["secret:crm", "env:CRM_TOKEN", "file:token.txt"])
    digests = [hashlib.sha256(one.encode()).hexdigest() for one in values.values()]
    raise Terminal(f"refused with {' '.join(sorted(digests))}")
"""
WHY = ("--by", "ann", "--why", "the new contract")


@pytest.fixture
def store(sqlite: str) -> str:
    """One kind of store is enough here: the stores are compared elsewhere."""
    return sqlite


@pytest.fixture
def keys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = folder / "keys"
    file.write_text(f"k1:{PLANTED['key']}\n")
    monkeypatch.setenv("REDRIVE_KEYS_FILE", str(file))
    return file


@pytest.mark.usefixtures("shop", "keys")
def test_a_secret_is_set_listed_and_deleted_and_never_printed(shell: Shell) -> None:
    assert shell("secret", "list").out.startswith("No secret yet")

    made = shell("secret", "set", "crm", *WHY, stdin=b"hunter2\r\n")
    again = shell("secret", "set", "crm", *WHY, "--json", stdin=b"hunter3")

    assert made.out == "Set crm, version 1, encrypted by the key k1.\n"
    assert (again.json["version"], again.json["changed_by"]) == (2, "ann")
    listed = shell("secret", "list").out
    assert listed.split()[:9] == ["Name", "Version", "Key", "By", "Set", "crm", "2", "k1", "ann"]
    one = shell("secret", "list", "--json").json["secrets"][0]
    assert sorted(one) == ["changed_at", "changed_by", "key_id", "name", "version"]
    assert shell("secret", "delete", "crm", *WHY).out == "Deleted crm.\n"
    gone = shell("secret", "delete", "crm", *WHY)
    assert (gone.code, "There is no secret 'crm'" in gone.err) == (2, True)
    assert "hunter" not in made.out + again.out + listed + shell("audit").out


@pytest.mark.usefixtures("shop")
def test_keys_are_rotated(shell: Shell, keys: Path) -> None:
    shell("secret", "set", "crm", *WHY, stdin=b"hunter2")
    other = base64.b64encode(b"2" * 32).decode()
    keys.write_text(f"k2:{other}\nk1:{PLANTED['key']}\n")

    done, again = shell("secret", "rotate", *WHY), shell("secret", "rotate", *WHY)
    as_json = shell("secret", "rotate", *WHY, "--json").json

    assert done.out == "Encrypted 1 by the key k2.\n"
    assert again.out == "All 1 are encrypted by the key k2 already.\n"
    assert as_json == {"key_id": "k2", "rotated": [], "unchanged": ["crm"]}


@pytest.mark.usefixtures("shop")
def test_a_missing_key_is_one_sentence_and_destroys_nothing(shell: Shell, keys: Path) -> None:
    shell("secret", "set", "crm", *WHY, stdin=b"hunter2")
    before = shell("secret", "list", "--json").out
    text = keys.read_text()
    keys.write_text(f"k2:{base64.b64encode(b'2' * 32).decode()}\n")

    lost = shell("secret", "rotate", *WHY)
    keys.unlink()
    away = shell("secret", "set", "crm", *WHY, stdin=b"hunter3")

    assert (lost.code, away.code) == (2, 2)
    assert lost.err.count("\n") == 1
    assert "encrypted by the key 'k1', which is not among those here (k2)" in lost.err
    assert "cannot be read: No such file" in away.err
    keys.write_text(text)
    assert shell("secret", "list", "--json").out == before
    assert shell("secret", "rotate", *WHY).code == 0


def spellings() -> list[bytes]:
    found = []
    for one in PLANTED.values():
        encoded = one.encode()
        found += [encoded, base64.b64encode(encoded).rstrip(b"=")[:-1], encoded.hex().encode()]
    return [*found, b"planted key of thirty-two bytes!"]


def command_lines() -> bytes:
    told = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            told.append(one.read_bytes().replace(b"\0", b" "))
        except OSError:  # it has just ended
            continue
    return b"\n".join(told)


@pytest.mark.usefixtures("keys")
def test_planted_secrets_are_in_no_file_log_export_or_process_list(
    shell: Shell, folder: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_STORE", store)
    (folder / "planted_secrets.py").write_text(APP)
    (folder / "token.txt").write_text(PLANTED["file"])
    shell("init")
    told: dict[str, bytes] = {}
    with subprocess.Popen(
        [sys.executable, "-m", "redrive", "secret", "set", "crm", *WHY, "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as setting:
        until(lambda: b"redrive secret set crm" in command_lines(), what="the command")
        told["process list"] = command_lines()
        told["secret set"], _ = setting.communicate(PLANTED["store"].encode(), PATIENCE_SECONDS)
    assert setting.returncode == 0
    with (
        (folder / "worker.log").open("wb") as log,
        subprocess.Popen(
            [
                *(sys.executable, "-m", "redrive", "worker", "planted_secrets:app"),
                *("--processes", "1", "--log-level", "debug"),
            ],
            env={**os.environ, "CRM_TOKEN": PLANTED["env"]},
            stdout=log,
            stderr=log,
        ) as worker,
    ):
        try:
            until(lambda: "crm" in shell("destination", "list").out, what="the destination")
            shell("publish", "order.paid", '{"order": 42}')
            until(lambda: has_letter(shell), what="a dead letter")
            told["process list"] += command_lines()
            told |= {one.name: one.read_bytes() for one in folder.glob("*.db*")}
        finally:
            worker.terminate()
    shell("dlq", "export", "--file", "letters.jsonl")
    for command in (("dlq", "show", "1"), ("secret", "list"), ("audit",), ("doctor",)):
        answer = shell(*command, "--json")
        told[" ".join(command)] = (answer.out + answer.err).encode()
    keeping = {"keys", "token.txt"}
    files = [one for one in folder.rglob("*") if one.is_file() and one.name not in keeping]
    told |= {f"{one.name} in the end": one.read_bytes() for one in files}

    found = {name: [one for one in spellings() if one in content] for name, content in told.items()}

    assert {name: hits for name, hits in found.items() if hits} == {}
    assert {"shop.db", "shop.db-wal"} <= told.keys()
    assert b"refused with" in told["dlq show 1"]
    assert b"refused with" in told["letters.jsonl in the end"]
    assert b"dead letter" in told["worker.log in the end"]
    assert json.loads(told["secret set"])["name"] == "crm"
    assert b"redrive worker planted_secrets:app" in told["process list"]


def has_letter(shell: Shell) -> bool:
    return bool(shell("dlq", "list", "--json").json["deliveries"])
