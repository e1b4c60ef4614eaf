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
