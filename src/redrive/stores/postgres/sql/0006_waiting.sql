-- When something of a destination comes due next, whatever the others have scheduled. Only who writes
-- the condition in the same way uses it, and then no other index.
CREATE INDEX deliveries_next_due ON redrive.deliveries (destination, generation, due)
    WHERE coalesce(status = 0 AND NOT is_ready AND NOT is_behind, false);

-- Whether a change lets a destination keep order that kept none: what others are just publishing to
-- it is in no lane yet.
ALTER TABLE redrive.route_changes ADD COLUMN begins_order boolean NOT NULL DEFAULT false;
