-- When something of a destination comes due next, whatever the others have scheduled.
CREATE INDEX redrive_next_due ON redrive_deliveries (destination, generation, due)
    WHERE status = 0 AND is_ready = 0 AND is_behind = 0;
