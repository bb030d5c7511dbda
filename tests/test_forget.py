"""Forgetting, by the bytes: what is forgotten is in no file, in no index, in no running proxy, and stays out."""

import asyncio
import json
import shutil
import threading
import time
from unicodedata import normalize

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec import structs
from msgspec.structs import asdict, replace
from scripted import (
    Upstream,
    archive_bytes,
    ask,
    body,
    completion,
    config_for,
    echo,
    http,
    lantern_headers,
    respond,
    serving,
    wait_for,
)
from test_archive import amiss

from lantern_proxy import Lantern
from lantern_proxy.archive import Archive, ArchiveError, ForgetRule, Receipt, Record, SessionRow
from lantern_proxy.archive.raw import occurrences
from lantern_proxy.archive.retention import leap, retain, would_retain
from lantern_proxy.cli import main as cli
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig
from lantern_proxy.config.safety import PrivacyConfig
from lantern_proxy.history import shared_prefix

SECRET = "the XYLOPHONE-42 ships on friday to Køge"
OTHER = "the MARIMBA-43 stays in the harbour of Aarhus"


def vector(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal(8).astype(np.float32)


def embed(archive: Archive) -> dict[int, bytes]:
    """Vectors for all passages; passage id -> its bytes."""
    rows, packed = [], {}
    for tenant, id_, _ in archive.unembedded(1_000):
        session = archive.of(tenant).passages_by_id([id_])[id_].session
        rows.append((tenant, session, id_, vector(id_)))
        packed[id_] = vector(id_).tobytes()
    if rows:
        archive.add_vectors("m", 8, rows)
    return packed


@pytest.fixture
def made(tmp_path):
    """Two tenants, projects and sessions, through the real proxy, with vectors; yields (config, sessions by name)."""
    sessions = {}
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            for name, text, key, project in (
                ("mine", SECRET, "sk-one", "p1"), ("beside", OTHER, "sk-one", "p2"), ("theirs", SECRET, "sk-two", "p1"),
            ):  # fmt: skip
                sent = body(f"remember: {text}", "ok", f"again, {text}?")
                answer = ask(url, sent, key=key, x_lantern_project=project, x_lantern_session=name)
                sessions[name] = lantern_headers(answer)["session"]
        yield config, sessions


def tenant_with(archive: Archive, session: str) -> str:
    return next(t.id for t in archive.tenants() if archive.of(t.id).session(session))


RULES = {
    "session": lambda sessions: ForgetRule(session=sessions["mine"]),
    "project": lambda sessions: ForgetRule(project="p1"),
    "match": lambda sessions: ForgetRule(match="xylophone-42"),
    "tenant": lambda sessions: ForgetRule(),
}


@pytest.mark.parametrize("kind", RULES)
def test_what_is_forgotten_is_in_none_of_the_bytes(made, kind):
    config, sessions = made
    path = config.archive.path
    with Archive(path) as archive:
        packed = embed(archive)
        for other in [tenant_with(archive, sessions["theirs"])]:  # so that nobody else holds the text
            archive.forget(other, ForgetRule(), now=1.0)
        tenant = tenant_with(archive, sessions["mine"])
        mine = {p.id for p in archive.of(tenant).passages() if "XYLOPHONE" in p.text}
        assert mine
        assert any(packed[i] in archive_bytes(path) for i in mine)
        receipt = archive.forget(tenant, RULES[kind](sessions), now=2.0)
        assert receipt.removed["messages"] == {"tenant": 8, "match": 3}.get(kind, 4)
        assert receipt.removed["vectors"] >= len(mine)
        assert not archive.of(tenant).search("XYLOPHONE")
        raw = archive_bytes(path)
        for text in (b"XYLOPHONE-42", b"xylophone", b"xylophon", "Køge".encode(), b"K\\u00f8ge"):
            assert text not in raw
        assert not [i for i in mine if packed[i] in raw]
        if kind != "tenant":
            assert b"MARIMBA-43" in raw
            assert archive.of(tenant).search("MARIMBA")
        assert not amiss(archive)
    assert b"XYLOPHONE-42" not in archive_bytes(path)


def test_a_session_is_forgotten_with_its_side_calls_and_without_others_whose_names_begin_like_its_own(tmp_path):
    config = Config(archive=ArchiveConfig(path=tmp_path / "lantern.db"), embed=EmbedConfig(enabled="off"))
    with Lantern(config) as lantern:
        for session in ("user", "user.alice", "user.bob"):
            lantern.archive(session, [{"role": "user", "content": f"{session} has a boat in the harbour of Aarhus"}])
        beside = [
            SessionRow(id=f"{id_}.side", api="chat", parent=id_, created_at=1.0, last_seen_at=1.0)
            for id_ in ("user", "user.bob")
        ]
        lantern._archive.write([Record(tenant=lantern.tenant, session=each, request=None) for each in beside])
        lantern._archive.forget(lantern.tenant, ForgetRule(session="user"), now=time.time())
        left = {s.id for s in lantern._archive.of(lantern.tenant).sessions()}
        assert left == {"user.alice", "user.bob", "user.bob.side"}


def test_a_verdict_and_a_pin_stay_as_long_as_another_session_of_the_project_says_the_same(tmp_path):
    config = Config(archive=ArchiveConfig(path=tmp_path / "lantern.db"), embed=EmbedConfig(enabled="off"))
    with Lantern(config) as lantern, Lantern(config, project="apart") as apart:
        for session in ("one", "two"):
            lantern.archive(session, [{"role": "user", "content": SECRET}])
        apart.archive("three", [{"role": "user", "content": SECRET}])
        archive, mine = lantern._archive, lantern._archive.of(lantern.tenant)
        one, two, three = (mine.passages(session)[0].id for session in ("one", "two", "three"))
        mine.feedback("", one, "wrong", now=1.0)
        for each in (one, three):
            mine.pin(each, now=1.0)
        archive.forget(lantern.tenant, ForgetRule(session="one"), now=2.0)
        marked = mine.passages_by_id([two])[two]
        assert (marked.verdict, marked.pinned) == ("wrong", True)
        assert {each.passage.id for each in mine.marked()} == {two, three}
        archive.forget(lantern.tenant, ForgetRule(session="two"), now=3.0)
        assert {each.passage.id for each in mine.marked()} == {three}
        archive.forget(lantern.tenant, ForgetRule(match="XYLOPHONE"), now=4.0)
        with archive.reading() as db:
            assert not db.execute("SELECT count(*) FROM marks").fetchone()[0]


@pytest.mark.parametrize("kind", RULES)
def test_a_dry_run_counts_the_same_and_removes_nothing(made, kind):
    config, sessions = made
    with Archive(config.archive.path) as archive:
        tenant = tenant_with(archive, sessions["mine"])
        before = list(archive.of(tenant).export())
        dry = archive.forget(tenant, RULES[kind](sessions), now=2.0, dry_run=True)
        assert list(archive.of(tenant).export()) == before
        assert archive.forget(tenant, RULES[kind](sessions), now=2.0).removed == dry.removed


def test_nobody_elses_rows_are_touched(made):
    config, sessions = made
    with Archive(config.archive.path) as archive:
        theirs = tenant_with(archive, sessions["theirs"])
        before = list(archive.of(theirs).export())
        archive.forget(tenant_with(archive, sessions["mine"]), ForgetRule(match="XYLOPHONE"), now=1.0)
        archive.forget(tenant_with(archive, sessions["mine"]), ForgetRule(), now=1.0)
        assert list(archive.of(theirs).export()) == before


def test_a_receipt_proves_what_is_gone_and_a_changed_one_nothing(made):
    config, sessions = made
    with Archive(config.archive.path) as archive:
        tenant = tenant_with(archive, sessions["mine"])
        receipt = Receipt.read(
            json.dumps(asdict(archive.forget(tenant, ForgetRule(session=sessions["mine"]), now=1.0)))
        )
        assert len(receipt.marks) >= 4
        assert (archive.verify(receipt).genuine, archive.verify(receipt).present) == (True, 0)
        assert not archive.verify(structs.replace(receipt, at=2.0)).genuine
        assert not archive.verify(structs.replace(receipt, removed={"messages": 99})).genuine
        assert "XYLOPHONE" not in json.dumps(asdict(receipt))
        early = archive.forget(tenant, ForgetRule(match="MARIMBA"), now=1.0, dry_run=True)
        assert archive.verify(early).present == len(early.marks) > 0
    told = asdict(receipt)
    for row in (
        {},
        told | {"signature": "\u00e9"},
        told | {"signature": 5},
        told | {"marks": ["xy"]},
        told | {"by": "x"},
        [told],
        None,
    ):
        with pytest.raises(ArchiveError, match="no receipt"):
            Receipt.read(json.dumps(row))


@pytest.mark.parametrize("held", [b"", b"\n \n", b"\xe3\x00", b"[" * 100_000])
def test_what_is_no_receipt_verifies_nothing(lantern, tmp_path, held):
    (tmp_path / "receipt.json").write_bytes(held)
    told = lantern[0]("forget", "--verify", tmp_path / "receipt.json", code=1)
    assert f"{tmp_path}/receipt.json: this is no receipt of `lantern forget`" in told.stderr


def test_what_is_named_beside_a_receipt_is_looked_for_as_well(lantern, tmp_path):
    run, *_ = lantern
    gone = run("forget", "--match", "XYLOPHONE", "--yes").stdout
    (tmp_path / "receipt.json").write_text(gone)
    verify = ("forget", "--verify", tmp_path / "receipt.json")
    assert "nothing of match XYLOPHONE is in" in run(*verify, "--match", "XYLOPHONE").stdout
    still = run(*verify, "--match", "MARIMBA", code=1).stdout
    assert "receipt is genuine; 0 of" in still
    assert "3 messages" in still
    assert json.loads(run(*verify, "--project", "p2", "--json", code=1).stdout.splitlines()[-1])["here"]["messages"] > 0


def test_text_inside_arguments_and_escapes_is_found(tmp_path):
    inner = json.dumps({"path": 'C:\\keys\\"DEEP-91".txt', "lines": ["a\nb"]})
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": inner}}
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            called = {"role": "assistant", "tool_calls": [call], "content": None}
            done = {"role": "tool", "tool_call_id": "c1", "content": "done"}
            ask(url, body({"role": "user", "content": "go"}, called, done))
    with Archive(config.archive.path) as archive:
        (tenant,) = archive.tenants()
        assert archive.forget(tenant.id, ForgetRule(match='C:\\keys\\"deep-91"'), now=1.0).removed["messages"] == 1
    assert b"DEEP-91" not in archive_bytes(config.archive.path)


@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC")])
def test_letters_with_marks_are_found_in_either_normal_form(tmp_path, forms):
    said, wanted = (normalize(form, "José Núñez") for form in forms)
    with Lantern(Config(archive=ArchiveConfig(path=tmp_path / "a.db"), embed=EmbedConfig(enabled="off"))) as lantern:
        lantern.archive("chat", [{"role": "user", "content": f"I met {said} at the gate."}])
        lantern.archive("other", [{"role": "user", "content": "I met Jose Nunez at the gate."}])
        archive, tenant = lantern._archive, lantern.tenant
        assert occurrences(archive.path, wanted) > 0
        [receipt] = archive.forget_all([tenant], ForgetRule(match=wanted.upper()), now=1.0)
        assert (receipt.removed["messages"], receipt.removed["passages"]) == (1, 2)  # with the summary of its turn
        assert receipt.what == archive.forget(tenant, ForgetRule(match=said), now=2.0, dry_run=True).what
        assert occurrences(archive.path, said) == 0


@pytest.mark.parametrize("wrong", [{"match": "ab"}, {"match": " \n\t  "}, {"session": "s", "project": "p"}])
def test_a_rule_that_would_take_too_much_or_says_two_things_is_refused(wrong):
    with pytest.raises(ArchiveError):
        ForgetRule(**wrong)


def test_occurrences_counts_over_the_borders_of_what_is_read(tmp_path):
    path = tmp_path / "x.db"
    path.write_bytes(b"a" * ((1 << 22) - 3) + b"NEEDLE" + b"b" * 100 + b"NEEDLE")
    assert occurrences(path, "NEEDLE") == 2


def test_a_text_that_only_names_a_session_is_not_said_to_be_gone(lantern):
    run, _, sessions = lantern
    told = run("forget", "--match", "beside", "--yes", code=1).stderr
    assert "name of a session, project or tool" in told
    run("forget", "--session", sessions["beside"], "--yes")
    told = run("forget", "--match", "beside", "--yes", code=1).stderr
    assert "places" not in told


# a running proxy

LOST = ["The vault number is XYLOPHONE-42, keep it.", "The harbour crane is MARIMBA-43, note that.",
        "The third pier opens at 07:45 on weekdays."]  # fmt: skip


def lost_history(url, key="sk-one", session="s-live"):
    """A conversation whose beginning is then dropped; the answer to a question about it."""
    said: list[str] = []
    for text in [*LOST, "thanks", "go on"]:
        answer = ask(url, body(*said, text), key=key, x_lantern_session=session)
        said += [text, answer.json()["choices"][0]["message"]["content"]]
    return said


def question(said, about):
    return body({"role": "user", "content": "Summary: we spoke of a harbour."}, *[], said[-1], f"what is the {about}?")


def in_memory(text: str) -> bool:
    """Does a history that was compared last hold it?"""
    return any(text in m.text for messages, _ in shared_prefix._known for m in messages)


def test_a_running_proxy_restores_forgotten_text_no_more_and_takes_it_in_no_more(tmp_path):
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            said = lost_history(url)
            first = lantern_headers(ask(url, question(said, "vault number"), x_lantern_session="s-live"))
            assert "XYLOPHONE-42" in upstream.got[-1].texts, first
            assert in_memory("XYLOPHONE-42")
            result = CliRunner().invoke(
                cli.cli, ["forget", "--match", "XYLOPHONE", "--yes", "--archive", str(config.archive.path)]
            )
            assert result.exit_code == 0, result.output
            again = question(said, "vault number")
            ask(url, again, x_lantern_session="s-live")
            assert "XYLOPHONE-42" not in upstream.got[-1].texts  # neither replayed nor restored anew
            assert not in_memory("XYLOPHONE-42")
            ask(url, question(said, "harbour crane"), x_lantern_session="s-live")
            assert "MARIMBA-43" in upstream.got[-1].texts  # the rest still comes back
            ask(url, body(*said, "and now the whole history once more"), x_lantern_session="s-live")
            wait_for(lambda: http.get(f"{url}/lantern/health").json()["archive"]["waiting"] == 0)
            assert b"XYLOPHONE-42" not in archive_bytes(config.archive.path)
            receipt = tmp_path / "receipt.json"
            receipt.write_text("".join(line + "\n" for line in result.stdout.splitlines() if line.startswith("{")))
            verified = CliRunner().invoke(
                cli.cli, ["forget", "--verify", str(receipt), "--archive", str(config.archive.path)]
            )
            assert verified.exit_code == 0, verified.output
            assert "genuine" in verified.output


def test_a_forgotten_session_goes_on_without_its_past(tmp_path):
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            said = lost_history(url)
            with Archive(config.archive.path) as archive:
                (tenant,) = archive.tenants()
                (row,) = archive.of(tenant.id).sessions()
                archive.forget(tenant.id, ForgetRule(session=row.id), now=time.time())
            time.sleep(0.6)
            ask(url, body(*said, "NEWER-44 came after it"), x_lantern_session="s-live")
        raw = archive_bytes(config.archive.path)
        assert b"XYLOPHONE-42" not in raw
        assert b"MARIMBA-43" not in raw
        assert b"NEWER-44" in raw


def test_what_a_message_that_stays_repeats_of_a_forgotten_one_is_still_found(tmp_path):
    """A session has each text once, under the message that said it first."""
    again = " ".join(f"Pier {n} of the harbour opens at {n}:07 on weekdays." for n in range(1, 23))
    first = " ".join([SECRET, *(f"Number {n} is of no interest." for n in range(40))]) + f"\n\n{again}"
    with Upstream(answer=respond(200, completion("noted"))) as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            ask(url, body(first, "noted", again), x_lantern_session="s-live")
            with Archive(config.archive.path) as archive:
                mine = archive.of(archive.tenant_of("sk-one"))
                wait_for(lambda: mine.search("Pier 22"))
                assert [hit.passage.position for hit in mine.search("Pier 22")] == [0]
                archive.forget(mine.tenant, ForgetRule(match="XYLOPHONE"), now=time.time())
                wait_for(lambda: mine.search("Pier 22"))
                assert [hit.passage.position for hit in mine.search("Pier 22")] == [2]
                wait_for(lambda: not archive.uncut())
                assert not mine.search("XYLOPHONE")


def summary_of(url, said):
    """The answer to a client that asks for a summary of what was said."""
    answer = ask(url, body(*said, "Create a detailed summary of our conversation so far, to continue from it."))
    return answer.json()["choices"][0]["message"]["content"]


def test_a_session_of_which_all_was_forgotten_keeps_no_other_from_being_known_after_a_restart(tmp_path):
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            ask(url, body("the password is CELESTA-45"), x_lantern_session="older")
            summary = summary_of(url, lost_history(url))
        with Archive(config.archive.path) as archive:
            archive.forget(archive.tenant_of("sk-one"), ForgetRule(match="CELESTA-45"), now=time.time())
            assert 0 in {row.messages for row in archive.of(archive.tenant_of("sk-one")).sessions()}
        with serving(config) as url:
            sent = body({"role": "user", "content": f"We go on. {summary}"}, "ok", "what is the vault number?")
            del sent["messages"][1]  # without an answer in it, only the text leads to its session
            assert lantern_headers(ask(url, sent))["event"] == "compacted"
            assert "XYLOPHONE-42" in upstream.got[-1].texts


def test_a_block_of_what_a_forgotten_session_said_too_is_kept_and_rides_on_after_a_restart(tmp_path):
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            for key in ("other", "s-live"):
                said = lost_history(url, session=key)
                session = lantern_headers(ask(url, body(*said, f"of {key}"), x_lantern_session=key))["session"]
                if key == "other":
                    forgotten = session
            with Archive(config.archive.path) as archive:
                archive.forget(archive.tenant_of("sk-one"), ForgetRule(session=forgotten), now=time.time())
            time.sleep(0.6)
            sent = question(said, "vault number")
            told = lantern_headers(ask(url, sent, x_lantern_session="s-live"))
            assert "XYLOPHONE-42" in upstream.got[-1].texts
            before = upstream.got[-1].data["messages"]
        with Archive(config.archive.path) as archive:
            assert archive.of(archive.tenant_of("sk-one")).why(told["request"]).blocks
        with serving(config) as url:
            ask(url, sent | {"messages": [*sent["messages"], *body("x", "I heard: it", "go on")["messages"][1:]]},
                x_lantern_session="s-live")  # fmt: skip
            assert upstream.got[-1].data["messages"][: len(before)] == before


def test_an_answer_that_was_under_way_is_archived_whatever_was_forgotten_meanwhile(tmp_path):
    """A proxy then lets go of all that it remembers, of whomever."""
    begun, go_on = threading.Event(), threading.Event()

    async def late(got, wire):
        if "MARIMBA-43" in got.texts:
            begun.set()
            await asyncio.to_thread(go_on.wait, 60)
        await echo(got, wire)

    with Upstream(answer=late) as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            ask(url, body("something else"), key="sk-two", x_lantern_session="other")
            sent = body("tell me of MARIMBA-43")
            asking = threading.Thread(target=lambda: ask(url, sent, x_lantern_session="s-live"))
            asking.start()
            assert begun.wait(60)
            with Archive(config.archive.path) as archive:
                archive.forget(archive.tenant_of("sk-two"), ForgetRule(), now=1.0)
            time.sleep(0.6)
            ask(url, body("and this"), key="sk-three", x_lantern_session="third")
            go_on.set()
            asking.join()
            wait_for(lambda: http.get(f"{url}/lantern/health").json()["archive"]["waiting"] == 0)
        assert b"I heard: tell me of MARIMBA-43" in archive_bytes(config.archive.path)


# the terminal


@pytest.fixture
def lantern(made, monkeypatch):
    config, sessions = made
    monkeypatch.setenv("LANTERN_ARCHIVE", str(config.archive.path))

    def run(*arguments, code=0, **options):
        result = CliRunner().invoke(cli.cli, list(map(str, arguments)), **options)
        assert result.exit_code == code, result.output
        return result

    return run, config, sessions


def test_forget_asks_tells_and_leaves_a_receipt(lantern):
    run, config, _ = lantern
    assert "forget needs" in run("forget", code=2).stderr
    assert "nothing of" in run("forget", "--match", "no such text", code=1).stderr
    assert "would remove" in run("forget", "--match", "XYLOPHONE", "--dry-run").output
    run("forget", "--match", "XYLOPHONE", input="n\n", code=1)
    assert b"XYLOPHONE-42" in archive_bytes(config.archive.path)
    done = run("forget", "--match", "XYLOPHONE", "--yes")
    assert len([line for line in done.stdout.splitlines() if line.startswith("{")]) == 2  # of both tenants
    assert b"XYLOPHONE-42" not in archive_bytes(config.archive.path)


@pytest.mark.parametrize(
    ("name", "pattern"), [("copy-2026-11-22.db", "copy-*.db"), (".mine.partial.db", ".mine.partial.db")]
)
def test_known_backups_forget_too(lantern, tmp_path, name, pattern):
    run, config, _ = lantern
    copy = tmp_path / name
    shutil.copy(config.archive.path, copy)
    (tmp_path / "c.yaml").write_text(f"archive: {{backups: ['{tmp_path}/{pattern}']}}\n")
    assert b"XYLOPHONE-42" in archive_bytes(copy)
    run("forget", "--match", "XYLOPHONE", "--yes", "--config", tmp_path / "c.yaml")
    assert b"XYLOPHONE-42" not in archive_bytes(copy)


@pytest.mark.parametrize("end", ["", ".whole"])
def test_what_a_killed_backup_left_is_told(lantern, tmp_path, end):
    run, config, _ = lantern
    left = tmp_path / f".copy-1.db.4711.partial{end}"
    shutil.copy(config.archive.path, left)
    (tmp_path / "c.yaml").write_text(f"archive: {{backups: ['{tmp_path}/copy-*.db']}}\n")
    told = run("forget", "--match", "XYLOPHONE", "--yes", "--config", tmp_path / "c.yaml", code=1).stderr
    assert f"{left}: is a copy under way, or what a killed one left" in told
    assert b"XYLOPHONE-42" not in archive_bytes(config.archive.path)
    left.unlink()
    told = run("forget", "--match", "XYLOPHONE", "--yes", "--config", tmp_path / "c.yaml", code=1).stderr
    assert "nothing of" in told
    assert "killed one" not in told


@pytest.mark.parametrize("pattern", ["", "/", "copies/**", "cop*/a.db"])
def test_backups_that_name_no_file_are_refused(lantern, tmp_path, pattern):
    (tmp_path / "c.yaml").write_text(f"archive: {{backups: ['{pattern}']}}\n")
    told = lantern[0]("forget", "--match", "XYLOPHONE", "--yes", "--config", tmp_path / "c.yaml", code=2).stderr
    assert "archive.backups" in told
    assert "name files of one folder" in told


def test_a_folder_among_the_backups_is_told(lantern, tmp_path):
    (tmp_path / "copies").mkdir()
    (tmp_path / "c.yaml").write_text(f"archive: {{backups: ['{tmp_path}/copies']}}\n")
    told = lantern[0]("forget", "--match", "XYLOPHONE", "--yes", "--config", tmp_path / "c.yaml", code=1).stderr
    assert "is a folder; name the copies in it" in told


def test_a_backup_that_ends_while_it_is_asked_is_forgotten_in(lantern, tmp_path, monkeypatch):
    run, config, _ = lantern
    copy = tmp_path / "copy-1.db"
    (tmp_path / "c.yaml").write_text(f"archive: {{backups: ['{tmp_path}/copy-*.db']}}\n")
    monkeypatch.setattr("click.confirm", lambda *_, **__: shutil.copy(config.archive.path, copy))
    run("forget", "--match", "XYLOPHONE", "--config", tmp_path / "c.yaml")
    assert b"XYLOPHONE-42" not in archive_bytes(copy)


@pytest.fixture
def with_backups(lantern, tmp_path):
    """(run with a config that names backups, their folder with one good copy)"""
    run, config, _ = lantern
    folder = tmp_path / "copies"
    folder.mkdir()
    shutil.copy(config.archive.path, folder / "b.db")
    (tmp_path / "c.yaml").write_text(f"archive: {{backups: ['{folder}/*']}}\n")
    return lambda *args, **more: run(*args, "--config", tmp_path / "c.yaml", **more), folder


def test_a_backup_that_cannot_be_read_costs_neither_the_receipt_nor_the_other_backups(with_backups, lantern):
    run, folder = with_backups
    (folder / "a.txt").write_text("notes about the backups\n")
    (folder / "c.txt").write_text("")
    (folder / "d").mkdir()
    done = run("forget", "--match", "XYLOPHONE", "--yes", code=1)
    assert len([line for line in done.stdout.splitlines() if line.startswith("{")]) == 2
    assert b"XYLOPHONE-42" not in archive_bytes(lantern[1].archive.path)
    assert b"XYLOPHONE-42" not in archive_bytes(folder / "b.db")
    assert "a.txt" in done.stderr
    assert "2 of 3 backups" in done.stderr
    assert not (folder / "c.txt").read_bytes()


def test_what_only_a_backup_holds_is_forgotten_there(with_backups):
    run, folder = with_backups
    before = (folder / "b.db").read_bytes()
    shutil.copy(folder / "b.db", folder / "z.db")
    run("forget", "--match", "XYLOPHONE", "--yes")
    (folder / "b.db").write_bytes(before)
    would = run("forget", "--match", "XYLOPHONE", "--dry-run")
    assert "b.db: would remove" in would.stderr
    assert (folder / "b.db").read_bytes() == before
    run("forget", "--match", "XYLOPHONE", input="n\n", code=1)
    assert b"XYLOPHONE-42" in archive_bytes(folder / "b.db")
    assert "b.db: removed" in run("forget", "--match", "XYLOPHONE", "--yes").stderr
    assert b"XYLOPHONE-42" not in archive_bytes(folder / "b.db")
    assert "nothing of" in run("forget", "--match", "XYLOPHONE", "--yes", code=1).stderr


def test_a_backup_that_holds_nothing_of_it_is_not_written(with_backups):
    run, folder = with_backups
    run("forget", "--match", "XYLOPHONE", "--yes")
    before = (folder / "b.db").read_bytes(), (folder / "b.db").stat().st_mtime_ns
    run("forget", "--match", "MARIMBA", "--tenant", "t_nobody", "--yes", code=1)
    assert before == ((folder / "b.db").read_bytes(), (folder / "b.db").stat().st_mtime_ns)


def test_what_a_cut_left_of_a_match_in_titles_and_questions_goes_too(tmp_path):
    config = Config(archive=ArchiveConfig(path=tmp_path / "a.db"), embed=EmbedConfig(enabled="off"))
    phrase = "Correct-horse-battery-staple-9931"
    with Lantern(config) as lantern:
        for name, front in (("title", "x" * 60), ("question", "x " * 985)):
            lantern.archive(name, [{"role": "user", "content": f"{front} {phrase} opens it"}])
        for name, text in (("beside", "y" * 77 + " co and more"), ("short", "it was correct")):
            lantern.archive(name, [{"role": "user", "content": text}])
    with Archive(config.archive.path) as archive:
        archive.forget(lantern.tenant, ForgetRule(match=phrase), now=1.0)
        titles = {row.id: row.title for row in archive.of(lantern.tenant).sessions()}
    assert titles == {"title": "", "question": ("x " * 40), "beside": "y" * 77 + " co", "short": "it was correct"}
    assert b"Correct-" not in archive_bytes(config.archive.path)


# retention


@pytest.fixture
def aged(tmp_path):
    """Twenty sessions of one tenant, a day apart, the newest now."""
    from test_archive import record

    now = 1_800_000_000.0
    with Archive(tmp_path / "lantern.db") as archive:
        for day in range(20):
            made = record(day, f"day {day} " + "x" * 20_000, session=f"s{day}")
            at = now - day * 86_400
            filed = tuple(structs.replace(each, created_at=at) for each in made.messages)
            passages = tuple(replace(each, created_at=at) for each in made.passages)
            row, request = replace(made.session, last_seen_at=at, created_at=at), replace(made.request, at=at)
            archive.write([replace(made, messages=filed, passages=passages, session=row, request=request)])
        yield archive, now


@pytest.mark.parametrize(
    ("keep", "left"), [({"keep_days": 4.5}, 5), ({"keep_messages": 7}, 7), ({"keep_days": 100}, 20), ({}, 20)]
)
def test_what_is_too_old_or_too_much_goes_oldest_first(aged, keep, left):
    archive, now = aged
    told = would_retain(archive, PrivacyConfig(**keep), now=now)
    (tenant,) = archive.tenants()
    assert (tenant.messages, told.messages) == (20, 20 - left)
    retain(archive, PrivacyConfig(**keep), now=now)
    (tenant,) = archive.tenants()
    assert (tenant.messages, tenant.sessions) == (left, left)
    assert {row.id for row in archive.of(tenant.id).sessions()} == {f"s{day}" for day in range(left)}


def test_a_clock_that_leaps_ahead_removes_nothing_unless_it_stays_there(aged, caplog):
    archive, now = aged
    keep, day = PrivacyConfig(keep_days=30), 86_400
    for at in (now, now + 600, now + 10 * day):  # what a machine that was turned off for a week shows, too
        assert leap(archive, now=at) is None
        retain(archive, keep, now=at)
    assert archive.tenants()[0].messages == 20

    later = now + 20_000 * day
    assert would_retain(archive, keep, now=later).messages == 0
    for at in (later, later + 600):
        retain(archive, keep, now=at)
        assert leap(archive, now=at).by_s == 19_990 * day  # type: ignore[union-attr]
    assert caplog.text.count("two rounds of retention lie 19,990 days apart by this clock") == 1
    retain(archive, PrivacyConfig(keep_messages=15), now=later)  # by their order, and not by the clock
    assert archive.tenants()[0].messages == 15

    retain(archive, keep, now=now + 11 * day)  # set right
    assert leap(archive, now=now + 11 * day) is None
    retain(archive, keep, now=later)
    retain(archive, keep, now=later + 4 * day)  # it stayed
    assert archive.tenants() == []


def test_a_clock_that_leaps_again_or_is_set_back_too_little_removes_nothing_either(aged):
    archive, now = aged
    keep, day = PrivacyConfig(keep_days=30), 86_400
    later = now + 7_300 * day
    for at in (now, now + 20 * day, now + 21 * day, later, later - 3_600, later + 2 * day):
        retain(archive, keep, now=at)
        assert archive.tenants()[0].messages == 20
    retain(archive, keep, now=later + 4 * day)
    assert archive.tenants() == []


def test_a_round_that_comes_once_a_month_removes_what_is_old_every_other_time(aged):
    archive, now = aged
    left = []
    for month in range(3):
        retain(archive, PrivacyConfig(keep_days=30), now=now + month * 31 * 86_400)
        left.append(sum(tenant.messages for tenant in archive.tenants()))
    assert left == [20, 20, 0]


@pytest.fixture
def dated(tmp_path):
    """An archive, and how something is said in it at a time by the clock."""
    from test_archive import block, record

    def say(number: int, at: float) -> None:
        made = record(number, f"number {number}", session=f"s{number}")
        filed = tuple(structs.replace(each, created_at=at) for each in made.messages)
        passages = tuple(replace(each, created_at=at) for each in made.passages)
        row, request = replace(made.session, last_seen_at=at, created_at=at), replace(made.request, at=at)
        blocks = (block([], session=f"s{number}", request=made.request.id, created_at=at),)
        archive.write([replace(made, messages=filed, passages=passages, session=row, request=request, blocks=blocks)])

    def left() -> set[str]:
        found = set()
        for mine in (archive.of(tenant.id) for tenant in archive.tenants()):
            for row in mine.sessions():
                assert len(mine.blocks(row.id)) == len(mine.passages(row.id)) == 1
                found |= {filed.message.text for filed in mine.messages(row.id)}
        return found

    with Archive(tmp_path / "lantern.db") as archive:
        yield archive, say, left


@pytest.mark.parametrize("seen", [True, False], ids=["a round saw the clock that was behind", "none did"])
def test_what_came_while_the_clock_was_a_year_behind_stays_as_long_as_what_came_beside_it(dated, seen):
    archive, say, left = dated
    keep, now, day = PrivacyConfig(keep_days=30), 1.8e9, 86_400
    say(1, now)
    retain(archive, keep, now=now)
    say(2, now - 365 * day)
    if seen:
        retain(archive, keep, now=now - 365 * day + 600)
    say(3, now + day)
    for days in range(1, 29):
        assert would_retain(archive, keep, now=now + days * day).messages == 0
        retain(archive, keep, now=now + days * day)
        assert left() == {"number 1", "number 2", "number 3"}
    for days, more in ((30.5, {"number 2", "number 3"}), (35, set())):  # a clock that leapt is in doubt for three days
        assert would_retain(archive, keep, now=now + days * day).messages == len(left() - more)
        retain(archive, keep, now=now + days * day)
        assert left() == more


def test_a_round_writes_its_marks_only_where_they_changed(dated):
    archive, say, _ = dated
    keep, now, day = PrivacyConfig(keep_days=30), 1.8e9, 86_400
    with archive.writing() as db:
        db.execute("CREATE TABLE marked (value TEXT)")
        db.execute("""CREATE TRIGGER marking AFTER INSERT ON settings WHEN NEW.name = 'archived'
            BEGIN INSERT INTO marked VALUES (NEW.value); END""")

    def marked() -> int:
        with archive.reading() as db:
            return int(db.execute("SELECT count(*) FROM marked").fetchone()[0])

    say(1, now)
    retain(archive, keep, now=now)
    assert marked() == 1
    for hours in (0.2, 1, 5, 20):
        retain(archive, keep, now=now + hours * 3_600)
    assert marked() == 1
    say(2, now + day)
    assert would_retain(archive, keep, now=now + day).messages == 0
    assert marked() == 1
    retain(archive, keep, now=now + day)
    assert marked() == 2


def test_what_is_imported_counts_from_then_and_what_was_there_at_the_first_round_from_when_it_was_said(dated):
    archive, say, left = dated
    keep, now, day = PrivacyConfig(keep_days=30), 1.8e9, 86_400
    say(1, now - 100 * day)
    say(2, now)
    retain(archive, keep, now=now)
    assert left() == {"number 2"}
    say(3, now - 100 * day)
    for days in range(1, 30):
        retain(archive, keep, now=now + days * day)
        assert left() == {"number 2", "number 3"}
    retain(archive, keep, now=now + 31 * day)
    assert left() == set()


def test_a_clock_that_was_a_year_ahead_for_a_month_and_was_set_right_keeps_nothing_longer(dated):
    archive, say, left = dated
    keep, now, day = PrivacyConfig(keep_days=30), 1.8e9, 86_400
    say(1, now)
    for days in (0, 365, 366, 370, 380, 394):
        retain(archive, keep, now=now + days * day)
    say(2, now + 394 * day)
    retain(archive, keep, now=now + 395 * day)
    say(3, now + 30 * day)
    for days in range(30, 60):
        retain(archive, keep, now=now + days * day)
    assert left() == {"number 2", "number 3"}
    for days in range(60, 66):  # it was three days until the clock was believed again
        retain(archive, keep, now=now + days * day)
    assert left() == {"number 2"}  # which says of itself that it is young


def test_what_came_while_the_clock_was_ahead_takes_no_place_among_the_newest_messages(dated):
    archive, say, left = dated
    now, day = 1.8e9, 86_400
    for number in (1, 2, 3):
        say(number, now + 365 * day)
    for number in (4, 5, 6):
        say(number, now + number)
    assert would_retain(archive, PrivacyConfig(keep_messages=2), now=now + 10).messages == 1
    retain(archive, PrivacyConfig(keep_messages=2), now=now + 10)
    assert left() == {"number 1", "number 2", "number 3", "number 5", "number 6"}


def test_prune_and_doctor_tell_of_a_clock_that_leapt_ahead(lantern, tmp_path):
    run, config, _ = lantern
    with Archive(config.archive.path) as archive:
        retain(archive, PrivacyConfig(keep_days=1), now=1.7e9)
    (tmp_path / "c.yaml").write_text("privacy: {keep_days: 1}\n")
    told = run("prune", "--retention", "--yes", "--json", "--config", tmp_path / "c.yaml")
    assert (json.loads(told.stdout)["messages"], "may be wrong: nothing goes by its age" in told.stderr) == (0, True)
    found = map(json.loads, run("doctor", "--offline", "--json", "--config", tmp_path / "c.yaml").stdout.splitlines())
    assert [row["state"] for row in found if row["name"] == "retention"] == ["warn"]


def test_an_archive_that_is_too_large_shrinks_below_its_limit(aged):
    archive, now = aged
    archive.write([replace(r, tenant="t_more") for r in []])
    before = archive.used_bytes
    assert before > 1_000_000
    assert 0 < would_retain(archive, PrivacyConfig(keep_mb=1), now=now).messages < 20
    retain(archive, PrivacyConfig(keep_mb=1), now=now)
    assert archive.used_bytes <= 1_000_000
    (tenant,) = archive.tenants()
    assert 0 < tenant.messages < 20
    assert archive.of(tenant.id).session("s0") is not None


def test_prune_applies_the_configured_retention(lantern, tmp_path):
    run, config, _ = lantern
    assert "nothing is to go" in run("prune", "--retention", "--yes", code=1).stderr
    (tmp_path / "c.yaml").write_text("privacy: {keep_messages: 2}\n")
    would = json.loads(run("prune", "--retention", "--dry-run", "--json", "--config", tmp_path / "c.yaml").stdout)
    told = json.loads(run("prune", "--retention", "--yes", "--json", "--config", tmp_path / "c.yaml").stdout)
    assert told["messages"] == would["messages"] > 0
    assert (would["dry_run"], told["dry_run"]) == (True, False)
    with Archive(config.archive.path) as archive:
        assert sorted(tenant.messages for tenant in archive.tenants()) == [4, 4]  # what came at once goes at once


class HeldUp:
    """A model that echoes, but for a message that holds `word`, which waits for go()."""

    def __init__(self, word: str) -> None:
        self._word, self._come, self._go = word, threading.Event(), threading.Event()

    async def __call__(self, got, wire):
        if self._word in got.data["messages"][-1]["content"]:
            self._come.set()
            await asyncio.to_thread(self._go.wait, 60)
        await echo(got, wire)

    def forget_meanwhile(self, url, asked, session: str, *rule: str) -> None:
        """Ask, and `lantern forget` by this rule before the answer comes."""
        asking = threading.Thread(target=ask, args=(url, asked), kwargs={"x_lantern_session": session})
        asking.start()
        assert self._come.wait(60)
        ended = CliRunner().invoke(cli.cli, ["forget", *rule, "--yes"])
        self._go.set()
        asking.join()
        assert ended.exit_code == 0, ended.output


@pytest.mark.parametrize("kind", ["session", "tenant"])
def test_what_was_under_way_when_it_was_forgotten_stays_out(tmp_path, kind):
    """Nobody finds it before its answer comes, and it comes again with the next request."""
    model = HeldUp("XYLOPHONE")
    with Upstream(answer=model) as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            first = ask(url, body("hello, let us begin"), x_lantern_session="s")
            said = ["hello, let us begin", first.json()["choices"][0]["message"]["content"], SECRET]
            with Archive(config.archive.path) as archive:
                [tenant] = [each.id for each in archive.tenants()]
            own = {"session": lantern_headers(first)["session"], "tenant": tenant}
            rule = (f"--{kind}", own[kind], "--archive", str(config.archive.path))
            model.forget_meanwhile(url, body(*said), "s", *rule)
            again = ask(url, body(*said, "noted", f"what of {OTHER}?"), x_lantern_session="s")
            assert again.status_code == 200
        with Archive(config.archive.path, read_only=True) as archive:
            kept = [
                f.message.text for row in archive.of(tenant).sessions() for f in archive.of(tenant).messages(row.id)
            ]
        assert any("MARIMBA" in text for text in kept)
        assert b"XYLOPHONE" not in archive_bytes(config.archive.path)


def test_what_comes_after_a_forget_is_kept_though_its_clock_was_an_hour_ahead(tmp_path):
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            gone = lantern_headers(ask(url, body(SECRET), x_lantern_session="gone"))["session"]
            with Archive(config.archive.path) as archive:
                tenant = tenant_with(archive, gone)
                archive.forget(tenant, ForgetRule(), now=time.time() + 3_600)
            later = lantern_headers(ask(url, body(OTHER), x_lantern_session="later"))["session"]
        with Archive(config.archive.path, read_only=True) as archive:
            assert [filed.message.text for filed in archive.of(tenant).messages(later)][:1] == [OTHER]
            assert not archive.of(tenant).session(gone)


PROMPT = {"role": "system", "content": "You are the assistant of a hardware store, and you know all of its shelves."}


@pytest.mark.parametrize("kind", ["match", "session"])
def test_what_is_under_way_of_another_conversation_is_kept_when_something_is_forgotten(tmp_path, kind):
    """Both have one system prompt, and so has one that begins afterwards."""
    model = HeldUp("SLOW")
    with Upstream(answer=model) as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            secret = {"role": "user", "content": SECRET}
            gone = lantern_headers(ask(url, body(PROMPT, secret), x_lantern_session="gone"))["session"]
            said = [PROMPT, *({"role": "user", "content": f"shelf {n} holds the {n * 7} mm screws"} for n in range(4))]
            slow = {"role": "user", "content": "a SLOW one, please"}
            own = {"match": "XYLOPHONE-42", "session": gone}
            rule = (f"--{kind}", own[kind], "--archive", str(config.archive.path))
            model.forget_meanwhile(url, body(*said, slow), "kept", *rule)
            later = {"role": "user", "content": "where are the tulips?"}
            ask(url, body(PROMPT, later), x_lantern_session="later")
        with Archive(config.archive.path, read_only=True) as archive:
            mine = archive.of(archive.tenants()[0].id)
            rows = {row.family: row for row in mine.sessions()}
            kept = [f.message.text for f in mine.messages(rows["kept"].id)]
            assert mine.messages(rows["later"].id)[0].message.text == PROMPT["content"]
        assert sum("mm screws" in text for text in kept) == 4
        assert (rows["kept"].title, rows["later"].title) == ("a SLOW one, please", "where are the tulips?")
        assert b"XYLOPHONE" not in archive_bytes(config.archive.path)


def test_the_proxy_applies_retention_by_itself(tmp_path, monkeypatch):
    from lantern_proxy.proxy import upkeep

    monkeypatch.setattr(upkeep, "_RETAIN_S", 0.2)
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path, privacy=PrivacyConfig(keep_messages=2))
        with serving(config) as url:
            for n in range(6):
                ask(url, body(f"message {n} of a kind"), x_lantern_session=f"s{n}")

            def few():
                return len(http.get(f"{url}/lantern/api/sessions").json()) <= 2

            assert wait_for(few)


