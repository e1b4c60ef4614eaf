"""Amazon SES: mail by its API v2, over requests that AWS's own library signs."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from redrive.clock import Clock
from redrive.errors import ConfigurationError, refuse_unknown
from redrive.model.delivery import Leased
from redrive.model.outcome import Faulted, Nature
from redrive.policies.classify import Verdict
from redrive.policies.terms import Terms
from redrive.transport import Answer, Transport
from redrive.transports.failures import refused
from redrive.transports.http.declaration import HttpBlueprint
from redrive.transports.http.format import request_plan
from redrive.transports.http.options import LineOptions
from redrive.transports.http.request import Request
from redrive.transports.mail import MailOptions, Recipe, compose_mail, read_recipe
from redrive.transports.options import need, read_name

if TYPE_CHECKING:
    from botocore.credentials import Credentials

__all__ = ["SesBlueprint", "SesOptions", "ses"]

_PATH = "/v2/email/outbound-emails"
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
_MOST_RECIPIENTS = 50
_SLOW_DOWN = (
    *("TooManyRequestsException", "LimitExceededException"),
    *("Throttling", "ThrottlingException"),
)
_FAILING = ("ServiceUnavailable", "ServiceUnavailableException", "InternalServiceErrorException")
_PAUSED = ("AccountSuspendedException", "SendingPausedException")
_TERMINAL = ("MessageRejected", "MailFromDomainNotVerifiedException", "MailFromDomainNotVerified")


class SesOptions(MailOptions, LineOptions, total=False):
    """What `ses` takes beside the region; see there."""

    access_key: str
    """The id of the access key; what AWS's own tools would find, if none is said."""
    secret_key: str
    """The secret of the access key."""
    session_token: str
    """The token that goes with a key that ends."""
    configuration_set: str
    """The configuration set of SES that mails are sent by."""
    endpoint: str
    """Another address of SES than that of the region, such as one in your own network."""


class SesBlueprint(msgspec.Struct, frozen=True, kw_only=True):
    """A checked region of SES and how mails are made, of which each worker makes a transport."""

    plan: HttpBlueprint
    region: str
    login: tuple[str, str, str | None] | None
    configuration_set: str
    recipe: Recipe

    def build(self, *, terms: Terms, clock: Clock) -> Transport:
        """Return a transport for one worker; it connects when it first sends."""
        from redrive.transports.http.transport import HttpTransport  # noqa: PLC0415 - aiohttp

        return HttpTransport(self.plan, terms=terms, clock=clock, written=_SesFormat(self))

    def __repr__(self) -> str:
        return f"ses({self.region!r}, …)"


def ses(region: str, **options: Unpack[SesOptions]) -> SesBlueprint:
    """Declare Amazon SES, for `app.destination(..., transport=ses(...))`.

    - `region`: such as `"eu-central-1"`
    - `access_key`, `secret_key`, `session_token`: who we are; without them it is whoever AWS's own
      tools would find: in the environment, in its files, or as the role of the machine
    - `sender`, `to`, `subject`, `text`, `html` and the like: as for `smtp`
    - `configuration_set`: of SES; `endpoint`: another address than that of the region
    - `allow_networks`, `connect_timeout` and the like: as for `http`

    >>> ses("eu-central-1", sender="shop@example.com")
    ses('eu-central-1', …)
    """
    refuse_unknown(options, SesOptions.__annotations__, what="ses option")
    need("SES destinations", extra="ses", modules=("aiohttp", "botocore"))
    if not isinstance(region, str) or not _REGION.fullmatch(region):
        raise ConfigurationError(f'region is {region!r}; it is one of AWS, such as "eu-central-1".')
    login = _read_login(options)
    configured = options.get("configuration_set", "")
    url = options.get("endpoint", f"https://email.{region}.amazonaws.com")
    plan = request_plan(url, options, path=_PATH)
    secrets = () if login is None else tuple(one for one in login[1:] if one)
    return SesBlueprint(
        plan=msgspec.structs.replace(plan, secrets=(*secrets, *plan.secrets)),
        region=region,
        login=login,
        configuration_set=configured and read_name("configuration_set", configured, example="shop"),
        recipe=read_recipe(options),
    )


def _read_login(options: Mapping[str, Any]) -> tuple[str, str, str | None] | None:
    names = ("access_key", "secret_key", "session_token")
    key, secret, token = given = [options.get(name) for name in names]
    if given == [None, None, None]:
        return None
    for name, value in zip(names, given, strict=True):
        is_right = isinstance(value, str) and value.isascii() and value.isprintable() and value
        if not is_right and not (name == "session_token" and value is None):
            raise ConfigurationError(
                f"The {name} of SES is missing, or has a letter that no key has; give access_key "
                "and secret_key, or neither. A line break at the end, as files have it, is a "
                "common cause."
            )
    return str(key), str(secret), token


