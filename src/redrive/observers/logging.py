"""The log: each fact as structured lines, one per delivery, and never a payload."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import assert_never

import msgspec
import structlog
from msgspec.structs import replace
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from redrive.clock import Clock, SystemClock
from redrive.context import log_fields
from redrive.errors import ConfigurationError
from redrive.model.access import is_bearer_name
from redrive.model.delivery import Lease, Leased
from redrive.model.duration import rough_duration
from redrive.model.gate import Closed, HalfOpen, Open
from redrive.model.outcome import Fault
from redrive.model.settlement import Delivered, Failed, Requeued, RetryAt, Settlement, Snoozed
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
from redrive.policies.display import escape_controls, safe_lines
from redrive.policies.redact import Redaction, check_names
from redrive.store import Replay

__all__ = ["LoggingObserver", "configure_logging"]

_NOBODY = "it serves no destination: name its app, redrive worker MODULE:APP, or add a service"

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
_WHO = ("by", "caller")
_MOST_IDS = 20
_LONGEST_ERROR = 300
_EVENT_WIDTH = 16
_LINES = ("event", "exception", "stack")
_STANDARD = frozenset({*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"})
"""What every record of the standard library has; the rest was given by `extra`."""
_MOST_TRACES = 1_000


class LoggingObserver:
    """Writes facts to a structlog logger.

    Deliveries that go well are debug lines, retries info, dead letters errors. What the logger's
    level leaves out costs next to nothing. With `is_discreet` it keeps to itself
    what errors say, which may carry pieces of payloads.
    """

    def __init__(
        self,
        logger: FilteringBoundLogger | None = None,
        clock: Clock | None = None,
        *,
        is_discreet: Callable[[], bool] = lambda: False,
    ) -> None:
        self._logger: FilteringBoundLogger = logger or structlog.get_logger("redrive")
        self._clock = clock or SystemClock()
        self._is_discreet = is_discreet
        self._traces: dict[tuple[str, ...], None] = {}

    def notice(self, fact: Fact) -> None:  # noqa: C901, PLR0912, PLR0915 - one branch per fact
        log = self._logger.bind()
        if self._is_discreet():
            fact = _without_texts(fact)
        match fact:
            case Written():
                _written(log, fact)
            case Published():
                _published(log, fact)
            case Claimed():
                _claimed(log, fact)
            case Settlements():
                self._settlements(log, fact)
            case SettlementsRefused(worker=worker, leases=leases):
                log.warning("settlements refused", worker=worker, **_leases(leases))
            case AlreadyApplied(worker=worker, leased=leased):
                log.info("already applied", worker=worker, **_delivery(leased))
            case LeasesLost(worker=worker, leases=leases):
                log.warning("leases lost", worker=worker, **_leases(leases))
            case Rescued():
                self._rescued(log, fact)
            case DeadLettered():
                _dead_lettered(log.bind(**self._trace(fact.destination, fact.fault)), fact)
            case BreakerChanged():
                self._breaker_changed(log, fact)
            case DestinationPaused(destination=destination, why=why):
                log.error("destination paused", destination=destination, why=why)
            case HealthChecked(destination=destination, error=error):
                found = {
                    "is_healthy": not error,
                    **({"error": error[:_LONGEST_ERROR]} if error else {}),
                }
                log.info("health checked", destination=destination, **found)
            case ReplayStarted(replay=replay):
                log.info("replay started", by=replay.by, why=replay.why, **_replay(replay))
            case WaveSent(replay=replay, deliveries=ids):
                log.info("wave sent", wave=replay.wave.number, replay=replay.id, **_ids(ids))
            case ReplayStopped(replay=replay):
                log.error("replay stopped", reason=replay.reason, **_replay(replay))
            case ReplayEnded(replay=replay):
                log.info("replay ended", **_replay(replay))
            case TicksPublished(schedule=schedule, ticks=ticks, missed=missed):
                some = [one.isoformat() for one in ticks[:_MOST_IDS]]
                log.info("ticked", schedule=schedule, count=len(ticks), missed=missed, ticks=some)
            case TicksLeftOut(schedule=schedule, count=count, why=why, has_more=has_more):
                number = f"more than {count}" if has_more else count
                log.warning("ticks left out", schedule=schedule, count=number, why=why)
            case ScheduleFailed(schedule=schedule, error=error):
                log.error("schedule failed", schedule=schedule, error=error[:_LONGEST_ERROR])
            case ProjectionFailed(worker=worker, projection=name, error=error):
                said = error[:_LONGEST_ERROR]
                log.error("projection failed", worker=worker, projection=name, error=said)
            case HandlerStuck(worker=worker, destination=destination, deliveries=ids):
                log.error("handler stuck", worker=worker, destination=destination, **_ids(ids))
            case WorkerWedged(worker=worker, destination=destination, deliveries=ids):
                log.critical("worker wedged", worker=worker, destination=destination, **_ids(ids))
            case WorkerStarted(worker=worker, destinations=names, concurrency=concurrency):
                log.info(
                    "worker started",
                    worker=worker,
                    destinations=list(names),
                    concurrency=concurrency,
                )
                if not names:
                    log.warning("nothing to deliver yet", worker=worker, advice=_NOBODY)
            case WorkerStopping(worker=worker, carrying=carrying):
                log.info("worker stopping", worker=worker, carrying=carrying)
            case WorkerStopped(worker=worker, released=released, left=left):
                if left:
                    log.warning("handlers left", worker=worker, **_ids(left))
                log.info("worker stopped", worker=worker, released=released)
            case HistoryPruned(pruned=pruned):
                log.debug("pruned", **msgspec.structs.asdict(pruned))
            case EncryptionStuck(error=error):
                log.error("encryption stuck", error=error)
            case LettersRegrouped(count=count, left=left):
                log.info("dead letters regrouped", count=count, left=left)
            case EventsCompleted(deliveries=count):
                log.info("late events completed", deliveries=count)
            case LettersNearLimit(destination=destination, limit=limit):
                log.warning("dead letters near limit", destination=destination, limit=limit)
            case LettersExported(destination=destination, count=count, file=file):
                log.warning(
                    "dead letters exported", destination=destination, count=count, file=file
                )
            case ExportFailed(destination=destination, error=error):
                log.error("export failed", destination=destination, error=error)
            case WorkStranded(destination=destination, generation=generation, count=count):
                log.warning("stranded", destination=destination, generation=generation, count=count)
            case DestinationOrphaned(destination=destination, count=count):
                log.warning("orphaned", destination=destination, count=count)
            case StoreLost(worker=worker, error=error):
                log.error("store lost", worker=worker, error=error)
            case StoreBack(worker=worker):
                log.info("store back", worker=worker)
            case ListeningLost(store=store, error=error):
                log.warning("listening lost", store=store, error=error)
            case ListeningBack(store=store):
                log.info("listening back", store=store)
            case DeclarationChanged(worker=worker, change=change):
                changed = msgspec.structs.asdict(change)
                log.info("declaration in force", worker=worker or None, **changed)
            case DeclarationsDiffer(worker=worker, destinations=names, removed=removed):
                if names:
                    some = list(names[:_MOST_IDS])
                    log.warning("another declaration in force", worker=worker, destinations=some)
                if removed:
                    some = list(removed[:_MOST_IDS])
                    log.warning("declares what was removed", worker=worker, destinations=some)
            case DeclarationsAgree(worker=worker):
                log.info("own declaration in force", worker=worker)
            case ServiceUnserved(worker=worker, service=service, why=why):
                log.warning("service not served", worker=worker, service=service, why=why)
            case EventSkipped(rule=rule, event_id=event, why=why):
                log.debug("event passed by", rule=rule, event_id=event, why=why)
            case Operated(action=action, by=by, why=why):
                log.info("operated", action=action, by=by, why=why, **_changed(fact))
            case never:
                assert_never(never)

    def _settlements(self, log: FilteringBoundLogger, fact: Settlements) -> None:
        if not _hears(log, logging.INFO):
            return
        tells_all = _hears(log, logging.DEBUG)
        for leased, settlement in fact.settled:
            if tells_all or not isinstance(settlement, Delivered):
                told = log.bind(**_delivery(leased), worker=fact.worker)
                if isinstance(settlement, RetryAt):
                    told = told.bind(**self._trace(leased.destination, settlement.fault))
                self._settled(told, settlement)

    def _settled(self, log: FilteringBoundLogger, settlement: Settlement) -> None:
        match settlement:
            case Delivered():
                log.debug("delivered")
            case RetryAt(when=when, fault=fault, spends=False):
                log.info("still down", **self._until(when), **_fault(fault))
            case RetryAt(when=when, fault=fault, max_attempts=most):
                of = {"max_attempts": most} if most else {}
                log.info("retry", **of, **self._until(when), **_fault(fault))
            case Snoozed(until=until, fault=why):
                fields = {} if why is None else _fault(why)
                log.info("snoozed", **self._until(until), **fields)
            case Failed():
                pass  # a fact of its own tells of it
            case never:
                assert_never(never)

    def _rescued(self, log: FilteringBoundLogger, fact: Rescued) -> None:
        overdue = fact.overdue
        log = log.bind(
            destination=overdue.destination,
            delivery=overdue.lease.delivery_id,
            attempt=overdue.attempt,
            event_id=overdue.event_id,
            lost_worker=overdue.worker,
        )
        match fact.recovery:
            case Requeued(when=when, crashes=crashes):
                log.warning("rescued", **self._until(when), crashes=crashes)
            case Failed(reason=reason):
                log.warning("rescued", reason=str(reason), crashes=overdue.crashes + 1)
            case never:
                assert_never(never)

    def _breaker_changed(self, log: FilteringBoundLogger, fact: BreakerChanged) -> None:
        log = log.bind(destination=fact.change.destination, **({"by": fact.by} if fact.by else {}))
        match fact.change.after:
            case Closed():
                log.info("breaker closed")
            case HalfOpen():
                log.info("breaker half-open")
            case Open(until=until):
                end = "reset" if until is None else until.isoformat()
                log.warning("breaker open", until=end, **_cause(fact))
            case never:
                assert_never(never)

    def _trace(self, destination: str, fault: Fault) -> dict[str, str]:
        """Return the traceback of a failed try, unless one from the same place was logged before.

        Many fail of one cause, and the log would hold little else.
        """
        if not fault.stack:
            return {}
        places = [one for one in fault.stack.splitlines() if one.startswith("  File ")]
        cause = (destination, fault.error_class, *places)
        if cause in self._traces:
            return {}
        if len(self._traces) >= _MOST_TRACES:
            self._traces.clear()
        self._traces[cause] = None
        return {"exception": fault.stack}

    def _until(self, when: datetime) -> dict[str, object]:
        """Return how long it waits: in words, and in seconds for who counts."""
        wait = max(timedelta(0), when - self._clock.now())
        return {"due_in": rough_duration(wait), "delay": round(wait.total_seconds(), 3)}


def configure_logging(
    level: str = "info", *, json: bool | None = None, redact: Sequence[str] = ()
) -> None:
    """Send structlog's and the standard library's logs to standard error.

    A person at a terminal gets readable lines, anything else JSON lines, unless `json` says which.
    Secrets are blanked in the lines of others too: the usual ones, and those that `redact` names.
    Lines of a handler tell which delivery it works on, and keep what is `extra` in them.
    """
    rule = Redaction(check_names(redact))
    number = _LEVELS.get(str(level).lower())
    if number is None:
        raise ConfigurationError(f"The log level is {level!r}; it is one of {', '.join(_LEVELS)}.")
    is_json = not sys.stderr.isatty() if json is None else json
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso" if is_json else "%H:%M:%S", utc=is_json),
    ]
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _add_extra, _add_delivery],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                partial(_redacted, rule),
                *_renderers(is_json=is_json),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=number, force=True)
    structlog.configure(
        processors=[*shared, _add_delivery, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def _renderers(*, is_json: bool) -> Sequence[Processor]:
    if is_json:
        return (structlog.processors.JSONRenderer(serializer=_json),)
    # The richer tracebacks print local variables, and so payloads.
    return (
        _brief,
        structlog.dev.ConsoleRenderer(
            _EVENT_WIDTH,
            colors=sys.stderr.isatty(),
            exception_formatter=structlog.dev.plain_traceback,
            sort_keys=False,
        ),
    )


def _add_delivery(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Tell which delivery the running handler works on; our own lines say themselves."""
    return line if line.get("logger") == "redrive" else {**log_fields(), **line}


