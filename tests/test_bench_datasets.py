"""Readers of test collections: files of our own making in the published formats."""

import gzip
import json

import pytest

from lantern_proxy.bench import datasets
from lantern_proxy.bench.datasets import DataError

LOCOMO = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bob",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "I moved to Lisbon."},
                {"speaker": "Bob", "dia_id": "D1:2", "text": "Look!", "blip_caption": "a red tram on a hill"},
            ],
            "session_2_date_time": "9:00 am on 1 June, 2023",
            "session_2": [{"speaker": "Bob", "dia_id": "D2:1", "text": "I adopted a ferret called Mochi."}],
        },
        "qa": [
            {"question": "Where does Ann live?", "answer": "Lisbon", "evidence": ["D1:1", "D9:9"], "category": 4},
            {"question": "What does Bob keep?", "answer": "a ferret", "evidence": ["D2:1"], "category": 5},
            {"question": "Nothing holds this.", "answer": "", "evidence": ["D1:1; D1:2"], "category": 1},
            {"question": "Nor this.", "answer": "", "evidence": [], "category": 3},
        ],
    }
]
BEAM = {
    "chat": [
        {
            "batch_number": 1,
            "turns": [
                [
                    {"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "My port is 9443. ->-> 1,1"},
                    {"role": "assistant", "id": 1, "time_anchor": None, "content": "Noted ->-> as you say."},
                ]
            ],
        },
        {"batch_number": 2, "turns": [[{"role": "user", "id": 2, "content": "Now it is 9444.  ->-> 2,3"}]]},
    ],
    "probing_questions": {
        "knowledge_update": [{"question": "Which port?", "source_chat_ids": {"old": [0], "new": [[2]]}}],
        "abstention": [{"question": "Which colour?"}],
    },
}
HAYSTACK = {
    "question_id": "q1",
    "question_type": "temporal-reasoning",
    "question": "When did I buy the kayak?",
    "answer": "in May",
    "question_date": "2023/05/30 (Tue) 23:40",
    "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 10:00"],
    "haystack_session_ids": ["answer_1", "other"],
    "haystack_sessions": [
        [
            {"role": "user", "content": "I bought a kayak today.", "has_answer": True},
            {"role": "assistant", "content": "Fun!"},
        ],
        [{"role": "user", "content": "Tell me a joke."}],
    ],
    "answer_session_ids": ["answer_1"],
}  # fmt: skip


OWN = {
    "id": "x",
    "candidates": [{"id": "1", "session": "s", "speaker": "user", "text": "Red."}],
    "questions": [{"text": "Which?", "gold": ["1"]}],
}
DEEP = 100_000 * "[" + 100_000 * "]"


def changed(data, text, value):
    """The data as JSON, with another value where the text stood."""
    return json.dumps(data).replace(json.dumps(text), json.dumps(value))


def written(path, value):
    path.write_text(json.dumps(value))
    return path


def test_locomo_keeps_questions_with_evidence_that_exists_and_puts_captions_into_the_text(tmp_path):
    (conversation,) = datasets.locomo(written(tmp_path / "locomo.json", LOCOMO))
    assert [(q.text, q.gold, q.category) for q in conversation.questions] == [
        ("Where does Ann live?", {"D1:1"}, "4"),
        ("What does Bob keep?", {"D2:1"}, "5"),
    ]
    tram = conversation.candidates[1]
    assert tram.text_with_speaker == "Bob: Look! [picture: a red tram on a hill]"
    assert (tram.session, tram.at) == ("session_1", 1683554160.0)


def test_beam_strips_the_generators_tag_from_the_end_of_messages_only(tmp_path):
    (tmp_path / "chat_1.json.gz").write_bytes(gzip.compress(json.dumps(BEAM).encode()))
    (conversation,) = datasets.beam(tmp_path)
    assert [c.text for c in conversation.candidates] == [
        "My port is 9443.", "Noted ->-> as you say.", "Now it is 9444.",
    ]  # fmt: skip
    assert [(q.category, q.gold) for q in conversation.questions] == [("knowledge_update", {"0", "2"})]
    assert len({c.session for c in conversation.candidates}) == 2
    assert conversation.candidates[2].at == conversation.candidates[0].at == 1710460800.0


def test_longmemeval_leaves_unanswerable_questions_out(tmp_path):
    path = written(tmp_path / "lme.json", [HAYSTACK, HAYSTACK | {"question_id": "q2_abs"}])
    (conversation,) = datasets.longmemeval(path)
    (asked,) = conversation.questions
    assert {c.session for c in conversation.candidates if c.id in asked.gold} == {"0#answer_1"}
    assert asked.at == 1685490000.0
    assert asked.category == "temporal-reasoning"


