"""Services and rules without code: who gets an event, in which shape, and how it changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from redrive import Redrive
from redrive.app.declaration import Ports
from redrive.app.gateway.file import read_gateway
from redrive.clock import SystemClock
from redrive.conditions import Condition, routing
from redrive.errors import ConfigurationError, NotFoundError, UsageError
from redrive.model.delivery import Status
from redrive.model.rule import Stored
from redrive.observer import Fact, ServiceUnserved
from redrive.operations import GatewayDocument
from redrive.store import Query
from redrive.stores.memory import MemoryStore
from redrive.testing import Kit
from tests.http.receiver import Receiver, answer, receiving
from tests.waiting import eventually

WHO = "ada"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as running:
        yield running


def service(receiver: Receiver, **keys: object) -> dict[str, Any]:
    return {
        "url": receiver.url,
        "allow_private": True,
        "retry": {"max_attempts": 1},
        "breaker": False,
        **keys,
    }


def gateway(receiver: Receiver, **rules: dict[str, Any]) -> GatewayDocument:
    given = {name: {"service": "crm", "event": "order.*", **one} for name, one in rules.items()}
    return GatewayDocument(services={"crm": service(receiver)}, rules=given)


async def test_each_rule_sends_an_event_in_its_own_shape(store: str, receiver: Receiver) -> None:
    async with Redrive(store) as app:
        await app.operations.apply_gateway(
            gateway(
                receiver,
                orders={
                    "method": "PUT",
                    "path": "/orders/{{ key }}",
                    "headers": {"x-tenant": "{{ tenant }}"},
                    "template": {"number": "{{ payload.order }}", "kind": "order"},
                },
                texts={"text": "Order {{ payload.order }}"},
            ),
            by=WHO,
        )

        receipt = await app.publish("order.paid", {"order": 42}, key="o 42", tenant="acme")
        tally = await app.drain(services=True)

    assert receipt.destinations == ("crm/orders@1", "crm/texts@1")
    assert tally.delivered == 2
    put, post = sorted(receiver.requests, key=lambda one: one.method, reverse=True)
    assert (put.method, put.path.endswith("/orders/o%2042")) == ("PUT", True)
    assert json.loads(put.body) == {"number": 42, "kind": "order"}
    assert put.headers["x-tenant"] == "acme"
    assert post.body == b"Order 42"
    assert post.headers["content-type"] == "text/plain; charset=utf-8"
    # To the receiver they are two messages, each the same whenever it is sent again.
    assert {one.headers["webhook-id"] for one in receiver.requests} == {
        f"{receipt.event_id}-orders",
        f"{receipt.event_id}-texts",
    }


async def test_what_is_tracked_goes_by_the_rules_too(store: str, receiver: Receiver) -> None:
    rules = gateway(receiver, large={"condition": "payload.total > 100"}, every={"text": "!"})
    async with Redrive(store) as app:
        await app.operations.apply_gateway(rules, by=WHO)
        app.track("order.paid", {"total": 5})
        app.track("order.paid", {"total": 500})
        await app.flush()

        await app.drain(services=True)

    assert sorted(one.body for one in receiver.requests) == [b"!", b"!", b'{"total":500}']


async def test_a_condition_says_which_events_a_rule_is_about(
    store: str, receiver: Receiver
) -> None:
    rules = gateway(receiver, large={"condition": "payload.total > 100"})
    async with Redrive(store) as app:
        await app.operations.apply_gateway(rules, by=WHO)

        small = await app.publish("order.paid", {"total": 5})
        large = await app.publish("order.paid", {"total": 500})

    assert (small.destinations, large.destinations) == ((), ("crm/large@1",))


@pytest.mark.parametrize(("on_error", "held"), [("hold", 1), ("skip", 0)])
async def test_a_rule_says_what_becomes_of_an_event_whose_condition_fails(
    receiver: Receiver, on_error: str, held: int
) -> None:
    rules = gateway(receiver, large={"condition": "payload.total > 100", "on_error": on_error})
    async with Redrive("memory://") as app:
        await app.operations.apply_gateway(rules, by=WHO)

        await app.publish("order.paid", {"amount": 5})
        await app.drain(services=True)

        letters = (await app.operations.dead_letters()).deliveries
    assert [one.fault and one.fault.code for one in letters] == ["condition"] * held
    assert receiver.requests == []


async def test_what_cannot_be_rendered_fails_at_once_and_names_the_field(
    store: str, receiver: Receiver
) -> None:
    rules = gateway(receiver, orders={"template": {"order": {"total": "{{ payload.total }}"}}})
    async with Redrive(store) as app:
        await app.operations.apply_gateway(rules, by=WHO)

        await app.publish("order.paid", {"order": 42})
        await app.drain(services=True)

        [letter] = (await app.operations.dead_letters()).deliveries
    assert letter.attempts == 1
    assert letter.fault is not None
    assert "order.total: payload.total is not there" in letter.fault.message
    assert receiver.requests == []


async def test_a_replay_sends_as_it_was_rendered_unless_asked_to_render_again(
    store: str, receiver: Receiver
) -> None:
    receiver.answers(answer(422), answer(422))
    async with Redrive(store) as app:
        await app.operations.apply_gateway(gateway(receiver, orders={"template": {"v": 1}}), by=WHO)
        await app.publish("order.paid", {})
        await app.drain(services=True)
        [letter] = (await app.operations.dead_letters()).deliveries
        await app.operations.alter_rule("orders", {"template": {"v": 2}}, by=WHO)

        await app.operations.replay([letter.id], by=WHO)
        await app.drain(services=True)
        await app.operations.render_again([letter.id], by=WHO)
        await app.operations.replay([letter.id], by=WHO)
        await app.drain(services=True)

        story = await app.operations.show(letter.id)
    assert [json.loads(one.body)["v"] for one in receiver.requests] == [1, 1, 2]
    assert len(set(receiver.ids)) == 1
    assert story.delivery.rule == "orders@2"


async def test_a_worker_follows_a_change_without_a_restart(store: str, receiver: Receiver) -> None:
    async with Redrive(store, poll="50ms") as app, app.worker(services=True):
        await app.operations.apply_gateway(gateway(receiver, orders={"path": "/one"}), by=WHO)
        await app.publish("order.paid", {})
        await eventually(lambda: len(receiver.requests) == 1, what="the first request")
        await app.operations.alter_rule("orders", {"path": "/two"}, by=WHO)
        await app.operations.alter_service("crm", {"headers": {"x-new": "yes"}}, by=WHO)
        for number in range(2, 100):
            await app.publish("order.paid", {})
            await _received(receiver, number)
            if "x-new" in receiver.requests[-1].headers:
                break

    paths = [one.path[-4:] for one in receiver.requests]
    assert paths == ["/one"] + ["/two"] * (len(paths) - 1)
    assert receiver.requests[-1].headers["x-new"] == "yes"


async def test_each_event_is_rendered_by_one_version_while_the_rule_changes(
    store: str, receiver: Receiver
) -> None:
    """By the one on its story, which was in force when it was published."""
    rounds, each = 5, 12
    async with Redrive(store, poll="50ms") as app:
        await app.operations.apply_gateway(gateway(receiver, orders={"template": {"v": 1}}), by=WHO)

        async def change(version: int) -> None:
            await app.operations.alter_rule("orders", {"template": {"v": version}}, by=WHO)

        async with app.worker(services=True):
            for number in range(rounds):
                await app.publish("order.paid", {"order": 0})
                publishing = [app.publish("order.paid", {"order": one}) for one in range(1, each)]
                await asyncio.gather(*publishing, change(number + 2))
            await _received(receiver, rounds * each)

        page = await app.operations.deliveries(Query(status=Status.DELIVERED), limit=1_000)
        pinned = {one.event_id: one.rule for one in page.deliveries}

    rendered = {
        one.headers["webhook-id"].removesuffix("-orders"): f"orders@{json.loads(one.body)['v']}"
        for one in receiver.requests
    }
    assert len(receiver.requests) == len(rendered) == rounds * each
    assert rendered == pinned
    assert len(set(rendered.values())) >= rounds


@pytest.mark.parametrize("on_error", ["hold", "skip"])
async def test_a_worker_decides_a_condition_that_its_publisher_cannot_read(
    store: str, receiver: Receiver, on_error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the rule is not about is no letter for a person, and says nothing of the service."""

    def lacks_the_extra(text: str) -> Condition:
        raise ConfigurationError("conditions need redrive[gateway]")

    large = {"condition": "payload.total >= 100", "on_error": on_error}
    async with Redrive(store) as app:
        await app.operations.apply_gateway(gateway(receiver, large=large), by=WHO)
        with monkeypatch.context() as patch:
            patch.setattr(routing, "compile_condition", lacks_the_extra)
            for payload in ({"total": 200}, {"total": 5}, {"sum": 200}):
                await app.publish("order.paid", payload)
        await app.drain(services=True)

        letters = (await app.operations.deliveries(Query(status=Status.FAILED))).deliveries
        log = await app.operations.request_log("crm")

    assert [json.loads(one.body) for one in receiver.requests] == [{"total": 200}]
    assert [one.reason for one in letters] == (["terminal"] if on_error == "hold" else [])
    passed_by = 1 if on_error == "hold" else 2
    assert [one.status for one in log].count("passed by") == passed_by


