"""The tables of the history, and how those of an older version become today's. Knows SQL, and nothing of chats.

A conversation is a tree of turns: a turn has a parent, replies that were written again are siblings, forks share
their beginning. A chat is a path through it and is kept as its last turn, the tip; a branch that no chat stands on
any more is still there. Panes are rows of a window, which is one program's screen.

`PRAGMA user_version` counts the migrations that were made. One is never changed after a release, only followed by
another.
"""

import sqlite3

MIGRATIONS = (
    """
    CREATE TABLE chats (
        number INTEGER PRIMARY KEY AUTOINCREMENT,  -- by which people name it
        id INTEGER NOT NULL UNIQUE,
        tree INTEGER NOT NULL,
        title TEXT NOT NULL,
        tip INTEGER REFERENCES turns(id) DEFERRABLE INITIALLY DEFERRED,  -- NULL: nothing was said yet
        num_turns INTEGER NOT NULL,
        opening TEXT NOT NULL,                     -- the beginning of its first prompt, for lists
        draft TEXT NOT NULL,
        system TEXT,
        settings TEXT NOT NULL,                    -- sampling, as JSON
        model TEXT NOT NULL,
        origin_chat INTEGER,                       -- what it was forked from, which may be gone
        origin_label TEXT,
        origin_entries INTEGER,
        origin_prompts INTEGER,
        made REAL NOT NULL,
        changed REAL NOT NULL,
        touched INTEGER NOT NULL,                  -- the order of changes, whatever the clock said
        deleted REAL                               -- when; until it is swept away it can be had back
    );
    CREATE INDEX chats_touched ON chats(touched);
    CREATE INDEX chats_tip ON chats(tip);
    CREATE INDEX chats_tree ON chats(tree);

    CREATE TABLE turns (
        id INTEGER PRIMARY KEY,
        tree INTEGER NOT NULL,
        parent INTEGER REFERENCES turns(id) DEFERRABLE INITIALLY DEFERRED,
        chat INTEGER NOT NULL,                     -- in which it was first said
        role TEXT NOT NULL,
        text TEXT NOT NULL,
        ending TEXT NOT NULL,                      -- 'open' while it is being written
        model TEXT NOT NULL,
        made REAL NOT NULL,
        indexed INTEGER NOT NULL DEFAULT 0         -- whether the full-text search knows it
    );
    CREATE INDEX turns_parent ON turns(parent);
    CREATE INDEX turns_tree ON turns(tree);
    CREATE INDEX turns_not_indexed ON turns(id) WHERE indexed = 0;

    CREATE VIEW complete_turns AS SELECT id, text FROM turns WHERE ending <> 'open';

    CREATE TABLE queued (
        chat INTEGER NOT NULL REFERENCES chats(id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (chat, position)
    );

    CREATE TABLE windows (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        owner INTEGER NOT NULL UNIQUE,             -- the program whose screen it is, or was
        process INTEGER NOT NULL,
        focused INTEGER NOT NULL,
        wanted INTEGER,
        zoomed INTEGER NOT NULL,
        touched INTEGER NOT NULL
    );
    CREATE TABLE panes (
        window INTEGER NOT NULL REFERENCES windows(id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        number INTEGER NOT NULL,
        chat INTEGER,                              -- NULL: an empty one
        PRIMARY KEY (window, position)
    );
    CREATE INDEX panes_chat ON panes(chat);
    """,
    """
    ALTER TABLE windows ADD COLUMN models TEXT NOT NULL DEFAULT '[]';  -- of two side by side, as JSON
    ALTER TABLE panes ADD COLUMN beside INTEGER NOT NULL DEFAULT 0;
    """,
)
VERSION = len(MIGRATIONS)

_FULL_TEXT = """
CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5(
    text, content = 'complete_turns', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
)
"""


class NewerSchemaError(Exception):
    """The file was written by a later program."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


def version_of(connection: sqlite3.Connection) -> int:
    """How many migrations the file has been through; 0 for one that is new."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables up to date, all of it or nothing.

    Raises:
        NewerSchemaError: they are ahead of this program.
        sqlite3.Error: they cannot be read or written.
    """
    version = version_of(connection)
    if version == VERSION:
        return
    if version > VERSION:
        raise NewerSchemaError(version)
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number in range(version_of(connection), VERSION):  # another program may have been faster
            for statement in _statements(MIGRATIONS[number]):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def add_full_text(connection: sqlite3.Connection) -> bool:
    """Make the index of all texts; false where this build of SQLite has none, or a read-only file has none yet."""
    try:
        connection.execute(_FULL_TEXT)
        connection.execute("SELECT rowid FROM texts LIMIT 1")
    except sqlite3.OperationalError as error:
        if "no such module" in str(error) or error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY:
            return False
        raise
    return True


def _statements(script: str) -> list[str]:
    """One by one: sqlite3's own way with scripts would end the transaction first."""
    found, statement = [], ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            found.append(statement.strip())
            statement = ""
    return found
