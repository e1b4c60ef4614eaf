"""Folders: which files of this machine documents in the store may speak of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from redrive.errors import ConfigurationError

__all__ = ["Folders"]


class Folders:
    """The folders whose files services and sources may use; those who write them may be anywhere.

    `never` are files that they may not use wherever those are, such as the keys.
    """

    def __init__(self, folders: Sequence[str], *, never: Sequence[str] = ()) -> None:
        self._folders = tuple(folders)
        self._never = tuple(never)

    def check(self, path: str) -> None:
        """Refuse a path that leads out of them, also by a link."""
        file = Path(path).resolve()
        if any(file == Path(one).resolve() for one in self._never):
            raise ConfigurationError(f"The file {path} has the keys, and nobody is sent those.")
        if not any(file.is_relative_to(Path(one).resolve()) for one in self._folders):
            raise ConfigurationError(
                f"The file {path} is not in a folder that services may use here "
                f"({', '.join(self._folders) or 'there is none'}). Where this process runs, name "
                "its folder in the setting service_folders."
            )
