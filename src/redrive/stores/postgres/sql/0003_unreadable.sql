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
