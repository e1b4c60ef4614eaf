"""The application: guard, API, document, dashboard and probes as one ASGI app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import lru_cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match
from starlette.routing import Route as StarletteRoute

from redrive.clock import Clock, Entropy, SystemEntropy
from redrive.errors import StoreError
from redrive.inbound import Door
from redrive.model.limits import Rate
from redrive.model.position import LogPosition
from redrive.model.rule import Stored
from redrive.model.setting import SettingInForce
from redrive.policies.redact import Redaction
from redrive.sealing import Secrets
from redrive.store import Figures
from redrive.web.api import LONGEST_BODY, Api, answer_problem, at_route
from redrive.web.caller import OpenDoor, Turnpike
from redrive.web.cookies import root_of
from redrive.web.guard import Guard
from redrive.web.identity import Identity
from redrive.web.inbound import PATH, Receiving
from redrive.web.live import Live
from redrive.web.metrics import Requests
from redrive.web.openapi import PREFIX, STYLE, document, page
from redrive.web.pages.site import Site
from redrive.web.problem import ProblemError
from redrive.web.route import App
from redrive.web.table import ROUTES
from redrive.worker.health import Metrics

__all__ = ["Hindrances", "ServedApp", "make_asgi"]

_JSON = "application/json"
_PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_READY_SECONDS = 5.0
_ENVELOPE = 2**18
"""How much longer than its payload the body of a publish may be."""

Hindrances = Callable[[], list[str]]
"""Says why the process is not ready for work, such as that it was told to stop."""


class ServedApp(App, AbstractAsyncContextManager[object], Protocol):
    """An app that is open while its block lasts."""

    @property
    def log(self) -> _LogOfApp:
        """The events that were published."""

    @property
    def secrets(self) -> Secrets:
        """What references stand for."""


class _LogOfApp(Protocol):
    async def end(self) -> LogPosition:
        """Return where the log ends; that costs the same however much is in the store."""


def make_asgi(
    app: ServedApp,
    *,
    hosts: Collection[str],
    login: bool,
    door: OpenDoor | None = None,
    clock: Clock,
    redaction: Redaction,
    payload_limit: int,
    rate: Rate | None = None,
    metrics: Metrics | None = None,
    hindrances: Hindrances = list,
    entropy: Entropy | None = None,
    settings: Callable[[], Sequence[SettingInForce]] = tuple,
    only_inbound: bool = False,
) -> Guard:
    """Return the ASGI app of a Redrive app, to be mounted or served alone.

    Served alone it opens the store at its start; mounted, when it is first needed. Without
    `login`, whoever reaches it may do everything; with a `door`, until that is closed. `settings`
    tells those in force, for whoever looks. With `only_inbound` there is nothing but the way in
    for webhooks, and the probes.
    """
    requests = Requests()
    identity = Identity(app, needed=login, door=door, turnpike=Turnpike(rate, clock))
    site = Site(
        app,
        identity=identity,
        clock=clock,
        entropy=entropy or SystemEntropy(),
        settings=settings,
        is_over=hindrances,
    )
    api = Api(
        app,
        clock=clock,
        identify=identity.identify,
        acted=site.forget,
        longest_body=max(LONGEST_BODY, payload_limit + _ENVELOPE),
    )
    probes = _Probes(app, api, requests, metrics, hindrances)

    async def read() -> Figures:
        return await app.operations.status()

    live = Live(read, clock=clock, is_over=hindrances)

    async def listen(request: Request) -> Response:
        try:
            caller = await api.identify(request)
            caller.check("status")
            live.check()
        except ProblemError as refused:
            return answer_problem(refused)
        return StreamingResponse(live.frames(), media_type="text/event-stream")

    async def sources() -> Sequence[Stored]:
        return await app.operations.sources()

    senders = Door(sources, lambda: app.secrets, app.publish, clock)
    receiving = Receiving(senders, longest_body=payload_limit)
    inbound = StarletteRoute(PATH, at_route(PATH, receiving.answer), methods=["POST"])
    alive = [
        StarletteRoute(path, at_route(path, answering))
        for path, answering in (("/healthz", probes.live), ("/readyz", probes.ready))
    ]

    @asynccontextmanager
    async def opened(_: Starlette) -> AsyncIterator[None]:
        async with app:
            try:
                yield
            finally:
                await site.end()

    inner = Starlette(
        routes=[inbound, *alive]
        if only_inbound
        else [
            # They are looked through in this order, and publishing is what is hot.
            *(
                StarletteRoute(f"{PREFIX}{one.path}", api.endpoint(one), methods=[one.method])
                for one in ROUTES
            ),
            *(
                StarletteRoute(path, at_route(path, answering))
                for path, answering in (
                    (f"{PREFIX}/live", listen),
                    ("/openapi.json", _tell_document),
                    ("/docs", _tell_page),
                    ("/docs/style.css", _tell_style),
                    ("/metrics", probes.measure),
                )
            ),
            inbound,
            *alive,
            *site.routes(),
        ],
        lifespan=opened,
        exception_handlers={HTTPException: _refused, Exception: _broken},
    )
    inner.router.redirect_slashes = False  # who asks for what is not there is told so
    return Guard(inner, hosts=hosts, clock=clock, redaction=redaction, requests=requests)


class _Probes:
    """Where machines ask whether the server lives, is ready, and how much it does."""

    def __init__(
        self,
        app: ServedApp,
        api: Api,
        requests: Requests,
        metrics: Metrics | None,
        hindrances: Hindrances,
    ) -> None:
        self._app = app
        self._api = api
        self._requests = requests
        self._metrics = metrics
        self._hindrances = hindrances

    async def live(self, _: Request) -> Response:
        return _say({"alive": True})

    async def ready(self, _: Request) -> Response:
        reasons = self._hindrances()
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await self._app.log.end()
        except TimeoutError:
            reasons.append(f"the store has not answered within {_READY_SECONDS:g} seconds")
        except StoreError:
            reasons.append("the store cannot be reached; the log says why")
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return _say({"ready": not reasons, "reasons": reasons}, status)

    async def measure(self, request: Request) -> Response:
        try:
            caller = await self._api.identify(request)
            caller.check("status")
        except ProblemError as refused:
            return answer_problem(refused)
        own = self._requests.render()
        if self._metrics is None:
            return Response(own, media_type="text/plain; version=0.0.4")
        try:
            operations = self._app.operations
            told = self._metrics.render(
                await operations.status(),
                await operations.gates(),
                await operations.projections(),
            )
        except StoreError:
            told = self._metrics.render(None, ())
        return Response(told + own, media_type=self._metrics.content_type)


async def _tell_document(request: Request) -> Response:
    return Response(_document_at(root_of(request)), media_type=_JSON)


async def _tell_page(request: Request) -> Response:
    return Response(
        _page_at(root_of(request)),
        media_type="text/html; charset=utf-8",
        headers={"content-security-policy": _PAGE_POLICY},
    )


async def _tell_style(_: Request) -> Response:
    return Response(STYLE, media_type="text/css; charset=utf-8")


# Anybody may ask for these two, and to make them takes a while.
@lru_cache(maxsize=8)
def _document_at(root: str) -> bytes:
    return msgspec.json.encode(document(version=version("redrive"), root=root)) + b"\n"


@lru_cache(maxsize=8)
def _page_at(root: str) -> str:
    return page(msgspec.json.decode(_document_at(root)), root=root)


def _say(what: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(what) + b"\n", status_code=status, media_type=_JSON)


async def _refused(request: Request, error: Exception) -> Response:
    status = HTTPStatus(error.status_code) if isinstance(error, HTTPException) else 500
    if status == HTTPStatus.NOT_FOUND:
        detail = f"There is nothing here; see /docs for what there is under {PREFIX}."
        return answer_problem(ProblemError(HTTPStatus.NOT_FOUND, "not-found", detail))
    allowed = ", ".join(_methods_at(request))
    detail = f"This takes other methods: {allowed}."
    return answer_problem(
        ProblemError(HTTPStatus(status), "method-not-allowed", detail, allow=allowed)
    )


def _methods_at(request: Request) -> list[str]:
    """Return the methods of all routes that a path fits."""
    app: Starlette = request.scope["app"]
    fitting = [one for one in app.routes if one.matches(request.scope)[0] is not Match.NONE]
    return sorted({name for one in fitting for name in getattr(one, "methods", None) or ()})


async def _broken(_: Request, error: Exception) -> Response:
    return answer_problem(error)