async def test_a_disabled_service_holds_what_it_gets(store: str, receiver: Receiver) -> None:
    async with Redrive(store) as app:
        await app.operations.apply_gateway(gateway(receiver, orders={}), by=WHO)
        await app.operations.alter_service("crm", {"enabled": False}, by=WHO)
        await app.publish("order.paid", {})

        before = await app.drain(services=True)
        held = len((await app.operations.deliveries(Query(status=Status.PENDING))).deliveries)
        await app.operations.alter_service("crm", {"enabled": None}, by=WHO)
        after = await app.drain(services=True)

    assert (before.delivered, held, after.delivered) == (0, 1, 1)


async def test_a_disabled_rule_gives_nothing_and_what_it_gave_goes_on(
    store: str, receiver: Receiver
) -> None:
    async with Redrive(store) as app:
        await app.operations.apply_gateway(gateway(receiver, orders={}), by=WHO)
        given = await app.publish("order.paid", {})
        await app.operations.alter_rule("orders", {"enabled": False}, by=WHO)
        passed = await app.publish("order.paid", {})
        tally = await app.drain(services=True)

    assert (given.destinations, passed.destinations) == (("crm/orders@1",), ())
    assert tally.delivered == 1


async def test_a_service_with_waiting_work_is_not_deleted_by_the_way(
    store: str, receiver: Receiver
) -> None:
    async with Redrive(store) as app:
        await app.operations.apply_gateway(gateway(receiver, orders={}), by=WHO)
        await app.publish("order.paid", {})

        with pytest.raises(UsageError, match="Deliveries wait for the service 'crm'"):
            await app.operations.delete_service("crm", by=WHO)
        with pytest.raises(UsageError, match="Deliveries wait for the service 'crm'"):
            await app.operations.apply_gateway(GatewayDocument(), by=WHO)

        assert await app.operations.delete_service("crm", by=WHO, leave_waiting=True)
        assert await app.operations.services() == ()
        assert len((await app.operations.deliveries(Query(status=Status.PENDING))).deliveries) == 1


