-- Whoever asks for causes is answered from the index alone.
DROP INDEX redrive_groups;
CREATE INDEX redrive_groups ON redrive_deliveries
    (group_id, settled_at, id, destination, tenant, reason)
    WHERE status = 3 AND resolution IS NULL;
