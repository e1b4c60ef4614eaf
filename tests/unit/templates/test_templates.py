"""Templates make requests of events."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from redrive.errors import ConfigurationError, MissingFieldError, RenderError
from redrive.model.event import Event, EventId
from redrive.model.outcome import Nature
from redrive.policies.classify import classify
from redrive.templates import EVENT_NAMES, compile_template, event_names

PAYLOAD = {
    "amount": 12.5,
    "count": 3,
    "paid": True,
    "note": None,
    "name": "Ann Lee",
    "customer": {"mail": "ann@example.com", "_id": 7, "a b": 1},
    "lines": [
        {"sku": "B", "price": 4, "gift": True},
        {"sku": "A", "price": 2.5},
        {"sku": "B", "price": 1, "gift": False},
    ],
    "items": ["x", "y"],
    "tags": [],
}
EVENT: Event[Any] = Event(
    id=EventId("0198"),
    type="order.paid",
    payload=msgspec.Raw(msgspec.json.encode(PAYLOAD)),
    published_at=datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC),
    occurred_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
    key="order-42",
    headers={"x-shop": "north"},
)
NAMES = event_names(EVENT)


def text(source: str) -> str:
    rendered: str = compile_template(source, form="text").render(NAMES)
    return rendered


def value(source: object) -> Any:  # noqa: ANN401 - a JSON value
    return compile_template(source).render(NAMES)


def test_a_structure_keeps_the_types_of_what_it_says() -> None:
    made = value(
        {
            "amount": "{{ payload.amount }}",
            "paid": "{{ payload.paid }}",
            "note": "{{ payload.note }}",
            "lines": "{{ payload.lines }}",
            "text": "{{ payload.count }} of {{ payload.paid }}",
            "plain": "no template",
            "number": 7,
            "list": [1, "{{ payload.count + 1 }}", None, {"deep": "{{ key }}"}],
        }
    )

    assert made == {
        "amount": 12.5,
        "paid": True,
        "note": None,
        "lines": PAYLOAD["lines"],
        "text": "3 of true",
        "plain": "no template",
        "number": 7,
        "list": [1, 4, None, {"deep": "order-42"}],
    }
    assert value("{{ payload }}") == PAYLOAD


def test_a_field_can_be_left_out() -> None:
    made = value(
        {
            "vip": "{{ payload.vip | default(omit) }}",
            "list": [1, "{{ omit }}", 2],
            "paid": "{{ payload.paid if payload.count > 5 else omit }}",
        }
    )

    assert made == {"list": [1, 2]}
    with pytest.raises(RenderError, match="nothing to send"):
        value("{{ omit }}")
    with pytest.raises(RenderError, match="is no text"):
        text("{{ omit }}")


def test_it_knows_all_of_the_event() -> None:
    assert {name: value(f"{{{{ {name} }}}}") for name in EVENT_NAMES} == {
        "headers": {"x-shop": "north"},
        "id": "0198",
        "key": "order-42",
        "occurred_at": "2026-03-01T12:00:00+00:00",
        "payload": PAYLOAD,
        "published_at": "2026-03-01T12:00:05+00:00",
        "severity": "info",
        "source": "",
        "tenant": None,
        "type": "order.paid",
    }


def test_names_are_those_that_it_is_given() -> None:
    template = compile_template("{{ service }}-{{ payload.a }}", names=("service", "payload"))

    assert template.render({"service": "crm", "payload": {"a": 1}}) == "crm-1"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ payload.name }}\n", "Ann Lee\n"),
        ("{{ payload['customer']['a b'] }}", "1"),
        ("{{ payload.customer['_id'] }}", "7"),
        ("{{ payload.lines[0].sku }}{{ payload.lines[-1].price }}", "B1"),
        ("{{ payload.items }}", '["x","y"]'),
        ("{% for k, v in payload.customer.items() %}{{ k }}={{ v }};{% endfor %}",
         "mail=ann@example.com;_id=7;a b=1;"),
        ("{{ payload.note }}|{{ payload.paid }}|{{ 1.0 }}|{{ 10 / 4 }}", "null|true|1.0|2.5"),
        ("{{ {'a': [1, none]} }}", '{"a":[1,null]}'),
        ("{{ 'a' ~ 1 ~ payload.paid }}", "a1true"),
        ("{{ 'a' + 'b' }}{{ [1] + [2] }}{{ 1 + 2 }}", "ab[1,2]3"),
        ("{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 * 3 }}{{ 5 - 6 }}{{ -payload.count }}{{ +1 }}", "336-1-31"),
        ("{{ 1 < 2 < 3 }}{{ 'a' >= 'b' }}{{ 1 != true }}{{ 1 == 1.0 }}", "truefalsetruetrue"),
        ("{{ 'x' in payload['items'] }}{{ 'z' not in 'xyz' }}{{ 'mail' in payload.customer }}",
         "truefalsetrue"),
        ("{{ payload.note or 'none' }}{{ payload.paid and 'yes' }}{{ not payload.paid }}",
         "noneyesfalse"),
        ("{{ 'big' if payload.count > 2 else 'small' }}", "big"),
        ("{{ payload.name[:3] }}{{ payload['items'][::-1] }}{{ range(5)[1:3]|list }}",
         'Ann["y","x"][1,2]'),
        ("{% if payload.count == 1 %}a{% elif payload.count == 3 %}b{% else %}c{% endif %}", "b"),
        (("{% for l in payload.lines %}{{ loop.index }}{{ l.sku }}{% if not loop.last %},"
         "{% endif %}{% endfor %}"), "1B,2A,3B"),
        ("{% for l in payload.lines if l.price > 2 %}{{ l.sku }}{{ loop.length }}{% endfor %}",
         "B2A2"),
        ("{% for t in payload.tags %}{{ t }}{% else %}none{% endfor %}", "none"),
        ("{% set a = 1 %}{% for b in [2, 3] %}{% set a = b %}{{ a }}{% endfor %}{{ a }}", "231"),
        ("{% set a, b = [1, 2] %}{{ b }}{% with c = a + 4 %}{{ c }}{% endwith %}", "25"),
        ("{% if true %}{% set a = 1 %}{% endif %}{{ a }}", "1"),
        ("{# hidden #}{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
        ("{{ payload.vip | default('no') }}{{ payload.a.b.c | d(1) }}{{ payload.name|d(2) }}",
         "no1Ann Lee"),
        ("{{ payload.note | default('x', true) }}{{ payload.note | default('x') }}", "xnull"),
        ("{{ payload.vip is defined }}{{ payload.vip is undefined }}{{ key is not defined }}",
         "falsetruefalse"),
        (("{{ payload.paid is true }}{{ payload.note is none }}{{ 1 is number }}"
         "{{ 1.5 is integer }}{{ 1.5 is float }}{{ 'a' is string }}{{ payload is mapping }}"
         "{{ [] is sequence }}{{ true is boolean }}{{ 3 is odd }}{{ 3 is even }}{{ 0 is false }}"),
         "truetruetruefalsetruetruetruetruetruetruefalsefalse"),
        ("{{ key is starting('order-') }}{{ key is ending('-1') }}", "truefalse"),
        ("{{ key.startswith('order-') }}{{ key.endswith('42') }}{{ key.split('-')[1] }}",
         "truetrue42"),
        (("{{ 'a-b-c'.split('-', 1) }}{{ 'a'.upper() }}{{ 'B'.lower() }}{{ ' c '.strip() }}"
         "{{ 'x y'.title() }}{{ 'aa'.replace('a', 'b') }}"), '["a","b-c"]AbcX Ybb'),
        ("{{ payload.customer.keys() }}{{ payload.customer.get('x', 5) }}",
         '["mail","_id","a b"]5'),
        ("{{ {'a': 1}.values() }}{{ {'a': 1}|items }}", '[1][["a",1]]'),
    ],
)  # fmt: skip
def test_it_says(source: str, expected: str) -> None:
    assert text(source) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("-3 | abs", 3),
        ("'ä:' | b64encode", "w6Q6"),
        ("'aNN' | capitalize", "Ann"),
        ("'abc' | count", 3),
        ("occurred_at | date", "2026-03-01"),
        ("occurred_at | date('%d.%m.%y %H:%M')", "01.03.26 12:00"),
        ("'<b>' | e", "&lt;b&gt;"),
        ("'&' | escape", "&amp;"),
        ("[4, 5] | first", 4),
        ("12.345 | fixed", "12.35"),
        ("2 | fixed(3)", "2.000"),
        ("'1.5' | float", 1.5),
        ("'x' | float(0.5)", 0.5),
        ("' 12 ' | int", 12),
        ("12.9 | int", 12),
        ("'x' | int(-1)", -1),
        ("{'a': 1} | items", [["a", 1]]),
        ("[1, 'a', true] | join('-')", "1-a-true"),
        ("payload.lines | join(', ', attribute='sku')", "B, A, B"),
        ("[4, 5] | last", 5),
        ("payload.lines | length", 3),
        ("range(2, 8, 3) | list", [2, 5]),
        ("'ab' | list", ["a", "b"]),
        ("'ANN' | lower", "ann"),
        ("payload.lines | map('sku')", ["B", "A", "B"]),
        ("payload.lines | map('gift', default=none)", None),
        ("payload.lines | map('gift', default=false)", [True, False, False]),
        ("payload.lines | max('price')", {"sku": "B", "price": 4, "gift": True}),
        ("[3, 1.5, 2] | min", 1.5),
        ("payload.lines | reject('gift') | map('price')", [2.5, 1]),
        ("'aaa' | replace('a', 'b', 2)", "bba"),
        ("'abc' | reverse", "cba"),
        ("[1, 2] | reverse", [2, 1]),
        ("2.5 | round", 2),
        ("2.345 | round(2)", 2.35),
        ("payload.lines | select('sku', equals='B') | map('price')", [4, 1]),
        ("'a' | sha256", "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"),
        ("[3, 1, 2] | sort", [1, 2, 3]),
        ("payload.lines | sort('price', reverse=true) | map('price')", [4, 2.5, 1]),
        ("12 | string", "12"),
        ("payload.lines | sum('price')", 7.5),
        ("[1, 2] | sum(start=4)", 7),
        ("occurred_at | timestamp", 1772366400),
        ("'ann lee' | title", "Ann Lee"),
        ("{'a': [1, none]} | tojson", '{"a":[1,null]}'),
        ("'  a ' | trim", "a"),
        ("'abcdef' | truncate(4)", "abc…"),
        ("'abc' | truncate(4)", "abc"),
        ("[1, 2, 1, '1', true] | unique", [1, 2, "1", True]),
        ("payload.lines | unique('sku') | length", 2),
        ("'ann' | upper", "ANN"),
        ("'a b/ü' | urlencode", "a%20b%2F%C3%BC"),
    ],
)  # fmt: skip
def test_a_filter_gives(expression: str, expected: object) -> None:
    if expected is None:
        with pytest.raises(MissingFieldError):
            value(f"{{{{ {expression} }}}}")
        return
    made = value(f"{{{{ {expression} }}}}")

    assert (made, type(made)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("{{ payload.vip }}", "payload.vip is not there."),
        ("{{ payload.customer.phone }}", "payload.customer.phone is not there."),
        ("{{ payload.a.b.c }}", "payload.a is not there."),
        ("{{ payload.note.x }}", "payload.note.x is not there: what it is looked for in is null."),
        ("{{ payload.lines[7].sku }}", "payload.lines[7] is not there: 3 are."),
        ("{{ payload['a b'] }}", "payload['a b'] is not there."),
        ("{{ headers['x-other'] }}", "headers['x-other'] is not there."),
        ("{{ payload.lines | map('gift') }}",
         "map(attribute='gift') of an element is not there."),
        ("{% if payload.vip %}{% endif %}", "payload.vip is not there."),
        ("{{ payload.tags | first }}", "first is not there: the list is empty."),
        ("{% if false %}{% set a = 1 %}{% endif %}{{ a }}", "a is not there."),
        ("{{ payload[payload.name] }}", "payload[…] is not there."),
    ],
)  # fmt: skip
def test_what_is_not_there_is_named_and_is_terminal(source: str, complaint: str) -> None:
    with pytest.raises(MissingFieldError) as caught:
        text(source)

    assert str(caught.value) == complaint
    assert classify(caught.value).nature is Nature.TERMINAL
    with pytest.raises(MissingFieldError) as caught:
        value({"a": [{"b": f"x{source}"}]})
    assert str(caught.value) == f"at a[0].b: {complaint}"


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("{{ 1 + 'a' }}", "+ got a number and text; ~ puts text and numbers together."),
        ("{{ 'a' * 3 }}", "* works on numbers, and got text."),
        ("{{ true + 1 }}", "+ works on numbers, and got true or false."),
        ("{{ 1 / 0 }}", "/ cannot divide by 0."),
        ("{{ 1 < 'a' }}", "A number cannot be compared with text"),
        ("{{ 5 | upper }}", "upper works on text, and got a number."),
        ("{{ 'x' | int }}", "int got text that is no number."),
        ("{% for a in payload %}{% endfor %}", "A loop works on a list, and got an object"),
        ("{% for a, b in [1] %}{% endfor %}", "a, b are set by a list of 2, and got a number."),
        ("{{ payload.name | date }}", "date reads an instant"),
        ("{{ {1: 2} }}", "The names of fields are text, and one is a number."),
        ("{{ '\\ud800' }}", "It would build something that JSON cannot hold."),
        ("{{ [1, 'a'] | sort }}", "sort works on numbers, or on text"),
        ("{{ 'a' in 5 }}", "in works on a list, and got a number."),
    ],
)
def test_what_means_nothing_is_said_without_the_value(source: str, complaint: str) -> None:
    with pytest.raises(RenderError) as caught:
        text(source)

    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("{{ payload.a", "line 1: unexpected end of template"),
        ("a\n\n{% fro x in y %}", "line 3: Encountered unknown tag 'fro'"),
        ("{{ paylod.a }}", "line 1: There is no name 'paylod'; did you mean 'payload'?"),
        ("{{ key | uper }}", "There is no filter 'uper'; did you mean 'upper'?"),
        ("{{ key.uper() }}", "There is no method 'uper'; did you mean 'upper'?"),
        ("{{ key is defind }}", "There is no test 'defind'; did you mean 'defined'?"),
        ("{{ key | replace('a') }}", "replace takes (old, new, count=…)."),
        ("{{ key | upper(1) }}", "upper takes no arguments."),
        ("{{ key | join(glue='a') }}", "join takes (separator=…, attribute=…), and got glue=."),
        ("{{ key | replace(*payload) }}", "replace takes its arguments one by one"),
        ("{{ 'a' if key }}", "an if within an expression needs an else"),
        ("{{ payload.__class__ }}", "write ['__class__'] for a field of that name."),
        ("{{ payload() }}", "only range(…) and the methods of a value"),
        ("{% include 'a' %}", "{% include %} is not among what templates can do."),
        ("{% set payload = 1 %}", "'payload' cannot be set"),
        ("{{ 2 ** 3 }}", "** (a power) is not among what templates can do."),
    ],
)
def test_what_is_wrong_is_said_when_it_is_saved(source: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        compile_template(source, form="text")

    assert complaint in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"^at a\[0\]\.b: "):
        compile_template({"a": [{"b": f"x{source}"}]})


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ({"a": {1, 2}}, "is a JSON value"),
        ({"a": float("nan")}, "is a JSON value"),
        ({"{{ key }}": 1}, "only values have them"),
        ("x" * 70_000, "more than the limit of 65,536"),
        (["{{ key }}"] * 1_000, "more than 8,000 names, signs and pieces of text"),
    ],
)
def test_what_is_no_structure_is_refused(source: object, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        compile_template(source)
    with pytest.raises(ConfigurationError, match="in the form of text is a dict"):
        compile_template({}, form="text")


def test_the_same_source_is_compiled_once() -> None:
    assert compile_template({"a": "{{ key }}"}) is compile_template({"a": "{{ key }}"})
    assert compile_template("{{ key }}") is not compile_template("{{ key }}", form="text")


def test_a_usual_template_is_rendered_within_a_hundred_microseconds() -> None:
    template = compile_template(
        {
            "order": "{{ key }}",
            "amount": "{{ payload.amount }}",
            "title": "{{ payload.lines | length }} things for {{ payload.name | upper }}",
            "skus": "{{ payload.lines | map('sku') }}",
            "coupon": "{{ payload.coupon | default(omit) }}",
        }
    )
    template.render(NAMES)

    took = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(200):
            template.render(NAMES)
        took.append((time.process_time() - began) / 200)

    assert min(took) < 0.0001


def test_rendering_changes_nothing_that_it_was_given() -> None:
    before = msgspec.json.encode(NAMES)

    value({"a": "{{ payload.lines | sort('price') | reverse }}", "b": "{{ payload.lines + [1] }}"})
    text("{% set a = payload %}{% for l in a.lines %}{{ l.sku }}{% endfor %}")

    assert msgspec.json.encode(NAMES) == before
