"""Everything that happened in one run, as lines to read and as a hash to compare."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from redrive.model.delivery import Leased
from redrive.model.destination import Destination, Routes
from redrive.store import Claim, RoutesChanged, Settled
from tests.proof.checkers import CHECKS, Check, Inspector, Promise, Violation
from tests.proof.checkers.records import Call, Looked, Modelled, Record

__all__ = ["History"]

_KEPT = 200


class History:
    """Takes down records, hands them to the inspector, and keeps the last ones to be read.

    `on_wrong` is called once an invariant is broken: there is no point in going on.
    """

    def __init__(
        self,
        promises: Mapping[str, Promise],
        on_wrong: Callable[[], None],
        checks: Sequence[type[Check]] = CHECKS,
    ) -> None:
        self.count = 0
        self._on_wrong = on_wrong
        self._inspector = Inspector(promises, checks)
        self._last: deque[str] = deque(maxlen=_KEPT)
        self._hash = hashlib.blake2b(digest_size=12)

    @property
    def violations(self) -> list[Violation]:
        return self._inspector.violations

    @property
    def deliveries(self) -> int:
        """How many deliveries there were."""
        return len(self._inspector.ledger.entries)

    @property
    def lacking(self) -> int:
        """How many deliveries events are still to be given, having been stored by older routes."""
        return len(self._inspector.ledger.lacking)

    @property
    def trace(self) -> str:
        """A hash of all that was taken down."""
        return self._hash.hexdigest()

    def last(self) -> list[str]:
        """Return the last lines."""
        return list(self._last)

    def note(self, at: float, text: str) -> None:
        """Take down what no checker needs to know."""
        line = f"{at:11.6f} {text}"
        self._hash.update(line.encode())
        self._last.append(line)
        self.count += 1

    def complain(self, at: float, check: str, what: str) -> None:
        """Take down that something broke which no checker watches."""
        self.violations.append(Violation(check=check, what=what, index=self.count, at=at))
        self._on_wrong()

    def write(self, record: Record) -> None:
        """Take down a record, and have it looked at."""
        if self.violations:
            return
        self.note(record.at, _line(record))
        self._inspector.hear(record)
        if self.violations:
            self._on_wrong()


def _line(record: Record) -> str:
    match record:
        case Call(method=method, given=given, answer=answer):
            told = ", ".join(f"{name}={_brief(value)}" for name, value in given.items())
            return f"{method}({told}) -> {_brief(answer)}"
        case Looked(deliveries=deliveries, events=events):
            return f"looked: {len(events)} events, {len(deliveries)} deliveries"
        case Modelled(projection=name, wanted=wanted, applied=applied, reached=reached):
            return (
                f"modelled {name}: {len(applied)} of {len(wanted)} events, "
                f"up to {', '.join(map(str, reached))}, "
                f"{len(record.unfinished)} unfinished"
            )
        case _:
            fields = msgspec.structs.asdict(record)
            del fields["at"]
            told = ", ".join(f"{name}={_brief(value)}" for name, value in fields.items())
            return f"{type(record).__name__.lower()} {told}"


def _brief(value: object) -> str:
    """Return what is worth reading of a value; nothing that differs from run to run."""
    match value:
        case Leased(lease=lease, destination=destination, attempt=attempt, kind=kind):
            alone = " alone" if value.is_alone else ""
            text = f"{lease.delivery_id}#{lease.token} to {destination} try {attempt} {kind}{alone}"
        case Settled(lease=lease, settlement=settlement):
            text = f"{lease.delivery_id}#{lease.token} {_brief(settlement)}"
        case Claim(deliveries=deliveries, changes=changes):
            text = f"{_brief(deliveries)} {_brief(changes)}" if changes else _brief(deliveries)
        case list() | tuple():
            text = f"[{', '.join(map(_brief, value))}]"
        case RoutesChanged(routes=routes):
            text = f"routes of version {routes.version}"
        case Routes(destinations=destinations):
            text = f"routes to {_brief(destinations)}"
        case Destination(name=name):
            text = name
        case msgspec.Struct():
            fields = [
                f"{name}={_brief(one)}"
                for name in value.__struct_fields__
                if name not in _DULL and (one := getattr(value, name)) not in (None, "", (), {})
            ]
            text = f"{type(value).__name__}({', '.join(fields)})"
        case msgspec.Raw() | bytes():
            text = bytes(value).decode()
        case _:
            text = "…" if callable(value) else str(value)
    return text


_DULL = ("fault", "stack", "attempt", "log", "limits", "allowances", "exchange")
"""Text with the paths and line numbers of this machine, and what is told elsewhere."""
