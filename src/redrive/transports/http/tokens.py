"""Access tokens by OAuth2 client credentials: fetched when needed, kept until they end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import aiohttp
import msgspec

from redrive.clock import Clock
from redrive.model.outcome import Fault, Faulted, Nature
from redrive.policies.capture import bounded_message
from redrive.policies.http import read_retry_after
from redrive.policies.redact import without_secrets
from redrive.policies.terms import Terms
from redrive.transports.failures import printable
from redrive.transports.http.auth import OAuth2
from redrive.transports.http.declaration import HttpBlueprint
from redrive.transports.http.faults import unreachable
from redrive.transports.http.headers import is_header_value
from redrive.transports.http.wires import Wire

__all__ = ["NoToken", "Tokens"]

_LONGEST_ANSWER = 2**16
_LONGEST_REASON = 300
_SUCCESSES = range(200, 300)
_EARLY = timedelta(seconds=30)
"""So long before its end a token is fetched anew, or a tenth of its time if that is shorter."""
_EARLY_SHARE = 0.1


class NoToken(Exception):  # noqa: N818 - it carries the outcome that it becomes
    """No token can be had now; `faulted` is what that means for a delivery."""

    def __init__(self, faulted: Faulted) -> None:
        super().__init__(faulted.fault.message)
        self.faulted = faulted


class Tokens:
    """The token of one destination. Those who need one while it is fetched wait for the same."""

    def __init__(self, plan: HttpBlueprint, oauth2: OAuth2, *, terms: Terms, clock: Clock) -> None:
        self._plan = msgspec.structs.replace(plan, host=oauth2.host)
        self._oauth2 = oauth2
        self._terms = terms
        self._clock = clock
        self._token = ""
        self._good_until: float | None = None
        self._fetching = asyncio.Lock()

    async def token(self, wire: Wire, *, but: str = "") -> str:
        """Return a token that is still good, and is not the one that was refused."""
        if self._is_good(but):
            return self._token
        async with self._fetching:
            if not self._is_good(but):
                await self._fetch(wire)
        return self._token

    def _is_good(self, refused: str) -> bool:
        if not self._token or self._token == refused:
            return False
        return self._good_until is None or self._clock.monotonic() < self._good_until

    async def _fetch(self, wire: Wire) -> None:
        begun = self._clock.monotonic()
        try:
            async with wire.request(
                "POST",
                self._oauth2.token_url,
                data=self._oauth2.form,
                headers=self._oauth2.headers,
            ) as response:
                read = await response.content.read(_LONGEST_ANSWER)
                while len(read) < _LONGEST_ANSWER and not response.content.at_eof():
                    read += await response.content.read(_LONGEST_ANSWER - len(read))
        except Exception as error:  # noqa: BLE001 - whatever the client raises is an outcome
            raise NoToken(self._not_reached(error)) from None
        answer = _object(read)
        if response.status not in _SUCCESSES:
            raise NoToken(self._refused(response, answer))
        token, kind = answer.get("access_token"), answer.get("token_type", "bearer")
        if not isinstance(token, str) or not token or not is_header_value(token):
            raise NoToken(self._fault("no token", "answered without an access_token."))
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise NoToken(self._fault("no token", "gave a token that is no bearer token."))
        self._token = token
        self._good_until = _end(answer.get("expires_in"), begun)

    def _refused(self, response: aiohttp.ClientResponse, answer: dict[str, Any]) -> Faulted:
        error, said = answer.get("error"), answer.get("error_description")
        reason = ", ".join(one for one in (error, said) if isinstance(one, str))
        what = (
            f"answered {response.status}: {self._shown(reason)}"
            if reason
            else (f"answered {response.status}.")
        )
        code = self._shown(error) if isinstance(error, str) else str(response.status)
        faulted = self._fault("refused", what, code=code)
        wait = response.headers.get("retry-after")
        if wait is None:
            return faulted
        retry_after = read_retry_after(wait, now=self._clock.now())
        return msgspec.structs.replace(faulted, retry_after=retry_after)

    def _not_reached(self, error: Exception) -> Faulted:
        found = unreachable(self._plan, error, self._terms)
        message = f"No access token could be fetched: {found.fault.message}"
        fault = msgspec.structs.replace(found.fault, message=bounded_message(message))
        return msgspec.structs.replace(found, fault=fault)

    def _fault(self, rule: str, what: str, *, code: str = "") -> Faulted:
        message = f"No access token could be fetched: {self._oauth2.host} {what}"
        fault = Fault(
            error_class="OAuth2",
            message=bounded_message(printable(message)),
            rule=f"oauth2: {rule}",
            code=code,
        )
        return Faulted(fault=fault, nature=Nature.TRANSIENT)

    def _shown(self, text: str) -> str:
        return printable(without_secrets(text, self._plan.secrets)[:_LONGEST_REASON])


def _object(read: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(read)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _end(lasts: object, begun: float) -> float | None:
    """Return when a token is to be fetched anew; `None` if nobody said how long it is good."""
    if isinstance(lasts, str) and lasts.isdigit():
        lasts = int(lasts)
    if isinstance(lasts, bool) or not isinstance(lasts, int | float) or lasts <= 0:
        return None
    return begun + lasts - min(_EARLY.total_seconds(), lasts * _EARLY_SHARE)
