"""The `redrive` command: the tree of commands, and how each of them may end."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated, Any

import typer

from redrive.cli import (
    access,
    admin,
    archiving,
    destinations,
    editing,
    encryption,
    erasing,
    events,
    gateway,
    inspect,
    journal,
    previewing,
    projections,
    replays,
    rerouting,
    rules,
    schedules,
    secrets,
    services,
    sources,
    tenants,
    trends,
    users,
)
from redrive.cli.needed import command_for
from redrive.cli.options import Store, StoreUrl, Target
from redrive.cli.printing import flush_output, print_error, print_traceback, silence_output
from redrive.cli.top import top

__all__ = ["main"]

_BROKEN = 1
_USAGE = 2
_STORE = 3
_INTERRUPTED = 130
_MANY_OBJECTS = 50_000
_EPILOG = """
\b
Exit codes:
  0    all went well
  1    something is wrong, or not everything was changed as asked
  2    what was asked for cannot be done as asked
  3    the store could not do it
  130  interrupted
"""
# Plain help comes in half the time, and reads the same everywhere.
_PLAIN: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}

app = typer.Typer(
    name="redrive",
    help="Deliver events and never lose one.",
    epilog=_EPILOG,
    **_PLAIN,
)
dlq = typer.Typer(help="Look at dead letters; replay, edit, resolve, export them.", **_PLAIN)
replay = typer.Typer(help="Replay many dead letters, one first; follow and steer it.", **_PLAIN)
event = typer.Typer(help="Look at events, and at what became of them.", **_PLAIN)
delivery = typer.Typer(help="Look at deliveries; change those that wait.", **_PLAIN)
destination = typer.Typer(
    help="Look at destinations; pause, limit, remove, restore or backfill them.", **_PLAIN
)
breaker = typer.Typer(help="Look at breakers; open or reset them by hand.", **_PLAIN)

projection = typer.Typer(help="Look at projections; pause, rebuild, swap or drop them.", **_PLAIN)
schedule = typer.Typer(
    help="Look at schedules; pause, resume or run them, and change those of the store.", **_PLAIN
)
service = typer.Typer(help="Look at stored services; add, change, delete them.", **_PLAIN)
rule = typer.Typer(help="Look at rules of services; add, change, delete them.", **_PLAIN)
source = typer.Typer(
    help="Look at those whose webhooks are let in; add, change, delete them.", **_PLAIN
)
tenant = typer.Typer(help="Look at tenants; pause and resume them.", **_PLAIN)


journals = typer.Typer(help="Look at the journal of this machine; drain it.", **_PLAIN)
user = typer.Typer(help="Look at users; add and remove them.", **_PLAIN)
secret = typer.Typer(help="Look at secrets; set, rotate and delete them.", **_PLAIN)
encrypted = typer.Typer(help="Encrypt payloads at rest, and look how far that is.", **_PLAIN)
token = typer.Typer(help="Look at access tokens; make and revoke them.", **_PLAIN)


def _tell_version(is_asked: bool) -> None:  # noqa: FBT001 - typer calls it so
    if is_asked:
        import redrive

        typer.echo(f"redrive {redrive.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    *,
    debug: Annotated[  # noqa: ARG001 - `main` has read it, before anything could fail
        bool, typer.Option("--debug", help="Show the traceback of an error.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - its callback has answered
        bool,
        typer.Option("--version", is_eager=True, callback=_tell_version, help="Show the version."),
    ] = False,
) -> None:
    _help_if_alone(context)


@dlq.callback(invoke_without_command=True)
@replay.callback(invoke_without_command=True)
@event.callback(invoke_without_command=True)
@delivery.callback(invoke_without_command=True)
@destination.callback(invoke_without_command=True)
@breaker.callback(invoke_without_command=True)
@schedule.callback(invoke_without_command=True)
@projection.callback(invoke_without_command=True)
@tenant.callback(invoke_without_command=True)
@service.callback(invoke_without_command=True)
@rule.callback(invoke_without_command=True)
@source.callback(invoke_without_command=True)
@token.callback(invoke_without_command=True)
@secret.callback(invoke_without_command=True)
@encrypted.callback(invoke_without_command=True)
@user.callback(invoke_without_command=True)
@journals.callback(invoke_without_command=True)
def _help_if_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def demo(
    *,
    plain: Annotated[bool, typer.Option("--plain", help="Lines of text, no live picture.")] = False,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A PostgreSQL database to play in, such as postgresql://localhost/shop.",
        ),
    ] = None,
    web: Annotated[
        bool, typer.Option("--web", help="The dashboard beside it, at 127.0.0.1.")
    ] = False,
    gateway: Annotated[
        bool,
        typer.Option("--gateway", help="Services and rules by a file, and no Python at all."),
    ] = False,
) -> None:
    """Watch a small shop for most of a minute: nothing is lost.

    Two worker processes bring its orders to two HTTP services on this machine, over a store in a
    temporary folder. A worker is killed, a service goes down and its breaker opens, it comes back
    with a bug, and dead letters are replayed, first with a fix that does not work; one of them has
    its payload corrected. In the end the shop's receipts, the services' ledgers and the store are
    compared: the exit code is 0 only if everything has arrived.

    With --gateway it is another story: a file says which orders go to the APIs of two companies,
    and in which shape. One of them is down, and later has another name for a field; the rule is
    corrected, and the dead letters are rendered again.

    With --store it plays in a PostgreSQL database, in a schema of its own that is dropped in the
    end. With --web the dashboard is open beside it, and each scene says which page shows it.
    """
    from redrive.demo import run_demo

    raise typer.Exit(run_demo(plain=plain, store=store, web=web, gateway=gateway))


@app.command()
def worker(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:APP",
            help="Such as shop:app; without one, the services of the store.",
            show_default=False,
        ),
    ] = None,
    *,
    processes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Supervise this many processes.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Deliveries at once in each.")
    ] = None,
    log_level: Annotated[
        str, typer.Option(metavar="LEVEL", help="debug, info, warning, error or critical.")
    ] = "info",
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="PORT", help="Tell health and metrics here."),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="The address that port is on.")
    ] = "127.0.0.1",
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Serve this destination alone.")
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option("--except", metavar="NAME", help="Serve all but this destination."),
    ] = None,
    services: Annotated[
        bool, typer.Option("--services", help="Serve the services of the store, too.")
    ] = False,
    store: StoreUrl = None,
) -> None:
    """Deliver what is due, until told to stop.

    It serves the destinations of an app, or without one the services that the store describes.
    """
    from redrive.cli.worker import Choice
    from redrive.cli.worker import worker as run_worker

    raise typer.Exit(
        run_worker(
            target,
            store=store,
            processes=processes,
            concurrency=concurrency,
            log_level=log_level,
            port=port,
            host=host,
            choice=Choice(tuple(only or ()), tuple(leave_out or ()), services=services),
        )
    )


@app.command()
def serve(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:APP", help="Such as shop:app; else --store alone.", show_default=False
        ),
    ] = None,
    *,
    host: Annotated[str, typer.Option(metavar="HOST", help="The address to listen at.")] = (
        "127.0.0.1"
    ),
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="The port; 0 for any.")
    ] = 8321,
    worker: Annotated[
        bool, typer.Option("--worker", help="Run a worker in the same process.")
    ] = False,
    services: Annotated[
        bool,
        typer.Option("--services", help="Have the worker of an app serve stored services, too."),
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name that callers use; may be repeated."),
    ] = None,
    trust_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS", help="A proxy whose X-Forwarded headers count; may be repeated."
        ),
    ] = None,
    trust_user_header: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The header in which the trusted proxy says whom it has let in.",
            show_default=False,
        ),
    ] = None,
    root_path: Annotated[
        str, typer.Option(metavar="PATH", help="The path below which a proxy has put it.")
    ] = "",
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="How often each token may ask, such as 100/s."),
    ] = None,
    log_level: Annotated[
        str, typer.Option(metavar="LEVEL", help="debug, info, warning, error or critical.")
    ] = "info",
    store: StoreUrl = None,
) -> None:
    """Serve the dashboard, and the HTTP API to publish and operate from any language."""
    from redrive.cli.serve import Address
    from redrive.cli.serve import serve as run_server

    address = Address(
        host=host,
        port=port,
        hosts=tuple(allow_host or ()),
        proxies=tuple(trust_proxy or ()),
        user_header=trust_user_header,
        root_path=root_path,
        rate=rate,
    )
    raise typer.Exit(
        run_server(
            target,
            store=store,
            address=address,
            with_worker=worker,
            services=services,
            log_level=log_level,
        )
    )


@app.command()
def mcp(
    target: Target = None,
    *,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT",
            help="operate: carry plans out; reveal: show what events carry. May be repeated.",
        ),
    ] = None,
    most: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Deliveries in one plan at most.")
    ] = 1000,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="PORT", help="Serve HTTP here; 0 for any."),
    ] = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="The address to listen at.")] = (
        "127.0.0.1"
    ),
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name that callers use; may be repeated."),
    ] = None,
    trust_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS", help="A proxy whose X-Forwarded headers count; may be repeated."
        ),
    ] = None,
    root_path: Annotated[
        str, typer.Option(metavar="PATH", help="The path below which a proxy has put it.")
    ] = "",
    log_level: Annotated[
        str, typer.Option(metavar="LEVEL", help="debug, info, warning, error or critical.")
    ] = "info",
    store: Store = None,
) -> None:
    """Give an assistant tools to look and to suggest, by the Model Context Protocol.

    It speaks over standard input and output, or with --port over HTTP, where callers need a token.
    It changes nothing unless --allow operate is said, and then only what was suggested before.
    """
    from redrive.cli.mcp import serve_assistant
    from redrive.cli.serve import Address
    from redrive.cli.session import chosen_store

    address = None
    if port is not None:
        address = Address(
            host=host,
            port=port,
            hosts=tuple(allow_host or ()),
            proxies=tuple(trust_proxy or ()),
            root_path=root_path,
        )
    raise typer.Exit(
        serve_assistant(
            chosen_store(target, store),
            allow=tuple(allow or ()),
            most=most,
            address=address,
            log_level=log_level,
        )
    )


app.command()(admin.init)
app.command()(admin.publish)
app.command()(inspect.status)
app.command()(top)
app.command("trends")(trends.show_trends)
app.add_typer(dlq, name="dlq")
app.add_typer(replay, name="replay")
app.add_typer(event, name="event")
app.add_typer(delivery, name="delivery")
app.add_typer(destination, name="destination")
app.add_typer(breaker, name="breaker")
app.add_typer(tenant, name="tenant")
app.add_typer(schedule, name="schedule")
app.add_typer(service, name="service")
app.add_typer(rule, name="rule")
app.add_typer(source, name="source")
app.add_typer(token, name="token")
app.add_typer(secret, name="secret")
app.add_typer(encrypted, name="encryption")
app.add_typer(user, name="user")
app.add_typer(projection, name="projection")
app.add_typer(journals, name="journal")
app.command()(gateway.plan)
app.command()(gateway.apply)
app.command("export-config")(gateway.export_config)
app.command()(inspect.audit)
app.command()(archiving.prune)
app.command()(erasing.erase)
app.command()(inspect.doctor)

dlq.command("list")(inspect.list_dead_letters)
dlq.command("groups")(inspect.groups)
dlq.command("show")(inspect.show)
dlq.command("replay")(admin.replay)
dlq.command("edit")(editing.edit)
dlq.command("resolve")(admin.resolve)
dlq.command("reopen")(admin.reopen)
dlq.command("delete")(admin.delete)
dlq.command("export")(archiving.export)
dlq.command("import")(archiving.import_letters)

replay.command("plan")(replays.plan)
replay.command("start")(replays.start)
replay.command("list")(replays.list_replays)
replay.command("show")(replays.show)
replay.command("pause")(replays.pause)
replay.command("resume")(replays.resume)
replay.command("cancel")(replays.cancel)

event.command("list")(events.list_events)
event.command("show")(events.show_event)

delivery.command("list")(inspect.list_deliveries)
delivery.command("show")(inspect.show)
delivery.command("cancel")(admin.cancel)
delivery.command("reschedule")(admin.reschedule)
delivery.command("prioritise")(admin.prioritise)

destination.command("list")(destinations.list_destinations)
destination.command("lanes")(destinations.list_lanes)
destination.command("pause")(destinations.pause)
destination.command("resume")(destinations.resume)
destination.command("set")(destinations.set_limits)
destination.command("unset")(destinations.unset_limits)
destination.command("remove")(rerouting.remove)
destination.command("restore")(rerouting.restore)
destination.command("move")(rerouting.move)
destination.command("fail")(rerouting.fail)
destination.command("delete")(rerouting.delete)
destination.command("backfill")(rerouting.backfill)

breaker.command("list")(destinations.list_breakers)
breaker.command("open")(destinations.open_breaker)
breaker.command("reset")(destinations.reset_breaker)

projection.command("list")(projections.list_projections)
projection.command("show")(projections.show)
projection.command("pause")(projections.pause)
projection.command("resume")(projections.resume)
projection.command("reset")(projections.reset)
projection.command("rebuild")(projections.rebuild)
projection.command("swap")(projections.swap)
projection.command("drop")(projections.drop)
schedule.command("list")(schedules.list_schedules)
schedule.command("show")(schedules.show)
schedule.command("pause")(schedules.pause)
schedule.command("resume")(schedules.resume)
schedule.command("run")(schedules.run)
schedule.command("add")(schedules.add_schedule)
schedule.command("set")(schedules.set_schedule)
schedule.command("delete")(schedules.delete_schedule)

service.command("list")(services.list_services)
service.command("show")(services.show_service)
service.command("add")(services.add_service)
service.command("set")(services.set_service)
service.command("log")(services.log)
service.command("test")(services.try_service)
service.command("enable")(services.enable_service)
service.command("disable")(services.disable_service)
service.command("delete")(services.delete_service)
rule.command("list")(rules.list_rules)
rule.command("show")(rules.show_rule)
rule.command("add")(rules.add_rule)
rule.command("set")(rules.set_rule)
rule.command("enable")(rules.enable_rule)
rule.command("disable")(rules.disable_rule)
rule.command("preview")(previewing.preview_rule)
rule.command("delete")(rules.delete_rule)
source.command("list")(sources.list_sources)
source.command("show")(sources.show_source)
source.command("add")(sources.add_source)
source.command("set")(sources.set_source)
source.command("enable")(sources.enable_source)
source.command("disable")(sources.disable_source)
source.command("delete")(sources.delete_source)

tenant.command("list")(tenants.list_tenants)
tenant.command("pause")(tenants.pause_tenant)
tenant.command("resume")(tenants.resume_tenant)

token.command("create")(access.create_token)
token.command("list")(access.list_tokens)
token.command("revoke")(access.revoke_token)

secret.command("set")(secrets.set_secret)
secret.command("list")(secrets.list_secrets)
secret.command("rotate")(secrets.rotate)
secret.command("delete")(secrets.delete)
encrypted.command("show")(encryption.show)
encrypted.command("on")(encryption.on)
encrypted.command("off")(encryption.off)
encrypted.command("finish")(encryption.finish)

user.command("add")(users.add)
user.command("list")(users.list_users)
user.command("password")(users.password)
user.command("remove")(users.remove)

journals.command("list")(journal.list_files)
journals.command("show")(journal.show)
journals.command("drain")(journal.drain)
journals.command("verify")(journal.verify)


def _list_whole(group: typer.Typer) -> None:
    """Have the help list what commands do in whole sentences, which are cut by default."""
    for command in group.registered_commands:
        text = getattr(command.callback, "__doc__", None) or ""
        command.short_help = " ".join(text.partition("\n\n")[0].split())
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            inner.short_help = inner.typer_instance.info.help
            _list_whole(inner.typer_instance)


_list_whole(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what goes wrong is told in one sentence."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    thresholds = gc.get_threshold()
    # What is imported stays: to look through it for garbage, again and again, takes a quarter of
    # the time of a short command.
    gc.set_threshold(_MANY_OBJECTS)
    try:
        code = command_for(app, given)(given, prog_name="redrive", standalone_mode=False)
        flush_output()
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    except BrokenPipeError:
        silence_output()
        return _BROKEN
    except Exception as error:  # noqa: BLE001 - nobody should have to read a traceback
        if "--debug" in takewhile(lambda one: one.startswith("-"), given):
            print_traceback(error)
        return _explain(error, as_json="--json" in given)
    finally:
        gc.set_threshold(*thresholds)
    return code if isinstance(code, int) else 0


def _explain(error: Exception, *, as_json: bool) -> int:
    from redrive.errors import RedriveError, StoreError, VersionConflictError

    kind = type(error).__name__
    # Typer's releases differ in where the class of its own complaints lives.
    complain = getattr(error, "format_message", None)
    if complain is not None:
        print_error("UsageError", " ".join(complain().split()), as_json=as_json)
        return _USAGE
    if isinstance(error, RedriveError):
        print_error(kind, str(error), as_json=as_json)
        # A version conflict is no failure of the store: the caller has to ask again.
        is_theirs = isinstance(error, StoreError) and not isinstance(error, VersionConflictError)
        return _STORE if is_theirs else _USAGE
    if isinstance(error, PermissionError) and error.filename is not None:
        message = (
            f"{error.filename} cannot be reached, because a folder on the way is closed to this "
            "user; run the command as its owner, let this user in with `chmod`, or name another "
            "store with --store or REDRIVE_STORE."
        )
        print_error("StoreUnavailableError", message, as_json=as_json)
        return _STORE
    if isinstance(error, OSError):
        print_error(kind, f"The operating system refused: {error}.", as_json=as_json)
        return _BROKEN
    message = f"{kind}: {error} (this should not happen; `redrive --debug …` shows where it did)"
    print_error(kind, message, as_json=as_json)
    return _BROKEN
