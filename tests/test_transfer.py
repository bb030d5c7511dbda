"""Export and import: what comes out goes in again, and restores work after."""

import hashlib
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from scripted import Upstream, ask, body, config_for, serving
from test_archive import MINE, NASTY, OTHER, amiss, block, passage, passed_over, record

from lantern_proxy import Lantern, chunk
from lantern_proxy.archive import Archive, ArchiveError, ForgetRule
from lantern_proxy.archive.transfer import import_rows
from lantern_proxy.cli import main as cli
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig, RestoreConfig
from lantern_proxy.turn import Placed


def plainly(archive: Archive, tenant: str):
    """An export as JSON brings it back, with passages numbered as they come: their ids are an archive's own."""
    numbers: dict[int, int] = {}
    rows = [json.loads(json.dumps(row)) for row in archive.of(tenant).export()]
    for row in rows:
        if row["type"] == "passage":
            row["id"] = numbers.setdefault(row["id"], len(numbers) + 1)
        if row["type"] == "edit":
            row["passage"] = numbers.get(row["passage"])
        for told in row["restored"]["placed"] if row["type"] == "block" else row.get("passed", ()):
            told["passage"]["id"] = numbers.get(told["passage"]["id"], 0)
            told |= {"other": numbers[told["other"]], "why": ""} if told.get("reason") == "echo" else {}
    return rows


@pytest.fixture
def full(tmp_path):
    """Every kind of row, and text of every kind."""
    with Archive(tmp_path / "one.db") as archive:
        kept = [p for (p,) in archive.write([record(n, text[:5_000]) for n, text in enumerate(NASTY)])]
        archive.write([record(20, "of another session", session="s2"), record(21, "theirs", tenant=OTHER)])
        placed = [Placed(passage=p, text=p.text, rank=1, score=0.5, signals={"bm25": 1.0}) for p in kept[:2]]
        left = [passed_over(kept[2], "echo", other=kept[0].id), passed_over(kept[3], "budget")]
        archive.write([record(30, blocks=(block(placed),), passages=(passage(31, "t", unit="turn"),), passed=left)])
        mine = archive.of(MINE)
        mine.reinforce({kept[0].id: (0.8, 0.7, 3, 9.0)})
        mine.edit(chunk.reword(mine.passages_by_id([kept[4].id])[kept[4].id], "reworded"), now=5.0)
        mine.edit(chunk.reword(mine.passages_by_id([kept[4].id])[kept[4].id], "reworded twice"), now=6.0)
        mine.feedback("", kept[5].id, "wrong", now=7.0)
        mine.pin(kept[3].id, now=8.0)
        yield archive


def test_an_export_that_is_taken_in_gives_the_same_export(full, tmp_path):
    rows = [json.loads(json.dumps(row)) for row in full.of(MINE).export()]
    assert {row["type"] for row in rows} == {"session", "message", "passage", "edit", "request", "block"}
    with Archive(tmp_path / "two.db") as other:
        counts = import_rows(other, "alice", rows, now=99.0)
        assert counts["message"] == sum(row["type"] == "message" for row in rows)
        assert plainly(other, "alice") == plainly(full, MINE)
        assert [tenant.id for tenant in other.tenants()] == ["alice"]
        assert not amiss(other)
        assert other.of("alice").search("reworded twice")
        import_rows(other, "alice", rows, now=99.0)
        assert plainly(other, "alice") == plainly(full, MINE)


def test_what_was_not_cut_yet_is_cut_where_it_is_taken_in(tmp_path):
    left = record(1, "the vault number is XYLOPHONE-42", passages=(), uncut=(f"{1:032x}",))
    with Archive(tmp_path / "one.db") as killed, Archive(tmp_path / "two.db") as other:
        killed.write([left, record(2, "and it is in the cellar")])
        import_rows(other, "alice", list(killed.of(MINE).export()), now=99.0)
        [uncut] = other.uncut()
        assert [filed.message.text for filed in uncut.messages] == ["the vault number is XYLOPHONE-42"]
        assert plainly(other, "alice") == plainly(killed, MINE)


def test_an_import_joins_what_is_there_and_touches_nobody_else(full):
    before = plainly(full, OTHER)
    rows = [json.loads(json.dumps(row)) for row in full.of(MINE).export()]
    import_rows(full, "alice", rows, now=1.0)
    assert plainly(full, OTHER) == before
    assert plainly(full, "alice") == plainly(full, MINE)


