"""Services and rules: what is kept of them, and what events and deliveries know."""

from __future__ import annotations

import asyncio

import pytest

from redrive.errors import ConfigurationError
from redrive.model.delivery import Leased, Status
from redrive.model.destination import BY_RULES, Destination, Order
from redrive.model.rule import NO_SERVICE, DocumentKind, RuleRoute, Stored
from redrive.model.settlement import Delivered
from redrive.store import Declarer, GatewayChange, Query
from tests.conformance.world import OPERATOR, World, an_event, entries, only

__all__ = ["ServiceConformance"]


class ServiceConformance:
    """`Services`, and deliveries that a rule has given."""

    async def test_a_change_puts_services_and_rules_in_force_all_at_once(
        self, world: World
    ) -> None:
        before = await world.store.gateway()

        revision = await _keep(world, _service(), _rule("orders"), _rule("mails"))

        gateway = await world.store.gateway()
        assert gateway.revision == revision
        assert revision is not None
        assert revision > before.revision
        assert [one.name for one in gateway.services] == ["crm"]
        assert [one.name for one in gateway.rules] == ["mails", "orders"]
        assert gateway.services[0].document == {"url": "v1"}
        routes = await world.store.routes()
        assert only([one for one in routes.destinations if one.name == "crm"]).service == 1

    async def test_a_change_worked_out_from_what_is_past_changes_nothing(
        self, world: World
    ) -> None:
        await _keep(world, _service())

        late = await world.store.change_gateway(
            GatewayChange(kept=(_service(2),), destinations=(_destination(2),)),
            revision=0,
            actor=OPERATOR,
        )

        assert late is None
        assert only((await world.store.gateway()).services).version == 1
        assert [one.kept.version for one in await world.store.past_versions("service", "crm")] == [
            1
        ]

    async def test_sources_are_kept_beside_services_and_lead_to_none(self, world: World) -> None:
        await _keep(world, _service())
        routes = await world.store.routes()
        for version in (1, 2):
            change = GatewayChange(kept=(_stored("source", "crm", NO_SERVICE, version),))
            revision = (await world.store.gateway()).revision
            assert await world.store.change_gateway(change, revision=revision, actor=OPERATOR)

        whole = await world.store.gateway()
        of_service = await world.store.gateway(["crm"])
        alone = await world.store.gateway([NO_SERVICE])

        assert [(one.name, one.version) for one in whole.sources] == [("crm", 2)]
        assert (whole.services, of_service.sources) == (of_service.services, ())
        assert (alone.sources, alone.services) == (whole.sources, ())
        assert len(await world.store.past_versions("source", "crm")) == 2
        assert (await world.store.routes()).destinations == routes.destinations

        await _delete(world, whole.sources[0])
        assert (await world.store.gateway()).sources == ()
        assert only((await world.store.gateway()).services).name == "crm"

    async def test_of_those_who_change_at_once_one_does(self, world: World) -> None:
        revision = (await world.store.gateway()).revision

        done = await asyncio.gather(
            *(
                world.store.change_gateway(
                    GatewayChange(kept=(_service(),), destinations=(_destination(),)),
                    revision=revision,
                    actor=OPERATOR,
                )
                for _ in range(5)
            )
        )

        assert len([one for one in done if one is not None]) == 1

    async def test_every_version_is_kept_and_none_is_given_again(self, world: World) -> None:
        await _keep(world, _service(), _rule("orders"))
        await _keep(world, _rule("orders", 2))
        await _delete(world, _rule("orders", 2))

        versions = await world.store.next_versions([("rule", "orders"), ("rule", "new")])

        assert versions == {("rule", "orders"): 3, ("rule", "new"): 1}
        past = await world.store.past_versions("rule", "orders")
        assert [(one.kept.version, one.by, one.is_current) for one in past] == [
            (2, "ada", False),
            (1, "ada", False),
        ]
        assert (await world.store.gateway()).rules == ()
        found = await world.store.rule_versions(["orders@1", "orders@2", "orders@3"])
        assert sorted(one.version for one in found) == [1, 2]
        assert found[0].service == "crm"

    async def test_a_rule_is_found_by_its_name_while_it_is_in_force(self, world: World) -> None:
        await _keep(world, _service(), _rule("orders"), _rule("mails"))
        await _keep(world, _rule("orders", 2))

        found = await world.store.find_rules(["orders", "nobody"])

        assert [(one.name, one.version) for one in found] == [("orders", 2)]

    async def test_services_are_read_with_their_own_rules_alone(self, world: World) -> None:
        await _keep(world, _service(), _rule("orders"))
        await _keep(world, _service(name="erp"), _rule("bills", service="erp"))

        of_crm = await world.store.gateway(["crm"])

        assert [one.name for one in (*of_crm.services, *of_crm.rules)] == ["crm", "orders"]

    async def test_a_change_is_on_record(self, world: World) -> None:
        await world.store.change_gateway(
            GatewayChange(
                kept=(_service(),),
                destinations=(_destination(),),
                details=("service crm: new", "and more"),
            ),
            revision=0,
            actor=OPERATOR,
        )

        entries = [one for one in await world.store.audit() if one.action == "gateway"]
        assert [(one.by, one.detail) for one in entries] == [
            ("ada", "and more"),
            ("ada", "service crm: new"),
        ]

    async def test_a_name_that_code_declares_is_no_services(self, world: World) -> None:
        await world.declare(Destination(name="crm", patterns=("*",)))

        with pytest.raises(ConfigurationError, match="'crm' belongs to a destination"):
            await _keep(world, _service())

        assert (await world.store.gateway()).services == ()
        assert await world.store.past_versions("service", "crm") == []

    async def test_a_name_of_a_service_cannot_be_declared_by_code(self, world: World) -> None:
        await _keep(world, _service())
        declared = Destination(name="crm", patterns=("*",))

        with pytest.raises(ConfigurationError, match="'crm' belongs to a service that is stored"):
            await world.store.register([declared], by=Declarer(worker="worker-1"))

        await _delete(world, _service())
        await world.declare(declared)
        assert only((await world.store.routes()).destinations) == declared

    async def test_a_deleted_service_gets_nothing_more_and_what_waits_is_held(
        self, world: World
    ) -> None:
        await _keep(world, _service(), _rule("orders"))
        await _publish(world, "crm/orders@1")

        await _delete(world, _service(), _rule("orders"))

        assert (await world.store.routes()).destinations == ()
        assert len(await world.store.waiting_for("crm")) == 1

    async def test_each_rule_gives_a_delivery_of_its_own(self, world: World) -> None:
        await _keep(world, _service(), _rule("orders"), _rule("mails"))

        event_id = await _publish(world, "crm/mails@1", "crm/orders@1")

        leased = await _claim(world)
        assert [(one.destination, one.rule) for one in leased] == [
            ("crm", "mails@1"),
            ("crm", "orders@1"),
        ]
        found = (await world.store.find(Query(status=Status.IN_FLIGHT))).deliveries
        assert sorted(one.rule for one in found) == ["mails@1", "orders@1"]
        assert {one.event_id for one in found} == {event_id}

    async def test_what_is_given_by_no_rule_names_none(self, world: World) -> None:
        await _keep(world, _service(), _rule("orders"))
        await _publish(world, "crm")

        assert only(await _claim(world)).rule == ""

    async def test_deliveries_of_a_key_are_in_one_lane_whatever_rule_gave_them(
        self, world: World
    ) -> None:
        ordered = Destination(
            name="crm", patterns=BY_RULES, service=1, rules=_routes(1), order=Order.PARK
        )
        await world.store.change_gateway(
            GatewayChange(kept=(_service(), _rule("orders")), destinations=(ordered,)),
            revision=0,
            actor=OPERATOR,
        )
        await _publish(world, "crm/mails@1", "crm/orders@1", key="order-1")

        first = only(await _claim(world))
        await world.settle(first, Delivered())

        second = only(await _claim(world))
        assert {first.rule, second.rule} == {"mails@1", "orders@1"}

    async def test_the_version_that_gave_a_delivery_stays_with_it(self, world: World) -> None:
        await _keep(world, _service(), _rule("orders"))
        await _publish(world, "crm/orders@1")
        await _keep(world, _rule("orders", 2), destination=_destination(1, rule_version=2))
        await _publish(world, "crm/orders@2")

        leased = await _claim(world)

        assert [one.rule for one in leased] == ["orders@1", "orders@2"]

    async def test_a_dead_letter_is_rendered_by_its_rule_of_today_only_when_asked_to(
        self, world: World
    ) -> None:
        await _keep(world, _service(), _rule("orders"), _rule("mails"))
        await _publish(world, "crm/mails@1", "crm/orders@1")
        mail, order = await _claim(world)
        await world.fail(mail)
        await world.fail(order)
        await _keep(world, _rule("orders", 2), destination=_destination(1, rule_version=2))

        ids = [mail.lease.delivery_id, order.lease.delivery_id]
        await world.store.replay(ids[:1], actor=OPERATOR)
        again = await world.store.render_again(ids, actor=OPERATOR)
        await world.store.replay(ids, actor=OPERATOR)

        assert again == [order.lease.delivery_id]
        assert [one.rule for one in await _claim(world)] == ["mails@1", "orders@2"]
        assert (await world.store.audit())[1].action == "render_again"

    async def test_what_is_to_be_sent_keeps_its_version(self, world: World) -> None:
        await _keep(world, _service(), _rule("orders"))
        await _publish(world, "crm/orders@1")
        waiting = only(await _claim(world))
        await world.retry(waiting)
        await _keep(world, _rule("orders", 2), destination=_destination(1, rule_version=2))

        again = await world.store.render_again([waiting.lease.delivery_id], actor=OPERATOR)

        assert again == []


