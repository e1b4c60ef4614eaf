"""Sealing: values that are kept encrypted, by keys that are not in the store."""

from __future__ import annotations

from redrive.sealing.keyring import KeyRing, KeySource
from redrive.sealing.references import Reference, check_reference, is_reference
from redrive.sealing.resolver import Secrets

__all__ = ["KeyRing", "KeySource", "Reference", "Secrets", "check_reference", "is_reference"]
