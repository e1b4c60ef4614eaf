"""The dashboard in a real browser: by mouse, by keyboard, without scripts, and under attack."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, Request

from tests.web.browser.pictures import FOLDER, KEPT
from tests.web.browser.showcase import EVIL, EXPIRED, Showcase, places
from tests.web.browser.studio import NARROW, WIDE, Theme, opened

pytestmark = pytest.mark.asyncio(loop_scope="session")

_REASON = "the certificate was renewed"
_SERIOUS = ("serious", "critical")
_AXE = {"resultTypes": ["violations"]}
_COLOURS = {**_AXE, "runOnly": ["color-contrast"]}
"""In the dark only the colours are others."""
_TRAP = "window.hits = 0; window.hit = window.alert = window.prompt = () => { window.hits += 1 }"


async def _outage(shop: Showcase) -> None:
    """Billing has failed three orders for good, and is back."""
    shop.services["billing"].error = EXPIRED
    await shop.sell(3)
    await shop.kit.run_for("5m")
    shop.services["billing"].error = ""


async def _until_redelivered(shop: Showcase, page: Page) -> None:
    """Let workers work; the page looks again by itself."""
    await shop.kit.run_for("1m")
    await page.get_by_role("heading", name="All redelivered.").wait_for()


@pytest.mark.parametrize("scripts", [True, False])
async def test_from_red_to_redelivered_in_five_clicks(
    browser: Browser,
    shop: Showcase,
    scripts: bool,  # noqa: FBT001 - a column of the table
) -> None:
    await _outage(shop)
    clicks = 0
    async with opened(browser, scripts=scripts) as page:

        async def click(role: str, name: str) -> None:
            nonlocal clicks
            clicks += 1
            await page.get_by_role(role, name=name).first.click()  # type: ignore[arg-type]

        await page.goto(shop.url)
        await page.get_by_role("heading", name="3 dead letters wait for you.").wait_for()
        await click("link", "Look into it")
        await click("link", "Plan a replay")
        await page.get_by_label("Reason").fill(_REASON)
        await click("button", "Start the replay")
        await _until_redelivered(shop, page)
        await click("link", "Back to the overview")
        await page.get_by_role("heading", name="What needs you").wait_for()
        assert "dead letter" not in await page.locator("h1").inner_text()

    assert clicks <= 5
    [replay] = await shop.operations.replays()
    assert (replay.delivered, replay.why) == (3, _REASON)


async def test_from_red_to_redelivered_by_keyboard_alone(browser: Browser, shop: Showcase) -> None:
    await _outage(shop)
    async with opened(browser) as page:

        async def press(name: str) -> None:
            """Walk to a control, see that it shows where one is, and press it."""
            for _ in range(40):
                await page.keyboard.press("Tab")
                if await page.evaluate("document.activeElement.innerText") == name:
                    break
            outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid", name
            async with page.expect_navigation():
                await page.keyboard.press("Enter")

        await page.goto(shop.url)
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.innerText") == "Skip to the content"
        await page.keyboard.press("Enter")
        await press("Look into it")
        await press("Plan a replay")
        for _ in range(40):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.name") == "why":
                break
        await page.keyboard.type(_REASON)
        async with page.expect_navigation():
            await page.keyboard.press("Enter")
        await _until_redelivered(shop, page)


@pytest.mark.parametrize("width", [NARROW, WIDE // 2])
async def test_every_page_shows_without_scripts_and_fits(
    browser: Browser, morning: Showcase, width: int
) -> None:
    """On a phone, and in what is left of a wide window at 200 %."""
    async with opened(browser, width=width, scripts=False) as page:
        for name, path in (await places(morning)).items():
            await page.goto(morning.url + path)
            assert await page.locator("h1").count() == 1, name
            taken = await page.evaluate("document.documentElement.scrollWidth")
            assert taken <= width, f"{name} is {taken} px wide"


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_axe_finds_nothing_serious(browser: Browser, morning: Showcase, theme: Theme) -> None:
    found = []
    async with opened(browser, theme=theme) as page:
        await page.set_content('<p style="color: #eee; background: #fff">hard to read</p>')
        assert (await Axe().run(page, options=_COLOURS)).response["violations"], "it finds nothing"
        for name, path in (await places(morning)).items():
            await page.goto(morning.url + path)
            for one in await page.locator("details").all():
                await one.evaluate("one => { one.open = true }")
            seen = await Axe().run(page, options=_AXE if theme == "light" else _COLOURS)
            found += [
                f"{name}: {one['id']}, {one['help']}: {one['nodes'][0]['html'][:300]}"
                for one in seen.response["violations"]
                if one["impact"] in _SERIOUS
            ]

    assert not found, "\n".join(found)


async def test_a_form_works_without_scripts_and_says_what_is_wrong(
    browser: Browser, shop: Showcase
) -> None:
    shop.services["warehouse"].error, shop.services["warehouse"].status = "voucher is unknown", 422
    await shop.sell(1)
    shop.services["warehouse"].error = ""
    letter = await shop.letter("warehouse")
    async with opened(browser, scripts=False) as page:
        await page.goto(f"{shop.url}/deliveries/{letter}")
        await page.get_by_role("button", name="Edit and replay").click()
        editor = page.get_by_label("Payload")
        await editor.fill('{"order": 1001,')
        await page.get_by_label("Reason").fill("the voucher is gone")
        await page.get_by_role("button", name="Save and replay").click()
        said = await page.get_by_role("alert").inner_text()
        assert "This is no JSON" in said
        assert await editor.input_value() == '{"order": 1001,'
        await editor.fill('{\n  "order": 1001\n}')
        await page.get_by_role("button", name="Check").click()
        assert await editor.input_value() == '{\n  "order": 1001\n}'
        assert "changes 3 places" in await page.get_by_role("status").inner_text()
        await page.get_by_role("button", name="Save and replay").click()
        await shop.kit.drain()
        await page.goto(f"{shop.url}/deliveries/{letter}")

        assert "Delivered" in await page.get_by_role("heading", level=1).inner_text()


async def test_what_others_wrote_runs_nowhere(browser: Browser, shop: Showcase) -> None:
    await _plant(shop)
    known = await places(shop)
    refused: list[str] = []
    async with opened(browser) as page:
        await page.add_init_script(_TRAP)
        page.on("console", lambda said: refused.append(said.text))
        page.on("request", _foreign(shop, refused))
        for name, path in known.items():
            await page.goto(shop.url + path)
            assert await page.evaluate("window.hits") == 0, name
            assert "49" not in await page.title()
        await page.goto(f"{shop.url}/deliveries/1")
        await page.get_by_text("Show the payload…").click()
        await page.locator("details[open]").get_by_label("Reason").fill(EVIL)
        await page.get_by_role("button", name="Show the payload", exact=True).click()
        assert "<script>hit()</script>" in await page.locator("pre").last.inner_text()
        assert await page.evaluate("window.hits") == 0

    assert not [one for one in refused if "404" not in one], refused


async def _plant(shop: Showcase) -> None:
    """Bring markup in by every way that takes text."""
    operations = shop.operations
    for service in shop.services.values():
        service.error, service.status = EVIL, 422
    await shop.sell(
        2,
        payload={EVIL: EVIL},
        key=EVIL,
        tenant=EVIL,
        source=EVIL[:100],
        headers={"x": EVIL},
    )
    shop.services["billing"].error = EXPIRED + EVIL
    await shop.sell(1, key=EVIL, tenant=EVIL)
    await shop.kit.run_for("5m")
    letter = await shop.letter("billing")
    await operations.edit(letter, {EVIL: 1}, by=EVIL, why=EVIL)
    await shop.kit.run_for("2m")
    await operations.pause("mail", by=EVIL, why=EVIL)
    await operations.pause_tenant(EVIL, by=EVIL, why=EVIL)
    await operations.override("billing", lasts="2h", by=EVIL, why=EVIL, rate="5/s")
    await operations.pause_schedule("stock-check", by=EVIL, why=EVIL)
    await operations.create_token("evil", role="view", tenant=EVIL, by=EVIL, why=EVIL)
    await operations.start_replay([letter], by=EVIL, why=EVIL)


def _foreign(shop: Showcase, seen: list[str]) -> Callable[[Request], None]:
    def note(request: Request) -> None:
        if not request.url.startswith(shop.url):
            seen.append(request.url)

    return note


async def test_no_page_is_shown_in_a_frame_and_none_can_send_our_forms(
    browser: Browser, morning: Showcase, shop: Showcase
) -> None:
    """The one server stands for somebody else's: another port is another origin."""
    before = len(await morning.operations.audit())
    async with opened(browser) as page:
        await page.goto(morning.url)  # the browser has our cookie now

        async def answer_evil(route: object) -> None:
            await route.fulfill(  # type: ignore[attr-defined]
                content_type="text/html",
                body=f"""<iframe src="{morning.url}/"></iframe>
                <form method="post" action="{morning.url}/destinations/pause">
                <input name="name" value="crm"><button>Win a prize</button></form>""",
            )

        await page.route(f"{shop.url}/prize", answer_evil)
        await page.goto(f"{shop.url}/prize")
        framed = page.frames[-1]
        assert "Redrive" not in await framed.content()
        await page.get_by_role("button", name="Win a prize").click()
        assert "none may" in await page.content()

    assert len(await morning.operations.audit()) == before


async def test_the_pictures_of_the_docs_are_there_and_small() -> None:
    found = {one.stem: one.stat().st_size for one in FOLDER.glob("*.webp")}

    assert set(found) == set(KEPT)
    assert max(found.values()) < 120_000