async def test_a_service_is_not_removed_or_restored_as_if_code_declared_it(
    store: str, receiver: Receiver
) -> None:
    async with Redrive(store) as app:
        await app.operations.apply_gateway(gateway(receiver), by=WHO)

        with pytest.raises(UsageError, match="redrive service delete crm"):
            await app.operations.remove_destination("crm", by=WHO)
        await app.operations.delete_service("crm", by=WHO)
        with pytest.raises(UsageError, match="redrive service add crm"):
            await app.operations.restore_destination("crm", by=WHO)


async def test_a_service_of_a_tenant_gets_only_its_events(receiver: Receiver) -> None:
    document = GatewayDocument(
        services={
            name: service(receiver, tenant=name, headers={"x-for": name})
            for name in ("acme", "globex")
        },
        rules={name: {"service": name, "event": "*"} for name in ("acme", "globex")},
    )
    async with Redrive("memory://") as app:
        await app.operations.apply_gateway(document, by=WHO)

        of_acme = await app.publish("order.paid", {}, tenant="acme")
        of_nobody = await app.publish("order.paid", {})

    assert (of_acme.destinations, of_nobody.destinations) == (("acme/acme@1",), ())


async def test_a_name_belongs_to_code_or_to_the_store(store: str, receiver: Receiver) -> None:
    async with Redrive(store) as app:
        await app.operations.apply_gateway(gateway(receiver), by=WHO)

    second = Redrive(store)

    @second.handler("order.*", name="crm")
    async def handle(_event: object) -> None: ...

    if store != "memory://":
        with pytest.raises(ConfigurationError, match="'crm' belongs to a service that is stored"):
            await second.open()


