"""Coverage under a budget keeps its guarantee, and what is likely to be asked for comes first."""

import math
import os
import subprocess
import sys
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lantern_proxy.restore.cover import cover, is_negligible, value
from lantern_proxy.restore.lines import Present, greets, lines, takes_back
from lantern_proxy.restore.loss import _cost_of
from lantern_proxy.restore.parts import Candidate, Part, is_group_chat, parts_of
from lantern_proxy.restore.salience import Surroundings, likelihood
from lantern_proxy.turn import Passage

SMALL = st.lists(
    st.tuples(st.dictionaries(st.sampled_from("abcdef"), st.floats(0.1, 9.0), min_size=1), st.integers(1, 60)),
    min_size=1,
    max_size=9,
)


def part(n, worth):
    return Part(n, (0,), "user", worth, sum(worth.values()))


def best_possible(offered, sizes, room):
    every = range(len(offered))
    fitting = [c for k in range(len(offered) + 1) for c in combinations(every, k) if sum(sizes[i] for i in c) <= room]
    return max(value(offered[i] for i in chosen) for chosen in fitting)


@settings(deadline=None, max_examples=200)
@given(SMALL, st.integers(30, 150), st.sampled_from([0.3, 0.8, 1.0]))
def test_greedy_reaches_its_guarantee_against_every_subset(made, room, power):
    offered = [part(n, worth)._replace(rule=True) for n, (worth, _) in enumerate(made)]  # a rule is never an echo
    sizes = [size for _, size in made]
    chosen = cover(offered, lambda p, opened: sizes[p.candidate], room, power=power, shares={})
    reached = value(each.part for each in chosen)
    assert sum(sizes[each.part.candidate] for each in chosen) <= room
    assert reached >= (1 - 1 / math.e) / 2 * best_possible(offered, sizes, room) - 1e-9


def test_one_large_part_beats_many_small_ones_when_it_is_worth_more():
    offered = [part(0, {"a": 2.0}), part(1, {"b": 50.0})]
    chosen = cover(offered, lambda p, opened: (1, 100)[p.candidate], 100, power=1.0, shares={})
    assert [each.part.candidate for each in chosen] == [1]


def test_past_the_deadline_the_best_so_far_is_taken():
    offered = [part(n, {f"w{n}": 100.0 - n}) for n in range(100)]
    asked = iter([False] * 3 + [True] * 1_000)
    chosen = cover(offered, lambda p, opened: 40, 4_000, power=1.0, shares={}, late=lambda: next(asked))
    assert 0 < len(chosen) < 70
    assert [each.part.candidate for each in chosen] == list(range(len(chosen)))
    assert cover(offered, lambda p, opened: 40, 4_000, power=1.0, shares={}, late=lambda: True)


def test_an_echo_is_left_out():
    offered = [part(0, {"a": 2.0, "b": 2.0}), part(1, {"a": 1.0, "b": 1.0}), part(2, {"c": 0.5})]
    chosen = cover(offered, lambda p, opened: 10, 1_000, power=0.8, shares={})
    assert [each.part.candidate for each in chosen] == [0, 2]


def test_a_speaker_takes_no_more_than_its_share():
    offered = [Part(n, (0,), "tool", {str(n): 9.0}, 9.0) for n in range(9)] + [part(9, {"x": 0.1})]
    chosen = cover(offered, lambda p, opened: 40, 400, power=1.0, shares={"tool": 100})
    assert sorted(each.part.speaker for each in chosen) == ["tool", "tool", "user"]


def said(text, speaker="user"):
    return Passage(session="s", message="m", position=0, part=0, turn=1, speaker=speaker, text=text)


def rated(text, *, speaker="user", answers=False, reports=False, rarity=lambda term: 0.8):
    return likelihood(
        lines(said(text, speaker)), lambda key: 1.0, rarity, Surroundings(answers=answers, reports=reports)
    )


def worth(text, *, speaker="user"):
    """What a part of it is worth, over its likelihood."""
    passage = said(text, speaker)
    told = lines(passage)
    (made,) = parts_of([Candidate(passage, told, (0,))], Present(""), lambda term: 0.8, [1.0], people=False)
    return made.total / likelihood(told, lambda key: 1.0, lambda term: 0.8, Surroundings(answers=False))


