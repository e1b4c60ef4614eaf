"""Each way can be made from a document, as a store keeps it, and a wrong one says what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redrive.errors import ConfigurationError
from redrive.policies.terms import Terms
from redrive.testing.clock import FakeClock
from redrive.transport import Blueprint
from redrive.transports.kinds import KINDS, way_of

DOCUMENTS: dict[str, dict[str, Any]] = {
    "amqp": {"url": "amqp://example.com/shop", "exchange": "orders"},
    "file": {"path": "events.jsonl", "body": "payload", "rotate_bytes": 1000, "keep": 3},
    "http": {"url": "https://example.com/in", "auth": {"bearer": "hidden token"}, "batch": 10},
    "loki": {"url": "https://example.com", "labels": {"app": "shop"}},
    "nats": {"url": "nats://example.com", "prefix": "shop"},
    "otlp": {"url": "https://example.com:4318"},
    "redis_stream": {"url": "redis://example.com/0", "stream": "orders"},
    "sentry": {"url": "https://example.com/42", "key": "f1e2d3c4"},
    "ses": {"region": "eu-central-1", "sender": "shop@example.com", "to": "a@b.example"},
    "smtp": {"url": "smtp://example.com", "sender": "shop@example.com", "to": ["a@b.example"]},
    "stdout": {"body": "event"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_way_is_made_from_a_document(kind: str) -> None:
    document = json.loads(json.dumps(DOCUMENTS[kind]))

    way = way_of(kind, document)

    assert isinstance(way, Blueprint)
    assert way.build(terms=Terms(), clock=FakeClock()).batch >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_option_that_nothing_reads_is_refused(kind: str) -> None:
    with pytest.raises(ConfigurationError, match="colour"):
        way_of(kind, {**DOCUMENTS[kind], "colour": "red"})


@pytest.mark.parametrize(
    ("kind", "document", "said"),
    [
        ("htp", {}, "http"),
        ("http", {}, "needs url"),
        ("http", {**DOCUMENTS["http"], "tls": True}, "by code"),
        ("http", {**DOCUMENTS["http"], "auth": "token"}, "one key"),
        ("http", {**DOCUMENTS["http"], "auth": {"bearer": 1}}, "one key"),
        ("file", {"path": "x", "keep": 1}, "rotate"),
    ],
)
def test_a_wrong_document_says_what_is_wrong(
    kind: str, document: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        way_of(kind, document)


@pytest.mark.parametrize(
    "auth",
    [{"bearer": "hidden"}, {"basic": ["ann", "hidden"]}, {"api_key": ["x-key", "hidden"]}],
)
def test_who_we_are_is_an_object_with_one_key(auth: dict[str, object]) -> None:
    assert "hidden" not in repr(way_of("http", {"url": "https://example.com", "auth": auth}))
