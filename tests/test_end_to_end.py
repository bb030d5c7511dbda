"""Sixty turns, compacted in six ways: what was lost reaches the model again, and never anybody else's.

Four chats: the one that ships with six details, and three of tests/data/chats with eight each (operations; a family's
year; a research project of 135,000 characters, of which a block of 6,000 holds one in twenty). Real servers, archive
and embedder; what counts is the body that reached the upstream.

Reached today: everything that is asked in its own words, with and without the embedder, and on the chat that ships
everything in other words too. The three other chats ask so that hardly a word of the question stands in the statement;
FLOOR is what is reached of that in the worst shape: all of `family`, not all of `backend` and `research`. Retrieval was
tuned with these chats in sight: they show what works, not what a chat never seen would get.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from end_to_end import CHATS, NEUTRAL, STRANGER, WORDS, Client, Stage, Told, stage, told

from lantern_proxy import demo
from lantern_proxy.embed import available

pytestmark = pytest.mark.skipif(not available(), reason="the extra `dense` is not installed")

FLOOR = {"demo": 6, "backend": 5, "family": 8, "research": 5}
"""Details that reach the model asked in other words, in the worst of the six shapes, on the worst of the machines seen:
the embedder has seven bits a weight on an x86 without VNNI, and eight elsewhere."""
FALSE = {"demo": 0, "backend": 0, "family": 0, "research": 0}
"""Of 12 later messages that ask for nothing, those that get a question block all the same, in the worst shape."""


@pytest.fixture(scope="module", params=["demo", *CHATS])
def script(request: pytest.FixtureRequest) -> Told:
    return told(request.param)


@pytest.fixture(scope="module")
def played(script: Told, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(script.chat, tmp_path_factory.mktemp(script.name)) as stage_:
        yield stage_


def reached(client: Client, played: Stage, shape: str, words: demo.Words) -> set[str]:
    """Details in the body that reached the upstream, each asked in the first message after the compaction."""
    return {
        detail.id
        for detail in played.chat.details
        if detail.answer in client.ask(played.compacted(shape, detail.question(words))).text
    }


def after(played: Stage, shape: str, client: Client) -> list[demo.Wire]:
    """The compacted conversation after a first exchange that asks for nothing."""
    start = played.compacted(shape, NEUTRAL)
    return [*start, demo.say("assistant", client.ask(start).answer)]


def test_a_chat_has_sixty_turns_and_every_shape_loses_all_its_details(script):
    chat = script.chat
    assert len(chat.turns) == 60
    assert len({said for said, _ in chat.turns}) == 60
    for detail in chat.details:
        said = chat.turns[detail.turn - 1][detail.speaker == "assistant"]
        assert detail.answer in said
        assert detail.turn <= 45
        kept = [text for turn in chat.turns[-4:] for text in turn]
        kept += [
            message["content"] for shape in demo.SHAPES.values() for message in shape(chat.history, chat.summary, "")
        ]
        kept += [chat.summary, NEUTRAL, *script.chatter, *(q for d in chat.details for q in (d.literal, d.other))]
        assert not [text for text in kept if detail.answer.lower() in text.lower()], detail.id


@pytest.mark.parametrize("shape", demo.SHAPES)
def test_a_lost_detail_reaches_the_model_again_asked_literally_and_in_other_words(script, played, shape):
    everything = {detail.id for detail in script.chat.details}
    with played.restarted(shape) as client:
        assert reached(client, played, shape, "literal") == everything
        found = reached(client, played, shape, "other")
        assert len(found) >= FLOOR[script.name], f"not reached: {sorted(everything - found)}"


@pytest.mark.parametrize("shape", ["user-summary", "system-summary", "last-six"])
def test_a_turn_later_the_detail_is_still_reached_and_chatter_adds_little(script, played, shape):
    with played.restarted(shape) as client:
        history = after(played, shape, client)
        for detail in script.chat.details:
            seen = client.ask([*history, demo.say("user", detail.literal)])
            assert detail.answer in seen.text, detail.id
        false = [text for text in script.chatter if client.ask([*history, demo.say("user", text)]).asked]
        assert len(false) <= FALSE[script.name], false


@pytest.mark.parametrize("shape", ["assistant-summary", "truncated", "continued"])
def test_without_the_embedder_every_detail_is_reached_literally(script, played, shape):
    with played.restarted(shape, dense=False) as client:
        assert reached(client, played, shape, "literal") == {detail.id for detail in script.chat.details}


def test_a_second_credential_that_sends_the_same_never_gets_a_detail(script, played):
    with played.restarted("user-summary") as client:
        stranger = replace(client, key=STRANGER)
        for at, shape in enumerate(demo.SHAPES):
            assert not reached(stranger, played, shape, WORDS[at % 2]), shape
