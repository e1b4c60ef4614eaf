-- What is delivered is out of its lane, and no longer only out of the index of lanes: an index that
-- names the status would be written with each lease, too.
UPDATE redrive_deliveries SET lane = NULL WHERE status = 2 AND lane IS NOT NULL;
DROP INDEX redrive_lanes;
CREATE INDEX redrive_lanes ON redrive_deliveries (destination, lane, id)
    WHERE lane IS NOT NULL AND resolution IS NULL;
