"""The archive's schema, oldest step first. A released step is never edited, renamed or removed.

Rules that every step keeps: tables are STRICT; `tenant` is a column of every table and the first of every index; rows
of the archive as a whole (its secret, its embedding model) have tenant ''; long columns stand last, so that a filter
need not read past them. The one table that no step makes is `vectors`: its width is the embedding model's, so
`create_vectors` makes it when the first vector arrives.
"""

from sqlite_utils import Migrations
from sqlite_utils.db import Database

migrations = Migrations("lantern.archive")

APPLICATION_ID = 0x4C4E5452
"""Stands in the file's header ("LNTR"), so that another program's database is never taken for an archive."""


def create_vectors(db: Database, dim: int) -> None:
    """The vec0 table for vectors of `dim` floats. Its primary key is the passage's id.

    Chunks are small because each tenant fills its own: 128 vectors of 384 floats are 196 KB, the default 1,024 1.6 MB.
    """
    db.execute(
        "CREATE VIRTUAL TABLE vectors USING vec0("
        "passage_id integer primary key, tenant text partition key, session text, unit text, "
        f"embedding float[{int(dim)}] distance_metric=cosine, chunk_size=128)"
    )


@migrations()
def m001_archive(db: Database) -> None:
    for statement in _M001:
        db.execute(statement)


