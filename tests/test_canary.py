"""Tenants are apart: a fuzz with a secret in every message, and every query looked at by SQLite itself."""

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest
from canary import CANARY, play
from msgspec.structs import replace
from sqlite_utils import utils
from test_archive import MINE, OTHER, block, filed, passage, passed_over, record

from lantern_proxy import chunk
from lantern_proxy.archive import Archive, ArchiveError, ForgetRule, PruneRule, full_text
from lantern_proxy.archive.retention import retain
from lantern_proxy.archive.transfer import import_rows
from lantern_proxy.config import PrivacyConfig
from lantern_proxy.turn import Placed

PACKAGE = Path(chunk.__file__).parent


@pytest.mark.parametrize(
    ("scope", "requests", "tenants", "vectors"),
    [("session", 200, 10, True), ("project", 200, 10, False), ("tenant", 600, 30, True)],
)
def test_no_secret_of_one_tenant_is_ever_shown_to_another_and_no_turn_is_lost(
    tmp_path, scope, requests, tenants, vectors
):
    given = {"requests": requests, "tenants": tenants, "vectors": vectors}
    played = play(tmp_path, **given, seed=sum(scope.encode()), scope=scope)
    assert played.leaks == []
    assert played.lost == []
    assert played.failed == []
    assert played.restored > 20
    assert {"new", "turn", "compacted", "window", "side"} <= set(played.events)
    asked = {"overview", "sessions", "requests", "marks", "search", "passages", "why", "pin", "edit", "events"}
    assert asked <= set(played.looks)
    assert played.looks["asked again"] <= 1 + sum(played.looks.values()) // 500  # an idle connection that was closed


def test_the_fuzz_sees_a_leak(tmp_path, monkeypatch):
    """Everybody a single tenant: the fuzz must cry."""
    monkeypatch.setattr(Archive, "tenant_of", lambda self, credential: "t_all")
    played = play(tmp_path, requests=150, tenants=6, seed=3)
    assert played.leaks
    assert CANARY.search(played.leaks[0])


# every statement

WHOLE = {
    "_TENANTS", "_PENDING_TENANTS", "_FTS_ROWS", "_SCOPES",
    "_ARE_UNWIPED",  # names of tenants, of whom something was removed
    "_LEFT",  # what a killed process left uncut, each with its own tenant, which it is filed for
    "SELECT count(*) FROM passages WHERE embedded = 0",
    "UPDATE passages SET embedded = 0 WHERE embedded = 1",
    "_REMOVE_TOKENS", "SELECT passage FROM tokens",
    "SELECT count(*) FROM messages", "_NEWEST",  # how many, and the largest numbers of rows: nothing of what they hold
    "_NEWEST_IS_THERE", "_LACKING", "_ADD",  # the full-text index, of all tenants together
    "_EACH", "_ANALYSED",  # tags and terms of every passage, made anew from its own text
    "SELECT CASE WHEN messages.created_at > 0 THEN messages.created_at ELSE (SELECT s.created_at FROM sessions s "
    "WHERE s.tenant = messages.tenant AND s.id = messages.session) END AS at "
    "FROM messages ORDER BY at LIMIT 1 OFFSET ?",
    # vectors of passages that were chosen with their tenant bound, by number; and those that no passage is left of
    "_ORPHANS", "_EMBEDDINGS",
    # names of sessions that were read in the wrong encoding, each put right where it stands
    "SELECT DISTINCT family FROM sessions WHERE family GLOB '*[^ -~]*'",
    "SELECT DISTINCT value FROM ids WHERE value GLOB '*[^ -~]*'",
    # words of passages that were filed just now, each with its tenant
    "_NEW_WORDS",
    "UPDATE vectors SET embedding = ? WHERE passage_id = ?",
    "DELETE FROM vectors WHERE passage_id = ?",
}  # fmt: skip
"""Of the archive as a whole, by design: lists of tenants, counts, checks, re-embedding, retention. Text is in _LEFT."""
WHOLE_FILES = {
    "archive/backup.py": "copies a whole file, in which each row keeps its tenant; nobody is shown any of it",
    "migrations/archive.py": "makes the tables, before any tenant is asked for",
}
"""Modules whose statements are not walked, and why."""
NO_TEXT = {"tenant", "id", "created_at", "last_seen_at", "embedded", "session", "unit", "rowid", "", "passage_id"}