def test_what_a_part_costs_is_its_own_also_where_another_one_that_is_gone_had_its_place_in_memory():
    text = "The depot of Bergen has forty gates and a keeper called Marit Solheim. It rains."
    passage = said(text)
    cost = _cost_of([Candidate(passage, lines(passage), (0, 1))], "s")
    chars = [cost(Part(0, told, "user", {}, 0.0), frozenset()) for told in ((0,), (1,), (0,), (1,))]
    assert chars[0] == chars[2] > chars[1] == chars[3]


@pytest.mark.parametrize(
    ("likely", "unlikely"),
    [
        ("My sister Ilse moved to Trondheim last spring.", "That sounds like a very good plan to me."),
        ("We decided on port 9443 for staging.", "Could you explain how the ports work in general?"),
        ("Always run the migrations on a copy first.", "The migrations ran on a copy of the database first."),
        ("I prefer short answers without lists.", "The answers are short and without lists."),
        ("The migration failed with LF-2047.", "To test your migrations first is a good habit."),
        ("海云店的口令是藏红花。", "好的,谢谢。"),
        ("海云店の合言葉はサフランです。", "海云店の合言葉は何ですか\uff1f"),
        ("海云店的送货地址在城东的老桥旁边," * 7, "aGFsbG8gd29ybGQ" * 9),
    ],
)
def test_what_tells_something_is_likelier_to_be_asked_for(likely, unlikely):
    assert rated(likely) > 1.5 * rated(unlikely)


def test_a_rule_is_no_echo_of_what_uses_the_same_words():
    first, again = part(0, {"a": 2.0, "b": 2.0}), part(1, {"a": 1.0, "b": 1.0, "@1": 1.0})
    sizes = {"power": 0.8, "shares": {}}
    assert len(cover([first, again], lambda p, opened: 10, 1_000, **sizes)) == 1
    assert len(cover([first, again._replace(rule=True)], lambda p, opened: 10, 1_000, **sizes)) == 2


def test_what_a_user_wishes_of_an_agent_is_no_echo_of_what_it_reports():
    told, again = part(0, {"a": 20.0, "b": 20.0}), part(1, {"a": 10.0, "b": 10.0, "@1": 10.0})
    report, wish = told._replace(speaker="assistant"), again._replace(said_to_agent=True)

    def taken(*offered):
        return len(cover(offered, lambda p, opened: 10, 1_000, power=0.8, shares={}))

    assert taken(report, wish) == 2
    assert taken(report, again) == taken(told, wish) == 1


def test_what_a_user_tells_an_assistant_is_an_echo_of_one_message_and_not_of_words_here_and_there():
    told = [part(0, {"nadia": 9.0, "papers": 9.0}), part(1, {"may": 9.0, "notary": 9.0})]
    again = part(2, {"nadia": 1.0, "may": 1.0, "visa": 0.5, "@2": 6.0})

    def taken(*offered):
        return [each.part.candidate for each in cover(offered, lambda p, opened: 10, 1_000, power=0.8, shares={})]

    assert taken(*told, again) == [0, 1]
    assert taken(*told, again._replace(said_to_assistant=True)) == [0, 1, 2]
    assert taken(part(0, {"nadia": 9.0, "may": 9.0}), again._replace(said_to_assistant=True)) == [0]


FELL = "Vera fell? No, she slid off the chair, form 2291 is filled in. Still no stairs! Shall I call the ward?"


@pytest.mark.parametrize(("before", "lines_of"), [("", (0, 1, 2)), ("Ana: ", (0, 1))])
def test_of_a_short_message_to_an_assistant_goes_in_all_that_is_told(before, lines_of):
    some = [said(f"{before}{text}") for text in (FELL, "The ward is on the second floor, behind the lift.")]
    candidates = [Candidate(passage, told := lines(passage), tuple(range(len(told)))) for passage in some]
    first, _ = parts_of(candidates, Present(""), lambda term: 0.8, [1.0, 1.0], people=is_group_chat(some))
    assert first.lines == lines_of


def test_what_an_assistant_says_of_the_world_leaves_room_for_what_its_user_said():
    assert is_negligible(Part(0, (0,), "assistant", {"word": 6.0}, 6.0), 6.0)
    assert not is_negligible(Part(0, (0,), "user", {"word": 6.0}, 6.0), 6.0)


