"""The terminal, run on a real archive: what each command shows, its JSON, its errors and exit codes."""

import json
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import certifi
import click
import httpx
import pytest
from click.testing import CliRunner
from lantern_proxy.migrations.archive import migrations as archive_steps
from msgspec.structs import replace
from scripted import Upstream, config_for, process, respond, unused_port, wait_for
from sqlite_utils.db import Database
from test_archive import passed_over

from lantern_proxy import Lantern, demo
from lantern_proxy.archive import Archive, PruneRule, Record, RequestRow, SessionRow
from lantern_proxy.cli import doctor, serve
from lantern_proxy.cli import main as cli
from lantern_proxy.compiled import available
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig, RerankConfig, RestoreConfig
from lantern_proxy.embed import name_of
from lantern_proxy.rerank import evidence
from lantern_proxy.rerank.light import save
from lantern_proxy.restore.light import open_light
from lantern_proxy.turn import Block

ROOT = Path(__file__).parent.parent

SCRIPT = demo.chat()
ASKED = click.Context(cli.cli)
COMMANDS = cli.cli.list_commands(ASKED)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An archive with two users; one of them had a block restored, in request req_1."""
    path = tmp_path_factory.mktemp("cli") / "lantern.db"
    config = Config(
        archive=ArchiveConfig(path=path), embed=EmbedConfig(enabled="off"), restore=RestoreConfig(deadline_ms=60_000)
    )
    question = SCRIPT.details[0].literal
    with Lantern(config, project="work") as lantern:
        lantern.archive("chat-one", SCRIPT.history)
        blocks = lantern.restore("chat-one", demo.SHAPES["last-six"](SCRIPT.history, "", question))
        tenant = lantern.tenant
    with Lantern(config, user="other") as lantern:
        lantern.archive("chat-two", [{"role": "user", "content": "the other one's firewall \x1b[31mred\x1b[0m [bold]"}])
    now = time.time()
    ledger = tuple(
        Block(session="chat-one", anchor="a", chain="b", place="inside", restored=b, request="req_1", created_at=now)
        for b in blocks
    )
    session = SessionRow(id="chat-one", api="chat", created_at=now, last_seen_at=now)
    request = RequestRow(id="req_1", at=now, api="chat", path="", event="window", query=question, restored=9)
    taken = {placed.passage.id for block in blocks for placed in block.placed}
    with Archive(path) as archive:
        others = [each for each in archive.of(tenant).passages() if each.id not in taken]
        passed = tuple(passed_over(each, "budget", rank=rank) for rank, each in enumerate(others[:3], start=1))
        archive.write(
            [Record(tenant=tenant, project="work", session=session, request=request, blocks=ledger, passed=passed)]
        )
    return path


@pytest.fixture
def lantern(made, tmp_path, monkeypatch):
    """Runs a command on a copy of the archive."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("LANTERN_"):
            monkeypatch.delenv(name)
    for part in made.parent.glob("lantern.db*"):
        shutil.copy(part, tmp_path)

    def run(*arguments, code=0, **options):
        result = CliRunner().invoke(cli.cli, list(map(str, arguments)), **options)
        assert result.exit_code == code, result.output
        return result

    return run


def rows(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


# help, errors, exit codes


@pytest.mark.parametrize(("given", "kept"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")])
def test_small_matrices_are_not_spread_over_threads_unless_told_to(given, kept):
    code = "import atexit, os; from lantern_proxy.cli.main import main; "
    code += "atexit.register(lambda: print(os.environ['OPENBLAS_NUM_THREADS'])); main()"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"} | given
    ran = subprocess.run(
        [sys.executable, "-c", code, "--version"], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == kept


def test_help_answers_at_once_with_click_alone():
    code = "import sys; from lantern_proxy import cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"numpy", "rich", "httpx", "starlette", "uvicorn", "yaml", "sqlite_utils", "lantern_proxy.archive", "torch"}
    assert not heavy & set(loaded)


def test_the_help_lists_every_command_in_a_group_and_fits_a_narrow_terminal(lantern):
    assert sorted(name for group in cli.GROUPS.values() for name in group) == COMMANDS
    told = lantern("--help", terminal_width=60).output
    assert all(f"\n  {name} " in told for name in COMMANDS)
    assert max(map(len, told.splitlines())) <= 80
    assert "..." not in told.partition("\n")[2]  # nothing is cut short below the usage


@pytest.mark.parametrize("name", ["bench", "keys", "train"])
def test_no_command_of_a_group_is_described_by_half_a_sentence(lantern, name):
    assert "..." not in lantern(name, "--help").output.partition("\n")[2]


def test_a_measurement_explains_itself_and_has_json(lantern):
    assert "bm25" in lantern("bench", "--help").output
    assert "--json" in lantern("bench", "bm25", "--help").output


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("bench", "keys", "train", "completion")])
def test_every_command_explains_itself_with_an_example_and_has_json(lantern, name):
    told = lantern(name, "--help").output
    assert f"Example: lantern {name}" in told
    assert "--json" in told
    assert "--config" in told
    assert "--archive" in told


def test_the_shapes_that_the_demo_offers_are_those_it_can_play():
    assert tuple(demo.SHAPES) == cli.SHAPES


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["serch", "x"], 2, "no such command 'serch'; did you mean search?; see `lantern --help`"),
        (["version"], 2, "no such command 'version'; did you mean --version?"),
        (["keys", "lst"], 2, "no such command 'lst'"),
        (["serve", "--host", "[::1]"], 2, "--host is '[::1]'; use a host name or address without scheme"),
        (["search"], 2, "missing argument 'QUERY'; see `lantern search --help`"),
        (
            ["search", "x", "--limit", "9" * 20],
            2,
            f"invalid value for '-n' / '--limit': {'9' * 20} is not a whole number from 1 to 1,000,000; see",
        ),
        (["search", "x", "--older-than", ""], 2, "--older-than is ''; use a number and a unit"),
        (["search", "x", "--limit"], 2, "option '--limit' requires an argument; see `lantern search --help`"),
        (["search", "x", "--json=yes"], 2, "option '--json' does not take a value; see `lantern search --help`"),
        (["keys", "add", "--tenant"], 2, "option '--tenant' requires an argument; see `lantern keys add --help`"),
        (["bench", "bm25", "--records"], 2, "option '--records' requires an argument; see `lantern bench bm25 --help`"),
        (["search", "x", "--limt", "3"], 2, "no such option '--limt'"),
        (["status", "--archive", "none.db"], 1, "archive none.db does not exist; name it with --archive PATH"),
        (["export", "--backup", "to.db", "--archive", "none.db"], 1, "archive none.db does not exist; name it with"),
        (["recover", "to.db", "--archive", "none.db"], 1, "archive none.db does not exist; name it with --archive"),
        (["status", "--config", "none.yaml"], 2, "none.yaml: no such file"),
        (["show", "nothing"], 1, "no session begins with nothing; `lantern sessions` lists them"),
        (["show", "chat"], 1, "2 sessions begin with chat"),
        (["show", "chat-one", "--turn", "99"], 1, "session chat-one has no turn 99"),
        (["show", "chat-one", "--turn", "99", "--passages"], 1, "session chat-one has no turn 99"),
        (
            ["export", "--output", "none/all.jsonl"],
            2,
            "invalid value for '-o' / '--output': none/all.jsonl: the folder none does not exist; see",
        ),
        (["recover", "none/to.db"], 2, "invalid value for 'TARGET': none/to.db: the folder none does not exist"),
        (["status", "--archive", ""], 2, "invalid value for '--archive': it is empty; leave it out, or name one"),
        (["serve", "--config", ""], 2, "invalid value for '--config': it is empty; leave it out, or name one"),
        (["demo", "--keep", ""], 2, "invalid value for '--keep': it is empty; leave it out, or name one"),
        (["import", ""], 2, "invalid value for 'PATHS...': it is empty; name one"),
        (["search", ""], 2, "invalid value for 'QUERY': it is empty; name one"),
        (["search", "x", "--session", ""], 2, "invalid value for '--session': it is empty; leave it out, or name one"),
        (["show", ""], 2, "invalid value for 'SESSION': it is empty; name one"),
        (["feedback", "last", "1", "bad"], 2, "invalid value for 'VERDICT': 'bad' is not one of 'useful', 'wrong',"),
        (["keys", "add", "a", "--tenant", ""], 2, "invalid value for '--tenant': it is empty; leave it out"),
        (["keys", "add", "a", "--upstream-key-env", "A", "--upstream-key-env", "any=B"], 2, "two upstream keys are"),
        (["keys", "add", "a", "--upstream-key-env", "google=A"], 1, "upstream key google=env:A is not understood"),
        (["bench", "serve", "--passages", "1,x"], 2, "invalid value for '--passages': '1,x'; give numbers like"),
        (["demo", "--shape", "list"], 2, "invalid value for '--shape': 'list' is not one of 'user-summary', "),
        (["forget", "--session", "chat"], 1, "nothing of session chat is in lantern.db; ids and names must be whole"),
        (["why", "req_none"], 1, "request req_none is not in the archive"),
        (["why", "last", "--session", "chat-one"], 2, "--session goes with --dry-run; `lantern show SESSION` tells"),
        (["why", "req_one", "--dry-run", "-"], 2, "req_one was sent already, and --dry-run is of what was not"),
        (["sessions", "--tenant", "t_none"], 1, "tenant t_none has nothing in lantern.db"),
        (["prune"], 2, "prune needs --older-than, --below-confidence, --session, --keep-mb or --retention"),
        (["prune", "--older-than", "soon"], 2, "--older-than is 'soon'; use a number and a unit"),
        (["prune", "--retention", "--keep-mb", "1"], 2, "--retention takes its rules from the config; give it alone"),
        (
            ["serve", "--port", "abc"],
            2,
            "invalid value for '--port': 'abc' is not a whole number from 0 to 65,535; see `lantern serve --help`",
        ),
        (["serve", "--port", "99999"], 2, "invalid value for '--port': 99999 is not a whole number from 0 to 65,535"),
        (["show", "chat", "--turn", "x.y"], 2, "invalid value for '--turn': 'x.y' is not a whole number; see"),
        (["bench", "bm25", "--seconds", "0"], 2, "invalid value for '--seconds': 0.0 is not a number above 0; see"),
        (["bench", "start", "--rounds", "0"], 2, "invalid value for '--rounds': 0 is not a whole number from 1 on"),
        (
            ["prune", "--below-confidence", "half"],
            2,
            "invalid value for '--below-confidence': 'half' is not a number from 0 to 1; see `lantern prune --help`",
        ),
        (["prune", "--below-confidence", "nan"], 2, "invalid value for '--below-confidence': 'nan' is not a number"),
    ],
)
def test_an_error_is_one_lower_case_line_with_its_exit_code(lantern, arguments, code, told):
    result = lantern(*arguments, code=code)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith(f"lantern: {told}")


