-- Whoever asks for causes is answered from the index alone.
DROP INDEX redrive.deliveries_groups;
CREATE INDEX deliveries_groups ON redrive.deliveries (group_id, settled_at, id)
    INCLUDE (destination, tenant, reason)
    WHERE status = 3 AND resolution IS NULL;
