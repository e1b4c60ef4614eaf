-- Who of several that a delivery is for has answered for good, such as the recipients of a mail. It
-- outlasts replays: who has accepted it does not get it again.
CREATE TABLE redrive_addressees (
    delivery INTEGER PRIMARY KEY,
    document TEXT NOT NULL
);
CREATE TRIGGER redrive_delivery_removed_with_addressees AFTER DELETE ON redrive_deliveries
BEGIN
    DELETE FROM redrive_addressees WHERE delivery = old.id;
END;
