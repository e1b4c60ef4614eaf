"""Sealing: values that are kept encrypted, by keys that are not in the store."""

from __future__ import annotations

from redrive.sealing.files import SealedLines
from redrive.sealing.folders import Folders
from redrive.sealing.keyring import KeyRing, KeySource
from redrive.sealing.references import Reference, check_reference, is_reference
from redrive.sealing.resolver import Secrets
from redrive.sealing.vault import Vault

__all__ = [
    "Folders",
    "KeyRing",
    "KeySource",
    "Reference",
    "SealedLines",
    "Secrets",
    "Vault",
    "check_reference",
    "is_reference",
]
