"""The file of the story: two services and two rules, and how it is applied."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from redrive.demo.gateway.companies import Company
from redrive.demo.tempo import Tempo
from redrive.errors import RedriveError

__all__ = [
    "CORRECTED",
    "CORRECTED_TOML",
    "MOST_PER_SECOND",
    "RULE",
    "apply",
    "environment",
    "write",
]

RULE = "contacts"
CORRECTED = {"order": "{{ payload.number }}", "client": "{{ payload.customer.name | upper }}"}
CORRECTED_TOML = "{ " + ", ".join(f'{key} = "{one}"' for key, one in CORRECTED.items()) + " }"
_TEMPLATE = CORRECTED_TOML.replace("client", "customer", 1)
_FRESH_PER_SECOND = 20
_RETRIES_PER_SECOND = 15
MOST_PER_SECOND = _FRESH_PER_SECOND + _RETRIES_PER_SECOND


def write(folder: Path, *, crm: Company, ledger: Company, poll: str, pace: Tempo) -> None:
    """Write `redrive.toml`: no Python says anything of it."""

    def lasting(seconds: float) -> str:
        return f"{pace.duration(seconds).total_seconds() * 1000:.0f}ms"

    def each_second(number: int) -> str:
        return f"{number / pace.duration(1).total_seconds():.0f}/s"

    retry = (
        f'{{ max_attempts = 30, base = "{lasting(1)}", factor = 1.4, cap = "{lasting(3)}", '
        "jitter = 0.3 }"
    )
    breaker = f'{{ failures = 5, open_for = "{lasting(2.5)}", successes = 3 }}'
    (folder / "redrive.toml").write_text(
        f"""\
poll = "{poll}"

[services.crm]
url = "{crm.address}"
allow_networks = ["127.0.0.1"]
retry = {retry}
breaker = {breaker}
rate = "{each_second(_FRESH_PER_SECOND)}"
retry_rate = "{each_second(_RETRIES_PER_SECOND)}"
replay_rate = "{each_second(_RETRIES_PER_SECOND)}"

[services.ledger]
url = "{ledger.address}"
allow_networks = ["127.0.0.1"]
retry = {retry}

[rules.{RULE}]
service = "crm"
event = "order.*"
method = "PUT"
path = "/orders/{{{{ payload.number }}}}"
template = {_TEMPLATE}

[rules.entries]
service = "ledger"
event = "order.*"
condition = "payload.total > 0"
path = "/entries"
template = {{ text = "Order {{{{ payload.number }}}}", cents = "{{{{ payload.total * 100 }}}}" }}
""",
        "utf-8",
    )


def environment(store: str) -> dict[str, str]:
    """Return the environment of commands: nothing of it but the store is the reader's."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}
    return {**own, "REDRIVE_STORE": store}


async def apply(folder: Path, store: str) -> list[str]:
    """Run `redrive apply`, and return the lines that it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "redrive", "apply"),
        cwd=folder,
        env=environment(store),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complaints = await process.communicate()
    if process.returncode:
        raise RedriveError(f"redrive apply of the demo failed: {complaints.decode().strip()}")
    return said.decode().splitlines()
