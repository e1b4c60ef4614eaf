"""The log: which fact becomes which line, and what never does."""

import json
import logging
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, get_args

import msgspec
import pytest
import structlog
from structlog.testing import LogCapture

from redrive.context import handling
from redrive.errors import ConfigurationError
from redrive.model.delivery import DeliveryId, Kind, Lease, Leased
from redrive.model.event import EventId, Receipt
from redrive.model.gate import BreakerChange, Closed, Failure, HalfOpen, Open
from redrive.model.outcome import Fault
from redrive.model.replay import ReplayState
from redrive.model.settlement import (
    Delivered,
    Failed,
    FailureReason,
    Requeued,
    RetryAt,
    Settlement,
    Snoozed,
)
from redrive.observer import (
    AlreadyApplied,
    BreakerChanged,
    Claimed,
    DeadLettered,
    DeclarationChanged,
    DeclarationsAgree,
    DeclarationsDiffer,
    DestinationOrphaned,
    DestinationPaused,
    EncryptionStuck,
    EventsCompleted,
    EventSkipped,
    ExportFailed,
    Fact,
    HandlerStuck,
    HealthChecked,
    HistoryPruned,
    LeasesLost,
    LettersExported,
    LettersNearLimit,
    LettersRegrouped,
    ListeningBack,
    ListeningLost,
    Operated,
    ProjectionFailed,
    Published,
    ReplayEnded,
    ReplayStarted,
    ReplayStopped,
    Rescued,
    ScheduleFailed,
    ServiceUnserved,
    Settlements,
    SettlementsRefused,
    StoreBack,
    StoreLost,
    TicksLeftOut,
    TicksPublished,
    WaveSent,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
    WorkerWedged,
    WorkStranded,
    Written,
)
from redrive.observers.logging import LoggingObserver, configure_logging
from redrive.policies.redact import Redaction
from redrive.policies.terms import Terms
from redrive.store import Overdue, Pruned, Query, Redeclared, Replay
from redrive.testing.clock import FakeClock
from tests.conformance import an_event

CARD = "4111-1111"
NOW = FakeClock().now()
EVENT = an_event({"card": CARD}, tenant="acme")
LEASE = Lease(DeliveryId(7), 1)
FAULT = Fault(
    error_class="ConnectionError", message="refused " * 100, rule="network", stack="at shop.py"
)
DEAD_LETTER = DeadLettered(
    delivery_id=DeliveryId(7),
    event_id=EVENT.id,
    event_type="order.paid",
    destination="billing",
    tenant="acme",
    reason=FailureReason.EXHAUSTED,
    fault=msgspec.structs.replace(FAULT, group="5dcaa1da3e2c"),
    attempts=5,
)
LEASED = Leased(
    lease=LEASE,
    destination="billing",
    event=EVENT,
    attempt=2,
    kind=Kind.RETRY,
    claimed_at=NOW,
    enqueued_at=NOW,
)
OVERDUE = Overdue(
    lease=LEASE,
    destination="billing",
    event_id=EVENT.id,
    worker="gone",
    attempt=1,
    crashes=0,
    last_crash_at=None,
    was_alone=False,
    owner_is_alive=False,
    now=NOW,
)
REDECLARED = Redeclared(destination="billing", difference='order: "none" → "park"')
LATER = NOW + timedelta(minutes=3)
OPEN = Open(generation=1, since=NOW, until=LATER)
CHANGE = BreakerChange(destination="billing", before=Closed(), after=OPEN)

REPLAY = Replay(
    id=3,
    state=ReplayState.STOPPED,
    by="ann",
    why="fixed",
    started_at=NOW,
    changed_at=NOW,
    selected=9,
    sent=1,
    failed=1,
    query=Query(tenant="acme", text=CARD),
    reason="1 of 1 in the canary failed again",
)


def settled(settlement: Settlement) -> Settlements:
    return Settlements(worker="w1", settled=((LEASED, settlement),))


