"""What is added to a passage of a question block: later updates, its answer, its question; and nothing that has
little to do with the question."""

import numpy as np
import pytest
from msgspec.structs import replace
from test_restore import LEXICAL, ask, filed, write

from lantern_proxy.archive import Archive
from lantern_proxy.config import ArchiveConfig, Config, RestoreConfig
from lantern_proxy.memory import Lantern
from lantern_proxy.restore.context import Contexts
from lantern_proxy.restore.parts import Candidate
from lantern_proxy.restore.present import Present
from lantern_proxy.restore.question import Evidence, parse_question
from lantern_proxy.restore.restorer import Restorer
from lantern_proxy.restore.supplements import Supplements
from lantern_proxy.restore.weak import NEAR, _nearness, without_echoes
from lantern_proxy.signals import has_speaker_names
from lantern_proxy.turn import canonical

THINGS = "kettle lamp sofa garden fence ladder bucket window curtain carpet shelf drawer mirror candle basket".split()  # noqa: SIM905
THINGS += "hammer pliers saw drill brush roller paint varnish hinge handle lock chain blanket pillow".split()  # noqa: SIM905
OTHERS = [
    (f"I put the {thing} next to the {THINGS[n - 1]}, it looks fine there.", f"The {thing} has its place.")
    for n, thing in enumerate(THINGS)
]


STATE = "\n\n<environment_details>\nsrc/main.py\n</environment_details>"
"""What a client writes behind its user's words."""


@pytest.fixture
def block_of(tmp_path):
    """(turns, question) -> the text of its question block, of a conversation about many other things."""
    count = iter(range(99))

    def made(turns, question, others=OTHERS):
        step = len(others) // (len(turns) + 1)
        told = [*turns]
        said = [
            pair
            for n, other in enumerate(others)
            for pair in ([told.pop(0), other] if n % step == 0 and told else [other])
        ]
        with Archive(tmp_path / f"{next(count)}.db", synchronous="normal") as archive:
            write(archive, filed(said))
            restored = Restorer(archive, Config(embed=LEXICAL), None).for_question(ask(question, present="Nothing."))
        return restored.text if restored else ""

    return made


@pytest.mark.parametrize(
    ("old", "new", "question", "value"),
    [
        (
            "Book the hotel Aurora for the Lisbon trip, room for two.",
            "Cancel the Aurora. We take the Pestana.",
            "Which hotel did we book for the Lisbon trip?",
            "Pestana",
        ),
        (
            "The budget review is on Tuesday at 10 in the cafe on Miller Street.",
            "Forget the Tuesday slot. Let's meet Thursday.",
            "When and where is the budget review?",
            "Thursday",
        ),
        (
            "Our retry limit is 6 attempts for the DHL hook.",
            "That was too many for DHL. Make it 3.",
            "What is the retry limit of the hook?",
            "Make it 3",
        ),
        # with no word of the question
        (
            "Our tenants pay 820 euros rent on the first.",
            "The tenants pay 845 from May.",
            "How much is the rent?",
            "845",
        ),
        (
            "Isolde Varga, a clockmaker in Trieste, has a limp on her left leg.",
            "On second thought Varga has her limp on the right.",
            "Which leg of the clockmaker hurts?",
            "on the right",
        ),
        (
            "Le rendez-vous avec le dentiste est mardi \u00e0 14h30, rue Lepic.",
            "Oublie le mardi. Ce sera plut\u00f4t jeudi \u00e0 9h.",
            "C'est quand le rendez-vous chez le dentiste ?",
            "jeudi",
        ),
        (
            "Das Treffen mit dem Vermieter ist am Dienstag in der Lindenstra\u00dfe 4.",
            "Vergiss den Dienstag. Am Donnerstag passt es besser.",
            "Wann ist das Treffen mit dem Vermieter?",
            "Donnerstag",
        ),
        (
            "\u6211\u4eec\u548c\u4f9b\u5e94\u5546\u5f20\u4f1f\u7684\u4f1a\u8bae\u5b9a\u5728\u661f\u671f\u4e09\u4e0b\u5348\u4e09\u70b9\uff0c\u5728\u6e56\u6ee8\u8def\u7684\u529e\u516c\u5ba4\uff0c\u8bf7\u5927\u5bb6\u5e26\u4e0a"
            "\u5408\u540c\u7684\u6837\u672c\u3002",
            "\u4f9b\u5e94\u5546\u5f20\u4f1f\u6765\u4fe1\u8bf4\u4ed6\u90a3\u5929\u8981\u53bb\u4e0a\u6d77\uff0c\u6240\u4ee5\u6211\u4eec\u548c\u4ed6\u7684\u4f1a\u8bae\u6539\u5230\u661f\u671f\u4e94\u4e0b\u5348\u56db\u70b9\uff0c"
            "\u5730\u70b9\u4e0d\u53d8\u3002",
            "\u548c\u4f9b\u5e94\u5546\u5f20\u4f1f\u7684\u4f1a\u8bae\u662f\u4ec0\u4e48\u65f6\u5019\uff1f",
            "\u661f\u671f\u4e94",
        ),
        (
            "\u7530\u4e2d\u3055\u3093\u306e\u4e88\u7d04\u306f\u571f\u66dc\u65e5\u304b\u3089\u4e8c\u6cca\u3067\u3001\u90e8\u5c4b\u306f\u6d77\u304c\u898b\u3048\u308b\u548c\u5ba4\u3092\u304a\u9858\u3044\u3057\u307e\u3057\u305f\u3002",
            "\u7530\u4e2d\u3055\u3093\u304b\u3089\u9023\u7d61\u304c\u3042\u308a\u3001\u90fd\u5408\u304c\u5909\u308f\u3063\u305f\u306e\u3067\u4e88\u7d04\u306f\u6708\u66dc\u65e5\u304b\u3089\u4e09\u6cca\u306b\u5909\u66f4\u3057\u3066\u304f\u3060\u3055\u3044\u3002",
            "\u7530\u4e2d\u3055\u3093\u306e\u4e88\u7d04\u306f\u4f55\u66dc\u65e5\u304b\u3089\u3067\u3059\u304b\uff1f",
            "\u6708\u66dc\u65e5",
        ),
    ],
)
def test_what_came_of_an_old_value_stands_beside_it(block_of, old, new, question, value):
    text = block_of([(old, "Noted."), ("What about the weather?", "It rains."), (new, "Done.")], question)
    assert old.split(".")[0].split("\u3002")[0] in text
    assert value in text