async def test_a_service_that_lacks_its_secret_is_left_alone_and_told_of(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    told: list[Fact] = []
    app = Redrive("memory://")
    app.observe(_Ear(told))
    async with app:
        document = gateway(receiver, orders={})
        document.services["shy"] = service(receiver, auth={"bearer": "env:NOT_THERE"})
        document.rules["shy"] = {"service": "shy", "event": "*"}
        await app.operations.apply_gateway(document, by=WHO)
        await app.publish("order.paid", {})

        tally = await app.drain(services=True)

    assert tally.delivered == 1
    [unserved] = [one for one in told if isinstance(one, ServiceUnserved)]
    assert unserved.service == "shy"
    assert "The secret env:NOT_THERE is not there" in unserved.why


async def test_a_secret_comes_from_where_its_reference_says(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CRM_TOKEN", "t0ken-of-the-crm")
    (tmp_path / "key").write_text("k3y-of-the-crm\n")
    async with Redrive("memory://", service_folders=[tmp_path]) as app:
        document = gateway(receiver, orders={})
        document.services["crm"] |= {
            "auth": {"bearer": "env:CRM_TOKEN"},
            "headers": {"x-key": f"file:{tmp_path / 'key'}"},
        }
        await app.operations.apply_gateway(document, by=WHO)
        await app.publish("order.paid", {})
        await app.drain(services=True)

        kept = await app.operations.export_gateway()
    [request] = receiver.requests
    assert request.headers["authorization"] == "Bearer t0ken-of-the-crm"
    assert request.headers["x-key"] == "k3y-of-the-crm"
    assert "t0ken" not in repr(kept)


@pytest.mark.parametrize("is_allowed", [True, False])
@pytest.mark.parametrize("key", ["header", "path", "path by a secret", "attachment_folder"])
async def test_a_document_reaches_no_file_of_the_worker_but_in_folders_for_that(
    key: str,
    is_allowed: bool,  # noqa: FBT001 - a case
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Fact] = []
    file = tmp_path / "authorized_keys"
    file.write_text("of the machine\n")
    monkeypatch.setenv("PLACE", str(file))
    mail: dict[str, object] = {
        "kind": "smtp",
        "url": "smtp://127.0.0.1:9",
        "starttls": False,
        "allow_private": True,
    }
    documents: dict[str, dict[str, object]] = {
        "header": {"url": "http://example.com", "headers": {"x-key": f"file:{file}"}},
        "path": {"kind": "file", "path": str(file)},
        "path by a secret": {"kind": "file", "path": "env:PLACE"},
        "attachment_folder": {
            **mail,
            "sender": "a@example.com",
            "attachment_folder": str(tmp_path),
        },
    }
    app = Redrive("memory://", service_folders=[tmp_path] if is_allowed else [tmp_path / "other"])
    app.observe(_Ear(told))
    async with app:
        await app.operations.save_service("sly", documents[key], by=WHO, why="to see")
        await app.drain(services=True)

    unserved = [one.why for one in told if isinstance(one, ServiceUnserved)]
    assert [("setting service_folders" in why) for why in unserved] == [True] * (not is_allowed)
    assert file.read_text() == "of the machine\n"


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"urll": "http://x"}, "There is no key of a service 'urll'; did you mean 'url'?"),
        ({"retry": {"max_atempts": 2}}, "no key of retry 'max_atempts'; did you mean"),
        ({"kind": "carrier-pigeon"}, "kind is 'carrier-pigeon'; it is one of amqp, file, http"),
        ({"auth": {"bearer": "plain-secret"}}, "auth.bearer is not said by reference"),
        ({"auth": {"brearer": "env:A"}}, "no kind of auth 'brearer'; did you mean 'bearer'?"),
        ({"enabled": "yes"}, "enabled is 'yes'; write true or false"),
        ({"allow_private": False}, "only public ones are connected to"),
        ({"rate": "fast"}, "rate is 'fast'"),
        ({"url": None}, "url is missing"),
    ],
)
async def test_a_mistake_in_a_service_is_refused_where_it_is_saved(
    receiver: Receiver, keys: dict[str, object], complaint: str
) -> None:
    document = {name: one for name, one in service(receiver, **keys).items() if one is not None}
    async with Redrive("memory://") as app:
        with pytest.raises(ConfigurationError) as refused:
            await app.operations.save_service("crm", document, by=WHO)

    assert complaint in str(refused.value)
    assert str(refused.value).startswith("The service 'crm'")
    assert "plain-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"evnt": "*"}, "There is no key of a rule 'evnt'; did you mean 'event'?"),
        ({"event": "order paid"}, "The pattern 'order paid'"),
        ({"template": {"a": "{{ nope }}"}}, "template: "),
        ({"template": {"a": "{{ payload.__class__ }}"}}, "template: "),
        ({"condition": "payload.a >"}, "condition: "),
        ({"method": "GET"}, "method is 'GET'"),
        ({"path": "orders"}, "path is 'orders'; it begins with a slash"),
        ({"on_error": "panic"}, "on_error is 'panic'"),
        ({"template": {}, "text": ""}, "template and text are both given"),
        ({"headers": {"a b": "c"}}, "a b"),
    ],
)
async def test_a_mistake_in_a_rule_is_refused_where_it_is_saved(
    receiver: Receiver, keys: dict[str, object], complaint: str
) -> None:
    async with Redrive("memory://") as app:
        await app.operations.save_service("crm", service(receiver), by=WHO)
        with pytest.raises(ConfigurationError) as refused:
            await app.operations.save_rule(
                "orders", {"service": "crm", "event": "*", **keys}, by=WHO
            )

    assert complaint in str(refused.value)
    assert str(refused.value).startswith("The rule 'orders'")