class _SesFormat:
    """Writes signed requests, each with one mail, and reads the names of errors."""

    def __init__(self, way: SesBlueprint) -> None:
        self._way = way
        self._credentials: Credentials | None = None
        self._finding = asyncio.Lock()

    async def compose(self, deliveries: Sequence[Leased], *, now: datetime) -> Request | Faulted:  # noqa: ARG002 - the library that signs asks for the time itself
        composed = await compose_mail(self._way.recipe, deliveries[0])
        if isinstance(composed, Faulted):
            return composed
        mail, message = composed
        if len(mail.recipients) > _MOST_RECIPIENTS:
            return refused(
                f"The mail is for {len(mail.recipients)} recipients, and SES takes "
                f"{_MOST_RECIPIENTS} at once; publish several events.",
                error_class="TooManyRecipients",
                rule="mail does not fit",
                nature=Nature.TERMINAL,
            )
        said: dict[str, Any] = {
            "FromEmailAddress": mail.sender.address,
            "Destination": {"ToAddresses": mail.recipients},
            "Content": {"Raw": {"Data": base64.b64encode(message).decode()}},
        }
        if self._way.configuration_set:
            said["ConfigurationSetName"] = self._way.configuration_set
        plan = self._way.plan
        body = msgspec.json.encode(said)
        try:
            if self._way.login is not None:
                headers = self._signed(body)
            else:  # to find out who we are, files are read and servers asked
                async with self._finding:
                    headers = await asyncio.to_thread(self._signed, body)
        except Exception as error:  # noqa: BLE001 - the library asks files and servers, and raises what it likes
            return refused(
                f"Nobody says who we are to SES: {error}",
                error_class=type(error).__name__,
                rule="no credentials",
                nature=Nature.TRANSIENT,
                secrets=plan.secrets,
            )
        return Request(headers, body, plan.method, plan.url, lambda: message)

    def judge(self, answer: Answer, usual: Verdict | None) -> Verdict | None:
        """Return what the name of an error means, which its status says of few."""
        if usual is None:
            return None
        name = _name(answer)
        if name in _SLOW_DOWN:
            nature, is_gone = Nature.THROTTLED, False
        elif name in _FAILING:
            nature, is_gone = Nature.TRANSIENT, False
        elif name in _PAUSED:
            nature, is_gone = Nature.TERMINAL, True
        elif name in _TERMINAL:
            nature, is_gone = Nature.TERMINAL, False
        else:
            return usual
        wait = None if nature is Nature.TERMINAL else usual.retry_after
        return Verdict(nature=nature, rule=f"SES {name}", retry_after=wait, is_gone=is_gone)

    def _signed(self, body: bytes) -> dict[str, str]:
        """Return the headers of a request, signed."""
        from botocore.auth import SigV4Auth  # noqa: PLC0415 - the extra
        from botocore.awsrequest import AWSRequest  # noqa: PLC0415 - the extra

        plan = self._way.plan
        request = AWSRequest(plan.method, plan.url, {"content-type": "application/json"}, body)
        credentials = self._find().get_frozen_credentials()
        SigV4Auth(credentials, "ses", self._way.region).add_auth(request)
        return {**plan.headers, **{name.lower(): value for name, value in request.headers.items()}}

    def _find(self) -> Credentials:
        from botocore.credentials import Credentials  # noqa: PLC0415 - the extra
        from botocore.session import Session  # noqa: PLC0415 - the extra

        if self._credentials is None:
            login = self._way.login
            found = Session().get_credentials() if login is None else Credentials(*login)
            if found is None:
                raise ConfigurationError(
                    "no credentials were found where AWS's own tools look for them; pass "
                    "access_key and secret_key."
                )
            self._credentials = found
        return self._credentials


def _name(answer: Answer) -> str:
    """Return the name of an error, from the header or the body."""
    said = next((v for name, v in answer.headers if name.lower() == "x-amzn-errortype"), "")
    if not said:
        try:
            read = msgspec.json.decode(answer.body)
        except ValueError:
            return ""
        named = [read.get(key) for key in ("__type", "code")] if isinstance(read, dict) else []
        said = next((one for one in named if isinstance(one, str)), "")
    return said.partition(":")[0].rpartition("#")[2]
