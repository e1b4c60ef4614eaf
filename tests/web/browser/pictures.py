"""Pictures of the dashboard for the docs; `make pictures` takes them anew.

With a folder as its argument it takes every page, narrow and wide, in both themes, to be looked at.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from playwright.async_api import Browser

from redrive.testing import Kit
from tests.web.browser.showcase import Showcase, a_shop, places, serving, tell
from tests.web.browser.studio import NARROW, THEMES, WIDE, Theme, browsing, opened, picture

KEPT: dict[str, tuple[str, int, Theme]] = {
    "overview": ("overview", WIDE, "light"),
    "overview-dark": ("overview", WIDE, "dark"),
    "overview-phone": ("overview", NARROW, "light"),
    "group": ("group", WIDE, "light"),
    "delivery": ("delivery", WIDE, "light"),
    "destination-phone": ("destination", NARROW, "dark"),
}
"""The pictures in the docs, by the page, its width and its theme."""
FOLDER = Path(__file__).parents[3] / "docs" / "pictures"


async def take(folder: Path, *, everything: bool) -> None:
    """Tell the story once, and take the pictures."""
    app, services = a_shop()
    async with Kit(app) as kit, serving(kit, app, services) as shop, browsing() as browser:
        await tell(shop)
        async with app.worker():
            await _take(shop, browser, folder, everything=everything)


async def _take(shop: Showcase, browser: Browser, folder: Path, *, everything: bool) -> None:
    known = await places(shop)
    wanted = (
        {
            f"{name}-{width}-{theme}": (name, width, theme)
            for name in known
            for width in (NARROW, WIDE)
            for theme in THEMES
        }
        if everything
        else KEPT
    )
    for file, (name, width, theme) in wanted.items():
        async with opened(browser, width=width, theme=theme) as page:
            await page.goto(shop.url + known[name])
            whole = everything or width == NARROW
            suffix = "png" if everything else "webp"
            await picture(page, folder / f"{file}.{suffix}", whole=whole)


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    chosen.mkdir(exist_ok=True)
    asyncio.run(take(chosen, everything=len(sys.argv) > 1))
