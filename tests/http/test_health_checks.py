"""Health checks over HTTP: which URL is asked, how, and what an answer means."""

from typing import Any

import pytest

from redrive import Breaker, ConfigurationError, HealthCheck, Redrive, Retry, http
from redrive.observer import HealthChecked
from redrive.testing import Kit
from redrive.transports.http import Bearer
from tests.app.recorder import Recorder
from tests.http.receiver import Receiver, answer, receiving
from tests.http.sending import transport_to

BREAKER = Breaker(failures=1, open_for="1h", successes=1)


async def test_a_service_that_answers_gets_its_deliveries_again(receiver: Receiver) -> None:
    app, recorder = Redrive("memory://"), Recorder()
    app.observe(recorder)
    app.destination(
        "crm",
        "order.*",
        transport=http(f"{receiver.url}/hooks", auth=Bearer("the-token"), allow_private=True),
        breaker=BREAKER,
        health=HealthCheck("/health", every="10s"),
        retry=Retry(base="1s", jitter="none"),
    )
    receiver.answers(answer(503), answer(500), answer(302, location="/login"))
    async with Kit(app) as kit:
        await app.publish("order.paid", {"order": 42})
        await kit.run_for("2m")

    asked = [(one.method, one.path) for one in receiver.requests]
    assert asked == [
        ("POST", "/hooks"),
        ("GET", "/health"),
        ("GET", "/health"),
        ("GET", "/health"),
        ("POST", "/hooks"),
    ]
    assert receiver.requests[1].headers["authorization"] == "Bearer the-token"
    assert [bool(one.error) for one in recorder.of(HealthChecked)] == [True, True, False]


async def test_method_is_how_the_url_is_asked(receiver: Receiver) -> None:
    async with transport_to(f"{receiver.url}/hooks") as transport:
        for method in ("GET", "HEAD"):
            assert await transport.check_health(HealthCheck("up", method=method)) == ""

    assert [(one.method, one.path) for one in receiver.requests] == [
        ("GET", "/up"),
        ("HEAD", "/up"),
    ]


async def test_a_token_is_not_told_to_another_host(receiver: Receiver) -> None:
    async with receiving() as other:
        health = HealthCheck(f"{other.url}/status")
        async with transport_to(receiver.url, auth=Bearer("the-token")) as transport:
            assert await transport.check_health(health) == ""

        assert "authorization" not in other.requests[0].headers


async def test_a_check_passes_the_same_guard_as_deliveries(receiver: Receiver) -> None:
    async with transport_to(receiver.url, allow_private=False) as transport:
        wrong = await transport.check_health(HealthCheck("/health"))

    assert "only public addresses are connected to" in wrong
    assert receiver.requests == []


async def test_a_service_that_is_not_there_is_not_well(receiver: Receiver) -> None:
    async with transport_to("http://127.0.0.1:9") as transport:
        assert "cannot be reached" in await transport.check_health(HealthCheck("/health"))


def test_a_url_that_nothing_can_ask_is_refused_when_it_is_declared() -> None:
    app: Any = Redrive("memory://")

    with pytest.raises(ConfigurationError, match="begins with 'ftp'"):
        app.destination(
            "crm",
            "order.*",
            transport=http("https://api.example.com"),
            health=HealthCheck("ftp://api.example.com/health"),
        )