_M001 = (
    """CREATE TABLE settings (
        tenant TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (tenant, name)) STRICT""",
    """CREATE TABLE sessions (
        tenant TEXT NOT NULL, id TEXT NOT NULL, project TEXT NOT NULL, api TEXT NOT NULL, family TEXT NOT NULL,
        parent TEXT NOT NULL, title TEXT NOT NULL, created_at REAL NOT NULL, last_seen_at REAL NOT NULL, system TEXT
        NOT NULL, tools TEXT NOT NULL, PRIMARY KEY (tenant, id)) STRICT""",
    "CREATE INDEX sessions_by_time ON sessions (tenant, last_seen_at)",
    # What the session shows now: message keys, one a line.
    """CREATE TABLE heads (
        tenant TEXT NOT NULL, session TEXT NOT NULL, keys TEXT NOT NULL, PRIMARY KEY (tenant, session), FOREIGN KEY
        (tenant, session) REFERENCES sessions (tenant, id) ON DELETE CASCADE) STRICT""",
    # `raw` is the message's JSON, byte for byte; `text` what a person reads of it; `items` the rest of its items.
    """CREATE TABLE messages (
        id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, session TEXT NOT NULL, key TEXT NOT NULL,
        position INTEGER NOT NULL, turn INTEGER NOT NULL, role TEXT NOT NULL, side INTEGER NOT NULL,
        partial INTEGER NOT NULL, created_at REAL NOT NULL, print BLOB NOT NULL, text TEXT NOT NULL,
        items TEXT NOT NULL, raw TEXT NOT NULL,
        FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, id) ON DELETE CASCADE) STRICT""",
    "CREATE UNIQUE INDEX messages_by_key ON messages (tenant, key, session)",
    "CREATE INDEX messages_by_position ON messages (tenant, session, position)",
    # Ids that the upstream minted, and the sessions they name.
    """CREATE TABLE ids (
        tenant TEXT NOT NULL, value TEXT NOT NULL, session TEXT NOT NULL, PRIMARY KEY (tenant, value, session),
        FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, id) ON DELETE CASCADE) STRICT, WITHOUT ROWID""",
    "CREATE INDEX ids_by_session ON ids (tenant, session)",
    # AUTOINCREMENT: an id is never used again, so a block, an open index or a vector never means another passage.
    """CREATE TABLE passages (
        id INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, project TEXT NOT NULL, session TEXT NOT NULL,
        message TEXT NOT NULL, position INTEGER NOT NULL, part INTEGER NOT NULL, turn INTEGER NOT NULL,
        speaker TEXT NOT NULL, unit TEXT NOT NULL, kind TEXT NOT NULL, created_at REAL NOT NULL,
        confidence REAL NOT NULL, success REAL NOT NULL, accesses INTEGER NOT NULL, accessed_at REAL NOT NULL,
        hash BLOB NOT NULL, embedded INTEGER NOT NULL DEFAULT 0, tags TEXT NOT NULL, tools TEXT NOT NULL,
        text TEXT NOT NULL, terms TEXT NOT NULL,
        FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, id) ON DELETE CASCADE) STRICT""",
    "CREATE UNIQUE INDEX passages_by_hash ON passages (tenant, session, unit, hash)",
    # Each of these ends, as every index, with the id, so that a scope is read in order of id without a sort.
    "CREATE INDEX passages_by_session ON passages (tenant, session, unit)",
    "CREATE INDEX passages_by_project ON passages (tenant, project, unit)",
    "CREATE INDEX passages_by_unit ON passages (tenant, unit)",
    "CREATE INDEX passages_by_turn ON passages (tenant, session, turn) WHERE unit = 'turn'",
    "CREATE INDEX passages_pending ON passages (tenant, unit) WHERE embedded = 0",
    """CREATE VIRTUAL TABLE passages_fts USING fts5(
        text, content='passages', content_rowid='id', tokenize='porter unicode61')""",
    """CREATE TRIGGER passages_added AFTER INSERT ON passages BEGIN
        INSERT INTO passages_fts (rowid, text) VALUES (new.id, new.text); END""",
    """CREATE TRIGGER passages_removed AFTER DELETE ON passages BEGIN
        INSERT INTO passages_fts (passages_fts, rowid, text) VALUES ('delete', old.id, old.text); END""",
    """CREATE TABLE requests (
        tenant TEXT NOT NULL, id TEXT NOT NULL, session TEXT NOT NULL, at REAL NOT NULL, api TEXT NOT NULL, path
        TEXT NOT NULL, model TEXT NOT NULL, event TEXT NOT NULL, status INTEGER NOT NULL, query TEXT NOT NULL,
        restored INTEGER NOT NULL, chars INTEGER NOT NULL, ms REAL NOT NULL, degraded TEXT NOT NULL, gone INTEGER
        NOT NULL, error TEXT NOT NULL, PRIMARY KEY (tenant, id), FOREIGN KEY (tenant, session) REFERENCES sessions
        (tenant, id) ON DELETE CASCADE) STRICT""",
    "CREATE INDEX requests_by_session ON requests (tenant, session, at)",
    "CREATE INDEX requests_by_time ON requests (tenant, at)",
    # The ledger: the exact text that rides inside its anchor message until that message is gone.
    """CREATE TABLE blocks (
        id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, session TEXT NOT NULL, request TEXT NOT NULL, anchor TEXT NOT
        NULL, chain TEXT NOT NULL, place TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, considered INTEGER
        NOT NULL, ms REAL NOT NULL, degraded TEXT NOT NULL, created_at REAL NOT NULL, FOREIGN KEY (tenant, session)
        REFERENCES sessions (tenant, id) ON DELETE CASCADE) STRICT""",
    "CREATE UNIQUE INDEX blocks_once ON blocks (tenant, session, request, kind, anchor, chain)",
    "CREATE UNIQUE INDEX blocks_by_id ON blocks (tenant, id)",
    "CREATE INDEX blocks_by_request ON blocks (tenant, request)",
    # `passage` points at a passage that may be pruned by now: `origin` (JSON) and `text` say then what it was.
    """CREATE TABLE placed (
        tenant TEXT NOT NULL, block INTEGER NOT NULL, slot INTEGER NOT NULL, passage INTEGER NOT NULL, origin TEXT
        NOT NULL, text TEXT NOT NULL, rank INTEGER NOT NULL, score REAL NOT NULL, signals TEXT NOT NULL, used
        INTEGER, verdict TEXT NOT NULL DEFAULT '', PRIMARY KEY (tenant, block, slot), FOREIGN KEY (tenant, block)
        REFERENCES blocks (tenant, id) ON DELETE CASCADE) STRICT""",
    "CREATE INDEX placed_by_passage ON placed (tenant, passage)",
    f"PRAGMA application_id = {APPLICATION_ID}",
)


@migrations()
def m002_feedback(db: Database) -> None:
    for statement in _M002_FEEDBACK:
        db.execute(statement)


