"""Inbound: other people's webhooks, which their signatures let in, made into events."""

from __future__ import annotations

from redrive.inbound.door import Door, Refusal
from redrive.inbound.message import Message
from redrive.inbound.source import Source, read_source

__all__ = ["Door", "Message", "Refusal", "Source", "read_source"]
