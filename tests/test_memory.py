"""The Python API: archive, restore and search without a proxy."""

import json
import os
import sqlite3
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from types import MappingProxyType

import pytest
from test_archive import restore_one

from lantern_proxy import Lantern, demo
from lantern_proxy.archive import Archive, ArchiveError
from lantern_proxy.config import ArchiveConfig, Config, ConfigError, EmbedConfig, RestoreConfig, TenantConfig
from lantern_proxy.config.safety import PrivacyConfig

SCRIPT = demo.chat()
PATIENT = RestoreConfig(deadline_ms=10_000)
"""What is restored here does not depend on a quiet machine."""


@pytest.fixture
def config(tmp_path):
    return Config(
        archive=ArchiveConfig(path=tmp_path / "lantern.db"), embed=EmbedConfig(enabled="off"), restore=PATIENT
    )


@pytest.fixture
def lantern(config):
    with Lantern(config) as opened:
        opened.archive("chat", SCRIPT.history)
        yield opened


def test_what_is_known_is_not_written_twice_and_what_is_new_is(config):
    with Lantern(config) as lantern:
        assert lantern.archive("chat", SCRIPT.history[:5]) == 5
        assert lantern.archive("chat", SCRIPT.history[:5]) == 0
        assert lantern.archive("chat", SCRIPT.history[:9]) == 4
    with Lantern(config) as lantern:  # another run of the program
        assert lantern.archive("chat", SCRIPT.history[:11]) == 2


def test_messages_may_be_the_objects_of_openais_sdk(config):
    from openai.types.chat import ChatCompletionMessage

    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": "depot 4417"}'}}
    plain = {"role": "assistant", "content": "I look at it.", "tool_calls": [call]}
    said = ChatCompletionMessage.model_validate(plain)
    with Lantern(config) as lantern:
        asked = {"role": "user", "content": "Where is it?"}
        assert lantern.archive("chat", [asked, said]) == 2
        assert lantern.archive("chat", [asked, plain | {"tool_calls": said.tool_calls}]) == 0
        assert lantern.archive("chat", [MappingProxyType(asked), plain]) == 0
        assert lantern.search("4417")


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([{"role": "user", "content": "hi"}, {"rol": "user", "content": "hi"}], "message 1 has no role"),
        ([{"role": "user", "content": object()}], "a object, which is no JSON"),
        ([object()], "a object, which is no JSON"),
        ("hi", "use a list of dicts"),
    ],
)
def test_what_are_no_messages_is_a_value_error_and_nothing_is_archived(config, messages, told):
    with Lantern(config) as lantern:
        with pytest.raises(ValueError, match=told):
            lantern.archive("chat", messages)
        assert lantern.tenants() == []


BOAT = "The boat is called Mermaid-77, keep that in mind."
SPOKEN = "\n".join(f"{m['role']}: {m['content']}" for m in SCRIPT.history[:8])


@pytest.mark.parametrize(
    "more",
    [
        [{"role": "system", "content": "You write SQL, and nothing else."}, {"role": "user", "content": BOAT}],
        [{"role": "user", "content": f"Here is what we said:\n{SPOKEN}\nuser: {BOAT}"}],
    ],
    ids=["another system prompt", "a pasted transcript"],
)
def test_what_is_archived_under_a_name_belongs_to_that_conversation(lantern, more):
    assert lantern.archive("chat", [*more, {"role": "assistant", "content": "Kept."}])
    assert {hit.passage.session for hit in lantern.search("Mermaid-77")} == {"chat"}
    blocks = lantern.restore("chat", [{"role": "user", "content": "What is the boat called?"}])
    assert any("Mermaid-77" in block.text for block in blocks)


@pytest.mark.parametrize("session", ["", None, 5])
def test_a_conversation_has_a_name(lantern, session):
    for ask in (lantern.archive, lantern.restore):
        with pytest.raises(ValueError, match="names the conversation"):
            ask(session, SCRIPT.history)
    with pytest.raises(ValueError, match="limit is -1"):
        lantern.search("port", limit=-1)


