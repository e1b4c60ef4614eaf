"""Whatever is sent to a route, it answers as the document says, and with no failure of ours."""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from redrive.web.api import read_json
from redrive.web.problem import Problem, ProblemError
from redrive.web.published import PublishEvent
from redrive.web.route import Route
from redrive.web.table import ROUTES
from tests.web.conftest import Served

ROUNDS = 12
NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 2**31, 2**63 - 1, 2**63, 2**70, 0.5, 1e308),
    *("", " ", "x", "billing", "acme", "order.*", "order.paid", "\x00", "é\u202e", "%", "*"),
    *("0-0", "1-1", "999999999999999999999-1", "5m", "-5m", "99999999d", "1/s", "0/s", "9e99/s"),
    *("2026-01-31T14:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59+00:00", "failed"),
    *("x" * 201, "x" * 10_001, "..", "a b", "👻", "1.5", "true", "null"),
    *([], [1], [0], [1, 1, 2], ["x"], [None], {}, {"a": 1}, {"destination": "billing"}),
)


def some(chance: random.Random, kind: type[msgspec.Struct]) -> dict[str, Any]:
    fields = msgspec.structs.fields(kind)
    return {
        one.encode_name: chance.choice(NASTY)
        for one in fields
        if one.required or chance.random() < 0.4
    }


def plausible(chance: random.Random, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """What passes the types more often than not."""
    told, components = msgspec.json.schema_components([kind])
    schema = components[told[0]["$ref"].rpartition("/")[2]]
    found = {}
    for name, one in schema.get("properties", {}).items():
        if name not in schema.get("required", ()) and chance.random() < 0.7:
            continue
        wanted = one.get("type") or one.get("anyOf", [{}])[0].get("type")
        fitting: dict[str | None, type | tuple[type, ...]] = {
            "string": str,
            "integer": int,
            "boolean": bool,
            "number": (int, float),
            "array": list,
            "object": dict,
        }
        choices = [value for value in NASTY if isinstance(value, fitting.get(wanted, object))]
        found[name] = chance.choice(choices)
    return found


def plain(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Leave out what deliveries carry, which may be anything and whose type reads nothing else."""
    match value:
        case {"edits": _, "payload": _}:
            return {**value, "payload": None}
        case dict():
            return {name: plain(one) for name, one in value.items()}
        case list():
            return [plain(one) for one in value]
    return value


async def send(served: Served, route: Route, chance: random.Random) -> None:
    make = some if chance.random() < 0.3 else plausible
    given = make(chance, route.given)
    place = chance.choice(["1", "2", "999", "billing", "acme", "%00", "é", "x" * 300, "a%2Fb"])
    number = chance.choice(["0", "1", "2", "99999999999999999999", "x"])
    path = route.path.replace("{id:int}", number)
    for name in ("name", "destination", "event"):
        path = path.replace(f"{{{name}}}", quote(place, safe="%"))
    body = b""
    if route.is_unsafe:
        body = msgspec.json.encode(given)
    else:
        flat = {
            name: [str(one) for one in value] if isinstance(value, list) else str(value)
            for name, value in given.items()
        }
        path += f"?{urlencode(flat, doseq=True)}"

    answer = await served.open.send(route.method, f"/api/v1{path}", body=body)

    assert answer.status < 500, (route.method, path, given, answer)
    kind = route.result if answer.status == 200 else Problem
    msgspec.json.decode(msgspec.json.encode(plain(answer.json)), type=kind)


async def test_whatever_is_sent_is_answered_as_the_document_says(served: Served) -> None:
    for seed in range(ROUNDS):
        chance = random.Random(seed)  # noqa: S311 - the same each time
        for route in ROUTES:
            await send(served, route, chance)


def object_of(chance: random.Random, depth: int) -> tuple[str, bool]:
    """Return an object as text, and whether a name stands twice in it or in one within it."""
    pairs, names, is_twice = [], [], False
    for _ in range(chance.randrange(4)):
        name = chance.choice((":", "a", "b", 'a":', "\\", "é"))
        is_twice |= name in names
        names.append(name)
        if depth and chance.random() < 0.5:
            value, inner = object_of(chance, depth - 1)
            is_twice |= inner
        else:
            value = json.dumps(chance.choice((1, None, ":", '"x": 1', {"a": ":"}, [":", {}])))
        shown = json.dumps(name, ensure_ascii=chance.random() < 0.5)
        if chance.random() < 0.2:
            shown = shown.replace("a", "\\u0061").replace(":", chance.choice((":", "\\u003A")))
        pairs.append(f"{shown}{chance.choice((':', ' : '))}{value}")
    return "{" + ",".join(pairs) + "}", is_twice


def test_a_name_that_stands_twice_is_found_wherever_it_is_and_no_other() -> None:
    chance = random.Random(7)  # noqa: S311 - the same each time
    found = [object_of(chance, 3) for _ in range(2_000)]

    wrong = []
    for text, is_twice in found:
        try:
            read_json(b'{"type":"a","payload":%s}' % text.encode(), PublishEvent)
        except ProblemError as problem:
            if not (is_twice and "stands twice" in str(problem)):
                wrong.append(text)
        else:
            if is_twice:
                wrong.append(text)

    assert wrong == []
    assert 200 < sum(is_twice for _, is_twice in found) < 1_800
