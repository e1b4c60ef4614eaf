"""`kill -9` of the server while clients publish over HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from redrive import Operations
from tests.faults.clients import publishing, start_server
from tests.faults.machine import Machine, until
from tests.scale import IS_LONG
from tests.waiting import spend_at_once

MachineOf = Callable[[str], Machine]
CLIENTS = 50 if IS_LONG else 10
SECONDS = 20.0 if IS_LONG else 1.0


@pytest.mark.timeout(SECONDS + 240)
def test_each_event_that_was_answered_is_stored_once_when_the_server_is_killed(
    machine_of: MachineOf,
) -> None:
    machine = machine_of("steady")
    server, place = start_server(machine)
    with publishing(place, clients=CLIENTS) as clients:
        until(lambda: len(clients.answered) >= 2 * CLIENTS, what="the first are answered")
        spend_at_once(SECONDS / 2)
        server.kill()
        before = len(clients.answered)
        _, clients.place = start_server(machine)
        until(lambda: len(clients.answered) >= before + 2 * CLIENTS, what="more are answered")
        spend_at_once(SECONDS / 2)

    logged = machine.app.sync.operate(Operations.events, limit=1_000_000)
    stored = {one.event.id: msgspec.json.decode(one.event.payload)["number"] for one in logged}
    times = Counter(stored.values())
    answered = clients.answered
    assert {number: stored.get(id_) for number, id_ in answered.items()} == {
        number: number for number in answered
    }
    assert [number for number in answered if times[number] != 1] == []
    assert [number for number in times if clients.has_key(number) and times[number] > 1] == []
    assert (clients.refused, clients.differing) == ([], [])
    assert clients.repeated > CLIENTS
    assert machine.of("steady").pending == len(stored)
