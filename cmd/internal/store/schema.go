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
	// A sandbox is a record and a state, with all that another process needs to go
	// on with it. What ended before knows no more than it did; what was left by a
	// server that was killed is ended by the next one.
	`CREATE TABLE sandboxes_2 (
		id              TEXT PRIMARY KEY,
		public_id       TEXT NOT NULL,
		generation      INTEGER NOT NULL,
		team_id         TEXT NOT NULL REFERENCES teams (id),
		template_id     TEXT NOT NULL,
		template_digest TEXT NOT NULL,
		engine          TEXT NOT NULL,
		engine_build    TEXT NOT NULL,
		state           TEXT NOT NULL,
		cpus            REAL NOT NULL,
		memory_mb       INTEGER NOT NULL,
		disk_mb         INTEGER NOT NULL,
		pids            INTEGER NOT NULL,
		memories        INTEGER NOT NULL, -- how many memories it has had, and
		files           INTEGER NOT NULL, -- how many states of its files
		metadata        TEXT NOT NULL,    -- a JSON object of strings
		settings        TEXT NOT NULL,    -- a JSON object of what is never looked for
		sealed          BLOB,             -- what is secret, encrypted; NULL: nothing
		started_at      INTEGER NOT NULL,
		end_at          INTEGER NOT NULL,
		paused_at       INTEGER,          -- NULL: never
		ended_at        INTEGER,          -- NULL: it lives, or is paused
		end_reason      TEXT,
		CHECK ((ended_at IS NULL) = (end_reason IS NULL)),
		CHECK ((ended_at IS NULL) = (state <> 'ended')),
		CHECK (ended_at IS NULL OR sealed IS NULL)
	) STRICT;

	INSERT INTO sandboxes_2 SELECT id, '', 1, team_id, template_id, '', '', '', iif(ended_at IS NULL, 'running', 'ended'),
		cpus, memory_mb, disk_mb, 0, 1, 1, metadata, '{}', NULL, started_at, end_at, NULL, ended_at, end_reason FROM sandboxes;
	DROP TABLE sandboxes;
	ALTER TABLE sandboxes_2 RENAME TO sandboxes;

	CREATE INDEX sandboxes_live ON sandboxes (started_at) WHERE ended_at IS NULL;
	CREATE INDEX sandboxes_ended ON sandboxes (ended_at) WHERE ended_at IS NOT NULL;

	CREATE TABLE secret_key (
		one         INTEGER PRIMARY KEY CHECK (one = 1),
		fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32) -- of the key in the file beside
	) STRICT;`,
	// What rules of sandboxes' networks refer to.
	`CREATE TABLE secrets (
		id         TEXT PRIMARY KEY,
		team_id    TEXT NOT NULL REFERENCES teams (id),
		name       TEXT NOT NULL,
		version    INTEGER NOT NULL, -- of the value: 1, and one more for each that replaced it
		metadata   TEXT NOT NULL,    -- a JSON object of strings
		sealed     BLOB NOT NULL,    -- the value, encrypted
		created_at INTEGER NOT NULL,
		updated_at INTEGER NOT NULL,
		UNIQUE (team_id, name)
	) STRICT;

	CREATE TABLE secrets_key (
		one         INTEGER PRIMARY KEY CHECK (one = 1),
		fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32) -- of the key that values are sealed with
	) STRICT;`,
	// What sandboxes are made of, beside the machine's own tools: snapshots.
	`CREATE TABLE templates (
		id         TEXT PRIMARY KEY,
		team_id    TEXT NOT NULL REFERENCES teams (id),
		sandbox_id TEXT NOT NULL,    -- that it is a snapshot of
		files_only INTEGER NOT NULL, -- 1: it has no memory
		bytes      INTEGER NOT NULL, -- on disk
		settings   TEXT NOT NULL,    -- a JSON object of what is never looked for
		sealed     BLOB,             -- what is secret, encrypted; NULL: nothing
		created_at INTEGER NOT NULL
	) STRICT;

	CREATE INDEX templates_of_teams ON templates (team_id, created_at);

	CREATE TABLE template_names (
		team_id     TEXT NOT NULL REFERENCES teams (id),
		name        TEXT NOT NULL, -- with its tag
		template_id TEXT NOT NULL REFERENCES templates (id),
		PRIMARY KEY (team_id, name)
	) STRICT;`,
}