FACTS: list[tuple[Fact, str, str]] = [
    (
        Published(events=(("order.paid", Receipt(event_id=EVENT.id, destinations=("billing",))),)),
        "debug",
        "published",
    ),
    (Published(events=(("order.paid", Receipt(event_id=EVENT.id)),)), "info", "unrouted"),
    (Written(events=(("order.paid", Receipt(event_id=EVENT.id)),)), "debug", "written"),
    (Claimed(worker="w1", deliveries=(LEASED,)), "debug", "claimed"),
    (settled(Delivered()), "debug", "delivered"),
    (settled(RetryAt(when=LATER, fault=FAULT)), "info", "retry"),
    (settled(Snoozed(until=LATER)), "info", "snoozed"),
    (settled(Snoozed(until=LATER, fault=FAULT)), "info", "snoozed"),
    (SettlementsRefused(worker="w1", leases=(LEASE,)), "warning", "settlements refused"),
    (AlreadyApplied(worker="w1", leased=LEASED), "info", "already applied"),
    (LeasesLost(worker="w1", leases=(LEASE,)), "warning", "leases lost"),
    (Rescued(overdue=OVERDUE, recovery=Requeued(when=LATER, crashes=1)), "warning", "rescued"),
    (
        Rescued(overdue=OVERDUE, recovery=Failed(reason=FailureReason.CRASH_LOOP, fault=FAULT)),
        "warning",
        "rescued",
    ),
    (
        DeadLettered(
            delivery_id=DeliveryId(7),
            event_id=EVENT.id,
            event_type="order.paid",
            destination="billing",
            tenant="acme",
            reason=FailureReason.EXHAUSTED,
            fault=FAULT,
            attempts=5,
        ),
        "error",
        "dead letter",
    ),
    (ReplayStarted(replay=REPLAY), "info", "replay started"),
    (WaveSent(replay=REPLAY, deliveries=(DeliveryId(7),)), "info", "wave sent"),
    (ReplayStopped(replay=REPLAY), "error", "replay stopped"),
    (ReplayEnded(replay=REPLAY), "info", "replay ended"),
    (TicksPublished(schedule="nightly", ticks=(NOW,)), "info", "ticked"),
    (TicksLeftOut(schedule="nightly", count=3, why="missed"), "warning", "ticks left out"),
    (ScheduleFailed(schedule="nightly", error="KeyError: 7"), "error", "schedule failed"),
    (
        ProjectionFailed(worker="w", projection="orders", error="KeyError: 7"),
        "error",
        "projection failed",
    ),
    (
        ServiceUnserved(worker="w", service="crm", why="env:CRM_TOKEN is not set"),
        "warning",
        "service not served",
    ),
    (
        EventSkipped(rule="orders@3", event_id=EVENT.id, event_type="order.paid", why="no total"),
        "debug",
        "event passed by",
    ),
    (Operated(action="pause_replay", by="ann", why="", replay=3), "info", "operated"),
    (BreakerChanged(change=CHANGE), "warning", "breaker open"),
    (
        BreakerChanged(
            change=BreakerChange(
                destination="billing", before=OPEN, after=Open(generation=2, since=NOW)
            ),
            by="ann",
        ),
        "warning",
        "breaker open",
    ),
    (
        BreakerChanged(
            change=BreakerChange(
                destination="billing",
                before=OPEN,
                after=HalfOpen(generation=2, since=NOW, times=1),
            )
        ),
        "info",
        "breaker half-open",
    ),
    (
        BreakerChanged(
            change=BreakerChange(
                destination="billing", before=OPEN, after=Closed(generation=2, since=NOW)
            )
        ),
        "info",
        "breaker closed",
    ),
    (DEAD_LETTER, "error", "dead letter"),
    (
        DestinationPaused(destination="billing", why="billing answered 410 Gone"),
        "error",
        "destination paused",
    ),
    (HealthChecked(destination="billing"), "info", "health checked"),
    (HealthChecked(destination="billing", error="refused"), "info", "health checked"),
    (
        HandlerStuck(worker="w1", destination="billing", deliveries=(DeliveryId(7),)),
        "error",
        "handler stuck",
    ),
    (
        WorkerWedged(worker="w1", destination="billing", deliveries=(DeliveryId(7),)),
        "critical",
        "worker wedged",
    ),
    (
        WorkerStarted(worker="w1", destinations=("billing",), concurrency=9),
        "info",
        "worker started",
    ),
    (WorkerStopping(worker="w1", carrying=3), "info", "worker stopping"),
    (WorkerStopped(worker="w1", released=1), "info", "worker stopped"),
    (HistoryPruned(pruned=Pruned(delivered=3)), "debug", "pruned"),
    (EncryptionStuck(error="the key is not here"), "error", "encryption stuck"),
    (LettersRegrouped(count=200, left=800), "info", "dead letters regrouped"),
    (EventsCompleted(deliveries=3), "info", "late events completed"),
    (
        LettersNearLimit(destination="billing", limit="80 of 100"),
        "warning",
        "dead letters near limit",
    ),
    (
        LettersExported(destination="billing", count=3, file="billing.jsonl"),
        "warning",
        "dead letters exported",
    ),
    (ExportFailed(destination="billing", error="disk full"), "error", "export failed"),
    (WorkStranded(destination="billing", generation="blue", count=3), "warning", "stranded"),
    (DestinationOrphaned(destination="billing", count=3), "warning", "orphaned"),
    (StoreLost(worker="w1", error="disk full"), "error", "store lost"),
    (StoreBack(worker="w1"), "info", "store back"),
    (DeclarationChanged(worker="w1", change=REDECLARED), "info", "declaration in force"),
    (
        DeclarationsDiffer(worker="w1", destinations=("billing",)),
        "warning",
        "another declaration in force",
    ),
    (
        DeclarationsDiffer(worker="w1", destinations=(), removed=("billing",)),
        "warning",
        "declares what was removed",
    ),
    (DeclarationsAgree(worker="w1"), "info", "own declaration in force"),
    (ListeningLost(store="db", error="terminated"), "warning", "listening lost"),
    (ListeningBack(store="db"), "info", "listening back"),
    (
        Operated(action="replay", by="ann", why="", deliveries=(DeliveryId(7),)),
        "info",
        "operated",
    ),
    (Operated(action="pause", by="ann", why="", destination="billing"), "info", "operated"),
]