def test_what_is_archived_is_on_disk(config, monkeypatch):
    synced, fsync = [], os.fsync
    with Lantern(config) as lantern:
        monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file)) or fsync(file))
        lantern.archive("chat", SCRIPT.history[:5])
        log = os.stat(f"{config.archive.path}-wal")
        assert [(each.st_ino, each.st_size) for each in synced] == [(log.st_ino, log.st_size)]


def test_settings_may_be_a_file(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(f"archive: {{path: {tmp_path / 'named.db'}}}\n")
    for given in (path, str(path)):
        with Lantern(given) as lantern:
            lantern.archive("chat", SCRIPT.history[:3])
    assert (tmp_path / "named.db").exists()
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        Lantern(tmp_path / "none.yaml")


@pytest.mark.parametrize("detail", SCRIPT.details, ids=lambda d: d.id)
@pytest.mark.parametrize("shape", demo.SHAPES)
def test_a_lost_detail_is_in_what_is_restored(lantern, shape, detail):
    messages = demo.SHAPES[shape](SCRIPT.history, SCRIPT.summary, detail.literal)
    restored = lantern.restore("chat", messages, summary=SCRIPT.summary)
    assert detail.answer in "".join(block.text for block in restored)


def test_nothing_is_restored_into_a_conversation_that_lacks_nothing(lantern):
    assert lantern.restore("chat", SCRIPT.history) == ()


def test_what_only_a_summary_says_replaces_nothing_that_a_user_said(lantern):
    quarry = [
        {"role": "user", "content": "The quarry's siren listens on port 8080."},
        {"role": "assistant", "content": "Good."},
    ]
    talk = [
        each for n in range(8) for each in ({"role": "user", "content": f"Cart {n} takes {n * 37} stones."}, quarry[1])
    ]
    lantern.archive("quarry", [*quarry, *talk])
    question = "On which port does the quarry's siren listen?"
    kept = [*talk[-2:], {"role": "user", "content": question}]
    found = lantern.restore("quarry", kept, summary="The quarry's siren listens on port 9443 instead of 8080.")
    (evidence,) = (block.text for block in found if block.kind == "question")
    assert "port 8080" in evidence
    assert "superseded" not in evidence


def test_blocks_that_the_messages_hold_are_not_put_in_again(config):
    """The loop of the module's docstring: each answer follows, and what was put in stays in."""
    told = [f"Valve {n} of hall {n * 7} opens at {300 + n * 37} mbar, says Agent-{n * 7919:05d}." for n in range(20)]
    said = [m for text in told for m in ({"role": "user", "content": text}, {"role": "assistant", "content": "Noted."})]
    with Lantern(config) as lantern:
        lantern.archive("chat", said)
        messages, added = [{"role": "user", "content": "Let's go on then, shall we?"}], []
        for n in range(4):
            blocks = lantern.restore("chat", messages)
            messages[-1]["content"] += "".join("\n\n" + block.text for block in blocks)
            added += [placed.text for block in blocks for placed in block.placed]
            messages += [{"role": "assistant", "content": "Fine."}, {"role": "user", "content": f"Go on, step {n}."}]
            lantern.archive("chat", messages)
    assert any("Agent-07919" in text for text in added)
    assert len(added) == len({*added})
    assert sum(m["content"].count("Agent-07919") for m in messages) == 1


def test_a_later_call_knows_what_the_block_in_its_messages_shows(config):
    said, again = (
        "The deploy window for V85 is tonight at 23:30.",
        "Noted: the deploy window for V85 is tonight at 23:30.",
    )
    turns = [(said, again), *((f"Tell me about lake {n}.", f"Lake {n} is deep and blue.") for n in range(8))]
    history = [{"role": role, "content": each[n]} for each in turns for n, role in enumerate(("user", "assistant"))]
    small = replace(config, restore=replace(PATIENT, budget_chars=500))
    with Lantern(small) as lantern:
        lantern.archive("chat", history)
        (loss,) = lantern.restore("chat", history[-2:], question="")
        assert said in loss.text
        assert again not in loss.text
        asked = {"role": "user", "content": "When is the deploy window for V85?"}
        compacted = [{"role": "user", "content": f"Go on.\n\n{loss.text}"}, *history[-2:], asked]
        assert not any(again in block.text for block in lantern.restore("chat", compacted))
    with Lantern(small) as lantern:  # another run does not know it
        assert any(again in block.text for block in lantern.restore("chat", compacted))


def test_a_message_that_is_said_again_has_its_own_time(config):
    said = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": "I did step one."}]
    with Lantern(config) as lantern:
        lantern.archive("chat", said, times=[1.6e9, 1.6e9 + 100])
        lantern.archive("chat", [*said, said[0]], times=[1.6e9, 1.6e9 + 100, 1.79e9])
        tenant = lantern.tenant
    with Archive(config.archive.path) as archive:
        assert [each.created_at for each in archive.of(tenant).messages("chat")] == [1.6e9, 1.6e9 + 100, 1.79e9]


def test_calls_that_the_conversation_still_holds_are_not_restored(config):
    said = [{"role": "user", "content": "Write down where the depots are."}]
    for n in range(4):
        text = f"GATE_{n} = 'G-{n * 7919:05d}'\nPORT_{n} = {9000 + n}\nhost = 'depot{n}.example.org'"
        write = {"name": "write", "arguments": json.dumps({"path": f"src/depot_{n}.py", "text": text})}
        said += [
            {"role": "assistant", "tool_calls": [{"id": f"c{n}", "type": "function", "function": write}]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": "ok"},
        ]
    with Lantern(config) as lantern:
        lantern.archive("chat", said)
        asked = {"role": "user", "content": "Which are GATE_2 and PORT_2?"}
        assert lantern.restore("chat", [*said, asked]) == ()
        assert "G-15838" in "".join(block.text for block in lantern.restore("chat", [*said[-2:], asked]))


def test_the_budgets_are_kept(config):
    small = replace(config, restore=replace(config.restore, budget_chars=900, question_chars=700))
    with Lantern(small) as lantern:
        lantern.archive("chat", SCRIPT.history)
        messages = demo.SHAPES["last-six"](SCRIPT.history, SCRIPT.summary, SCRIPT.details[0].literal)
        blocks = lantern.restore("chat", messages)
        assert blocks
        assert all(len(b.text) <= {"loss": 900, "question": 700}[b.kind] for b in blocks)


def test_another_user_of_the_same_archive_finds_nothing(lantern, config):
    with Lantern(config, user="somebody else") as other:
        messages = demo.SHAPES["last-six"](SCRIPT.history, SCRIPT.summary, SCRIPT.details[0].literal)
        assert other.restore("chat", messages) == ()
        assert other.search("firewall") == []
        assert other.tenant != lantern.tenant


def test_a_name_that_is_nobodys_is_refused(config):
    with Lantern(config) as lantern:
        lantern.archive("chat", [{"role": "user", "content": "hello"}])
        mine = lantern.tenant
    with pytest.raises(ArchiveError, match=f"tenant {mine}x has nothing in .*lantern status"):
        Lantern(config, tenant=f"{mine}x")
    with Lantern(config, tenant=mine) as lantern:
        assert lantern.search("hello")
    named = replace(config, tenants={"team": TenantConfig(keys_sha256=["0" * 64])})
    with Lantern(named, tenant="team") as lantern:
        assert not lantern.search("hello")


@pytest.mark.parametrize(("one", "other"), [("a", "b"), ("", "b"), ("a", "")])
def test_sessions_of_two_projects_are_two_whatever_their_names(config, one, other):
    said = [{"role": "user", "content": f"Depot {n} ships through gate GATE-{n * 7919:05d}."} for n in range(8)]
    asked = [{"role": "user", "content": "Through which gate does Depot 1 ship?"}]
    with Lantern(config, project=one) as theirs:
        theirs.archive("chat", said)
    for _ in range(2):  # in the next run, too
        with Lantern(config, project=other) as mine:
            assert mine.restore("chat", asked) == ()
            recalled = mine.recall(asked[0]["content"], session="chat")
            assert recalled is None or "GATE-" not in recalled.text
            assert mine.search("GATE-07919", session="chat") == []
            mine.archive("chat", asked)
    with Lantern(config, project=one) as theirs:
        assert theirs.archive("chat", said) == 0
        assert "GATE-07919" in theirs.restore("chat", asked)[0].text
    with Lantern(config, project=other) as mine:
        assert mine.archive("chat", [*asked, {"role": "assistant", "content": "Depot 1 is closed."}]) == 1


def test_a_project_sees_and_judges_nothing_of_another(config):
    with Lantern(config, project="a") as theirs:
        theirs.archive("chat", SCRIPT.history)
        passage = theirs.search("firewall staging")[0].passage
        assert theirs.feedback(passage.id, "useful").verdict == "useful"
    with Archive(config.archive.path) as archive:
        request = archive.of(theirs.tenant).requests("chat")[0].id
    with Lantern(config, project="b") as mine:
        assert mine.search("firewall staging") == []
        assert mine.why(request) is None
        with pytest.raises(ArchiveError, match=str(passage.id)):
            mine.feedback(passage.id, "wrong")
    with Lantern(config) as everything:
        assert everything.search("firewall staging")[0].passage.verdict == "useful"
        assert everything.why(request)


def test_the_last_request_is_that_of_the_project(config):
    with Lantern(config, project="none") as opened, Archive(config.archive.path) as archive:
        older, newer = (restore_one(archive, opened.tenant, project, n) for project, n in (("a", 1), ("b", 3)))
        assert opened.why("last") is None
        with pytest.raises(ArchiveError, match=f"passage {older.id} is not of project none"):
            opened.feedback(older.id, "useful", request="last")
    for project, request, passage in (("a", "a-r1", older), ("b", "b-r3", newer), ("", "b-r3", newer)):
        with Lantern(config, project=project) as lantern:
            assert lantern.why("last").request.id == request
            lantern.feedback(passage.id, "useful", request="last")
            assert [mark.verdict for mark in lantern.why(request).marks] == ["useful"]
            lantern.feedback(passage.id, "", request="last")


def test_nothing_is_judged_as_of_a_last_request_where_none_restored_it(lantern):
    passage = lantern.search("firewall staging")[0].passage
    with pytest.raises(ArchiveError, match="request last is not in the archive"):
        lantern.feedback(passage.id, "useful", request="last")
    assert lantern.search("firewall staging")[0].passage.verdict == ""


def test_search_finds_what_was_said(lantern):
    best = lantern.search("firewall staging")[0]
    assert "7461" in best.passage.text


def test_roles_that_are_not_kept_are_in_no_message_question_or_title(config):
    left_out = replace(config, privacy=PrivacyConfig(skip_roles=("system", "user")))
    with Lantern(left_out) as lantern:
        said = [("developer", "Be brief, Quilly."), ("user", "My locker is Zanzibar."), ("assistant", "Noted.")]
        lantern.archive("chat", [{"role": role, "content": text} for role, text in said])
        lantern.archive("chat", [{"role": role, "content": text} for role, text in [*said, ("user", "Zanzibar?")]])
    kept = b"".join(path.read_bytes() for path in config.archive.path.parent.glob("*.db*"))
    assert b"Noted." in kept
    assert b"Quilly" not in kept
    assert b"Zanzibar" not in kept


@pytest.mark.parametrize("name", ["chat", "chat.7"])
def test_a_session_goes_on_in_the_next_run_whatever_its_name(config, name):
    history = [{"role": "user", "content": f"Depot {n} ships through gate GATE-{n * 7919:05d}."} for n in range(8)]
    with Lantern(config) as lantern:
        assert lantern.archive(name, history) == 8
    with Lantern(config) as lantern:
        assert lantern.archive(name, history) == 0
        assert lantern.restore(name, history[-2:], question="Through which gate does Depot 1 ship?")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda lantern: lantern.archive("chat", ["hello"]), "a message is a string"),
        (lambda lantern: lantern.archive("chat", "hello"), "messages is a str; use a list"),
        (lambda lantern: lantern.archive("chat", {"role": "user", "content": "x"}), "messages is a dict; use a list"),
        (lambda lantern: lantern.archive(None, []), "session is None; use a text that"),
        (lambda lantern: lantern.archive("  ", []), "session is '  '; use a text that"),
        (lambda lantern: lantern.recall("which?", session="\n"), r"session is '\\n'; use a text that"),
        (lambda lantern: lantern.archive("chat", [{"role": "user", "content": "x", "n": float("nan")}]), "JSON"),
        (lambda lantern: lantern.archive("chat", SCRIPT.history[:1], times=[float("nan")]), r"times\[0\] is nan; use"),
        (lambda lantern: lantern.archive("chat", SCRIPT.history[:1], times=[10**400]), r"times\[0\] is 1000"),
        (lambda lantern: lantern.archive("chat", SCRIPT.history[:1], times=7), r"times is a int"),
        (lambda lantern: lantern.archive("chat", SCRIPT.history[:1], times=(t for t in ())), r"0 times for 1"),
        (lambda lantern: lantern.restore("chat", [], question=7), "question is 7; use a text"),
        (lambda lantern: lantern.restore("chat", [], summary=None), "summary is None; use a text"),
        (lambda lantern: lantern.recall("which?", budget_chars=-1), "budget_chars is -1; use a whole number"),
        (lambda lantern: lantern.search(None), "query is None; use a text"),
        (lambda lantern: lantern.search("x", limit="3"), "limit is '3'; use a whole number"),
        (lambda lantern: lantern.why(None), "request is None; use a text"),
        (lambda lantern: lantern.feedback("5", "wrong"), "passage is '5'; use a whole number"),
    ],
)
def test_an_argument_of_another_kind_is_told_by_its_name(lantern, call, told):
    with pytest.raises(ValueError, match=told):
        call(lantern)
    assert lantern.search("firewall", limit=10**30)