def test_what_was_said_again_lately_is_found_when_the_first_time_it_was_said_is_too_old(tmp_path, monkeypatch):
    from lantern_proxy.proxy import upkeep

    monkeypatch.setattr(upkeep, "_RETAIN_S", 0.2)
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path, privacy=PrivacyConfig(keep_days=1))
        said = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate([SECRET, "ok"] * 3)]
        with Lantern(config) as lantern:
            lantern.archive("chat", said, times=[time.time() - ago for ago in (9e6, 9e6, 8e6, 8e6, 20, 10)])
            mine = lantern._archive.of(lantern.tenant)
            assert [hit.passage.position for hit in mine.search("XYLOPHONE")] == [0]
            with serving(config):
                assert wait_for(lambda: [hit.passage.position for hit in mine.search("XYLOPHONE")] == [4])
            assert [filed.position for filed in mine.messages("chat")] == [4, 5]
            with lantern._archive.reading() as db:
                assert not db.execute("SELECT count(*) FROM uncut").fetchone()[0]


def test_what_other_messages_repeat_in_part_is_found_when_the_first_of_them_is_too_old(tmp_path, monkeypatch):
    """A file that is read again after each change, say: most of its passages are the same."""
    from lantern_proxy.proxy import upkeep

    monkeypatch.setattr(upkeep, "_RETAIN_S", 0.2)
    shared = f"{SECRET} " + "is what all of these messages hold. " * 25
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path, privacy=PrivacyConfig(keep_days=1))
        said = [f"{shared}\n\n" + f"Number {n} says something else. " * 30 for n in range(3)]
        messages = [{"role": "user", "content": text} for text in said]
        with Lantern(config) as lantern:
            lantern.archive("chat", messages, times=[time.time() - ago for ago in (9e6, 8e6, 20)])
            mine = lantern._archive.of(lantern.tenant)
            assert [hit.passage.position for hit in mine.search("XYLOPHONE")] == [0]
            with serving(config):
                assert wait_for(lambda: [hit.passage.position for hit in mine.search("XYLOPHONE")] == [2])
            assert [filed.position for filed in mine.messages("chat")] == [2]


@pytest.mark.parametrize("keep", [{"keep_days": 1}, {"keep_messages": 2}])
def test_what_has_no_time_is_as_old_as_its_session_is_in_the_archive(tmp_path, keep):
    """Logs without times were the first to go, as if they were of 1970."""
    now = time.time()
    said = [{"role": "user", "content": "the gate is 9443"}, {"role": "assistant", "content": "noted: 9443"}]
    config = Config(archive=ArchiveConfig(path=tmp_path / "lantern.db"), embed=EmbedConfig(enabled="off"))
    with Lantern(config) as mine:
        mine.archive("old", [{"role": "user", "content": "an old gate is 7461"}], times=[now - 1_000 * 86_400])
        mine.archive("undated", said, times=[0, 0])
    with Archive(config.archive.path) as archive:
        retain(archive, PrivacyConfig(**keep), now=now + 60)
        (tenant,) = archive.tenants()
        (row,) = archive.of(tenant.id).sessions()
        assert (row.id, row.messages) == ("undated", 2)
        assert row.last_seen_at >= now
        assert [each.created_at for each in archive.of(tenant.id).messages("undated")] == [0, 0]
        retain(archive, PrivacyConfig(keep_days=1), now=now + 2 * 86_400)
        assert not archive.tenants()
