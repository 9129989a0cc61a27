-- Format 1. Tables named `…_rows` are what is written and read: JSON with a checksum. The views beside them say the same
-- in columns, for people. They are views and no computed columns, since those are computed at every write.
-- Templates are named by their digest in other rows' JSON. Times are nanoseconds since 1970, UTC.

CREATE TABLE meta_rows (id TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL, checksum TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE template_rows (id TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL, checksum TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE desired_rows (id TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL, checksum TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE group_rows (id TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL, checksum TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE node_rows (id TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL, checksum TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE cluster_row (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    sequence INTEGER NOT NULL,
    observed_generation INTEGER NOT NULL,
    acted_generation INTEGER NOT NULL,
    next_attempt_id INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    now INTEGER NOT NULL,
    paused INTEGER NOT NULL,
    brake TEXT NOT NULL,
    digest TEXT NOT NULL,
    checksum TEXT NOT NULL
) STRICT;

CREATE TABLE event_rows (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    node TEXT,
    attempt INTEGER,
    code TEXT NOT NULL,
    operation INTEGER,
    body TEXT NOT NULL,
    checksum TEXT NOT NULL
) STRICT;

CREATE VIEW meta AS
SELECT id, CASE id WHEN 'secret' THEN '(secret)' ELSE body END AS value FROM meta_rows;

CREATE VIEW cluster AS
SELECT
    strftime('%Y-%m-%dT%H:%M:%fZ', now / 1e9, 'unixepoch') AS now,
    sequence, observed_generation, acted_generation, next_attempt_id, last_event, paused, brake
FROM cluster_row;

CREATE VIEW desired AS
SELECT
    body ->> '$.shape.generation' AS generation,
    body ->> '$.source.name' AS file,
    body ->> '$.source.text' AS source,
    body ->> '$.shape' AS shape,
    body ->> '$.retry' AS retry
FROM desired_rows;

CREATE VIEW templates AS
SELECT
    id,
    body ->> '$.group_id' AS group_id,
    body ->> '$.provider' AS provider,
    body ->> '$.shape.image' AS image,
    body
FROM template_rows;

CREATE VIEW groups AS
SELECT
    id,
    body ->> '$.canary.node' AS canary,
    body ->> '$.proven' AS proven,
    body ->> '$.brake' AS brake
FROM group_rows;

CREATE VIEW nodes AS
SELECT
    id,
    body ->> '$.group' AS group_id,
    body ->> '$.index' AS slot_index,
    body ->> '$.attempt' AS attempt,
    body ->> '$.intent' AS intent,
    body ->> '$.stage' AS stage,
    body ->> '$.intent' = 'active' AND body ->> '$.stage' IN ('handed_off', 'dormant')
        AND body ->> '$.silence' IS NULL AS ready,
    body ->> '$.lease.provider' AS provider,
    body ->> '$.lease.lease_id' AS lease_id,
    body ->> '$.pending.kind' AS pending,
    coalesce(body ->> '$.retry.consecutive_failures', 0) AS failures,
    body ->> '$.retry.last_error' AS last_error,
    body ->> '$.template' AS template,
    body
FROM node_rows;

CREATE VIEW events AS
SELECT seq, strftime('%Y-%m-%dT%H:%M:%fZ', at / 1e9, 'unixepoch') AS time, node, attempt, code, operation, body
FROM event_rows;

CREATE VIEW operations AS
SELECT
    attempt,
    operation AS sequence,
    min(node) AS node,
    min(CASE code WHEN 'dispatched' THEN body ->> '$.dispatched.effect' END) AS kind,
    min(CASE code WHEN 'dispatched' THEN at END) AS dispatched_at,
    min(CASE code WHEN 'expired' THEN at END) AS expired_at,
    min(CASE WHEN code IN ('succeeded', 'effect_failed') THEN at END) AS ended_at,
    min(CASE code WHEN 'succeeded' THEN 'succeeded' WHEN 'effect_failed' THEN 'failed' END) AS outcome,
    min(CASE code WHEN 'effect_failed' THEN body ->> '$.effect_failed.error' END) AS error,
    min(CASE code WHEN 'dispatched' THEN seq END) AS seq
FROM event_rows
WHERE operation IS NOT NULL
GROUP BY attempt, operation
HAVING count(CASE code WHEN 'dispatched' THEN 1 END) > 0;
