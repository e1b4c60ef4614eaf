"""A world of stored services: people change them and their rules while events flow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from math import ceil, inf
from random import Random
from typing import Any, NamedTuple, Self
from unittest.mock import patch

import msgspec

from redrive.errors import NotFoundError, StoreError
from redrive.model.delivery import Delivery, Leased, Status
from redrive.model.limits import Breaker, Rate
from redrive.model.outcome import Outcome
from redrive.operations import GatewayDocument, Operations
from redrive.transports.http.transport import HttpTransport
from redrive.transports.http.wires import Wires
from tests.proof.checkers import CHECKS
from tests.proof.checkers.check import Check
from tests.proof.checkers.gateway import (
    ChangedAsMeant,
    FollowedSoon,
    GivenByRules,
    HeldIfAsked,
    RenderedByPin,
)
from tests.proof.checkers.records import Begun, Ended, Hampered, Intended, Requested
from tests.simulation.destinations import word_of
from tests.simulation.keeper import Keeper
from tests.simulation.loop import current_strand
from tests.simulation.machine import Machine
from tests.simulation.people import Operator
from tests.simulation.plan import DestinationPlan, Fault, GatewayPlan, Plan, StoreKind, draw
from tests.simulation.world import World

__all__ = ["GATEWAY_CHECKS", "GatewayWorld", "draw_gateway"]

GATEWAY_CHECKS: tuple[type[Check], ...] = (
    *CHECKS,
    *(GivenByRules, RenderedByPin, FollowedSoon, ChangedAsMeant, HeldIfAsked),
)
_TYPES = (("a.*",), ("a.x", "b.x"), ("*",), ("b.*", "c.x"))
_CONDITIONS = ("payload.chance >= 500000000", "payload.chance < 700000000", 'key == "k0"')
_HALF, _MOSTLY = 0.5, 0.8


def draw_gateway(seed: int, *, store: StoreKind | None = None) -> Plan:
    """Return the plan of a world whose destinations are stored services, and maybe one of code."""
    chance = Random(f"gateway of {seed}")  # noqa: S311 - a simulation
    plan = draw(seed, store=store)
    # Long enough for workers to have followed a change before all is healed.
    longer = 1.0 if plan.store == "postgres" else chance.choice([20.0, 40.0]) / plan.duration
    services = tuple(_service(f"s{one}", chance) for one in range(chance.choice([1, 2, 2, 3])))
    of_code = plan.destinations[:1] if chance.random() < _HALF else ()
    # Fields of the drawn plan that are not named here are as in any world: leases, polls, drifts.
    return msgspec.structs.replace(
        plan,
        operators=chance.choice([1, 2, 2, 3]),
        is_rerouted=False,
        removes=False,
        events=chance.choice([15, 25, 40]) if plan.store != "postgres" else plan.events,
        duration=plan.duration * longer,
        faults=tuple(msgspec.structs.replace(one, at=one.at * longer) for one in plan.faults),
        poll=min(plan.poll, 1.0),
        far=0.0,
        ahead=0.0,
        large=0.0,
        most_bytes=None,
        destinations=(
            *(msgspec.structs.replace(one, joins_at=0.0, auto_replay=None) for one in of_code),
            *services,
        ),
        next_release=(),
        rollouts=(),
        gateway=GatewayPlan(
            services=tuple(one.name for one in services),
            rules=chance.choice([1, 2, 4]),
            changes=chance.choice([5, 15, 40]),
            drops=chance.random() < _HALF,
            at_once=chance.random() < _HALF,
        ),
    )


def _service(name: str, chance: Random) -> DestinationPlan:
    """Draw a service; what its document may change is not drawn here."""
    begin = chance.uniform(0.0, 10.0)
    return DestinationPlan(
        name=name,
        patterns=("*",),
        max_attempts=chance.choice([1, 2, 5]),
        base=chance.choice([0.0, 0.1, 1.0]),
        cap=3.0,
        timeout=chance.choice([0.5, 2.0]),
        breaker=Breaker(failures=3, open_for="1s", longest_open="8s")
        if chance.random() < _HALF
        else None,
        rate=chance.choice([None, None, Rate(per_second=4.0, burst=2.0)]),
        transient=chance.choice([0.0, 0.0, 0.2]),
        throttling=chance.choice([0.0, 0.0, 0.1]),
        slow=chance.choice([0.0, 0.0, 0.3]),
        latency=chance.choice([0.001, 0.05, 0.3]),
        down=((begin, begin + chance.uniform(0.5, 6.0)),) if chance.random() < _HALF else (),
    )


class GatewayWorld(World):
    """Runs a plan of stored services; all is real but what is beyond the connections of HTTP."""

    def __init__(self, *given: Any) -> None:  # noqa: ANN401 - as any world
        super().__init__(*given)
        assert self._plan.gateway is not None
        self._web = _Web(self)

    async def run(self) -> None:
        if self._plan.disk_errors or self._plan.store == "postgres":
            self._hamper("", inf)  # whose call fails, or waits for whom, is not told
        with self._web.reached():
            await super().run()

    def _hamper(self, machine: str, until: float) -> None:
        self._history.write(Hampered(at=self._loop.time(), machine=machine, until=until))

    def _strike(self, fault: Fault) -> None:
        if fault.what == "store down":
            self._hamper("", self._loop.time() + fault.amount)
        super()._strike(fault)

    def _machine(self, name: str, number: int) -> Machine:
        return _GatewayMachine(
            name,
            number,
            self._plan,
            loop=self._loop,
            history=self._history,
            clock=self._ground.clock_for(number),
            ids=self._ids,
            behaviour=self._behaviour,
            make_store=self._ground.make_store,
            lose_store=self._ground.lose_store,
        )

    def _operator(self, number: int) -> Operator:
        return _Changer(number, self._plan, self._history, self._loop)

    def _keeper(self) -> Keeper:
        return _Keeper(self._plan, self._history, self._loop, self._chance)


class _GatewayMachine(Machine):
    """A process that serves stored services, and declares the destination of code, if any."""

    def _silence(self, seconds: float, why: str, *strands: Any) -> None:  # noqa: ANN401 - as it is
        until = self.loop.time() + seconds
        self._history.write(Hampered(at=self.loop.time(), machine=self.name, until=until))
        super()._silence(seconds, why, *strands)


class _Flight(NamedTuple):
    """A delivery that is being sent, and the process that sends it."""

    leased: Leased
    machine: Machine


_flight: ContextVar[_Flight] = ContextVar("flight")


class _Web:
    """What is beyond the connections of HTTP: services that answer as the plan says."""

    def __init__(self, world: GatewayWorld) -> None:
        self._loop = world._loop  # noqa: SLF001 - a part of it
        self._history = world._history  # noqa: SLF001 - as above
        self._behaviour = world._behaviour  # noqa: SLF001 - as above
        self._machines = {one.name: one for one in world._machines}  # noqa: SLF001 - as above
        self._plans = {one.name: one for one in world._plan.destinations}  # noqa: SLF001 - as above

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Have every connection lead here, and watch what is sent."""
        send, web = HttpTransport.send, self

        async def watched(way: HttpTransport, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
            strand = current_strand()
            assert strand is not None
            [leased], machine = deliveries, self._machines[strand.name]
            _flight.set(_Flight(leased, machine))
            self._history.write(Begun(at=self._loop.time(), machine=machine.name, leased=leased))
            [outcome] = await send(way, deliveries)
            ended = Ended(at=self._loop.time(), lease=leased.lease, outcome=word_of(outcome))
            self._history.write(ended)
            return [outcome]

        async def leave(*_given: object) -> None:
            pass

        with ExitStack() as stack:
            stack.enter_context(patch.object(HttpTransport, "send", watched))
            stack.enter_context(patch.object(Wires, "join", lambda *_given: web))
            stack.enter_context(patch.object(Wires, "leave", leave))
            yield

    def request(self, method: str, url: object, **options: Any) -> _Exchange:  # noqa: ANN401 - as a session has it
        assert method == "POST"
        return _Exchange(self, str(url), options["headers"], options["data"])

    async def answer(self, url: str, headers: dict[str, str], body: bytes) -> int:
        """Return the status that a service answers with, if it does."""
        leased, machine = _flight.get()
        self._history.write(
            Requested(
                at=self._loop.time(),
                machine=machine.name,
                leased=leased,
                url=url,
                message_id=headers["webhook-id"],
                body=body,
            )
        )
        plan, behaviour = self._plans[leased.destination], self._behaviour
        payload = msgspec.json.decode(leased.event.payload)
        chance = behaviour.chance
        await self._loop.pause(chance.random() * plan.latency)
        if not behaviour.is_healed:
            if payload.get("poison") == plan.name:
                machine.die("a delivery kills it")
                await self._loop.create_future()
            if chance.random() < plan.slow:
                await self._loop.pause(chance.uniform(0.0, plan.timeout * 3))
            if behaviour.is_down(plan):
                raise ConnectionRefusedError("nobody listens")
        if payload.get("terminal") == plan.name and not payload.get("edited"):
            return 422
        if behaviour.is_healed:
            return 200
        if chance.random() < plan.throttling:
            return 429
        return 503 if chance.random() < plan.transient else 200


class _Exchange:
    """One request and its answer, as aiohttp has them."""

    reason = "as planned"

    def __init__(self, web: _Web, url: str, headers: dict[str, str], body: bytes) -> None:
        self._web = web
        self._asked = (url, headers, body)
        self.status = 0
        self.headers: dict[str, str] = {}
        self.content = self

    async def __aenter__(self) -> Self:
        self.status = await self._web.answer(*self._asked)
        if self.status == 429:
            self.headers = {"retry-after": "1"}
        return self

    async def __aexit__(self, *_error: object) -> None:
        pass

    def at_eof(self) -> bool:
        """Tell that there is no body to read."""
        return True


class _Changer(Operator):
    """A person who changes services and rules all the time, beside what people do anyway."""

    def __init__(self, *given: Any) -> None:  # noqa: ANN401 - as any operator
        super().__init__(*given)
        assert self._plan.gateway is not None
        self._gateway = self._plan.gateway
        self._documents = Documents(self._plan, f"{self._name} of {self._plan.seed}")
        self._numbers = 0

    def _rests(self) -> int:
        return self._gateway.changes

    def _rest(self, drawn: float) -> float:
        """Act at whole seconds, where all do, so that they get into each other's way."""
        now = self._loop.time()
        return ceil(now + drawn) - now if self._gateway.at_once else drawn

    async def live(self, app: Any) -> None:  # noqa: ANN401 - as any operator
        if self._name.endswith("-0"):
            await self._insist_on_all(app.operations)
        await super().live(app)

    async def _insist_on_all(self, operations: Operations) -> None:
        """Have there be something to begin with."""
        while not self.is_off:
            try:
                await self._apply_all(operations)
            except StoreError:
                await self._loop.pause(0.5)
            else:
                return

    def _acts(self) -> Sequence[Callable[[Operations], Awaitable[None]]]:
        return (
            *(() if self._gateway.at_once else super()._acts()),
            *[self._apply_all, self._apply_some] * 3,
            *[self._save_rule, self._alter_rule, self._toggle_rule] * 3,
            *[self._save_service, self._toggle_service] * 3,
            *[self._delete_rule, self._delete_service, self._render_again],
        )

    def _intend(self, how: str, **meant: Any) -> dict[str, Any]:  # noqa: ANN401 - of the record
        """Take down what is meant, and return who does it and why."""
        self._numbers += 1
        why = f"{how} {self._numbers} of {self._name}"
        self._history.write(Intended(at=self._loop.time(), why=why, **meant))
        return {"by": self._name, "why": why}

    async def _apply_all(self, operations: Operations) -> None:
        services = {
            one: self._documents.service(one)
            for one in self._gateway.services
            if self._chance.random() < _MOSTLY
        }
        rules = {
            name: self._documents.rule([*services])
            for name in self._documents.rule_names
            if services and self._chance.random() < _MOSTLY
        }
        await self._apply(operations, services, rules, keep_others=False)

    async def _apply_some(self, operations: Operations) -> None:
        known = await operations.export_gateway()
        name = self._chance.choice(self._gateway.services)
        services = {name: self._documents.service(name)}
        leads_to = [*known.services, name]
        rules = {self._documents.any_rule(): self._documents.rule(leads_to) for _ in range(2)}
        await self._apply(operations, services, rules, keep_others=True)

    async def _apply(
        self,
        operations: Operations,
        services: dict[str, dict[str, Any]],
        rules: dict[str, dict[str, Any]],
        *,
        keep_others: bool,
    ) -> None:
        leaves = self._chance.random() < _HALF
        sets = {("service", name): one for name, one in services.items()}
        sets |= {("rule", name): one for name, one in rules.items()}
        said = self._intend("apply", sets=sets, replaces=not keep_others, leaves_waiting=leaves)
        document = GatewayDocument(services=services, rules=rules)
        await operations.apply_gateway(
            document, keep_others=keep_others, leave_waiting=leaves, **said
        )

    async def _save_rule(self, operations: Operations) -> None:
        known = [one.name for one in await operations.services()]
        if known:
            name, document = self._documents.any_rule(), self._documents.rule(known)
            said = self._intend("save", sets={("rule", name): document})
            await operations.save_rule(name, document, **said)

    async def _alter_rule(self, operations: Operations) -> None:
        name, drawn = self._documents.any_rule(), self._documents.rule(["none"])
        key = self._chance.choice(["event", "condition", "template", "enabled"])
        changes = {key: drawn.get(key)}
        said = self._intend("alter", alters={("rule", name): changes})
        await operations.alter_rule(name, changes, **said)

    async def _toggle_rule(self, operations: Operations) -> None:
        name = self._documents.any_rule()
        changes = {"enabled": self._chance.random() < _HALF}
        said = self._intend("toggle", alters={("rule", name): changes})
        await operations.alter_rule(name, changes, **said)

    async def _delete_rule(self, operations: Operations) -> None:
        name = self._documents.any_rule()
        said = self._intend("delete", sets={("rule", name): None})
        await operations.delete_rule(name, **said)

    async def _save_service(self, operations: Operations) -> None:
        name = self._chance.choice(self._gateway.services)
        document = self._documents.service(name)
        said = self._intend("save", sets={("service", name): document})
        await operations.save_service(name, document, **said)

    async def _toggle_service(self, operations: Operations) -> None:
        name = self._chance.choice(self._gateway.services)
        changes = {"enabled": self._chance.random() < _HALF}
        said = self._intend("toggle", alters={("service", name): changes})
        await operations.alter_service(name, changes, **said)

    async def _delete_service(self, operations: Operations) -> None:
        name, leaves = self._chance.choice(self._gateway.services), self._chance.random() < _HALF
        said = self._intend("delete", sets={("service", name): None}, leaves_waiting=leaves)
        await operations.delete_service(name, leave_waiting=leaves, **said)

    async def _render_again(self, operations: Operations) -> None:
        letters = await self._some(operations, Status.FAILED)
        await operations.render_again(letters, by=self._name, why="the rule was wrong")


class Documents:
    """Documents of services and rules, each of which can be told by what is in it."""

    def __init__(self, plan: Plan, whose: str) -> None:
        assert plan.gateway is not None
        self._chance = Random(f"documents of {whose}")  # noqa: S311 - a simulation
        self._plans = {one.name: one for one in plan.destinations}
        self._whose = whose.replace(" ", "-")
        self._made = 0
        self.rule_names = [f"r{one}" for one in range(plan.gateway.rules)]

    def any_rule(self) -> str:
        """Draw the name of a rule, which there may not be."""
        return self._chance.choice(self.rule_names)

    def service(self, name: str, *, is_enabled: bool | None = None) -> dict[str, Any]:
        """Return a document of a service, at an address of its own."""
        self._made += 1
        plan, breaker = self._plans[name], self._plans[name].breaker
        document: dict[str, Any] = {
            "url": f"https://{name}.example.com/{self._whose}/{self._made}",
            "retry": {
                "max_attempts": plan.max_attempts,
                "base": f"{plan.base}s",
                "cap": f"{plan.cap}s",
            },
            "timeout": f"{plan.timeout}s",
            "breaker": False
            if breaker is None
            else {"failures": 3, "open_for": "1s", "longest_open": "8s"},
        }
        if plan.rate is not None:
            rate = {"per_second": plan.rate.per_second, "burst": plan.rate.burst}
            document["rate"] = f"{rate['per_second']:.0f}/s"
        if is_enabled is None and self._chance.random() < _HALF:
            document["enabled"] = self._chance.random() < _MOSTLY
        return document

    def rule(self, services: Sequence[str]) -> dict[str, Any]:
        """Return a document of a rule to one of some services."""
        self._made += 1
        chance = self._chance
        document: dict[str, Any] = {
            "service": chance.choice(services),
            "event": list(chance.choice(_TYPES)),
            "template": {
                "by": f"{self._whose} {self._made}",
                "offer": "{{ payload.offer }}",
            },
        }
        if chance.random() < _HALF:
            document["condition"] = chance.choice(_CONDITIONS)
        if chance.random() < _HALF:
            document["enabled"] = chance.random() < _MOSTLY
        return document


class _Keeper(Keeper):
    """Clears up what services and rules have left, too."""

    async def let_go(self, operations: Operations) -> None:
        """Enable what people have disabled, and bring back what they have deleted, or drop it."""
        plan = self._plan.gateway
        assert plan is not None
        documents = Documents(self._plan, f"keeper of {self._plan.seed}")
        for number, name in enumerate(plan.services):
            services = {one.name: one for one in await operations.services()}
            why = f"clear up {number} of keeper"
            if name in services:
                changes = {"enabled": True}
                self._intend(Intended(at=0.0, why=why, alters={("service", name): changes}))
                await operations.alter_service(name, changes, by="keeper", why=why)
            elif not plan.drops:
                document = documents.service(name, is_enabled=True)
                self._intend(Intended(at=0.0, why=why, sets={("service", name): document}))
                await operations.save_service(name, document, by="keeper", why=why)
        await super().let_go(operations)

    def _intend(self, intended: Intended) -> None:
        self._history.write(msgspec.structs.replace(intended, at=self._loop.time()))

    async def restore(self, name: str, operations: Operations) -> None:
        """Leave services to their documents."""
        plan = self._plan.gateway
        assert plan is not None
        if name not in plan.services:
            await super().restore(name, operations)

    async def see_to(self, letters: list[Delivery], operations: Operations) -> None:
        """Drop what waits for services that are gone, and resolve what has failed there."""
        plan = self._plan.gateway
        assert plan is not None
        known = {one.name for one in await operations.services()}
        gone = [one for one in plan.services if one not in known]
        for name in gone:
            with suppress(NotFoundError):  # nobody has ever applied it
                await operations.delete_pending(name, by="keeper", why="its service is gone")
        lost = [one.id for one in letters if one.destination in gone]
        await operations.resolve(lost, by="keeper", why="its service is gone")
        await super().see_to([one for one in letters if one.id not in lost], operations)