@pytest.mark.parametrize(
    ("old", "later", "question", "junk"),
    [
        # it only asks
        (
            "The cake comes from Amsel, three tiers, to be picked up on Friday at 16:00.",
            "Can you suggest a plan for the Friday?",
            "When do we pick up the cake?",
            "suggest",
        ),
        # it says by itself what it is about, and has but a common word of the other
        (
            "The fridge in the drug room showed 9.4 degrees, so the insulin went to ward 4A.",
            "The code of the med room is 3390, no longer 1182.",
            "What happened to the fridge?",
            "3390",
        ),
        # it only thanks
        (
            "Für das Boot bitte zwei Ruder aus Esche, danke.",
            "Danke!",
            "Aus welchem Holz sind die Ruder für das Boot?",
            "Danke!",
        ),
        # it stands beside the best
        ("The gate code is 7714.", "You're doing great with all of these.", "What is the gate code?", "great"),
    ],
)
def test_what_has_no_bearing_on_the_question_is_not_what_came_of_it(block_of, old, later, question, junk):
    text = block_of([], question, [*OTHERS[:9], (old, "Noted."), (later, "Sure."), *OTHERS[9:]])
    assert old in text
    assert junk not in text


def test_a_short_rule_stands_beside_what_it_is_about(block_of):
    old = "The timeline of the regatta: the judges come on 4 May, the crews on 6 May."
    rule = "Always write a timeline with the months in capitals."
    text = block_of([(old, "Noted."), (rule, "Will do.")], "When do the crews come to the regatta?")
    assert old in text
    assert rule in text


def test_a_korean_question_finds_what_was_said_with_another_particle(block_of):
    turns = [("금요일 오후에 등대에서 회의를 해요.", "네, 알겠습니다."), ("내일은 비가 온대요.", "우산을 챙기세요.")]
    assert "금요일 오후" in block_of(turns, "회의는 언제예요?")


def test_what_came_of_a_thing_that_all_messages_name_is_the_newest_of_what_is_asked(block_of):
    day = [(f"Costa had {food} at {n}:30 and slept well.", "Noted.") for n, food in enumerate(THINGS[:9], 8)]
    turns = [
        ("Costa Hb 7.9 at 18:00, two units given, recheck at midnight.", "Noted."),
        *day,
        ("Costa Hb 9.1, eats normal.", "Noted."),
    ]
    text = block_of([], "What is the latest Hb of Costa?", [*turns, *day])
    assert text.index("Hb 7.9") < text.index("Hb 9.1")


def test_what_is_said_later_of_something_else_does_not(block_of):
    turns = [("The spare key is under pot 7 in the yard.", "Noted."), ("I have 7 cousins, all in Kent.", "So many!")]
    text = block_of(turns, "Where is the spare key?")
    assert "under pot 7" in text
    assert "cousins" not in text


