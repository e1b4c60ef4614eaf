"""Type checkers see what a declaration would refuse."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT, TYPES

RIGHT = """
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from redrive import Event, Redrive, Retry

@dataclass
class Order:
    number: int

app = Redrive("memory://")

@app.handler("order.*", order="park", profile="critical", retry=Retry(max_attempts=3))
async def one(event: Event[Order]) -> None: ...

@app.handler("order.*", name="bare")
def bare(event: Event[Any]) -> object:
    return None

@app.handler("order.*", batch=10)
async def many(events: list[Event[Order]]) -> Sequence[object]:
    return events

@app.handler("order.*", batch=10, name="any_sequence")
def several(events: Sequence[Event[Order]]) -> None: ...

@app.handler("order.*", transactional=True)
async def effect(event: Event[Order], connection: Any) -> None: ...

@app.handler("order.*", transactional=False)
def plain(event: Event[Order]) -> None: ...

class Biller:
    async def __call__(self, event: Event[Order]) -> None: ...

app.handler("order.*", name="object")(Biller())
app.handler("order.*", name="lambda")(lambda event: None)
app.handler("order.*", name="lambdas", batch=2)(lambda events: None)
app.schedule("0 2 * * *", "report.due", payload={"a": 1}, timezone="Europe/Berlin", missed="all")

@app.schedule(every="30s", type="queue.checked", overlap="skip")
def with_the_time(at: datetime) -> dict[str, str]:
    return {"at": at.isoformat()}

@app.schedule("0 * * * *", "queue.checked", name="hourly")
async def later(at: datetime) -> int:
    return at.hour

reveal_type(one)
"""
WRONG = """
from redrive import Event, Redrive

app = Redrive("memory://")

@app.handler("order.*", batch=10)  # one event
async def one(event: Event[int]) -> None: ...

@app.handler("order.*")  # several events
async def many(events: list[Event[int]]) -> None: ...

@app.handler("order.*", transactional=True)  # no connection
async def effect(event: Event[int]) -> None: ...

@app.handler("order.*", order="fifo")  # no such order
async def ordered(event: Event[int]) -> None: ...

@app.handler("order.*", profile="fast")  # no such profile
async def profiled(event: Event[int]) -> None: ...

app.destination("crm", "order.*", transport="https://crm.example")  # text

app.schedule("0 2 * * *")  # no type
app.schedule("0 2 * * *", "report.due", every="1h")  # both
app.schedule(every="1h", type="report.due", missed="never")  # no such policy

@app.schedule(every="1h", type="report.due")  # an event
def computed(event: Event[int]) -> None: ...
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the type checker says of both, which it looks at once: all of ours is checked first."""
    folder = tmp_path_factory.mktemp("typing")
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text(WRONG)
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "."),
            # What it found in our own modules stands until they change.
            *("--cache-dir", str(TYPES / "declarations")),
        ],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout


def test_every_shape_of_handler_that_works_is_accepted_and_keeps_its_type(said: str) -> None:
    assert not re.search(r"^(?!wrong\.py:).*: error", said, re.MULTILINE)
    assert 'Revealed type is "def (event: redrive.model.event.Event[right.Order])' in said


def test_what_a_declaration_refuses_is_an_error_where_it_is_written(said: str) -> None:
    found = {int(line) for line in re.findall(r"^wrong\.py:(\d+): error", said, re.MULTILINE)}
    expected = {number for number, line in enumerate(WRONG.splitlines(), 1) if "  # " in line}
    assert found == expected, said
