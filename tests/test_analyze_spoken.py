import gc
import time

import pytest

from lantern_proxy.analyze.spoken import spoken
from lantern_proxy.restore.question import parse_question

STATE = "<environment_details>\ntime: 10:06\nopen: gates.py\n</environment_details>"
COMPACTED = """<local-command-caveat>The command below was run directly.</local-command-caveat>

<command-name>/compact</command-name>
            <command-message>compact</command-message>
            <command-args></command-args>

<local-command-stdout>Compacted (ctrl+o to see full summary)</local-command-stdout>
"""
"""What Claude Code 2.1 puts in front of the first prompt after `/compact`."""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"Which gate?\n\n{STATE}", "Which gate?"),
        ("<system-reminder>\nUse tabs.\n</system-reminder>\nWhich gate?", "Which gate?"),
        (f"<user_query>\nWhich gate?\n</user_query>\n{STATE}", "Which gate?"),
        (
            f"<editorContext>\ngates.py\n</editorContext>\n<userRequest>\nWhich gate?\n</userRequest>\n{STATE}",
            "Which gate?",
        ),
        ("The user answered:\n<feedback>\nWhich <b>gate</b>?\n</feedback>", "Which <b>gate</b>?"),
        (f"### Task:\nAnswer in short.\n{STATE}\n<user_query>\nWhich gate?\n</user_query>", "Which gate?"),
        ('{"type": "user_message", "message": "Which gate?", "time": "2026-03-01 10:05"}', "Which gate?"),
        ("<user_info>\nLinux\n</user_info>\nWhich gate?", "Which gate?"),
        ("<a>\n<a>\nx\n</a>\ny\n</a>\nWhich gate?", "Which gate?"),
        ("# Context\n## Open file: a.py\n\n## My request for the agent:\nWhich gate?", "Which gate?"),
        ("Context:\nQuestions are welcome.\n\nUser question: Which gate?", "Which gate?"),
        ("<task>\n</task>\nWhich gate?", "Which gate?"),
        ("[2026-03-01 10:05] Which gate?", "Which gate?"),
        ("[5 minutes ago] Which gate?", "Which gate?"),
        ("(Sun 1 March, 10:05:33) Which gate?", "Which gate?"),
        (f"{COMPACTED}\nWhich gate?", "Which gate?"),
        ("<system_message>\nUse tabs.\n</system_message>\nWhich gate?", "Which gate?"),
        ("<tool_input>\na.py\n</tool_input>\nWhich gate?", "Which gate?"),
        (f"<error-message>\nno such file\n</error-message>\n<query>\nWhich gate?\n</query>\n{STATE}", "Which gate?"),
    ],
)
def test_what_a_client_writes_around_its_users_words_is_left_out(text, said):
    assert spoken(text).strip() == said


@pytest.mark.parametrize(
    "text",
    [
        "How do I close a <div> in <b>this</b> page?",
        "Which gate? <time>10:06</time> was on the board",
        "<document>\nOnly this was sent.\n</document>",
        "<a>\nnever closed. Which gate?",
        "never opened. Which gate?\n</a>",
        "[see the list] Which gate?",
        "[the 2026-03 report](http://localhost/r) is where?",
        "## Any other question?",
        '{"gate": 7, "open": true}',
        '{"message": broken}',
        "My question is which gate.",
    ],
)
def test_what_may_be_a_users_own_words_stays(text):
    assert spoken(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "Observation:\nWhich gate? Nobody knows.",
        "[ask for 'the gate'] Result:\nWhich gate?",
        f"<tool_response>\nWhich gate?\n</tool_response>\n{STATE}",
        "<returncode>0</returncode>\n<output>\nWhich gate?\n</output>",
    ],
)
def test_a_result_that_comes_as_a_message_of_the_user_asks_nothing(text):
    assert spoken(text) == ""
    assert not parse_question(text).terms


def test_a_question_is_read_alike_whatever_its_client_writes_around_it():
    bare = parse_question("Which gate does depot 7 ship through?")
    assert parse_question(f"[2026-03-01 10:05] Which gate does depot 7 ship through?\n{STATE}") == bare
    assert parse_question(f"<user_query>\nWhich gate does depot 7 ship through?\n</user_query>\n{STATE}") == bare


@pytest.mark.parametrize(
    "text",
    ["<a>\n" * 50_000, "</a>\n" * 50_000, "<a>\n" * 50_000 + "</a>", "<a>\n</a>\n" * 25_000, " \t" * 100_000 + "</"],
    ids=["opened", "closed", "closed once", "empty ones", "white space"],
)
def test_hostile_elements_are_read_in_linear_time(text):
    def seconds(times: int) -> float:
        began = time.process_time()
        spoken(text * times)
        return time.process_time() - began

    gc.disable()  # it takes as long as all other tests have left things behind
    try:
        assert min(seconds(4) for _ in range(3)) < 10 * min(seconds(1) for _ in range(3)) + 0.05
    finally:
        gc.enable()
