-- Who of several that a delivery is for has answered for good, such as the recipients of a mail. It
-- outlasts replays: who has accepted it does not get it again.
CREATE TABLE redrive.addressees (
    delivery bigint PRIMARY KEY,
    document text NOT NULL
);
CREATE FUNCTION redrive.forget_addressees() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM redrive.addressees WHERE delivery IN (SELECT id FROM gone);
    RETURN NULL;
END
$$;
CREATE TRIGGER deliveries_removed_with_addressees AFTER DELETE ON redrive.deliveries
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION redrive.forget_addressees();
