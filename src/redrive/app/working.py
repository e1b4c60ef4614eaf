"""Working: a worker put together of what an app has open, its settings and its ports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from redrive.app.config import Settings
from redrive.app.declaration import Ports
from redrive.app.session import Session, SessionWorker
from redrive.archive import open_archive
from redrive.observer import Observer
from redrive.sealing import Folders, KeySource, Secrets
from redrive.store import LineSeal, Store
from redrive.transport import Endpoint
from redrive.transports.options import need
from redrive.worker import PlannedSchedule, WorkerSettings
from redrive.worker.maintenance import Upkeep

if TYPE_CHECKING:
    from redrive.operations.drafting import Drafting
    from redrive.worker.provider import Provider

__all__ = ["make_drafter", "make_provider", "make_secrets", "session_worker"]


def session_worker(
    session: Session,
    settings: Settings,
    ports: Ports,
    *,
    endpoints: Sequence[Endpoint],
    open_store: Callable[[], Awaitable[Store]],
    observer: Observer,
    schedules: Sequence[PlannedSchedule],
    services: Secrets | None,
    seal: LineSeal,
) -> SessionWorker:
    """Return a worker for these endpoints, and with secrets for the services of the store."""
    worker = SessionWorker(
        store=session.store,
        open_store=open_store,
        endpoints=endpoints,
        settings=WorkerSettings(
            concurrency=settings.concurrency,
            threads=settings.threads,
            largest_share=settings.largest_share,
            lease=settings.lease,
            grace=settings.grace,
            poll=settings.poll,
            generations=settings.generations,
            upkeep=Upkeep(
                retention=settings.retention,
                archive=open_archive(settings.export_folder, seal=seal),
            ),
            host=ports.host,
            redaction=settings.redaction,
        ),
        clock=ports.clock,
        ids=ports.ids,
        rng=ports.rng,
        executor=ports.executor,
        observer=observer,
        on_wedged=ports.end_process,
        publisher=session.publisher,
        schedules=schedules,
        provider=None if services is None else make_provider(session.store, ports, services),
    )
    worker.session = session
    return worker


def make_drafter() -> Drafting:
    """Return what knows documents of services and the like; it needs what templates need."""
    need_gateway()
    from redrive.app.gateway.drafter import Drafter  # noqa: PLC0415 - only who uses it pays

    return Drafter()


def need_gateway() -> None:
    """Refuse to deal with documents where what templates need is not installed."""
    need("Services, rules, sources and schedules", extra="gateway", modules=("aiohttp", "jinja2"))


def make_secrets(
    store: Callable[[], Awaitable[Store]], settings: Settings, ports: Ports
) -> Secrets:
    """Return what looks secrets up, with the keys and in the folders that the settings name."""
    file = settings.keys_file
    folders = Folders(settings.service_folders, never=[file] if file else [])
    return Secrets(store, KeySource(file), clock=ports.clock, folders=folders)


def make_provider(store: Store, ports: Ports, secrets: Secrets) -> Provider:
    """Return what makes ways to services of the store."""
    need_gateway()
    from redrive.app.gateway.provider import ServiceProvider  # noqa: PLC0415 - as above

    return ServiceProvider(store, ports, secrets)