def _routes(version: int) -> tuple[RuleRoute, ...]:
    return (
        RuleRoute(rule="mails", version=1, patterns=("order.*",)),
        RuleRoute(rule="orders", version=version, patterns=("order.*",)),
    )


def _destination(version: int = 1, *, name: str = "crm", rule_version: int = 1) -> Destination:
    return Destination(name=name, patterns=BY_RULES, service=version, rules=_routes(rule_version))


def _service(version: int = 1, *, name: str = "crm") -> Stored:
    return _stored("service", name, name, version)


def _rule(name: str, version: int = 1, *, service: str = "crm") -> Stored:
    return _stored("rule", name, service, version)


def _stored(kind: DocumentKind, name: str, service: str, version: int) -> Stored:
    return Stored(
        kind=kind, name=name, service=service, version=version, document={"url": f"v{version}"}
    )


async def _keep(world: World, *kept: Stored, destination: Destination | None = None) -> int | None:
    name = kept[0].service
    return await world.store.change_gateway(
        GatewayChange(kept=kept, destinations=(destination or _destination(name=name),)),
        revision=(await world.store.gateway()).revision,
        actor=OPERATOR,
    )


async def _delete(world: World, *gone: Stored) -> None:
    revision = (await world.store.gateway()).revision
    change = GatewayChange(gone=gone)
    assert await world.store.change_gateway(change, revision=revision, actor=OPERATOR)


async def _publish(world: World, *recipients: str, key: str | None = None) -> str:
    event = an_event(key=key)
    version = (await world.store.routes()).version
    await world.store.append(
        entries(event, to=recipients), routes_version=version, all_or_nothing=False
    )
    return event.id


async def _claim(world: World) -> list[Leased]:
    return list((await world.claim("crm")).deliveries)