_M002_FEEDBACK = (
    # What a person said of a text. `hash` is passages.hash: that of the text as it was first archived.
    """CREATE TABLE marks (
        tenant TEXT NOT NULL, project TEXT NOT NULL, hash BLOB NOT NULL, passage INTEGER NOT NULL, verdict TEXT NOT
        NULL, pinned INTEGER NOT NULL, changed_at REAL NOT NULL, PRIMARY KEY (tenant, project, hash)) STRICT""",
    "CREATE INDEX marks_by_time ON marks (tenant, changed_at)",
    """CREATE TABLE edits (
        id INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, project TEXT NOT NULL, session TEXT NOT NULL,
        hash BLOB NOT NULL, passage INTEGER NOT NULL, at REAL NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL,
        FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, id) ON DELETE CASCADE) STRICT""",
    "CREATE INDEX edits_by_number ON edits (tenant, id)",
    "CREATE INDEX edits_by_passage ON edits (tenant, passage)",
    "CREATE INDEX edits_by_hash ON edits (tenant, project, hash)",
    "CREATE INDEX edits_by_session ON edits (tenant, session)",
    """CREATE TRIGGER passages_edited AFTER UPDATE OF text ON passages BEGIN
        INSERT INTO passages_fts (passages_fts, rowid, text) VALUES ('delete', old.id, old.text);
        INSERT INTO passages_fts (rowid, text) VALUES (new.id, new.text); END""",
    # What is removed leaves nothing behind: neither its earlier wording, nor the marks of a tenant that is gone.
    """CREATE TRIGGER edits_removed AFTER DELETE ON passages BEGIN
        DELETE FROM edits WHERE tenant = old.tenant AND passage = old.id; END""",
    """CREATE TRIGGER marks_removed AFTER DELETE ON sessions
        WHEN NOT EXISTS (SELECT 1 FROM sessions WHERE tenant = old.tenant) BEGIN
        DELETE FROM marks WHERE tenant = old.tenant; END""",
)


@migrations()
def m003_sizes(db: Database) -> None:
    for statement in _M003_SIZES:
        db.execute(statement)


_M003_SIZES = (
    # Bytes of the client's request, and of the messages that it lost: a compaction is a cliff in the first.
    "ALTER TABLE requests ADD COLUMN size INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE requests ADD COLUMN lost INTEGER NOT NULL DEFAULT 0",
    # These hold all that sums and timelines need, which then need not read past `query`.
    """CREATE INDEX requests_summed ON requests (
        tenant, at, event, session, restored, chars, ms, size, lost, degraded)""",
    "CREATE INDEX requests_told ON requests (tenant, session, at, event, size, chars)",
    """CREATE INDEX requests_lost ON requests (tenant, at, session, lost)
        WHERE event IN ('compacted', 'window', 'cleared')""",
)


@migrations()
def m004_forgotten(db: Database) -> None:
    # Keyed hashes of what was forgotten, or is not to be kept: it stays out when a client sends it again.
    db.execute(
        "CREATE TABLE forgotten (tenant TEXT NOT NULL, mark BLOB NOT NULL, PRIMARY KEY (tenant, mark)) "
        "STRICT, WITHOUT ROWID"
    )


@migrations()
def m005_uncut(db: Database) -> None:
    for statement in _M005_UNCUT:
        db.execute(statement)


_M005_UNCUT = (
    # Messages whose passages are still to be made: a turn is on disk before it is cut and indexed.
    """CREATE TABLE uncut (
        tenant TEXT NOT NULL, project TEXT NOT NULL, session TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (tenant,
        session, key), FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, id) ON DELETE CASCADE)
        STRICT, WITHOUT ROWID""",
)


@migrations()
def m006_tokens(db: Database) -> None:
    for statement in _M006_TOKENS:
        db.execute(statement)


_M006_TOKENS = (
    # Token vectors of a passage, int8, one after the other; `recipe` is the model and the projection that made them.
    """CREATE TABLE tokens (
        passage INTEGER PRIMARY KEY, tenant TEXT NOT NULL, recipe TEXT NOT NULL, vectors BLOB NOT NULL) STRICT""",
    """CREATE TRIGGER tokens_removed AFTER DELETE ON passages BEGIN
        DELETE FROM tokens WHERE passage = old.id; END""",
    """CREATE TRIGGER tokens_edited AFTER UPDATE OF text ON passages BEGIN
        DELETE FROM tokens WHERE passage = old.id; END""",
)


@migrations()
def m007_passed(db: Database) -> None:
    # What a restore left out, JSON: numbers of passages, reasons and scores, and none of their words.
    db.execute("ALTER TABLE requests ADD COLUMN passed TEXT NOT NULL DEFAULT '[]'")


@migrations()
def m008_lean(db: Database) -> None:
    for statement in _M008_LEAN:
        db.execute(statement)


