"""Requests made from the OpenAPI document by schemathesis, sent to an app in this process."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.core.transport import Response
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.types import ASGIApp

from redrive import Event, Redrive, Retry
from redrive.web.openapi import document
from tests.web.client import Answer, Client

__all__ = ["Send", "prove_answers", "served"]

_MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
"""Requests that fit the document, and requests that do not."""
_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
_ROOT = "http://localhost"

Operation = APIOperation[Any, Any, Any, Any]
Send = Callable[[requests.PreparedRequest], Answer]


@contextmanager
def served() -> Iterator[Send]:
    """Serve a shop with a dead letter of each of two tenants; everybody may do everything."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        app = Redrive(f"sqlite:///{Path(folder) / 'shop.db'}")

        @app.handler("order.*", name="billing", retry=Retry(max_attempts=1))
        async def bill(event: Event[Any]) -> None:
            raise ConnectionError("the bank does not answer")

        async def open_shop() -> ASGIApp:
            for tenant in ("acme", "globex"):
                await app.publish("order.paid", {"order": 1}, tenant=tenant, key=f"{tenant}-1")
            await app.drain()
            return app.asgi(login=False)

        asgi = runner.run(open_shop())
        try:
            yield lambda request: runner.run(_send(asgi, request))
        finally:
            runner.run(app.close())


def prove_answers(send: Send, *, examples: int, start: int = 0) -> int:
    """Send requests to each operation; whatever is answered has to fit the document.

    Returns how many were sent.
    """
    schema = schemathesis.openapi.from_dict(document(version="1"))
    sent = 0
    for one in schema.get_all_operations():
        assert isinstance(one, Ok)
        for mode in _MODES:
            sent += _try(one.ok(), send, mode=mode, examples=examples, start=start)
    return sent


def _try(
    operation: Operation, send: Send, *, mode: GenerationMode, examples: int, start: int
) -> int:
    sent = 0

    @seed(start)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def try_one(case: schemathesis.Case[Any]) -> None:
        nonlocal sent
        sent += 1
        request = requests.Request(**case.as_transport_kwargs(base_url=_ROOT)).prepare()
        told = send(request)
        response = Response(
            status_code=told.status,
            headers={name: [value] for name, value in told.headers.items()},
            content=told.body,
            request=request,
            elapsed=0.0,
            verify=False,
        )
        case.validate_response(response, checks=_CHECKS)

    try_one()
    return sent


async def _send(asgi: ASGIApp, request: requests.PreparedRequest) -> Answer:
    body = request.body or b""
    return await Client(asgi).send(
        str(request.method),
        request.path_url,
        body=body.encode() if isinstance(body, str) else body,  # type: ignore[arg-type]
        headers={name.lower(): str(value) for name, value in request.headers.items()},
    )