def test_an_answer_stands_beside_the_question_that_was_asked_then(block_of):
    turns = [
        ("Which vacuum cleaner would you take for a flat on the fourth floor?", "The Dyson Micro weighs 1.5 kg only."),
        ("How many people come to the workshop?", "Should I book the Rotunda?"),
    ]
    assert "Dyson Micro" in block_of(turns, "Which vacuum cleaner was it for the fourth floor?")
    turns = [
        ("Let's plan the workshop.", "How many people come to the workshop on the 14th?"),
        ("Eight.", "Then hall B."),
    ]
    others = OTHERS[:14]
    with_both = block_of([], "How many people come to the workshop?", [*others, *turns, *others])
    assert "Eight." in with_both


@pytest.mark.parametrize("form", ["{said}", "{state}\n\n{said}", "{said}{state}"])
def test_an_answer_stands_beside_its_question_wherever_its_client_writes_the_state(block_of, form):
    turns = [
        ("Let's plan the workshop.", "How many people come to the workshop on the 14th?"),
        (form.format(said="Eight.", state=STATE), "Then hall B."),
    ]
    others = OTHERS[:14]
    assert "Eight." in block_of([], "How many people come to the workshop?", [*others, *turns, *others])


def test_what_an_agent_said_behind_its_calls_stands_beside_the_question_that_was_asked_then(tmp_path):
    said = [
        ("Who owns the nightly export job?", "Ines does, since the reorganisation in March."),
        ("Why does the importer skip the first row?", "Vendors put a units row there, which we drop."),
        ("What happens when the queue is full?", "New ones are rejected with a 429."),
    ]
    messages = []
    for asked, answer in said:
        messages.append({"role": "user", "content": asked})
        for _ in range(4):
            called = {"id": f"call_{len(messages)}x9a8b7", "type": "function"}
            grep = {"name": "grep", "arguments": '{"pattern": "def ", "path": "src/"}'}
            messages += [
                {"role": "assistant", "content": "", "tool_calls": [{**called, "function": grep}]},
                {"role": "tool", "tool_call_id": called["id"], "content": f"src/a.py:{len(messages)}: x = 1\n" * 6},
            ]
        messages.append({"role": "assistant", "content": answer})
    with Lantern(Config(archive=ArchiveConfig(path=tmp_path / "a.db"), embed=LEXICAL)) as lantern:
        lantern.archive("s", messages)
        blocks = [lantern.recall(asked, session="s") for asked, _ in said]
    assert [answer in block.text for block, (_, answer) in zip(blocks, said, strict=True) if block] == [True] * 3


def test_what_has_little_to_do_with_the_question_is_left_out(block_of):
    turns = [("The ferry to Hvar takes 65 minutes, the car ferry two hours.", "Noted.")]
    text = block_of(turns, "How long does the ferry to Hvar take?")
    assert "65 minutes" in text
    assert "next to the" not in text


def test_a_heading_is_no_name_of_a_speaker():
    users = ["user"] * 8
    assert not has_speaker_names(["hotel", *[""] * 7], users)
    assert has_speaker_names(["ana", "ben", "ana", "", "", "", "", ""], users)
    assert not has_speaker_names(["", ""], ["assistant", "user"])


def test_a_heading_does_not_stand_in_front_of_what_is_asked(block_of):
    turns = [
        ("Hotels: something quiet. Last time we had a room above a bar.", "I'll look."),
        ("We decided on the hotel Bramante in the end, behind the old harbour.", "Good choice."),
    ]
    text = block_of(turns, "Which hotel did we choose?")
    assert "Bramante" in text


GYMS = """Here is what I found:

| Gym | Monthly fee | Opening hours | Sauna |
|---|---|---|---|
| Fitwerk | 39 EUR | 6-23 | no |
| Kraftraum | 54 EUR | 24/7 | yes |
| Lindenbad | 29 EUR | 7-21 | yes |
| Vitalis | 61 EUR | 6-22 | yes |
| Studio 8 | 45 EUR | 8-22 | no |"""


@pytest.mark.parametrize(
    ("question", "shown", "hidden"),
    [
        ("Which gyms have a sauna?", ["| Sauna |", "Fitwerk", "Lindenbad", "Studio 8"], []),
        ("What is the monthly fee of Lindenbad?", ["Monthly fee", "| Lindenbad | 29 EUR |"], ["Vitalis"]),
    ],
)
def test_rows_of_a_table_come_with_its_header(block_of, question, shown, hidden):
    text = block_of([("Which gyms are near?", GYMS)], question)
    assert [each for each in shown if each not in text] == []
    assert [each for each in hidden if each in text] == []


NAMED_APART = [
    ("The metrics server listens on port 9187.", "Noted."),
    ("It runs on host atlas-03 in rack B12.", "Noted."),
    ("Owner of the billing cluster is Ines Falk, pager 4471.", "Noted."),
    ("Our wifi password for guests is tulip-88-marble.", "Noted."),
]


