"""A browser that the tests drive, and pictures of pages."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser, Page, async_playwright

from tests.servers.programs import browser_program

__all__ = ["NARROW", "THEMES", "WIDE", "Theme", "browsing", "opened", "picture"]

Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
NARROW, WIDE = 390, 1280
_HEIGHTS = {NARROW: 844, WIDE: 800}
_QUALITY = 70


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """Start the browser, and end it with the block."""
    # Its own fence needs rights that root in a container does not have.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=browser_program(),
            args=[*flags, "--disable-gpu", "--hide-scrollbars", "--font-render-hinting=none"],
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def opened(
    browser: Browser, *, width: int = WIDE, theme: Theme = "light", scripts: bool = True
) -> AsyncIterator[Page]:
    """Open a window of its own, which shares nothing with others."""
    context = await browser.new_context(
        viewport={"width": width, "height": _HEIGHTS.get(width, 800)},
        color_scheme=theme,
        java_script_enabled=scripts,
        timezone_id="Europe/Berlin",
        locale="en-GB",
    )
    context.set_default_timeout(30_000)
    try:
        yield await context.new_page()
    finally:
        await context.close()


async def picture(page: Page, path: Path, *, whole: bool = True) -> None:
    """Write a picture of a page, by its suffix: `.webp` is the smallest, `.png` loses nothing."""
    kind = path.suffix.removeprefix(".")
    session = await page.context.new_cdp_session(page)
    taken = await session.send(
        "Page.captureScreenshot",
        {
            "format": kind,
            "captureBeyondViewport": whole,
            **({"quality": _QUALITY} if kind == "webp" else {}),
        },
    )
    await asyncio.to_thread(path.write_bytes, base64.b64decode(taken["data"]))
