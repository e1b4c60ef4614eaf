"""OAuth2 client credentials: a token is fetched, kept, renewed, and never shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from redrive.errors import ConfigurationError
from redrive.model.health import HealthCheck
from redrive.model.outcome import Faulted, Nature, Succeeded
from redrive.testing.clock import FakeClock
from redrive.transport import Shape
from redrive.transports.http import OAuth2, http
from redrive.transports.kinds import way_of
from tests.http.receiver import Answer, Receiver, answer, receiving
from tests.http.sending import leased, transport_to

SECRET = "s3cret-of-the-shop"  # noqa: S105 - planted, to be looked for


@pytest.fixture
async def issuer() -> AsyncIterator[Receiver]:
    async with receiving() as running:
        yield running


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as running:
        yield running


def token(text: str, **more: Any) -> Answer:  # noqa: ANN401 - JSON
    return answer(200, json.dumps({"access_token": text, "token_type": "Bearer", **more}))


def credentials(issuer: Receiver, **more: Any) -> OAuth2:  # noqa: ANN401 - its options
    return OAuth2(f"{issuer.url}/token", "shop", SECRET, **more)


def seen(receiver: Receiver) -> list[str]:
    return [one.headers["authorization"] for one in receiver.requests]


async def test_a_token_is_fetched_once_and_kept(receiver: Receiver, issuer: Receiver) -> None:
    issuer.always(token("tok-1", expires_in=3600))
    auth = credentials(issuer, scope="orders", audience="crm")
    async with transport_to(receiver.url, auth=auth) as transport:
        sent = [transport.send([leased(number=n)]) for n in range(5)]
        outcomes = [one for found in await asyncio.gather(*sent) for one in found]

    [asked] = issuer.requests
    assert outcomes == [Succeeded()] * 5
    assert seen(receiver) == ["Bearer tok-1"] * 5
    assert (asked.method, asked.path) == ("POST", "/token")
    assert asked.headers["authorization"].startswith("Basic ")
    assert parse_qs(asked.body.decode()) == {
        "grant_type": ["client_credentials"],
        "scope": ["orders"],
        "audience": ["crm"],
    }


async def test_credentials_may_go_with_the_form(receiver: Receiver, issuer: Receiver) -> None:
    issuer.always(token("tok-1"))
    async with transport_to(receiver.url, auth=credentials(issuer, send_as="body")) as transport:
        await transport.send([leased()])

    form = parse_qs(issuer.requests[0].body.decode())
    assert (form["client_id"], form["client_secret"]) == (["shop"], [SECRET])
    assert "authorization" not in issuer.requests[0].headers


async def test_a_token_is_renewed_before_it_ends(receiver: Receiver, issuer: Receiver) -> None:
    issuer.answers(token("tok-1", expires_in=300), token("tok-2", expires_in="300"))
    clock = FakeClock()
    async with transport_to(receiver.url, auth=credentials(issuer), clock=clock) as transport:
        await transport.send([leased()])
        clock.advance("269s")
        await transport.send([leased()])
        clock.advance("1s")
        await transport.send([leased()])

    assert seen(receiver) == ["Bearer tok-1", "Bearer tok-1", "Bearer tok-2"]


async def test_a_token_that_is_refused_is_renewed_and_the_request_sent_again(
    receiver: Receiver, issuer: Receiver
) -> None:
    issuer.answers(token("tok-1"), token("tok-2"))
    receiver.answers(answer(204), answer(401), answer(204))
    async with transport_to(receiver.url, auth=credentials(issuer)) as transport:
        await transport.send([leased()])
        [outcome] = await transport.send([leased()])

    assert outcome == Succeeded()
    assert seen(receiver) == ["Bearer tok-1", "Bearer tok-1", "Bearer tok-2"]


async def test_who_refuses_a_new_token_too_is_believed(
    receiver: Receiver, issuer: Receiver
) -> None:
    issuer.answers(token("tok-1"), token("tok-2"))
    receiver.always(answer(401, "your token tok-2 is no good"))
    async with transport_to(receiver.url, auth=credentials(issuer)) as transport:
        [outcome] = await transport.send([leased()])

    assert isinstance(outcome, Faulted)
    assert (outcome.nature, outcome.fault.rule) == (Nature.TERMINAL, "status 401")
    assert len(receiver.requests) == 2
    assert "tok-2" not in repr(outcome)
    assert SECRET not in repr(outcome)


@pytest.mark.parametrize(
    ("given", "rule", "message"),
    [
        (
            answer(401, f'{{"error": "invalid_client", "error_description": "not {SECRET}"}}'),
            "oauth2: refused",
            "answered 401: invalid_client, not",
        ),
        (answer(503, "busy"), "oauth2: refused", "answered 503."),
        (answer(200, "<html>"), "oauth2: no token", "answered without an access_token."),
        (token("a\nb"), "oauth2: no token", "answered without an access_token."),
        (
            answer(200, '{"access_token": "x", "token_type": "mac"}'),
            "oauth2: no token",
            "a token that is no bearer token.",
        ),
        (answer(302, location="http://10.0.0.1/"), "oauth2: refused", "answered 302."),
    ],
)
async def test_without_a_token_nothing_is_sent_and_it_says_why(
    receiver: Receiver, issuer: Receiver, given: Answer, rule: str, message: str
) -> None:
    issuer.always(given)
    async with transport_to(receiver.url, auth=credentials(issuer)) as transport:
        [outcome] = await transport.send([leased()])
        unwell = await transport.check_health(HealthCheck("/health"))

    assert isinstance(outcome, Faulted)
    assert (outcome.nature, outcome.fault.rule) == (Nature.TRANSIENT, rule)
    assert f"No access token could be fetched: {issuer.url.removeprefix('http://')} " in (
        outcome.fault.message
    )
    assert message in outcome.fault.message
    assert "No access token could be fetched" in unwell
    assert SECRET not in repr(outcome)
    assert receiver.requests == []


async def test_an_issuer_that_is_away_or_asks_to_wait_is_transient(receiver: Receiver) -> None:
    async with receiving() as issuer:
        issuer.always(answer(429, retry_after="7"))
        async with transport_to(receiver.url, auth=credentials(issuer)) as transport:
            [busy] = await transport.send([leased()])
    async with transport_to(receiver.url, auth=credentials(issuer)) as transport:
        [away] = await transport.send([leased()])

    assert isinstance(busy, Faulted)
    assert isinstance(away, Faulted)
    assert busy.retry_after is not None
    assert (busy.retry_after.total_seconds(), away.nature) == (7, Nature.TRANSIENT)
    assert "cannot be reached" in away.fault.message


async def test_what_is_shown_of_a_request_has_no_token(
    receiver: Receiver, issuer: Receiver
) -> None:
    issuer.always(token("tok-1"))
    receiver.always(answer(200, "you sent tok-1"))
    async with transport_to(receiver.url, auth=credentials(issuer)) as transport:
        asked = await transport.ask(leased(), Shape())

    assert asked.exchange is not None
    assert asked.exchange.body.startswith("you sent ")
    assert "tok-1" not in repr(asked.exchange)


def test_credentials_are_shown_to_nobody_and_checked() -> None:
    auth = OAuth2("https://issuer.example.com/token", "shop", SECRET)

    assert SECRET not in repr(auth)
    assert SECRET not in repr(http("https://api.example.com", auth=auth))
    with pytest.raises(ConfigurationError, match="it is one of basic, body"):
        OAuth2("https://issuer.example.com", "shop", SECRET, send_as="header")  # type: ignore[arg-type] # wrong
    with pytest.raises(ConfigurationError, match="client_secret"):
        OAuth2("https://issuer.example.com", "shop", "")
    with pytest.raises(ConfigurationError, match="only public ones are connected to"):
        http("https://api.example.com", auth=OAuth2("http://10.0.0.1/token", "shop", SECRET))


def test_a_document_says_it_as_well() -> None:
    said = {"token_url": "https://issuer.example.com/t", "client_id": "a", "client_secret": "b"}

    way = way_of("http", {"url": "https://api.example.com", "auth": {"oauth2": said}})

    assert way.oauth2.host == "issuer.example.com"  # type: ignore[union-attr] # it is one of http
    with pytest.raises(ConfigurationError, match="did you mean 'scope'"):
        way_of("http", {"url": "https://a.example", "auth": {"oauth2": {**said, "scop": "x"}}})
