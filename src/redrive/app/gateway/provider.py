"""What makes a worker's ways to services out of their documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redrive.app.declaration import Ports, have_recall
from redrive.app.gateway.secrets import PEM_FILES, files_in, references_in
from redrive.app.gateway.service import ReadService, read_service
from redrive.app.gateway.shaping import Shaper
from redrive.errors import RedriveError
from redrive.model.destination import Destination
from redrive.sealing import Secrets
from redrive.store import Store
from redrive.transport import Endpoint
from redrive.transports.http.wires import Wires
from redrive.worker.provider import Provided

__all__ = ["ServiceProvider"]

_AT_A_TIME = 20


class ServiceProvider:
    """Makes endpoints of stored services for one worker, of all or of some."""

    def __init__(
        self,
        store: Store,
        ports: Ports,
        secrets: Secrets,
        is_wanted: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._store = store
        self._ports = ports
        self._secrets = secrets
        self._is_wanted = is_wanted
        self._shaper = Shaper(store)
        self._wires = Wires()

    async def provide(self, services: Sequence[Destination]) -> Provided:
        """Return the endpoints of these services; one that cannot be made is no harm to others."""
        wanted = {one.name: one for one in services if self._is_wanted(one.name)}
        endpoints: dict[str, Endpoint] = {}
        unserved: dict[str, str] = {}
        gateway = await self._store.gateway(list(wanted))
        self._shaper.learn(gateway.rules)
        for number, kept in enumerate(gateway.services):
            if kept.name not in wanted:
                continue
            if number % _AT_A_TIME == 0:  # thousands take seconds, and what runs is not to wait
                await self._ports.clock.sleep(0)
            try:
                found = await self._secrets.values(_secrets_of(kept.document))
                for path in files_in(kept.document):
                    self._secrets.folders.check(found.get(path, path.removeprefix("file:")))
                service = read_service(kept.name, kept.document, resolve=found.__getitem__)
                endpoints[kept.name] = self._endpoint(service, wanted[kept.name])
            except RedriveError as error:
                unserved[kept.name] = str(error)
        return Provided(endpoints=endpoints, unserved=unserved)

    def _endpoint(self, service: ReadService, destination: Destination) -> Endpoint:
        transport = service.build(clock=self._ports.clock, shaping=self._shaper, wires=self._wires)
        have_recall(transport, self._store)
        return Endpoint(destination=destination, terms=service.terms, transport=transport)


def _secrets_of(document: dict[str, object]) -> list[str]:
    """Return the references of a document, but for files that are read as what they are."""
    said = {key: one for key, one in document.items() if key not in PEM_FILES}
    return list(references_in(said))
