BEGIN TRANSACTION;
CREATE TABLE redrive_audit (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    by         TEXT NOT NULL,
    why        TEXT NOT NULL,
    action     TEXT NOT NULL,
    count      INTEGER NOT NULL,
    deliveries TEXT NOT NULL,
    detail     TEXT NOT NULL
);
INSERT INTO "redrive_audit" VALUES(1,1794805383664370,'ada','the first of group 7323e364ff36','resolve',1,'[6]','');
CREATE TABLE redrive_counters (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "redrive_counters" VALUES('deleted',0);
INSERT INTO "redrive_counters" VALUES('exported',0);
INSERT INTO "redrive_counters" VALUES('pruned_events',0);
INSERT INTO "redrive_counters" VALUES('pruned_resolved',0);
INSERT INTO "redrive_counters" VALUES('refused_settlements',0);
INSERT INTO "redrive_counters" VALUES('routes_version',1);
INSERT INTO "redrive_counters" VALUES('unrouted',0);
CREATE TABLE redrive_deliveries (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    position        INTEGER NOT NULL REFERENCES redrive_events (position),
    destination     INTEGER NOT NULL REFERENCES redrive_destinations (id),
    status          INTEGER NOT NULL DEFAULT 0,
    is_ready        INTEGER NOT NULL,
    is_behind       INTEGER NOT NULL DEFAULT 0,
    kind            INTEGER NOT NULL DEFAULT 0,
    priority        INTEGER NOT NULL,
    generation      TEXT NOT NULL,
    tenant          TEXT,
    lane            TEXT,
    due             INTEGER NOT NULL,
    deadline        INTEGER,
    enqueued_at     INTEGER NOT NULL,
    token           INTEGER NOT NULL DEFAULT 0,
    attempts        INTEGER NOT NULL DEFAULT 0,
    snoozes         INTEGER NOT NULL DEFAULT 0,
    crashes         INTEGER NOT NULL DEFAULT 0,
    is_alone        INTEGER NOT NULL DEFAULT 0,
    breaker_generation INTEGER NOT NULL DEFAULT 0,
    worker          TEXT,
    lease_until     INTEGER,
    settled_at      INTEGER,
    last_crash_at   INTEGER,
    first_failed_at INTEGER,
    last_failed_at  INTEGER,
    reason          TEXT,
    group_id        TEXT,
    fault           TEXT,
    log             TEXT,
    cycles          TEXT,
    resolution      TEXT
, replay INTEGER, auto_replays INTEGER NOT NULL DEFAULT 0, payload TEXT, edits TEXT, resolved_at INTEGER);
INSERT INTO "redrive_deliveries" VALUES(1,1,1,3,1,0,0,0,'default','acme',NULL,1794805383597522,NULL,1794805383597522,1,1,0,0,0,0,NULL,NULL,1794805383639745,NULL,1794805383639745,1794805383639745,'terminal','7323e364ff36','{"error_class":"msgspec.ValidationError","message":"Object missing required field `total`","rule":"payload does not fit","stack":"Traceback (most recent call last):\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 68, in _try\n    event = self._open(leased)\n            ^^^^^^^^^^^^^^^^^^\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 123, in _open\n    return msgspec.structs.replace(event, payload=self._decode(event.payload))\n                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^\nmsgspec.ValidationError: Object missing required field `total`","group":"7323e364ff36","title":"msgspec.ValidationError: Object missing required field `#` (function.py, _open)"}','[{"number":1,"started_at":"2026-11-16T05:03:03.633173Z","ended_at":"2026-11-16T05:03:03.634583Z","worker":"6a54ac1a7b6e","result":"failed","fault":{"error_class":"msgspec.ValidationError","message":"Object missing required field `total`","rule":"payload does not fit","stack":"Traceback (most recent call last):\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 68, in _try\n    event = self._open(leased)\n            ^^^^^^^^^^^^^^^^^^\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 123, in _open\n    return msgspec.structs.replace(event, payload=self._decode(event.payload))\n                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^\nmsgspec.ValidationError: Object missing required field `total`"}}]',NULL,NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "redrive_deliveries" VALUES(2,2,1,3,1,0,0,0,'default','acme',NULL,1794805383602772,NULL,1794805383602772,1,1,0,0,0,0,NULL,NULL,1794805383639745,NULL,1794805383639745,1794805383639745,'terminal','7323e364ff36','{"error_class":"msgspec.ValidationError","message":"Object missing required field `number`","rule":"payload does not fit","stack":"Traceback (most recent call last):\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 68, in _try\n    event = self._open(leased)\n            ^^^^^^^^^^^^^^^^^^\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 123, in _open\n    return msgspec.structs.replace(event, payload=self._decode(event.payload))\n                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^\nmsgspec.ValidationError: Object missing required field `number`","group":"7323e364ff36","title":"msgspec.ValidationError: Object missing required field `#` (function.py, _open)"}','[{"number":1,"started_at":"2026-11-16T05:03:03.634592Z","ended_at":"2026-11-16T05:03:03.635271Z","worker":"6a54ac1a7b6e","result":"failed","fault":{"error_class":"msgspec.ValidationError","message":"Object missing required field `number`","rule":"payload does not fit","stack":"Traceback (most recent call last):\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 68, in _try\n    event = self._open(leased)\n            ^^^^^^^^^^^^^^^^^^\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 123, in _open\n    return msgspec.structs.replace(event, payload=self._decode(event.payload))\n                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^\nmsgspec.ValidationError: Object missing required field `number`"}}]',NULL,NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "redrive_deliveries" VALUES(3,3,1,3,1,0,0,0,'default','acme',NULL,1794805383605286,NULL,1794805383605286,1,1,0,0,0,0,NULL,NULL,1794805383639745,NULL,1794805383639745,1794805383639745,'terminal','7323e364ff36','{"error_class":"msgspec.ValidationError","message":"Object missing required field `total`","rule":"payload does not fit","stack":"Traceback (most recent call last):\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 68, in _try\n    event = self._open(leased)\n            ^^^^^^^^^^^^^^^^^^\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 123, in _open\n    return msgspec.structs.replace(event, payload=self._decode(event.payload))\n                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^\nmsgspec.ValidationError: Object missing required field `total`","group":"7323e364ff36","title":"msgspec.ValidationError: Object missing required field `#` (function.py, _open)"}','[{"number":1,"started_at":"2026-11-16T05:03:03.635277Z","ended_at":"2026-11-16T05:03:03.635632Z","worker":"6a54ac1a7b6e","result":"failed","fault":{"error_class":"msgspec.ValidationError","message":"Object missing required field `total`","rule":"payload does not fit","stack":"Traceback (most recent call last):\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 68, in _try\n    event = self._open(leased)\n            ^^^^^^^^^^^^^^^^^^\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 123, in _open\n    return msgspec.structs.replace(event, payload=self._decode(event.payload))\n                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^\nmsgspec.ValidationError: Object missing required field `total`"}}]',NULL,NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "redrive_deliveries" VALUES(4,4,1,3,1,0,0,0,'default','acme',NULL,1794805383608265,NULL,1794805383608265,1,1,0,0,0,0,NULL,NULL,1794805383639745,NULL,1794805383639745,1794805383639745,'terminal','7323e364ff36','{"error_class":"msgspec.ValidationError","message":"Object missing required field `number`","rule":"payload does not fit","stack":"Traceback (most recent call last):\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 68, in _try\n    event = self._open(leased)\n            ^^^^^^^^^^^^^^^^^^\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 123, in _open\n    return msgspec.structs.replace(event, payload=self._decode(event.payload))\n                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^\nmsgspec.ValidationError: Object missing required field `number`","group":"7323e364ff36","title":"msgspec.ValidationError: Object missing required field `#` (function.py, _open)"}','[{"number":1,"started_at":"2026-11-16T05:03:03.635637Z","ended_at":"2026-11-16T05:03:03.635928Z","worker":"6a54ac1a7b6e","result":"failed","fault":{"error_class":"msgspec.ValidationError","message":"Object missing required field `number`","rule":"payload does not fit","stack":"Traceback (most recent call last):\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 68, in _try\n    event = self._open(leased)\n            ^^^^^^^^^^^^^^^^^^\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 123, in _open\n    return msgspec.structs.replace(event, payload=self._decode(event.payload))\n                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^\nmsgspec.ValidationError: Object missing required field `number`"}}]',NULL,NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "redrive_deliveries" VALUES(5,5,1,3,1,0,0,0,'default','acme',NULL,1794805383609967,NULL,1794805383609967,1,1,0,0,0,0,NULL,NULL,1794805383639745,NULL,1794805383639745,1794805383639745,'terminal','7323e364ff36','{"error_class":"msgspec.ValidationError","message":"Object missing required field `total`","rule":"payload does not fit","stack":"Traceback (most recent call last):\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 68, in _try\n    event = self._open(leased)\n            ^^^^^^^^^^^^^^^^^^\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 123, in _open\n    return msgspec.structs.replace(event, payload=self._decode(event.payload))\n                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^\nmsgspec.ValidationError: Object missing required field `total`","group":"7323e364ff36","title":"msgspec.ValidationError: Object missing required field `#` (function.py, _open)"}','[{"number":1,"started_at":"2026-11-16T05:03:03.635933Z","ended_at":"2026-11-16T05:03:03.636219Z","worker":"6a54ac1a7b6e","result":"failed","fault":{"error_class":"msgspec.ValidationError","message":"Object missing required field `total`","rule":"payload does not fit","stack":"Traceback (most recent call last):\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 68, in _try\n    event = self._open(leased)\n            ^^^^^^^^^^^^^^^^^^\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 123, in _open\n    return msgspec.structs.replace(event, payload=self._decode(event.payload))\n                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^\nmsgspec.ValidationError: Object missing required field `total`"}}]',NULL,NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "redrive_deliveries" VALUES(6,6,1,3,1,0,0,0,'default','acme',NULL,1794805383610499,NULL,1794805383610499,1,1,0,0,0,0,NULL,NULL,1794805383639745,NULL,1794805383639745,1794805383639745,'terminal','7323e364ff36','{"error_class":"msgspec.ValidationError","message":"Object missing required field `number`","rule":"payload does not fit","stack":"Traceback (most recent call last):\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 68, in _try\n    event = self._open(leased)\n            ^^^^^^^^^^^^^^^^^^\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 123, in _open\n    return msgspec.structs.replace(event, payload=self._decode(event.payload))\n                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^\nmsgspec.ValidationError: Object missing required field `number`","group":"7323e364ff36","title":"msgspec.ValidationError: Object missing required field `#` (function.py, _open)"}','[{"number":1,"started_at":"2026-11-16T05:03:03.636223Z","ended_at":"2026-11-16T05:03:03.636837Z","worker":"6a54ac1a7b6e","result":"failed","fault":{"error_class":"msgspec.ValidationError","message":"Object missing required field `number`","rule":"payload does not fit","stack":"Traceback (most recent call last):\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 68, in _try\n    event = self._open(leased)\n            ^^^^^^^^^^^^^^^^^^\n  File \"/srv/venv/lib/python3.11/site-packages/redrive/transports/function.py\", line 123, in _open\n    return msgspec.structs.replace(event, payload=self._decode(event.payload))\n                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^\nmsgspec.ValidationError: Object missing required field `number`"}}]',NULL,'{"by":"ada","at":"2026-11-16T05:03:03.664370Z","why":"the first of group 7323e364ff36"}',NULL,0,NULL,NULL,1794805383664370);
INSERT INTO "redrive_deliveries" VALUES(7,7,2,3,1,0,0,0,'default',NULL,NULL,1794805383611458,NULL,1794805383611458,1,1,0,0,0,0,NULL,NULL,1794805383639745,NULL,1794805383639745,1794805383639745,'exhausted','e6e52fcc20d6','{"error_class":"ValueError","message":"no column ''sku''","rule":"default","stack":"Traceback (most recent call last):\n  File \"/srv/shop.py\", line 13, in book\n    raise ValueError(event.payload[\"error\"])\nValueError: no column ''sku''","group":"e6e52fcc20d6","title":"ValueError: no column ''#'' (shop.py, book)"}','[{"number":1,"started_at":"2026-11-16T05:03:03.636843Z","ended_at":"2026-11-16T05:03:03.637460Z","worker":"6a54ac1a7b6e","result":"failed","fault":{"error_class":"ValueError","message":"no column ''sku''","rule":"default","stack":"Traceback (most recent call last):\n  File \"/srv/shop.py\", line 13, in book\n    raise ValueError(event.payload[\"error\"])\nValueError: no column ''sku''"}}]',NULL,NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "redrive_deliveries" VALUES(8,8,2,3,1,0,0,0,'default',NULL,NULL,1794805383612834,NULL,1794805383612834,1,1,0,0,0,0,NULL,NULL,1794805383639745,NULL,1794805383639745,1794805383639745,'exhausted','e6e52fcc20d6','{"error_class":"ValueError","message":"no column ''iban''","rule":"default","stack":"Traceback (most recent call last):\n  File \"/srv/shop.py\", line 13, in book\n    raise ValueError(event.payload[\"error\"])\nValueError: no column ''iban''","group":"e6e52fcc20d6","title":"ValueError: no column ''#'' (shop.py, book)"}','[{"number":1,"started_at":"2026-11-16T05:03:03.637468Z","ended_at":"2026-11-16T05:03:03.637717Z","worker":"6a54ac1a7b6e","result":"failed","fault":{"error_class":"ValueError","message":"no column ''iban''","rule":"default","stack":"Traceback (most recent call last):\n  File \"/srv/shop.py\", line 13, in book\n    raise ValueError(event.payload[\"error\"])\nValueError: no column ''iban''"}}]',NULL,NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "redrive_deliveries" VALUES(9,9,2,3,1,0,0,0,'default',NULL,NULL,1794805383614326,NULL,1794805383614326,1,1,0,0,0,0,NULL,NULL,1794805383639745,NULL,1794805383639745,1794805383639745,'exhausted','d10cdb3d64a6','{"error_class":"ValueError","message":"answered 502 for order 17","rule":"default","stack":"Traceback (most recent call last):\n  File \"/srv/shop.py\", line 13, in book\n    raise ValueError(event.payload[\"error\"])\nValueError: answered 502 for order 17","group":"d10cdb3d64a6","title":"ValueError: answered # for order # (shop.py, book)"}','[{"number":1,"started_at":"2026-11-16T05:03:03.637722Z","ended_at":"2026-11-16T05:03:03.638022Z","worker":"6a54ac1a7b6e","result":"failed","fault":{"error_class":"ValueError","message":"answered 502 for order 17","rule":"default","stack":"Traceback (most recent call last):\n  File \"/srv/shop.py\", line 13, in book\n    raise ValueError(event.payload[\"error\"])\nValueError: answered 502 for order 17"}}]',NULL,NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "redrive_deliveries" VALUES(10,10,2,3,1,0,0,0,'default',NULL,NULL,1794805383615797,NULL,1794805383615797,1,1,0,0,0,0,NULL,NULL,1794805383639745,NULL,1794805383639745,1794805383639745,'exhausted','d10cdb3d64a6','{"error_class":"ValueError","message":"answered 401 for order 18","rule":"default","stack":"Traceback (most recent call last):\n  File \"/srv/shop.py\", line 13, in book\n    raise ValueError(event.payload[\"error\"])\nValueError: answered 401 for order 18","group":"d10cdb3d64a6","title":"ValueError: answered # for order # (shop.py, book)"}','[{"number":1,"started_at":"2026-11-16T05:03:03.638027Z","ended_at":"2026-11-16T05:03:03.638141Z","worker":"6a54ac1a7b6e","result":"failed","fault":{"error_class":"ValueError","message":"answered 401 for order 18","rule":"default","stack":"Traceback (most recent call last):\n  File \"/srv/shop.py\", line 13, in book\n    raise ValueError(event.payload[\"error\"])\nValueError: answered 401 for order 18"}}]',NULL,NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "redrive_deliveries" VALUES(11,11,2,3,1,0,0,0,'default',NULL,NULL,1794805383617525,NULL,1794805383617525,1,1,0,0,0,0,NULL,NULL,1794805383639745,NULL,1794805383639745,1794805383639745,'exhausted','d10cdb3d64a6','{"error_class":"ValueError","message":"answered 502 for order 19","rule":"default","stack":"Traceback (most recent call last):\n  File \"/srv/shop.py\", line 13, in book\n    raise ValueError(event.payload[\"error\"])\nValueError: answered 502 for order 19","group":"d10cdb3d64a6","title":"ValueError: answered # for order # (shop.py, book)"}','[{"number":1,"started_at":"2026-11-16T05:03:03.638143Z","ended_at":"2026-11-16T05:03:03.638270Z","worker":"6a54ac1a7b6e","result":"failed","fault":{"error_class":"ValueError","message":"answered 502 for order 19","rule":"default","stack":"Traceback (most recent call last):\n  File \"/srv/shop.py\", line 13, in book\n    raise ValueError(event.payload[\"error\"])\nValueError: answered 502 for order 19"}}]',NULL,NULL,NULL,0,NULL,NULL,NULL);
CREATE TABLE redrive_destinations (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    name     TEXT NOT NULL UNIQUE,
    document TEXT NOT NULL
, removed_at INTEGER, pruned INTEGER NOT NULL DEFAULT 0);
INSERT INTO "redrive_destinations" VALUES(1,'billing','{"name":"billing","patterns":["order.*"],"order":"none","limits":{"retry_rate":{"per_second":100.0,"burst":10.0},"replay_rate":{"per_second":100.0,"burst":10.0}},"auto_replay":null,"dead_letters":null,"fairness":{}}',NULL,0);
INSERT INTO "redrive_destinations" VALUES(2,'stock','{"name":"stock","patterns":["item.*"],"order":"none","limits":{"retry_rate":{"per_second":100.0,"burst":10.0},"replay_rate":{"per_second":100.0,"burst":10.0}},"auto_replay":null,"dead_letters":null,"fairness":{}}',NULL,0);
CREATE TABLE redrive_events (
    position     INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    type         TEXT NOT NULL,
    key          TEXT,
    destinations TEXT NOT NULL,
    document     TEXT NOT NULL
, version INTEGER);
INSERT INTO "redrive_events" VALUES(1,'01a1e2bc-c1ac-75f1-8ee1-b82ab73018ca','order.paid',NULL,'["billing"]','{"id":"01a1e2bc-c1ac-75f1-8ee1-b82ab73018ca","type":"order.paid","payload":{"number":0},"published_at":"2026-11-16T05:03:03.596326Z","occurred_at":"2026-11-16T05:03:03.596326Z","tenant":"acme"}',NULL);
INSERT INTO "redrive_events" VALUES(2,'01a1e2bc-c1b2-73d8-8b32-6315ecd02962','order.paid',NULL,'["billing"]','{"id":"01a1e2bc-c1b2-73d8-8b32-6315ecd02962","type":"order.paid","payload":{"total":0},"published_at":"2026-11-16T05:03:03.602692Z","occurred_at":"2026-11-16T05:03:03.602692Z","tenant":"acme"}',NULL);
INSERT INTO "redrive_events" VALUES(3,'01a1e2bc-c1b4-765c-943c-cd7ec14c6134','order.paid',NULL,'["billing"]','{"id":"01a1e2bc-c1b4-765c-943c-cd7ec14c6134","type":"order.paid","payload":{"number":1},"published_at":"2026-11-16T05:03:03.604756Z","occurred_at":"2026-11-16T05:03:03.604756Z","tenant":"acme"}',NULL);
INSERT INTO "redrive_events" VALUES(4,'01a1e2bc-c1b7-76bb-98e9-be87b8c3bee2','order.paid',NULL,'["billing"]','{"id":"01a1e2bc-c1b7-76bb-98e9-be87b8c3bee2","type":"order.paid","payload":{"total":1},"published_at":"2026-11-16T05:03:03.607330Z","occurred_at":"2026-11-16T05:03:03.607330Z","tenant":"acme"}',NULL);
INSERT INTO "redrive_events" VALUES(5,'01a1e2bc-c1b9-7660-b027-94b506e7e012','order.paid',NULL,'["billing"]','{"id":"01a1e2bc-c1b9-7660-b027-94b506e7e012","type":"order.paid","payload":{"number":2},"published_at":"2026-11-16T05:03:03.609856Z","occurred_at":"2026-11-16T05:03:03.609856Z","tenant":"acme"}',NULL);
INSERT INTO "redrive_events" VALUES(6,'01a1e2bc-c1ba-705c-a553-3e045f18a9fc','order.paid',NULL,'["billing"]','{"id":"01a1e2bc-c1ba-705c-a553-3e045f18a9fc","type":"order.paid","payload":{"total":2},"published_at":"2026-11-16T05:03:03.610434Z","occurred_at":"2026-11-16T05:03:03.610434Z","tenant":"acme"}',NULL);
INSERT INTO "redrive_events" VALUES(7,'01a1e2bc-c1bb-753e-b8ab-98f8f3abca35','item.sold',NULL,'["stock"]','{"id":"01a1e2bc-c1bb-753e-b8ab-98f8f3abca35","type":"item.sold","payload":{"error":"no column ''sku''"},"published_at":"2026-11-16T05:03:03.611137Z","occurred_at":"2026-11-16T05:03:03.611137Z"}',NULL);
INSERT INTO "redrive_events" VALUES(8,'01a1e2bc-c1bc-71fc-a1fd-cb91a0c14321','item.sold',NULL,'["stock"]','{"id":"01a1e2bc-c1bc-71fc-a1fd-cb91a0c14321","type":"item.sold","payload":{"error":"no column ''iban''"},"published_at":"2026-11-16T05:03:03.612519Z","occurred_at":"2026-11-16T05:03:03.612519Z"}',NULL);
INSERT INTO "redrive_events" VALUES(9,'01a1e2bc-c1be-7772-ac5c-3b21e0d7dccb','item.sold',NULL,'["stock"]','{"id":"01a1e2bc-c1be-7772-ac5c-3b21e0d7dccb","type":"item.sold","payload":{"error":"answered 502 for order 17"},"published_at":"2026-11-16T05:03:03.614120Z","occurred_at":"2026-11-16T05:03:03.614120Z"}',NULL);
INSERT INTO "redrive_events" VALUES(10,'01a1e2bc-c1bf-71b8-8abd-a0cdfe686e85','item.sold',NULL,'["stock"]','{"id":"01a1e2bc-c1bf-71b8-8abd-a0cdfe686e85","type":"item.sold","payload":{"error":"answered 401 for order 18"},"published_at":"2026-11-16T05:03:03.615523Z","occurred_at":"2026-11-16T05:03:03.615523Z"}',NULL);
INSERT INTO "redrive_events" VALUES(11,'01a1e2bc-c1c1-7008-9c2a-d4cf2a1b95e0','item.sold',NULL,'["stock"]','{"id":"01a1e2bc-c1c1-7008-9c2a-d4cf2a1b95e0","type":"item.sold","payload":{"error":"answered 502 for order 19"},"published_at":"2026-11-16T05:03:03.617071Z","occurred_at":"2026-11-16T05:03:03.617071Z"}',NULL);
CREATE TABLE redrive_exchanges (
    delivery INTEGER PRIMARY KEY,
    document TEXT NOT NULL
);
CREATE TABLE redrive_gates (
    destination INTEGER PRIMARY KEY REFERENCES redrive_destinations (id),
    document    TEXT NOT NULL
);
INSERT INTO "redrive_gates" VALUES(1,'{"rotation":{"tenant":"acme","in_a_row":6,"round":1}}');
CREATE TABLE redrive_idempotency (
    source   TEXT NOT NULL,
    key      TEXT NOT NULL,
    position INTEGER NOT NULL, since INTEGER, remains TEXT,
    PRIMARY KEY (source, key)
) WITHOUT ROWID;
CREATE TABLE redrive_idle (
    position INTEGER PRIMARY KEY,
    since    INTEGER NOT NULL
);
CREATE TABLE redrive_inbox (
    handler TEXT NOT NULL,
    source  TEXT NOT NULL,
    key     TEXT NOT NULL,
    event   TEXT NOT NULL,
    since   INTEGER,
    PRIMARY KEY (handler, source, key)
) WITHOUT ROWID;
CREATE TABLE redrive_keys (
    key     TEXT PRIMARY KEY,
    version INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE redrive_replay_items (
    replay   INTEGER NOT NULL REFERENCES redrive_replays (id),
    delivery INTEGER NOT NULL,
    token    INTEGER NOT NULL,
    PRIMARY KEY (replay, delivery)
) WITHOUT ROWID;
CREATE TABLE redrive_replays (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    state     TEXT NOT NULL,
    selected  INTEGER NOT NULL,
    sent      INTEGER NOT NULL DEFAULT 0,
    delivered INTEGER NOT NULL DEFAULT 0,
    failed    INTEGER NOT NULL DEFAULT 0,
    skipped   INTEGER NOT NULL DEFAULT 0,
    document  TEXT NOT NULL
);
CREATE TABLE redrive_schedules (
    destination INTEGER PRIMARY KEY REFERENCES redrive_destinations (id),
    since       INTEGER NOT NULL
);
CREATE TABLE redrive_schema (version INTEGER NOT NULL, oldest_code INTEGER NOT NULL);
INSERT INTO "redrive_schema" VALUES(9,7);
CREATE TABLE redrive_tenant_pauses (
    tenant      TEXT NOT NULL,
    destination INTEGER NOT NULL,
    by          TEXT NOT NULL,
    why         TEXT NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (tenant, destination)
) WITHOUT ROWID;
CREATE TABLE redrive_tenants (
    destination INTEGER NOT NULL,
    tenant      TEXT NOT NULL,
    served_at   INTEGER NOT NULL,
    round       INTEGER NOT NULL,
    processed   INTEGER NOT NULL,
    consecutive INTEGER NOT NULL,
    tokens      REAL,
    refilled_at INTEGER,
    PRIMARY KEY (destination, tenant)
) WITHOUT ROWID;
INSERT INTO "redrive_tenants" VALUES(1,'acme',1794805383623435,1,6,6,NULL,NULL);
CREATE TABLE redrive_watches (
    duty   TEXT PRIMARY KEY,
    worker TEXT NOT NULL,
    until  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE redrive_workers (
    id      TEXT PRIMARY KEY,
    seen_at INTEGER NOT NULL
, destinations TEXT, generations TEXT) WITHOUT ROWID;
CREATE INDEX redrive_suspects ON redrive_deliveries (destination, generation, priority DESC, id)
    WHERE status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes >= 2;
CREATE INDEX redrive_waiting ON redrive_deliveries (due)
    WHERE status = 0 AND is_ready = 0;
CREATE INDEX redrive_deadlines ON redrive_deliveries (deadline)
    WHERE status = 0 AND deadline IS NOT NULL;
CREATE INDEX redrive_leases ON redrive_deliveries (lease_until)
    WHERE status = 1;
CREATE INDEX redrive_finished ON redrive_deliveries (settled_at, id)
    WHERE status = 2;
CREATE INDEX redrive_dead_letters ON redrive_deliveries (settled_at, id)
    WHERE status = 3;
CREATE INDEX redrive_groups ON redrive_deliveries (group_id, settled_at, id)
    WHERE status = 3 AND resolution IS NULL;
CREATE INDEX redrive_of_event ON redrive_deliveries (position);
CREATE TRIGGER redrive_delivery_removed AFTER DELETE ON redrive_deliveries
BEGIN
    DELETE FROM redrive_exchanges WHERE delivery = old.id;
END;
CREATE INDEX redrive_running_replays ON redrive_replays (id)
    WHERE state IN ('running', 'paused');
CREATE INDEX redrive_replayed ON redrive_deliveries (replay, is_behind, destination, lane)
    WHERE replay IS NOT NULL AND status = 0;
CREATE TRIGGER redrive_count_delivered AFTER UPDATE OF status ON redrive_deliveries
WHEN new.status = 2 AND old.status < 2 AND new.replay IS NOT NULL
BEGIN
    UPDATE redrive_replays SET delivered = delivered + 1 WHERE id = new.replay;
END;
CREATE TRIGGER redrive_count_failed AFTER UPDATE OF status ON redrive_deliveries
WHEN new.status = 3 AND old.status < 2 AND new.replay IS NOT NULL
BEGIN
    UPDATE redrive_replays SET failed = failed + 1 WHERE id = new.replay;
END;
CREATE TRIGGER redrive_count_gone AFTER DELETE ON redrive_deliveries
WHEN old.status < 2 AND old.replay IS NOT NULL
BEGIN
    UPDATE redrive_replays SET failed = failed + 1 WHERE id = old.replay;
END;
CREATE INDEX redrive_idle_since ON redrive_idle (since);
CREATE INDEX redrive_remains ON redrive_idempotency (since) WHERE since IS NOT NULL;
CREATE INDEX redrive_resolved ON redrive_deliveries (resolved_at) WHERE resolved_at IS NOT NULL;
CREATE INDEX redrive_letters ON redrive_deliveries (destination, settled_at, id)
    WHERE status = 3 AND resolution IS NULL;
CREATE INDEX redrive_ready ON redrive_deliveries
    (destination, generation, kind, ifnull(tenant, ''), priority DESC, id)
    WHERE status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes < 2;
CREATE INDEX redrive_waiting_tenants ON redrive_deliveries (destination, ifnull(tenant, ''), due)
    WHERE status = 0 AND is_ready = 0;
CREATE INDEX redrive_letters_in_order ON redrive_deliveries (id) WHERE status = 3;
CREATE INDEX redrive_inbox_of_event ON redrive_inbox (event);
CREATE INDEX redrive_inbox_remains ON redrive_inbox (since) WHERE since IS NOT NULL;
CREATE INDEX redrive_lanes ON redrive_deliveries (destination, lane, id)
    WHERE lane IS NOT NULL AND resolution IS NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('redrive_destinations',2);
INSERT INTO "sqlite_sequence" VALUES('redrive_events',11);
INSERT INTO "sqlite_sequence" VALUES('redrive_deliveries',11);
INSERT INTO "sqlite_sequence" VALUES('redrive_audit',1);
COMMIT;
