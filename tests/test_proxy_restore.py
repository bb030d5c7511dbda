"""What is put back, and when: the paper's recipe, a block that was late, branches that were left, other upstreams."""

import asyncio
import itertools
import json
import re
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from importlib.util import find_spec

import pytest
from msgspec import structs
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
    reply_to,
    respond,
    serving,
    wait_for,
)

from lantern_proxy.archive import Archive
from lantern_proxy.config import RestoreConfig, RouteConfig
from lantern_proxy.proxy.writer import Writer
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.present import Late
from lantern_proxy.restore.restorer import Restorer
from lantern_proxy.turn import LOSSES, Restored

QUICK = RestoreConfig(deadline_ms=1_000)
QUESTIONS_ONLY = RestoreConfig(deadline_ms=5_000, budget_chars=300, question_chars=800)
BLOCK = re.compile(r"<restored_context.*?</restored_context>", re.S)


def fact(n: int) -> str:
    return f"Depot number {n} ships through gate GATE-{n * 7919:05d}, and its keeper is Keeper-{n * 104729:06d}."


def talk(url: str, turns: int, *before: dict) -> list[dict]:
    messages = [*before]
    for n in range(turns):
        messages.append({"role": "user", "content": fact(n)})
        messages.append(ask(url, body(*messages)).json()["choices"][0]["message"])
    return messages


def blocks(upstream: Upstream) -> list[str]:
    """Those in the request that reached the upstream last."""
    return BLOCK.findall("\n".join(str(m["content"]) for m in json.loads(upstream.got[-1].body)["messages"]))


def test_the_papers_recipe_restores_summaries_of_turns(tmp_path):
    with Upstream(echo) as upstream:
        config = config_for(upstream, tmp_path, restore=RestoreConfig(recipe="lantern", deadline_ms=5_000))
        with serving(config) as url:
            messages = talk(url, 8)
            ask(url, body(*messages[-4:], "Which gate does depot number 2 ship through?"))
        (block,) = blocks(upstream)
        assert "GATE-15838" in block
        assert "turn #3" in block
        assert len(block) <= 6_000


def test_a_question_is_read_while_the_block_before_it_is_made(tmp_path):
    expected, in_time = threading.Event(), []

    class Expecting(Restorer):
        def expect(self, question: str) -> None:
            super().expect(question)
            expected.set()

        def at_compaction(self, ask: Ask) -> Restored | None:
            in_time.append(expected.wait(10))
            return super().at_compaction(ask)

    with Upstream(echo) as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config, make_restorer=Expecting) as url:
            messages = talk(url, 8)
            ask(url, body(*messages[-4:], "Which gate does depot number 2 ship through?"))
    assert in_time == [True]


@pytest.mark.parametrize(("shown", "kept"), [
    ("{summary}\n\n{asked}", 0), ("{asked}\n<context>\n<notes>\n{summary}\n</notes>\n</context>", 2),
])  # fmt: skip
def test_what_was_asked_in_the_message_of_a_summary_comes_back_when_that_is_gone_and_the_summary_does_not(
    tmp_path, shown, kept
):
    summary = "The user told of depots and their gates, one after the other, and of the keeper of each of them."

    async def answer(got, wire):
        said = summary if "Summarize" in str(got.data["messages"][-1]["content"]) else "That is noted."
        await respond(200, completion(said), ("content-type", "application/json"))(got, wire)

    with Upstream(answer) as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            messages = talk(url, 8)
            task = "Summarize the conversation so far, so that it can go on without its history. " * 8
            assert lantern_headers(ask(url, body(*messages, task)))["event"] == "side"
            asked = "Depot number 77 ships through gate GATE-77123.\n\nIts keeper is Keeper-771234."
            both = shown.format(summary=summary, asked=asked)
            step = ask(url, body(*messages[len(messages) - kept :], both))
            assert lantern_headers(step)["event"] == "compacted"
            later = [m for n in range(8, 12) for m in ({"role": "user", "content": fact(n)}, messages[1])]
            ask(url, body(both, messages[1], *later, "go on"))
            ask(url, body(*later, "Through which gate does depot number 77 ship, and who is its keeper?"))
        found = "\n".join(blocks(upstream))
    assert "GATE-77123" in found
    assert "Keeper-771234" in found
    assert summary not in found


class LateRestorer(Restorer):
    """Its loss blocks come when they may."""

    may: threading.Event

    def at_compaction(self, ask: Ask) -> Restored | None:
        self.may.wait(60)
        return super().at_compaction(ask)


class TooLong(Restorer):
    """It cannot read the first request in time."""

    late = True

    def _at_compaction(self, ask: Ask) -> Restored | None:
        if self.late:
            self.late = False
            ask.degraded.append("restore:deadline")
            raise Late
        return super()._at_compaction(ask)


@pytest.mark.parametrize(("make", "deadline_ms"), [(LateRestorer, 2_500), (TooLong, 5_000)])
def test_a_loss_block_that_was_late_comes_with_the_next_question(tmp_path, make, deadline_ms):
    LateRestorer.may = threading.Event()
    with Upstream(echo) as upstream:
        config = config_for(upstream, tmp_path, restore=RestoreConfig(deadline_ms=deadline_ms, question_chars=0))
        with serving(config, make_restorer=make) as url:
            messages = talk(url, 8)
            kept = [*messages[-4:], {"role": "user", "content": "carry on with that"}]
            first = ask(url, body(*kept))
            assert lantern_headers(first)["degraded"] == "restore:deadline"
            assert blocks(upstream) == []
            LateRestorer.may.set()
            kept += [first.json()["choices"][0]["message"], {"role": "user", "content": "and now the next step"}]
            answer = ask(url, body(*kept))
        (block,) = blocks(upstream)
        assert "GATE-07919" in block
        assert lantern_headers(answer)["restored"] != "0"
        assert BLOCK.search(json.loads(upstream.got[-1].body)["messages"][-1]["content"])


class NeverInTime(Restorer):
    """Its loss blocks are late, but those that nobody waits for."""

    chosen: threading.Event

    def at_compaction(self, ask: Ask) -> Restored | None:
        if (left_s := ask.deadline - time.monotonic()) < 1:
            time.sleep(max(0.0, left_s) + 0.5)
            return None
        block = super().at_compaction(ask)
        self.chosen.set()
        return block


def lose_in_vain(url: str, *more: dict) -> list[dict]:
    """A talk and the request that lost most of it, and got no block, as the block was late. Waits until it is there."""
    NeverInTime.chosen = threading.Event()
    messages = talk(url, 8)
    kept = [*messages[-4:], {"role": "user", "content": "carry on with that"}, *more]
    first = ask(url, body(*kept))
    assert lantern_headers(first)["degraded"] == "restore:deadline"
    assert NeverInTime.chosen.wait(30)
    time.sleep(0.5)
    return [*kept, first.json()["choices"][0]["message"]]


