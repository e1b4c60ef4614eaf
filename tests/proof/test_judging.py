"""The books of a soak are judged by the checkers: each thing that is wrong is told."""

from datetime import UTC, datetime

import msgspec
import pytest

from redrive.model.delivery import Delivery, DeliveryId, Status
from redrive.model.destination import Destination
from redrive.model.event import Event, EventId
from redrive.model.position import LogPosition
from redrive.store import DestinationFigures, Figures, LetterFigures, LoggedEvent
from tests.proof.judging import Books, judge

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DESTINATION = Destination(name="d", patterns=("thing.*",))


def event_of(number: int, *, position: int | None = None) -> LoggedEvent:
    event = Event(
        id=EventId(f"e{position or number}"),
        type="thing.made",
        payload=msgspec.Raw(b'{"number":%d}' % number),
        published_at=NOW,
        occurred_at=NOW,
        idempotency_key=str(number),
    )
    return LoggedEvent(LogPosition(number=position or number), event)


def delivery_of(number: int, status: Status = Status.DELIVERED) -> Delivery:
    return Delivery(
        id=DeliveryId(number),
        event_id=EventId(f"e{number}"),
        event_type="thing.made",
        destination="d",
        status=status,
        due=NOW,
        enqueued_at=NOW,
        generation="default",
        attempts=1,
    )


def books_of(*numbers: int, told: int | None = None) -> Books:
    """Return books in which all is well: each was tried, acknowledged and delivered."""
    delivered = len(numbers) if told is None else told
    figures = Figures(
        now=NOW,
        events=len(numbers),
        unrouted=0,
        refused_settlements=0,
        deleted=0,
        destinations=(DestinationFigures(name="d", patterns=("thing.*",), delivered=delivered),),
        workers=(),
        letters=LetterFigures(count=0),
    )
    return Books(
        tried=numbers,
        acknowledged=numbers,
        events=[event_of(one) for one in numbers],
        deliveries=[delivery_of(one) for one in numbers],
        figures=figures,
    )


def checks_of(books: Books) -> list[str]:
    return list(dict.fromkeys(one.check for one in judge(books, [DESTINATION])))


def test_books_in_order_are_clean() -> None:
    assert judge(books_of(1, 2, 3), [DESTINATION]) == []


def test_an_acknowledged_event_that_is_not_stored() -> None:
    books = msgspec.structs.replace(books_of(1), tried=(1, 2), acknowledged=(1, 2))

    assert checks_of(books) == ["I1 lost nothing"]


@pytest.mark.parametrize("tried", [(), (2,)])
def test_an_event_that_nobody_offered(tried: tuple[int, ...]) -> None:
    books = msgspec.structs.replace(books_of(1), tried=tried, acknowledged=())

    assert checks_of(books) == ["I2 no phantom"]


def test_an_event_that_is_there_twice() -> None:
    once = books_of(1, 2)
    twice = msgspec.structs.replace(once, tried=(1,), acknowledged=(1,))
    twice = msgspec.structs.replace(twice, events=[event_of(1), event_of(1, position=2)])

    assert checks_of(twice) == ["I2 no phantom"]


def test_an_event_without_its_delivery() -> None:
    books = msgspec.structs.replace(books_of(1, told=0), deliveries=[])

    assert checks_of(books) == ["I2 no phantom", "I1 lost nothing"]


def test_a_log_that_is_out_of_order() -> None:
    books = books_of(1, 2)
    books = msgspec.structs.replace(books, events=list(reversed(books.events)))

    assert checks_of(books) == ["I11 projection"]


def test_a_delivery_that_is_not_settled() -> None:
    books = msgspec.structs.replace(books_of(1), deliveries=[delivery_of(1, Status.PENDING)])

    assert "I13 liveness" in checks_of(books)


def test_figures_that_are_wrong() -> None:
    assert checks_of(books_of(1, 2, told=1)) == ["I14 counters"]