def observe(*facts: Fact, level: int = logging.DEBUG) -> list[structlog.typing.EventDict]:
    capture = LogCapture()
    logger = structlog.wrap_logger(
        None,
        processors=[capture],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        context_class=dict,
    )
    observer = LoggingObserver(logger, FakeClock())
    for fact in facts:
        observer.notice(fact)
    return list(capture.entries)


@pytest.mark.parametrize(("fact", "level", "said"), FACTS, ids=lambda value: str(value)[:30])
def test_a_fact_becomes_a_line(fact: Fact, level: str, said: str) -> None:
    (line,) = observe(fact)

    assert (line["log_level"], line["event"]) == (level, said)


def test_every_kind_of_fact_is_covered() -> None:
    assert {type(fact) for fact, _, _ in FACTS} == set(get_args(Fact))


def test_no_line_holds_a_payload() -> None:
    lines = observe(*(fact for fact, _, _ in FACTS))

    assert CARD not in msgspec.json.encode(lines).decode()


def test_a_traceback_is_logged_once_for_each_cause() -> None:
    def failed(message: str, line: int, error_class: str = "KeyError") -> Fault:
        stack = f'Traceback …\n  File "shop.py", line {line}, in bill\n{error_class}: {message}'
        return Fault(error_class=error_class, message=message, rule="default", stack=stack)

    faults = [failed("a", 7), failed("b", 7), failed("c", 8), failed("d", 7, "OSError")]
    lines = observe(
        *[settled(RetryAt(when=LATER, fault=one)) for one in faults],
        msgspec.structs.replace(DEAD_LETTER, fault=faults[1]),
        msgspec.structs.replace(DEAD_LETTER, fault=faults[1], destination="crm"),
        settled(RetryAt(when=LATER, fault=msgspec.structs.replace(FAULT, stack=""))),
    )

    told = [line.get("exception", "") for line in lines]
    assert told == [
        faults[0].stack,
        "",
        faults[2].stack,
        faults[3].stack,
        "",
        faults[1].stack,
        "",
    ]