@pytest.mark.parametrize(
    ("question", "values"),
    [
        ("Give me the port, the host and the owner again.", ["9187", "atlas-03", "Ines Falk"]),
        ("What were the port, the host, the owner and the wifi password?", ["9187", "atlas-03", "Falk", "tulip"]),
    ],
)
def test_of_several_things_that_are_asked_for_at_once_each_comes_back(block_of, question, values):
    text = block_of(NAMED_APART, question)
    assert [value for value in values if value not in text] == []


@pytest.mark.parametrize(
    "said", ["Thanks, and good night!", "I like bread, butter and jam.", "Write loops and a test."]
)
def test_what_only_lists_things_gets_nothing(block_of, said):
    assert block_of(NAMED_APART, said) == ""


def test_a_loss_block_does_not_show_an_old_value_without_what_came_of_it(tmp_path):
    turns = [("Our retry limit is 6 attempts for the DHL hook of the parcel service.", "Noted."), *OTHERS[:14]]
    turns += [("That was too many for DHL. Make it 3.", "Set to 3."), *OTHERS[14:]]
    with Archive(tmp_path / "a.db") as archive:
        write(archive, filed(turns))
        for budget in range(400, 1_600, 100):
            restored = Restorer(archive, Config(embed=LEXICAL), None).at_compaction(
                ask(present="Nothing.", budget=budget)
            )
            text = restored.text if restored else ""
            assert len(text) <= budget
            assert "6 attempts" not in text or "Make it 3" in text


@pytest.mark.parametrize(
    ("later", "is_of_it"),
    [
        ("The boathouse safe has a new code, 9026.", True),
        ("The cellar of the library has a code of 9026.", False),
        ("The boathouse safe is the one under the stairs.", False),
    ],
)
def test_what_has_the_words_of_an_older_value_and_another_value_came_of_it(tmp_path, later, is_of_it):
    old = "Code of the boathouse safe is 4471. The cellar of the library was dry."
    later += " It rained all morning, so we sat there and waited and drank tea until it was time to go home again."
    with Archive(tmp_path / "a.db") as archive:
        write(archive, filed([(old, "Noted."), *OTHERS[:14], (later, "All set."), *OTHERS[14:]]))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        with restorer._scope(ask()) as scope:
            supplements = Supplements(restorer._source, scope, Present("Nothing."), {}, ask(), Contexts(scope))
            found = [scope.passages[row].flat for row in supplements.updates_of(0, old)]
    assert found == [later] * is_of_it


HOTEL = "Lisbon hotel: I found the Jasmim in Graca, 1,450 a night, on the third floor without a lift."


FORECAST = "The forecast for next year: base case +3.5 %, optimistic +6, pessimistic -1."


@pytest.mark.parametrize(
    ("old", "later", "between", "is_of_it"),
    [
        # the next message, with a value of the same unit, or what takes something back
        (HOTEL, "ok so not that. Hotel Borges then, two connecting rooms, 1,980 a night with breakfast, and a lift.", 0,
         True),
        ("Source code escrow: the agent is in Leeds. The cost is split half and half, GBP 3,600.",
         "Not half. Corvid carries all of it now, in return for a reference on the site they have.", 0, True),
        (HOTEL, "The tiles for the porch are 45 euros each.", 0, False),
        # it is about what stands before the value
        (FORECAST, "The base case was revised to +2.8 after the contract for the wheat. Wheat is at 318 euros.",
         9, True),
        (FORECAST, "The display case in the hall of the museum of fine arts is lit by 2.8 % of the lamps.", 9, False),
        # it can be understood by itself, and shares one word only
        ("The guarantee of the parent company is limited to 1.5 million.", "Poaching: limited to 12 months.", 9, False),
    ],
)  # fmt: skip
def test_what_corrects_an_older_value_stands_beside_it_in_a_loss_block(tmp_path, old, later, between, is_of_it):
    with Archive(tmp_path / "a.db") as archive:
        write(archive, filed([(old, "Noted."), *OTHERS[:between], (later, "All set."), *OTHERS[between:]]))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        with restorer._scope(ask()) as scope:
            supplements = Supplements(restorer._source, scope, Present("Nothing."), {}, ask(), Contexts(scope))
            found = [scope.passages[row].flat for row in supplements.updates_of(0, old)]
    assert (later in found) == is_of_it


def test_what_takes_back_the_message_before_stands_beside_it(block_of):
    later = "ok so not that. Hotel Borges then, two rooms, 1,980 a night with breakfast, lift and all."
    text = block_of(
        [], "What did I say of the Jasmim in Graca?", [*OTHERS[:9], (HOTEL, "Hm."), (later, "Good."), *OTHERS[9:]]
    )
    assert HOTEL in text
    assert later in text