def test_a_bad_variable_is_told_by_its_name(lantern):
    result = lantern("status", code=2, env={"LANTERN_PORT": "eighty"})
    assert result.stderr.startswith("lantern: LANTERN_PORT is 'eighty'; use a whole number")


def test_a_file_that_is_no_archive_is_refused_in_one_line(lantern, tmp_path):
    (tmp_path / "notes.db").write_text("these are notes, not an archive" * 100)
    result = lantern("sessions", "--archive", "notes.db", code=1)
    assert "notes.db is not a lantern archive" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["sessions"], ["export", "--backup", "copy.db"], ["recover", "new.db"]])
def test_a_pipe_is_no_archive_and_is_not_waited_for(lantern, tmp_path, command):
    os.mkfifo(tmp_path / "pipe.db")
    assert "pipe.db is no file; name it with --archive" in lantern(*command, "--archive", "pipe.db", code=1).stderr


def test_doctor_does_not_wait_for_a_pipe_either(lantern, tmp_path):
    os.mkfifo(tmp_path / "pipe.db")
    told = rows(lantern("doctor", "--offline", "--json", "--archive", "pipe.db", code=1))
    assert [row["detail"] for row in told if row["name"] == "archive"] == ["pipe.db is no file"]


def test_an_empty_file_makes_no_backup(lantern, tmp_path):
    (tmp_path / "empty.db").touch()
    told = lantern("export", "--backup", "copy.db", "--archive", "empty.db", code=1)
    assert "empty.db is an empty file" in told.stderr
    assert not (tmp_path / "copy.db").exists()


# reading


def test_status_counts_what_each_tenant_has(lantern):
    nobody = {"LANTERN_PORT": "1"}
    (told,) = rows(lantern("status", "--json", env=nobody))
    assert sorted(tenant["messages"] for tenant in told["tenants"]) == [1, 121]
    assert told["proxy"] is None
    assert "not running" in lantern("status", env=nobody).output


def test_status_and_doctor_find_the_proxy_of_this_archive_at_whatever_port_and_take_no_other_one_for_it(
    lantern, tmp_path
):
    (tmp_path / "other").mkdir()
    with Upstream() as upstream, process(config_for(upstream, tmp_path / "other")) as (_, url):
        served, port = str(tmp_path / "other/lantern.db"), url.rpartition(":")[2]
        assert f"running at {url}: ok" in lantern("status", "--archive", served).output
        assert f"s at {url}: ok" in " ".join(lantern("doctor", "--offline", "--archive", served).output.split())
        assert "not running" in lantern("status", env={"LANTERN_PORT": port}).output
        told = " ".join(lantern("doctor", "--offline", env={"LANTERN_PORT": port}).output.split())
        assert f"s at {url}, but with another archive, {served}" in told
    assert (tmp_path / "other/lantern.db-serve").exists()  # it was killed
    assert "not running" in lantern("status", "--archive", served).output


def test_doctor_does_not_call_a_proxy_old_that_keeps_its_version_for_the_admin(lantern, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "token").write_text("ab" * 32)
    closed = f"access: {{admin: token, admin_token_file: {tmp_path / 'token'}}}\n"
    with Upstream() as upstream, process(config_for(upstream, tmp_path / "other"), more=closed) as (_, url):
        wait_for(lambda: httpx.get(f"{url}/lantern/health").json()["status"] == "ok")
        found = rows(lantern("doctor", "--offline", "--json", "--archive", str(tmp_path / "other/lantern.db")))
        (told,) = [each for each in found if each["name"] == "proxy"]
        assert (told["state"], told["detail"].startswith(f"runs at {url}: ok")) == ("ok", True)


