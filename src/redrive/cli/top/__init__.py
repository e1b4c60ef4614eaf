"""The command `redrive top`: the whole system at a glance, for as long as one looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import Json, Store, Target
from redrive.cli.printing import flush_output, print_json, print_result

if TYPE_CHECKING:
    from datetime import timedelta

    from rich.console import Console

    from redrive.cli.show.top.view import View
    from redrive.cli.top.lookout import Lookout
    from redrive.cli.top.viewer import Viewer

__all__ = ["top"]

_ENDED_BY_SIGNAL = 130


def top(
    target: Target = None,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Print one frame: two looks, so that it has a pace.")
    ] = False,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="How often to look, such as 500ms or 5s.")
    ] = "1s",
    sort: Annotated[
        str,
        typer.Option(metavar="WHAT", help="trouble, name, pending, failed or rate."),
    ] = "trouble",
    store: Store = None,
    json: Json = False,
) -> None:
    """Watch destinations, workers and dead letters, live.

    In a terminal: q quits, p pauses the picture, s sorts by something else.
    """
    import asyncio

    from redrive.cli.reading import read_choice
    from redrive.cli.session import chosen_store, operated_at
    from redrive.cli.show.top.view import Sort, View
    from redrive.cli.top.lookout import Lookout
    from redrive.errors import UsageError

    if json and not once:
        raise UsageError("--json prints one document, so it needs --once.")
    app = operated_at(chosen_store(target, store))
    lookout = Lookout(app)
    view = View(
        store=lookout.address,
        every=_read_every(every),
        sort=read_choice(Sort, sort, name="sort"),
    )

    async def session() -> int:
        try:
            return await (_print_once(view, lookout, json=json) if once else _watch(view, lookout))
        finally:
            await app.close()

    code = asyncio.run(session())
    if code:
        raise typer.Exit(code)


def _read_every(text: str) -> timedelta:
    from datetime import timedelta

    from redrive.errors import UsageError
    from redrive.model.duration import duration

    every = duration(text, name="every")
    if not timedelta(milliseconds=100) <= every <= timedelta(hours=1):
        raise UsageError(f"every is {text!r}; it is between 100ms and 1h.")
    return every


async def _print_once(view: View, lookout: Lookout, *, json: bool) -> int:
    from msgspec.structs import asdict
    from rich.console import Console

    from redrive.cli.show.top.frame import frame
    from redrive.clock import SystemClock

    view = view.after(await lookout.read())
    await SystemClock().sleep(view.every.total_seconds())
    reading = await lookout.read()
    view = view.after(reading)
    if json:
        rest = asdict(reading)
        figures = asdict(rest.pop("figures"))
        rates = {name: view.per_second(name) for name in view.marks[-1].delivered}
        print_json({**figures, **rest, "per_second": rates})
    else:
        print_result(frame(view, width=Console().width))
    return 0


async def _watch(view: View, lookout: Lookout) -> int:
    from rich.console import Console

    from redrive.cli.top.viewer import Viewer
    from redrive.clock import SystemClock

    console = Console(highlight=False, markup=False, emoji=False)
    viewer = Viewer(view, read=lookout.read, clock=SystemClock())
    # What is wrong from the beginning is a mistake of the caller, and is told as one.
    viewer.see(await lookout.read())
    if console.is_terminal and not console.is_dumb_terminal:
        return await _watch_in_terminal(viewer, console)

    def show(shown: View) -> None:
        from redrive.cli.show.top.frame import frame

        print_result(frame(shown, width=console.width), "")
        flush_output()

    await viewer.run(show)
    return 0


async def _watch_in_terminal(viewer: Viewer, console: Console) -> int:
    import asyncio
    import signal

    from redrive.cli.top.terminal import keys_to, screen_on

    is_told = False

    def leave() -> None:
        nonlocal is_told
        is_told = True
        viewer.quit()

    loop = asyncio.get_running_loop()
    # Otherwise they would end the process with the terminal left as the picture needs it.
    for name in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(name, leave)
    loop.add_signal_handler(signal.SIGWINCH, viewer.redraw)
    with screen_on(console) as show, keys_to(viewer.press):
        await viewer.run(show)
    return _ENDED_BY_SIGNAL if is_told else 0
