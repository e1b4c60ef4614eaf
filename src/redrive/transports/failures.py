"""Failures of ways other than HTTP, written down without a secret."""

from __future__ import annotations

import ssl
from collections.abc import Iterable

import msgspec

from redrive.model.duration import spell_duration
from redrive.model.outcome import Fault, Faulted, Nature
from redrive.policies.capture import bounded_message, capture
from redrive.policies.classify import classify
from redrive.policies.redact import without_secrets
from redrive.policies.terms import Terms
from redrive.transports.server import Server
from redrive.transports.ssrf import AddressRefused

__all__ = ["broken", "cause_of", "not_allowed", "printable", "refused", "words_of"]


def printable(text: str) -> str:
    """A server must not be able to move the cursor of whoever reads its answer."""
    return "".join(one if one.isprintable() else " " for one in text)


def words_of(error: BaseException) -> str:
    """Return what an error says, in the words of the system where it has some."""
    match error:
        case ssl.SSLCertVerificationError(verify_message=str(words)) if words:
            return words
        case ssl.SSLError(reason=str(words)) if words:
            return words.replace("_", " ").lower()
        case OSError(strerror=str(words)) if words:
            return words
        case _:
            return str(error) or type(error).__name__


def not_allowed(shown: str, refusal: AddressRefused) -> Faulted:
    """Return the failure of a destination that leads to an address that is not allowed."""
    fault = Fault(
        error_class="AddressRefused",
        message=bounded_message(
            f"{shown} leads to {refusal.address}, which is {refusal.kind}; only public "
            "addresses are connected to. If it is meant, declare the destination with "
            f'allow_networks=("{refusal.address}",), or with allow_private=True.'
        ),
        rule="address not allowed",
        code=refusal.kind,
    )
    return Faulted(fault=fault, nature=Nature.TERMINAL)


def refused(
    message: str,
    *,
    error_class: str,
    rule: str,
    nature: Nature,
    code: str = "",
    secrets: Iterable[str] = (),
) -> Faulted:
    """Return the failure that an answer of a server stands for."""
    text = bounded_message(printable(without_secrets(message, secrets)))
    fault = Fault(error_class=error_class, message=text, rule=rule, code=code)
    return Faulted(fault=fault, nature=nature)


def broken(
    server: Server, error: BaseException, terms: Terms, *, secrets: Iterable[str] = ()
) -> Faulted:
    """Return the failure of a connection: not made, refused, or ended before there was an answer.

    The error's own text and stack are left out where they could name more than the server.
    """
    cause = cause_of(error)
    if isinstance(cause, AddressRefused):
        return not_allowed(server.shown, cause)
    verdict = classify(cause, terminal=terms.terminal, transient=terms.transient)
    rule = verdict.rule if verdict.rule != "default" else f"network: {type(cause).__name__}"
    captured = capture(cause, rule=rule)
    message = without_secrets(_explain(server, cause), secrets)
    code = captured.code
    if isinstance(cause, ssl.SSLError):
        code = str(cause.reason or "")
    fault = msgspec.structs.replace(
        captured, message=bounded_message(printable(message)), code=code, stack=""
    )
    return Faulted(fault=fault, nature=verdict.nature)


def cause_of(error: BaseException) -> BaseException:
    """Return what lies at the bottom of it, where a library has put its own error around it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError | ssl.SSLError | EOFError):
            return seen
        seen = seen.__cause__ or seen.__context__
    return error


def _explain(server: Server, error: BaseException) -> str:
    where = server.shown
    match error:
        case ssl.SSLCertVerificationError():
            return (
                f"The certificate of {where} is not trusted: {words_of(error)}. If an authority of "
                'your own has signed it, pass tls=ssl.create_default_context(cafile="…").'
            )
        case ssl.SSLError():
            return f"{where} does not speak TLS with us: {words_of(error)}."
        case TimeoutError():
            return f"{where} did not answer within {spell_duration(server.connect_timeout)}."
        case EOFError():
            return f"{where} closed the connection without an answer."
        case OSError():
            return f"{where} cannot be reached, or the connection to it broke: {words_of(error)}."
        case _:
            return f"Sending to {where} failed with {type(error).__name__}: {words_of(error)}"
