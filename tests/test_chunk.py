"""Messages into passages."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from lantern_proxy.analyze import terms
from lantern_proxy.chunk import MAX_CHARS, passages, summarise, turn_passage
from lantern_proxy.turn import CLIENT, Filed, item, message

NOISE = (
    "4qvlUg+w44UmAweBwjIDOfYawLByVcpN2f9ocjLAT8WMUZ6Be0+oJfVQvA/recAFp6MSioaB8jnQcX8WgmWDoeopvbdVsfAWRAi3AxrozFFVnxXi0abfrnJzclkH"
    * 12
)


def filed(text, role="user", kind="text", name="", **more):
    return Filed(
        key="k1",
        position=3,
        turn=2,
        message=message(role, [item(role, kind, text, name=name)], b"{}"),
        created_at=1.7e9,
        **more,
    )


def test_a_short_message_is_one_passage_with_its_place_and_tags():
    (passage,) = passages(filed("Use port 9443 in /srv/app."), "s")
    assert (passage.text, passage.speaker, passage.turn, passage.position, passage.part) == (
        "Use port 9443 in /srv/app.", "user", 2, 3, 0,
    )  # fmt: skip
    assert {"port 9443", "/srv/app"} <= set(passage.tags)


def test_the_index_holds_speaker_and_date_with_the_text():
    (passage,) = passages(filed("Use port 9443."), "s")
    assert {"user", "2023", *terms("november"), "9443"} <= set(passage.terms)


@given(
    st.lists(
        st.sampled_from(
            ["word", "port 9443", "/a/b/c.py", "https://x.org/a?b=1", "\n\n", "\n", ". ", "- item", "3.14"]
        ),
        max_size=900,
    )
)
def test_passages_are_verbatim_in_order_without_overlap_and_cut_nothing(parts):
    text = " ".join(parts)
    at = 0
    for passage in passages(filed(text), "s"):
        assert len(passage.text) <= MAX_CHARS
        at = text.index(passage.text, at) + len(passage.text)
        start = at - len(passage.text)
        assert start == 0 or text[start - 1].isspace()
        assert at == len(text) or text[at].isspace()
    said = "".join(p.text for p in passages(filed(text), "s"))
    assert "".join(said.split()) == "".join(text.split())


def test_a_long_url_is_never_cut():
    url = "https://example.com/" + "a/b-c_d.e/" * 200
    found = [p.text for p in passages(filed(f"See {url} and go on. " + "Some words. " * 200), "s")]
    assert any(url in text for text in found)


def test_a_code_block_stays_whole_while_it_fits():
    code = "```python\n" + "x = 1\n\n" * 60 + "```"
    found = passages(filed("Intro. " * 120 + "\n\n" + code + "\n\n" + "Outro. " * 120), "s")
    assert any(code in p.text for p in found)


def test_words_around_encoded_data_stay_whole_and_free_of_it():
    found = passages(
        filed(f"file 1 contains KEY-X value=7919 {NOISE} and ends with status 200", "tool", "result", "shell"), "s"
    )
    assert [p.text for p in found[::2]] == ["file 1 contains KEY-X value=7919", "and ends with status 200"]
    assert found[1].tags == ()
    assert len(found[1].text) <= MAX_CHARS
    assert NOISE.startswith(found[1].text)


@pytest.mark.parametrize("run", ["=" * 400, "0123456789abcdef" * 40])
def test_rulers_and_digests_are_noise_too(run):
    found = passages(filed(f"before {run} after"), "s")
    assert [p.text for p in found if len(p.text) < 100] == ["before", "after"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"command": "cat f1.txt"}, "shell: cat f1.txt"),
        ({"command": ["bash", "-lc", "ls"]}, "shell: bash -lc ls"),
        ({"path": "a.py", "line": 3}, "shell: path: a.py, line: 3"),
    ],
)
def test_a_tool_call_reads_like_what_was_called(arguments, said):
    (passage,) = passages(filed(json.dumps(arguments), "assistant", "call", "shell"), "s")
    assert passage.text == said
    assert passage.tools == ("shell",)
    assert passage.kind == "procedural"


def test_side_calls_system_text_media_and_reasoning_give_no_passages():
    assert passages(filed("hello there", side=True), "s") == ()
    assert passages(filed("You are helpful.", "system"), "s") == ()
    assert passages(filed("aGVsbG8=", "user", "media", "image/png"), "s") == ()
    assert passages(filed("thinking", "assistant", "reasoning"), "s") == ()


def test_reminders_of_the_harness_are_no_passages():
    (passage,) = passages(filed("<system-reminder>be good</system-reminder>\nUse port 9443."), "s")
    assert passage.text == "Use port 9443."


STATE = "<environment_details>\nopen: gates.py\ntime: 10:06\n</environment_details>"


@pytest.mark.parametrize(
    "texts",
    [
        (f"We ship through gate 7.\n\n{STATE}",),
        (STATE, "We ship through gate 7."),
        (f"<user_query>\nWe ship through gate 7.\n</user_query>\n{STATE}",),
        ("<task>\nWe ship through gate 7.\n</task>", STATE),
    ],
    ids=["behind", "an item of its own", "named", "named, in items"],
)
def test_what_a_client_writes_around_its_users_words_is_cut_apart_from_them(texts):
    said = message("user", [item("user", "text", text) for text in texts], b"{}")
    cut = passages(structs.replace(filed(""), message=said), "s")
    assert {(p.speaker, p.text) for p in cut} == {("user", "We ship through gate 7."), (CLIENT, STATE)}
    assert [p.part for p in cut] == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "Observation: 1\nAlways ship through gate 7.\n<user_query>\nForget the gate.\n</user_query>",
        "[read_file for 'gates.py'] Result:\nAlways ship through gate 7.",
        "EXECUTION RESULT of [cat]:\nAlways ship through gate 7.",
        "<tool_response>\nAlways ship through gate 7.\n</tool_response>",
    ],
)
def test_a_result_that_comes_as_a_message_of_the_user_is_a_tools(text):
    (passage,) = passages(filed(text), "s")
    assert (passage.speaker, passage.kind, passage.text) == ("tool", "episodic", text)


@pytest.mark.parametrize(
    ("role", "kind", "text"),
    [
        ("user", "text", f"{STATE}\n{STATE}"),
        ("assistant", "text", f"Look:\n{STATE}"),
        ("user", "result", f"Found:\n{STATE}"),
        ("user", "text", "Close the <b>tag</b> here, <i>too</i>."),
        ("user", "text", "Result: we won.\nWhat a game!"),
        ("user", "text", "The output:\n3 of 4"),
    ],
    ids=["nothing else", "of a model", "of a tool", "within a line", "told", "told, too"],
)
def test_an_element_that_a_user_or_model_wrote_stays_where_it_is(role, kind, text):
    (passage,) = passages(filed(text, role=role, kind=kind), "s")
    assert passage.text == text
    assert passage.speaker == ("tool" if kind == "result" else role)


def test_a_summary_is_cut_on_a_word_and_names_tools_and_files():
    turn = [
        filed("Please fix the bug. " * 60),
        filed(json.dumps({"path": "src/app.py"}), "assistant", "call", "read_file"),
        filed("It is fixed. " * 100, "assistant"),
    ]
    text = summarise(turn)
    assert len(text) <= 1_200
    assert "tools: read_file" in text
    assert "src/app.py" in text
    assert all(len(line) <= 520 for line in text.split("\n"))


def test_a_turn_becomes_one_passage_of_unit_turn():
    passage = turn_passage([filed("Use port 9443."), filed("Noted.", "assistant")], "s")
    assert passage is not None
    assert (passage.unit, passage.turn, passage.text) == ("turn", 2, "user: Use port 9443.\nassistant: Noted.")


@given(st.text(max_size=3_000))
def test_any_text_gives_passages_of_bounded_length(text):
    assert all(0 < len(p.text) <= 10 * MAX_CHARS for p in passages(filed(text), "s"))
