"""Lines of files that are encrypted as the store is: of journals, exports and archives."""

from __future__ import annotations

from redrive.sealing.vault import Vault

__all__ = ["SealedLines"]

_ABOUT = b"line"


class SealedLines:
    """Encrypts lines by the key that the store is encrypted by.

    A process that has not reached its store yet does not know; if it has keys, it encrypts.
    """

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    @property
    def key_id(self) -> str:
        """The key that lines are encrypted by, empty if by none."""
        return self._vault.current

    def seal(self, line: bytes) -> bytes:
        """Return a line as it is to be written: the same, or a text in JSON that hides it."""
        if not (key_id := self.key_id):
            return line
        return f'"{self._vault.seal(line, key_id=key_id, about=_ABOUT)}"'.encode()

    def open(self, line: bytes) -> bytes:
        """Return what was sealed; raises `SecretError` if it cannot be."""
        text = line.strip().strip(b'"').decode("ascii", "replace")
        return self._vault.open(text, about=_ABOUT, what="A line of the file")