def test_a_worker_that_serves_nobody_says_what_to_do() -> None:
    started, advised = observe(WorkerStarted(worker="w1", destinations=(), concurrency=9))

    assert started["event"] == "worker started"
    assert (advised["log_level"], advised["event"]) == ("warning", "nothing to deliver yet")
    assert "redrive worker MODULE:APP" in str(advised["advice"])


def test_a_retry_tells_what_why_and_when() -> None:
    (line,) = observe(settled(RetryAt(when=LATER, fault=FAULT)))

    assert line.pop("exception") == "at shop.py"
    assert line == {
        "log_level": "info",
        "event": "retry",
        "worker": "w1",
        "delivery": 7,
        "event_id": EVENT.id,
        "event_type": "order.paid",
        "destination": "billing",
        "attempt": 2,
        "tenant": "acme",
        "due_in": "3 min",
        "delay": 180.0,
        "error_class": "ConnectionError",
        "error": FAULT.message[:300],
        "rule": "network",
    }


def test_a_retry_tells_of_how_many_tries_and_with_which_code() -> None:
    fault = msgspec.structs.replace(FAULT, code="503")

    [line] = observe(settled(RetryAt(when=LATER, fault=fault, max_attempts=5)))

    assert (line["attempt"], line["max_attempts"], line["code"]) == (2, 5, "503")


def test_a_dead_letter_tells_its_key_its_source_and_how_often_it_was_replayed() -> None:
    letter = msgspec.structs.replace(DEAD_LETTER, key="order-7", source="web", cycles=2)

    [told], [plain] = observe(letter), observe(DEAD_LETTER)

    assert (told["key"], told["source"], told["cycles"]) == ("order-7", "web", 2)
    assert not {"key", "source", "cycles"} & plain.keys()


def test_a_dead_letter_is_told_once() -> None:
    """The settlement and the dead letter are two facts about one failure."""
    failed = Failed(reason=FailureReason.EXHAUSTED, fault=FAULT)

    assert observe(settled(failed)) == []


def test_a_breaker_tells_until_when_and_by_whom() -> None:
    by_hand = Open(generation=2, since=NOW)
    change = BreakerChange(destination="billing", before=OPEN, after=by_hand)

    by_itself, forced = observe(
        BreakerChanged(change=CHANGE), BreakerChanged(change=change, by="ann")
    )

    assert (by_itself["destination"], by_itself["until"]) == ("billing", LATER.isoformat())
    assert "by" not in by_itself
    assert "error" not in by_itself
    assert (forced["until"], forced["by"]) == ("reset", "ann")


def test_a_breaker_that_opens_tells_its_cause() -> None:
    failure = Failure(error="ConnectionError: refused", at=NOW)
    change = msgspec.structs.replace(CHANGE, failure=failure)

    [by_itself], [forced] = (observe(BreakerChanged(change=change, by=by)) for by in ("", "ann"))

    assert (by_itself["error"], by_itself["failed_at"]) == (failure.error, NOW.isoformat())
    assert "error" not in forced


@pytest.mark.parametrize("action", ["pause_replay", "resume_replay", "cancel_replay"])
def test_what_is_done_to_a_replay_is_told_with_its_number(action: str) -> None:
    (line,) = observe(Operated(action=action, by="ann", why="", replay=3))

    assert (line["action"], line["replay"]) == (action, 3)
    assert "deliveries" not in line


