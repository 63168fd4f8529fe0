package store

// applicationID marks the database as Cubby's: "Cubb" in the header's field for
// it, so that another program's is never taken for ours.
const applicationID = 0x43756262

// migrations bring the schema from version i to i+1, in order. The version is
// the header's user_version. What was released never changes: append.
var migrations = []string{
	`CREATE TABLE teams (
		id         TEXT PRIMARY KEY,
		name       TEXT NOT NULL UNIQUE,
		created_at INTEGER NOT NULL
	) STRICT;

	CREATE TABLE keys (
		id           TEXT PRIMARY KEY,
		team_id      TEXT NOT NULL REFERENCES teams (id),
		name         TEXT NOT NULL,
		hash         BLOB NOT NULL UNIQUE CHECK (length(hash) = 32), -- SHA-256 of the secret
		mask         TEXT NOT NULL,
		created_at   INTEGER NOT NULL,
		last_used_at INTEGER,
		revoked_at   INTEGER
	) STRICT;

	CREATE TABLE sandboxes (
		id          TEXT PRIMARY KEY,
		team_id     TEXT NOT NULL REFERENCES teams (id),
		template_id TEXT NOT NULL,
		metadata    TEXT NOT NULL, -- a JSON object of strings
		cpus        REAL NOT NULL,
		memory_mb   INTEGER NOT NULL,
		disk_mb     INTEGER NOT NULL,
		started_at  INTEGER NOT NULL,
		end_at      INTEGER NOT NULL,
		ended_at    INTEGER,       -- NULL: it lives
		end_reason  TEXT,
		CHECK ((ended_at IS NULL) = (end_reason IS NULL))
	) STRICT;

	CREATE INDEX sandboxes_live ON sandboxes (started_at) WHERE ended_at IS NULL;
	CREATE INDEX sandboxes_ended ON sandboxes (ended_at) WHERE ended_at IS NOT NULL;`,
}