async def test_a_rule_that_leads_nowhere_is_refused(receiver: Receiver) -> None:
    async with Redrive("memory://") as app:
        await app.operations.save_service("crm", service(receiver), by=WHO)
        with pytest.raises(NotFoundError, match="did you mean 'crm'"):
            await app.operations.save_rule("orders", {"service": "crn", "event": "*"}, by=WHO)


async def test_two_who_apply_at_once_do_not_mix(store: str, receiver: Receiver) -> None:
    ours = gateway(receiver, **{f"ours-{one}": {} for one in range(5)})
    theirs = gateway(receiver, **{f"theirs-{one}": {} for one in range(5)})
    async with Redrive(store) as app:
        for _ in range(3):
            await asyncio.gather(
                app.operations.apply_gateway(ours, by=WHO),
                app.operations.apply_gateway(theirs, by=WHO),
            )
            kept = await app.operations.export_gateway()
            assert kept.rules.keys() in (ours.rules.keys(), theirs.rules.keys())


@pytest.mark.parametrize("led_to", ["crm", None], ids=["moved", "new"])
async def test_a_rule_that_two_people_move_at_once_leads_to_one_service(
    receiver: Receiver, led_to: str | None
) -> None:
    store, app = Meddled(), Redrive("memory://")
    services = {name: service(receiver) for name in ("crm", "erp", "ledger")}
    rule = {"service": led_to, "event": "order.*"}
    given = GatewayDocument(services=services, rules={"orders": rule} if led_to else {})
    with app.rewired(Ports(), lambda: store):
        async with app:
            await app.operations.apply_gateway(given, by=WHO)
            store.meddle = partial(
                app.operations.save_rule, "orders", {**rule, "service": "erp"}, by="bo"
            )

            saved = await app.operations.save_rule("orders", {**rule, "service": "ledger"}, by=WHO)
            receipt = await app.publish("order.paid", {})

    assert receipt.destinations == (f"ledger/orders@{saved.version}",)


