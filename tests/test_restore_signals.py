"""The signals of a question over a whole scope, on real archives."""

import math
from dataclasses import replace

import numpy as np

from lantern_proxy.bench.datasets import Candidate, Conversation
from lantern_proxy.bench.pipelines import Query
from lantern_proxy.bench.pipelines_product import Default
from lantern_proxy.bench.resources import Resources
from lantern_proxy.config import Config, RestoreConfig
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.dense import Matches
from lantern_proxy.restore.matched import match_by_vectors


def scores(
    sessions: dict[str, list[str]], question: str, speakers: tuple[str, ...] = ("user",), **weights: float
) -> dict[tuple[str, int], float]:
    """(session, place) -> score, without vectors. speakers: take turns in each session"""
    said = [(name, n, text) for name, texts in sessions.items() for n, text in enumerate(texts)]
    candidates = [
        Candidate(id=f"{s}{n}", session=s, speaker=speakers[n % len(speakers)], text=text, at=1.7e9)
        for s, n, text in said
    ]
    plain = Config()
    config = replace(plain, embed=replace(plain.embed, enabled="off"), restore=RestoreConfig(weights=weights))
    with Resources(config) as resources:
        found = Default(resources).prepare(Conversation(id="c", candidates=tuple(candidates), questions=()))
        values = found(Query(question)).tolist()
    return {(session, n): value for (session, n, _), value in zip(said, values, strict=True)}


def talk(name: str, first: str) -> list[str]:
    return [first, *(f"Something {name} else number {n}." for n in range(4)), f"The concert of {name} went well."]


def test_of_two_like_passages_the_one_whose_session_is_about_the_question_is_better():
    found = scores({"a": talk("anna", "We cooked."), "b": talk("bea", "I had a piano lesson.")}, "piano: concert?")
    assert found["b", 5] > found["a", 5]


def test_long_messages_stand_for_themselves():
    short = scores({"a": ["The piano is black.", "It was cheap.", "So.", "Far away."]}, "what about the piano?")
    words = " ".join(f"word{n}" for n in range(400))
    long = scores({"a": ["The piano is black.", f"It was cheap. {words}", "So.", "Far away."]}, "what about the piano?")
    assert short["a", 1] > short["a", 3]
    assert short["a", 1] - short["a", 3] > 3 * (long["a", 1] - long["a", 3])


def test_among_people_what_follows_a_question_answers_it():
    lines = [
        "Which one?",
        "The port is nine.",
        "Fine.",
        "Far away.",
        "More of it.",
        "This one.",
        "The port is four.",
        "Good.",
    ]
    people = [f"{name}: {line}" for name, line in zip(["Ann", "Bob"] * 4, lines, strict=True)]
    assert abs(difference(lines)) < 1e-6 < difference(people)


def difference(lines: list[str]) -> float:
    """Between the answer and the same words that answer nothing."""
    found = scores({"a": lines}, "the port?", alike=0)  # other words beside them are more or less like "port"
    return found["a", 1] - found["a", 6]


CHAT = ["The budget is nine.", "The budget is four.", "Good.", "Fine then.", "And so on.", "As you like."]


def test_what_the_user_said_is_asked_for_unless_the_question_is_for_the_assistants_words():
    both = ("user", "assistant")
    asked = scores({"a": CHAT}, "how large was the budget?", both)
    assert asked["a", 0] > asked["a", 1]
    for_the_assistant = scores({"a": CHAT}, "what did you suggest for the budget?", both)
    assert for_the_assistant["a", 1] > for_the_assistant["a", 0]


def test_a_day_that_the_question_names_finds_what_names_it_or_was_said_near_it():
    lines = ["We met on 3 May 2023.", "Fine.", "We met on 9 October 2023.", "Good.", "Far away.", "More of it."]
    first, second = (scores({"a": lines}, f"whom did we meet on {day} 2023?") for day in ("3 May", "9 October"))
    assert first["a", 0] - first["a", 2] > second["a", 0] - second["a", 2]
    without_a_day = scores({"a": lines}, "whom did we meet?")
    assert first["a", 0] - first["a", 2] > without_a_day["a", 0] - without_a_day["a", 2]


class Found:
    """Late interaction that found this likeness of the question's only word in each passage."""

    def __init__(self, best: list[float]) -> None:
        self.best = np.array([best])

    def compare_words(self, *_: object) -> Matches:
        return Matches(self.best, np.ones(1), ("word",))


def late_of(texts: list[str], best: list[float]) -> list[float]:
    """What late interaction gives each message of one session, that of its neighbours included."""
    plain = Config()
    candidates = tuple(Candidate(id=str(n), session="s", speaker="user", text=t, at=1.7e9) for n, t in enumerate(texts))
    with Resources(replace(plain, embed=replace(plain.embed, enabled="off"))) as resources:
        scope = Default(resources).archived(Conversation(id="c", candidates=candidates, questions=()))._scope
        ask = Ask(tenant="bench", project="", session="", present="", budget_chars=0, now=0.0, deadline=math.inf)
        return match_by_vectors(scope, Found(best), None, np.zeros(len(texts)), ask).smooth_scores.tolist()  # type: ignore[arg-type, union-attr]


def test_a_word_may_be_found_in_the_message_before_where_both_are_short():
    texts, best = ["Does it bite?", "Never.", "So.", "Fine.", "Far away."], [0.9, 0.1, 0.1, 0.1, 0.1]
    asked, answer, *_ = late_of(texts, best)
    assert answer > 0.99 * asked
    long = " ".join(f"word{n}" for n in range(400))
    assert late_of([f"{texts[0]} {long}", *texts[1:]], best)[1] < 0.5 * answer
    assert late_of([texts[0], f"{texts[1]} {long}", *texts[2:]], best)[1] < 0.5 * answer
