"""The client that blocks: the same for code without an event loop, and without aiohttp."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from redrive.client.asynchronous import AsyncClient, address_of
from redrive.client.connection import Connection
from redrive.client.connections.standard import StandardConnection
from redrive.clock import ThreadClock
from redrive.model.duration import Duration, duration

__all__ = ["Client"]

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    call: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Return a method that does the same at once, in the thread of its caller."""

    @wraps(call)
    def blocked(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _run(call(self._inner, *args, **kwargs))

    return blocked


def _iterating(
    call: Callable[Concatenate[AsyncClient, P], AsyncIterator[T]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """Return a method that gives the same one by one."""

    @wraps(call)
    def iterated(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        found = call(self._inner, *args, **kwargs)
        try:
            while True:
                try:
                    one = _run(_next(found))
                except StopAsyncIteration:
                    return
                yield one
        finally:
            if isinstance(found, AsyncGenerator):
                _run(_end(found))

    return iterated


async def _end(found: AsyncGenerator[T, None]) -> None:
    await found.aclose()


async def _next(found: AsyncIterator[T]) -> T:
    return await anext(found)


def _run(call: Coroutine[Any, Any, T]) -> T:
    """Run a call to its end: its connection and its clock block, so that it waits for nobody."""
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a client that blocks was given a connection that does not")


class Client:
    """Publishes and operates through a server, from any thread; see `AsyncClient`.

    >>> def pay(url, token):
    ...     with Client(url, token=token) as client:
    ...         client.publish("order.paid", {"order": 42}, key="order-42")
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: Duration = "35s",
        patience: Duration = "30s",
        connection: Connection | None = None,
    ) -> None:
        clock = ThreadClock()
        seconds = duration(timeout, name="timeout").total_seconds()
        self._inner = AsyncClient(
            url,
            token=token,
            timeout=timeout,
            patience=patience,
            connection=connection
            or StandardConnection(address_of(url), timeout=seconds, clock=clock),
            clock=clock,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.server!r})"

    @property
    def server(self) -> str:
        """The address of the server."""
        return self._inner.server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    close = _blocking(AsyncClient.close)
    publish = _blocking(AsyncClient.publish)
    publish_many = _blocking(AsyncClient.publish_many)
    live = _iterating(AsyncClient.live)

    status = _blocking(AsyncClient.status)
    schema_version = _blocking(AsyncClient.schema_version)
    examine = _blocking(AsyncClient.examine)
    recount = _blocking(AsyncClient.recount)
    stuck = _blocking(AsyncClient.stuck)
    deliveries = _blocking(AsyncClient.deliveries)
    each_delivery = _iterating(AsyncClient.each_delivery)
    dead_letters = _blocking(AsyncClient.dead_letters)
    each_dead_letter = _iterating(AsyncClient.each_dead_letter)
    groups = _blocking(AsyncClient.groups)
    outdated_groups = _blocking(AsyncClient.outdated_groups)
    select = _blocking(AsyncClient.select)
    show = _blocking(AsyncClient.show)
    reveal = _blocking(AsyncClient.reveal)
    conditions = _blocking(AsyncClient.conditions)
    find_events = _blocking(AsyncClient.find_events)
    each_event = _iterating(AsyncClient.each_event)
    show_event = _blocking(AsyncClient.show_event)
    reveal_event = _blocking(AsyncClient.reveal_event)
    delivery_of = _blocking(AsyncClient.delivery_of)
    result = _blocking(AsyncClient.result)
    reached = _blocking(AsyncClient.reached)
    events = _blocking(AsyncClient.events)
    each_logged_event = _iterating(AsyncClient.each_logged_event)
    audit = _blocking(AsyncClient.audit)
    each_audit_entry = _iterating(AsyncClient.each_audit_entry)
    lanes = _blocking(AsyncClient.lanes)
    trends = _blocking(AsyncClient.trends)
    gates = _blocking(AsyncClient.gates)
    schedules = _blocking(AsyncClient.schedules)
    show_schedule = _blocking(AsyncClient.show_schedule)
    projections = _blocking(AsyncClient.projections)
    projection = _blocking(AsyncClient.projection)
    replays = _blocking(AsyncClient.replays)
    show_replay = _blocking(AsyncClient.show_replay)
    tenants = _blocking(AsyncClient.tenants)

    replay = _blocking(AsyncClient.replay)
    render_again = _blocking(AsyncClient.render_again)
    delete = _blocking(AsyncClient.delete)
    resolve = _blocking(AsyncClient.resolve)
    reopen = _blocking(AsyncClient.reopen)
    cancel = _blocking(AsyncClient.cancel)
    reschedule = _blocking(AsyncClient.reschedule)
    prioritise = _blocking(AsyncClient.prioritise)
    edit = _blocking(AsyncClient.edit)
    preview_edit = _blocking(AsyncClient.preview_edit)
    plan_replay = _blocking(AsyncClient.plan_replay)
    start_replay = _blocking(AsyncClient.start_replay)
    pause_replay = _blocking(AsyncClient.pause_replay)
    resume_replay = _blocking(AsyncClient.resume_replay)
    cancel_replay = _blocking(AsyncClient.cancel_replay)
    auto_replays = _blocking(AsyncClient.auto_replays)
    pause = _blocking(AsyncClient.pause)
    resume = _blocking(AsyncClient.resume)
    override = _blocking(AsyncClient.override)
    end_override = _blocking(AsyncClient.end_override)
    open_breaker = _blocking(AsyncClient.open_breaker)
    reset_breaker = _blocking(AsyncClient.reset_breaker)
    reset_breakers = _blocking(AsyncClient.reset_breakers)
    pause_tenant = _blocking(AsyncClient.pause_tenant)
    resume_tenant = _blocking(AsyncClient.resume_tenant)
    pause_schedule = _blocking(AsyncClient.pause_schedule)
    resume_schedule = _blocking(AsyncClient.resume_schedule)
    run_schedule = _blocking(AsyncClient.run_schedule)
    save_schedule = _blocking(AsyncClient.save_schedule)
    alter_schedule = _blocking(AsyncClient.alter_schedule)
    delete_schedule = _blocking(AsyncClient.delete_schedule)

    prunable = _blocking(AsyncClient.prunable)
    prune = _blocking(AsyncClient.prune)
    export_page = _blocking(AsyncClient.export_page)
    export = _iterating(AsyncClient.export)
    restore = _blocking(AsyncClient.restore)
    remove_destination = _blocking(AsyncClient.remove_destination)
    restore_destination = _blocking(AsyncClient.restore_destination)
    move = _blocking(AsyncClient.move)
    fail_pending = _blocking(AsyncClient.fail_pending)
    delete_pending = _blocking(AsyncClient.delete_pending)
    plan_backfill = _blocking(AsyncClient.plan_backfill)
    backfill = _blocking(AsyncClient.backfill)
    carry_out = _blocking(AsyncClient.carry_out)
    plan_erase = _blocking(AsyncClient.plan_erase)
    erase = _blocking(AsyncClient.erase)
    reset_projection = _blocking(AsyncClient.reset_projection)
    rebuild_projection = _blocking(AsyncClient.rebuild_projection)
    cancel_rebuild = _blocking(AsyncClient.cancel_rebuild)
    swap_projection = _blocking(AsyncClient.swap_projection)
    drop_projection = _blocking(AsyncClient.drop_projection)
    tokens = _blocking(AsyncClient.tokens)
    create_token = _blocking(AsyncClient.create_token)
    revoke_token = _blocking(AsyncClient.revoke_token)
    secrets = _blocking(AsyncClient.secrets)
    set_secret = _blocking(AsyncClient.set_secret)
    rotate_secrets = _blocking(AsyncClient.rotate_secrets)
    encryption = _blocking(AsyncClient.encryption)
    encrypt = _blocking(AsyncClient.encrypt)
    decrypt = _blocking(AsyncClient.decrypt)
    finish_encryption = _blocking(AsyncClient.finish_encryption)
    delete_secret = _blocking(AsyncClient.delete_secret)
    journal = _blocking(AsyncClient.journal)
    journal_records = _blocking(AsyncClient.journal_records)
    drain_journal = _blocking(AsyncClient.drain_journal)

    services = _blocking(AsyncClient.services)
    rules = _blocking(AsyncClient.rules)
    save_service = _blocking(AsyncClient.save_service)
    request_log = _blocking(AsyncClient.request_log)
    try_service = _blocking(AsyncClient.try_service)
    alter_service = _blocking(AsyncClient.alter_service)
    delete_service = _blocking(AsyncClient.delete_service)
    save_rule = _blocking(AsyncClient.save_rule)
    alter_rule = _blocking(AsyncClient.alter_rule)
    delete_rule = _blocking(AsyncClient.delete_rule)
    sources = _blocking(AsyncClient.sources)
    save_source = _blocking(AsyncClient.save_source)
    alter_source = _blocking(AsyncClient.alter_source)
    delete_source = _blocking(AsyncClient.delete_source)
    preview_rule = _blocking(AsyncClient.preview_rule)
    past_versions = _blocking(AsyncClient.past_versions)
    export_gateway = _blocking(AsyncClient.export_gateway)
    plan_gateway = _blocking(AsyncClient.plan_gateway)
    apply_gateway = _blocking(AsyncClient.apply_gateway)
