-- How many there are of what, so that nobody has to count the tables. state: of deliveries 0 to 7 for
-- those under way (1 not ready, 2 behind another of its lane, 4 not ready because it failed),
-- 20 delivered, 30 failed, 31 resolved; of events, at destination 0, 40 given to somebody, 41 to
-- nobody. detail: the generation while it is under way, the reason of a dead letter. tenant: of a
-- dead letter.
CREATE TABLE redrive_counts (
    destination INTEGER NOT NULL,
    state       INTEGER NOT NULL,
    detail      TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    number      INTEGER NOT NULL,
    PRIMARY KEY (destination, state, detail, tenant)
) WITHOUT ROWID;

-- Up to which delivery and event they go. What is stored later has a higher number, and whatever
-- happens to it changes no count, until somebody counts it as it is then.
INSERT INTO redrive_counters (name, value)
VALUES ('counted_deliveries', ifnull((SELECT max(id) FROM redrive_deliveries), 0)),
       ('counted_events', ifnull((SELECT max(position) FROM redrive_events), 0));

-- A statement that counts what it changes itself turns this over. For all others, those of older code
-- included, triggers count, row by row.
ALTER TABLE redrive_deliveries ADD COLUMN counted INTEGER;

-- As what each delivery counts. The triggers say the same of a row as it was.
CREATE VIEW redrive_countable AS
SELECT id, destination, CASE
    WHEN status = 2 THEN 20
    WHEN status = 3 THEN iif(resolution IS NULL, 30, 31)
    ELSE CASE WHEN is_ready THEN 0 WHEN kind = 1 THEN 5 ELSE 1 END + iif(is_behind, 2, 0)
END AS state, CASE
    WHEN status < 2 THEN generation
    WHEN status = 3 AND resolution IS NULL THEN ifnull(reason, '')
    ELSE ''
END AS detail, iif(status = 3 AND resolution IS NULL, ifnull(tenant, ''), '') AS tenant
FROM redrive_deliveries;

-- The truth, by counting everything.
CREATE VIEW redrive_recount AS
SELECT destination, state, detail, tenant, count(*) AS number
FROM redrive_countable GROUP BY 1, 2, 3, 4
UNION ALL
SELECT 0, iif(destinations = '[]', 41, 40), '', '', count(*) FROM redrive_events GROUP BY 2;

CREATE VIEW redrive_uncounted AS
SELECT destination, state, detail, tenant, count(*) AS number FROM redrive_countable
WHERE id > (SELECT value FROM redrive_counters WHERE name = 'counted_deliveries')
GROUP BY 1, 2, 3, 4
UNION ALL
SELECT 0, iif(destinations = '[]', 41, 40), '', '', count(*) FROM redrive_events
WHERE position > (SELECT value FROM redrive_counters WHERE name = 'counted_events')
GROUP BY 2;

CREATE VIEW redrive_kept_counts AS
SELECT destination, state, detail, tenant, sum(number) AS number
FROM (SELECT * FROM redrive_counts UNION ALL SELECT * FROM redrive_uncounted)
GROUP BY 1, 2, 3, 4 HAVING sum(number) <> 0;

-- Of the first two at most one counts a change: a claim changes the status of many, and asks the
-- short question. The first also counts for replays, in place of two that did.
DROP TRIGGER redrive_count_delivered;
DROP TRIGGER redrive_count_failed;
CREATE TRIGGER redrive_count_settled AFTER UPDATE OF status ON redrive_deliveries
WHEN new.status <> old.status AND new.status + old.status > 1
    AND (new.counted IS old.counted OR new.replay IS NOT NULL)