@pytest.mark.parametrize(
    "told",
    [
        (
            "We marry on 14 June 2027, at the Villa Rossi near Siena.",
            "Change of plan: we move the date to 21 June 2027, the villa had a double booking.",
            "The villa called, the double booking is gone. Back to 14 June 2027!",
        ),
        (
            "The heroine is Isolde Varga, a clockmaker in Trieste. She limps on her left leg.",
            "Her dog is a spitz.",
            "She limps on the right leg, not the left.",
        ),
    ],
)
def test_what_came_of_a_value_stands_in_the_loss_block_though_it_says_by_itself_what_it_is_about(tmp_path, told):
    turns = [turn for n, said in enumerate(told) for turn in (*OTHERS[8 * n : 8 * n + 8], (said, "Noted."))]
    with Archive(tmp_path / "a.db") as archive:
        write(archive, filed([*turns, *OTHERS[8 * len(told) :]]))
        for budget in (500, 700, 900):
            text = Restorer(archive, Config(embed=LEXICAL), None).at_compaction(ask(present="", budget=budget)).text
            assert told[-1] in text


def test_what_stands_beside_an_answer_that_a_block_shows_is_no_evidence(tmp_path):
    told = "The porcelain came from Silex in Rotterdam, 120 kg for 301.80.", "The porcelain is booked."
    with Archive(tmp_path / "a.db", synchronous="normal") as archive:
        write(archive, filed([*OTHERS[:9], told, *OTHERS[9:]]))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        asked = ask("What did the porcelain cost and where did I get it?", present="Nothing.", budget=900)
        loss = restorer.at_compaction(asked)
        assert told[0] in loss.text
        restored = restorer.for_question(asked.with_blocks([loss]))
    assert "next to" not in (restored.text if restored else "")


@pytest.mark.parametrize(
    ("said", "comes_back"),
    [
        ("Write a summary of all that was said so far, so that the work can go on.", False),
        (f"Write a summary of all that was said so far, so that the work can go on.{STATE}", False),
        ("Plan the trip with berth code QX-4471, avoid Nyborg, where Uncle Per lives.", True),
        ("Summarise this for my mother: surgery on May 5 at 9:20 in room B114, bring the red folder.", True),
    ],
)
def test_of_what_a_summary_answers_only_the_order_for_it_is_left_out(tmp_path, said, comes_back):
    answer = "The kettle, the lamp and the sofa have their places in the house, and the trip goes from there."
    with Archive(tmp_path / "a.db", synchronous="normal") as archive:
        write(archive, filed([*OTHERS[:9], (said, answer)]))
        asked = replace(ask(present=answer), summary=answer)
        text = Restorer(archive, Config(embed=LEXICAL), None).at_compaction(asked).text
    assert (said.removesuffix(STATE) in text) is comes_back


def write_by_turns(archive, messages, others):
    """Two sessions of a tenant at once: each message is archived before the next one of the other session."""
    for n, (one, other) in enumerate(zip(messages, others, strict=True)):
        write(archive, [one], request=f"r{n}")
        write(archive, [other], session="other", request=f"o{n}")


def test_the_order_for_a_summary_is_found_though_another_session_said_something_meanwhile(tmp_path):
    said = "Write a summary of all that was said so far, so that the work can go on."
    answer = "The kettle, the lamp and the sofa have their places in the house, and the trip goes from there."
    told = filed([*OTHERS[:9], (said, answer)])
    with Archive(tmp_path / "a.db", synchronous="normal") as archive:
        songs = [(f"Shall we sing song {n}?", f"Song {n} is long.") for n in range(10)]
        write_by_turns(archive, told, filed(songs, session="other"))
        config = Config(embed=LEXICAL, restore=RestoreConfig(scope="tenant"))
        text = Restorer(archive, config, None).at_compaction(replace(ask(present=answer), summary=answer)).text
    assert said not in text


def test_a_word_for_summaries_in_what_a_user_said_does_not_keep_it_out_of_a_window(tmp_path):
    said = "So far only Okonkwo has signed the deed, and the notary is Dr. Lindqvist from Aarhus."
    answer = "Understood. I will remind you of the others until they have signed, and of who they are."
    with Archive(tmp_path / "a.db", synchronous="normal") as archive:
        write(archive, filed([*OTHERS[:9], (said, answer)]))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        question = "Who is the notary?"
        asked = ask(question, present=canonical(f"{answer} {question}"))
        assert said in restorer.at_compaction(asked).text
        assert said in restorer.for_question(asked).text
        restorer.close()


