-- Whether payloads are encrypted, by which key, and how far what was kept before has come to that.
-- No row: they never were.
CREATE TABLE redrive.encryption (
    id       integer PRIMARY KEY CHECK (id = 1),
    document text NOT NULL
);

-- Who may publish has to know whether to encrypt.
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
        EXECUTE format('GRANT ALL ON redrive.encryption TO %s', role);
    END LOOP;
END
$$;