def on_terminal(columns, command, archive):
    """What the command shows on a terminal so wide, line by line, without colours."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    run = [sys.executable, "-m", "lantern_proxy", *command]
    environ = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"LANTERN_ARCHIVE": archive}
    shown = []
    with subprocess.Popen(
        run, stdin=theirs, stdout=theirs, stderr=theirs, env=environ | {"NO_COLOR": "1"}, cwd=archive.parent
    ):
        os.close(theirs)
        with os.fdopen(ours, "rb") as terminal, suppress(OSError):  # Linux ends it with an error
            for line in terminal:
                shown.append(line.decode())
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", "".join(shown)).splitlines()]


TABLES = [["status"], ["sessions"], ["show", "chat-one", "--passages"]]


@pytest.mark.parametrize("command", [*TABLES, ["search", "listener"]])
def test_the_output_fits_a_terminal_of_eighty_columns(made, tmp_path, command):
    """Tables and what is told beside them; only what was said, and paths, are as long as they are."""
    text = on_terminal(80, command, shutil.copy(made, tmp_path / "l.db"))
    assert any(text)
    wide = [line for line in text if len(line) > 80 and str(tmp_path) not in line and not line.startswith("  ")]
    assert not wide


@pytest.mark.parametrize("command", TABLES)
def test_a_narrower_terminal_wraps_tables_that_are_whole(made, tmp_path, command):
    archive = shutil.copy(made, tmp_path / "l.db")
    assert on_terminal(40, command, archive) == on_terminal(80, command, archive)


def test_migrate_shows_that_encrypting_goes_on(made, tmp_path):
    pytest.importorskip("sqlcipher3", reason="the extra `encrypted` is not installed")
    (tmp_path / "key").write_text("ab" * 32)
    (tmp_path / "c.yaml").write_text(f"archive: {{key_file: {tmp_path / 'key'}}}")
    command = ["migrate", "--encrypt", "--config", "c.yaml"]
    told = on_terminal(80, command, shutil.copy(made, tmp_path / "l.db"))
    assert any("encrypting" in line for line in told)
    assert told[-1].endswith("and encrypted")


@pytest.mark.parametrize(
    "command", [["show", "chat-one"], ["show", "chat-one", "--json"], ["export"], ["sessions"], ["status"], ["--help"]]
)
def test_an_output_that_is_closed_ends_a_command_quietly(made, tmp_path, command):
    """As by `| head -1` and by `>&-`."""
    run = [sys.executable, "-m", "lantern_proxy", *command]
    environ = os.environ | {"LANTERN_ARCHIVE": shutil.copy(made, tmp_path / "l.db")}
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "wb") as closed:
        done = subprocess.run(run, stdout=closed, stderr=subprocess.PIPE, env=environ, timeout=60)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")
    closing = ["sh", "-c", '"$@" >&-', "sh", *run]
    done = subprocess.run(closing, stderr=subprocess.PIPE, env=environ, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="of Linux")
def test_an_export_to_a_full_disk_says_what_could_not_be_written(made, tmp_path):
    environ = os.environ | {"LANTERN_ARCHIVE": shutil.copy(made, tmp_path / "l.db")}
    with open("/dev/full", "wb") as full:
        run = [sys.executable, "-m", "lantern_proxy", "export"]
        done = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, env=environ, timeout=60)
    assert (done.returncode, done.stderr) == (1, b"lantern: standard output: no space left on device\n")


@pytest.mark.parametrize("command", [["status"], ["export"], ["export", "--backup", "copy.db"], ["search", "Kaffee"]])
def test_an_archive_of_another_user_is_told_as_one(lantern, tmp_path, command):
    (tmp_path / "lantern.db").chmod(0o000)
    if os.access(tmp_path / "lantern.db", os.R_OK):
        pytest.skip("root may read anything")
    assert "lantern.db may not be read by this user; run this as its owner" in lantern(*command, code=1).stderr


@pytest.mark.parametrize(("content", "way_out"), [(b"", "lantern serve"), (b"not SQLite " * 500, "check archive.path")])
def test_a_file_that_is_no_archive_is_told_with_a_way_out(lantern, tmp_path, content, way_out):
    (tmp_path / "lantern.db").write_bytes(content)
    for part in tmp_path.glob("lantern.db-*"):
        part.unlink()
    assert way_out in lantern("status", code=1).stderr
    (found,) = (row for row in rows(lantern("doctor", "--offline", "--json", code=1)) if row["name"] == "archive")
    assert way_out in found["remedy"] or way_out in found["detail"]
    assert (tmp_path / "lantern.db").read_bytes() == content


@pytest.mark.parametrize("command", [["sessions"], ["search", "Kaffee"], ["show", "chat-three"]])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_that_lacks_a_sign_shows_its_number(tmp_path, command, encoding):
    config = Config(archive=ArchiveConfig(path=tmp_path / "l.db"), embed=EmbedConfig(enabled="off"))
    with Lantern(config) as mine:
        mine.archive("chat-three", [{"role": "user", "content": "Kaffee für 東京"}])
    environ = os.environ | {"LANTERN_ARCHIVE": str(tmp_path / "l.db"), "PYTHONIOENCODING": encoding}
    run = [sys.executable, "-m", "lantern_proxy", *command]
    done = subprocess.run(run, capture_output=True, env=environ, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    wanted = {"ascii": b"f\\xfcr \\u6771", "latin-1": "für \\u6771".encode("latin-1"), "utf-8": "für 東".encode()}
    assert wanted[encoding] in done.stdout.replace(b"[", b"").replace(b"]", b"")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_recover_that_saves_no_message_does_not_pass_for_a_success(lantern, tmp_path, options):
    db = Database(tmp_path / "lantern.db")
    (size,), (root,) = (
        db.execute(sql).fetchone()
        for sql in ("PRAGMA page_size", "SELECT rootpage FROM sqlite_schema WHERE name = 'messages'")
    )
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()
    with open(tmp_path / "lantern.db", "r+b") as file:
        file.seek((root - 1) * size)
        file.write(bytes(size))
    told = lantern("recover", "new.db", *options, code=1)
    assert "no message of lantern.db could be saved" in told.stderr


@pytest.mark.parametrize("damage", ["UPDATE settings SET value = 'zz' WHERE name = 'secret'", "DELETE FROM settings"])
def test_a_damaged_secret_is_told_with_the_way_out_and_that_way_works(lantern, tmp_path, damage):
    db = Database(tmp_path / "lantern.db")
    db.execute(damage)
    db.conn.commit()
    db.close()
    for command in (["status"], ["sessions"], ["prune", "--older-than", "1d", "--yes"]):
        told = lantern(*command, code=1).stderr
        assert "its secret" in told
        command = re.search("`lantern (recover .*)`", told)[1]
    assert any("its secret" in row["detail"] for row in rows(lantern("doctor", "--offline", "--json", code=1)))
    assert "--archive lantern.db" in command  # another than the configured one is meant as well
    lantern(*shlex.split(command))
    assert "listener" in lantern("search", "listener", "--archive", "NEW.db").output
    assert rows(lantern("sessions", "--archive", "NEW.db", "--json"))


def test_sessions_lists_all_tenants_or_one(lantern):
    told = rows(lantern("sessions", "--json"))
    assert {row["id"] for row in told} == {"chat-one", "chat-two"}
    (mine,) = {row["tenant"] for row in told if row["id"] == "chat-one"}
    assert [row["id"] for row in rows(lantern("sessions", "--json", "--tenant", mine))] == ["chat-one"]
    assert [row["id"] for row in rows(lantern("sessions", "--json", "--project", "work"))] == ["chat-one"]
    assert len(rows(lantern("sessions", "--json", "--limit", 1))) == 1
    both, one = lantern("sessions").output, lantern("sessions", "--tenant", mine).output
    assert "chat-one" in both
    assert f"tenant {mine}" in both
    assert "tenant" not in one, "where there is one, nobody has to be told"
    (theirs,) = {row["tenant"] for row in told if row["id"] == "chat-two"}
    assert re.search(r"passages +project +title", one)
    assert re.search("chat-one .* work ", one)
    assert "project" not in lantern("sessions", "--tenant", theirs).output


def test_an_id_is_never_folded_in_a_table(lantern, tmp_path):
    id_, config = f"ses_{'0123456789abcdef' * 2}", Config(archive=ArchiveConfig(path=tmp_path / "lantern.db"))
    with Lantern(config) as mine:
        mine.archive(id_, [{"role": "user", "content": "a title that is long enough to want all of the room " * 3}])
    assert id_ in lantern("sessions").output
    assert mine.tenant in lantern("status").output


def test_show_gives_a_session_back_verbatim(lantern):
    told = rows(lantern("show", "chat-one", "--json"))
    assert [row["text"] for row in told] == [message["content"] for message in SCRIPT.history]
    assert [json.loads(row["raw"]) for row in told] == SCRIPT.history


def test_show_takes_the_start_of_an_id_and_one_turn(lantern):
    told = lantern("show", "chat-o", "--turn", 4).output
    assert SCRIPT.turns[3][0] in told
    assert SCRIPT.turns[4][0] not in told


def test_show_tells_what_use_taught_about_passages(lantern, tmp_path):
    before = rows(lantern("show", "chat-one", "--passages", "--json"))
    chosen = before[-1]
    with Archive(tmp_path / "lantern.db") as archive:
        (owner,) = {each.id for each in archive.tenants() if archive.of(each.id).session("chat-one")}
        archive.of(owner).reinforce({chosen["id"]: (0.65, 0.55, 9_999, 1.7e9)})
    after = rows(lantern("show", "chat-one", "--passages", "--json"))
    assert {row["id"] for row in after} == {row["id"] for row in before}
    assert after[0]["id"] == chosen["id"]
    assert (after[0]["confidence"], after[0]["success"], after[0]["accesses"]) == (0.65, 0.55, 9_999)
    told = lantern("show", "chat-one", "--passages", "--turn", chosen["turn"]).output
    assert "9999" in told
    assert "0.65" in told


def test_archived_text_cannot_command_the_terminal(lantern, tmp_path):
    told = lantern("show", "chat-two").output
    assert "\x1b" not in told
    assert "\\x1b[31mred" in told
    assert "[bold]" in told
    call = {"id": "c1", "type": "function", "function": {"name": "run\x1b[2J", "arguments": "{}"}}
    config = Config(archive=ArchiveConfig(path=tmp_path / "lantern.db"), embed=EmbedConfig(enabled="off"))
    with Lantern(config) as mine:
        mine.archive("calls", [{"role": "assistant", "content": "", "tool_calls": [call]}])
    with Archive(config.archive.path) as archive:
        session = SessionRow(id="calls", api="chat", created_at=1.7e9, last_seen_at=1.7e9)
        request = RequestRow(id="req_2", at=1.7e9, api="chat", path="", event="new", model="gpt\x1b[2J")
        archive.write([Record(tenant=mine.tenant, session=session, request=request)])
    assert "[call run\\x1b[2J]" in lantern("show", "calls").output
    assert "gpt\\x1b[2J" in lantern("why", "req_2").output


def test_an_export_of_somebody_else_cannot_command_the_terminal(tmp_path):
    with Lantern(Config(archive=ArchiveConfig(path=tmp_path / "a.db"), embed=EmbedConfig(enabled="off"))) as mine:
        mine.archive("chat", [{"role": "user", "content": "the harbour of Aarhus"}])
        exported = [json.loads(json.dumps(row)) for row in mine._archive.of(mine.tenant).export()]
    changed = [row | {"tenant": "t\x1b]0;x\x07"} | ({"role": "\x9b2J"} if "role" in row else {}) for row in exported]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
    for command in (
        ["import", str(tmp_path / "b.jsonl")], ["import", str(tmp_path / "b.jsonl"), "--tenant", "a", "--from", "b"],
        ["show", "chat"], ["show", "chat", "--brief"], ["prune", "--older-than", "0s", "--dry-run"],
        ["forget", "--match", "harbour", "--dry-run"], ["forget", "--match", "harbour"],
    ):  # fmt: skip
        command += ["--archive", str(tmp_path / "b.db")]
        shown = CliRunner().invoke(cli.cli, command).output
        assert shown
        assert not {"\x1b", "\x07", "\x9b"} & {*shown}, command


def test_a_result_is_shown_with_the_name_of_what_was_called(lantern, tmp_path):
    call = {"id": "call_1", "type": "function", "function": {"name": "tide", "arguments": '{"harbour": "Lerwick"}'}}
    said = [
        {"role": "user", "content": "When is high water?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "at 14:20"},
        {"role": "tool", "tool_call_id": "call_2", "content": "of a call that nobody saw"},
    ]
    config = Config(archive=ArchiveConfig(path=tmp_path / "lantern.db"), embed=EmbedConfig(enabled="off"))
    with Lantern(config) as mine:
        mine.archive("tides", said)
        with Archive(config.archive.path) as archive:
            shown = archive.of(mine.tenant).shown("tides")
    assert [(each.calls, each.is_result) for each in shown] == [
        ((), False),
        (('tide {"harbour":"Lerwick"}',), False),
        ((), True),
        ((), True),
    ]
    told = lantern("show", "tides").output
    assert "[result tide] at 14:20" in told
    assert "[result] of a call that nobody saw" in told


def test_search_finds_passages_best_first_in_all_tenants_or_one_session(lantern):
    told = rows(lantern("search", "firewall", "--json"))
    assert {row["session"] for row in told} == {"chat-one", "chat-two"}
    assert [row["score"] for row in told] == sorted((row["score"] for row in told), reverse=True)
    assert "7461" in rows(lantern("search", "firewall staging", "--json", "--session", "chat-one"))[0]["text"]
    assert "turn 4" in lantern("search", "staging firewall").output
    assert "nothing matches" in lantern("search", "zzzzz").output
    assert "nothing matches" in lantern("search", "zzzzz", "--project", "work", "--speaker", "tool").output


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("search firewall --project wrok", "project 'wrok' has nothing in lantern.db; there is 'work'"),
        ("search firewall --project WORK", "project 'WORK' has nothing in lantern.db; there is 'work'"),
        ("search firewall --project elsewhere --json", "'elsewhere' has nothing in lantern.db; there is '', 'work'"),
        ("search firewall --speaker asistant", "speaker 'asistant' has nothing in lantern.db; there is 'assistant'"),
        ("search firewall --speaker wolf", "speaker 'wolf' has nothing in lantern.db; there is 'assistant', 'user'"),
        ("sessions --project wrok", "project 'wrok' has nothing in lantern.db; there is 'work'"),
    ],
)
def test_a_project_or_speaker_that_nobody_has_is_told_with_those_that_are_there(lantern, command, told):
    assert told in lantern(*command.split(), code=1).output


def test_why_shows_what_was_restored_and_on_which_evidence(lantern):
    (told,) = rows(lantern("why", "req_1", "--json"))
    placed = [each for block in told["blocks"] for each in block["restored"]["placed"]]
    assert any("7461" in each["text"] for each in placed)
    assert all(each["signals"] for each in placed)
    shown = lantern("why", "last").output
    assert "request req_1" in shown
    assert "7461" in shown
    taken = {each["passage"]["id"] for each in placed}
    assert told["passed"]
    assert not taken & {each["passage"]["id"] for each in told["passed"]}
    for each in told["passed"]:
        assert f"passage {each['passage']['id']}, " in shown
        assert each["why"] in shown
    assert "left out of the loss block, the best" in shown
    worthless = [each for each in placed if not each["score"]]  # by themselves
    assert shown.count("comes with another passage, or fills the room") == len(worthless) > 0


# changing


def first_passage(lantern):
    """A passage that req_1 restored."""
    (told,) = rows(lantern("why", "req_1", "--json"))
    return told["blocks"][0]["restored"]["placed"][0]["passage"]


def test_a_verdict_is_noted_listed_and_taken_back(lantern):
    id_ = first_passage(lantern)["id"]
    assert rows(lantern("feedback", "last", id_, "wrong", "--json"))[0]["verdict"] == "wrong"
    assert [row["id"] for row in rows(lantern("marks", "--json"))] == [id_]
    assert f"passage {id_}: wrong" in lantern("marks").output
    assert rows(lantern("feedback", "req_1", id_, "none", "--json"))[0]["verdict"] == ""
    assert "nothing is judged" in lantern("marks").output
    other = rows(lantern("show", "chat-two", "--passages", "--json"))[0]
    assert f"no request of {other['tenant']} got" in lantern("feedback", "last", other["id"], "wrong", code=1).stderr


@pytest.fixture
def two_projects(lantern):
    """A later request, in another project of the same tenant, that restored the same passages."""
    with Archive("lantern.db") as archive:
        (tenant,) = [each.id for each in archive.tenants() if each.messages > 1]
        blocks = archive.of(tenant).why("req_1").blocks
        at = time.time() + 60
        session = SessionRow(id="elsewhere", api="chat", created_at=at, last_seen_at=at)
        request = RequestRow(id="req_elsewhere", at=at, api="chat", path="", event="window", restored=1)
        blocks = tuple(replace(block, session="elsewhere", request="req_elsewhere") for block in blocks)
        archive.write([Record(tenant=tenant, project="play", session=session, request=request, blocks=blocks)])


def test_last_is_the_last_of_a_project_that_is_named(lantern, two_projects):
    id_ = first_passage(lantern)["id"]
    for project, request in (((), "req_elsewhere"), (("--project", "work"), "req_1")):
        (told,) = rows(lantern("why", "last", *project, "--json"))
        assert told["request"]["id"] == request
        lantern("feedback", "last", id_, "useful", *project)
        (told,) = rows(lantern("why", request, "--json"))
        assert {each["verdict"] for each in told["marks"] if each["passage"] == id_} == {"useful"}
        lantern("feedback", "last", id_, "none", *project)
    for command in (["why", "req_1"], ["feedback", "req_1", id_, "useful"]):
        assert "leave it out" in lantern(*command, "--project", "work", code=2).stderr
    for command in (["why", "last"], ["feedback", "last", id_, "useful"]):
        told = lantern(*command, "--project", "none", code=1).stderr
        assert " in project none got a block yet" in told


def test_what_is_marked_wrong_is_not_restored_again(lantern, tmp_path):
    question = SCRIPT.details[0].literal
    compacted = demo.SHAPES["last-six"](SCRIPT.history, "", question)
    id_ = first_passage(lantern)["id"]
    lantern("feedback", "req_1", id_, "wrong")
    config = Config(archive=ArchiveConfig(path=tmp_path / "lantern.db"), embed=EmbedConfig(enabled="off"))
    with Lantern(config, project="work") as mine:
        blocks = mine.restore("chat-one", compacted)
    assert blocks
    assert id_ not in {placed.passage.id for block in blocks for placed in block.placed}


def test_a_verdict_on_what_was_not_restored_is_refused(lantern):
    told = lantern("feedback", "req_none", first_passage(lantern)["id"], "wrong", code=1)
    assert "request req_none is not in the archive" in told.output
    theirs = rows(lantern("search", "other", "--json"))[0]["id"]
    assert "request req_1 is not in the archive" in lantern("feedback", "req_1", theirs, "wrong", code=1).output
    shown = {each["id"] for each in rows(lantern("show", "chat-one", "--passages", "--json")) if each["accesses"]}
    held = {each["id"] for each in rows(lantern("show", "chat-one", "--passages", "--json"))}
    assert "restored no passage" in lantern("feedback", "req_1", min(held - shown), "wrong", code=1).output


def test_a_pin_is_set_and_taken_off(lantern):
    id_ = first_passage(lantern)["id"]
    assert rows(lantern("pin", id_, "--json"))[0]["pinned"]
    assert not rows(lantern("pin", id_, "--off", "--json"))[0]["pinned"]


def test_a_correction_is_searched_and_its_history_kept(lantern):
    before = first_passage(lantern)
    assert "was never corrected" in lantern("edit", before["id"], "--history").output
    lantern("edit", before["id"], "--text", "The quokka port is 9321.")
    assert rows(lantern("search", "quokka", "--json"))[0]["id"] == before["id"]
    (past,) = rows(lantern("edit", before["id"], "--history", "--json"))
    assert (past["before"], past["after"]) == (before["text"], "The quokka port is 9321.")
    assert "leave it or --text out" in lantern("edit", before["id"], "--history", "--text", "x", code=2).stderr


@pytest.mark.parametrize("command", ["pin 99999", "edit 99999 --text x", "feedback - 99999 wrong"])
def test_a_passage_that_is_not_there_is_told_by_its_number(lantern, command):
    assert "there is no passage 99999" in lantern(*command.split(), code=1).output


def test_show_tells_where_the_history_was_cut_and_what_came_back(lantern):
    told = lantern("show", "chat-one", "--brief").output
    assert "---- " in told
    assert "window: the client dropped" in told
    assert "++++ " in told
    assert "9 passages put back" in told
    assert told.index("req_1") > told.index(SCRIPT.history[0]["content"][:40])


def test_a_dry_run_tells_what_a_request_would_get_and_archives_nothing(lantern, tmp_path):
    question = SCRIPT.details[0].literal
    compacted = demo.SHAPES["last-six"](SCRIPT.history, "", question)
    (tmp_path / "request.json").write_text(json.dumps({"model": "m", "messages": compacted}))
    (tmp_path / "lantern.yaml").write_text("embed: {enabled: 'off'}")
    before = rows(lantern("export", "--json"))
    options = ["--dry-run", "request.json", "--config", "lantern.yaml"]
    for project, event in (("work", "window"), ("play", "new")):
        (told,) = rows(lantern("why", *options, "--project", project, "--json"))
        assert (told["event"], told["session"] == "chat-one") == (event, event == "window")
    options += ["--session", "chat-o"]  # the start of its id is enough, as for `show`
    (told,) = rows(lantern("why", *options, "--json"))
    assert (told["event"], told["session"]) == ("window", "chat-one")
    assert "2 sessions begin with chat" in lantern("why", *options[:-1], "chat", code=1).stderr
    assert any(SCRIPT.details[0].answer in placed["text"] for block in told["blocks"] for placed in block["placed"])
    assert {each["kind"] for each in told["passed"]} == {"loss", "question"}
    shown = lantern("why", *options).output
    assert "would be seen as window of session chat-one; " in shown
    assert f"{told['gone']} messages of it are not in the request" in shown
    (tmp_path / "request.json").write_text(json.dumps({"model": "m", "messages": SCRIPT.history}))
    assert "nothing was dropped since the previous request" in lantern("why", *options).output
    assert rows(lantern("export", "--json")) == before


def test_a_closed_input_is_an_empty_one(made, tmp_path):
    run = ["sh", "-c", '"$@" <&-', "sh", sys.executable, "-m", "lantern_proxy", "why", "--dry-run", "-"]
    environ = os.environ | {"LANTERN_ARCHIVE": shutil.copy(made, tmp_path / "l.db")}
    done = subprocess.run(run, capture_output=True, env=environ, text=True, timeout=60)
    assert (done.returncode, "this is no request" in done.stderr) == (1, True)


def test_a_dry_run_of_something_else_is_refused(lantern, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    told = lantern("why", "--dry-run", "x.json", "--session", "chat-one", code=1).output
    assert "this is no request" in told


@pytest.mark.parametrize("command", ["marks", "show chat-one", "show chat-one --passages", "search firewall"])
def test_rows_of_json_name_their_tenant(lantern, command):
    lantern("pin", first_passage(lantern)["id"])
    tenants = {tenant["id"] for tenant in rows(lantern("status", "--json"))[0]["tenants"]}
    found = rows(lantern(*command.split(), "--json"))
    assert found
    assert {row["tenant"] for row in found} <= tenants


def test_search_finds_only_what_its_filters_allow(lantern):
    everyone = rows(lantern("search", "listener", "--json"))
    assert {row["speaker"] for row in rows(lantern("search", "listener", "--speaker", "user", "--json"))} == {"user"}
    assert not rows(lantern("search", "listener", "--older-than", "1d", "--json"))
    assert lantern("search", "listener", "--older-than", "1d").output.endswith("find more, or fewer filters\n")
    assert lantern("search", "walrus").output.endswith("find more\n")
    assert rows(lantern("search", "listener", "--newer-than", "1d", "--json")) == everyone
    assert not rows(lantern("search", "listener", "--project", "", "--json"))  # another one's
    assert (
        "--newer-than is '2y'; use a number and a unit" in lantern("search", "x", "--newer-than", "2y", code=2).output
    )


def test_an_age_may_be_a_day(lantern):
    everyone = rows(lantern("search", "listener", "--json"))
    assert rows(lantern("search", "listener", "--newer-than", "2001-09-09", "--json")) == everyone
    assert not rows(lantern("search", "listener", "--older-than", "2001-09-09", "--json"))
    assert "is '2001-02-30'; use a number" in lantern("prune", "--older-than", "2001-02-30", code=2).output


def test_prune_by_size_removes_the_oldest_first(lantern, tmp_path):
    said = [{"role": ("user", "assistant")[i % 2], "content": f"{i}: {'old news ' * 400}"} for i in range(800)]
    config = Config(archive=ArchiveConfig(path=tmp_path / "lantern.db"), embed=EmbedConfig(enabled="off"))
    with Lantern(config) as mine:
        tenant = mine.tenant
        mine.archive("old", said, times=[1.6e9 + n for n in range(800)])
    before = rows(lantern("status", "--json"))[0]["size_bytes"]
    preview = rows(lantern("prune", "--keep-mb", "2", "--tenant", tenant, "--dry-run", "--json"))
    assert rows(lantern("prune", "--keep-mb", "2", "--tenant", tenant, "--yes", "--json"))[0]["bytes"] > 1e6
    assert preview[0]["passages"] > 100
    assert rows(lantern("status", "--json"))[0]["size_bytes"] < before
    assert rows(lantern("search", "listener", "--json")), "the newest went, too"
    for condition in (["--keep-mb", "900"], ["--keep-mb", "900", "--older-than", "1d"], ["--older-than", "9000d"]):
        done = rows(lantern("prune", *condition, "--yes", "--json"))
        assert {each["passages"] for each in done} == {0}, "there was nothing to do"


def test_status_counts_what_stands_in_the_log_of_a_running_proxy(lantern, tmp_path):
    config = Config(archive=ArchiveConfig(path=tmp_path / "lantern.db"), embed=EmbedConfig(enabled="off"))
    with Lantern(config) as mine:
        mine.archive("big", [{"role": "user", "content": "said " * 100_000}])
        log_bytes = (tmp_path / "lantern.db-wal").stat().st_size
        assert log_bytes > 500_000
        size_bytes = rows(lantern("status", "--json"))[0]["size_bytes"]
        assert size_bytes >= log_bytes + (tmp_path / "lantern.db").stat().st_size


def test_status_tells_the_last_day(lantern):
    (told,) = rows(lantern("status", "--json"))
    assert sum(day["losses"] for day in told["day"].values()) == 1
    assert "in the last 24 hours" in lantern("status").output


def test_doctor_notices_a_clock_that_stands_behind_the_archive(lantern, tmp_path):
    config = Config(archive=ArchiveConfig(path=tmp_path / "lantern.db"), embed=EmbedConfig(enabled="off"))
    assert {row["state"] for row in rows(lantern("doctor", "--offline", "--json")) if row["name"] == "clock"} == {"ok"}
    for late, said in ((time.time() + 90_000, "25.0 hours in the future"), (time.time() * 1_000, "count no seconds")):
        with Archive(config.archive.path) as archive:
            session = SessionRow(id="late", api="chat", created_at=late, last_seen_at=late)
            request = RequestRow(id="req_late", at=late, api="chat", path="", event="new")
            archive.write([Record(tenant="t", session=session, request=request)])
        (found,) = [row for row in rows(lantern("doctor", "--offline", "--json")) if row["name"] == "clock"]
        assert found["state"] == "warn"
        assert said in found["detail"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_its_shell(lantern, shell):
    assert "_LANTERN_COMPLETE" in lantern("completion", shell).output


def test_bash_completes_commands_and_options():
    environ = {**os.environ, "_LANTERN_COMPLETE": "bash_complete", "COMP_WORDS": "lantern sea", "COMP_CWORD": "1"}
    console = Path(sys.executable).with_name("lantern")
    found = subprocess.run([console], env=environ, capture_output=True, text=True)
    assert "search" in found.stdout


def test_an_import_that_is_stopped_goes_on_where_it_was(lantern, tmp_path, monkeypatch):
    chats = [json.dumps({"messages": [{"role": "user", "content": f"gauge {n} is at {n + 7000}"}]}) for n in range(3)]
    (tmp_path / "chats.jsonl").write_text("\n".join(chats))
    archive, left = Lantern.archive, iter([False, True])

    def stopped(self, *given, **more):
        if next(left):
            raise KeyboardInterrupt
        return archive(self, *given, **more)

    monkeypatch.setenv("SOME_KEY", "sk-some")
    monkeypatch.setattr(Lantern, "archive", stopped)
    told = lantern("import", "chats.jsonl", "--key-env", "SOME_KEY", code=1)
    assert "what was imported stays; the same command goes on" in told.stderr
    monkeypatch.setattr(Lantern, "archive", archive)
    again = rows(lantern("import", "chats.jsonl", "--key-env", "SOME_KEY", "--json"))
    assert [row["messages"] for row in again] == [0, 1, 1]


def test_import_takes_other_programs_logs_once(lantern, tmp_path):
    said = [{"role": "user", "content": "The wombat port is 7777."}, {"role": "assistant", "content": "Noted."}]
    (tmp_path / "mine.jsonl").write_text(json.dumps({"id": "a", "messages": said, "created_at": 1.7e9}))
    tenant = rows(lantern("status", "--json"))[0]["tenants"][0]["id"]
    assert "say whose is meant" in lantern("import", "mine.jsonl", code=2).output
    assert rows(lantern("import", "mine.jsonl", "--tenant", tenant, "--json"))[0]["messages"] == 2
    assert rows(lantern("import", "mine.jsonl", "--tenant", tenant, "--json"))[0]["messages"] == 0
    (hit,) = [row for row in rows(lantern("search", "wombat", "--json")) if row["tenant"] == tenant]
    assert hit["created_at"] == 1.7e9


def test_import_finds_the_client_by_its_key(lantern, tmp_path, monkeypatch):
    (tmp_path / "mine.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "a numbat"}]}))
    monkeypatch.setenv("SOME_KEY", "other")
    lantern("import", "mine.jsonl", "--key-env", "SOME_KEY")
    owners = {row["tenant"] for row in rows(lantern("search", "firewall", "--json"))}
    assert {row["tenant"] for row in rows(lantern("search", "numbat", "--json"))} <= owners
    assert "  user  undated  " in lantern("search", "numbat").output
    assert "NO_SUCH, which is not set" in lantern("import", "mine.jsonl", "--key-env", "NO_SUCH", code=2).output


def test_an_import_of_nothing_says_what_is_known(lantern, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    assert "is no log of" in lantern("import", "x.json", code=1).output


def test_a_dry_run_and_a_no_remove_nothing(lantern):
    before = rows(lantern("status", "--json"))[0]["tenants"]
    lantern("prune", "--session", "chat-one", "--dry-run")
    lantern("prune", "--session", "chat-one", code=1, input="n\n")
    assert rows(lantern("status", "--json"))[0]["tenants"] == before


def test_a_dry_run_of_forget_is_json_alone_when_it_is_asked_for(lantern):
    (would,) = rows(lantern("forget", "--session", "chat-one", "--dry-run", "--json"))
    assert would["removed"]["messages"] == 121
    assert "would remove" in lantern("forget", "--session", "chat-one", "--dry-run").stdout


def test_one_of_a_kind_is_told_in_the_singular(lantern):
    assert "1 message, 1 request, 1 session\n" in lantern("forget", "--session", "chat-two", "--dry-run").stdout
    assert " 1 message, 0 blocks, 1 session, " in lantern("prune", "--session", "chat-two", "--dry-run").stdout


def test_prune_removes_what_it_said_it_would(lantern):
    (would,) = rows(lantern("prune", "--session", "chat-one", "--dry-run", "--json"))
    (did,) = rows(lantern("prune", "--session", "chat-one", "--yes", "--json"))
    assert did == would | {"dry_run": False}
    assert did["messages"] == 121
    assert [row["id"] for row in rows(lantern("sessions", "--json"))] == ["chat-two"]


def test_what_a_prune_that_was_killed_has_left_in_the_files_goes_with_the_same_command(lantern, tmp_path):
    with Archive(tmp_path / "lantern.db") as archive:
        [tenant] = [each.id for each in archive.tenants() if archive.of(each.id).session("chat-one")]
        archive.of(tenant).prune(PruneRule(session="chat-one"), now=time.time(), wiped=False)
    assert "no session begins with chat-one" in lantern("prune", "--session", "chat-one", "--yes", code=1).stderr
    with Archive(tmp_path / "lantern.db", read_only=True) as archive:
        assert not archive.unwiped


def test_prune_by_age_leaves_what_is_younger(lantern):
    (first, second) = rows(lantern("prune", "--older-than", "1h", "--yes", "--json"))
    assert first["messages"] == second["messages"] == 0


@pytest.mark.parametrize(
    "command",
    [
        ("forget", "--project", ""), ("forget", "--match", "firewall", "--project", ""), ("forget", "--session", ""),
        ("forget", "--match", "firewall", "--tenant", ""), ("prune", "--older-than", "0d", "--session", ""),
        ("prune", "--older-than", "0d", "--tenant", ""), ("import", "x.jsonl", "--key-env", ""),
    ],
    ids=" ".join,
)  # fmt: skip
def test_the_name_in_a_variable_that_is_not_set_is_no_name(lantern, command):
    before = lantern("export").stdout
    (Path.cwd() / "x.jsonl").write_text('{"messages": [{"role": "user", "content": "hi"}]}\n')
    yes = () if command[0] == "import" else ("--yes",)
    assert f"'{command[-2]}': it is empty" in lantern(*command, *yes, code=2).stderr
    assert lantern("export").stdout == before


def test_prune_asks_only_where_something_would_go(lantern, tmp_path):
    nothing = lantern("prune", "--older-than", "1h")
    assert "y/N" not in nothing.output
    assert nothing.stdout.count("removed 0 passages") == 2
    told = lantern("prune", "--session", "chat-two", input="n\n", code=1).stderr
    assert "y/N" in told
    assert "nothing was removed; --yes goes on without asking" in told
    Archive(tmp_path / "new.db").close()
    assert lantern("prune", "--older-than", "1h", "--archive", "new.db").stdout == "nothing is archived\n"


def test_an_export_that_finds_no_room_says_where_and_leaves_no_half_of_itself(lantern, tmp_path):
    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    command = [sys.executable, "-m", "lantern_proxy", "export", "--output", "all.jsonl"]
    ran = subprocess.run(command, preexec_fn=little_room, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, "lantern: all.jsonl: file too large")
    assert not (tmp_path / "all.jsonl").exists()


def test_export_writes_everything_once_and_for_its_owner_only(lantern, tmp_path):
    told = rows(lantern("export"))
    kinds = {row["type"] for row in told}
    assert kinds == {"session", "message", "passage", "request", "block"}
    assert sum(row["type"] == "message" for row in told) == 122
    (summary,) = rows(lantern("export", "--output", "all.jsonl", "--json"))
    assert [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()] == told
    assert summary["rows"] == len(told)
    assert (tmp_path / "all.jsonl").stat().st_mode & 0o777 == 0o600
    assert rows(lantern("export", "--output", "-")) == told
    assert "all.jsonl exists" in lantern("export", "--output", "all.jsonl", code=2).stderr


def test_migrate_says_the_version(lantern):
    (told,) = rows(lantern("migrate", "--json"))
    assert told["version"] == len(archive_steps.pending(Database(memory=True))) > 1


def test_reindex_gives_every_passage_a_vector_and_makes_them_anew(lantern, tmp_path, cache_dir):
    (tmp_path / "dense.yaml").write_text(f"embed: {{cache_dir: {cache_dir}}}\n")
    arguments = ["reindex", "--config", "dense.yaml", "--json"]
    lantern("prune", "--session", "chat-one", "--yes")  # two passages are enough to embed
    with Archive(tmp_path / "lantern.db") as archive:
        waiting = len(archive.unembedded(10_000))
    (first,) = rows(lantern(*arguments))
    assert first["embedded"] == waiting > 0
    assert rows(lantern(*arguments))[0]["embedded"] == 0
    assert rows(lantern(*arguments, "--vectors"))[0]["embedded"] == waiting
    assert rows(lantern("status", "--json"))[0]["vectors"] == first["model"]


def test_reindex_without_an_embedder_still_makes_the_full_text_index_anew(lantern, tmp_path):
    (tmp_path / "off.yaml").write_text("embed: {enabled: off}\n")
    (told,) = rows(lantern("reindex", "--config", "off.yaml", "--json"))
    assert (told["embedded"], told["skipped"]) == (0, "the embedder is turned off (embed.enabled)")
    assert rows(lantern("search", "firewall", "--json"))
    refused = lantern("reindex", "--config", "off.yaml", "--vectors", code=1)
    assert refused.stderr == "lantern: the embedder is turned off (embed.enabled)\n"


# doctor


def test_doctor_finds_a_healthy_archive_healthy(lantern):
    told = rows(lantern("doctor", "--offline", "--json"))
    found = {row["name"]: row for row in told}
    assert {"python", "sqlite", "bm25", "embedder", "archive", "pages", "mode", "disk", "proxy"} <= set(found)
    assert not [row for row in told if row["state"] == "bad"]
    assert all(row["remedy"] for row in told if row["state"] != "ok")
    assert "bm25" in lantern("doctor", "--offline", "--deep").output


def test_doctor_finds_a_damaged_archive_bad_and_says_what_to_do(lantern, tmp_path):
    path = tmp_path / "lantern.db"
    damaged = bytearray(path.read_bytes())
    damaged[8192:-4096] = os.urandom(len(damaged) - 12288)
    path.write_bytes(damaged)
    bad = [row for row in rows(lantern("doctor", "--offline", "--json", code=1)) if row["state"] == "bad"]
    assert bad
    assert all(row["remedy"] for row in bad)


def test_doctor_says_when_an_order_was_learned_from_other_vectors_than_those_in_use(lantern, tmp_path):
    shipped, model = open_light("shipped").models[0], "sentence-transformers/all-MiniLM-L6-v2"
    save(replace(shipped, embedder=name_of(model, adapted=True)), tmp_path / "m.npz", {})
    for adapted, state in ("false", "warn"), ("true", "ok"):
        (tmp_path / "l.yaml").write_text(f"rerank: {{light: m.npz}}\nembed: {{adapted: {adapted}}}")
        found = {row["name"]: row for row in rows(lantern("doctor", "--offline", "--json", "--config", "l.yaml"))}
        assert found["reranker"]["state"] == state
    (tmp_path / "l.yaml").write_text("rerank: {light: shipped}\nembed: {adapted: true}")
    found = {row["name"]: row for row in rows(lantern("doctor", "--offline", "--json", "--config", "l.yaml"))}
    assert found["reranker"]["state"] == "ok"


def test_an_order_whose_file_is_missing_is_told_at_the_start(lantern, tmp_path):
    (tmp_path / "l.yaml").write_text("rerank: {light: mine.npz}")
    with socket.create_server(("127.0.0.1", 0)) as busy:
        refused = lantern("serve", "--config", "l.yaml", "--port", busy.getsockname()[1], code=1)
    assert "rerank.light is mine.npz, and there is no such file" in refused.stderr


@pytest.mark.parametrize("model", ["./mine", "models/of/mine", "~/mine", "/mine"])
def test_an_evidence_reranker_that_can_come_from_nowhere_is_told_at_the_start_and_by_doctor(lantern, tmp_path, model):
    (tmp_path / "l.yaml").write_text(f"rerank: {{evidence: {model}}}\nembed: {{cache_dir: cache}}")
    with socket.create_server(("127.0.0.1", 0)) as busy:
        refused = lantern("serve", "--config", "l.yaml", "--port", busy.getsockname()[1], code=1)
    assert f"rerank.evidence is {model}, and there is no such folder" in refused.stderr
    found = {row["name"]: row for row in rows(lantern("doctor", "--offline", "--json", "--config", "l.yaml"))}
    assert found["reranker"]["state"] == "warn"
    assert "train evidence-reranker" in found["reranker"]["remedy"]


@pytest.mark.parametrize(
    ("model", "told"), [("mine", "at the first start, into cache"), ("people/reranker-2.1", "is asked for on the hub")]
)
def test_doctor_says_where_an_evidence_reranker_comes_from(lantern, tmp_path, model, told):
    (tmp_path / "mine").mkdir()
    (tmp_path / "l.yaml").write_text(f"rerank: {{evidence: {model}}}\nembed: {{cache_dir: cache}}")
    found = {row["name"]: row for row in rows(lantern("doctor", "--offline", "--json", "--config", "l.yaml"))}
    assert found["reranker"]["state"] == "ok"
    assert told in found["reranker"]["detail"]


def test_serve_does_not_wait_for_the_weights_of_a_reranker_to_be_read(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.safetensors").write_bytes(b"weights")
    before = evidence.folder_of(str(tmp_path / "mine"), tmp_path)
    (tmp_path / "mine" / "model.safetensors").write_bytes(b"weights, trained again")
    assert evidence.folder_of(str(tmp_path / "mine"), tmp_path) != before
    monkeypatch.setattr(evidence, "folder_of", lambda *_: pytest.fail("they were read"))
    serve._warn_of_rerankers(Config(rerank=RerankConfig(evidence=str(tmp_path / "mine"))))


def test_doctor_finds_models_that_cannot_be_read_or_made(lantern, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "l.yaml").write_text("rerank: {light: none.npz}\nembed: {cache_dir: file/cache}")
    found = {row["name"]: row for row in rows(lantern("doctor", "--offline", "--json", "--config", "l.yaml"))}
    assert (found["reranker"]["state"], found["reranker"]["remedy"]) == (
        "warn",
        "name a file that `lantern train reranker` wrote, or `shipped`",
    )
    assert "none.npz" in found["reranker"]["detail"]
    if available():
        assert found["embedder"]["state"] == "warn"
        assert "file cannot be written" in found["embedder"]["detail"]


def test_doctor_finds_an_open_mode_and_a_missing_folder(lantern, tmp_path):
    (tmp_path / "lantern.db").chmod(0o644)
    found = {row["name"]: row for row in rows(lantern("doctor", "--offline", "--json"))}
    assert (found["mode"]["state"], "chmod 600" in found["mode"]["remedy"]) == ("warn", True)
    found = rows(lantern("doctor", "--offline", "--json", "--archive", "no/where.db", code=1))
    assert any(row["name"] == "archive" and row["state"] == "bad" for row in found)


def test_doctor_finds_a_folder_that_cannot_be_written(lantern, tmp_path):
    (tmp_path / "shut").mkdir()
    shutil.copy(tmp_path / "lantern.db", tmp_path / "shut")
    (tmp_path / "shut").chmod(0o555)
    if os.access(tmp_path / "shut", os.W_OK):
        pytest.skip("root may write anywhere")
    for path, state, code in (("shut/new.db", "bad", 1), ("shut/lantern.db", "warn", 0)):
        found = rows(lantern("doctor", "--offline", "--json", "--archive", path, code=code))
        (told,) = [row for row in found if row["name"] == "archive"]
        assert (told["state"], "shut cannot be written" in told["detail"]) == (state, True)


def test_doctor_tells_an_upstream_that_cannot_be_reached(lantern):
    with socket.create_server(("127.0.0.1", 0)) as listening, unused_port() as closed_port:
        open_port = listening.getsockname()[1]
        environ = {
            "LANTERN_OPENAI_UPSTREAM": f"http://127.0.0.1:{open_port}/v1",
            "LANTERN_ANTHROPIC_UPSTREAM": f"http://127.0.0.1:{closed_port}",
        }
        found = {row["name"]: row for row in rows(lantern("doctor", "--json", env=environ))}
    assert found["openai"]["state"] == "ok"
    assert (found["anthropic"]["state"], bool(found["anthropic"]["remedy"])) == ("warn", True)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("access: {admin_token_file: none}", "access.admin_token_file none cannot be read"),
        ("server: {host: 0.0.0.0}", "server.host is 0.0.0.0, which other machines can reach"),
    ],
)
def test_doctor_tells_what_serve_would_refuse_to_begin_with(lantern, settings, told):
    Path("l.yaml").write_text(settings)
    told_of = rows(lantern("doctor", "--offline", "--json", "--config", "l.yaml", code=1))
    (found,) = [row for row in told_of if row["state"] == "bad"]
    assert (found["name"], found["detail"].startswith(told)) == ("serve", True)
    assert told in lantern("serve", "--config", "l.yaml", code=2).stderr


def test_doctor_and_keys_list_tell_that_nobody_can_come_in(lantern):
    Path("l.yaml").write_text("access: {keys: required}")
    there = ("--config", "l.yaml")

    def of_keys(code):
        found = rows(lantern("doctor", "--offline", "--json", *there, code=code))
        return [(row["state"], row["remedy"]) for row in found if row["name"] == "keys"]

    assert of_keys(1) == [("bad", "`lantern keys add NAME`")]
    assert "lantern.db.keys holds none: every request is refused" in lantern("keys", "list", *there).stdout
    lantern("keys", "add", "alice", *there)
    assert of_keys(0) == []
    lantern("keys", "revoke", "alice", *there)
    assert of_keys(1) == [("bad", "`lantern keys add NAME`")]


def test_doctor_tells_a_file_from_which_no_upstream_key_can_be_read(lantern):
    lantern("keys", "add", "alice", "--upstream-key-file", "alice.key")
    lantern("keys", "add", "bob", "--upstream-key-env", "NOT_SET_HERE")  # it may be where `lantern serve` runs

    def of_keys():
        return [row for row in rows(lantern("doctor", "--offline", "--json")) if row["name"] == "keys"]

    (found,) = of_keys()
    assert (found["state"], "proxy key alice" in found["detail"], bool(found["remedy"])) == ("warn", True, True)
    Path("alice.key").write_text("sk-provider")
    assert of_keys() == []


@pytest.mark.parametrize(("path", "told"), [("", True), ("/", True), ("/v1", False), ("/api/v1", False)])
def test_doctor_tells_an_upstream_that_ends_without_v1(lantern, path, told):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        environ = {"LANTERN_OPENAI_UPSTREAM": f"{base}{path}", "LANTERN_ANTHROPIC_UPSTREAM": base}
        found = {row["name"]: row for row in rows(lantern("doctor", "--json", env=environ))}
    assert (found["openai"]["state"], "add /v1" in found["openai"]["remedy"]) == ("ok", told)
    assert (found["anthropic"]["state"], found["anthropic"]["remedy"]) == ("ok", "")


def test_doctor_tries_the_proxy_that_stands_before_an_upstream(lantern, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as listening, unused_port() as closed_port:
        for name, port in ("http_proxy", listening.getsockname()[1]), ("https_proxy", closed_port):
            monkeypatch.setenv(name, f"http://{'me:any'}@127.0.0.1:{port}")
        environ = {
            "LANTERN_OPENAI_UPSTREAM": "http://model.invalid/v1",
            "LANTERN_ANTHROPIC_UPSTREAM": "https://model.invalid",
        }
        found = {row["name"]: row for row in rows(lantern("doctor", "--json", env=environ))}
    assert (found["openai"]["state"], found["anthropic"]["state"]) == ("ok", "warn")
    assert f"http://127.0.0.1:{closed_port}, the environment's proxy" in found["anthropic"]["detail"]
    assert "HTTPS_PROXY" in found["anthropic"]["remedy"]


@pytest.mark.parametrize(
    ("proxy", "remedy"),
    [
        ("http://[::1", "HTTPS_PROXY"),
        ("http://127.0.0.1:xx", "HTTPS_PROXY"),
        ("socks4://127.0.0.1:{port}", "HTTPS_PROXY"),
        ("socks5://127.0.0.1:{port}", 'pip install "httpx[socks]>=0.28"'),
    ],
)
def test_doctor_tells_a_proxy_that_no_request_can_use(lantern, monkeypatch, proxy, remedy):
    monkeypatch.setitem(sys.modules, "socksio", None)  # as where httpx[socks] is not installed
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("https_proxy", proxy.format(port=listening.getsockname()[1]))
        environ = {
            "LANTERN_OPENAI_UPSTREAM": "https://model.invalid/v1",
            "LANTERN_ANTHROPIC_UPSTREAM": "http://[::1]:1",
        }
        found = {row["name"]: row for row in rows(lantern("doctor", "--json", env=environ))}
    assert found["openai"]["state"] == "warn"
    assert "the proxy that the environment names cannot be used" in found["openai"]["detail"]
    assert remedy in found["openai"]["remedy"]


def test_doctor_says_what_helps_against_what_a_running_proxy_leaves_out(lantern, tmp_path):
    helps = {
        "restore:behind": "wait a moment",
        "restore:resting": "see restore:deadline",
        "rerank:failed": "reranker above",
    }
    health = {"status": "ok", "version": "1", "degraded": dict.fromkeys(helps, 2)}
    with Upstream(answer=respond(200, json.dumps(health).encode(), ("content-type", "application/json"))) as proxy:
        (tmp_path / "l.yaml").write_text(f"server: {{port: {proxy.url.rpartition(':')[2]}}}")
        found = rows(lantern("doctor", "--offline", "--json", "--config", "l.yaml"))
    told = {row["detail"].partition(": ")[0]: row["remedy"] for row in found if row["name"] == "degraded"}
    assert told.keys() == helps.keys()
    assert all(helps[reason] in remedy for reason, remedy in told.items())


def test_whatever_may_be_left_out_has_its_remedy_in_doctor_and_its_line_in_the_documentation():
    source = "\n".join(
        path.read_text() for part in ("proxy", "restore") for path in (ROOT / "lantern_proxy" / part).glob("*.py")
    )
    families = "restore|session|record|answer|request|dense|late|rerank|light|archive"
    found = set(re.findall(rf'"((?:{families}):[a-z_-]+)"', source))
    stages = set(re.findall(r'_failing_open\(exchange, "(\w+)"\)', source)) - {"listen"}  # after all is told
    found |= {f"{stage}:error" for stage in stages} | {f"{kind}:failed" for kind in re.findall(r'f"(\w+):\{', source)}
    assert {"restore:digest", "session:error", "rerank:failed", "dense:failed", "archive:slow"} <= found
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    told = set(re.findall(r"`([a-z]+:[a-z_.-]+)`", text[text.index("## What was skipped") :]))
    for reason in found:
        family = reason.partition(":")[0] + ":"
        assert {reason, family} & doctor.REMEDIES.keys(), reason
        assert {reason, f"{family}..."} & told, reason
    named = {reason for reason in doctor.REMEDIES if not reason.endswith(":")}
    assert named - {"dense:warming"} <= found  # a state of the embedder


def test_doctor_goes_on_where_an_archive_cannot_be_looked_at(lantern, tmp_path):
    (tmp_path / "l.yaml").write_text("archive: {key_file: none}")
    found = {row["name"]: row for row in rows(lantern("doctor", "--offline", "--json", "--config", "l.yaml", code=1))}
    assert (found["archive"]["state"], found["proxy"]["state"]) == ("bad", "ok")
    assert found["archive"]["detail"].startswith("archive.key_file none cannot be read")


@pytest.mark.parametrize(("folder", "file"), [(0o000, 0o600), (0o700, 0o000)])
def test_doctor_goes_on_where_an_archive_is_another_users(lantern, tmp_path, folder, file):
    (tmp_path / "shut").mkdir()
    Path(shutil.copy(tmp_path / "lantern.db", tmp_path / "shut")).chmod(file)
    (tmp_path / "shut").chmod(folder)
    if os.access(tmp_path / "shut" / "lantern.db", os.R_OK):
        pytest.skip("root may read anything")
    found = rows(lantern("doctor", "--offline", "--json", "--archive", "shut/lantern.db", code=1))
    (tmp_path / "shut").chmod(0o700)
    assert [row["state"] for row in found if row["name"] in ("archive", "proxy")] == ["bad", "ok"]


def test_doctor_tells_why_the_proxy_keeps_nothing(lantern, tmp_path):
    (tmp_path / "other").mkdir()
    path = tmp_path / "other/lantern.db"
    path.write_text("no archive")
    with Upstream() as upstream, process(config_for(upstream, tmp_path / "other")):
        found = rows(lantern("doctor", "--offline", "--json", "--archive", str(path), code=1))
    (told,) = [row["detail"] for row in found if row["name"] == "proxy" and row["state"] == "bad"]
    assert told.startswith(f"answers pass, but nothing is kept; archive {path} is not a lantern archive")


@pytest.mark.parametrize(
    ("host", "upstream"), [("127.0.0.1", "localhost"), ("localhost", "127.0.0.1"), ("0.0.0.0", "localhost")]
)
def test_serve_does_not_take_itself_for_its_upstream(lantern, tmp_path, host, upstream):
    with unused_port() as port:
        pass
    (tmp_path / "l.yaml").write_text(f"server: {{host: {host}, port: {port}}}\naccess: {{keys: 'off'}}\n")
    url = f"http://{upstream}:{port}/v1"
    refused = lantern("serve", "--config", "l.yaml", env={"LANTERN_OPENAI_UPSTREAM": url}, code=2)
    assert refused.stderr.startswith(f"lantern: upstream.openai is {url}, which is this lantern itself;")


def test_certificates_that_cannot_be_used_are_told_by_doctor_and_at_the_start(lantern, monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    found = {row["name"]: row for row in rows(lantern("doctor", "--offline", "--json", code=1))}
    assert found["certificates"]["state"] == "bad"
    assert "SSL_CERT_FILE is" in found["certificates"]["detail"]
    refused = lantern("serve", "--port", "0", code=2)
    assert refused.stderr.startswith(f"lantern: SSL_CERT_FILE is {tmp_path / 'none.pem'}, which cannot be used")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", certifi.where())
    found = {row["name"]: row for row in rows(lantern("doctor", "--offline", "--json"))}
    assert found["certificates"]["state"] == "ok"


# serve


@contextmanager
def served(tmp_path, *arguments, upstream):
    environ = os.environ | {"LANTERN_OPENAI_UPSTREAM": f"{upstream}/v1", "LANTERN_ARCHIVE": str(tmp_path / "served.db")}
    (tmp_path / "off.yaml").write_text("embed: {enabled: off}\n")
    command = [sys.executable, "-m", "lantern_proxy", "serve", "--port", "0", "--config", str(tmp_path / "off.yaml")]
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True, env=environ)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_serve_answers_requests_at_the_address_that_it_prints(lantern, tmp_path):
    said, answered = SCRIPT.turns[0]
    body = {"model": "m", "messages": [{"role": "user", "content": said}]}
    with demo.serving(demo.upstream(SCRIPT)) as upstream, served(tmp_path, "--json", upstream=upstream) as process:
        url = json.loads(process.stdout.readline())["url"]
        page = httpx.get(f"{url}/lantern", follow_redirects=True)
        assert (page.url.path, page.headers["content-type"]) == ("/lantern/ui", "text/html; charset=utf-8")
        stranger = httpx.get(f"{url}/lantern/ui", headers={"host": "elsewhere.example"})
        assert f"use {url}/lantern/ui" in stranger.text  # the port it got, not the 0 it was asked for
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers={"authorization": "Bearer k"})
        assert answer.json()["choices"][0]["message"]["content"] == answered
        assert answer.headers["x-lantern-event"] == "new"
        port = url.rpartition(":")[2]
        (told,) = rows(lantern("status", "--json", "--archive", tmp_path / "served.db", env={"LANTERN_PORT": port}))
        assert told["proxy"]["status"]
        assert [tenant["messages"] for tenant in told["tenants"]] == [2]
        doctor = rows(lantern("doctor", "--offline", "--json", env={"LANTERN_PORT": port}))
        assert any(row["name"] == "proxy" and "runs for" in row["detail"] for row in doctor)
    assert process.returncode == 0


def test_serve_prints_the_lines_to_paste(tmp_path):
    with demo.serving(demo.upstream(SCRIPT)) as upstream, served(tmp_path, upstream=upstream) as process:
        told = "".join(iter(process.stdout.readline, "\n"))  # to the first empty line
        told += "".join(process.stdout.readline() for _ in range(2))
        assert "export OPENAI_BASE_URL=http://127.0.0.1:" in told
        assert "export ANTHROPIC_BASE_URL=http://127.0.0.1:" in told
        assert str(tmp_path / "served.db") in told
        assert "/lantern/ui" in told


def test_serve_on_a_port_that_is_taken_says_so_in_one_line(lantern):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = lantern("serve", "--port", port, code=1)
    assert f"cannot listen on 127.0.0.1 port {port} (address already in use);" in result.stderr
    assert "--port" in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("demo",), "the demo makes an archive of its own; --keep FOLDER keeps it"),
        (("bench", "routes"), "no such option '--archive'"),
        (("train", "reranker"), "no such option '--archive'"),
    ],
)
def test_commands_that_look_into_no_archive_refuse_to_be_given_one(lantern, words, told):
    assert told in lantern(*words, "--archive", "lantern.db", code=2).stderr


def test_serve_at_an_address_of_another_machine_names_the_option_that_helps(lantern):
    lantern("keys", "add", "alice")
    result = lantern("serve", "--host", "203.0.113.7", "--port", 0, code=1)
    assert "cannot listen on 203.0.113.7 port 0 (" in result.stderr
    assert result.stderr.endswith("); choose an address of this machine with --host\n")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("archive: {key_file: none}", "archive.key_file none"),
        ("access: {admin_token_file: none}", "access.admin_token_file none"),
    ],
)
def test_serve_without_a_file_that_its_config_names_says_so_and_nothing_else(lantern, tmp_path, settings, told):
    (tmp_path / "l.yaml").write_text(settings)
    result = lantern("serve", "--port", 0, "--config", "l.yaml", code=2)
    assert result.stdout == ""
    wrong = "cannot be read (no such file or directory); name a file that this user may read"
    assert result.stderr == f"lantern: {told} {wrong}\n"


WITHOUT_OTEL = "import sys; sys.modules['opentelemetry'] = None; from lantern_proxy.cli.main import cli; cli()"


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_status_that_is_watched_through_a_pipe_goes_on_until_it_is_closed_or_stopped(made, tmp_path, more):
    run = [sys.executable, "-m", "lantern_proxy", "status", "--watch", *more]
    environ = os.environ | {"LANTERN_ARCHIVE": shutil.copy(made, tmp_path / "l.db"), "PYTHONUNBUFFERED": "1"}
    for end in (lambda process: process.stdout.close(), lambda process: process.send_signal(signal.SIGINT)):
        with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ) as process:
            begun, again = process.stdout.readline(), b""
            while begun[:9] != again[:9]:
                again = process.stdout.readline()
            end(process)
            assert process.wait(timeout=60) in (0, -signal.SIGPIPE)
            assert process.stderr.read() == b""


def test_a_start_that_fails_ends_with_its_reason_and_status_alone(tmp_path):
    (tmp_path / "l.yaml").write_text(
        f"trace: {{otlp_endpoint: 'http://127.0.0.1:9'}}\nembed: {{enabled: 'off'}}\narchive: {{path: {tmp_path}/l.db}}"
    )
    command = [sys.executable, "-c", WITHOUT_OTEL, "serve", "--port", "0"]
    ended = subprocess.run(
        [*command, "--config", str(tmp_path / "l.yaml")], capture_output=True, text=True, timeout=120
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr == 'lantern: trace.otlp_endpoint needs OpenTelemetry; pip install "lantern-proxy[otel]"\n'


def test_ctrl_c_ends_serve_quietly(tmp_path):
    with demo.serving(demo.upstream(SCRIPT)) as upstream, served(tmp_path, "--json", upstream=upstream) as process:
        url = json.loads(process.stdout.readline())["url"]
        assert httpx.get(f"{url}/lantern/health").status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0


def test_ctrl_c_while_python_still_imports_shows_no_traceback(tmp_path):
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    found = subprocess.run([sys.executable, "-m", "lantern_proxy"], env=environ, capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (1, "", "lantern: stopped\n")


def test_the_console_script_and_the_module_are_the_same_command():
    told = subprocess.run(
        [sys.executable, "-m", "lantern_proxy", "--version"], capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith("lantern, version ")
    assert isinstance(cli.cli, click.Group)


def test_the_readme_names_only_commands_and_options_that_exist():
    text = (Path(__file__).parent.parent / "README.md").read_text()
    named = re.findall(r"(?:`|\$ )lantern ([a-z]+)([^`\n]*)", text)
    assert {"serve", "demo", "why", "doctor"} <= {name for name, _ in named}
    for name, rest in named:
        parameters = cli.cli.get_command(ASKED, name).params
        options = {option for each in parameters for option in [*each.opts, *each.secondary_opts]}
        assert set(re.findall(r"--[a-z-]+", rest)) <= options, name


def test_the_example_configuration_serves_as_it_is(lantern):
    example = Path(__file__).parent.parent / "config.example.yaml"
    assert rows(lantern("status", "--json", "--config", example))


@pytest.mark.parametrize("arguments", [[], ["bench"], ["train"], ["keys"]])
def test_a_command_that_is_only_begun_shows_its_help(arguments):
    result = CliRunner().invoke(cli.cli, arguments)
    assert result.exit_code == 2
    assert "\nOptions:\n" in result.output
    assert not result.output.startswith("lantern:")


def test_why_last_finds_the_last_block_however_much_was_asked_since(lantern):
    with Archive("lantern.db") as archive:
        (tenant,) = [each.id for each in archive.tenants() if each.messages > 1]
        session, at = SessionRow(id="chat-one", api="chat", created_at=1.0, last_seen_at=1.0), time.time() + 60
        later = [
            RequestRow(id=f"later_{n}", at=at + n, api="chat", path="", event="turn", restored=n % 2)
            for n in range(600)
        ]
        archive.write([Record(tenant=tenant, session=session, request=each) for each in later])
    assert json.loads(lantern("why", "last", "--json").stdout)["request"]["id"] == "req_1"
    with Lantern(Config(embed=EmbedConfig(enabled="off")), tenant=tenant) as mine:
        assert mine.why("last").request.id == "req_1"
    with Lantern(Config(embed=EmbedConfig(enabled="off")), user="somebody else") as other:
        assert other.why("last") is None


def test_why_tells_what_a_person_asked_not_what_the_client_wrote_around_it(lantern):
    with Archive("lantern.db") as archive:
        (tenant,) = [each.id for each in archive.tenants() if each.messages > 1]
        session = SessionRow(id="chat-one", api="chat", created_at=1.0, last_seen_at=1.0)
        query = f"<command-name>\n/compact\n</command-name>\n<state>\n{'open: a.py ' * 90}\n</state>\nWhich gate?"
        row = RequestRow(id="dressed", at=1.0, api="chat", path="", event="compacted", restored=1, query=query)
        archive.write([Record(tenant=tenant, session=session, request=row)])
    assert "asked: Which gate?\n" in lantern("why", "dressed").stdout
    assert ", asked: Which gate?  dressed" in lantern("show", "chat-one").stdout


@pytest.mark.parametrize("dry", [["prune", "--older-than", "1d"], ["forget", "--match", "abcd"]])
def test_a_dry_run_makes_no_archive_of_an_empty_file(tmp_path, dry):
    (tmp_path / "empty.db").touch()
    done = CliRunner().invoke(cli.cli, [*dry, "--dry-run", "--archive", str(tmp_path / "empty.db")])
    assert done.exit_code == 1
    assert "empty file" in done.output
    assert [(each.name, each.stat().st_size) for each in tmp_path.iterdir()] == [("empty.db", 0)]