def test_ir_reads_both_places_of_judgements_and_keeps_grades(tmp_path):
    (tmp_path / "corpus.jsonl.gz").write_bytes(
        gzip.compress(b'{"_id": "a", "title": "Tides", "text": "the moon pulls"}\n{"_id": "b", "text": "sand"}\n')
    )
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "why tides"}\n{"_id": "2", "text": "unjudged"}\n')
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t2\n1\tb\t0\n1\tgone\t1\n")
    (conversation,) = datasets.ir(tmp_path)
    assert conversation.candidates[0].text == "Tides the moon pulls"
    assert [(q.gold, q.grades) for q in conversation.questions] == [({"a"}, {"a": 2.0})]


@pytest.mark.parametrize(
    ("read", "content", "told"),
    [
        (datasets.locomo, "{", "is not JSON"),
        (datasets.locomo, "[1]", "is not LoCoMo's list of samples"),
        (datasets.locomo, '[{"sample_id": "x", "conversation": {}}]', "sample x lacks"),
        (datasets.locomo, '[{"sample_id": "x", "qa": [], "conversation": {"session_one": []}}]', "sample x lacks"),
        (datasets.longmemeval, "[]", "is not LongMemEval's list"),
        (datasets.longmemeval, "[5]", "is not LongMemEval's list"),
        (datasets.longmemeval, '[{"haystack_sessions": []}, 7]', "is not LongMemEval's list"),
        (datasets.labelled, '{"id": 1}', "a line is"),
        (datasets.labelled, '{"id": 1}', "has no 'candidates'"),
        (datasets.longmemeval, '[{"question_id": "q7", "haystack_sessions": []}]', "question q7 lacks"),
        (datasets.locomo, changed(LOCOMO, "I moved to Lisbon.", None), "conv-1 lacks .*text is no text in .*D1:1"),
        (datasets.locomo, changed(LOCOMO, "What does Bob keep?", 5), "conv-1 lacks .*question is no text in"),
        (datasets.beam, changed(BEAM, "Which port?", None), "question is no text in"),
        (datasets.beam, changed(BEAM, "Noted ->-> as you say.", ["Noted"]), "content is no text in .*'id': 1"),
        (datasets.longmemeval, changed([HAYSTACK], "Fun!", {}), "question q1 lacks .*content is no text in"),
        (datasets.longmemeval, changed([HAYSTACK], "When did I buy the kayak?", 1), "question is no text in"),
        (datasets.labelled, changed(OWN, "Red.", None), ":1: text is no text in"),
        (datasets.labelled, changed(OWN, "Which?", 3.5), ":1: text is no text in"),
        (datasets.locomo, DEEP, "is not JSON"),
        (datasets.beam, DEEP, "is not JSON"),
        (datasets.beam, json.dumps(BEAM).replace("[[2]]", 5_000 * "[" + 5_000 * "]"), "is not JSON|maximum recursion"),
        (datasets.longmemeval, DEEP, "is not JSON"),
        (datasets.labelled, DEEP, "maximum recursion"),
        (datasets.locomo, json.dumps(LOCOMO * 2), "conv-1 is the name of another conversation of it"),
        (datasets.longmemeval, json.dumps([HAYSTACK, HAYSTACK]), "q1 is the name of another conversation of it"),
        (datasets.labelled, f"{json.dumps(OWN)}\n{json.dumps(OWN)}", "x is the name of another conversation of it"),
    ],
)
def test_a_wrong_file_is_told_with_its_name_and_its_fault(tmp_path, read, content, told):
    path = tmp_path / "given.json"
    path.write_text(content)
    with pytest.raises(DataError, match=told) as raised:
        read(path)
    assert str(path) in str(raised.value)


def test_two_candidates_of_one_id_are_refused(tmp_path):
    twice = [OWN["candidates"][0], OWN["candidates"][0] | {"text": "Blue."}]
    path = written(tmp_path / "own.jsonl", OWN | {"candidates": twice})
    with pytest.raises(DataError, match=r"own\.jsonl: 1 is the id of 2 candidates of x"):
        datasets.labelled(path)
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a", "text": "tides"}\n{"_id": "a", "text": "sand"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "why tides"}\n')
    (tmp_path / "qrels.tsv").write_text("q\ta\t1\n")
    with pytest.raises(DataError, match=r"corpus\.jsonl: a is the id of 2 candidates"):
        datasets.ir(tmp_path)


