"""Failures of HTTP destinations, written down without a secret; here aiohttp's errors end."""

from __future__ import annotations

import socket
import ssl
from urllib.parse import urlsplit

import aiohttp
import msgspec

from redrive.model.duration import spell_duration
from redrive.model.outcome import Fault, Faulted
from redrive.policies.capture import bounded_message, capture
from redrive.policies.classify import Verdict, classify
from redrive.policies.terms import Terms
from redrive.transport import Answer
from redrive.transports.failures import not_allowed, printable, words_of
from redrive.transports.http.declaration import HttpBlueprint
from redrive.transports.ssrf import AddressRefused

__all__ = ["origin_of", "refused", "unreachable"]

_LONGEST_EXCERPT = 1_000
_REDIRECTS = range(300, 400)


def refused(plan: HttpBlueprint, answer: Answer, verdict: Verdict) -> Faulted:
    """Return the failure that an answer stands for."""
    said = plan.redact(f"{answer.status} {answer.reason}".strip())
    message = f"{plan.host} answered {said}"
    excerpt = _excerpt(plan, answer.body)
    if answer.status in _REDIRECTS:
        message += (
            f" and points to {origin_of(answer.location)}; redirects are not followed, so declare "
            "the destination with the URL that it leads to."
        )
    elif excerpt:
        message += f": {excerpt}"
    fault = Fault(
        error_class=f"HTTP {answer.status}",
        message=bounded_message(printable(message)),
        rule=verdict.rule,
        code=str(answer.status),
    )
    return Faulted(
        fault=fault,
        nature=verdict.nature,
        retry_after=verdict.retry_after,
        is_for_all=verdict.retry_after is not None,
        pause=printable(f"{plan.host} answered {said}") if verdict.is_gone else "",
    )


def unreachable(plan: HttpBlueprint, error: Exception, terms: Terms) -> Faulted:
    """Return the failure of a request that got no answer, or only half of one.

    The error's own text and stack are left out: they name the URL, and with it what is in it.
    """
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = getattr(error, "os_error", None)
        if isinstance(cause, AddressRefused):
            return not_allowed(plan.host, cause)
    cause, message = _explain(plan, error)
    verdict = classify(cause, terminal=terms.terminal, transient=terms.transient)
    rule = verdict.rule if verdict.rule != "default" else f"network: {type(cause).__name__}"
    captured = capture(cause, rule=rule)
    fault = msgspec.structs.replace(
        captured,
        message=bounded_message(printable(plan.redact(message))),
        code=_code(cause, captured.code),
        stack="",
    )
    return Faulted(fault=fault, nature=verdict.nature)


def _explain(  # noqa: PLR0911 - one row per kind of failure
    plan: HttpBlueprint, error: Exception
) -> tuple[Exception, str]:
    """Return what lies at the bottom of it, and what it means."""
    host = plan.host
    match error:
        case aiohttp.ClientConnectorDNSError():
            return error.os_error, f"The name of {host} has no address: {words_of(error.os_error)}."
        case aiohttp.ClientConnectorCertificateError(certificate_error=cause):
            return cause, (
                f"The certificate of {host} is not trusted: {words_of(cause)}. If an authority of "
                'your own has signed it, pass tls=ssl.create_default_context(cafile="…").'
            )
        case aiohttp.ClientConnectorSSLError():
            return error.os_error, f"{host} does not speak TLS with us: {words_of(error.os_error)}."
        case aiohttp.ConnectionTimeoutError():
            return error, f"No connection to {host} within {spell_duration(plan.connect_timeout)}."
        case aiohttp.ClientConnectorError():
            return error.os_error, f"{host} cannot be reached: {words_of(error.os_error)}."
        case aiohttp.ServerDisconnectedError():
            return error, f"{host} closed the connection without an answer."
        case aiohttp.ClientPayloadError():
            return error, f"{host} broke off in the middle of its answer."
        case aiohttp.ClientResponseError():
            return error, f"{host} answered with something that is not HTTP."
        case OSError():
            return error, f"The connection to {host} broke: {words_of(error)}."
        case _:
            return error, f"The request to {host} failed with {type(error).__name__}."


def _code(cause: Exception, number: str) -> str:
    """Return the code, unless it is a number that means something else to these libraries."""
    match cause:
        case ssl.SSLError(reason=str(reason)):
            return reason
        case ssl.SSLError() | socket.gaierror():
            return ""
        case _:
            return number


def _excerpt(plan: HttpBlueprint, body: bytes) -> str:
    text = " ".join(plan.redact(body.decode("utf-8", "replace")).split())
    return text if len(text) <= _LONGEST_EXCERPT else f"{text[:_LONGEST_EXCERPT]}…"


def origin_of(location: str) -> str:
    """Return where a redirect leads, without the path and the query that may hold a secret."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return "nowhere"
    return f"{parts.scheme}://{parts.hostname}" if parts.hostname else "another path there"