def test_an_act_on_a_destination_names_it() -> None:
    (line,) = observe(Operated(action="pause", by="ann", why="", destination="billing"))

    assert line["destination"] == "billing"
    assert "deliveries" not in line


def test_a_dead_letter_names_its_group() -> None:
    (line,) = observe(DEAD_LETTER)

    assert line["group"] == "5dcaa1da3e2c"


def test_many_ids_are_counted_and_cut() -> None:
    ids = tuple(DeliveryId(number) for number in range(1_000))

    (line,) = observe(Operated(action="replay", by="ann", why="", deliveries=ids))

    assert line["count"] == 1_000
    assert len(line["deliveries"]) == 20


class Untouchable:
    """Stands for a delivery that nobody may look at, because nobody will read of it."""

    def __getattribute__(self, name: str) -> object:
        raise AssertionError(f"looked at {name}")


def test_what_the_level_leaves_out_costs_no_look_at_the_deliveries() -> None:
    untouchable: Any = Untouchable()
    claimed = Claimed(worker="w1", deliveries=(untouchable,))
    delivered = Settlements(worker="w1", settled=((untouchable, Delivered()),))
    retried = Settlements(worker="w1", settled=(untouchable,))
    published = Published(events=(untouchable,))

    assert observe(claimed, delivered, level=logging.INFO) == []
    assert observe(retried, published, level=logging.WARNING) == []


def test_a_logger_that_cannot_tell_its_level_is_told_everything() -> None:
    capture = LogCapture()
    logger: Any = structlog.wrap_logger(
        logging.getLogger("other"), processors=[capture], wrapper_class=structlog.BoundLogger
    )

    LoggingObserver(logger).notice(settled(Delivered()))

    assert [line["event"] for line in capture.entries] == ["delivered"]


@pytest.fixture
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("restored")
def test_lines_are_json_when_no_terminal_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")

    LoggingObserver().notice(StoreLost(worker="w1", error="disk full"))
    logging.getLogger("shop").warning("low on %s", "paper")

    out, err = capsys.readouterr()
    ours, theirs = (json.loads(line) for line in err.splitlines())
    assert out == ""
    assert (ours["event"], ours["level"], ours["error"]) == ("store lost", "error", "disk full")
    assert (theirs["event"], theirs["level"], theirs["logger"]) == (
        "low on paper",
        "warning",
        "shop",
    )
    assert ours["timestamp"].endswith("Z")


@pytest.mark.usefixtures("restored")
def test_lines_are_readable_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    configure_logging("info")
    monkeypatch.undo()

    LoggingObserver().notice(settled(RetryAt(when=LATER, fault=FAULT)))

    said = capsys.readouterr().err
    assert not said.startswith("{")
    assert "retry" in said
    assert "billing" in said
    assert EVENT.id not in said


@pytest.mark.usefixtures("restored")
def test_an_error_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", json=False)
    fault = Fault(error_class="OSError", message="\x1b[2J\x07", rule="network")

    LoggingObserver().notice(settled(RetryAt(when=LATER, fault=fault)))

    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "x1b[2J" in said


@pytest.mark.usefixtures("restored")
def test_nothing_in_a_line_can_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", json=False)

    LoggingObserver().notice(Operated(action="pause", by="\x1b[2J", why="\x9b2J", destination="a"))
    logging.getLogger("shop").info("paper \x1b[2J\nis back")

    said = capsys.readouterr().err
    assert not {"\x1b", "\x9b"} & set(said)
    assert "paper \\x1b[2J\nis back" in said


@pytest.mark.usefixtures("restored")
def test_json_lines_spell_every_control_character_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", json=True)

    LoggingObserver().notice(Operated(action="pause", by="\x9b2J\x7f", why="", destination="a"))

    said = capsys.readouterr().err
    assert "\\u009b2J\\u007f" in said
    assert json.loads(said)["by"] == "\x9b2J\x7f"