def test_a_number_that_no_passage_can_have_is_told_as_it_was_given(lantern):
    with pytest.raises(ArchiveError, match=f"there is no passage {10**30};"):
        lantern.feedback(10**30, "wrong")


@pytest.mark.parametrize("wrong", [{"user": None}, {"tenant": None}, {"project": 3}, {"config": {"archive": {}}}])
def test_a_variable_that_is_not_set_names_nobody(config, wrong):
    [name] = wrong
    with pytest.raises(ValueError, match=f"{name} is "):
        Lantern(**({"config": config} | wrong))


@contextmanager
def full(path):
    """The archive takes no message, as on a full disk."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TRIGGER full BEFORE INSERT ON messages BEGIN SELECT RAISE(ABORT, 'full'); END")
        yield
        db.execute("DROP TRIGGER full")


@pytest.mark.parametrize(
    ("wrong", "fault"), [({"times": [1.0]}, ValueError), ({"times": ["soon", "later"]}, ValueError), ({}, ArchiveError)]
)
def test_what_could_not_be_archived_is_archived_by_the_next_call(config, wrong, fault):
    said = [{"role": "user", "content": "Which port?"}, {"role": "assistant", "content": "Staging listens on 9443."}]
    with Lantern(config) as lantern:
        lantern.archive("earlier", SCRIPT.history[:4])
        with full(config.archive.path) if fault is ArchiveError else nullcontext(), pytest.raises(fault):
            lantern.archive("chat", said, **wrong)
        assert lantern.archive("chat", said) == 2
        assert lantern.archive("earlier", SCRIPT.history[:6]) == 2
        assert [hit.passage.session for hit in lantern.search("9443")] == ["chat"]