BOUND = re.compile(r"tenant\s*=\s*(\?|:tenant)|^INSERT [^(]*\(tenant,")
"""A tenant that is given with the statement; one compared with another row's is none."""


class Watch:
    """Every statement that runs, and the columns that it reads, as SQLite's authorizer tells them."""

    def __init__(self) -> None:
        self.seen: dict[str, set[tuple[str, str]]] = {}
        self.reads: set[tuple[str, str]] = set()
        self.ran: set[str] = set()

    def authorize(self, action, first, second, database, trigger):
        if action == 20 and trigger is None:  # SQLITE_READ: table, column
            self.reads.add((first, second))
        return 0


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """An archive whose connections tell each statement with the columns it reads."""
    watch = Watch()
    module = utils.__dict__["sqlite3"]

    class Connection(module.Connection):
        def _watching(self, run, sql, *rest):
            watch.reads = set()
            watch.ran.add(" ".join(sql.split()))
            self.set_authorizer(watch.authorize)
            done = run(sql, *rest)
            if watch.reads:
                watch.seen.setdefault(" ".join(sql.split()), set()).update(watch.reads)
            return done

        def execute(self, sql, *rest):
            return self._watching(super().execute, sql, *rest)

        def executemany(self, sql, *rest):
            return self._watching(super().executemany, sql, *rest)

    true, own = module.connect, {"factory": Connection, "cached_statements": 0}
    monkeypatch.setattr(module, "connect", lambda *given, **more: true(*given, **(more | own)))
    with Archive(tmp_path / "lantern.db") as archive:
        yield archive, watch


def exercise(archive: Archive) -> None:
    """Every function of the archive that has SQL."""
    kept = [p for (p,) in archive.write([record(n, f"text {n}") for n in range(4)])]
    archive.write([record(0, "text 0"), record(9, "theirs", tenant=OTHER)])
    mine = archive.of(MINE)
    _write(archive, kept)
    _embed(archive, mine, kept)
    rows = [json.loads(json.dumps(row)) for row in mine.export()]
    _read(mine, kept[0].id)
    _judge(mine, kept)
    _read(mine, kept[3].id)
    _whole(archive)
    import_rows(archive, "t_third", rows, now=1.0)
    _remove(archive, mine)
    [(last,)] = archive.write([record(40, "embedded at last", session="s40")])
    vectors = [(MINE, "s40", last.id, np.ones(4, np.float32))]
    archive.add_vectors("m", 4, vectors, recipe="r", tokens=[(MINE, last.id, np.ones((1, 4), np.int8))])
    archive.drop_vectors()


def _write(archive: Archive, kept: list) -> None:
    """Blocks, a turn's summary twice, what is not kept, what is cut later."""
    placed = [Placed(passage=kept[0], text="x", rank=1, score=1.0, signals={})]
    summary = passage(6, "a summary", unit="turn")
    archive.write([record(5, blocks=(block(placed, request="s1-r5"),), passages=(summary,), lost=(f"{0:032x}",))])
    archive.write([record(8, passed=(passed_over(kept[1], "budget"),), lost=(f"{0:032x}",))])
    archive.write([record(5, passages=(passage(6, "a better summary", unit="turn"),))])
    archive.write([record(6, "never kept " * 9, unkept=(filed(6, "never kept " * 9),))])
    archive.write([record(7, "cut later", passages=(), uncut=(f"{7:032x}",))])
    [left] = archive.uncut()
    assert archive.of(MINE).uncut(left.session)
    archive.add_passages([(left, [passage(7, "cut later")])])


def _embed(archive: Archive, mine, kept: list) -> None:
    for tenant, id_, _ in archive.unembedded(50):
        session = archive.of(tenant).passages_by_id([id_])[id_].session
        tokens = [(tenant, id_, np.ones((3, 4), np.int8))]
        archive.add_vectors("m", 4, [(tenant, session, id_, np.ones(4, np.float32))], recipe="r", tokens=tokens)
    archive.write([record(5, passages=(passage(6, "the best summary", unit="turn"),))])
    mine.tokens([kept[0].id], "r", 4)
    mine.vectors([1])


