"""`lantern bench judged`: a scripted model behind a real server answers by simple rules, all else is the product."""

import json
import re
from collections import Counter

import pytest
from click.testing import CliRunner
from scripted import Upstream, completion, respond

from lantern_proxy.bench import judged, restore
from lantern_proxy.bench import judged_prompts as prompts
from lantern_proxy.bench.language_model import Answers, Model
from lantern_proxy.bench.restore_chats import ChatMessage
from lantern_proxy.bench.restore_recipes import truncate_lines

JSON = ("content-type", "application/json")
DEPOT = re.compile(r"Depot number (\d+) ships through gate (GATE-\d+)")
N = 130


def gate(n: int) -> str:
    return f"GATE-{n * 7919:05d}"


@pytest.fixture
def data(tmp_path):
    def text_of(n: int) -> str:
        if n % 2:
            return f"Noted, that is fine with me, message {n}."
        return f"Depot number {n} ships through gate {gate(n)}, and its yard was paved by crew {n * 31}."

    turns = [
        {"speaker": "Ana" if n % 2 else "Ben", "dia_id": f"D1:{n}", "text": text_of(n)} for n in range(1, 2 * N + 1)
    ]
    talk = {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns}
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([{"sample_id": "t", "conversation": talk, "qa": []}]))
    return path


def reply(system: str, user: str) -> str:
    """What the scripted model says: rules over what stands in the prompt, and nothing else."""
    if "list facts" in system:
        facts = [
            {
                "fact": f"Depot {n} ships through {g}",
                "kind": "name",
                "question": f"Through which gate does depot number {n} ship?",
                "answer": g,
            }
            for n, g in DEPOT.findall(user)[:4]
        ]
        return json.dumps([*facts, {"fact": "?", "kind": "name", "question": "Who?", "answer": "Zanzibar"}, "no fact"])
    if "older part of a conversation is about to be dropped" in system:
        return "\n".join(f"Depot number {n} ships through gate {g}" for n, g in DEPOT.findall(user)[:3])
    if '"recovered"' in system:
        fact, text = user.split("<text>")
        return json.dumps({"recovered": re.search(r"GATE-\d+", fact).group() in text})
    if "go on with a conversation" in system:
        history, question = user.split("<question>")
        known = dict(DEPOT.findall(history))
        return known.get(re.search(r"depot number (\d+)", question).group(1), "I do not know.")
    right = re.search(r"<right>\n(\S+)", user).group(1)
    correct = right in user.split("<answer>")[1]
    return f"My verdict: {json.dumps({'correct': correct, 'quality': 5 if correct else 1})}"  # fmt: skip