@pytest.mark.parametrize(
    ("old", "new", "question"),
    [
        ("The Skoda costs 7600 with winter tyres.", "They called: the Skoda is at 7450 now.",
         "What does the Skoda cost?"),
        ("The deadline for the grant application is 12 May.", "Good news, they moved the grant to 26 May.",
         "When is the deadline for the grant application?"),
        ("My sister Ilse lives in Graz with her two cats.", "Ilse finally moved, she's in Linz since Monday.",
         "Where does my sister Ilse live?"),
        ("We want 40 chairs for the garden party.", "Make it 55 chairs, my cousins are coming after all.",
         "How many chairs do we want for the garden party?"),
    ],
)  # fmt: skip
def test_an_answer_that_the_request_shows_does_not_hide_what_came_of_it(tmp_path, old, new, question):
    said = [(old, "Noted."), *OTHERS[:5], (new, "All right."), *OTHERS[5:]]
    with Archive(tmp_path / "a.db", synchronous="normal") as archive:
        write(archive, filed(said))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        lacks = restorer.for_question(ask(question, present=canonical(f"{old} {question}")))
        assert new in [placed.text for placed in lacks.placed]
        assert old not in lacks.text
        restorer.close()


@pytest.mark.parametrize(
    ("old", "new", "on", "question"),
    [
        ("The Skoda costs 7600 with winter tyres.", "They called: the Skoda is at 7450 now.",
         ["We drove the Skoda to the lake on Friday.", "The Skoda smells of dog, 6 weeks now."],
         "What does the Skoda cost?"),
        ("Dr. Amsel prescribed 20 mg of prednisolone for the rash.", "The prednisolone is down to 10 mg.",
         ["Prednisolone makes me hungry at 4 in the night.", "I have had prednisolone for 12 days, and no rash."],
         "How much prednisolone did Dr. Amsel prescribe?"),
        ("The nightly export runs at 02:00 for the auditors.", "We put the export at 04:30.",
         ["The export has 12 columns.", "The export took 48 minutes."],
         "When does the nightly export run?"),
    ],
)  # fmt: skip
def test_what_goes_on_about_a_thing_later_does_not_stand_for_the_value_that_changed(tmp_path, old, new, on, question):
    said = [(old, "Noted."), *OTHERS[:5], (new, "All right."), *OTHERS[5:12], (on[0], "I see."), *OTHERS[12:20]]
    said += [(on[1], "I see."), *OTHERS[20:]]
    with Archive(tmp_path / "a.db", synchronous="normal") as archive:
        write(archive, filed(said))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        restored = restorer.for_question(ask(question, present=canonical(f"{old} {question}")))
        restorer.close()
    assert new in [placed.text for placed in restored.placed]


def test_what_stands_beside_an_answer_that_the_request_holds_is_no_evidence(tmp_path):
    told = "The deadline for the grant is 12 May.", "Noted."
    claimed = "Someone claimed the grant deadline is 26 May, but that is wrong.", "Noted."
    question = "When is the deadline for the grant?"
    with Archive(tmp_path / "a.db", synchronous="normal") as archive:
        write(archive, filed([told, *OTHERS[:9], claimed, *OTHERS[9:]]))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        text = restorer.for_question(ask(question, present=canonical(f"{told[0]} {question}"))).text
        restorer.close()
    assert claimed[0] in text
    assert "next to" not in text


@pytest.mark.parametrize(
    ("old", "later", "question"),
    [
        ("The Skoda costs 7600 with winter tyres.",
         ["They called: the Skoda is at 7450 now.", "The Skoda is at 7300 now, they say.", "The Skoda is sold."],
         "How much was it with winter tyres?"),
        ("The nightly export runs at 02:00 for the auditors.",
         ["We put the export at 04:30.", "The export is at 05:15 from now on.", "The export is off for good."],
         "At what time was the nightly one for the auditors?"),
    ],
)  # fmt: skip
def test_the_end_of_a_thing_stands_beside_its_last_value(tmp_path, old, later, question):
    said = [(old, "Noted."), *OTHERS[:5]]
    for n, each in enumerate(later, start=1):
        said += [(each, "All right."), *OTHERS[5 * n : 5 * n + 5]]
    with Archive(tmp_path / "a.db", synchronous="normal") as archive:
        write(archive, filed(said))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        restored = restorer.for_question(ask(question, present="Nothing.", budget=450))
        restorer.close()
    told = [placed.text for placed in restored.placed]
    assert {later[1], later[2]} <= {*told}


@pytest.mark.parametrize(
    ("new", "is_of_it"),
    [("Then 59 percent liked the poster.", True), ("Then 59 percent of the paint is dry.", False)],
)
def test_of_what_the_assistant_answered_the_newer_answer_stands_beside_it(block_of, new, is_of_it):
    old = "A share of 46 percent liked it."
    turns = [
        ("Poll on the new kiosk: 412 of 900 visitors of the red hall liked it.", old),
        ("For the red hall the kiosk was off on Sunday. Then 412 of 700 visitors.", new),
    ]
    text = block_of(turns, "What share liked the kiosk in the poll?")
    assert old in text
    assert (new in text) == is_of_it