def _read(mine, id_: int) -> None:
    mine.sessions(project="p1", titled="a")
    mine.session("s1")
    mine.holders(["call_0"])
    mine.saying([b"0" * 16], 5)
    mine.outline(session="s1", project="p1")
    mine.shapes("s1", "p1", "passage", 0, 9)
    mine.count(99, project="p1")
    mine.passages(project="p1")
    mine.as_now(mine.plain_passages([id_]).values())
    mine.search("text", session="s1", speaker="user", since=1.0)
    mine.names("project")
    mine.names("speaker")
    mine.fts(["text"], 5)
    mine.requests(session="s1")
    assert mine.why("s1-r5").blocks
    assert mine.last_restored() == mine.last_restored("p1")
    assert mine.why("s1-r8").passed
    mine.overview(0.0, 1_000.0)
    assert mine.counts(["s1"])["s1"].requests
    mine.useful()
    assert mine.timeline("s1").bridges
    assert mine.shown("s1")
    mine.history(id_)
    mine.edits("s1")
    mine.edited()
    mine.marked()
    mine.pinned("s1")
    mine.since_newest(2, until=1e12)


def _judge(mine, kept: list) -> None:
    mine.reinforce({1: (0.5, 0.5, 1, 1.0)}, request="s1-r5", used={kept[0].id: True})
    mine.feedback("s1-r5", kept[0].id, "useful", now=1.0, settle=lambda confidence, success, used: (0.6, 0.6))
    mine.feedback("", kept[1].id, "wrong", now=1.0)
    with pytest.raises(ArchiveError, match="nowhere is not in the archive"):
        mine.feedback("nowhere", kept[1].id, "wrong", now=1.0)
    mine.pin(kept[2].id, now=1.0)
    mine.unpin(kept[2].id, now=1.0)
    mine.edit(chunk.reword(mine.passages_by_id([kept[3].id])[kept[3].id], "reworded"), now=2.0)


def _whole(archive: Archive) -> None:
    archive.write([record(1, "text 3", session="s8")])  # a text that was corrected before
    archive.write([record(2, "text 3", session="s9", passages=(), uncut=(f"{2:032x}",))])
    archive.add_passages([(left, [replace(passage(2, "text 3"), session="s9")]) for left in archive.uncut()])
    archive.tenants()
    archive.large_scopes(1, by_project=True)
    archive.newest_passage()
    archive.check()
    archive.rebuild_fts()
    full_text.analyse(archive, lambda passage: replace(passage, tags=("anew",)))
    archive.oldest_share(0.5)


def _remove(archive: Archive, mine) -> None:
    mine.prune(PruneRule(below_confidence=0.01), now=0.0)
    mine.prune(PruneRule(older_than_s=1.0), now=0.0, dry_run=True)
    mine.prune(PruneRule(older_than_s=1.0), now=0.0)
    mine.prune(PruneRule(older_than_s=1.0, up_to={"passages": 1, "messages": 1, "blocks": 1}), now=0.0)
    mine.prune(PruneRule(session="s2"), now=0.0)
    archive.forget(MINE, ForgetRule(match="text 0"), now=1.0, dry_run=True)
    long = record(21, "of this a word is forgotten, and the rest is cut anew")
    archive.write([replace(long, passages=(passage(21, "the rest is cut anew"),))])
    archive.forget(MINE, ForgetRule(match="a word is forgotten"), now=1.0)
    for rule in (ForgetRule(match="text 1"), ForgetRule(session="s1"), ForgetRule(project="p"), ForgetRule()):
        archive.verify(archive.forget(MINE, rule, now=1.0))
        archive.write([replace(record(1, "text 1"), came_at=2.0), replace(record(1, "text 1"), came_at=0.5)])
    quoted = Placed(passage=passage(22, "text 1"), text="x", rank=1, score=1.0, signals={})
    archive.write([replace(record(22, "quotes it", blocks=(block([quoted], request="s1-r22"),)), came_at=2.0)])
    archive.write([record(30, "pruned at last", session="s30")])
    rows = [(tenant, "s30", id_, np.ones(4, np.float32)) for tenant, id_, _ in archive.unembedded(50)]
    archive.add_vectors("m", 4, rows)
    mine.prune(PruneRule(older_than_s=1.0), now=1e12)
    retain(archive, PrivacyConfig(keep_days=1), now=1e12)


