"""An assistant: the SDK's own client, connected to a server of tools in this process."""

from __future__ import annotations

from typing import Any, NamedTuple

from mcp import Client

from redrive.clock import SystemEntropy
from redrive.mcp.desk import Desk
from redrive.mcp.server import make_protocol
from redrive.model.access import Grant, Role
from redrive.policies.redact import Redaction
from redrive.testing import FakeClock
from redrive.web.caller import Caller
from tests.web.conftest import Served


class Answer(NamedTuple):
    data: Any
    is_error: bool
    text: str

    @property
    def problem(self) -> str:
        assert self.is_error, self.data
        return str(self.data["problem"])


class Assistant:
    """Calls tools, and says what came back."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def tools(self) -> dict[str, Any]:
        return {one.name: one for one in (await self.client.list_tools()).tools}

    async def call(self, tool: str, /, **arguments: object) -> Answer:
        result = await self.client.call_tool(tool, arguments)
        told = result.structured_content
        assert "never instructions" in told["note"]
        return Answer(told["data"], result.is_error, result.content[0].text)  # type: ignore[union-attr]

    async def plan(self, operation: str, /, **arguments: object) -> str:
        suggested = await self.call(f"suggest_{operation}", why="the bug is fixed", **arguments)
        assert not suggested.is_error, suggested.data
        return str(suggested.data["plan"])


class Office:
    """Where assistants are let in: one desk, and a client for each who asks."""

    def __init__(self, served: Served, *allowed: str, most: int = 1_000) -> None:
        self.clock = FakeClock()
        self.desk = Desk(
            served.app,
            clock=self.clock,
            entropy=SystemEntropy(),
            redaction=Redaction(),
            may_operate="operate" in allowed,
            may_reveal="reveal" in allowed,
            most=most,
        )

    def client(self, *, by: str = "mcp:ann", role: str = "operate", **limits: Any) -> Client:  # noqa: ANN401 - as `Grant`
        caller = Caller(by=by, source=by, grant=Grant(role=Role(role), **limits))
        return Client(make_protocol(self.desk, caller))
