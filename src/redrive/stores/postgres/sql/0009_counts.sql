-- How many there are of what, so that nobody has to count the tables. state: of deliveries 0 to 7 for
-- those under way (1 not ready, 2 behind another of its lane, 4 not ready because it failed),
-- 20 delivered, 30 failed, 31 resolved; of events, at destination 0, 40 given to somebody, 41 to
-- nobody. detail: the generation while it is under way, the reason of a dead letter. tenant: of a
-- dead letter.
CREATE TABLE redrive.counts (
    destination integer NOT NULL,
    state       smallint NOT NULL,
    detail      text COLLATE "C" NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    number      bigint NOT NULL,
    PRIMARY KEY (destination, state, detail, tenant)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.1);

-- What has changed of them since. Whoever changes something only adds rows here, so that two never
-- wait for each other; housekeeping adds them up.
CREATE TABLE redrive.count_changes (
    destination integer NOT NULL,
    state       smallint NOT NULL,
    detail      text COLLATE "C" NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    number      bigint NOT NULL
) WITH (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0);

-- What was stored by a statement that counts has this set. All else, such as what older code stores,
-- is in no count, whatever happens to it, until housekeeping counts it as it is then and sets this. A
-- statement that counts what it changes turns it over; for all others triggers count, row by row.
ALTER TABLE redrive.deliveries ADD COLUMN counted boolean DEFAULT false;
ALTER TABLE redrive.deliveries ALTER COLUMN counted DROP DEFAULT;
ALTER TABLE redrive.events ADD COLUMN counted boolean DEFAULT false;
ALTER TABLE redrive.events ALTER COLUMN counted DROP DEFAULT;
CREATE INDEX deliveries_uncounted ON redrive.deliveries (id) WHERE counted IS NULL;
CREATE INDEX events_uncounted ON redrive.events (position) WHERE counted IS NULL;

CREATE FUNCTION redrive.count_state(
    status smallint, is_ready boolean, is_behind boolean, kind smallint, resolution jsonb
) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN status = 2 THEN 20
        WHEN status = 3 THEN CASE WHEN resolution IS NULL THEN 30 ELSE 31 END
        ELSE CASE WHEN is_ready THEN 0 WHEN kind = 1 THEN 5 ELSE 1 END
             + CASE WHEN is_behind THEN 2 ELSE 0 END
    END::smallint
$$;
CREATE FUNCTION redrive.count_detail(
    status smallint, generation text, reason text, resolution jsonb
) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN status < 2 THEN generation
                WHEN status = 3 AND resolution IS NULL THEN coalesce(reason, '') ELSE '' END
$$;
CREATE FUNCTION redrive.count_tenant(status smallint, tenant text, resolution jsonb)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN status = 3 AND resolution IS NULL THEN coalesce(tenant, '') ELSE '' END
$$;

-- As what each delivery counts, and each event.
CREATE VIEW redrive.countable AS
SELECT id, destination, redrive.count_state(status, is_ready, is_behind, kind, resolution) AS state,
       redrive.count_detail(status, generation, reason, resolution) COLLATE "C" AS detail,
       redrive.count_tenant(status, tenant, resolution) COLLATE "C" AS tenant, counted
FROM redrive.deliveries
UNION ALL
SELECT position, 0, CASE WHEN destinations = '{}' THEN 41 ELSE 40 END::smallint, '', '', counted
FROM redrive.events;

-- The truth, by counting everything.
CREATE VIEW redrive.recount AS
SELECT destination, state, detail, tenant, count(*) AS number
FROM redrive.countable GROUP BY 1, 2, 3, 4;

CREATE VIEW redrive.kept_counts AS
SELECT destination, state, detail, tenant, sum(number)::bigint AS number FROM (
    SELECT destination, state, detail, tenant, number FROM redrive.counts
    UNION ALL
    SELECT destination, state, detail, tenant, number FROM redrive.count_changes
    UNION ALL
    SELECT destination, state, detail, tenant, 1 FROM redrive.countable WHERE counted IS NULL
) AS kept
GROUP BY 1, 2, 3, 4 HAVING sum(number) <> 0;

-- Who may publish may count.
DO $$
DECLARE
    role text;
