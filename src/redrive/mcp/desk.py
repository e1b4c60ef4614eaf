"""The desk: one call of a tool, from who asks to what they are told."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from redrive.clock import Clock, Entropy
from redrive.errors import NotFoundError, UsageError, not_found
from redrive.mcp.plans import LASTS, Plans
from redrive.mcp.telling import Told, told
from redrive.mcp.tools import MUTATING, PLACE, REVEALING, ROUTE_OF, TELLING, Kind, Tool, tools
from redrive.model.duration import spell_duration
from redrive.policies.redact import Redaction
from redrive.web import answers, requests
from redrive.web.api import REQUEST_SECONDS, note_failure, read_json
from redrive.web.caller import Caller
from redrive.web.problem import ProblemError, problem_of
from redrive.web.route import App, Call

__all__ = ["Answer", "Desk"]

_LONGEST_PAGE = 100
_MOST_PER_REQUEST = 1_000


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool returns, or why it does not."""

    told: Told
    is_error: bool = False


class Desk:
    """Answers calls of tools; `most` is how many deliveries one plan may be about."""

    def __init__(
        self,
        app: App,
        *,
        clock: Clock,
        entropy: Entropy,
        redaction: Redaction,
        may_operate: bool = False,
        may_reveal: bool = False,
        most: int = _MOST_PER_REQUEST,
    ) -> None:
        self._app = app
        self._clock = clock
        self._redaction = redaction
        self._may_reveal = may_reveal
        self._most = most
        self._plans = Plans(clock, entropy)
        self._ways = {
            Kind.READ: self._look,
            Kind.SUGGEST: self._suggest,
            Kind.MUTATE: self._mutate,
        }
        self.tools = tools(may_operate=may_operate, may_reveal=may_reveal)

    async def call(self, name: str, arguments: dict[str, Any], caller: Caller) -> Answer:
        """Answer a call; what goes wrong is told in a sentence, too."""
        try:
            tool = self._tool(name)
            async with asyncio.timeout(REQUEST_SECONDS):
                result = await self._ways[tool.kind](tool, arguments, caller)
            return Answer(told=self._told(result))
        except Exception as error:  # noqa: BLE001 - each has an answer
            problem = problem_of(error, is_limited=caller.is_limited)
            note_failure(problem, error)
            return Answer(told=self._told({"problem": problem.problem.detail}), is_error=True)

    def _told(self, result: object) -> Told:
        return told(result, redaction=self._redaction, may_reveal=self._may_reveal)

    def _tool(self, name: str) -> Tool:
        if name in self.tools:
            return self.tools[name]
        operation = name.removeprefix("suggest_")
        if operation in REVEALING:
            raise UsageError(
                f"{name} shows what events carry, and this server was started without "
                "--allow reveal; a person can look."
            )
        if operation in MUTATING:
            raise UsageError(
                f"{name} changes something, and this server was started without --allow operate: "
                "it only suggests. A person can do it."
            )
        raise not_found(name[:100], self.tools, what="tool")

    async def _look(self, tool: Tool, arguments: dict[str, Any], caller: Caller) -> object:
        path, given = self._read(tool, arguments)
        if getattr(given, "limit", 0) > _LONGEST_PAGE:
            given = msgspec.structs.replace(given, limit=_LONGEST_PAGE)
        return await self._do(tool.operation, path, given, caller)

    async def _suggest(self, tool: Tool, arguments: dict[str, Any], caller: Caller) -> object:
        path, given = self._read(tool, arguments)
        if not str(getattr(given, "why", "")).strip():
            raise UsageError("A reason is needed, for the audit log; say why.")
        given, affects = await self._affected(tool.operation, path, given, caller)
        plan = self._plans.keep(tool.operation, by=caller.by, path=path, given=given)
        return {
            "plan": plan,
            "would": tool.operation,
            "with": {**path, **_said(given)},
            "affects": affects,
            "good_for": spell_duration(LASTS),
            "hindrance": self._hindrance(tool.operation, caller),
        }

    async def _mutate(self, tool: Tool, arguments: dict[str, Any], caller: Caller) -> object:
        name = arguments.get("plan")
        if not isinstance(name, str) or len(arguments) > 1:
            raise UsageError("This takes a plan, as its suggestion has returned it, and no more.")
        caller.check(tool.operation)
        plan = self._plans.take(name, tool.operation, by=caller.by)
        result = await self._do(plan.operation, plan.path, plan.given, caller)
        try:
            self._told(result)
        except UsageError:  # it is done, however long the story of it
            return {"done": plan.operation}
        return result

    def _hindrance(self, operation: str, caller: Caller) -> str | None:
        """Say why this caller could not carry it out here."""
        if operation not in self.tools:
            return "This server was started without --allow operate; a person can do it."
        try:
            caller.check(operation)
        except ProblemError as refused:
            return refused.detail
        return None

    async def _affected(
        self, operation: str, path: dict[str, Any], given: msgspec.Struct, caller: Caller
    ) -> tuple[msgspec.Struct, object]:
        """Return what to carry out, bound to what it is about now, and what that is."""
        match given:
            case requests.StartReplay():
                return await self._affected_by_replay(given, caller)
            case requests.ActOnIds(ids=ids) | requests.ActOnIdsWithReason(ids=ids):
                return given, await self._standing(ids, caller)
            case requests.EditPayload(payload=payload):
                preview = requests.PreviewEdit(payload=payload)
                return given, await self._do("preview_edit", path, preview, caller)
        return given, await self._subject(operation, path, caller)

    async def _subject(self, operation: str, path: dict[str, Any], caller: Caller) -> object:
        """Return how that stands which an operation is about."""
        subject = next(part for part in ROUTE_OF[operation].path.split("/") if part)
        match subject:
            case "replays":
                return await self._do("show_replay", path, requests.Nothing(), caller)
            case "schedules":
                return await self._do("show_schedule", path, requests.Nothing(), caller)
            case "tenants":
                asked = requests.ListTenants(tenant=path["name"])
                return await self._do("tenants", {}, asked, caller)
        return await self._gates(path.get("name"), caller)

    async def _affected_by_replay(
        self, given: requests.StartReplay, caller: Caller
    ) -> tuple[msgspec.Struct, object]:
        ids = given.ids
        if ids is None:
            chosen = msgspec.structs.asdict(given.filter or requests.Filter())
            page = await self._do(
                "dead_letters",
                {},
                requests.ListDeadLetters(**chosen, limit=_MOST_PER_REQUEST),
                caller,
            )
            ids = [int(one.id) for one in page.deliveries]
            if page.next_cursor is not None:
                raise self._too_many()
        if not ids:
            raise NotFoundError("No dead letter matches, so there is nothing to replay.")
        if len(ids) > self._most:
            raise self._too_many()
        bound = msgspec.structs.replace(given, ids=ids, filter=None)
        plan = requests.PlanReplay(ids=ids, rate=given.rate)
        return bound, await self._do("plan_replay", {}, plan, caller)

    async def _standing(self, ids: list[int], caller: Caller) -> object:
        if len(ids) > self._most:
            raise self._too_many()
        found: answers.Conditions = await self._do(
            "conditions", {}, requests.AskConditions(id=ids), caller
        )
        standing: dict[str, list[int]] = {}
        for one in dict.fromkeys(ids):
            standing.setdefault(str(found.conditions.get(one, "not there")), []).append(one)
        return standing

    async def _gates(self, name: str | None, caller: Caller) -> object:
        found: answers.Gates = await self._do("gates", {}, requests.Nothing(), caller)
        chosen = [one for one in found.gates if name in (None, one.destination)]
        if not chosen and name is not None:
            known = [one.destination for one in found.gates]
            raise not_found(name, known, what="destination")
        return chosen

    def _too_many(self) -> UsageError:
        return UsageError(
            f"That is about more than {self._most:,} deliveries, which is more than one plan may "
            "be; narrow it down."
        )

    async def _do(
        self, operation: str, path: dict[str, Any], given: msgspec.Struct, caller: Caller
    ) -> Any:  # noqa: ANN401 - as endpoints return
        caller.check(operation)
        call = Call(app=self._app, caller=caller, operation=operation, path=path, clock=self._clock)
        return await ROUTE_OF[operation].endpoint(call, given)

    def _read(self, tool: Tool, arguments: dict[str, Any]) -> tuple[dict[str, Any], msgspec.Struct]:
        """Read arguments as the API reads a path and a body; what is unknown is refused."""
        route = ROUTE_OF[tool.operation]
        rest, path = dict(arguments), {}
        for name, kind in PLACE.findall(route.path):
            value = rest.pop(name, None)
            is_good = type(value) is int and value > 0 if kind == "int" else isinstance(value, str)
            if not is_good or value == "":
                what = "a whole number from 1" if kind == "int" else "text"
                raise UsageError(f"{name} is {value!r:.100}; it is {what}, and is needed.")
            path[name] = value
        filtered = rest.get("filter")
        said = {*rest, *(filtered if isinstance(filtered, dict) else ())}
        if not self._may_reveal and said.intersection(TELLING):
            raise UsageError(
                "What events carry is shown, and looked through for a text, by a server that was "
                "started with --allow reveal."
            )
        return path, read_json(msgspec.json.encode(rest), route.given)


def _said(given: msgspec.Struct) -> dict[str, Any]:
    """Return what was said, without what is as usual."""
    return {
        one.name: value
        for one in msgspec.structs.fields(given)
        if (value := getattr(given, one.name)) is not None and value != one.default
    }
