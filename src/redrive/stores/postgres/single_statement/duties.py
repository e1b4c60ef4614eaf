"""What all duties ask, at once; the claims of an idle worker take it along."""

from __future__ import annotations

__all__ = ["DUTIES", "DUTY_COLUMNS", "LOOK_AGAIN"]

_HAS_LATE = """EXISTS (SELECT FROM redrive.late_events) OR EXISTS (
    SELECT FROM redrive.route_changes
    WHERE NOT is_done AND (until IS NULL OR until <= redrive.log_end())
)"""
"""Whether there is anything to catch up with; costs next to nothing if not."""

# A table that was vacuumed when it was empty looks empty until the server looks again, which may
# take a minute: a join with it then reads all of it for each row of the other side.
_IS_MISJUDGED = """(
    SELECT reltuples >= 0 AND pg_stat_get_live_tuples(oid) > 10 * reltuples + 1000
           AND pg_has_role(relowner, 'USAGE')
    FROM pg_class WHERE oid = 'redrive.deliveries'::regclass
)"""
"""Whether the server takes the table for much smaller than it is, and we may have it look again."""

LOOK_AGAIN = "ANALYZE (SKIP_LOCKED) redrive.deliveries, redrive.events"

# In the order of an index and with a limit, or the planner might prefer to read the whole table.
# What a destination is like is told by its document; a name that looks the same costs a look.
DUTY_COLUMNS = f"""
       coalesce((
           SELECT deadline <= present.now FROM redrive.deliveries
           WHERE status = 0 AND deadline IS NOT NULL ORDER BY deadline LIMIT 1
       ), false) AS has_expired,
       coalesce((
           SELECT lease_until <= present.now FROM redrive.deliveries
           WHERE status = 1 ORDER BY lease_until LIMIT 1
       ), false) AS has_overdue,
       EXISTS (
           SELECT FROM redrive.destinations WHERE document LIKE '%"dead_letter"%'
       ) AS may_shed,
       {_HAS_LATE} AS has_late,
       EXISTS (
           SELECT FROM redrive.replays WHERE state IN ('running', 'paused')
       ) AS has_replays,
       EXISTS (
           SELECT FROM redrive.destinations WHERE document LIKE '%"auto_replay":{{%'
       ) AS has_auto_replays,
       {_IS_MISJUDGED} AS is_misjudged,
       (SELECT value FROM redrive.counters WHERE name = 'routes_version') AS routes_version
"""
"""What they ask, as columns of whatever has a `present`."""

DUTIES = f"""
SELECT present.now, {DUTY_COLUMNS}
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) AS present
"""
