"""Makes the stores that an app's settings name."""

from __future__ import annotations

import sys
from collections.abc import Callable

from redrive.app.config import Settings, parse_store
from redrive.app.declaration import Ports
from redrive.app.importing import unforked
from redrive.observer import Observer
from redrive.sealing import KeyRing, KeySource, SealedLines, Vault
from redrive.store import Store

__all__ = ["StoreFactory", "forget_parent", "import_store", "store_name"]


class StoreFactory:
    """Makes an app's stores, one for each event loop; one in memory is made once and shared."""

    def __init__(self, ports: Ports, observer: Observer, keys_file: Callable[[], str]) -> None:
        self._clock = ports.clock
        self._keys_file = keys_file
        self._source: tuple[str, KeySource] | None = None
        self._vault = Vault(self._keys, entropy=ports.entropy)
        self.seal = SealedLines(self._vault)
        """What encrypts lines of files as the store is encrypted."""
        self._observer = observer
        self._memory: Store | None = None

    def make(self, settings: Settings) -> Store:
        """Return the store of these settings, still to be opened."""
        import_store(settings)
        address, clock, history = parse_store(settings.store), self._clock, settings.history
        vault = self._vault
        if address.scheme == "postgresql":
            from redrive.stores.postgres import PostgresStore  # noqa: PLC0415 - only who uses it pays

            observer = self._observer
            return PostgresStore(
                settings.store, clock=clock, history=history, observer=observer, vault=vault
            )
        if address.path is not None:
            from redrive.stores.sqlite import SqliteStore  # noqa: PLC0415 - only who uses it pays

            return SqliteStore(address.path, clock=clock, history=history, vault=vault)
        if self._memory is None:
            from redrive.stores.memory import MemoryStore  # noqa: PLC0415 - only who uses it pays

            self._memory = MemoryStore(clock, history)
        return self._memory

    def _keys(self) -> KeyRing:
        """Return the keys there are now, of the file that the settings name now."""
        file = self._keys_file()
        if self._source is None or self._source[0] != file:
            self._source = file, KeySource(file)
        return self._source[1]()


def store_name(store: str) -> str:
    """Return the address of a store as people may see it, without a password."""
    address = parse_store(store)
    if address.scheme == "postgresql":
        from redrive.stores.postgres import read_address  # noqa: PLC0415 - only who uses it pays

        return read_address(store).name
    return store if address.path is None else str(address.path.resolve())


def import_store(settings: Settings) -> None:
    """Have the store's module at hand: a fork while another thread imports it breaks the child."""
    address = parse_store(settings.store)
    with unforked():
        if address.scheme == "postgresql":
            import redrive.stores.postgres  # noqa: PLC0415 - only who uses it pays
        elif address.path is not None:
            import redrive.stores.sqlite  # noqa: F401, PLC0415 - as above


def forget_parent(settings: Settings) -> None:
    """After a fork: see to it that the store's file, open in the parent, is left to the parent."""
    path = parse_store(settings.store).path
    # A parent that has never imported it has nothing open, and the import takes each child long.
    if path is not None and "redrive.stores.sqlite" in sys.modules:
        from redrive.stores.sqlite.forking import disown  # noqa: PLC0415 - only who uses it pays

        disown(path)