def tenanted(archive: Archive) -> set[str]:
    """Every table with a tenant column, as the schema has it."""
    with archive.writing() as db:
        names = [row[0] for row in db.conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {n for n in names if any(c[1] == "tenant" for c in db.conn.execute(f'PRAGMA table_info("{n}")'))}


def test_every_statement_that_reads_rows_of_tenants_reads_the_tenant_too(watched):
    archive, watch = watched
    exercise(archive)
    tables_of_tenants = tenanted(archive)
    assert {"messages", "passages", "placed", "uncut", "tokens", "edits", "marks"} <= tables_of_tenants
    assert len(watch.seen) > 90
    wrong = []
    for sql, reads in watch.seen.items():
        tables = {table for table, _ in reads} & tables_of_tenants
        if not tables or is_whole(sql) or sql.startswith(("CREATE", "PRAGMA", "ALTER", "DROP")):
            continue
        columns = {column for table, column in reads if table in tables_of_tenants}
        if sql.startswith(("INSERT", "WITH")) and columns <= NO_TEXT:
            continue
        if not any((table, "tenant") in reads for table in tables) or not BOUND.search(sql):
            wrong.append(sql)
    assert wrong == []


def is_whole(sql: str) -> bool:
    """Is it one of WHOLE, or does it read or write a setting of the archive's own?"""
    if re.search(r"FROM settings WHERE tenant = ''|INTO settings .*VALUES \(''", sql):
        return True
    listed = [" ".join(value.split()) for name, value in constants() if name in WHOLE]
    return sql in WHOLE or any(re.fullmatch(_filled(text), sql) for text in listed)


def _filled(text: str) -> str:
    """A pattern of what a constant with {fields} becomes."""
    return ".*".join(re.escape(part) for part in re.split(r"{\w+}", text))


def test_every_statement_of_the_package_is_one_that_was_walked(watched):
    """New SQL that exercise() does not run fails here, so that the test above cannot miss it."""
    archive, watch = watched
    exercise(archive)
    names = "|".join(tenanted(archive))
    reaches = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE) (\.\*|({names})\b)")
    held = [(where, text) for where, text in statements() if reaches.search(text.replace("\\", ""))]
    assert len(held) > 80
    unwalked = [(where, text) for where, text in held if not any(re.search(text, sql) for sql in watch.ran)]
    assert unwalked == []


def statements():
    """(module, pattern) of every string of the package but docstrings; what is filled in stands as .* there."""
    root = PACKAGE.parent
    for path in [*PACKAGE.rglob("*.py"), *(root / "migrations").glob("*.py")]:
        where = str(path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else root))
        if where in WHOLE_FILES or where.startswith("bench"):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
        told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr) and id(node) not in told:
                yield where, "".join(_pattern(part) for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | told:
                yield where, _pattern(node)


def _pattern(part: ast.expr) -> str:
    if not isinstance(part, ast.Constant):
        return ".*"
    return _filled(re.sub(r"\s+", " ", part.value))


def constants():
    """(name, text) of every SQL constant of the archive's modules."""
    import importlib

    for path in PACKAGE.glob("archive/*.py"):
        module = importlib.import_module(f"lantern_proxy.archive.{path.stem}".removesuffix(".__init__"))
        yield from ((name, value) for name, value in vars(module).items() if isinstance(value, str))


def test_sql_stands_in_the_archives_modules_alone():
    verbs = re.compile(r"""["'](SELECT|INSERT|UPDATE|DELETE|PRAGMA|CREATE|REPLACE|WITH)\s+[\w*(]""")
    outside = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if verbs.search(path.read_text("utf-8")) and path.relative_to(PACKAGE).parts[0] not in ("archive", "bench")
    }
    # one asks an empty database for the version of sqlite-vec, the other reads another program's
    assert outside <= {"cli/doctor.py", "logs_opencode.py"}


def test_a_tenant_cannot_be_left_out(tmp_path):
    with Archive(tmp_path / "a.db") as archive:
        for empty in ("",):
            with pytest.raises(Exception, match="tenant is empty"):
                archive.of(empty)
            with pytest.raises(Exception, match="tenant is empty"):
                archive.forget(empty, ForgetRule(), now=1.0)
