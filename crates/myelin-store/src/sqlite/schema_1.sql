-- Format 1. Rows hold JSON with a checksum; the columns after those are computed from the JSON for people, and nothing
-- reads them. Templates are named by digest in the other tables' JSON. Times are nanoseconds since 1970, UTC.

CREATE TABLE meta (
    id TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL,
    checksum TEXT NOT NULL
) STRICT;

CREATE TABLE cluster (
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
    checksum TEXT NOT NULL,
    time TEXT AS (strftime('%Y-%m-%dT%H:%M:%fZ', now / 1e9, 'unixepoch'))
) STRICT;

CREATE TABLE desired (
    id TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL,
    checksum TEXT NOT NULL,
    generation ANY AS (body ->> '$.shape.generation'),
    file ANY AS (body ->> '$.source.name'),
    source ANY AS (body ->> '$.source.text')
) STRICT;

CREATE TABLE templates (
    id TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL,
    checksum TEXT NOT NULL,
    provider ANY AS (body ->> '$.provider'),
    image ANY AS (body ->> '$.shape.image')
) STRICT;

CREATE TABLE groups (
    id TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL,
    checksum TEXT NOT NULL,
    canary ANY AS (body ->> '$.canary.node')
) STRICT;

CREATE TABLE nodes (
    id TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL,
    checksum TEXT NOT NULL,
    group_id ANY AS (body ->> '$.group'),
    slot_index ANY AS (body ->> '$.index'),
    attempt ANY AS (body ->> '$.attempt'),
    intent ANY AS (body ->> '$.intent'),
    stage ANY AS (body ->> '$.stage'),
    ready ANY AS (
        body ->> '$.intent' = 'active' AND body ->> '$.stage' IN ('handed_off', 'dormant')
        AND body ->> '$.silence' IS NULL
    ),
    provider ANY AS (body ->> '$.lease.provider'),
    lease_id ANY AS (body ->> '$.lease.lease_id'),
    pending ANY AS (body ->> '$.pending.kind'),
    failures ANY AS (coalesce(body ->> '$.retry.consecutive_failures', 0)),
    last_error ANY AS (body ->> '$.retry.last_error'),
    template ANY AS (body ->> '$.template')
) STRICT;

CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    node TEXT,
    attempt INTEGER,
    code TEXT NOT NULL,
    operation INTEGER,
    body TEXT NOT NULL,
    checksum TEXT NOT NULL,
    time TEXT AS (strftime('%Y-%m-%dT%H:%M:%fZ', at / 1e9, 'unixepoch'))
) STRICT;

CREATE INDEX events_by_node ON events (node, seq);

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
FROM events
WHERE operation IS NOT NULL
GROUP BY attempt, operation
HAVING count(CASE code WHEN 'dispatched' THEN 1 END) > 0;