def _add_extra(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Keep what was given to the standard library by `extra`, unless it hides the line itself."""
    given = line["_record"].__dict__
    names = sorted(given.keys() - _STANDARD - line.keys())
    return {**line, **{name: _plain(given[name]) for name in names}}


def _plain(value: object) -> object:
    """Return a foreign value as JSON has it, or as text."""
    if value is None or isinstance(value, str | int | float):
        return value
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=repr))
    except (TypeError, ValueError, RecursionError):  # a key that is no text, or a circle
        return repr(value)


def _redacted(rule: Redaction, _logger: object, _method: str, line: EventDict) -> EventDict:
    return {
        # Who it was is public, though `token:ann:…` reads like a secret.
        name: value if name in _WHO and is_bearer_name(value) else rule.field(name, value)
        for name, value in line.items()
    }


def _brief(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Leave out what only programs follow: the number of a delivery leads a person to the rest."""
    if line.get("logger") == "redrive":
        del line["logger"]
    if "delivery" in line:
        for name in ("event_id", "rule", "worker", "delay"):
            line.pop(name, None)
    # What others wrote must not command the terminal; of a traceback the lines stay lines.
    for name, value in line.items():
        if isinstance(value, str) and not value.isprintable():
            line[name] = safe_lines(value) if name in _LINES else repr(value)
    return line


def _json(line: object, **_options: object) -> str:
    return escape_controls(msgspec.json.encode(line, enc_hook=repr).decode())


def _hears(log: FilteringBoundLogger, level: int) -> bool:
    """Tell whether lines of this level are kept, where the logger can say so."""
    ask = getattr(type(log), "is_enabled_for", None)
    return ask is None or bool(ask(log, level))


def _published(log: FilteringBoundLogger, fact: Published) -> None:
    if not _hears(log, logging.INFO):
        return
    for event_type, receipt in fact.events:
        if receipt.is_routed:
            log.debug(
                "published",
                event_type=event_type,
                event_id=receipt.event_id,
                destinations=list(receipt.destinations),
                is_duplicate=receipt.is_duplicate,
            )
        else:
            log.info("unrouted", event_type=event_type, event_id=receipt.event_id)


def _written(log: FilteringBoundLogger, fact: Written) -> None:
    if _hears(log, logging.DEBUG):
        for event_type, receipt in fact.events:
            log.debug("written", event_type=event_type, event_id=receipt.event_id)


def _claimed(log: FilteringBoundLogger, fact: Claimed) -> None:
    if _hears(log, logging.DEBUG):
        for leased in fact.deliveries:
            log.debug("claimed", **_delivery(leased), worker=fact.worker)


def _without_texts(fact: Fact) -> Fact:
    """Return a fact without what an error says; its class and its code are left."""
    match fact:
        case Settlements():
            return replace(fact, settled=tuple((one, _hushed(how)) for one, how in fact.settled))
        case DeadLettered(fault=fault):
            return replace(fact, fault=_hidden(fault))
        case BreakerChanged(change=change) if change.failure is not None:
            error = change.failure.error.partition(":")[0]
            change = replace(change, failure=replace(change.failure, error=error))
            return replace(fact, change=change)
    return fact


def _hushed(settlement: Settlement) -> Settlement:
    match settlement:
        case RetryAt(fault=fault) | Failed(fault=fault) | Snoozed(fault=Fault() as fault):
            return replace(settlement, fault=_hidden(fault))
    return settlement


def _hidden(fault: Fault) -> Fault:
    return replace(fault, message="(encrypted)", stack="")


def _dead_lettered(log: FilteringBoundLogger, fact: DeadLettered) -> None:
    optional = {
        "tenant": fact.tenant,
        "key": fact.key,
        "source": fact.source,
        "cycles": fact.cycles,
    }
    log.error(
        "dead letter",
        destination=fact.destination,
        event_type=fact.event_type,
        delivery=fact.delivery_id,
        attempts=fact.attempts,
        reason=str(fact.reason),
        group=fact.group,
        **_fault(fact.fault),
        event_id=fact.event_id,
        **{name: value for name, value in optional.items() if value},
    )


def _cause(fact: BreakerChanged) -> dict[str, str]:
    """Return the failure that has opened a breaker; a person needs none."""
    failure = fact.change.failure
    if failure is None or fact.by:
        return {}
    return {"error": failure.error[:_LONGEST_ERROR], "failed_at": failure.at.isoformat()}


def _delivery(leased: Leased) -> dict[str, object]:
    fields: dict[str, object] = {
        "destination": leased.destination,
        "event_type": leased.event.type,
        "delivery": leased.lease.delivery_id,
        "attempt": leased.attempt,
        "event_id": leased.event.id,
    }
    return fields if leased.event.tenant is None else {**fields, "tenant": leased.event.tenant}


def _fault(fault: Fault) -> dict[str, str]:
    fields = {
        "error_class": fault.error_class,
        "error": fault.message[:_LONGEST_ERROR],
        "rule": fault.rule,
    }
    return {**fields, "code": fault.code} if fault.code else fields


def _replay(replay: Replay) -> dict[str, object]:
    counts = ("selected", "sent", "delivered", "failed", "skipped")
    return {"replay": replay.id, **{name: getattr(replay, name) for name in counts}}


def _leases(leases: Sequence[Lease]) -> dict[str, object]:
    return _ids([lease.delivery_id for lease in leases])


def _changed(fact: Operated) -> dict[str, object]:
    named = {
        "tenant": fact.tenant,
        "destination": fact.destination,
        "replay": fact.replay,
        "schedule": fact.schedule,
        "access": fact.token or fact.user,
        "secret": fact.secret,
    }
    return {name: value for name, value in named.items() if value} or _ids(fact.deliveries)


def _ids(ids: Sequence[int]) -> dict[str, object]:
    return {"count": len(ids), "deliveries": list(ids[:_MOST_IDS])}
