"""A heartbeat at once: the worker is heard of, and its leases are extended."""

from __future__ import annotations

__all__ = ["BEAT"]

# See `settling` for what a current lease is.
BEAT = """
WITH present AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), heard AS (
    INSERT INTO redrive.workers AS known (id, seen_at, serving)
    SELECT $2, present.now, $3 FROM present
    ON CONFLICT (id) DO UPDATE
    SET seen_at = excluded.seen_at, serving = coalesce(excluded.serving, known.serving)
), forgotten AS (
    DELETE FROM redrive.workers w USING present
    WHERE w.seen_at < present.now - $4::interval AND w.id <> $2
)
UPDATE redrive.deliveries d SET lease_until = present.now + $5::interval
FROM present CROSS JOIN unnest((SELECT $6::bigint[]), (SELECT $7::bigint[])) AS given (id, token)
WHERE d.id = given.id AND d.token = given.token AND d.status + 0 = 1
  AND d.lease_until > present.now
RETURNING d.id, d.token
"""