@pytest.mark.parametrize("score", ["5000", "inf", "nan"])
def test_a_score_of_which_there_is_no_gain_is_refused(tmp_path, score):
    for file in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / file).write_text('{"_id": "a", "text": "tides"}\n')
    (tmp_path / "qrels.tsv").write_text(f"a\ta\t{score}\n")
    with pytest.raises(DataError, match=rf"qrels\.tsv: line 1 has the score {score}; .* 100 at most"):
        datasets.ir(tmp_path)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "own.jsonl").write_text(json.dumps(OWN), "utf-8-sig")
    assert datasets.labelled(tmp_path / "own.jsonl")[0].id == "x"


def test_two_chats_of_one_name_are_refused_with_both_files(tmp_path):
    for name in ("one.1.json", "one.2.json", "two.json"):
        written(tmp_path / name, BEAM)
    with pytest.raises(DataError, match=r"one\.2\.json: one is the name of another conversation of .*one\.1\.json"):
        datasets.beam(tmp_path)


@pytest.mark.parametrize("read", [datasets.locomo, datasets.longmemeval])
def test_a_missing_file_says_whose_it_is_to_fetch(tmp_path, read):
    with pytest.raises(DataError, match=r"^[^(]*: no such file; the data is yours to fetch"):
        read(tmp_path / "gone.json")


@pytest.mark.parametrize("read", [datasets.beam, datasets.ir])
def test_an_empty_folder_says_what_it_should_hold(tmp_path, read):
    with pytest.raises(DataError, match="holds no"):
        read(tmp_path)


SEPARATORS = "one\u2028two\u2029three\u0085four"
"""Signs that JSON may hold as they are, and that are line breaks for str.splitlines()."""


def test_a_line_ends_where_files_end_it_and_not_at_a_separator_within_a_text(tmp_path):
    corpus = {"_id": "a", "text": SEPARATORS}
    (tmp_path / "corpus.jsonl").write_text(json.dumps(corpus, ensure_ascii=False) + "\n", "utf-8")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q\u2028", "text": "which"}\r\n', "utf-8")
    (tmp_path / "qrels.tsv").write_text("q\u2028\ta\t1\n", "utf-8")
    (conversation,) = datasets.ir(tmp_path)
    assert conversation.candidates[0].text == SEPARATORS
    assert conversation.questions[0].gold == {"a"}
    candidate = {"id": "1", "session": "s", "speaker": "user", "text": SEPARATORS}
    own = {"id": "x", "candidates": [candidate], "questions": [{"text": "which?", "gold": ["1"]}]}
    (tmp_path / "own.jsonl").write_text(json.dumps(own, ensure_ascii=False) + "\n", "utf-8")
    (conversation,) = datasets.labelled(tmp_path / "own.jsonl")
    assert conversation.candidates[0].text == SEPARATORS


@pytest.mark.parametrize(
    ("name", "line", "told"),
    [
        ("corpus.jsonl", '{"id": "a", "text": "x"}', "line 2 is no object with _id and text"),
        ("queries.jsonl", '["a"]', "line 2 is no object with _id and text"),
        ("queries.jsonl", '{"_id": ', "line 2 is not JSON"),
        ("queries.jsonl", '{"_id": "b", "text": null}', "line 2 is no object with _id and text"),
        ("corpus.jsonl", 100_000 * "[", "line 2 is not JSON"),
    ],
)
def test_a_collection_with_a_line_that_is_none_is_told_with_the_line(tmp_path, name, line, told):
    for file in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / file).write_text('{"_id": "a", "text": "tides"}\n' + (f"{line}\n" if file == name else ""))
    (tmp_path / "qrels.tsv").write_text("a\ta\t1\n")
    with pytest.raises(DataError, match=told) as raised:
        datasets.ir(tmp_path)
    assert str(tmp_path / name) in str(raised.value)


PACKED = gzip.compress(b"{}" * 5_000, mtime=0)


@pytest.mark.parametrize("content", [PACKED[:12] + b"\xff" * 10 + PACKED[22:], PACKED[:20], b"PK", b""])
def test_a_damaged_archive_is_told_with_its_name(tmp_path, content):
    (tmp_path / "chat.json.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"chat\.json\.gz: "):
        datasets.beam(tmp_path)


def test_bytes_that_are_no_text_are_told_with_the_files_name(tmp_path):
    (tmp_path / "own.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"own\.jsonl: cannot be read"):
        datasets.labelled(tmp_path / "own.jsonl")