BEGIN
    FOR role IN
        SELECT DISTINCT CASE granted.grantee WHEN 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END
        FROM pg_class c CROSS JOIN aclexplode(c.relacl) AS granted
        WHERE c.oid = 'redrive.deliveries'::regclass AND granted.privilege_type = 'INSERT'
          AND granted.grantee <> c.relowner
    LOOP
        EXECUTE format('GRANT ALL ON redrive.counts, redrive.count_changes, redrive.countable, '
            'redrive.recount, redrive.kept_counts TO %s', role);
    END LOOP;
END
$$;

CREATE FUNCTION redrive.count_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF new.counted = old.counted THEN
        INSERT INTO redrive.count_changes VALUES (
            old.destination,
            redrive.count_state(old.status, old.is_ready, old.is_behind, old.kind, old.resolution),
            redrive.count_detail(old.status, old.generation, old.reason, old.resolution),
            redrive.count_tenant(old.status, old.tenant, old.resolution), -1
        ), (
            new.destination,
            redrive.count_state(new.status, new.is_ready, new.is_behind, new.kind, new.resolution),
            redrive.count_detail(new.status, new.generation, new.reason, new.resolution),
            redrive.count_tenant(new.status, new.tenant, new.resolution), 1
        );
    END IF;
    IF new.status >= 2 AND old.status < 2 AND new.replay IS NOT NULL THEN
        INSERT INTO redrive.replay_outcomes VALUES (new.replay, new.status = 2);
    END IF;
    RETURN NULL;
END
$$;
-- Of the two at most one counts a change: a claim changes the status of many, and asks the short
-- question. The first also counts for replays, in place of one that did.
DROP TRIGGER deliveries_ended ON redrive.deliveries;
DROP FUNCTION redrive.count_outcome;
CREATE TRIGGER deliveries_count_settled AFTER UPDATE OF status ON redrive.deliveries
    FOR EACH ROW WHEN (
        new.status <> old.status AND new.status + old.status > 1
        AND (new.counted = old.counted OR new.replay IS NOT NULL)
    ) EXECUTE FUNCTION redrive.count_changed();
CREATE TRIGGER deliveries_count_changed
    AFTER UPDATE OF is_ready, is_behind, resolution, destination, generation, reason, tenant
    ON redrive.deliveries
    FOR EACH ROW WHEN (
        (new.status = old.status OR new.status + old.status = 1) AND new.counted = old.counted
        AND (new.is_ready, new.is_behind, new.kind = 1, new.resolution IS NULL, new.destination,
             new.generation, new.reason, new.tenant)
            IS DISTINCT FROM
            (old.is_ready, old.is_behind, old.kind = 1, old.resolution IS NULL, old.destination,
             old.generation, old.reason, old.tenant)
    ) EXECUTE FUNCTION redrive.count_changed();
CREATE FUNCTION redrive.count_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO redrive.count_changes
    SELECT destination, redrive.count_state(status, is_ready, is_behind, kind, resolution),
           redrive.count_detail(status, generation, reason, resolution),
           redrive.count_tenant(status, tenant, resolution), -count(*)
    FROM gone WHERE counted IS NOT NULL GROUP BY 1, 2, 3, 4;
    RETURN NULL;
END
$$;
CREATE TRIGGER deliveries_count_removed AFTER DELETE ON redrive.deliveries
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION redrive.count_removed();

CREATE FUNCTION redrive.count_given() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO redrive.count_changes
    VALUES (0, CASE WHEN old.destinations = '{}' THEN 41 ELSE 40 END, '', '', -1),
           (0, CASE WHEN new.destinations = '{}' THEN 41 ELSE 40 END, '', '', 1);
    RETURN NULL;
END
$$;
CREATE FUNCTION redrive.count_pruned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO redrive.count_changes
    SELECT 0, CASE WHEN destinations = '{}' THEN 41 ELSE 40 END, '', '', -count(*)
    FROM gone WHERE counted IS NOT NULL GROUP BY 2;
    RETURN NULL;
END
$$;
CREATE TRIGGER events_count_given AFTER UPDATE OF destinations ON redrive.events
    FOR EACH ROW WHEN (
        (new.destinations = '{}') <> (old.destinations = '{}') AND new.counted IS NOT NULL
    ) EXECUTE FUNCTION redrive.count_given();
CREATE TRIGGER events_count_removed AFTER DELETE ON redrive.events
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION redrive.count_pruned();

-- What is there already. Nobody changes it before this is committed: the tables are locked.
INSERT INTO redrive.counts SELECT * FROM redrive.recount;
