"""Logs of other programs: each kind is known by what it holds, and says who said what and when."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from scripted import Upstream, ask, body, config_for, http, lantern_headers, respond, serving

from lantern_proxy import Lantern, logs
from lantern_proxy.cli.main import cli
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig

AT = 1_780_000_000.0


def lines(path: Path, *rows: dict) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return path


def whole(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def claude_code(folder: Path) -> Path:
    def row(kind: str, content: object, second: int, **more: object) -> dict:
        stamp = f"2026-05-28T20:26:{second:02d}.000Z"
        return {
            "type": kind,
            "sessionId": "s1",
            "timestamp": stamp,
            "message": {"role": kind, "content": content},
        } | more

    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "app/main.py"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "PORT = 7461"}]}
    return lines(
        folder / "s1.jsonl",
        {"type": "summary", "summary": "A port is looked for", "leafUuid": "x"},
        row("user", "Which port does it use?", 1),
        row("assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Let me look."}, call], 2),
        row("user", [result], 3),
        row("assistant", [{"type": "text", "text": "Port 7461."}], 4),
        row("user", "This session is continued from before: ...", 5, isCompactSummary=True),
        row("user", "Look for tests", 6, isSidechain=True),
        row("user", "Caveat: shell output", 7, isMeta=True),
    )


def codex(folder: Path) -> Path:
    def item(**payload: object) -> dict:
        return {"timestamp": "2026-05-28T20:26:41Z", "type": "response_item", "payload": payload}

    def said(role: str, text: str) -> dict:
        return item(
            type="message", role=role, content=[{"type": f"{'in' if role == 'user' else 'out'}put_text", "text": text}]
        )

    def compacted(message: str) -> dict:
        return {"timestamp": "2026-05-28T20:26:50Z", "type": "compacted", "payload": {"message": message}}

    return lines(
        folder / "rollout-1.jsonl",
        {"timestamp": "2026-05-28T20:26:40Z", "type": "session_meta", "payload": {"id": "c1", "cwd": "/src"}},
        said("user", "<environment_context>linux</environment_context>"),
        said("user", "Which port does it use?"),
        item(type="reasoning", summary=[]),
        item(type="function_call", name="shell", arguments='{"command": ["cat", "app.py"]}', call_id="k1"),
        item(type="function_call_output", call_id="k1", output="PORT = 7461"),
        said("assistant", "Port 7461."),
        said("assistant", "A port was looked for. ..."),
        {"timestamp": "2026-05-28T20:26:49Z", "type": "event_msg", "payload": {"type": "token_count"}},
        compacted("Another language model produced a summary:\nA port was looked for. ..."),
    )


def opencode(folder: Path) -> Path:
    state = {"status": "completed", "input": {"file": "app.py"}, "output": "PORT = 7461"}
    return whole(
        folder / "export.json",
        {
            "info": {"id": "o1", "title": "Ports"},
            "messages": [
                {
                    "info": {"role": "user", "time": {"created": AT * 1_000}},
                    "parts": [
                        {"type": "text", "text": "Which port does it use?"},
                        {"type": "text", "text": "x", "synthetic": True},
                    ],
                },
                {
                    "info": {"role": "assistant", "time": {"created": AT * 1_000 + 9}},
                    "parts": [
                        {"type": "tool", "tool": "read", "callID": "k1", "state": state},
                        {"type": "text", "text": "Port 7461."},
                    ],
                },
                {"info": {"role": "assistant", "summary": True}, "parts": [{"type": "text", "text": "a summary"}]},
            ],
        },
    )


def opencode_storage(folder: Path) -> Path:
    whole(folder / "storage/session/global/o1.json", {"id": "o1", "title": "Ports"})
    whole(folder / "storage/session/global/o2.json", {"id": "o2", "title": "a sub-agent", "parentID": "o1"})
    for n, (role, text) in enumerate([("user", "Which port does it use?"), ("assistant", "Port 7461.")]):
        whole(
            folder / f"storage/message/o1/m{n}.json", {"id": f"m{n}", "role": role, "time": {"created": AT * 1_000 + n}}
        )
        whole(folder / f"storage/part/m{n}/p.json", {"type": "text", "text": text})
    return folder


def opencode_database(folder: Path) -> Path:
    """As opencode 1.18 keeps it, but for the columns that are not read."""
    export = json.loads(opencode(folder).read_text())
    (folder / "export.json").unlink()
    with closing(sqlite3.connect(folder / "opencode.db")) as db:
        db.execute("CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT, title TEXT, time_created INTEGER)")
        for table, parent in (("message", "session_id"), ("part", "message_id")):
            db.execute(f"CREATE TABLE {table} (id TEXT PRIMARY KEY, {parent} TEXT, time_created INTEGER, data TEXT)")
        for id, parent in (("o1", None), ("o2", "o1")):
            db.execute("INSERT INTO session VALUES (?, ?, 'Ports', ?)", (id, parent, AT))
            for n, message in enumerate(export["messages"]):
                row = (f"{id}m{n}", id, AT + n, json.dumps(message["info"]))
                db.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
                for at, part in enumerate(message["parts"]):
                    db.execute("INSERT INTO part VALUES (?, ?, ?, ?)", (f"{row[0]}p{at}", row[0], AT, json.dumps(part)))
        db.commit()
    return folder / "opencode.db"


def chatgpt(folder: Path) -> Path:
    def node(id: str, role: str, text: str, parent: str | None, children: list[str]) -> dict:
        content = {"content_type": "text", "parts": [text]}
        message = {"author": {"role": role}, "content": content, "create_time": AT + len(id)}
        return {"id": id, "message": message, "parent": parent, "children": children}

    mapping = {
        "r": {"id": "r", "message": None, "parent": None, "children": ["q"]},
        "q": node("q", "user", "Which port does it use?", "r", ["old", "new"]),
        "old": node("old", "assistant", "Port 1.", "q", []),
        "new": node("new", "assistant", "Port 7461.", "q", []),
    }
    return whole(
        folder / "conversations.json", [{"id": "g1", "title": "Ports", "mapping": mapping, "current_node": "new"}]
    )


def claude(folder: Path) -> Path:
    said = [
        {"sender": "human", "text": "Which port does it use?", "created_at": "2026-05-28T20:26:40Z"},
        {
            "sender": "assistant",
            "content": [{"type": "text", "text": "Port 7461."}],
            "created_at": "2026-05-28T20:26:41Z",
        },
    ]
    return whole(folder / "conversations.json", [{"uuid": "a1", "name": "Ports", "chat_messages": said}])


def jsonl(folder: Path) -> Path:
    said = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "Which port does it use?"}]
    return lines(
        folder / "mine.jsonl",
        {"id": "j1", "messages": [*said, {"role": "assistant", "content": "Port 7461."}], "created_at": AT},
    )


KINDS = {
    "claude-code": claude_code,
    "codex": codex,
    "opencode": opencode,
    "chatgpt": chatgpt,
    "claude": claude,
    "jsonl": jsonl,
}


@pytest.mark.parametrize("source", KINDS)
def test_a_log_is_known_by_what_it_holds(tmp_path, source):
    (log,) = logs.read(KINDS[source](tmp_path))
    assert log.source == source
    texts = [message["content"] for message in log.messages if message["content"]]
    assert texts[0] == "Which port does it use?"
    assert texts[-1] == "Port 7461."
    assert log.messages[0]["role"] == "user"
    assert log.messages[-1]["role"] == "assistant"
    assert all(abs(at - AT) < 60 for at in log.times), log.times
    assert list(log.times) == sorted(log.times)
    assert log.session.startswith(f"{source}-")


@pytest.mark.parametrize("source", ["claude-code", "codex", "opencode"])
def test_calls_and_results_of_tools_come_along_as_pairs(tmp_path, source):
    (log,) = logs.read(KINDS[source](tmp_path))
    (call,) = [call for message in log.messages for call in message.get("tool_calls", ())]
    (result,) = [message for message in log.messages if message["role"] == "tool"]
    assert result["tool_call_id"] == call["id"]
    assert result["content"] == "PORT = 7461"
    assert "app" in call["function"]["arguments"]


def test_opencodes_folder_is_read_without_its_sub_agents(tmp_path):
    (log,) = logs.read(opencode_storage(tmp_path))
    assert (log.source, log.title, len(log.messages)) == ("opencode", "Ports", 2)


def test_what_codex_forked_off_is_a_conversation_of_its_own_and_a_sub_agents_is_none(tmp_path):
    rows = codex(tmp_path).read_text().splitlines()
    for name, source in (("fork", "cli"), ("agent", {"subagent": {"thread_spawn": {"parent_thread_id": "c1"}}})):
        meta = {"type": "session_meta", "payload": {"id": name, "source": source}}
        lines(tmp_path / f"rollout-{name}.jsonl", meta, *map(json.loads, rows))
    assert {log.id for log in logs.read(tmp_path)} == {"c1", "fork"}


@pytest.mark.parametrize("whole_folder", [True, False])
def test_opencodes_database_is_read_as_its_exports_are(tmp_path, whole_folder):
    (exported,) = logs.read(opencode(tmp_path))
    database = opencode_database(tmp_path)
    assert list(logs.read(tmp_path if whole_folder else database)) == [exported]


def test_a_database_of_another_program_is_told_as_none_of_the_known_logs(tmp_path):
    with closing(sqlite3.connect(tmp_path / "other.db")) as db:
        db.execute("CREATE TABLE session (id TEXT)")
    with pytest.raises(logs.LogError, match=r"other\.db: cannot be read as opencode's database \(no such column"):
        list(logs.read(tmp_path / "other.db"))


def test_a_folder_is_searched_and_what_is_no_log_passed_over(tmp_path):
    claude_code(tmp_path / "a")
    codex(tmp_path / "b" / "c")
    (tmp_path / "notes.json").write_text('{"to": "do"}')
    (tmp_path / "torn.jsonl").write_text('{"type": "user", "mess')
    assert {log.source for log in logs.read(tmp_path)} == {"claude-code", "codex"}


def test_import_tells_which_files_of_a_folder_it_passed_over(tmp_path):
    claude_code(tmp_path / "logs" / "a")
    (agent,) = tmp_path.rglob("*.jsonl")
    aside = [json.dumps(json.loads(row) | {"isSidechain": True}) for row in agent.read_text().splitlines()]
    agent.with_name("agent-1.jsonl").write_text("\n".join(aside))  # a sub-agent's, which nobody misses
    for n in range(5):
        (tmp_path / "logs" / f"notes{n}.jsonl").write_text('{"role": "user", "content": "of another form"}\n')
    command = ["import", str(tmp_path / "logs"), "--json", "--archive", str(tmp_path / "one.db")]
    for more in (["--dry-run"], []):
        done = CliRunner().invoke(cli, [*command, *more])
        assert done.exit_code == 0, done.output
        assert len(done.stdout.splitlines()) == 1
        told = CliRunner().invoke(cli, [each for each in [*command, *more] if each != "--json"]).stdout
        assert told.startswith("found" if more else "imported")
        first, *others, last = done.stderr.splitlines()
        assert first.startswith(f"passed over {tmp_path}/logs/notes0.jsonl: is no log of")
        assert (len(others), last) == (2, "passed over 2 more")


def test_lines_in_the_middle_of_a_log_that_are_no_json_are_told(tmp_path):
    """The last line may still be being written."""
    line = json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
    (tmp_path / "chats.jsonl").write_text("\n".join([line, "brok", "", "en", line, '{"mess']))
    told = []
    assert len(list(logs.read(tmp_path / "chats.jsonl", told.append))) == 2
    assert [str(each) for each in told] == [f"line 2 and 1 more of {tmp_path}/chats.jsonl: no JSON object"]


def test_conversations_without_an_id_are_told_apart_and_known_again_wherever_they_lie(tmp_path):
    talks = [[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": f"Hello {n}"}] for n in range(3)]
    lines = [json.dumps({"messages": talk}) for talk in talks]
    for folder, held in (("a", lines[:1]), ("b", lines[1:2]), ("c", [lines[2], lines[0]])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "chats.jsonl").write_text("\n".join(held))
    a, b, c, again = (log.session for log in logs.read(tmp_path))
    assert len({a, b, c}) == 3
    assert again == a


def test_a_conversation_without_an_id_is_known_when_it_went_on(tmp_path):
    talk = [
        {"role": role, "content": role, "created_at": 1.7e9 + n} for n, role in enumerate(["user", "assistant"] * 2)
    ]
    sessions = []
    for messages in (talk[:2], talk):
        (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": messages}))
        sessions += [log.session for log in logs.read(tmp_path)]
    assert len(set(sessions)) == 1


@pytest.mark.parametrize("time", ["1e999", "1.7e12", "1" + "0" * 400, '"x"'])
def test_an_odd_time_in_an_export_of_chatgpt_costs_that_time_only(tmp_path, time):
    content = {"content_type": "text", "parts": ["hi"]}
    message = {"author": {"role": "user"}, "content": content, "create_time": "WHEN"}
    nodes = {"n": {"id": "n", "parent": None, "children": [], "message": message}}
    told = json.dumps([{"title": "t", "mapping": nodes, "current_node": "n"}]).replace('"WHEN"', time)
    (tmp_path / "conversations.json").write_text(told)
    ((at,),) = (log.times for log in logs.read(tmp_path))
    assert at in (0.0, 1.7e9)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
@pytest.mark.parametrize("more", ["", '\n{"messages": [{"role": "user", "content": "the dial is 9"}]}'])
def test_a_number_that_json_does_not_have_costs_that_number_only(tmp_path, number, more):
    said = f'{{"messages": [{{"role": "user", "content": "the gauge is 7461", "score": {number}}}]}}{more}'
    (tmp_path / "chats.jsonl").write_text(said)
    with Lantern(Config(archive=ArchiveConfig(path=tmp_path / "a.db"), embed=EmbedConfig(enabled="off"))) as mine:
        for log in logs.read(tmp_path):
            assert mine.archive(log.session, log.messages) == 1
        assert mine.search("7461")


def test_an_id_that_is_a_path_leads_nowhere(tmp_path):
    other = tmp_path / "other"
    for folder in ("session", "message", "part"):
        (tmp_path / "storage" / folder).mkdir(parents=True)
    other.mkdir()
    (other / "m.json").write_text('{"id": "m1", "role": "user"}')
    (other / "p.json").write_text('{"type": "text", "text": "of another program"}')
    (tmp_path / "storage" / "session" / "s.json").write_text(json.dumps({"id": str(other)}))
    assert list(logs.read(tmp_path / "storage")) == []
    (tmp_path / "storage" / "session" / "s.json").write_text('{"id": "s"}')
    (tmp_path / "storage" / "message" / "s").mkdir()
    (tmp_path / "storage" / "message" / "s" / "m.json").write_text(json.dumps({"id": "../../other", "role": "user"}))
    assert list(logs.read(tmp_path / "storage")) == []
    (tmp_path / "storage" / "message" / "s" / "m.json").write_text(json.dumps({"id": "m1", "role": "user"}))
    (tmp_path / "storage" / "part" / "m1").symlink_to(other)
    assert list(logs.read(tmp_path / "storage")) == []


def test_a_byte_order_mark_as_windows_writes_it_is_no_part_of_a_log(tmp_path):
    path = jsonl(tmp_path)
    plain = list(logs.read(path))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert list(logs.read(path)) == plain


def test_a_line_that_was_cut_off_costs_that_line_only(tmp_path):
    path = claude_code(tmp_path)
    path.write_text(path.read_text() + '{"type": "user", "sessionId": "s1", "mess')
    (log,) = logs.read(path)
    assert len(log.messages) == 4


@pytest.mark.parametrize("time", ["1e400", "NaN", "1" * 400, "-1", "true", '"soon"', "{}"])
def test_a_time_that_is_none_leaves_the_message_undated(tmp_path, time):
    path = tmp_path / "x.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "hi", "created_at": TIME}]}'.replace("TIME", time))
    (log,) = logs.read(path)
    assert log.times in ((0.0,), (1.0,))


def test_a_folder_of_opencode_that_is_not_as_it_writes_it_is_refused(tmp_path):
    storage = opencode_storage(tmp_path)
    for file in tmp_path.rglob("message/*/*.json"):
        file.write_text('{"id": "m", "time": 5}')
    with pytest.raises(logs.LogError, match="looks like a log"):
        list(logs.read(storage))


@pytest.mark.parametrize(
    "content", ["", "{}", "[1, 2]", "not json", '{"messages": 3}', '{"mapping": {}}', "[" * 100_000]
)
def test_a_file_that_is_no_log_is_refused_by_name(tmp_path, content):
    path = tmp_path / "some.json"
    path.write_text(content)
    with pytest.raises(logs.LogError, match=r"some\.json: (is no log|holds no conversation)"):
        list(logs.read(path))


def test_a_path_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(logs.LogError, match="nowhere: no such file"):
        list(logs.read(tmp_path / "nowhere"))


KEYS = ["type", "message", "sessionId", "payload", "mapping", "messages", "parts", "info", "content", "role"]
KEYS += ["chat_messages", "author", "time", "created", "state", "sender", "text", "children", "parent", "current_node"]
json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(json_values, max_size=4))
def test_whatever_a_file_holds_it_is_a_log_or_refused(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("fuzz") / "x.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    try:
        for log in logs.read(path):
            assert len(log.messages) == len(log.times)
    except logs.LogError:
        pass


def test_what_is_imported_keeps_its_time_and_is_found_once(tmp_path):
    config = Config(archive=ArchiveConfig(path=tmp_path / "a.db"), embed=EmbedConfig(enabled="off"))
    (log,) = logs.read(claude_code(tmp_path))
    with Lantern(config) as lantern:
        assert lantern.archive(log.session, log.messages, times=log.times, title=log.title) == 4
        assert lantern.archive(log.session, log.messages, times=log.times) == 0
    with Lantern(config) as lantern:
        assert lantern.archive(log.session, log.messages, times=log.times) == 0
        hits = lantern.search("port 7461")
    assert {hit.passage.session for hit in hits} == {log.session}
    assert all(abs(hit.passage.created_at - AT) < 60 for hit in hits)


def test_an_agents_conversation_that_was_imported_goes_on_through_the_proxy(tmp_path):
    def turn(n):
        call = {
            "id": f"toolu_{n:08}",
            "type": "function",
            "function": {"name": "read", "arguments": f'{{"file": "m{n}.py"}}'},
        }
        told = {"role": "tool", "tool_call_id": call["id"], "content": f"PORT_{n} = {9_000 + n}"}
        asked = {"role": "user", "content": f"Look at file {n}, please."}
        return [asked, {"role": "assistant", "content": None, "tool_calls": [call]}, told]

    history = [message for n in range(8) for message in turn(n)]
    for shown, event in ((history, "turn"), (history[-4:], "window")):
        (tmp_path / event).mkdir()
        with Upstream() as upstream:
            config = config_for(upstream, tmp_path / event)
            with Lantern(config, user="sk-one") as lantern:
                lantern.archive("imported\n1", history)
            with serving(config) as url:
                answer = lantern_headers(ask(url, body(*shown, "Which port has file 1?")))
        assert (answer["event"], answer["session"]) == (event, "imported?1")


BEFORE = {
    "a title": ("Write a title of five words.", {"system": "You write titles.", "tools": []}),
    "a probe": ("quota", {"system": "", "tools": []}),
    "a warm-up": ("Warmup", {}),
}
"""What a client may ask under the id of a conversation before it goes on with that."""


@pytest.mark.parametrize("before", [*BEFORE])
def test_what_a_client_compacted_before_it_was_imported_comes_back_when_it_goes_on(tmp_path, before):
    """`claude --continue` through the proxy, the first time: all that it compacted is in the log only."""

    def row(role: str, text: object, second: int, **more: object) -> dict:
        at = f"2026-05-28T20:26:{second:02d}.000Z"
        return {"type": role, "sessionId": "5d1c", "timestamp": at, "message": {"role": role, "content": text}} | more

    facts = [f"Depot {n} ships through gate GATE-{n * 7_919}." for n in range(8)]
    said = [
        row(role, text, n) for n, fact in enumerate(facts) for role, text in (("user", fact), ("assistant", f"{n}!"))
    ]
    summary = "Summary of the conversation so far: the user listed depots with their gates, and all of them were filed."
    call: list = [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "date"}}]
    done: list = [{"type": "tool_result", "tool_use_id": "t1", "content": "Thursday"}]
    said += [row("assistant", call, 20), row("user", done, 21), row("assistant", "Done.", 22)]
    log = lines(tmp_path / "logs" / "5d1c.jsonl", *said, row("user", summary, 30, isCompactSummary=True))
    system, tools = "You are a coding agent.", [{"name": "Bash", "input_schema": {"type": "object"}}]

    def send(url: str, *texts: str, **more: object) -> dict[str, str]:
        headers = {"x-api-key": "sk-one", "x-claude-code-session-id": "5d1c"}
        request = body(*texts, max_tokens=9, **({"system": system, "tools": tools} | more))
        return lantern_headers(http.post(f"{url}/v1/messages", json=request, headers=headers))

    answer = json.dumps({"id": "msg_1", "role": "assistant", "content": [{"type": "text", "text": "Gladly."}]})
    with Upstream(respond(200, answer.encode())) as upstream:
        config = config_for(upstream, tmp_path)

        def imported() -> int:
            with Lantern(config, user="sk-one") as lantern:
                (found,) = logs.read(log)
                return lantern.archive(
                    found.session, found.messages, times=found.times, known_as=found.id, api=found.api
                )

        first = imported()
        with serving(config) as url:
            talk = (summary, "Done.", "Let us go on. Which gate is it for depot 2?")
            events = [send(url, BEFORE[before][0], **BEFORE[before][1])]
            events.append(send(url, *talk))
            sent = json.dumps(upstream.got[-1].data)
            events.append(send(url, *talk, "Gladly.", "And now tell me about something else."))
        again = imported()
    assert (first, again) == (19, 0)
    assert [each["event"] for each in events] == ["side", "compacted", "turn"]
    assert {each["session"].removesuffix(".side") for each in events} == {found.session for found in logs.read(log)}
    assert "GATE-15838" in sent


def test_what_comes_before_the_first_time_has_that_one(tmp_path):
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "created_at": AT}]
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"messages": said}))
    (log,) = logs.read(file)
    assert log.times == (AT, AT)


def test_times_that_are_not_one_a_message_are_refused(tmp_path):
    config = Config(archive=ArchiveConfig(path=tmp_path / "a.db"), embed=EmbedConfig(enabled="off"))
    with Lantern(config) as lantern, pytest.raises(ValueError, match="2 times for 1 messages"):
        lantern.archive("s", [{"role": "user", "content": "hi"}], times=[1.0, 2.0])


def test_a_message_with_a_line_separator_in_it_is_read_whole(tmp_path):
    text = "one\u2028two\u2029three\u0085four"
    row = {"type": "user", "sessionId": "s1", "message": {"role": "user", "content": text}}
    path = tmp_path / "s1.jsonl"
    more = row | {"message": {"role": "user", "content": "Which port?"}}
    path.write_text("\n".join(json.dumps(each, ensure_ascii=False) for each in (row, more)), encoding="utf-8")
    (log,) = logs.read(path)
    assert [message["content"] for message in log.messages] == [text, "Which port?"]
