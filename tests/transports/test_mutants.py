"""The suite of ways is tried in turn: ways with one fault each must fail it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator

import pytest

from redrive.transports.server import read_server
from tests.conformance.transports import RemoteWayConformance, Site, a_world
from tests.transports.lines import LineServer, LineTransport, line_server
from tests.transports.mutants import CAUGHT_BY


class TestWithoutAFault(RemoteWayConformance):
    """A way of one's own passes."""

    @pytest.fixture
    async def site(self) -> AsyncIterator[Site]:
        async with line_server() as site:
            yield site


@pytest.mark.parametrize("mutant", CAUGHT_BY, ids=lambda one: one.__name__)
async def test_a_fault_is_found(
    mutant: type[LineTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    test = getattr(RemoteWayConformance(), CAUGHT_BY[mutant])
    more = (
        {"monkeypatch": monkeypatch} if "monkeypatch" in inspect.signature(test).parameters else {}
    )

    class Mutated(LineServer):
        def way(self, host: str, port: int, allow_networks: object) -> LineTransport:
            options = {"allow_networks": allow_networks}
            return mutant(read_server(f"line://{host}:{port}", options, ports={"line": 1}))

    async with line_server() as site:
        site.__class__ = Mutated
        async with a_world(site, patience=2.0) as world:
            with pytest.raises(
                (AssertionError, TimeoutError, ExceptionGroup, pytest.fail.Exception)
            ):
                await test(world, **more)


def test_each_test_of_the_suite_finds_a_fault() -> None:
    tests = {name for name in dir(RemoteWayConformance) if name.startswith("test_")}

    assert tests - set(CAUGHT_BY.values()) == set()