def test_what_the_assistant_told_of_a_count_later_comes_back_where_the_request_shows_the_old_one(tmp_path):
    old = "So I have 122 silver now. I ask what tower."
    new = (
        "You have 77 silver left. The guard at the northern gate warns you of the owls that nest above the stairs, "
        "and of a step that gave way when the miller's boy climbed up to see the comet last winter."
    )
    turns = [(old, "The tower is dark."), *OTHERS[:9], ("I buy a rope for 45.", new), *OTHERS[9:]]
    with Archive(tmp_path / "a.db", synchronous="normal") as archive:
        write(archive, filed(turns))
        restored = Restorer(archive, Config(embed=LEXICAL), None).for_question(
            ask("How much silver do I have?", present=canonical(f"{old} I buy a rope for 45."))
        )
    assert restored is not None
    assert "77 silver" in restored.text


COINS = [
    ("I enter the smithy with my lantern.", "Marga mends its hinge for 3 copper. You have 11 copper left."),
    ("I buy glowmoss.", "She sells you two bunches. You have 7 copper now."),
    ("I take the key and ask how many years.", "Nineteen, he whispers."),
    ("We bring the child home.", "The mother thanks you with a file of steel. You have 9 copper."),
]


def test_how_many_is_answered_by_the_latest_count_and_not_by_who_else_asked_how_many(block_of):
    text = block_of(COINS, "How many copper do I have?")
    assert "9 copper" in text
    assert "how many years" not in text


def test_what_is_asked_for_between_two_things_is_no_list_of_both():
    assert parse_question("How many days are between my first draft and the exam?").items == ()
    assert len(parse_question("What are the port, the host and the owner?").items) == 3


@pytest.mark.parametrize("state", ["", STATE])
@pytest.mark.parametrize("answer_is_shown", [True, False])
def test_a_question_whose_answer_a_block_shows_is_no_evidence(tmp_path, answer_is_shown, state):
    asked = f"The Aurora sounds nice. How do we get from Lisbon to Tavira?{state}"
    with Archive(tmp_path / "a.db", synchronous="normal") as archive:
        write(archive, filed([(asked, "By train to Tavira, 27 euros per adult.")]))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        with restorer._scope(ask()) as scope:
            shown = [read.passage.id for read in scope.passages][:: len(scope) - 1][: 1 + answer_is_shown]
            asked = candidate_of(scope, 0)._replace(lost=(1,))
            found = without_echoes([asked], scope, {"lisbon": 1.0}, ask(shown=frozenset(shown)))
        restorer.close()
    assert found == ([] if answer_is_shown else [asked])


@pytest.mark.parametrize("state", ["", STATE])
def test_what_repeats_a_message_that_a_block_shows_is_no_evidence_behind_the_state_that_a_client_wrote(tmp_path, state):
    with Archive(tmp_path / "a.db", synchronous="normal") as archive:
        write(archive, filed([(f"We leave from gate 12 at 9:40.{state}", "Noted: gate 12, at 9:40.")]))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        with restorer._scope(ask()) as scope:
            shown = frozenset([scope.passages[0].passage.id])
            answer = candidate_of(scope, len(scope) - 1)
            found = without_echoes([answer], scope, {"gate": 1.0}, ask(shown=shown))
        restorer.close()
    assert answer.passage.speaker == "assistant"
    assert found == []


def candidate_of(scope, row):
    read = scope.passages[row]
    return Candidate(read.passage, read.lines, tuple(range(len(read.lines))), row)


@pytest.mark.parametrize(("others", "near"), [(0.1, True), (0.45, False)])
def test_where_all_texts_are_alike_none_is_near_the_question(others, near):
    cosines = np.array([others + 0.02 * (n % 3) for n in range(40)] + [0.48])
    evidence = Evidence(cosines, cosines, cosines, {}, {}, 0.0)
    assert _nearness(evidence, NEAR)(40) is near


def test_of_an_update_that_a_block_shows_filler_does_not_come_as_well(tmp_path):
    old, new = "We fly back from Lisbon on the 16th.", "Oh, nice! Then you fly from Lisbon on the 9th."
    said = [(old, "Noted: back on the 16th."), *OTHERS[:5], ("We go to the Azores.", new), *OTHERS[5:9]]
    with Archive(tmp_path / "a.db", synchronous="normal") as archive:
        write(archive, filed(said))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        loss = restorer.at_compaction(ask(present="Nothing."))
        ids = frozenset(placed.passage.id for placed in loss.placed if placed.passage.text == new)
        held = canonical(f"{old} Noted: back on the 16th. {new.removeprefix('Oh, nice! ')}")
        restored = restorer.for_question(ask("When do we fly from Lisbon?", present=held, shown=ids))
        restorer.close()
    assert ids
    assert restored is None or "Oh, nice" not in restored.text