def test_a_rule_is_weighed_apart_from_what_else_its_message_says():
    passage = said(
        "The berth plan of the harbour is wrong on Sundays. Find out why. Never touch the files under vendor."
    )
    candidate = Candidate(passage, told := lines(passage), tuple(range(len(told))))
    found = parts_of([candidate], Present(""), lambda term: 0.8, [1.0], people=False)
    assert [part.lines for part in found] == [(2,), (0, 1)]
    assert found[0].rule


def test_who_must_not_eat_something_weighs_as_much_as_a_preference():
    assert rated("Liv is allergic to shellfish in any form.") > 3 * rated("Liv is accustomed to shellfish in any form.")
    assert rated("Lis ist gegen Erdnuss allergisch.") > 3 * rated("Lis ist gegen Erdnuss misstrauisch.")


def test_what_an_assistant_reports_of_results_is_likelier_to_be_asked_for():
    text = "The boiler room is behind the kitchen."
    assert rated(text, speaker="assistant", reports=True) > 1.5 * rated(text, speaker="assistant")


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        ("No wait, keep it.", True),
        ("Actually leave it.", True),
        ("Nein, doch nicht.", True),
        ("Nobody knows.", False),
        ("ok so not that.", True),
        ("Not half.", True),
        ("So be it.", False),
        ("Nothing yet.", False),
    ],
)
def test_what_takes_back_is_told_by_how_it_opens(text, takes):
    assert takes_back(text) == takes


def test_a_fragment_of_an_answer_is_worth_less_than_a_sentence():
    whole = "The staging server listens on port 9443 behind the gateway, and the metrics are on the port above it."
    assert worth("The gateway listens:", speaker="assistant") < 0.5 * worth("The gateway listens:") < 0.5 * worth(whole)


def test_an_answer_and_a_users_own_words_count_more():
    text = "The boiler room is behind the kitchen."
    assert rated(text, answers=True) > rated(text) > rated(text, speaker="assistant")


@pytest.mark.parametrize(
    ("text", "nothing_else"),
    [
        ("Ana: Hey Ben!", True),
        ("Thanks so much!", True),
        ("Cara: Good night, Mel!", True),
        ("Hello there. Long time no see!", True),
        ("Wow!", True),
        ("Hey Ben, the port is 9443.", False),
        ("Thanks to Ann it works.", False),
        ("Great Britain.", False),
        ("Ana: Sure, Tuesday!", False),
        ("OK, Postgres.", False),
        ("Ohio.", False),
        ("Ana: Kuro!", False),
        ("Danke schön!", True),
        ("Muchas gracias", True),
        ("ありがとうございます。", True),
        ("감사합니다!", True),
        ("Superkleber", False),
        ("Danke, drei davon.", False),
    ],
)
def test_a_greeting_says_nothing_else(text, nothing_else):
    assert greets(text) == nothing_else


@pytest.mark.parametrize("speaker", ["user", "assistant"])
def test_a_user_who_agrees_with_a_figure_says_more_than_one_who_agrees(speaker):
    plain, with_figure = (lines(said(text, speaker))[0] for text in ("Ok, as we are.", "Ok, we are 6."))
    assert (with_figure.salience > plain.salience) == (speaker == "user")


IN_ANY_ORDER = """
from test_restore_cover import rated
text = "The blue heron nests between reeds, willows, alders, stones, jetties and barges."
print([repr(rated(text, rarity=lambda term: 0.6 + 1 / (3 + n + sum(map(ord, term))))) for n in range(40)])
"""


def test_what_a_sentence_is_worth_is_the_same_in_every_process():
    """The words of a sentence are a set, whose order follows the hashes of a process; of rarities that differ in their
    last digits the sum does, too."""
    said = [
        subprocess.run(
            [sys.executable, "-c", IN_ANY_ORDER], env={**os.environ, "PYTHONHASHSEED": str(seed)}, cwd="tests",
            capture_output=True, check=True, text=True,
        ).stdout
        for seed in range(3)
    ]  # fmt: skip
    assert said[0] == said[1] == said[2]
    assert said[0].count("'") == 80
