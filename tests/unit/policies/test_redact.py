"""The one rule for what is blanked: names, free text, known values in any spelling."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError, UsageError
from redrive.model.edit import Change, ChangeKind
from redrive.model.event import Event, EventId
from redrive.model.outcome import Exchange, Fault
from redrive.policies.redact import (
    BLANK,
    Redaction,
    check_names,
    without_half,
    without_secrets,
)

RULE = Redaction()
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "name",
    [
        *("authorization", "Proxy-Authorization", "auth", "basic_auth", "x-auth-user"),
        *("cookie", "Set-Cookie", "session", "sessionId", "PHPSESSID", "csrf", "X-XSRF"),
        *("token", "access_token", "accessToken", "jwt", "otp", "pin", "card_pin"),
        *("password", "userPassword", "db_passwd", "PWD", "passphrase"),
        *("sig", "x-sig", "X-Sig", "webhookSig", "signature", "bearer", "x-bearer"),
        *("secret", "clientSecret", "aws_secret_access_key", "credentials", "webhook-signature"),
        *("apikey", "apiKey", "APIKey", "X-Api-Key", "api.key", "private_key", "privateKey"),
    ],
)
def test_what_sounds_like_a_secret_is_hidden(name: str) -> None:
    assert RULE.hides(name)


@pytest.mark.parametrize(
    "name",
    [
        *("author", "authors", "authored_by", "key", "order_key", "idempotency_key", "keyboard"),
        *("monkey", "pinned", "shipping", "hotpot", "passport", "session_minutes", "traceparent"),
        *("x-request-id", "content-type", "total", "iban", "signal", "design", "assigned"),
    ],
)
def test_what_only_resembles_one_is_not(name: str) -> None:
    assert not RULE.hides(name)


def test_an_app_may_hide_more_names() -> None:
    rule = Redaction(("iban", "card_*"))

    assert [
        one for one in ("IBAN", "cardNumber", "card-cvc", "cards", "password") if rule.hides(one)
    ]
    assert rule.document({"iban": "DE02", "cardNumber": 4111, "cards": 2}) == {
        "iban": BLANK,
        "cardNumber": BLANK,
        "cards": 2,
    }


def test_a_payload_is_searched_at_any_depth() -> None:
    payload = {
        "user": {"name": "ann", "password": "hunter2", "tokens": ["a", "b"]},
        "calls": [{"url": "https://h/p?token=abc&page=2"}, [{"secret": {"deep": 1}}]],
        "has_password": True,
        "password": None,
        "pin": "",
        "total": 3,
    }

    assert RULE.document(payload) == {
        "user": {"name": "ann", "password": BLANK, "tokens": BLANK},
        "calls": [{"url": f"https://h/p?token={BLANK}&page=2"}, [{"secret": BLANK}]],
        "has_password": True,
        "password": None,
        "pin": "",
        "total": 3,
    }


def test_a_payload_without_a_secret_stays_as_it_was_written() -> None:
    raw = msgspec.Raw(b'{ "n": 1.00, "n2": 1e3, "big": 123456789012345678901234567890 }')

    assert bytes(RULE.payload(raw)) == bytes(raw)


@pytest.mark.parametrize(
    "written",
    [
        b'{"password":"hunter2-long"}',
        b'{"p\\u0061ssword":"hunter2-long"}',
        b'{"a":{"password":"hunter2-long"},"a":1}',
        b'["password=hunter2-long"]',
        b'{"password":"hunter2-long',
    ],
)
def test_however_a_payload_is_written_no_secret_is_left(written: bytes) -> None:
    assert b"hunter2" not in bytes(RULE.payload(msgspec.Raw(written)))


def test_headers_are_hidden_by_name_and_tell_no_secret_otherwise() -> None:
    headers = {"Authorization": "Bearer x", "traceparent": "00-abc", "link": "https://a:b@h/"}

    assert RULE.headers(headers) == {
        "Authorization": BLANK,
        "traceparent": "00-abc",
        "link": f"https://a:{BLANK}@h/",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password=hunter2", f"password={BLANK}"),
        ("{'password': 'x y', 'a': 1}", f"{{'password': {BLANK}, 'a': 1}}"),
        ('{"apiKey":"x\\"y","b":[1]}', f'{{"apiKey":{BLANK},"b":[1]}}'),
        ('{"password":"cut off he', f'{{"password":{BLANK}'),
        ("input_value={'pin': 1234}, type=dict", f"input_value={{'pin': {BLANK}}}, type=dict"),
        ("Authorization: Bearer abcd.efgh-123", f"Authorization: {BLANK}"),
        ("sent Bearer abcd.efgh-123 to them", f"sent Bearer {BLANK} to them"),
        ("set-cookie: a=b; Path=/\nnext: line", f"set-cookie: {BLANK}\nnext: line"),
        ("https://h/p?token=abc&x=1#f", f"https://h/p?token={BLANK}&x=1#f"),
        ("POST /hook?SECRETSECRET failed", f"POST /hook?{BLANK} failed"),
        ("postgresql://shop:p%40w@db/shop", f"postgresql://shop:{BLANK}@db/shop"),
        ("mysql://u:p@ss@h/d?a=b@c", f"mysql://u:{BLANK}@h/d?a=b@c"),
        ("mysql://u@corp:p@ss@h/d", f"mysql://u@corp:{BLANK}@h/d"),
        ("redis://:p@h1,redis://:q@h2", f"redis://:{BLANK}@h1,redis://:{BLANK}@h2"),
        ("Key (secret)=(x1) already exists", f"Key (secret)=({BLANK}) already exists"),
        (
            "Key (shop, secret)=(7, x1) already exists",
            f"Key (shop, secret)=({BLANK}) already exists",
        ),
        ("Bearer abcdefgh", f"Bearer {BLANK}"),
        ("sent 'bearer abc123' twice", f"sent 'bearer {BLANK}' twice"),
        ("x-sig: t=1,v1=abcdef, order: 7", f"x-sig: {BLANK}, order: 7"),
        ("Bearer%20a1b, Basic dTpw", f"Bearer%20{BLANK}, Basic {BLANK}"),
        ("/b?sv=2&sig=AbC%2Bd%3D&se=1", f"/b?sv=2&sig={BLANK}&se=1"),
        ('bad {"tokens":["LT1",{"a":"]"}],"n":1}', f'bad {{"tokens":{BLANK},"n":1}}'),
        ("bad {'tokens': ['LT1', 'LT2'], 'n': 1}", f"bad {{'tokens': {BLANK}, 'n': 1}}"),
        ('{\\"tokens\\":[\\"LT1\\"],\\"n\\":1}', f'{{\\"tokens\\":{BLANK},\\"n\\":1}}'),
        ("tokens=('LT1', 'LT2'), n=1", f"tokens=({BLANK}), n=1"),
        ("tokens: [LT1, LT2]\nn: 1", f"tokens: {BLANK}\nn: 1"),
        ('cut {"secret":{"a":"LT1","b":"L', f'cut {{"secret":{BLANK}'),
        ("mysql --password hunter2 -h db", f"mysql --password {BLANK} -h db"),
        ("['mysql', '--api-key', 'a b', 'x']", f"['mysql', '--api-key', {BLANK}, 'x']"),
        ("x -n 'it --password hunter2", f"x -n 'it --password {BLANK}"),
        ("login ann password hunter2 now", f"login ann password {BLANK} now"),
    ],
)
def test_secrets_written_out_in_text_are_blanked(text: str, expected: str) -> None:
    assert RULE.text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "unexpected token: end of input",
        "unexpected token: '<'",
        "KeyError: 'password'",
        "password was wrong",
        "Basic understanding of it.",
        "Basic sign-in and basic read/write checks",
        "the bearer of news",
        "Bearer authentication failed: Bearer token required.",
        'Bearer realm="shop"',
        "option --password is required, --token too",
        "the password was changed on 2026-01-31",
        "unexpected token: { at line 3",
        "unexpected token 12",
        "tokens=[] and secret={}",
        "https://h/hooks?v=2",
        "postgresql://shop@db/shop",
        f"password={BLANK}",
    ],
)
def test_text_about_secrets_stays(text: str) -> None:
    assert RULE.text(text) == text


@given(st.text(alphabet="ab:=\"'\\ ?/@&.\n[]{}(),-passwordtoken", max_size=80))
def test_what_is_blanked_once_is_not_blanked_again(text: str) -> None:
    once = RULE.text(text)

    assert RULE.text(once) == once


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://h:8/hooks", "https://h:8/hooks"),
        ("https://h/hooks?a=1&b=", f"https://h/hooks?a={BLANK}&b={BLANK}"),
        ("https://h/hook?TOKEN", f"https://h/hook?{BLANK}"),
        ("https://h/hook?v=1&TOKEN", f"https://h/hook?v={BLANK}&{BLANK}"),
        ("https://h/T0123ABC/x", f"https://h/{BLANK}/x"),
    ],
)
def test_of_the_address_of_a_destination_only_what_is_plain_is_shown(
    url: str, expected: str
) -> None:
    assert RULE.url(url) == expected


SPOKEN = 's3cr/t +"ü&\\Key'


@pytest.mark.parametrize(
    "spelled",
    [
        SPOKEN,
        SPOKEN.upper(),
        quote(SPOKEN),
        quote_plus(SPOKEN),
        quote(SPOKEN, safe="").lower(),
        quote(quote(SPOKEN, safe=""), safe=""),
        json.dumps(SPOKEN)[1:-1],
        json.dumps(SPOKEN, ensure_ascii=False)[1:-1],
        json.dumps(SPOKEN)[1:-1].replace("/", "\\/"),
        SPOKEN.replace("&", "&amp;").replace('"', "&quot;"),
        "".join(f"&#{ord(one)};" for one in SPOKEN),
        "".join(f"\\u{ord(one):04x}" for one in SPOKEN),
    ],
)
def test_a_known_secret_is_blanked_however_it_is_spelled(spelled: str) -> None:
    assert without_secrets(f"<{spelled}>", (SPOKEN,)) == f"<{BLANK}>"


def test_of_two_secrets_the_longer_one_is_blanked_first() -> None:
    assert without_secrets("whsec_abcdef", ("abcdef", "whsec_abcdef")) == BLANK


@pytest.mark.parametrize("cut", ["the-who", "THE-WHO", "the%2Dwho", "the%2Dwho%", "the-w\\u00"])
def test_the_beginning_of_a_secret_at_a_cut_goes(cut: str) -> None:
    assert without_half(f"x {cut}", ("the-whole-of-it",)) == "x "


def test_a_letter_or_two_at_a_cut_may_be_anything() -> None:
    assert without_half("x the", ("the-whole-of-it",)) == "x the"


def test_a_fault_repeats_no_secret_of_its_event() -> None:
    event = Event(
        id=EventId("1"),
        type="order.paid",
        payload=msgspec.Raw(b'{"user":{"password":"corr/ect horse"},"pin":4711}'),
        published_at=NOW,
        occurred_at=NOW,
        headers={"authorization": "Bearer abc-def"},
    )
    fault = Fault(
        error_class="E",
        message="wrong: Corr%2Fect+horse, 4711",
        rule="default",
        stack="raise E('Bearer abc-def')",
        title="wrong: corr\\/ect horse",
    )

    told = RULE.fault(fault, RULE.values_of(event))

    assert (told.message, told.title) == (f"wrong: {BLANK}, {BLANK}", f"wrong: {BLANK}")
    assert told.stack == f"raise E('{BLANK}')"


def test_a_short_secret_of_an_event_is_blanked_where_it_stands_alone() -> None:
    secrets = RULE.values({}, msgspec.Raw(b'{"tokens":["LT1","LT2",{"a":"low"}],"pin":123}'))

    told = without_secrets("lt1 and 'LT2' at 123, not LT10, 1234 or low", secrets)

    assert told == f"{BLANK} and '{BLANK}' at {BLANK}, not LT10, 1234 or low"


@pytest.mark.parametrize(
    "piece",
    [
        *("token=[a ", "tokens=['", "tokens=[[", "Bearer ", "--token ", "a://b:c@", "password a"),
        *("Bearer a.", "token=(", "--token '", "token a1", "\\"),
    ],
)
def test_a_long_text_is_searched_in_one_go(piece: str) -> None:
    text = "token" + piece * (200_000 // len(piece))
    began = time.process_time()

    RULE.text(text)

    assert time.process_time() - began < 10  # the square of it would take minutes


def test_an_exchange_is_shown_without_secrets_on_either_side() -> None:
    exchange = Exchange(
        method="POST",
        url="https://h/",
        headers={"content-type": "application/json", "x-trace": "hunter2-long"},
        size=2,
        sent='{"order":1,"password":"hunter2-long"}',
        status=400,
        answer_headers={"set-cookie": "a=b"},
        body="bad: HUNTER2-long, token=xyz",
    )

    told = RULE.exchange(exchange, ("hunter2-long",))

    assert told.sent == f'{{"order":1,"password":"{BLANK}"}}'
    assert (told.headers["x-trace"], told.answer_headers) == (BLANK, {"set-cookie": BLANK})
    assert told.body == f"bad: {BLANK}, token={BLANK}"


@pytest.mark.parametrize(
    ("path", "before", "after", "expected"),
    [
        ("total", "1", "2", ("1", "2")),
        ("user.password", '"a"', '"b"', (BLANK, BLANK)),
        ("tokens[0]", "", '"b"', ("", BLANK)),
        ('["api key"].x', '"a"', "", (BLANK, "")),
        ("user", '{"pin":1,"n":2}', '{"pin":9,"n":2', (f'{{"pin":"{BLANK}","n":2}}', None)),
    ],
)
def test_a_difference_tells_where_but_no_secret(
    path: str, before: str, after: str, expected: tuple[str, str | None]
) -> None:
    told = RULE.change(Change(path=path, kind=ChangeKind.CHANGED, before=before, after=after))

    assert told.before == expected[0]
    assert told.after == expected[1] or (expected[1] is None and ":9" not in told.after)


CURRENT: dict[str, Any] = {"password": "x", "items": [{"pin": 1, "n": 1}, {"n": 2}], "n": 1}


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        ({"password": BLANK, "n": 2}, {"password": "x", "n": 2}),
        ({"password": "new"}, {"password": "new"}),
        ({"n": 1, "items": [{"pin": BLANK, "n": 1}]}, {"n": 1, "items": [{"pin": 1, "n": 1}]}),
        ({"items": [{"pin": 7, "n": 3}, {"n": 9}]}, {"items": [{"pin": 7, "n": 3}, {"n": 9}]}),
    ],
)
def test_what_stayed_blanked_is_put_back(given_value: object, expected: object) -> None:
    assert RULE.put_back(given_value, CURRENT) == expected


@pytest.mark.parametrize(
    ("given_value", "where"),
    [
        ({"secret": BLANK}, "secret"),
        ({"n": BLANK}, "n"),
        ({"items": [{"n": 2}, {"pin": BLANK, "n": 1}]}, r"items\[1\]"),
        ({"items": [{"pin": BLANK, "n": 7}]}, r"items\[0\]"),
        (BLANK, r"\$"),
    ],
)
def test_what_cannot_be_told_is_not_put_back(given_value: object, where: str) -> None:
    with pytest.raises(UsageError, match=f"at {where}, and it cannot be told which value"):
        RULE.put_back(given_value, CURRENT)


@pytest.mark.parametrize("names", [(), [], "", "iban, card_*", ("iban", "card_*"), ["x.y-z"]])
def test_names_are_a_list_or_text_with_commas(names: object) -> None:
    assert all(isinstance(one, str) for one in check_names(names))


@pytest.mark.parametrize("names", [7, [7], "*", ["a b"], ["a" * 101], ["x"] * 201, {"a": 1}, "ä/b"])
def test_what_names_nothing_is_refused(names: object) -> None:
    with pytest.raises(ConfigurationError, match="it is a list of names of headers and fields"):
        check_names(names)
