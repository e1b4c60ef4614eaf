"""A wrong declaration is refused where it is written, with advice and without its secrets."""

import base64
import subprocess
import sys
from typing import Any

import pytest
import rich.pretty

from redrive import ConfigurationError, HealthCheck, Redrive
from redrive.model.duration import spell_duration
from redrive.transports.http import ApiKey, Basic, Bearer, HttpOptions, http
from redrive.transports.signing import SigningKey
from tests.docs.pages import ROOT, table_of

URL = "https://api.example.com/hooks"
SECRET = "hunter2-and-a-bit-more"  # noqa: S105 - it is what must not be found
KEY = f"whsec_{base64.b64encode(b'k' * 32).decode()}"


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("", "begins with ''"),
        ("api.example.com/hooks", "write http or https"),
        ("ftp://api.example.com", "write http or https"),
        ("file:///etc/passwd", "write http or https"),
        ("https://", "write one such as"),
        ("https:///hooks", "write one such as"),
        ("http://:8080/hooks", "write one such as"),
        ("https://api.example.com:port/", "cannot be read"),
        ("https://api.example.com:99999/", "cannot be read"),
        ("https://api.example.com:0/", "write one such as"),
        ("https://[::1/", "cannot be read"),
        ("https://127.1/", "write one such as"),
        ("https://2130706433/", "write one such as"),
        ("https://0x7f000001/", "write one such as"),
        ("https://a..b/", "write one such as"),
        (f"https://{'a' * 64}.com/", "write one such as"),
        ("https://api.example.com/hooks\n", "line break"),
        ("https://api.example.com/ hooks", "blank"),
        ("https://api.example.com/\r\nx-admin: yes", "line break"),
        (b"https://api.example.com", "write text"),
        (None, "write text"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: Any, advice: str) -> None:  # noqa: ANN401
    with pytest.raises(ConfigurationError, match=advice):
        http(url)


def test_a_password_in_the_url_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigurationError, match=r"auth=Basic\(user, password\)") as refusal:
        http(f"https://ann:{SECRET}@api.example.com/")

    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"signing_key": KEY}, "did you mean 'signing_keys'"),
        ({"method": "GET"}, "method is 'GET'; it is one of POST, PUT"),
        ({"method": "post"}, "method is 'post'"),
        ({"body": "xml"}, "body is 'xml'; it is one of payload, event"),
        ({"headers": [("a", "b")]}, "maps names to values"),
        ({"headers": {"x shop": "a"}}, "letters, digits and '-'"),
        ({"headers": {"": "a"}}, "letters, digits and '-'"),
        ({"headers": {"x-shop": "a\r\nx-admin: yes"}}, "line break"),
        ({"headers": {"x-shop": "Zoë"}}, "printable ASCII"),
        ({"headers": {"x-shop": 1}}, "not text"),
        ({"headers": {"X-Shop": "a", "x-shop": "b"}}, "there twice"),
        ({"headers": {"Webhook-Id": "1"}}, "set by Redrive"),
        ({"headers": {"Host": "inside"}}, "set by Redrive"),
        ({"headers": {"Content-Length": "0"}}, "set by Redrive"),
        ({"headers": {"authorization": "x"}, "auth": Bearer("y")}, "leave one out"),
        ({"auth": "Bearer y"}, r"pass Bearer\(token\)"),
        ({"forward_headers": "traceparent"}, "tuple of names"),
        ({"forward_headers": ("webhook-signature",)}, "set by Redrive"),
        ({"forward_headers": ("content-type",)}, "leave one out"),
        ({"forward_headers": ("Authorization",), "auth": Bearer("y")}, "leave one out"),
        ({"signing_keys": "whsec_"}, "0 bytes"),
        ({"signing_keys": "whsec_c2hvcnQ="}, "5 bytes"),
        ({"signing_keys": ["whsec_***"]}, "not base64"),
        ({"signing_keys": base64.b64encode(b"k" * 32).decode()}, "does not begin with 'whsec_'"),
        ({"signing_keys": [None]}, "does not begin with 'whsec_'"),
        ({"signing_keys": 7}, "one key, or a list of keys"),
        ({"retry_on_status": 503}, "a set of statuses"),
        ({"retry_on_status": {200}}, "from 300 to 599"),
        ({"retry_on_status": {"503"}}, "a set of statuses"),
        ({"allow_private": "yes"}, "True or False"),
        ({"allow_networks": "10.0.0.0/8"}, "it is a tuple"),
        ({"allow_networks": ("10.0.0.1/8",)}, "host bits set"),
        ({"allow_networks": ("localhost",)}, "no network"),
        ({"tls": False}, "ssl.SSLContext"),
        ({"batch": 0}, "whole number from 1"),
        ({"batch": True}, "whole number from 1"),
        ({"connections": 0}, "whole number from 1"),
        ({"response_limit": 100}, "whole number from 4096"),
        ({"connect_timeout": 5}, "not a duration"),
        ({"connect_timeout": "0s"}, "no time"),
    ],
    ids=str,
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        http(URL, **options)