_M008_LEAN = (
    # A statement that fires a trigger can be undone by itself, and before each of those FTS5 writes out all that it
    # holds in memory. Who adds a passage adds its words, too.
    "DROP TRIGGER passages_added",
    # requests_summed and requests_told begin with the same columns.
    "DROP INDEX requests_by_time",
    "DROP INDEX requests_by_session",
)


@migrations()
def m009_heads(db: Database) -> None:
    # Messages that their client shows otherwise than they were filed, JSON: key -> fingerprints of the items as shown
    # (NULL: not noted yet), keys of those that it took back, one a line, and whether some of the session was lost.
    db.execute("ALTER TABLE heads ADD COLUMN altered TEXT")
    db.execute("ALTER TABLE heads ADD COLUMN abandoned TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE heads ADD COLUMN lost INTEGER NOT NULL DEFAULT 0")


@migrations()
def m010_words(db: Database) -> None:
    for statement in _M010_WORDS:
        db.execute(statement)


_M010_WORDS = (
    # While the full-text index is made anew it lacks passages, and FTS5 takes the file for damaged when one goes that
    # it does not have.
    "DROP TRIGGER passages_removed",
    """CREATE TRIGGER passages_removed AFTER DELETE ON passages
        WHEN old.id IN (SELECT id FROM passages_fts_docsize) BEGIN
        INSERT INTO passages_fts (passages_fts, rowid, text) VALUES ('delete', old.id, old.text); END""",
    "DROP TRIGGER passages_edited",
    """CREATE TRIGGER passages_edited AFTER UPDATE OF text ON passages BEGIN
        INSERT INTO passages_fts (passages_fts, rowid, text)
            SELECT 'delete', old.id, old.text WHERE old.id IN (SELECT id FROM passages_fts_docsize);
        INSERT INTO passages_fts (rowid, text) VALUES (new.id, new.text); END""",
)


@migrations()
def m011_anchors(db: Database) -> None:
    # The message that a block rides in, by its key: others may say the same.
    db.execute("ALTER TABLE blocks ADD COLUMN message TEXT NOT NULL DEFAULT ''")


@migrations()
def m012_persons(db: Database) -> None:
    # Whom a session's client named, as a fingerprint: what another named person said is not theirs.
    db.execute("ALTER TABLE heads ADD COLUMN person TEXT NOT NULL DEFAULT ''")


@migrations()
def m013_uncut(db: Database) -> None:
    for statement in _M013_UNCUT:
        db.execute(statement)


_M013_UNCUT = (
    # The key's columns come first: else SQLite 3.40 takes `project` for NULL when it checks the file, and the file for
    # damaged.
    "ALTER TABLE uncut RENAME TO uncut_before",
    """CREATE TABLE uncut (
        tenant TEXT NOT NULL, session TEXT NOT NULL, key TEXT NOT NULL, project TEXT NOT NULL, PRIMARY KEY (tenant,
        session, key), FOREIGN KEY (tenant, session) REFERENCES sessions (tenant, id) ON DELETE CASCADE)
        STRICT, WITHOUT ROWID""",
    "INSERT INTO uncut (tenant, session, key, project) SELECT tenant, session, key, project FROM uncut_before",
    "DROP TABLE uncut_before",
)


@migrations()
def m014_prints(db: Database) -> None:
    # Which sessions hold a message that says just this?
    db.execute("CREATE INDEX messages_by_print ON messages (tenant, print, session)")


@migrations()
def m015_branches(db: Database) -> None:
    # Where in its session a stored answer stands: the ids of the answer that ends with a message, one a line. And the
    # branches to which a client may return, JSON: each a head, of which `shared` keys are the first of `keys`.
    db.execute("ALTER TABLE messages ADD COLUMN names TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE heads ADD COLUMN forks TEXT NOT NULL DEFAULT '[]'")


@migrations()
def m016_repeats(db: Database) -> None:
    # The last message that repeats the passage: it is cut again when the passage goes with the first one.
    db.execute("ALTER TABLE passages ADD COLUMN repeated TEXT NOT NULL DEFAULT ''")


@migrations()
def m017_names(db: Database) -> None:
    # Names that clients gave their sessions in UTF-8 were read as Latin-1.
    for table, column in (("sessions", "family"), ("ids", "value")):
        names = db.execute(f"SELECT DISTINCT {column} FROM {table} WHERE {column} GLOB '*[^ -~]*'").fetchall()
        for (name,) in names:
            try:
                typed = name.encode("latin-1").decode()
            except UnicodeError:
                continue
            db.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {column} = ?", (typed, name))