@pytest.mark.parametrize("recipe", ["default", "lantern"])  # the latter cuts summaries of turns, anew when one grows
def test_an_older_export_leaves_what_is_there_as_it_is(tmp_path, recipe):
    def told(at, text):
        return {"role": ("user", "assistant")[at % 2], "content": text}

    said = ["The port of orders is 9443.", "Noted.", "Billing listens on 7001.", "Noted.", "Thanks!"]
    kept, off = ArchiveConfig(path=tmp_path / "lantern.db"), EmbedConfig(enabled="off")
    with Lantern(Config(archive=kept, embed=off, restore=RestoreConfig(recipe=recipe))) as lantern:
        lantern.archive("s", [told(at, text) for at, text in enumerate(said[:1])])
        mine = lantern._archive.of(lantern.tenant)
        older = [json.loads(json.dumps(row)) for row in mine.export()]
        lantern.archive("s", [told(at, text) for at, text in enumerate(said)])
        lantern.archive("s", [told(0, "Summary: ports were settled."), told(2, "What next?")])
        id_ = next(p.id for p in mine.passages("s") if "9443" in p.text)
        lantern.feedback(id_, "useful")
        mine.pin(id_, now=1.0)
        before = list(mine.export())
        import_rows(lantern._archive, lantern.tenant, older, now=2.0)
        assert list(mine.export()) == before
        with Archive(tmp_path / "other.db") as other:
            for rows in (older, [json.loads(json.dumps(row)) for row in before], older):
                import_rows(other, "alice", rows, now=3.0)
            assert other.of("alice").head("s") == mine.head("s")
            assert mine.head("s").lost


@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_a_newer_export_that_was_stopped_brings_its_summaries_when_it_is_taken_in_again(tmp_path, monkeypatch, stop):
    kept, off = ArchiveConfig(path=tmp_path / "lantern.db"), EmbedConfig(enabled="off")
    said = [{"role": role, "content": f"The {role} speaks of port 9443."} for role in ("user", "assistant", "user")]
    with Lantern(Config(archive=kept, embed=off)) as lantern:
        exports = []
        for n in (1, 3):
            lantern.archive("s", said[:n])
            exports.append([json.loads(json.dumps(row)) for row in lantern._archive.of(lantern.tenant).export()])
    with Archive(tmp_path / "other.db") as other:
        import_rows(other, "alice", exports[0], now=1.0)
        write, left = other.write, iter(range(stop))

        def stopped(records):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return write(records)

        with monkeypatch.context() as patch:
            patch.setattr(other, "write", stopped)
            with pytest.raises(KeyboardInterrupt):
                import_rows(other, "alice", exports[1], now=2.0)
        import_rows(other, "alice", exports[1], now=3.0)
        wanted = [row["text"] for row in exports[1] if row["type"] == "passage" and row["unit"] == "turn"]
        assert sorted(p.text for p in other.of("alice").passages("s", unit="turn")) == sorted(wanted)


@pytest.mark.parametrize("part", [1_000, 1_000_000])
def test_times_in_milliseconds_or_less_come_in_as_seconds(full, tmp_path, part):
    """Programs could archive such once, and what was archived can be exported and taken in elsewhere."""

    def said(rows, times):
        if isinstance(rows, dict):
            return {
                key: (1.75e9 + value) * times if key.endswith("at") else said(value, times)
                for key, value in rows.items()
            }
        return [said(each, times) for each in rows] if isinstance(rows, list) else rows

    rows = [json.loads(json.dumps(row)) for row in full.of(MINE).export()]
    exports = []
    for times in (1, part):
        with Archive(tmp_path / f"{times}.db") as other:
            import_rows(other, "alice", said(rows, times), now=2e9)
            exports.append(plainly(other, "alice"))
    assert exports[0] == exports[1]
    assert all(1.75e9 <= row["created_at"] < 1.76e9 for row in exports[1] if row["type"] == "message")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: rows[1].pop("key"), "line 2 of the export is no message.*required field .key"),
        (lambda rows: rows[0].update(type="table"), "line 1 of the export is no row"),
        (lambda rows: rows.pop(0), "line 1 of the export is no row"),
        (lambda rows: rows[1].update(print="xyz"), "line 2 of the export is no message"),
        (lambda rows: rows[0].pop("head"), "line 1 of the export is no session"),
        (lambda rows: next(r for r in rows if r["type"] == "passage").update(tags=None), "is no passage of an export"),
        (lambda rows: next(r for r in rows if r["type"] == "request").update(degraded=1.5), "is no request of an exp"),
        (lambda rows: rows[0].update(id=1.5), "line 1 of the export is no session"),
        (lambda rows: rows[0].update(altered={"key": ["xyz"]}), "line 1 of the export is no session"),
        (lambda rows: rows[0].update(last_seen_at=float("inf")), "line 1 of the export.*last_seen_at is inf"),
        (lambda rows: rows[1].update(created_at=1e21), "line 2 of the export is no message.*use Unix seconds"),
        (lambda rows: rows[1].update(created_at=float("nan")), "line 2 of the export is no message"),
        (lambda rows: rows[1].update(position="one"), "line 2 of the export is no message"),
        (lambda rows: next(r for r in rows if r["type"] == "request").update(lost=10**30), "stored: .* large"),
    ],
)
def test_a_row_that_is_none_is_told_by_its_line(full, tmp_path, spoil, said):
    rows = [json.loads(json.dumps(row)) for row in full.of(MINE).export()]
    spoil(rows)
    with Archive(tmp_path / "two.db") as other, pytest.raises(ArchiveError, match=said):
        import_rows(other, "alice", rows, now=1.0)


