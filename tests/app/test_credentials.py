"""How stored services log in, by documents alone: OAuth2, certificates, two keys at once."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from standardwebhooks import Webhook

from redrive import Redrive
from redrive.errors import ConfigurationError
from redrive.operations import GatewayDocument
from tests.http.receiver import answer, receiving

OLD = "whsec_b2xkIGtleSwgb2xkIGtleSwgb2xkIGtleSwgb2xkIQ=="
NEW = "whsec_bmV3IGtleSwgbmV3IGtleSwgbmV3IGtleSwgbmV3IQ=="
SECRET = "s3cret-of-the-shop"  # noqa: S105 - planted, to be looked for


async def deliver(app: Redrive, **service: Any) -> Any:  # noqa: ANN401 - of a document
    """Put a service in force, deliver an order to it, and ask it once more."""
    document = {"allow_private": True, "retry": {"max_attempts": 1}, **service}
    rule = {"service": "crm", "event": "order.*"}
    gateway = GatewayDocument(services={"crm": document}, rules={"orders": rule})
    await app.operations.apply_gateway(gateway, by="ada")
    await app.publish("order.paid", {"order": 42})
    tally = await app.drain(services=True)
    return tally, await app.operations.try_service("crm", by="ada")


async def test_a_service_is_let_in_by_a_token_that_is_fetched(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_SECRET", SECRET)
    given = answer(200, json.dumps({"access_token": "tok-of-crm", "expires_in": 600}))
    async with receiving() as issuer, receiving() as receiver, Redrive(store) as app:
        issuer.always(given)
        auth = {
            "oauth2": {
                "token_url": f"{issuer.url}/token",
                "client_id": "shop",
                "client_secret": "env:CRM_SECRET",
                "scope": "orders",
            }
        }
        tally, tested = await deliver(app, url=receiver.url, auth=auth)
        issuer.always(answer(400, '{"error": "invalid_client"}'))
        receiver.always(answer(401))
        await app.publish("order.paid", {"order": 43})
        await app.drain(services=True)
        [letter] = (await app.operations.dead_letters()).deliveries
        told = repr((await app.operations.show(letter.id), await app.operations.export_gateway()))

    assert (tally.delivered, tested.is_success) == (1, True)
    sent = [one.headers.get("authorization") for one in receiver.requests]
    assert sent == ["Bearer tok-of-crm"] * 2
    assert letter.fault is not None
    assert (letter.fault.rule, letter.fault.code) == ("oauth2: refused", "invalid_client")
    assert SECRET not in told
    assert "tok-of-crm" not in told + repr(tested)


async def test_a_service_is_shown_a_certificate_of_ours(tmp_path: Path) -> None:
    ours, theirs = trustme.CA(), trustme.CA()
    pem, authority, foreign = (tmp_path / name for name in ("our.pem", "ca.pem", "foreign.pem"))
    ours.issue_cert("shop@example.com").private_key_and_cert_chain_pem.write_to_path(pem)
    theirs.issue_cert("shop@example.com").private_key_and_cert_chain_pem.write_to_path(foreign)
    theirs.cert_pem.write_to_path(authority)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.issue_cert("127.0.0.1").configure_cert(context)
    ours.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    async with (
        receiving(tls=context) as receiver,
        Redrive("memory://", service_folders=[tmp_path]) as app,
    ):
        tls = {"url": receiver.url, "authority": f"file:{authority}"}
        tally, tested = await deliver(app, **tls, certificate=f"file:{pem}")
        served = len(receiver.requests)
        _, without = await deliver(app, **tls)
        _, wrong = await deliver(app, **tls, certificate=f"file:{foreign}")
        with pytest.raises(ConfigurationError, match="The certificate cannot be read"):
            await deliver(app, **tls, certificate=f"file:{tmp_path}/none.pem")

    assert (tally.delivered, tested.is_success, served) == (1, True, 2)
    assert (without.is_success, wrong.is_success, len(receiver.requests)) == (False, False, 2)


async def test_two_keys_sign_at_once_while_they_are_changed(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLD_KEY", OLD)
    monkeypatch.setenv("NEW_KEY", NEW)
    async with receiving() as receiver, Redrive(store) as app:
        await deliver(app, url=receiver.url, signing_keys=["env:NEW_KEY", "env:OLD_KEY"])

    for request in receiver.requests:
        for key in (OLD, NEW):
            Webhook(key).verify(request.body, dict(request.headers))