@pytest.mark.parametrize("state", ["", f"{STATE}\n\n"])
def test_a_correction_right_after_a_message_needs_no_word_of_it(block_of, state):
    text = block_of(
        [("Bring the fish on Friday, eight portions, with lemon.", "Eight portions of fish on Friday.")],
        "Which portions of fish do we want?",
        [(f"{state}Too much, make it 3.", "Changed."), *OTHERS],
    )
    assert "make it 3" in text


@pytest.mark.parametrize("between", [[], [("How do dolphins sleep?", "With one half of the brain at a time.")]])
def test_a_correction_in_the_next_statement_needs_one_rare_word_of_what_it_corrects(block_of, between):
    old = "The heat pump costs 34,200 with everything, by Krogmann, and the radiators stay as they are."
    later = (
        "Krogmann calculated again: nobody insulates the northern wall, so the larger model, the price is then 36,500."
    )
    turns = [*OTHERS[:9], (old, "Noted."), *between, (later, "All set."), *OTHERS[9:]]
    assert later in block_of([], "What does the heat pump cost?", turns)


def test_each_of_several_values_that_are_asked_for_comes_with_its_correction(block_of):
    told = (
        ("alder", "holds", "40 litres"), ("birch", "takes", "30 hours"), ("cedar", "costs", "75 euros"),
        ("dogwood", "weighs", "12 kg"), ("elder", "measures", "90 cm"),
    )  # fmt: skip
    turns = [
        turn
        for name, does, value in told
        for turn in (
            (f"The {name} {does} {value}.", "Noted."),
            (f"Not {value}, it's {value.replace(' ', '1 ')}.", "Ok."),
        )
    ]
    text = block_of([], "What about alder, birch, cedar, dogwood and elder?", [*OTHERS, *turns])
    assert [value for _, _, value in told if value.replace(" ", "1 ") not in text] == []


@pytest.mark.parametrize("others", [[], OTHERS])
@pytest.mark.parametrize(
    ("told", "changed", "last", "asked"),
    [
        ("The vet sees Bruno on Tuesday.", "They called, the vet moves Bruno from Tuesday to Thursday.",
         "Actually Friday works better.", "When does the vet see Bruno?"),
        ("The budget for the kitchen is 14,000 euros.", "Raise the kitchen budget to 16,000 euros.",
         "Hmm, 15,500 euros after all.", "What is the kitchen budget?"),
        ("The ingest port of the staging box is 5432.", "Change the ingest port from 5432 to 6000.",
         "Make it 7000 instead.", "Which port does the ingest use on the staging box?"),
        ("Der Termin mit Frau Kern ist am Montag.", "Verschiebe den Termin von Montag auf Mittwoch.",
         "Nimm stattdessen Donnerstag.", "Wann ist der Termin mit Frau Kern?"),
        ("Le budget du mariage est de 12 000 euros.", "On passe le budget du mariage à 14 000 euros.",
         "Non, plutôt 13 500 euros.", "Quel est le budget du mariage ?"),
    ],
)  # fmt: skip
def test_the_last_of_several_corrections_comes_though_it_names_nothing(block_of, told, changed, last, asked, others):
    text = block_of([], asked, [*others[:9], (told, "Noted."), (changed, "Done."), (last, "Done."), *others[9:]])
    assert last in text


@pytest.mark.parametrize(
    "later", ["Use a timeout of 30 seconds.", "The stove in the hall of the old mill weighs 90 kg."]
)
def test_a_next_statement_about_something_else_is_no_correction(block_of, later):
    told = "The ladle for the soup holds 4 litres."
    text = block_of([], "How much does the ladle for the soup hold?", [*OTHERS, (told, "Noted."), (later, "Done.")])
    assert "4 litres" in text
    assert later not in text


@pytest.mark.parametrize(
    ("told", "later", "asked"),
    [
        ("We cache sessions in Redis.", "Redis is gone, we run Valkey.", "What do we cache sessions in?"),
        ("Ship to Calle Mayor 12, Madrid.", "New address: Gran Via 88, Madrid.", "Where do you ship to?"),
    ],
)
def test_a_later_statement_that_repeats_a_value_and_has_another_one_is_an_update(block_of, told, later, asked):
    text = block_of([], asked, [(told, "Noted."), *OTHERS[:4], (later, "Fine."), *OTHERS[4:8]])
    assert told in text
    assert later in text
