"""Certificates: verified by default, with an authority of your own when you name it."""

import ssl

import pytest
import trustme

from redrive.model.outcome import Nature, Succeeded
from tests.http.receiver import receiving
from tests.http.sending import fail, send


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def serving(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_a_certificate_of_an_unknown_authority_is_not_trusted(authority: trustme.CA) -> None:
    async with receiving(tls=serving(authority, "127.0.0.1")) as receiver:
        failure = await fail(f"{receiver.url}/?token=hunter2-and-a-bit-more")

    assert receiver.requests == []
    assert failure.nature is Nature.TRANSIENT
    assert failure.fault.rule == "network: SSLCertVerificationError"
    assert failure.fault.code == "CERTIFICATE_VERIFY_FAILED"
    assert "is not trusted: " in failure.fault.message
    assert "tls=ssl.create_default_context" in failure.fault.message
    assert "hunter2" not in str(failure)


async def test_an_authority_of_your_own_can_be_trusted(authority: trustme.CA) -> None:
    async with receiving(tls=serving(authority, "127.0.0.1")) as receiver:
        outcome = await send(receiver.url, tls=trusting(authority))

    assert outcome == Succeeded()


async def test_the_certificate_must_be_for_the_host_that_was_asked_for(
    authority: trustme.CA,
) -> None:
    async with receiving(tls=serving(authority, "other.example.com")) as receiver:
        failure = await fail(receiver.url, tls=trusting(authority))

    assert receiver.requests == []
    assert "not valid for '127.0.0.1'" in failure.fault.message


async def test_a_server_that_does_not_speak_tls_is_transient() -> None:
    async with receiving() as receiver:
        failure = await fail(receiver.url.replace("http:", "https:"))

    assert failure.nature is Nature.TRANSIENT
    assert failure.fault.rule == "network: SSLError"
    assert "does not speak TLS" in failure.fault.message
