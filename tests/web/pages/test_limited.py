"""Who may see a part of the store gets the pages of that part, and no word of the rest."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from redrive import Event, Redrive, Retry
from redrive.operations import Operations
from redrive.policies.access import NEEDS, Reach
from redrive.store import Query
from redrive.testing import Kit
from redrive.web.limited import Limited
from redrive.web.pages.table import NAVIGATION, PAGES
from tests.web.client import Client
from tests.web.pages.browser import Browser

_PLACE = re.compile(r"{(\w+)(?::\w+)?}")


class Shops:
    """Two tenants with a dead letter each, at two destinations."""

    def __init__(self, app: Redrive) -> None:
        self.app = app
        self.operations = app.operations
        self.asgi = app.asgi()

    async def secret(self, role: str = "admin", **limits: Any) -> str:  # noqa: ANN401 - as below
        made = await self.operations.create_token("t", role=role, by="test", why="x", **limits)
        return made.secret

    async def letter(self, tenant: str, destination: str = "billing") -> int:
        query = Query(tenant=tenant, destination=destination)
        return (await self.operations.dead_letters(query)).deliveries[0].id

    async def group(self, destination: str = "billing") -> str:
        [group] = await self.operations.groups(Query(destination=destination))
        return group.id


@pytest.fixture
async def shops() -> AsyncIterator[Shops]:
    app = Redrive()

    for name in ("billing", "mail"):

        @app.handler("*", name=name, retry=Retry(max_attempts=1))
        async def fail(event: Event[Any]) -> None:
            raise ConnectionError("it is down")

    async with Kit(app) as kit:
        for tenant in ("acme", "globex"):
            await app.publish("order.paid", {"order": 1}, tenant=tenant, key=f"{tenant}-1")
        await kit.drain()
        yield Shops(app)


async def test_of_another_tenant_no_page_tells_anything(shops: Shops) -> None:
    """Whichever pages are still to come."""
    secret = await shops.secret(tenant="acme")
    theirs, group = await shops.letter("globex"), await shops.group()
    event = (await shops.operations.show(theirs)).event.id
    names = {"id": str(theirs), "group": group, "event": event, "name": "billing"}
    seen = set()
    for page in PAGES:
        path = _PLACE.sub(lambda found: names.get(found[1], "1"), page.path)
        answer = await Client(shops.asgi, token=secret).send(page.method, path)

        assert answer.status < 500, (path, answer)
        assert b"globex" not in answer.body, path
        if answer.status == 200:
            seen.add(page.path)
    assert {"/dead-letters", "/dead-letters/groups/{group}"} <= seen


async def test_one_tenant_mends_its_own_dead_letters(shops: Shops) -> None:
    browser = Browser(shops.asgi, token=await shops.secret("operate", tenant="acme"))
    mine, theirs = await shops.letter("acme"), await shops.letter("globex")

    await browser.open("/")
    start = browser.document
    group = await browser.open(f"/dead-letters/groups/{await shops.group()}")
    await browser.submit("/resolve", why="paid by hand")

    assert "Dead letters" in start.links
    assert not {"Audit", "Workers", "Replays", "Destinations"} & set(start.links)
    assert "1 dead letter," in group.text
    assert not any(one.action.endswith("/replay") for one in group.forms)
    mended = await shops.operations.show(mine)
    assert mended.delivery.resolution is not None
    assert (await shops.operations.show(theirs)).delivery.is_dead_letter
    there = await browser.open(f"/deliveries/{theirs}")
    assert browser.answer.status == 404
    assert (await browser.open("/deliveries/123456")).text == there.text


async def test_who_may_act_at_some_destinations_acts_there_alone(shops: Shops) -> None:
    browser = Browser(shops.asgi, token=await shops.secret("operate", destinations=["mail"]))
    mine, theirs = await shops.letter("acme", "mail"), await shops.letter("acme")

    causes = await browser.open("/dead-letters")
    await browser.open(f"/deliveries/{mine}")
    story = browser.document
    await browser.submit("/delete", why="of no use")

    assert "mail" in causes.text
    assert "billing" not in causes.text + story.text
    assert (await browser.open(f"/deliveries/{theirs}"), browser.answer.status)[1] == 404
    assert (await shops.operations.show(theirs)).delivery.is_dead_letter


async def test_acts_on_others_deliveries_change_nothing(shops: Shops) -> None:
    secret = await shops.secret("operate", tenant="acme")
    theirs = await shops.letter("globex")
    browser = Browser(shops.asgi, token=secret)
    for act in ("reveal", "replay", "resolve", "delete"):
        await browser.open(f"/deliveries/{await shops.letter('acme', 'mail')}")
        form = next(one for one in browser.document.forms if one.action.endswith(act))
        swapped = browser.answer.body.replace(
            form.action.encode(), f"/deliveries/{theirs}/{act}".encode()
        )
        browser.answer = browser.answer._replace(body=swapped)
        await browser.submit(f"/deliveries/{theirs}/{act}", why="not mine")

        assert b"globex" not in browser.answer.body
    delivery = (await shops.operations.show(theirs)).delivery
    assert delivery.is_dead_letter
    audited = [one.action for one in await shops.operations.audit()]
    assert audited == ["create_token"]


async def test_an_admin_of_one_tenant_lets_in_nobody_who_may_more(shops: Shops) -> None:
    await shops.secret(tenant="globex")
    browser = Browser(shops.asgi, token=await shops.secret(tenant="acme"))
    names = {"why": "x", "role": "view"}

    page = await browser.open("/access")
    await browser.submit("/access/tokens/create", name="more", **names)
    more = browser.answer.status
    await browser.open("/access")
    await browser.submit("/access/tokens/create", name="mine", tenant="acme", **names)

    assert "globex" not in page.text
    assert (more, browser.answer.status) == (403, 200)
    assert len(await shops.operations.tokens()) == 3


def test_only_what_can_be_limited_is_offered_to_who_is_limited() -> None:
    offered = {one for one in vars(Limited) if not one.startswith("_")}
    for one in offered - {"audit"}:
        given, taken = (inspect.signature(getattr(kind, one)) for kind in (Operations, Limited))
        assert list(given.parameters) == list(taken.parameters), one

    assert offered <= set(NEEDS)
    assert {NEEDS[one].reach for one in offered - {"audit"}}.isdisjoint({Reach.STORE, Reach.GRANTS})
    assert {operation for _, _, operation in NAVIGATION} <= set(NEEDS)
