"""The protocol, by the official SDK: over standard input and output, and over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import mcp_types as types
import msgspec
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from redrive.clock import Clock
from redrive.mcp.desk import Desk
from redrive.mcp.telling import NOTE
from redrive.mcp.tools import Kind, Tool
from redrive.policies.redact import Redaction
from redrive.web.api import LONGEST_BODY, ROUTE, answer_problem, read_body
from redrive.web.caller import Caller, OpenDoor, Turnpike
from redrive.web.guard import Guard
from redrive.web.identity import Identity
from redrive.web.metrics import Requests
from redrive.web.problem import ProblemError

if TYPE_CHECKING:
    from redrive.web.application import ServedApp

__all__ = ["PATH", "make_http", "make_protocol", "serve_stdio"]

PATH = "/mcp"
_CALLER = "redrive.mcp.caller"
_ABOUT = (
    "Looks after the deliveries of events: what failed, why, and what to do about it. Begin with "
    "`examine` and `groups`. To change something, call its `suggest_…` tool, show the plan to the "
    f"person you work for, and carry it out only when they agree. {NOTE}"
)


def make_protocol(desk: Desk, caller: Caller | None = None) -> Server[Any]:
    """Return the server of the protocol; without a `caller` each request has its own."""

    async def list_tools(
        _: object, __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(one) for one in desk.tools.values()])

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:  # noqa: ANN401 - the SDK's, of any lifespan
        who = caller or context.request.scope[_CALLER]
        answer = await desk.call(params.name, params.arguments or {}, who)
        text = msgspec.json.encode(answer.told).decode()
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=answer.told,
            is_error=answer.is_error,
        )

    return Server(
        "redrive",
        version=version("redrive"),
        instructions=_ABOUT,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(desk: Desk, caller: Caller) -> None:
    """Answer on standard output what is asked on standard input, until that ends."""
    protocol = make_protocol(desk, caller)
    async with stdio_server() as (read, write):
        await protocol.run(read, write, protocol.create_initialization_options())


def make_http(
    app: ServedApp,
    desk: Desk,
    *,
    hosts: Collection[str],
    door: OpenDoor | None,
    clock: Clock,
    redaction: Redaction,
) -> Guard:
    """Return the ASGI app: guarded as the API is, and each request by a token of its own."""
    identity = Identity(app, needed=True, door=door, turnpike=Turnpike(None, clock))
    # No session is kept that could be taken over, and so no stream is held open.
    manager = StreamableHTTPSessionManager(make_protocol(desk), json_response=True, stateless=True)

    @asynccontextmanager
    async def opened(_: Starlette) -> AsyncIterator[None]:
        async with app, manager.run():
            yield

    inner = Starlette(
        routes=[Route(PATH, _Entrance(identity, manager), methods=["POST"])], lifespan=opened
    )
    return Guard(inner, hosts=hosts, clock=clock, redaction=redaction, requests=Requests())


class _Entrance:
    """Finds out who asks, and hands the request to the SDK."""

    def __init__(self, identity: Identity, manager: StreamableHTTPSessionManager) -> None:
        self._identity = identity
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ROUTE] = PATH
        try:
            request = Request(scope, receive)
            caller = await self._identity.identify(request)
            body = await read_body(request, LONGEST_BODY)
        except ProblemError as refused:
            await answer_problem(refused)(scope, receive, send)
            return
        scope[_CALLER] = msgspec.structs.replace(caller, by=f"mcp:{caller.by}")
        await self._manager.handle_request(scope, _with_body(body, receive), send)


def _with_body(body: bytes, receive: Receive) -> Receive:
    """Return what hands over a body that was read: the SDK itself would read one of any length."""
    is_told = False

    async def hand_over() -> Message:
        nonlocal is_told
        if is_told:
            return await receive()
        is_told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return hand_over


def _described(tool: Tool) -> types.Tool:
    is_mutating = tool.kind is Kind.MUTATE
    return types.Tool(
        name=tool.name,
        description=f"[{tool.kind}] {tool.about}",
        input_schema=tool.schema,
        annotations=types.ToolAnnotations(
            read_only_hint=not is_mutating,
            destructive_hint=tool.is_for_good if is_mutating else None,
            idempotent_hint=False if is_mutating else None,
            open_world_hint=is_mutating,
        ),
    )