@pytest.mark.parametrize(
    "declare",
    [
        lambda: Bearer(f"{SECRET}\n"),
        lambda: Bearer(""),
        lambda: Basic("ann", f"{SECRET}\r\n"),
        lambda: Basic(f"ann:{SECRET}", "x"),
        lambda: ApiKey("x-api-key", f"{SECRET}\n"),
        lambda: ApiKey("x api key", SECRET),
        lambda: SigningKey(f"{SECRET}whsec_"),
        lambda: SigningKey(f"whsec_{SECRET}"),
        lambda: http(URL, headers={"x-secret": f"{SECRET}\n"}),
        lambda: http(f"https://example.com/{SECRET}\n"),
        lambda: http(f"example.com/{SECRET}"),
        lambda: http(f"https://example.com:{SECRET}/"),
    ],
)
def test_a_refusal_never_shows_the_secret(declare: Any) -> None:  # noqa: ANN401
    with pytest.raises(ConfigurationError) as refusal:
        declare()

    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize("show", [repr, str, rich.pretty.pretty_repr])
def test_a_declaration_shows_its_host_and_no_secret(show: Any) -> None:  # noqa: ANN401
    declared = http(
        f"https://api.example.com/{SECRET}?token={SECRET}",
        auth=Basic("ann", SECRET),
        headers={"x-secret": SECRET},
        signing_keys=KEY,
    )

    shown = [show(one) for one in (declared, Bearer(SECRET), Basic("a", SECRET), SigningKey(KEY))]

    assert "api.example.com" in shown[0]
    for one in (*shown, show(ApiKey("x-api-key", SECRET))):
        assert SECRET not in one
        assert KEY.removeprefix("whsec_") not in one


@pytest.mark.parametrize(
    "url",
    [
        *("https://api.example.com:8443/a/b?c=d", "https://8.8.8.8/", "https://[2a00:1450::1]:80/"),
        *("https://bücher.example/", "https://my_service.internal/", "https://example.com./"),
    ],
)
def test_an_ordinary_url_is_taken(url: str) -> None:
    assert http(url).url == url


@pytest.mark.parametrize(
    ("host", "kind", "network"),
    [
        ("10.0.0.1", "private", "10.0.0.1"),
        ("169.254.169.254", "a metadata service", "169.254.169.254"),
        ("[::1]:8080", "loopback", "::1"),
        ("[::ffff:10.0.0.1]", "private", "::ffff:10.0.0.1"),
        ("localhost:8080", "loopback", "127.0.0.1"),
        ("LOCALHOST.", "loopback", "127.0.0.1"),
    ],
)
def test_an_address_that_no_delivery_would_reach_is_refused_with_the_option_that_allows_it(
    host: str, kind: str, network: str
) -> None:
    url = f"http://{host}/hooks"

    with pytest.raises(ConfigurationError, match=f"an address that is {kind}") as refusal:
        http(url)

    assert f'allow_networks=["{network}"]' in str(refusal.value)
    assert http(url, allow_networks=[network]).url == url
    assert http(url, allow_private=True).url == url


def test_a_host_called_localhost_is_taken_if_one_of_its_addresses_is_allowed() -> None:
    assert http("http://localhost/", allow_networks=["::1"]).host == "localhost"


def test_a_health_check_at_an_address_that_is_not_allowed_is_refused() -> None:
    health = HealthCheck("http://10.0.0.1/health")

    with pytest.raises(ConfigurationError, match=r"'10\.0\.0\.1', an address that is private"):
        Redrive("memory://").destination("crm", "*", transport=http(URL), health=health)


def test_a_key_may_come_without_its_padding() -> None:
    padded = f"whsec_{base64.b64encode(b'k' * 31).decode()}"

    bare = SigningKey(padded.rstrip("="))

    assert bare.signature(b"x") == SigningKey(padded).signature(b"x")


def test_declaring_does_not_load_the_http_library() -> None:
    """A process that only publishes should not pay for it."""
    program = (
        "import sys; from redrive import Redrive, http; app = Redrive('memory://');"
        f"app.destination('crm', '*', transport=http({URL!r}));"
        "sys.exit('aiohttp' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_without_the_http_library_the_declaration_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("redrive.transports.options.find_spec", lambda _: None)

    with pytest.raises(ConfigurationError, match=r"redrive\[http\]"):
        http(URL)


def test_every_option_is_listed_in_the_guide_with_its_default() -> None:
    listed = table_of(ROOT / "docs" / "guides" / "http.md", "Options")
    declared = http(URL)

    assert sorted(listed) == sorted(HttpOptions.__annotations__)
    assert listed["method"][0] == f'`"{declared.method}"`'
    assert listed["body"][0] == f'`"{declared.body}"`'
    assert listed["forward_headers"][0] == '`("traceparent",)`'
    assert declared.forward_headers == ("traceparent",)
    assert listed["connect_timeout"][0] == f'`"{spell_duration(declared.connect_timeout)}"`'
    assert listed["connections"][0] == str(declared.connections)
    assert listed["response_limit"][0] == str(declared.response_limit)


def test_the_terms_of_the_destination_are_checked_as_for_any_other() -> None:
    app = Redrive("memory://")

    with pytest.raises(ConfigurationError, match="timeout"):
        app.destination("crm", "order.*", transport=http(URL), timeout="soon")
