-- What is no JSON at all, whoever has written it, is shown as a text: one bad row must not keep
-- anybody from looking at the others.
CREATE OR REPLACE FUNCTION redrive.readable(document text) RETURNS json
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE
        WHEN position('\u0000' IN document) = 0 THEN document
        ELSE regexp_replace(document, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')
    END::json;
EXCEPTION WHEN OTHERS THEN
    RETURN to_json(document);
END
$$;
CREATE OR REPLACE FUNCTION redrive.payload_of(document text) RETURNS json
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN redrive.readable(document) -> 'payload';
EXCEPTION WHEN OTHERS THEN
    RETURN to_json(document);
END
$$;

-- Times and counts that no worker could reckon with, such as a due time of 'infinity', would stop all
-- workers at this row. Whoever types one is told at once. What is there already is not looked at.
ALTER TABLE redrive.deliveries ADD CONSTRAINT deliveries_can_be_reckoned_with CHECK (
    due BETWEEN '0100-01-01 00:00+00' AND '9999-01-01 00:00+00'
    AND (deadline IS NULL OR deadline BETWEEN '0100-01-01 00:00+00' AND '9999-01-01 00:00+00')
    AND (status = 3 OR attempts BETWEEN 0 AND 2000000000)
    AND token BETWEEN 0 AND 4611686018427387903
) NOT VALID;