def run(*arguments, code=0):
    result = CliRunner().invoke(cli.cli, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result


def test_after_a_move_to_another_machine_a_conversation_goes_on_and_restores_work(tmp_path):
    said: list[str] = []
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            for text in ("The vault number is XYLOPHONE-42, keep it.", "thanks", "go on", "and on", "more"):
                said += [text, ask(url, body(*said, text)).json()["choices"][0]["message"]["content"]]

        run("export", "--output", tmp_path / "out.jsonl", "--archive", config.archive.path)
        (tmp_path / "new").mkdir()
        moved = config_for(upstream, tmp_path / "new", tenants={"alice": {"keys_sha256": [SHA_OF_SK_ONE]}})
        told = run("import", tmp_path / "out.jsonl", "--tenant", "alice", "--archive", moved.archive.path)
        assert "alice: 1 session, 10 messages" in told.output
        with serving(moved) as url:
            ask(url, body(*said[-2:], "what is the vault number?"))
            assert "XYLOPHONE-42" in upstream.got[-1].texts
        lines = (tmp_path / "out.jsonl").read_text().splitlines()
        (tmp_path / "bad").write_text("\n".join([lines[0], "not json"]))
        assert "line 2 of" in run("import", tmp_path / "bad", "--archive", moved.archive.path, code=1).stderr
        both = run("import", tmp_path / "out.jsonl", tmp_path / "new", "--archive", moved.archive.path, code=2)
        assert "one after the other" in both.stderr


def test_an_import_tells_how_much_of_an_export_is_new_and_which_file_and_line_is_at_fault(tmp_path):
    with Archive(tmp_path / "one.db") as archive:
        archive.write([record(0, tenant="alice"), record(1, tenant="alice")])
        messages = len(archive.of("alice").messages(archive.of("alice").sessions()[0].id))
    out = tmp_path / "out.jsonl"
    run("export", "--output", out, "--archive", tmp_path / "one.db")
    out.write_text(out.read_text() + "\n \n")  # as an editor leaves it
    told = [run("import", out, "--archive", tmp_path / "two.db").output.splitlines()[-1] for _ in range(2)]
    assert [each.rpartition(": ")[2] for each in told] == [f"{messages} messages", "0 messages"]

    lines = out.read_text().splitlines()
    out.write_text("\n".join([lines[0], "", *lines[1:]]))
    assert f"line 2 of {out}" in run("import", out, "--archive", tmp_path / "two.db", code=1).stderr
    out.write_text("\n".join([lines[0], lines[1].replace('"role"', '"rule"', 1)]))
    assert f"line 2 of {out} is no message" in run("import", out, "--archive", tmp_path / "two.db", code=1).stderr


@pytest.mark.parametrize("place", ["-", "/dev/stdin"])
def test_a_pipe_is_not_imported_since_a_file_is_read_more_than_once(tmp_path, place):
    command = [sys.executable, "-m", "lantern_proxy", "import", place, "--archive", str(tmp_path / "two.db")]
    done = subprocess.run(command, input=b'{"messages": []}', capture_output=True, timeout=60)
    assert (done.returncode, f"{place} is no file" in done.stderr.decode()) == (2, True)


def test_an_export_of_another_archive_is_for_the_client_whose_key_is_named_and_else_that_is_said(tmp_path, monkeypatch):
    """Tenants are named under each archive's own secret: under the names of another one no client finds anything."""
    monkeypatch.setenv("MY_KEY", "sk-one")

    with Archive(tmp_path / "one.db") as archive:
        theirs = archive.tenant_of("sk-one")
        archive.write([record(0, tenant=theirs)])
    run("export", "--output", tmp_path / "out.jsonl", "--archive", tmp_path / "one.db")

    def take(*options, to="two.db", code=0):
        return run("import", tmp_path / "out.jsonl", "--archive", tmp_path / to, *options, code=code).stderr

    told = take()
    assert theirs in told
    assert "--key-env" in told
    assert (take(to="one.db"), take("--tenant", "alice")) == ("", "")
    assert take("--key-env", "MY_KEY") == ""
    with Archive(tmp_path / "two.db", read_only=True) as archive:
        assert {each.id for each in archive.tenants()} == {theirs, "alice", archive.tenant_of("sk-one")}
    assert "NO_KEY, which is not set" in take("--key-env", "NO_KEY", code=2)
    assert "give one" in take("--key-env", "MY_KEY", "--tenant", "alice", code=2)


def test_several_tenants_of_an_export_become_one_only_where_that_is_said(tmp_path):
    def take(*options, code=0):
        done = CliRunner().invoke(cli.cli, ["import", str(out), "--archive", str(tmp_path / "two.db"), *options])
        assert done.exit_code == code, done.output
        return done.output

    with Archive(tmp_path / "one.db") as archive:
        archive.write([record(n, tenant=f"t{n}", session=f"s{n}") for n in range(8)])
        texts = [json.dumps({"tenant": f"t{n}", **row}) for n in range(8) for row in archive.of(f"t{n}").export()]
    out = tmp_path / "out.jsonl"
    out.write_text("\n".join(texts))
    told = take("--tenant", "me", code=2)
    assert "holds 8 tenants, who would become one: t" in told
    assert "and 3 more; say with --from" in told
    assert "--from is t9, who has nothing in" in take("--from", "t9", code=2)
    assert "--project and --dry-run cannot be used with" in take("--dry-run", "--project", "p", code=2)
    assert not (tmp_path / "two.db").exists()
    take("--from", "t1", "--from", "t2", "--tenant", "me")
    take("--from", "t3")
    with Archive(tmp_path / "two.db", read_only=True) as archive:
        held = {each.id: {row.id for row in archive.of(each.id).sessions()} for each in archive.tenants()}
    assert held == {"me": {"s1", "s2"}, "t3": {"s3"}}
    (tmp_path / "log.jsonl").write_text('{"role": "user", "content": "hi"}\n')
    out = tmp_path / "log.jsonl"
    assert "--from is for what `lantern export` wrote" in take("--from", "t1", code=2)


def test_sessions_of_one_name_of_two_tenants_are_not_made_one(tmp_path):
    def take(*files, code=0, **options):
        words = [word for name, values in options.items() for value in values for word in (f"--{name}", value)]
        done = CliRunner().invoke(cli.cli, ["import", *map(str, files), "--archive", str(tmp_path / "two.db"), *words])
        assert done.exit_code == code, done.output
        return done.output

    with Archive(tmp_path / "one.db") as archive:
        archive.write([record(n, tenant=tenant, session="chat") for n, tenant in enumerate(("t1", "t2"))])
        archive.write([record(2, tenant="t2", session="own")])
        parts = {t: [json.dumps({"tenant": t, **row}) for row in archive.of(t).export()] for t in ("t1", "t2")}
    for name, rows in (*parts.items(), ("all", [*parts["t1"], *parts["t2"]])):
        (tmp_path / name).write_text("\n".join(rows))
    told = "t1 and t2 both have a session chat, and the two would become one; import t2 by itself, for another tenant"
    assert told in take(tmp_path / "all", **{"from": ("t1", "t2")}, tenant=("me",), code=2)
    assert told in take(tmp_path / "t1", tmp_path / "t2", tenant=("me",), code=2)
    assert not (tmp_path / "two.db").exists()
    take(tmp_path / "all", **{"from": ("t1", "t2")})
    take(tmp_path / "t1", tmp_path / "t1", tenant=("me",))  # one and the same twice
    with Archive(tmp_path / "two.db", read_only=True) as archive:
        held = {each.id: {row.id: row.messages for row in archive.of(each.id).sessions()} for each in archive.tenants()}
    assert held == {"t1": {"chat": 1}, "t2": {"chat": 1, "own": 1}, "me": {"chat": 1}}


SHA_OF_SK_ONE = hashlib.sha256(b"sk-one").hexdigest()


def test_an_export_of_several_tenants_is_counted_and_its_faults_are_placed_as_a_whole(tmp_path):
    def run(*arguments, code=0):
        result = CliRunner().invoke(cli.cli, [str(each) for each in arguments])
        assert result.exit_code == code, result.output
        return result

    with Archive(tmp_path / "one.db") as archive:
        archive.write([record(0), record(1, session="s2"), record(2, session="s3", tenant=OTHER)])
    run("export", "--output", tmp_path / "out.jsonl", "--archive", tmp_path / "one.db")
    both = ("--from", MINE, "--from", OTHER, "--tenant", "alice")
    told = run("import", tmp_path / "out.jsonl", *both, "--archive", tmp_path / "two.db", "--json")
    counts = json.loads(told.stdout)
    assert (counts["session"], counts["message"], counts["passage"]) == (3, 3, 3)
    rows = (tmp_path / "out.jsonl").read_text().splitlines()
    last = json.loads(rows[-1])["tenant"]
    rows.append(json.dumps({"tenant": last, "type": "nonsense"}))
    (tmp_path / "bad.jsonl").write_text("\n".join(rows))
    refused = run("import", tmp_path / "bad.jsonl", "--archive", tmp_path / "two.db", code=1)
    assert f"line {len(rows)} of {tmp_path / 'bad.jsonl'} is no row of an export" in refused.stderr


@pytest.mark.parametrize(
    "rule", [ForgetRule(match="ZEBRA-4711"), ForgetRule(session="s"), ForgetRule(project="p"), ForgetRule()]
)
@pytest.mark.parametrize("title", ["", "What ZEBRA-4711 is for"])
def test_an_older_export_brings_nothing_back_that_was_forgotten(tmp_path, rule, title):
    config = Config(archive=ArchiveConfig(path=tmp_path / "a.db"), embed=EmbedConfig(enabled="off"))
    secret = "my code is ZEBRA-4711 for the deploy of orders on host db7, remember it please"
    with Lantern(config, project="p") as lantern:
        said = [{"role": "user", "content": secret}, {"role": "assistant", "content": "Noted, and kept where it is."}]
        lantern.archive("s", said, title=title)
        lantern.archive("s", [*said, {"role": "user", "content": "Which host was that?"}])
    with Archive(config.archive.path) as archive:
        mine = archive.of(lantern.tenant)
        rows = [json.loads(json.dumps(row)) for row in mine.export()]
        receipt = archive.forget(lantern.tenant, rule, now=1.0)
        for _ in range(2):
            import_rows(archive, lantern.tenant, rows, now=2.0)
        assert archive.verify(receipt).present == 0
        assert "ZEBRA" not in json.dumps(list(mine.export()))
        assert mine.search("ZEBRA") == []
        assert bool(mine.search("host")) == (rule.kind == "match")


def test_a_time_that_no_calendar_has_is_undated_and_keeps_nobody_from_the_rest(tmp_path):
    """As in an archive that took one in before it was refused."""
    with Archive(tmp_path / "one.db") as archive:
        archive.write([record(0, "the port is 9443")])
        with archive.writing() as db:
            for table, column in ("sessions", "last_seen_at"), ("messages", "created_at"), ("passages", "created_at"):
                db.execute(f"UPDATE {table} SET {column} = 1e400")
    for command in ["status"], ["sessions"], ["search", "9443"], ["show", "s1"]:
        assert "undated" in run(*command, "--archive", tmp_path / "one.db").output


def test_a_line_that_names_no_tenant_is_told_by_its_number(full, tmp_path):
    rows = [{"tenant": MINE, **row} for row in full.of(MINE).export()]
    del rows[2]["tenant"]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("import", tmp_path / "all.jsonl", "--archive", tmp_path / "two.db", code=1)
    assert "line 3 of" in done.output
    assert "all.jsonl names no tenant; name one with --tenant" in done.output
