"""The demo: a small shop on the real engine, from first order to final count, within a minute."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from redrive.demo.count import Count
    from redrive.demo.narrator import Narrator, Playbill
    from redrive.demo.venue import Venue

__all__ = ["perform", "run_demo"]

_BROKEN_OFF = 130


def run_demo(
    *,
    plain: bool = False,
    speed: float = 1.0,
    store: str | None = None,
    web: bool = False,
    gateway: bool = False,
) -> int:
    """Play the demo and return its exit code: 0 if the final count adds up.

    It plays in a temporary SQLite file, or in a schema of its own in the PostgreSQL database named.
    It is a live picture on a terminal that can show one, and plain lines otherwise or if asked.
    With `web` the dashboard is open beside it. With `gateway` it is the story of a file that says
    which orders go to whose API, and of no Python at all.
    """
    from importlib.util import find_spec

    from redrive.errors import ConfigurationError

    if not speed > 0:
        raise ConfigurationError(
            f"speed is {speed!r}; it is how many times faster the story runs, such as 1 or 10."
        )
    if find_spec("aiohttp") is None:
        raise ConfigurationError(
            "The demo delivers to HTTP services of its own, which needs aiohttp; "
            "install it with: pip install 'redrive[http]'"
        )
    if gateway and find_spec("jinja2") is None:
        raise ConfigurationError(
            "The demo of the gateway renders templates, which needs jinja2; "
            "install it with: pip install 'redrive[gateway]'"
        )
    if web:
        from redrive.demo.dashboard import check_extra

        check_extra()
    from redrive.demo.narrators.lines import Lines
    from redrive.demo.narrators.picture import Picture, can_show_picture

    playbill = _playbill(gateway=gateway)
    is_plain = plain or not can_show_picture()
    narrator = Lines(sys.stdout, playbill) if is_plain else Picture(playbill=playbill)
    return perform(narrator, speed=speed, store=store, web=web, gateway=gateway)


def _playbill(*, gateway: bool) -> Playbill:
    from redrive.demo.gateway.story import PLAYBILL
    from redrive.demo.narrator import SHOP

    return PLAYBILL if gateway else SHOP


def perform(
    narrator: Narrator,
    *,
    speed: float = 1.0,
    store: str | None = None,
    web: bool = False,
    gateway: bool = False,
) -> int:
    """Play the story where nothing is left of it, tell it to the narrator, and return the code."""
    import asyncio
    from pathlib import Path
    from tempfile import TemporaryDirectory

    count: Count | None = None
    with (
        TemporaryDirectory(prefix="redrive-demo-", ignore_cleanup_errors=True) as folder,
        suppress(KeyboardInterrupt, asyncio.CancelledError),
        narrator,
    ):
        venue = _venue(store, Path(folder))
        count = asyncio.run(_tell(narrator, venue, Path(folder), speed, web=web, gateway=gateway))
    if count is None:
        narrator.stop()
        return _BROKEN_OFF
    narrator.end(count)
    return 0 if count.adds_up else 1


def _venue(store: str | None, folder: Path) -> Venue:
    from redrive.app.config import parse_store
    from redrive.demo.venues.file import File
    from redrive.errors import ConfigurationError

    if store is None:
        return File(folder)
    if parse_store(store).scheme != "postgresql":
        raise ConfigurationError(
            f"The demo's store is {store!r}; by itself it plays in a temporary SQLite file, with "
            "--store in a PostgreSQL database, such as postgresql://localhost/shop."
        )
    from redrive.demo.venues.postgres import Postgres

    return Postgres(store, folder)


async def _tell(
    narrator: Narrator, venue: Venue, folder: Path, speed: float, *, web: bool, gateway: bool
) -> Count:
    import asyncio
    import signal

    if gateway:
        from redrive.demo.gateway.story import tell
    else:
        from redrive.demo.story import tell

    telling = asyncio.ensure_future(
        tell(narrator, venue=venue, folder=folder, speed=speed, web=web)
    )
    with suppress(ValueError, RuntimeError):  # only the main thread hears signals
        for name in (signal.SIGHUP, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, telling.cancel)
    return await telling
