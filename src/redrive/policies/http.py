"""HTTP classification: what an answer's status and `Retry-After` mean for a delivery."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from redrive.model.outcome import Nature
from redrive.policies.classify import Verdict
from redrive.policies.retry import bounded_retry_after

__all__ = ["RETRIED_STATUSES", "classify_status", "read_retry_after"]

RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
"""The statuses that may heal, unless the destination says otherwise."""

_GONE = 410
_TOO_MANY = 429
_SUCCESSES = range(200, 300)
_REFUSALS = range(300, 500)
_SECONDS = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)
_LONGEST_SECONDS = timedelta(days=365).total_seconds()


def classify_status(
    status: int,
    *,
    now: datetime,
    retry_after: str | None = None,
    retry_on_status: AbstractSet[int] | None = None,
) -> Verdict | None:
    """Decide about an answer; `None` means that the destination took the delivery.

    `retry_on_status` takes the place of the whole table: what it does not list is terminal, and
    an empty set never retries on an answer. `retry_after` is that header, as it came.

    A redirect is terminal: it is never followed. So is 410, which holds for all that follow. A
    server error that is in no list, such as 507, is transient by default, since a server that
    failed once may not fail again.

    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> classify_status(503, now=now, retry_after="120").rule
    'status 503'
    >>> classify_status(404, now=now).nature
    <Nature.TERMINAL: 'terminal'>
    """
    if status in _SUCCESSES:
        return None
    if retry_on_status is not None:
        is_retried, rule = status in retry_on_status, f"destination says: status {status}"
    elif status in RETRIED_STATUSES:
        is_retried, rule = True, f"status {status}"
    elif status in _REFUSALS:
        is_retried, rule = False, "410 gone" if status == _GONE else f"status {status}"
    else:
        is_retried, rule = True, f"default: status {status}"
    if not is_retried:
        return Verdict(nature=Nature.TERMINAL, rule=rule, is_gone=status == _GONE)
    return Verdict(
        nature=Nature.THROTTLED if status == _TOO_MANY else Nature.TRANSIENT,
        rule=rule,
        retry_after=None if retry_after is None else read_retry_after(retry_after, now=now),
    )


def read_retry_after(value: str, *, now: datetime) -> timedelta | None:
    """Read seconds or an HTTP date into a wait of 1 s…24 h; `None` for what is neither.

    >>> read_retry_after("120", now=datetime(2026, 1, 1, tzinfo=UTC))
    datetime.timedelta(seconds=120)
    """
    text = value.strip()
    if _SECONDS.fullmatch(text):
        seconds = min(max(float(text), 0.0), _LONGEST_SECONDS)
        return bounded_retry_after(timedelta(seconds=seconds))
    try:
        when = parsedate_to_datetime(text)
        # A date without a zone is meant in UTC, as HTTP has it.
        aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
        return bounded_retry_after(aware - now)
    except (IndexError, OverflowError, TypeError, ValueError):
        return None
