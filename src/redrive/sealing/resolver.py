"""Resolver: what references stand for, looked up when it is needed."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from redrive.clock import Clock
from redrive.errors import SecretError, StoreError
from redrive.model.secret import LONGEST_SECRET
from redrive.sealing.folders import Folders
from redrive.sealing.keyring import KeyRing
from redrive.sealing.references import Reference, check_reference
from redrive.store.secrets import SealedSecrets, about_secret

__all__ = ["FRESH_FOR", "Secrets"]

FRESH_FOR = timedelta(seconds=5)
"""For how long what was read is gone by; who changes a secret waits no longer for all to know."""


class _Known(NamedTuple):
    value: str
    read_at: float


class Secrets:
    """Looks secrets up by reference, and remembers them for some seconds.

    A store that cannot be reached right now keeps nobody from what was read of it before. It shows
    none of them, and keeps none on disk.
    """

    def __init__(
        self,
        store: Callable[[], Awaitable[SealedSecrets]],
        keys: Callable[[], KeyRing],
        *,
        clock: Clock,
        folders: Folders,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folders = folders
        """Where files may be that references and documents speak of."""
        self._store = store
        self._keys = keys
        self._clock = clock
        self._environment = os.environ if environment is None else environment
        self._known: dict[Reference, _Known] = {}

    async def value(self, reference: str) -> str:
        """Return the secret that a reference stands for, or say why it cannot be had here."""
        read = check_reference(reference)
        now = self._clock.monotonic()
        known = self._known.get(read)
        if known is not None and now - known.read_at < FRESH_FOR.total_seconds():
            return known.value
        try:
            value = await self._look_up(read)
        except StoreError:
            if known is None:
                raise
            return known.value
        except SecretError:
            self._known.pop(read, None)
            raise
        self._known[read] = _Known(value, now)
        return value

    async def values(self, references: Iterable[str]) -> dict[str, str]:
        """Return several, by their references."""
        return {one: await self.value(one) for one in sorted(frozenset(references))}

    async def _look_up(self, reference: Reference) -> str:
        match reference.kind:
            case "env":
                value = self._environment.get(reference.name, "")
                if not value:
                    raise _missing(
                        reference, "the environment of this process has no such variable"
                    )
                return value
            case "file":
                self.folders.check(reference.name)
                return _read_file(reference)
        kept = await (await self._store()).find_secret(reference.name)
        if kept is None:
            raise _missing(reference, f"set it with: redrive secret set {reference.name} --why …")
        what = f"The secret {reference.name}"
        plain = self._keys().open(kept.sealed, about=about_secret(reference.name), what=what)
        return plain.decode()

    def __repr__(self) -> str:
        return "Secrets(…)"


def _read_file(reference: Reference) -> str:
    try:
        with Path(reference.name).open("rb") as file:
            content = file.read(LONGEST_SECRET + 1)
        value = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise _missing(reference, "the file is no text") from None
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or "it is no file"
        raise _missing(reference, f"the file cannot be read: {said}") from None
    if not value or len(content) > LONGEST_SECRET:
        raise _missing(reference, "the file is empty, or too large for a secret")
    return value


def _missing(reference: Reference, why: str) -> SecretError:
    return SecretError(f"The secret {reference} is not there: {why}.")
