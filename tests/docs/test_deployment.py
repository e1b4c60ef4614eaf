"""What the page on deployment has people copy: files, commands and probes that work."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from typer.main import get_command

from redrive import Redrive
from redrive.cli import main as cli
from redrive.web.guard import LOOPBACK
from tests.docs.manifests import read_manifests
from tests.docs.pages import ROOT, blocks_of
from tests.web.client import Client

_PAGE = ROOT / "docs" / "guides" / "deployment.md"
_INSTRUCTIONS = (
    *("FROM", "WORKDIR", "RUN", "COPY", "USER", "EXPOSE", "STOPSIGNAL"),
    *("ENTRYPOINT", "CMD"),
)


def block(language: str) -> str:
    [found] = [one.source for one in blocks_of(_PAGE) if one.language == language]
    return found


def check_command(words: list[str]) -> None:
    """Read a command as ours would; one with an option that is not there is refused."""
    group = get_command(cli.app)
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    command = group.commands[words[0]]
    command.make_context(words[0], words[1:])


def containers() -> list[dict[str, Any]]:
    return [
        container
        for one in read_manifests(block("yaml"))
        if one["kind"] == "Deployment"
        for container in one["spec"]["template"]["spec"]["containers"]
    ]


def test_the_unit_is_one_and_its_command_exists() -> None:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(block("ini"))

    assert unit.sections() == ["Unit", "Service", "Install"]
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/redrive")
    check_command(words)


def test_the_container_file_has_instructions_and_a_command_that_exists() -> None:
    lines = dict(line.split(" ", 1) for line in block("dockerfile").splitlines())

    assert [one for one in lines if one not in _INSTRUCTIONS] == []
    assert json.loads(lines["ENTRYPOINT"]) == ["redrive"]
    check_command(json.loads(lines["CMD"]))


def test_each_directive_of_the_proxy_ends_and_each_block_is_closed() -> None:
    text = block("nginx")

    assert [
        line for line in text.splitlines() if line.strip() and not re.search(r"[;{]$|^\s*}$", line)
    ] == []
    assert text.count("{") == text.count("}")


def test_each_manifest_can_be_read_and_selects_its_own_pods() -> None:
    manifests = read_manifests(block("yaml"))

    assert [one["kind"] for one in manifests] == ["Deployment", "Service", "Deployment"]
    labels = [
        one["spec"]["template"]["metadata"]["labels"]
        for one in manifests
        if one["kind"] == "Deployment"
    ]
    chosen = [
        one["spec"]["selector"].get("matchLabels", one["spec"]["selector"]) for one in manifests
    ]
    assert chosen == [labels[0], labels[0], labels[1]]
    for container in containers():
        check_command(container["args"])


async def test_the_probes_ask_what_the_server_answers(tmp_path: Path) -> None:
    app = Redrive(f"sqlite:///{tmp_path / 'shop.db'}")
    server, _ = containers()
    async with app:
        asgi = app.asgi(hosts=LOOPBACK)
        for name in ("livenessProbe", "readinessProbe"):
            asked = server[name]["httpGet"]
            [host] = asked["httpHeaders"]
            answer = await Client(asgi, host=host["value"]).get(asked["path"])

            assert (host["name"], answer.status) == ("Host", 200)
        assert (await Client(asgi, host="10.2.3.4:8321").get("/healthz")).status == 421


@pytest.mark.parametrize(
    "broken",
    ["a: 1\n   b: 2\n", "a:\n\t- 1\n", "a: 1\na: 2\n", "a\n", "a:\n  - b: 1\n c: 2\n"],
    ids=["deeper", "tab", "twice", "bare", "between"],
)
def test_a_manifest_that_is_not_in_order_is_found(broken: str) -> None:
    with pytest.raises(ValueError, match="line"):
        read_manifests(broken)


def test_a_command_that_does_not_exist_is_found() -> None:
    with pytest.raises(Exception, match="No such option"):
        check_command(["serve", "shop:app", "--hots", "localhost"])