class Meddled(MemoryStore):
    """Has somebody else act between the reads of one change."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.meddle: Callable[[], Awaitable[object]] | None = None

    async def find_rules(self, names: Collection[str]) -> Sequence[Stored]:
        found = await super().find_rules(names)
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            await meddle()
        return found


async def _received(receiver: Receiver, count: int) -> None:
    await eventually(lambda: len(receiver.requests) == count, what=f"{count} requests")


class _Ear:
    def __init__(self, told: list[Fact]) -> None:
        self._told = told

    def notice(self, fact: Fact) -> None:
        self._told.append(fact)


async def test_a_file_gives_the_weights_and_limits_of_tenants(tmp_path: Path) -> None:
    sent = tmp_path / "sent.jsonl"
    file = tmp_path / "redrive.toml"
    file.write_text(f"""
[services.ledger]
kind = "file"
path = "{sent}"
body = "event"
concurrency = 1
fairness = {{ turn = 1 }}

[rules.all]
service = "ledger"
event = "*"
template = "{{{{ tenant }}}}"

[tenants."gold-*"]
weight = 3

[tenants.noisy]
rate = "2/h"
""")
    app = Redrive("memory://", service_folders=[tmp_path])
    async with Kit(app):
        await app.operations.apply_gateway(read_gateway(file), by=WHO)
        for tenant in ("plain", "gold-a", "noisy"):
            for _ in range(6):
                await app.publish("order.paid", {}, tenant=tenant)
        await app.drain(services=True)

    order = [json.loads(line)["payload"] for line in sent.read_text().splitlines()]
    assert order.count("noisy") == 1
    others = [one for one in order if one != "noisy"]
    assert others.count("gold-a") == others.count("plain") == 6
    assert sorted(others[:8]) == ["gold-a"] * 6 + ["plain"] * 2


async def test_services_at_one_place_share_connections(receiver: Receiver) -> None:
    names = [f"crm-{number}" for number in range(20)]
    wanted = GatewayDocument(
        services={one: service(receiver, tenant=one) for one in names},
        rules={f"to-{one}": {"service": one, "event": "*"} for one in names},
    )
    async with Redrive("memory://", concurrency=1) as app:
        await app.operations.apply_gateway(wanted, by=WHO)
        for one in names:
            await app.publish("order.paid", {}, tenant=one)

        tally = await app.drain(services=True)

    assert tally.delivered == len(names)
    assert receiver.connections == 1


async def test_rules_are_read_with_their_services_and_not_one_by_one(receiver: Receiver) -> None:
    store = CountingStore()
    app = Redrive("memory://")
    with app.rewired(Ports(), lambda: store):
        async with app:
            names = [f"r{number}" for number in range(10)]
            await app.operations.apply_gateway(
                gateway(receiver, **{one: {} for one in names}), by=WHO
            )
            await app.publish("order.paid", {})

            tally = await app.drain(services=True)

    assert tally.delivered == len(names)
    assert store.looked_up == []


class CountingStore(MemoryStore):
    """Keeps which versions of rules were looked up."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.looked_up: list[str] = []

    async def rule_versions(self, pins: Collection[str]) -> Sequence[Stored]:
        self.looked_up += pins
        return await super().rule_versions(pins)