def test_a_late_loss_block_is_chosen_while_nobody_waits(tmp_path):
    with Upstream(echo) as upstream:
        settings = RestoreConfig(deadline_ms=600, question_chars=0)
        with serving(config_for(upstream, tmp_path, restore=settings), make_restorer=NeverInTime) as url:
            kept = lose_in_vain(url)
            assert blocks(upstream) == []
            kept.append({"role": "user", "content": "and now the next step"})
            answer = ask(url, body(*kept))
            assert "degraded" not in lantern_headers(answer)
            (block,) = blocks(upstream)
            assert BLOCK.search(json.loads(upstream.got[-1].body)["messages"][-1]["content"])
            again = [answer.json()["choices"][0]["message"], {"role": "user", "content": "and then the one after it"}]
            ask(url, body(*kept, *again))
        assert blocks(upstream) == [block]
    assert len(re.findall(r"GATE-\d+", block)) == 6


def test_a_late_loss_block_comes_with_a_tools_result_and_stays_behind_it(tmp_path):
    def step(n: int) -> list[dict]:
        call = {"id": f"call_{n}", "type": "function", "function": {"name": "weigh", "arguments": f'{{"cart": {n}}}'}}
        weighed = f"Cart {n} weighs {n * 37} stones."
        return [{"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"call_{n}", "content": weighed}]  # fmt: skip

    with Upstream(echo) as upstream:
        settings = RestoreConfig(deadline_ms=600, question_chars=0)
        with serving(config_for(upstream, tmp_path, restore=settings), make_restorer=NeverInTime) as url:
            kept = [*lose_in_vain(url)[:-1], *step(1)]
            answer = ask(url, body(*kept))
            assert "degraded" not in lantern_headers(answer)
            sent = json.loads(upstream.got[-1].body)["messages"]
            assert sent[:-1] == kept
            assert BLOCK.search(sent[-1]["content"])
            ask(url, body(*kept, *step(2)))
        assert json.loads(upstream.got[-1].body)["messages"] == [*sent, *step(2)]


def test_what_was_marked_wrong_since_a_late_loss_block_was_chosen_does_not_come_with_it(tmp_path):
    with Upstream(echo) as upstream:
        settings = RestoreConfig(deadline_ms=600, question_chars=0)
        config = config_for(upstream, tmp_path, restore=settings)
        with serving(config, make_restorer=NeverInTime) as url:
            kept = lose_in_vain(url)
            with Archive(config.archive.path) as archive:
                (tenant,) = archive.tenants()
                passage = next(p for p in archive.of(tenant.id).passages() if "GATE-07919" in p.text)
                archive.of(tenant.id).feedback("", passage.id, "wrong", now=time.time(), settle=lambda c, s, _: (c, s))
            ask(url, body(*kept, {"role": "user", "content": "and now the next step"}))
        assert blocks(upstream) == []


class CutShort(Restorer):
    """It has time for one passage of the first request."""

    hurried = True

    def _at_compaction(self, ask: Ask) -> Restored | None:
        if self.hurried:
            self.hurried = False
            ask = structs.replace(ask, deadline=time.monotonic())
        return super()._at_compaction(ask)


def test_the_rest_of_a_loss_block_that_was_cut_short_comes_with_the_next_question(tmp_path):
    with Upstream(echo) as upstream:
        settings = RestoreConfig(deadline_ms=20_000, question_chars=0, budget_chars=2_000)
        with serving(config_for(upstream, tmp_path, restore=settings), make_restorer=CutShort) as url:
            messages = talk(url, 8)
            kept = [*messages[-4:], {"role": "user", "content": "carry on with that"}]
            first = ask(url, body(*kept))
            assert lantern_headers(first)["degraded"] == "restore:deadline"
            (cut_short,) = blocks(upstream)
            for said in ("and now the next step", "and then the one after it"):
                kept += [first.json()["choices"][0]["message"], {"role": "user", "content": said}]
                answer = ask(url, body(*kept))
                assert "degraded" not in lantern_headers(answer)
        again, rest = blocks(upstream)
    assert again == cut_short
    first_gates, other_gates = re.findall(r"GATE-\d+", cut_short), re.findall(r"GATE-\d+", rest)
    assert len(first_gates) == 1
    assert sorted(first_gates + other_gates) == sorted(re.findall(r"GATE-\d+", str(messages[:-4:2])))
    assert len(cut_short) + len(rest) <= settings.budget_chars


def test_a_long_request_gets_its_block_as_a_short_one_does(tmp_path):
    with Upstream(echo) as upstream:
        config = config_for(upstream, tmp_path, restore=RestoreConfig(deadline_ms=20_000, question_chars=0))
        with serving(config) as url:
            messages = talk(url, 8)
            ask(url, body(*messages[-4:], "Read this, please. " + "Nothing of note is in it. " * 12_000))
        (block,) = blocks(upstream)
        assert "GATE-07919" in block


def test_a_loss_block_without_a_place_comes_with_the_next_question(tmp_path):
    with Upstream(echo) as upstream:
        config = config_for(upstream, tmp_path, restore=RestoreConfig(deadline_ms=5_000, question_chars=0))
        with serving(config) as url:
            messages = talk(url, 8)
            kept = [messages[-1], {"role": "assistant", "content": "I begin with"}]
            first = ask(url, body(*kept))
            assert lantern_headers(first)["event"] in LOSSES
            assert blocks(upstream) == []
            kept += [{"role": "user", "content": "and now the next step"}]
            answer = ask(url, body(*kept))
        (block,) = blocks(upstream)
        assert "GATE-07919" in block
        assert lantern_headers(answer)["restored"] != "0"


def test_a_loss_block_whose_message_is_edited_comes_with_the_edited_one(tmp_path):
    with Upstream(respond(200, completion("I wrote it down, with its gate and its keeper."))) as upstream:
        config = config_for(upstream, tmp_path, restore=RestoreConfig(deadline_ms=5_000, question_chars=0))
        with serving(config) as url:
            last = talk(url, 8)[-1]
            first = ask(url, body(last, {"role": "user", "content": "carry on with that"}))
            (block,) = blocks(upstream)
            edited = ask(url, body(last, {"role": "user", "content": "carry on with the harbour instead"}))
            assert (lantern_headers(first)["event"], lantern_headers(edited)["event"]) == ("window", "branch")
            assert blocks(upstream) == [block]
            assert "GATE-07919" in block


@pytest.fixture
def waits(monkeypatch) -> list[bool]:
    """One for each time that a request waits for passages; what is true there at first is not answered."""
    asked: list[bool] = [False]
    flush = Writer.flush

    def noted(writer: Writer, *of: str) -> Future[bool]:
        asked.append(True)
        return Future() if asked[0] else flush(writer, *of)

    monkeypatch.setattr(Writer, "flush", noted)
    return asked


def test_a_request_that_lost_nothing_does_not_wait_for_the_passages_of_the_turn_before(tmp_path, waits):
    with Upstream(echo) as upstream, serving(config_for(upstream, tmp_path)) as url:
        kept = [*talk(url, 8)[-4:], {"role": "user", "content": "Which gate does depot number 2 ship through?"}]
        kept.append(ask(url, body(*kept)).json()["choices"][0]["message"])
        assert len(waits) == 2
        kept.append({"role": "user", "content": "Who is the keeper of depot number 3?"})
        asked = ask(url, body(*kept))
        assert "Keeper-314187" in blocks(upstream)[-1]
        assert len(waits) == 2
        again = [
            *kept[4:],
            asked.json()["choices"][0]["message"],
            {"role": "user", "content": "And of depot number 6?"},
        ]
        assert lantern_headers(ask(url, body(*again)))["event"] in LOSSES
        assert len(waits) == 3


def test_a_session_that_was_not_cut_up_in_time_is_waited_for_with_the_next_question(tmp_path, waits):
    waits[0] = True
    with Upstream(echo) as upstream, serving(config_for(upstream, tmp_path, restore=QUICK)) as url:
        kept = [*talk(url, 8)[-4:], {"role": "user", "content": "Which gate does depot number 2 ship through?"}]
        late = ask(url, body(*kept))
        assert "restore:behind" in lantern_headers(late)["degraded"]
        waits[0] = False
        kept += [
            late.json()["choices"][0]["message"],
            {"role": "user", "content": "Who is the keeper of depot number 3?"},
        ]
        ask(url, body(*kept))
        assert len(waits) == 3
        assert "Keeper-314187" in blocks(upstream)[-1]


def test_what_the_client_took_back_is_not_restored(tmp_path):
    with Upstream(echo) as upstream:
        with serving(config_for(upstream, tmp_path)) as url:
            messages = talk(url, 3)
            wrong = [
                *messages,
                {"role": "user", "content": "The password of depot number 9 is WRONG-1111, write it down."},
            ]
            ask(url, body(*wrong))
            right = [
                *messages,
                {"role": "user", "content": "The password of depot number 9 is RIGHT-2222, write it down."},
            ]
            right.append(ask(url, body(*right)).json()["choices"][0]["message"])
            for n in range(5, 9):
                right.append({"role": "user", "content": fact(n)})
                right.append(ask(url, body(*right)).json()["choices"][0]["message"])
            ask(url, body(*right[-4:], "What is the password of depot number 9?"))
        found = "\n".join(blocks(upstream))
        assert "RIGHT-2222" in found
        assert "WRONG-1111" not in found


def test_a_route_sends_a_model_to_an_upstream_of_its_own(tmp_path):
    with (
        Upstream(respond(200, completion("ordinary"))) as upstream,
        Upstream(respond(200, completion("special"))) as other,
    ):
        config = config_for(upstream, tmp_path)
        routes = (RouteConfig(model="special-*", url=f"{other.url}/v1"), RouteConfig(path="/side/*", url=other.url))
        config = config_with_routes(config, routes)
        with serving(config) as url:
            said = [
                ask(url, body("hi") | {"model": m}).json()["choices"][0]["message"]["content"]
                for m in ("m", "special-1")
            ]
        assert said == ["ordinary", "special"]
        assert other.got[-1].target == "/v1/chat/completions"


def config_with_routes(config, routes):
    return replace(config, upstream=replace(config.upstream, routes=routes))


@pytest.mark.skipif(find_spec("litellm") is None, reason="the extra `litellm` is not installed")
@pytest.mark.parametrize("stream", [False, True])
def test_an_openai_client_has_memory_in_front_of_any_provider(tmp_path, stream):
    said: list[str] = []

    with Upstream(echo) as upstream:
        params = {"mock_response": "noted, go on with the next depot please"}
        route = RouteConfig(kind="litellm", target="anthropic/claude-sonnet-4-5", params=params)
        config = config_with_routes(config_for(upstream, tmp_path, restore=RestoreConfig(deadline_ms=60_000)), (route,))
        with serving(config) as url:
            messages: list[dict] = []
            for n in range(6):
                messages.append({"role": "user", "content": fact(n)})
                answer = ask(url, body(*messages, stream=stream))
                assert answer.status_code == 200
                said.append(answer.text)
                messages.append({"role": "assistant", "content": params["mock_response"]})
            found = lantern_headers(
                ask(url, body(*messages[-2:], "Which gate does depot number 1 ship through?", stream=stream))
            )
        assert all("choices" in text for text in said)
        assert upstream.got == []
        assert (found["event"], int(found["restored"]) > 0) == ("window", True)


def test_what_anthropics_servers_drop_behind_a_compaction_block_counts_as_lost(tmp_path):
    def answer(*blocks: dict) -> bytes:
        return json.dumps({"id": "msg_1", "type": "message", "role": "assistant", "content": list(blocks)}).encode()

    def send(url: str, messages: list[dict]) -> dict[str, str]:
        headers = {"x-api-key": "sk-ant", "anthropic-version": "2023-06-01"}
        request = {"model": "m", "max_tokens": 9, "system": "You keep depots.", "messages": messages}
        return lantern_headers(http.post(f"{url}/v1/messages", json=request, headers=headers))

    with Upstream(echo) as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            messages: list[dict] = []
            for n in range(6):
                messages.append({"role": "user", "content": fact(n)})
                parts = [{"type": "text", "text": f"Depot {n} is filed."}]
                if n == 5:
                    parts.insert(0, {"type": "compaction", "content": "The user lists depots, and we file them."})
                upstream.answer = respond(200, answer(*parts))
                send(url, messages)
                messages.append({"role": "assistant", "content": parts})
            question = {"role": "user", "content": "Which gate does depot number 2 ship through?"}
            upstream.answer = respond(200, answer({"type": "text", "text": "G"}))
            first = send(url, [*messages, question])
            sent = json.loads(upstream.got[-1].body)["messages"]
            again = send(
                url, [*messages, question, {"role": "assistant", "content": "G"}, {"role": "user", "content": "ok"}]
            )
    assert (first["event"], again["event"]) == ("compacted", "turn")
    assert "GATE-15838" in json.dumps(sent[-1])
    assert sent[:-1] == messages
    assert int(again["restored"]) >= int(first["restored"]) > 0


@pytest.mark.parametrize(("window_tokens", "most_chars"), [(8_192, 983), (200_000, 6_000)])
def test_a_model_with_a_small_window_gets_a_small_block(tmp_path, window_tokens, most_chars):
    with Upstream(echo) as upstream:
        restore = RestoreConfig(window_tokens=window_tokens, deadline_ms=5_000)
        with serving(config_for(upstream, tmp_path, restore=restore)) as url:
            messages = talk(url, 30)
            ask(url, body(*messages[-4:], "Right, where were we?"))
        (block,) = blocks(upstream)
        assert 0.6 * most_chars * (window_tokens == 8_192) < len(block) <= most_chars
        assert (len(block) > 983) == (window_tokens == 200_000)


def test_what_was_left_out_is_kept_with_its_reason_also_where_nothing_was_added(tmp_path):
    settings = RestoreConfig(deadline_ms=5_000, budget_chars=700, question_chars=600)
    with Upstream(echo) as upstream, serving(config_for(upstream, tmp_path, restore=settings)) as url:
        messages = talk(url, 14)
        lost = ask(url, body(*messages[-4:], "Which gate does depot number 2 ship through?"))
        history = [*messages[-4:], {"role": "user", "content": "Which gate does depot number 2 ship through?"}]
        history.append(lost.json()["choices"][0]["message"])
        chat = ask(url, body(*history, "Lovely weather in the mountains of Peru today, is it not?"))

        def why(answer) -> dict:
            address = f"{url}/lantern/api/requests/{lantern_headers(answer)['request']}"
            wait_for(lambda: http.get(address).status_code == 200)
            return http.get(address).json()

        found, nothing = why(lost), why(chat)
    loss = found["blocks"][0]["restored"]
    assert loss["kind"] == "loss"
    placed = {one["passage"]["id"] for one in loss["placed"]}
    missed = [one for one in found["passed"] if one["kind"] == "loss" and one["reason"] == "budget"]
    assert missed
    assert not placed & {one["passage"]["id"] for one in missed}
    assert all(one["why"] == "no room was left for it" and one["signals"]["salience"] > 0 for one in missed)
    assert nothing["blocks"] == []
    assert {one["reason"] for one in nothing["passed"]} >= {"admission"}


def test_a_session_is_read_ahead_again_when_a_third_of_it_is_new(tmp_path):
    read: list[str] = []

    class Watched(Restorer):
        def warm(self, tenant: str, project: str, session: str) -> None:
            super().warm(tenant, project, session)
            read.append(session)

    with Upstream() as upstream, serving(config_for(upstream, tmp_path), make_restorer=Watched) as url:
        said: list[dict] = []
        due = []
        for turn in range(30):
            said.append({"role": "user", "content": f"Valve {turn} opens at {turn + 20} bar."})
            answer = ask(url, {"model": "m", "messages": said}, x_lantern_session="s")
            said.append(answer.json()["choices"][0]["message"])
            if len(said) >= (due[-1] * 3 // 2 if due else 24):
                due.append(len(said))
                assert wait_for(lambda: len(read) == len(due))
        assert due == [24, 36, 54]
        assert wait_for(lambda: len(read) == 3)
        assert set(read) == {lantern_headers(answer)["session"]}


def test_what_is_read_ahead_of_a_session_holds_all_that_was_said_until_then(tmp_path):
    """A client that comes with a long history is read ahead once, and may be compacted next."""
    read: list[str] = []

    class Watched(Restorer):
        def warm(self, tenant: str, project: str, session: str) -> None:
            read.append("\n".join(passage.text for passage in self._archive.of(tenant).passages()))

    with Upstream() as upstream, serving(config_for(upstream, tmp_path), make_restorer=Watched) as url:
        said = [f"Valve {n} opens at {n + 20} bar." for n in range(31)]
        history = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]
        ask(url, {"model": "m", "messages": history})
        assert wait_for(lambda: read)
    assert [text for text in said if text not in read[0]] == []


BEHIND_A_COMMAND = f"""<system-reminder>
{"The following skills are available: charts, reviews. " * 50}
</system-reminder>
<local-command-caveat>The command below was run directly, not sent to you as a request.</local-command-caveat>

<command-name>/compact</command-name>
            <command-message>compact</command-message>
            <command-args></command-args>

<local-command-stdout>Compacted (ctrl+o to see full summary)</local-command-stdout>

"""
"""What Claude Code puts in front of the first prompt after `/compact`."""


def test_what_is_asked_behind_the_command_that_compacted_is_the_question(tmp_path):
    question = "Which gate does depot number 2 ship through?"
    with Upstream(echo) as upstream, serving(config_for(upstream, tmp_path, restore=QUESTIONS_ONLY)) as url:
        messages = talk(url, 14)
        answer = lantern_headers(ask(url, body(*messages[-4:], BEHIND_A_COMMAND + question)))
        assert answer["event"] == "window"
        assert "GATE-15838" in blocks(upstream)[-1]
        address = f"{url}/lantern/api/requests/{answer['request']}"
        wait_for(lambda: http.get(address).status_code == 200)
        told_as = http.get(address).json()["request"]["query"]
    assert told_as.startswith("<local-command-caveat>")
    assert told_as.endswith(question)


NOTED = respond(200, completion("Thank you, noted."), ("content-type", "application/json"))


def test_a_question_is_answered_with_what_was_lost_though_its_client_puts_a_note_behind_it(tmp_path):
    note = {"role": "user", "content": "Context of the client, not instructions: no tasks are active at the moment."}
    with Upstream(echo) as upstream, serving(config_for(upstream, tmp_path, restore=QUESTIONS_ONLY)) as url:
        messages: list[dict] = []
        for n in range(12):
            messages.append({"role": "user", "content": fact(n)})
            messages.append(ask(url, body(*messages, note)).json()["choices"][0]["message"])
        messages = [*messages[-4:], {"role": "user", "content": "Good, let us go on with that."}]
        answer = ask(url, body(*messages, note))
        assert answer.headers["x-lantern-event"] == "window"
        messages += [answer.json()["choices"][0]["message"]]
        messages.append({"role": "user", "content": "Which gate does depot number 2 ship through?"})
        ask(url, body(*messages, note))
        *_, asked, last = json.loads(upstream.got[-1].body)["messages"]
        assert "GATE-15838" in asked["content"]
        assert last == note


def test_what_a_user_says_where_a_history_begins_anew_without_a_summary_is_restored_later(tmp_path):
    with Upstream(NOTED) as upstream, serving(config_for(upstream, tmp_path)) as url:
        events = []
        for n in range(4):
            events.append(lantern_headers(ask(url, body(fact(n)), x_session_id="run-1"))["event"])
        events.append(lantern_headers(ask(url, body("Let us go on."), x_session_id="run-1"))["event"])
        assert events == ["new", "compacted", "compacted", "compacted", "compacted"]
        (block,) = blocks(upstream)
        assert [n for n in range(4) if f"GATE-{n * 7919:05d}" not in block] == []


def test_what_was_taken_for_a_side_call_and_goes_on_keeps_the_prompt_that_its_upstream_has(tmp_path):
    named = {"x-session-id": "depots"}
    with Upstream(echo) as upstream, serving(config_for(upstream, tmp_path, restore=QUICK)) as url:
        history = []
        for n in range(8):
            history.append({"role": "user", "content": fact(n)})
            history.append(ask(url, body(*history), **named).json()["choices"][0]["message"])
        told = {"role": "system", "content": "The depots were looked at one by one, with gates and keepers. " * 2}
        left = [told, *history[6:10], {"role": "user", "content": "And who opens them at night?"}]
        side = ask(url, body(*left), **named)
        before = json.loads(upstream.got[-1].body)["messages"]
        asked = {"role": "user", "content": "Which gate did depot number 1 ship through?"}
        after = ask(url, body(*left, side.json()["choices"][0]["message"], asked), **named)
        assert [each.headers["x-lantern-event"] for each in (side, after)] == ["side", "compacted"]
        assert json.loads(upstream.got[-1].body)["messages"][: len(before)] == before
        assert "GATE-07919" in "".join(blocks(upstream))


def test_a_result_in_the_words_of_a_lost_one_is_restored_when_it_is_lost_in_its_turn(tmp_path):
    def ran(n: int) -> list[dict]:
        function = {"name": "run", "arguments": json.dumps({"command": f"cat {n}.txt"})}
        out = {"success": True, "error": "", "stdout": fact(n), "stderr": "", "exit_code": 0, "execution_time": 0.1,
               "timeout": False, "user_interrupted": False, "background": False}  # fmt: skip
        calls = [{"id": f"call_{n}", "type": "function", "function": function}]
        asked = {"role": "assistant", "content": None, "tool_calls": calls}
        return [asked, {"role": "tool", "tool_call_id": f"call_{n}", "content": json.dumps(out)}]

    hello, *rest = ({"role": "user", "content": f"Please do the {n} thing."} for n in ("first", "second", "third"))
    noted = json.loads(completion("Thank you, noted."))["choices"][0]["message"]
    before = [hello, noted, rest[0], *ran(1), noted, rest[1]]
    with Upstream(NOTED) as upstream, serving(config_for(upstream, tmp_path)) as url:

        def send(*messages: dict, answer: dict = noted) -> str:
            upstream.answer = respond(200, completion(**{"text": "", **answer}), ("content-type", "application/json"))
            return lantern_headers(ask(url, body(*messages)))["event"]

        events = [send(hello), send(*before[:3], answer=ran(1)[0]), send(*before[:5]), send(*before, answer=ran(2)[0])]
        read = {"role": "assistant", "content": "Both of them are read by now."}
        events += [send(hello, *ran(2), answer=read), send(hello, read, {"role": "user", "content": "What is next?"})]
        assert events == ["new", *["turn"] * 3, *["window"] * 2]
        assert fact(1) in (whole := "".join(blocks(upstream)))
        assert fact(2) in whole


CLEARED = "[old result cleared]"


def step(n: int, result: str = "") -> list[dict]:
    """A call of a tool, and what came of it."""
    id_, function = f"call_{n * 7919:05d}a7f2", {"name": "run", "arguments": f'{{"n": {n}}}'}
    calls = [{"id": id_, "type": "function", "function": function}]
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    return [asked, {"role": "tool", "tool_call_id": id_, "content": result or f"{fact(n)} {fact(n + 500)}"}]


def noted(text: str) -> dict:
    return {"role": "assistant", "content": text}


def go_on() -> dict:
    return {"role": "user", "content": "Go on."}


def test_a_block_stays_in_its_message_while_more_is_cleared_before_it_though_its_user_said_the_same_before(tmp_path):
    done = noted("All of them are loaded."), noted("Written down.")
    whole = [go_on(), *step(1), *step(2), done[0], go_on(), *step(3), done[1], go_on()]
    cleared = [
        [*whole[:2], step(1, CLEARED)[1], *whole[3:]],
        [go_on(), *step(1, CLEARED), *step(2, CLEARED), *whole[5:]],
    ]
    places = []
    with Upstream(echo) as upstream:
        config = config_for(upstream, tmp_path, restore=RestoreConfig(deadline_ms=5_000, question_chars=0))
        with serving(config) as url:
            answers = [step(1)[0], step(2)[0], done[0], step(3)[0], done[1], *[noted("Good.")] * 3]
            shown = [whole[:1], whole[:3], whole[:5], whole[:7], whole[:9], whole, *cleared]
            for messages, answer in zip(shown, answers, strict=True):
                upstream.answer = respond(
                    200, completion(**{"text": "", **answer}), ("content-type", "application/json")
                )
                event = lantern_headers(ask(url, body(*messages)))["event"]
                got = json.loads(upstream.got[-1].body)["messages"]
                places.append([at for at, m in enumerate(got) if fact(1) in str(m["content"]) and m["role"] == "user"])
            assert event == "cleared"
    assert places[-2:] == [[6], [6]]


def test_losses_that_come_with_every_request_share_one_budget(tmp_path):
    settings = RestoreConfig(deadline_ms=20_000, question_chars=0, budget_chars=2_000)
    history, added = [{"role": "user", "content": "Load all depots."}], []
    with Upstream(echo) as upstream, serving(config_for(upstream, tmp_path, restore=settings)) as url:
        for n in range(24):
            upstream.answer = respond(200, completion(text="", **step(n)[0]), ("content-type", "application/json"))
            answer = lantern_headers(ask(url, body(*history)))
            added.append((answer["event"], int(answer["chars"])))
            history = [history[0], *(m for k in range(n) for m in step(k, CLEARED)), *step(n)]
    assert {event for event, _ in added[2:]} == {"cleared"}
    chars = [chars for _, chars in added]
    assert chars == sorted(chars)
    assert 1_000 < chars[-1] <= settings.budget_chars


# --- a conversation that the upstream holds: its client sends what is new -------------------------------------------

SUMMARY = "The user told the assistant about depots, their gates and their keepers, and goes on with the next of them."
START = {"system": "You run depots.", "tools": [{"name": "run", "input_schema": {}}]}


class Thread:
    """A client of the Messages API."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.said: list[dict] = []
        self.last = ""

    def say(self, text: str) -> dict[str, str]:
        self.said.append({"role": "user", "content": text})
        return self.send()

    def send(self) -> dict[str, str]:
        created = {"thread": {"type": "create"}, "messages": self.said, **START}
        thread = {"type": "continue", "previous_message_id": self.last}
        answer = self.post({"thread": thread, "messages": self.said[-1:]} if self.last else created)
        self.last = answer.json()["id"]
        self.said.append({"role": "assistant", "content": answer.json()["content"]})
        return lantern_headers(answer)

    def post(self, request: dict):
        headers = {"x-api-key": "sk-one"}
        return http.post(f"{self.url}/v1/messages", json={"model": "m", "max_tokens": 9, **request}, headers=headers)

    def lose(self) -> None:
        """The upstream has forgotten it: all of it is said again."""
        self.last = ""

    def compact(self) -> dict[str, str]:
        wish = {"thread": {"type": "create"}, "compaction": {"type": "summarize"}}
        answer = self.post({"messages": self.said, **wish, **START})
        self.said = [{"role": "assistant", "content": answer.json()["content"]}]
        self.lose()
        return lantern_headers(answer)


def minting():
    """Answers in the Messages API: a compaction block to whom asks for one, else a few words."""
    ids = itertools.count(1)

    async def answer(got, wire) -> None:
        compacts = got.data.get("compaction")
        block = {"type": "compaction", "content": SUMMARY} if compacts else {"type": "text", "text": "All right."}
        message = {"id": f"msg_{next(ids)}", "type": "message", "role": "assistant", "content": [block]}
        await respond(200, json.dumps(message).encode())(got, wire)

    return answer


@pytest.mark.parametrize("lost", [False, True], ids=["held", "said again in between"])
def test_a_thread_that_the_upstream_holds_is_one_session_and_gets_back_what_its_compaction_lost(tmp_path, lost):
    with Upstream(minting()) as upstream, serving(config_for(upstream, tmp_path)) as url:
        thread = Thread(url)
        heads = [thread.say(fact(n)) for n in range(4)]
        if lost:
            thread.lose()
        heads += [thread.say(fact(n)) for n in range(4, 8)]
        wish = thread.compact()
        assert "restored_context" not in upstream.got[-1].texts
        after = thread.send()
        (block,) = blocks(upstream)
        assert [m["role"] for m in upstream.got[-1].data["messages"]] == ["assistant", "user"]
        later = thread.say("Which gate does depot number 2 ship through?")
        assert blocks(upstream) == []  # the upstream holds it
        thread.lose()
        again = thread.say("And depot number 3?")
        assert blocks(upstream) == [block]
    assert [head["event"] for head in heads] == ["new", *["turn"] * 7]
    assert (wish["event"], after["event"], later["event"], again["event"]) == ("side", "compacted", "turn", "turn")
    assert {head["session"] for head in (*heads, after, later, again)} == {heads[0]["session"]}
    assert all(f"GATE-{n * 7919:05d}" in block for n in range(8))


def test_a_compaction_that_failed_hides_nothing_from_the_model(tmp_path):
    with Upstream(minting()) as upstream, serving(config_for(upstream, tmp_path)) as url:
        thread = Thread(url)
        for n in range(8):
            thread.say(fact(n))
        thread.said[-1]["content"].append({"type": "compaction", "content": None})
        thread.lose()
        assert thread.say("Go on with the next one, please.")["event"] == "turn"
        assert blocks(upstream) == []


def test_a_stored_response_that_was_compacted_on_its_own_is_followed_by_what_that_lost(tmp_path):
    ids = itertools.count(1)

    async def answer(got, wire) -> None:
        n = next(ids)
        words = {"type": "message", "id": f"msg_{n}", "role": "assistant", "content": "All right."}
        sealed = {"type": "compaction", "id": f"cmp_{n}", "encrypted_content": "b3BhcXVl"}
        output = [sealed, words] if n == 8 else [words]
        await respond(200, json.dumps({"id": f"resp_{n}", "object": "response", "output": output}).encode())(got, wire)

    with Upstream(answer) as upstream, serving(config_for(upstream, tmp_path)) as url:
        heads, sent, previous = [], [], {}
        later = ["Go on with the next one.", "Which gate does depot number 2 ship through?"]
        for text in [*map(fact, range(8)), *later]:
            request = {"model": "m", "instructions": "You run depots.", "input": text, **previous}
            found = http.post(f"{url}/v1/responses", json=request, headers={"authorization": "Bearer sk-one"})
            previous = {"previous_response_id": found.json()["id"]}
            heads.append(lantern_headers(found))
            sent.append(BLOCK.findall(upstream.got[-1].data["input"]))
        request = {"model": "m", **previous}  # nothing is said: what a stored prompt asks is not in the request
        found = http.post(f"{url}/v1/responses", json=request, headers={"authorization": "Bearer sk-one"})
        assert "degraded" not in lantern_headers(found)
    assert [head["event"] for head in heads] == ["new", *["turn"] * 7, "compacted", "turn"]
    assert {head["session"] for head in heads} == {heads[0]["session"]}
    assert [len(found) for found in sent] == [0] * 8 + [1, 0]
    assert all(f"GATE-{n * 7919:05d}" in sent[8][0] for n in range(8))


def test_a_client_that_sends_only_what_is_new_goes_on_in_its_session_after_a_restart(tmp_path):
    ids = itertools.count(1)

    async def answer(got, wire) -> None:
        n = next(ids)
        output = [{"type": "message", "id": f"msg_{n}", "role": "assistant", "content": f"All right, number {n}."}]
        await respond(200, json.dumps({"id": f"resp_{n}", "object": "response", "output": output}).encode())(got, wire)

    with Upstream(answer) as upstream:
        heads, previous = [], {}
        for text in map(fact, range(4)):
            with serving(config_for(upstream, tmp_path)) as url:
                request = {"model": "m", "instructions": "You run depots.", "input": text, **previous}
                found = http.post(f"{url}/v1/responses", json=request, headers={"authorization": "Bearer sk-one"})
            previous = {"previous_response_id": found.json()["id"]}
            heads.append(lantern_headers(found))
    assert [head["event"] for head in heads] == ["new", "turn", "turn", "turn"]
    assert {head["session"] for head in heads} == {heads[0]["session"]}


# --- a history that its client writes into the only text of every request --------------------------------------------


@pytest.mark.parametrize("shape", ["window", "summary"])
def test_the_oldest_of_many_conversations_loses_nothing_when_it_is_compacted_right_after_a_restart(tmp_path, shape):
    """More are open than are read from the archive at once, so it is found by the messages that it still shows."""
    with Upstream(echo) as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            messages = talk(url, 8)
            for n in range(40):
                ask(url, body(f"How long does a kiln of {n * 17} bricks burn, and what does its fire number {n} eat?"))
        summary = {"role": "user", "content": "Summary: the user told of depots and of their gates."}
        kept = [*([summary] if shape == "summary" else []), *messages[-4:]]
        with serving(config) as url:
            answer = ask(url, body(*kept, "Which gate does depot number 2 ship through?"))
        assert lantern_headers(answer)["event"] in LOSSES
        assert any("GATE-15838" in block for block in blocks(upstream))


def test_the_oldest_of_many_conversations_is_found_though_the_calls_of_all_have_the_same_number(tmp_path):
    async def answer(got, wire):
        last = got.data["messages"][-1]
        function = {"name": "file", "arguments": json.dumps({"note": last["content"]})}
        call = {"id": "call_0", "type": "function", "function": function}
        said = {"text": "", "tool_calls": [call]} if last["role"] == "user" else {"text": "It is filed."}
        await respond(200, completion(**said), ("content-type", "application/json"))(got, wire)

    def told_of(url: str, *texts: str) -> list[dict]:
        messages: list[dict] = []
        for text in texts:
            messages.append({"role": "user", "content": text})
            messages.append(ask(url, body(*messages)).json()["choices"][0]["message"])
            messages.append({"role": "tool", "tool_call_id": "call_0", "content": f"Filed, {len(text)} letters."})
            messages.append(ask(url, body(*messages)).json()["choices"][0]["message"])
        return messages

    with Upstream(answer) as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            messages = told_of(url, *map(fact, range(8)))
            for n in range(40):
                told_of(url, f"A kiln of {n * 17} bricks burns for {n} hours.")
        with serving(config) as url:
            answered = ask(url, body(*messages[-8:], "Which gate does depot number 2 ship through?"))
        assert lantern_headers(answered)["event"] == "window"
        assert any("GATE-15838" in block for block in blocks(upstream))


def test_the_oldest_of_many_conversations_is_found_by_the_summary_that_was_made_of_it_before_a_restart(tmp_path):
    system = {"role": "system", "content": "You keep the books of the depots."}
    summary = (
        "Summary of the talk so far: eight depots were told of in order, with gates and keepers, to be kept in mind."
    )

    async def answer(got, wire):
        said = summary if "Summarize" in str(got.data["messages"][-1]["content"]) else reply_to(got)
        await respond(200, completion(said), ("content-type", "application/json"))(got, wire)

    with Upstream(answer) as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            messages = talk(url, 8, system)
            for n in range(40):
                ask(url, body(f"How long does a kiln of {n * 17} bricks burn, and what does its fire number {n} eat?"))
            told_so_far = "\n".join(f"{m['role']}: {m['content']}" for m in messages[1:])
            task = {"role": "user", "content": f"Summarize what was said, so that it can go on:\n\n{told_so_far}"}
            assert (
                lantern_headers(ask(url, body({"role": "system", "content": "You sum up."}, task)))["event"] == "side"
            )
        with serving(config) as url:
            shown, asked = (
                {"role": "user", "content": text} for text in (summary, "Through which gate does depot 2 ship?")
            )
            answered = ask(url, body(system, shown, asked))
        assert lantern_headers(answered)["event"] == "compacted"
        assert any("GATE-15838" in block for block in blocks(upstream))


def test_what_a_history_in_one_text_lost_stays_there_with_the_next_text(tmp_path):
    answer = respond(200, completion("I wrote it down, with its gate and its keeper."))
    with Upstream(answer) as upstream, serving(config_for(upstream, tmp_path)) as url:
        lines: list[str] = []

        def turn(said: str, last: int = 0) -> dict[str, str]:
            text = "\n".join(["Current conversation:", *lines[-last:], f"Human: {said}", "AI:"])
            answer = ask(url, body(text), x_lantern_session="one")
            lines.extend([f"Human: {said}", f"AI: {answer.json()['choices'][0]['message']['content']}"])
            return lantern_headers(answer)

        for n in range(8):
            turn(fact(n))
        assert turn("Go on with the next one, please.", last=6)["event"] == "window"
        (lost,) = blocks(upstream)
        assert turn("And with the one behind it.", last=8)["event"] == "turn"
        (again,) = blocks(upstream)
    assert "GATE-07919" in lost
    assert "GATE-07919" in again


@pytest.mark.parametrize("nudges", [False, True])
def test_what_a_history_of_steps_in_one_text_lost_comes_back_and_stays(nudges, tmp_path):
    """An agent's client writes what its model answered into one text, and a summary for the first of it. nudges: behind
    it stands a message that is another one with every step."""
    steps: list[str] = []
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:

        def turn(look: str, memory: str = "") -> dict[str, str]:
            n = len(upstream.got)
            fields = {
                "seen": f"I read sheet number {n} to its very end",
                "plan": f"I take sheet {n} from the next pile",
            }
            upstream.answer = respond(200, completion(json.dumps(fields)))
            lines = ["<task>\nRead the sheets.\n</task>\n<past>", memory, *steps, f"</past>\n<look>\n{look}\n</look>"]
            system = {"role": "system", "content": "You read sheets of depots for a clerk, one after the other."}
            nudge = {"role": "user", "content": f"This is step {n}, and you have made no plan. Make one."}
            answer = ask(url, body(system, {"role": "user", "content": "\n".join(lines)}, *[nudge] * nudges))
            steps.append("\n".join([*fields.values(), f"Read: {look}"]))
            return lantern_headers(answer)

        assert [turn(fact(n))["event"] for n in range(8)] == ["new", *["turn"] * 7]
        summary = "Some sheets of depots were read, one after the other, and more of them lie on the next pile."
        upstream.answer = respond(200, completion(summary))
        past = {"role": "user", "content": "\n".join(steps)}
        assert (
            lantern_headers(ask(url, body({"role": "system", "content": "Condense notes."}, past)))["event"] == "side"
        )
        del steps[:-2]
        assert turn("Which gate does depot number 1 ship through?", summary)["event"] == "compacted"
        lost = "\n".join(blocks(upstream))
        assert turn("Who is the keeper of depot number 2?", summary)["event"] == "turn"
        again = "\n".join(blocks(upstream))
    assert "GATE-07919" in lost
    assert "Keeper-209458" in again
    assert "GATE-07919" in again


def test_what_a_client_asked_its_summary_with_does_not_come_back(tmp_path):
    order = "Write a summary of the conversation so far. Answer with the summary only."
    noted = "Depot 77 ships through its gate at the river from now on; I have written that down."
    summary = (
        f"The user told of depots and their gates, one after the other, and of the keeper of each of them. {noted}"
    )

    async def answer(got, wire):
        asked = str(got.data["messages"][-1]["content"])
        said = summary if "Write a summary" in asked else noted if "77" in asked else "That is noted."
        await respond(200, completion(said), ("content-type", "application/json"))(got, wire)

    with Upstream(answer) as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            messages = [*talk(url, 8), "Depot 77 lies at the river. Its code is RIVER-7719."]
            assert lantern_headers(ask(url, body(*messages)))["event"] == "turn"
            assert (
                lantern_headers(ask(url, body(*messages, noted, order)))["event"] == "turn"
            )  # a person could wish for it, too
            step = ask(url, body(f"Summary of what was said before:\n\n{summary}", messages[1], "go on"))
            assert lantern_headers(step)["event"] == "compacted"
        (block,) = blocks(upstream)
    assert "GATE-15838" in block
    assert "RIVER-7719" in block  # though a summary quotes the answer to it, too
    assert order not in block


TASK = "Summarize the conversation so far, so that it can go on without its history. " * 8


def used(n: int) -> list[dict]:
    """As step(), over Anthropic's Messages."""
    id_ = f"toolu_{n * 7919:05d}a7f2"
    asked = {"type": "tool_use", "id": id_, "name": "run", "input": {"n": n}}
    given = {"type": "tool_result", "tool_use_id": id_, "content": fact(n)}
    return [{"role": "assistant", "content": [asked]}, {"role": "user", "content": [given]}]


@pytest.mark.parametrize("api", ["chat/completions", "messages"])
def test_a_result_that_a_summary_call_shows_first_comes_back(tmp_path, api):
    """A client that finds it too long has its history summed up before it shows it to its model."""
    load, summary = {"role": "user", "content": "Load depot 5."}, f"Depots were loaded. {'All is well. ' * 30}"
    if api == "messages":  # whose clients join what a user says to the results before it
        call, result = used(5)
        shown = [{**result, "content": [*result["content"], {"type": "text", "text": TASK}]}]
    else:
        call, result = step(5)
        shown = [result, {"role": "user", "content": TASK}]
    history = [[load], [load, call, *shown], [f"{summary}\n\nGo on."]]
    with Upstream(echo) as upstream, serving(config_for(upstream, tmp_path)) as url:
        events = []
        for messages, said in zip(history, [call, noted(summary), noted("Good.")], strict=True):
            upstream.answer = respond(200, answer_of(said, api), ("content-type", "application/json"))
            events.append(lantern_headers(http.post(f"{url}/v1/{api}", json=body(*messages), headers=KEY))["event"])
        assert events == ["new", "side", "compacted"]
        assert fact(5) in "\n".join(blocks(upstream))


def test_a_result_that_a_summary_call_shows_first_is_archived_before_that_call_is_answered(tmp_path):
    """Its client may go on with it meanwhile, and it is not filed twice."""
    load, seen = {"role": "user", "content": "Load depot 5."}, []
    call, result = step(5)

    async def answer(got, wire):
        if TASK in got.texts:
            path, said = tmp_path / "lantern.db", fact(5).encode()
            seen.append(await asyncio.to_thread(wait_for, lambda: said in archive_bytes(path), 10.0))
        given = {"text": "A summary. " * 40} if TASK in got.texts else {"text": "", **call}
        await respond(200, completion(**given), ("content-type", "application/json"))(got, wire)

    with Upstream(answer) as upstream, serving(config_for(upstream, tmp_path)) as url:
        ask(url, body(load))
        assert lantern_headers(ask(url, body(load, call, result, {"role": "user", "content": TASK})))["event"] == "side"
    assert seen == [True]


def answer_of(said: dict, api: str) -> bytes:
    if api != "messages":
        return completion(**{"text": "", **said})
    content = said["content"] if isinstance(said["content"], list) else [{"type": "text", "text": said["content"]}]
    return json.dumps({"id": "msg_1", "type": "message", "role": "assistant", "content": content}).encode()


KEY = {"authorization": "Bearer sk-one"}


NOTE = "<surroundings>\n  <folder>/srv/depots</folder>\n  <date>2031-05-06</date>\n</surroundings>\n\n"
ASKED = "Please load the fifth depot."
DEPOTS_SUMMARY = "Depots and their gates were told of, and of the keeper of each of them."


def said(text):
    return {"role": "user", "content": text}


async def sums_up(got, wire):
    last = str(got.data["messages"][-1]["content"])
    call, _ = step(5)
    given = {"text": DEPOTS_SUMMARY} if last == TASK else {"text": "", **call} if last == ASKED else {"text": "Noted."}
    await respond(200, completion(**given), ("content-type", "application/json"))(got, wire)


def compacted_at_work(url):
    """What its client shows first now, all behind that, and the answer: DeepCode compacts while a tool works."""
    call, result = step(5)
    messages = [*talk(url, 3), said(ASKED)]
    ask(url, body(*messages))
    assert lantern_headers(ask(url, body(*messages, call, result, said(TASK))))["event"] == "side"
    shown = f"This is what was said before:\n{DEPOTS_SUMMARY}\n\n{ASKED}"
    worked = ask(url, body(said(shown), call, result))
    assert lantern_headers(worked)["event"] == "compacted"
    return shown, [call, result, worked.json()["choices"][0]["message"]], worked


def test_a_block_stays_with_a_summary_and_a_question_in_one_message_that_its_client_puts_a_note_around(tmp_path):
    """DeepCode puts its note in front of the first message with the next turn."""
    with Upstream(sums_up) as upstream:
        with serving(config_for(upstream, tmp_path)) as url:
            shown, behind, _ = compacted_at_work(url)
            (block,) = blocks(upstream)
            history = [said(NOTE + shown), *behind]
            for line in ("Good, let us go on.", "Then we are done for today."):
                history.append(said(line))
                gone_on = ask(url, body(*history))
                assert lantern_headers(gone_on)["event"] == "turn"
                assert blocks(upstream) == [block]
                history.append(gone_on.json()["choices"][0]["message"])
        with serving(config_for(upstream, tmp_path)) as url:
            ask(url, body(*history, said("Good morning.")))
            assert blocks(upstream) == [block]
            for front in ("", NOTE):
                ask(url, body(said(front + shown), *history[1:], said("Good morning, and is it full?")))
                assert blocks(upstream).count(block) == 1, "the note is left out, and comes again"


def test_a_block_that_goes_on_with_its_message_is_not_counted_again(tmp_path):
    def counted(url):
        text = http.get(f"{url}/lantern/metrics").text
        names = ("lantern_restored_passages_total ", 'lantern_blocks_total{kind="loss"} ')
        return [float(line.rsplit(" ", 1)[1]) for name in names for line in text.splitlines() if line.startswith(name)]

    with Upstream(sums_up) as upstream, serving(config_for(upstream, tmp_path)) as url:
        shown, behind, worked = compacted_at_work(url)
        once = [float(lantern_headers(worked)["restored"]), 1.0]
        assert wait_for(lambda: counted(url) == once)
        ask(url, body(said(NOTE + shown), *behind, said("Good, let us go on.")))
        assert len(blocks(upstream)) == 1
        time.sleep(0.2)
        assert counted(url) == once


def test_a_block_stays_though_nothing_was_to_be_added_when_its_message_came_to_read_otherwise(tmp_path):
    with Upstream(sums_up) as upstream, serving(config_for(upstream, tmp_path)) as url:
        shown, behind, _ = compacted_at_work(url)
        (block,) = blocks(upstream)
        history = [said(NOTE + shown), *behind, said("Good, let us go on.")]
        without = ask(url, body(*history), x_lantern_restore="off")
        assert (blocks(upstream), lantern_headers(without)["restored"]) == ([], "0")
        history += [without.json()["choices"][0]["message"], said("Then we are done for today.")]
        ask(url, body(*history))
        assert blocks(upstream) == [block]
        why = http.get(f"{url}/lantern/api/requests/{lantern_headers(without)['request']}").json()
        assert why["blocks"] == []