class Scripted:
    """Counts what it is asked, and can break down after some answers."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.left = 10**9

    async def __call__(self, got, wire) -> None:
        system, user = (message["content"] for message in got.data["messages"])
        if not self.left:
            await respond(400, b'{"error": "out of money"}', JSON)(got, wire)
            return
        self.left -= 1
        self.asked[system + user] += 1
        body = json.loads(completion(reply(system, user)))
        body["usage"] = {"prompt_tokens": 100, "completion_tokens": 10}
        await respond(200, json.dumps(body).encode(), JSON)(got, wire)


@pytest.fixture
def model():
    scripted = Scripted()
    with Upstream(scripted) as upstream:
        scripted.url = f"{upstream.url}/v1"
        scripted.got = upstream.got
        yield scripted


@pytest.fixture
def run(data, model, tmp_path):
    def run(*options, command=judged.command, name="gpt-4"):
        given = ["--data", str(data), "--keep", str(tmp_path / "kept"), "--no-dense", "--json"]
        given += ["--model", name, "--model-url", model.url, "--answers", str(tmp_path / "answers.jsonl"), *options]
        return CliRunner().invoke(command, given)

    return run


def told(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.strip().splitlines()[-1])


def test_what_is_put_back_is_judged_beside_nothing_and_the_baseline(run, model):
    found = told(run("--facts", "8", "--budget", "1500", "--question-budget", "900"))
    ours, none, notes = (found["recipes"][name] for name in ("default", "none", "memgpt"))
    assert found["facts"] == ours["n"] == none["n"] == 8
    assert found["facts_dropped"] == 4  # of two excerpts, one that stands nowhere and one that is none
    assert (ours["recovered"], ours["accuracy"], ours["quality"]) == (1.0, 1.0, 5.0)
    assert (none["recovered"], none["accuracy"], none["quality"]) == (0.0, 0.0, 1.0)
    assert (ours["contained"], none["contained"]) == (1.0, 0.0)
    assert 0 < notes["recovered"] == notes["accuracy"] < 1  # three depots is what it wrote down
    assert ours["kinds"]["name"]["n"] == 8
    beside = none["default_against_it"]["accuracy"]
    assert beside["difference"] == 1.0
    assert beside["ci"] == [1.0, 1.0]
    assert beside["p_wilcoxon"] < 0.05
    assert max(model.asked.values()) == 1


def test_the_data_sets_own_questions_need_neither_extraction_nor_a_judge(run, model, data):
    [talk] = json.loads(data.read_text())
    qa = [
        {"question": f"Through which gate does depot number {n} ship?", "answer": gate(n), "evidence": [f"D1:{n}"],
         "category": 4}
        for n in (2, 8, 14)
    ]  # fmt: skip
    data.write_text(json.dumps([talk | {"qa": qa}]))
    found = told(run("--questions", "data", "--no-judge", "--facts", "2", "--recipe", "default"))
    assert (found["facts"], found["judge"], found["questions"]) == (2, None, "data")
    assert (found["recipes"]["default"]["contained"], found["recipes"]["none"]["contained"]) == (1.0, 0.0)
    assert not {"accuracy", "recovered"} & found["recipes"]["default"].keys()
    assert found["usage"]["gpt-4"]["calls"] == 4
    assert all("go on with a conversation" in asked for asked in model.asked)


def test_without_questions_in_the_data_it_says_so(run):
    result = run("--questions", "data")
    assert result.exit_code == 1
    assert "--data has no question" in result.output


def test_a_judge_without_verdicts_leaves_what_is_counted(run, model, monkeypatch):
    own = reply
    monkeypatch.setitem(globals(), "reply", lambda system, user: "Hm." if "grade" in system else own(system, user))
    found = told(run("--facts", "4", "--recipe", "default"))["recipes"]["default"]
    assert (found["n"], found["unjudged"], found["contained"]) == (4, 4, 1.0)
    assert "accuracy" not in found


def test_calls_tokens_and_costs_are_told(run, model):
    used = told(run("--facts", "4", "--recipe", "default"))["usage"]["gpt-4"]
    assert used["calls"] == sum(model.asked.values())
    assert used["tokens"] == {"read": 100 * used["calls"], "written": 10 * used["calls"]}
    assert used["usd"] in (None, pytest.approx(used["calls"] * (100 * 3e-5 + 10 * 6e-5)))
    assert (
        told(run("--facts", "4", "--recipe", "default", name="nobody-knows-it"))["usage"]["nobody-knows-it"]["usd"]
        is None
    )


def test_a_run_that_breaks_off_goes_on_from_there(run, model):
    model.left = 9
    broken = run("--facts", "4", "--threads", "1")
    assert broken.exit_code == 1
    assert "gave no answer of gpt-4 (status 400" in broken.output
    assert "run it again to go on from here" in broken.output
    model.left = 10**9
    found = told(run("--facts", "4", "--threads", "1"))
    assert found["usage"]["gpt-4"]["from_cache"] >= 9
    assert max(model.asked.values()) == 1
    again = told(run("--facts", "4", "--threads", "1"))
    assert again["usage"]["gpt-4"]["calls"] == 0
    assert again["recipes"] == found["recipes"]


def test_the_number_of_calls_has_a_limit(run, model):
    stopped = run("--most-calls", "5")
    assert stopped.exit_code == 1
    assert "5 calls to gpt-4 are made" in stopped.output
    assert sum(model.asked.values()) == 5


def test_a_busy_server_is_asked_again(run, model, data, tmp_path):
    from lantern_proxy.bench.language_model import Answers, Model

    slept: list[float] = []
    busy = [respond(429, b"{}", ("retry-after", "7")), respond(503, b"{}"), respond(200, completion("yes"), JSON)]

    async def answer(got, wire) -> None:
        await busy.pop(0)(got, wire)

    with Upstream(answer) as upstream, Model(
        f"{upstream.url}/v1", "m", "sk-secret", Answers(tmp_path / "a.jsonl"), 1, sleep=slept.append
    ) as asking:  # fmt: skip
        assert asking("system", "user") == "yes"
        assert upstream.got[-1].header("authorization") == "Bearer sk-secret"
    assert slept == [7.0, 14.0]
    assert "sk-secret" not in (tmp_path / "a.jsonl").read_text()


def test_a_line_that_was_cut_off_is_asked_again(tmp_path):
    from lantern_proxy.bench.language_model import Answers

    path = tmp_path / "a.jsonl"
    Answers(path).put("one", "1", "m")
    Answers(path).put("two", "2", "m")
    path.write_bytes(path.read_bytes()[:-9])
    kept = Answers(path)
    assert (kept.get("one"), kept.get("two")) == ("1", None)
    kept.put("two", "2", "m")
    assert Answers(path).get("two") == "2"


def test_the_extraction_baseline_is_a_recipe_like_others(run, model):
    found = told(run("--recipe", "memgpt", "--measure", "facts", "--query", "context", command=restore.command))
    assert found["recipe"] == "memgpt"
    assert found["usage"]["gpt-4"]["calls"] == 1
    assert found["n"] > 0


@pytest.mark.parametrize("given", [[], ["--model", "m"], ["--model-url", "http://127.0.0.1:1/v1"]])
def test_without_a_model_it_says_what_to_give(data, given):
    result = CliRunner().invoke(judged.command, ["--data", str(data), *given])
    assert result.exit_code == 2
    assert "--model NAME --model-url http://host/v1" in result.output


def test_the_baseline_without_a_model_says_so(data):
    result = CliRunner().invoke(restore.command, ["--data", str(data), "--no-dense", "--recipe", "memgpt"])
    assert result.exit_code == 2
    assert "recipe memgpt needs a model" in result.output


@pytest.mark.parametrize(
    "verdict", ["yes", "{}", '{"correct": "true", "quality": 3}', '{"correct": true, "quality": 9}']
)
def test_a_judge_without_a_verdict_is_not_taken_for_one(verdict):
    with pytest.raises(ValueError, match="the judge said"):
        prompts.read_grade(verdict)


@pytest.mark.parametrize(
    "around", ["{}", '{{"facts": {}}}', "I found [2] facts:\n```json\n{}\n```", "{}, {{and then I was cut off"]
)
def test_facts_are_read_however_a_model_dresses_them(around):
    said = [ChatMessage("1", "user", "Rosalind keeps the spare key under the blue pot.", 1, 0.0)]
    fact = {"fact": "The key is under the blue pot", "kind": "place", "question": "Where?", "answer": "the blue pot"}
    found, _ = prompts.read_facts(around.format(json.dumps([fact])), said)
    assert [each.answer for each in found] == ["the blue pot"]


def test_of_an_array_that_ends_in_the_middle_the_whole_facts_count():
    said = [ChatMessage("1", "user", "Rosalind keeps the spare key under the blue pot.", 1, 0.0)]
    fact = {"fact": "The key is under the blue pot", "kind": "place", "question": "Where?", "answer": "the blue pot"}
    found, _ = prompts.read_facts(json.dumps([fact, fact])[:-20], said)
    assert len(found) == 1


def test_the_last_verdict_counts():
    said = 'An example would be {"correct": true, "quality": 4}. Here: {"correct": false, "quality": 2}'
    assert prompts.read_grade(said) == (False, 2)


def test_a_model_that_takes_no_temperature_is_asked_without_it(tmp_path):
    async def reasoning(got, wire) -> None:
        if "temperature" in got.data:
            await respond(400, b'{"error": {"param": "temperature", "code": "unsupported_value"}}', JSON)(got, wire)
        else:
            await respond(200, completion("<think>hm</think>\nYes."), JSON)(got, wire)

    with Upstream(reasoning) as server, Model(f"{server.url}/v1", "m", "", Answers(tmp_path / "a"), 5) as asked:
        assert [asked("s", "one"), asked("s", "two")] == ["Yes.", "Yes."]
        assert len(server.got) == 3


def test_facts_that_stand_nowhere_are_left_out():
    said = [ChatMessage("1", "user", "The boiler code is 7719.", 1, 0.0)]
    answer = 'Here: [{"fact": "f", "kind": "odd", "question": "q?", "answer": "7719"}, {"fact": "f", "answer": "1"}]'
    facts, dropped = prompts.read_facts(answer, said)
    assert ([f.kind for f in facts], dropped) == (["other"], 1)
    assert prompts.read_facts("I cannot", said) == ([], 0)


def test_notes_are_cut_between_lines():
    assert truncate_lines(["one", "two", "three"], 8) == "one\ntwo"
    assert truncate_lines(["one two three"], 8) == "one two"
    assert truncate_lines([], 8) == ""