@pytest.mark.usefixtures("restored")
def test_the_level_holds_for_our_lines_and_for_others(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("WARNING", json=True)

    LoggingObserver().notice(StoreBack(worker="w1"))
    logging.getLogger("shop").info("paper is back")

    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("json_lines", [True, False])
def test_a_traceback_shows_no_local_variable(
    json_lines: bool,  # noqa: FBT001 - both ways to write
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Locals hold payloads."""
    configure_logging("info", json=json_lines)

    def handle(card: str) -> None:
        raise ValueError("no such card")

    try:
        handle(CARD)
    except ValueError:
        logging.getLogger("redrive").exception("broken")
        structlog.get_logger("redrive").exception("broken")

    said = capsys.readouterr().err
    assert said.count("ValueError: no such card") == 2
    assert CARD not in said


@pytest.mark.usefixtures("restored")
def test_lines_of_a_handler_tell_its_delivery(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", json=True)
    decoded = msgspec.structs.replace(EVENT, payload={})

    with handling([LEASED], [decoded], Terms(), is_batch=False):
        logging.getLogger("shop").info("paper", extra={"sheets": 7, "tenant": "zoe"})
        structlog.get_logger("shop").info("ink")
        LoggingObserver().notice(StoreBack(worker="w1"))
    with handling([LEASED, LEASED], [decoded, decoded], Terms(), is_batch=True):
        logging.getLogger("shop").info("many")
    logging.getLogger("shop").info("after")

    written = capsys.readouterr().err
    assert "Logging error" not in written, written
    paper, ink, ours, many, after = map(json.loads, written.splitlines())
    known = {
        "destination": "billing",
        "event_type": "order.paid",
        "delivery": 7,
        "attempt": 2,
        "event_id": EVENT.id,
    }
    assert {**paper, **known, "tenant": "zoe", "sheets": 7} == paper
    assert {**ink, **known, "tenant": "acme"} == ink
    assert {**many, "destination": "billing", "count": 2, "deliveries": [7, 7]} == many
    assert "delivery" not in {*ours, *after, *many}


@pytest.mark.usefixtures("restored")
def test_what_is_extra_is_kept_and_changes_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", json=True, redact=["iban"])
    ring: list[object] = []
    ring.append(ring)

    log = logging.getLogger("shop")
    log.info("low", extra={"event": "forged", "level": "x", "iban": "DE1", "odd": {(1, 2): 3}})
    log.info("round", extra={"ring": ring, "thing": Redaction})

    low, round_ = map(json.loads, capsys.readouterr().err.splitlines())
    assert (low["event"], low["level"]) == ("low", "info")
    assert "DE1" not in low["iban"]
    assert low["odd"] == {"(1, 2)": 3}
    assert "Redaction" in round_["thing"]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="it is one of debug, info, warning"):
        configure_logging("loud")


@pytest.mark.usefixtures("restored")
def test_who_acts_by_a_token_is_told_and_what_reads_like_it_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("info", json=True)
    log = logging.getLogger("redrive.web")

    log.info("it was", extra={"caller": "token:ann:abcdefgh2345"})
    log.info("it was", extra={"caller": "token: hunter2 and more"})
    log.info("token:ann:abcdefgh2345")

    first, *others = capsys.readouterr().err.splitlines()
    assert '"caller":"token:ann:abcdefgh2345"' in first
    assert not [one for one in others if "hunter2" in one or "abcdefgh2345" in one]


def test_a_discreet_log_leaves_out_what_errors_say() -> None:
    fault = Fault(error_class="ValueError", message="no bed for ada", rule="default", stack="ada")
    fact = DeadLettered(
        delivery_id=DeliveryId(1),
        event_id=EventId("event"),
        event_type="visit.begun",
        destination="ward",
        tenant=None,
        reason=FailureReason.TERMINAL,
        fault=fault,
        attempts=1,
    )
    with structlog.testing.capture_logs() as lines:
        LoggingObserver(is_discreet=lambda: True).notice(fact)

    [line] = lines
    assert (line["error_class"], line["error"]) == ("ValueError", "(encrypted)")
    assert "ada" not in str(line)