BEGIN
    UPDATE redrive_replays
    SET delivered = delivered + (new.status = 2), failed = failed + (new.status = 3)
    WHERE id = new.replay AND new.status >= 2 AND old.status < 2;
    INSERT INTO redrive_counts (destination, state, detail, tenant, number)
    SELECT old.destination, CASE
        WHEN old.status = 2 THEN 20
        WHEN old.status = 3 THEN iif(old.resolution IS NULL, 30, 31)
        ELSE CASE WHEN old.is_ready THEN 0 WHEN old.kind = 1 THEN 5 ELSE 1 END
             + iif(old.is_behind, 2, 0)
    END, CASE
        WHEN old.status < 2 THEN old.generation
        WHEN old.status = 3 AND old.resolution IS NULL THEN ifnull(old.reason, '')
        ELSE ''
    END, iif(old.status = 3 AND old.resolution IS NULL, ifnull(old.tenant, ''), ''), -1
    FROM redrive_counters
    WHERE name = 'counted_deliveries' AND old.id <= value AND new.counted IS old.counted
    UNION ALL
    SELECT destination, state, detail, tenant, 1 FROM redrive_countable
    WHERE id = new.id AND new.counted IS old.counted AND id <= (
        SELECT value FROM redrive_counters WHERE name = 'counted_deliveries'
    )
    ON CONFLICT DO UPDATE SET number = number + excluded.number;
END;
CREATE TRIGGER redrive_count_changed
AFTER UPDATE OF is_ready, is_behind, resolution, destination, generation, reason, tenant
ON redrive_deliveries
WHEN (new.status = old.status OR new.status + old.status = 1) AND new.counted IS old.counted
    AND (
        new.is_ready <> old.is_ready OR new.is_behind <> old.is_behind
        OR (new.kind = 1) <> (old.kind = 1)
        OR (new.resolution IS NULL) <> (old.resolution IS NULL)
        OR new.destination <> old.destination OR new.generation <> old.generation
        OR new.reason IS NOT old.reason OR new.tenant IS NOT old.tenant
    )
BEGIN
    INSERT INTO redrive_counts (destination, state, detail, tenant, number)
    SELECT old.destination, CASE
        WHEN old.status = 2 THEN 20
        WHEN old.status = 3 THEN iif(old.resolution IS NULL, 30, 31)
        ELSE CASE WHEN old.is_ready THEN 0 WHEN old.kind = 1 THEN 5 ELSE 1 END
             + iif(old.is_behind, 2, 0)
    END, CASE
        WHEN old.status < 2 THEN old.generation
        WHEN old.status = 3 AND old.resolution IS NULL THEN ifnull(old.reason, '')
        ELSE ''
    END, iif(old.status = 3 AND old.resolution IS NULL, ifnull(old.tenant, ''), ''), -1
    FROM redrive_counters WHERE name = 'counted_deliveries' AND old.id <= value
    UNION ALL
    SELECT destination, state, detail, tenant, 1 FROM redrive_countable
    WHERE id = new.id AND id <= (
        SELECT value FROM redrive_counters WHERE name = 'counted_deliveries'
    )
    ON CONFLICT DO UPDATE SET number = number + excluded.number;
END;
CREATE TRIGGER redrive_count_removed BEFORE DELETE ON redrive_deliveries
BEGIN
    INSERT INTO redrive_counts (destination, state, detail, tenant, number)
    SELECT destination, state, detail, tenant, -1 FROM redrive_countable
    WHERE id = old.id AND id <= (
        SELECT value FROM redrive_counters WHERE name = 'counted_deliveries'
    )
    ON CONFLICT DO UPDATE SET number = number + excluded.number;
END;

CREATE TRIGGER redrive_count_given AFTER UPDATE OF destinations ON redrive_events
WHEN (new.destinations = '[]') <> (old.destinations = '[]')
BEGIN
    INSERT INTO redrive_counts (destination, state, detail, tenant, number)
    SELECT 0, state, '', '', change
    FROM redrive_counters CROSS JOIN (
        SELECT iif(old.destinations = '[]', 41, 40) AS state, -1 AS change
        UNION ALL SELECT iif(new.destinations = '[]', 41, 40), 1
    )
    WHERE name = 'counted_events' AND old.position <= value
    ON CONFLICT DO UPDATE SET number = number + excluded.number;
END;
CREATE TRIGGER redrive_count_pruned AFTER DELETE ON redrive_events
BEGIN
    INSERT INTO redrive_counts (destination, state, detail, tenant, number)
    SELECT 0, iif(old.destinations = '[]', 41, 40), '', '', -1 FROM redrive_counters
    WHERE name = 'counted_events' AND old.position <= value
    ON CONFLICT DO UPDATE SET number = number + excluded.number;
END;

-- What is there already.
INSERT INTO redrive_counts SELECT * FROM redrive_recount;
