-- What a person sees in psql, without headers, payload and exchange: what they hold is not blanked.
DROP VIEW redrive.dead_letters;
CREATE VIEW redrive.dead_letters AS
SELECT d.id AS delivery, t.name AS destination, e.type, e.key, d.tenant, d.reason,
       d.fault ->> 'error_class' AS error_class, d.fault ->> 'message' AS last_error,
       d.attempts, d.first_failed_at, d.last_failed_at, d.enqueued_at, d.settled_at AS failed_at,
       d.generation, d.group_id, e.id AS event_id,
       jsonb_array_length(coalesce(d.cycles, '[]')) AS earlier_cycles,
       coalesce(d.cycles, '[]') AS failure_history
FROM redrive.deliveries d
JOIN redrive.destinations t ON t.id = d.destination
JOIN redrive.events e ON e.position = d.position
WHERE d.status = 3 AND d.resolution IS NULL;

-- As before, and a cycle keeps the time of its first failure, which its log may no longer tell.
CREATE OR REPLACE FUNCTION redrive.replay_all(
    chosen bigint[], new_generation text, replayed_by text, why text, history integer,
    at timestamptz, of_replay bigint DEFAULT NULL, is_automatic boolean DEFAULT false
) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    changed bigint[];
BEGIN
    WITH dead AS (
        SELECT d.id, CASE WHEN t.document::json ->> 'order' <> 'none' THEN e.key END AS lane
        FROM redrive.deliveries d
        JOIN redrive.destinations t ON t.id = d.destination
        JOIN redrive.events e ON e.position = d.position
        WHERE d.id = ANY (chosen) AND d.status = 3 AND d.resolution IS NULL
        ORDER BY d.id FOR NO KEY UPDATE OF d
    ), replayed AS (
        UPDATE redrive.deliveries d
        SET status = 0, is_ready = true, kind = 2, due = at, attempts = 0, snoozes = 0,
            crashes = 0, last_crash_at = NULL, settled_at = NULL, first_failed_at = NULL,
            last_failed_at = NULL, reason = NULL, group_id = NULL, fault = NULL, log = NULL,
            generation = coalesce(new_generation, d.generation), replay = of_replay,
            lane = coalesce(d.lane, dead.lane),
            is_behind = d.is_behind OR (d.lane IS NULL AND dead.lane IS NOT NULL),
            auto_replays = d.auto_replays + is_automatic::integer,
            deadline = CASE WHEN d.deadline > at THEN d.deadline END,
            cycles = redrive.last_of(d.cycles, history - 1) || jsonb_build_array(jsonb_build_object(
                'attempts', d.attempts,
                'reason', d.reason,
                'fault', coalesce(d.fault, '{"error_class": "", "message": "", "rule": ""}'),
                'first_failed_at', redrive.instant_text(d.first_failed_at),
                'failed_at', redrive.instant_text(coalesce(d.settled_at, at)),
                'generation', d.generation,
                'replayed_at', redrive.instant_text(at),
                'replayed_by', replayed_by,
                'log', coalesce(d.log, '[]')
            ))
        FROM dead WHERE d.id = dead.id
        RETURNING d.id
    )
    SELECT array_agg(id ORDER BY id) INTO changed FROM replayed;
    IF changed IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM redrive.exchanges WHERE delivery = ANY (changed);
    -- Who had left a lane takes its old place again; the next claim finds out who goes first.
    INSERT INTO redrive.late_lanes (destination, lane)
    SELECT DISTINCT destination, lane FROM redrive.deliveries
    WHERE id = ANY (changed) AND lane IS NOT NULL;
    IF of_replay IS NULL THEN
        INSERT INTO redrive.audit (at, by, why, action, count, deliveries, detail)
        VALUES (at, replayed_by, why, 'replay', cardinality(changed), changed,
                coalesce(new_generation, ''));
    END IF;
    RETURN QUERY SELECT unnest(changed);
END
$$;

-- Sends all dead letters of an event again, at whichever destinations it failed, and returns how
-- many: SELECT redrive.replay_event('01940000-0000-7000-8000-000000000000', NULL, 'ada').
CREATE FUNCTION redrive.replay_event(event uuid, new_generation text, replayed_by text)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    letter bigint;
    chosen bigint[];
    replayed integer := 0;
BEGIN
    SELECT array_agg(d.id ORDER BY d.id) INTO chosen
    FROM redrive.deliveries d JOIN redrive.events e ON e.position = d.position
    WHERE e.id = replay_event.event AND d.status = 3 AND d.resolution IS NULL;
    IF chosen IS NULL THEN
        RAISE EXCEPTION 'The event % has no dead letter.', coalesce(event::text, 'NULL')
            USING ERRCODE = 'no_data_found', HINT = 'SELECT * FROM redrive.dead_letters';
    END IF;
    FOREACH letter IN ARRAY chosen LOOP
        PERFORM redrive.replay(letter, new_generation, replayed_by);
        replayed := replayed + 1;
    END LOOP;
    RETURN replayed;
END
$$;
