"""Short messages of users: they come back with what they belong to, and stand beside what they change, whatever the
language, though they share no word with it."""

import re
from itertools import pairwise

import pytest
from test_restore import LEXICAL, ask, filed, write
from test_restore_agents import STEPS, of
from test_restore_supplements import OTHERS

from lantern_proxy.archive import Archive
from lantern_proxy.config import Config
from lantern_proxy.restore.context import Contexts
from lantern_proxy.restore.headings import headings
from lantern_proxy.restore.lines import lines
from lantern_proxy.restore.loss import _candidates, _with_context
from lantern_proxy.restore.passages import SMALL
from lantern_proxy.restore.present import Present
from lantern_proxy.restore.restorer import Restorer
from lantern_proxy.turn import Passage

FORM = [
    ("Set up the monthly report.", "Sure. Which day of the month should it be sent?"),
    ("5", "On the 5th. Which colour should the chart have?"),
    ("teal", "Teal. In which time zone does it run?"),
    ("Lisbon", "Lisbon time. How many decimals?"),
    ("2", "Two decimals. Who should receive it?"),
    ("Marek and the board", "It will go to Marek and the board. Is there anything else?"),
    ("ok", "Great."),
]


@pytest.fixture
def restorer_of(tmp_path):
    """turns -> the Restorer of a session that holds them."""
    opened = []

    def made(turns):
        archive = Archive(tmp_path / f"{len(opened)}.db", synchronous="normal")
        write(archive, filed(turns))
        opened.append((Restorer(archive, Config(embed=LEXICAL), None), archive))
        return opened[-1][0]

    yield made
    for restorer, archive in opened:
        restorer.close()
        archive.close()


def loss_of(restorer, budget=6_000):
    restored = restorer.at_compaction(ask(present="Nothing.", budget=budget))
    return restored.text if restored else ""


def test_short_answers_come_back_with_their_questions(restorer_of):
    block = loss_of(restorer_of(FORM))
    for question, answer in (
        ("Which day of the month should it be sent?", "#2] 5\n"),
        ("Which colour should the chart have?", "#3] teal\n"),
        ("In which time zone does it run?", "#4] Lisbon\n"),
        ("How many decimals?", "#5] 2\n"),
    ):
        assert block.index(question) < block.index(answer)
    assert "] ok" not in block


def test_what_takes_back_one_letter_comes_back(restorer_of):
    block = loss_of(restorer_of([*OTHERS[:9], ("my locker is B 21", "Saved, locker B 21."), ("no C", "Locker C 21.")]))
    assert "no C" in block


def test_a_short_question_is_weighed_as_one_and_brings_nothing_with_it(restorer_of):
    before = ("There are 340 users.", "For 340 users the licence works out at 103 a month.")
    turns = [*OTHERS[:9], before, ("What's the boathouse index?", "I have no live figures of it."), *OTHERS[9:]]
    restorer = restorer_of(turns)
    with restorer._scope(ask()) as scope:
        candidates = _candidates(restorer._source, scope, range(len(scope)), Present(""), ask())
        before = {candidate.row: candidate for candidate in candidates}
        after = {each.row: each for each in _with_context(candidates, Contexts(scope), ask())}
        asked = next(row for row in before if "boathouse" in scope.passages[row].flat)
    assert after[asked] == before[asked]


@pytest.mark.parametrize(
    ("said", "answers"),
    [(said, False) for said in ("omg", "OMG!", "lol", "haha", "no idea", "I have no idea.", "fair enough", "i see",
                                "good point, thanks", "sounds good", "ugh", "hmm ok")]
    + [(said, True) for said in ("teal", "no idea yet", "fair trade", "omg teal", "took it", "I see two")],
)  # fmt: skip
def test_a_laugh_or_a_shrug_answers_no_question(restorer_of, said, answers):
    question = "Which lettering should the carriage clock have?"
    gift = ("Help me with the gift for Ines.", f"Gladly. {question}")
    block = loss_of(restorer_of([*OTHERS[:9], gift, (said, "Alright, on we go."), *OTHERS[9:]]))
    assert (question in block, f"] {said}\n" in block) == (answers, answers)


def test_a_question_for_a_short_answer_finds_it(restorer_of):
    restorer = restorer_of([*OTHERS[:14], *FORM, *OTHERS[14:]])
    for question, answer in (
        ("Which colour has the chart?", "teal"),
        ("In which time zone does the report run?", "Lisbon"),
        ("Who receives the report?", "Marek and the board"),
    ):
        assert answer in restorer.for_question(ask(question, present="Nothing.")).text


CHANGES = [
    (
        ("Electrician: Lund, 2,150, includes 6 sockets and the hood.", "Noted: Lund, 2,150."),
        ("he says 2,480", "Lund: 2,480 with 9 sockets and the hood."),
        "2,150", "2,480", "What will the electrician cost?",
    ),
    (
        ("Metformin 500 mg twice a day, ramipril 5 mg in the morning.", "Thank you, noted."),
        ("no, not twice. only evenings", "Corrected: metformin in the evening only."),
        "twice a day", "only evenings", "What did we say about my metformin?",
    ),
    (
        ("The machiya in Gojo is booked in Kyoto, code HM4ZK2.", "Noted: the machiya in Gojo, Kyoto."),
        ("took the other one", "Then Kyoto is now the machiya in Gion."),
        "Gojo", "took the other one", "Which machiya did we book in Kyoto?",
    ),
    (
        ("Bring the fish on Friday, eight portions, with lemon.", "Eight portions of fish on Friday."),
        ("Too many, make it 3.", "Changed."),
        "eight portions", "make it 3", "How many portions of fish do we want?",
    ),
    (
        ("El t\u00e9cnico viene a ver la lavadora el mi\u00e9rcoles a las 10.", "De acuerdo, el mi\u00e9rcoles."),
        ("mejor el jueves", "Cambiado: el t\u00e9cnico ir\u00e1 el jueves a las 10."),
        "mi\u00e9rcoles", "mejor el jueves", "\u00bfQu\u00e9 d\u00eda viene el t\u00e9cnico?",
    ),
    (
        (
            "\u8bf7\u5728\u661f\u671f\u4e09\u9001\u8d27\u5230\u6e56\u6ee8\u8def\u3002",
            "\u597d\u7684\uff0c\u661f\u671f\u4e09\u9001\u8d27\u3002",
        ),
        ("\u4e0d\u884c\uff0c\u661f\u671f\u4e94", "\u5df2\u6539\u4e3a\u661f\u671f\u4e94\u9001\u8d27\u3002"),
        "\u661f\u671f\u4e09\u9001\u8d27", "\u4e0d\u884c\uff0c\u661f\u671f\u4e94",
        "\u661f\u671f\u51e0\u9001\u8d27\u5230\u6e56\u6ee8\u8def\uff1f",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "before", "after", "question"), CHANGES, ids=[c[3] for c in CHANGES])
def test_a_correction_that_shares_no_word_stands_beside_what_it_corrects(
    restorer_of, old, new, before, after, question
):
    restorer = restorer_of([*OTHERS[:9], old, new, *OTHERS[9:]])
    for budget in range(300, 2_000, 100):
        block = loss_of(restorer, budget)
        assert len(block) <= budget
        assert before not in block or after in block
    assert after in restorer.for_question(ask(question, present="Nothing.")).text


def test_a_message_that_says_all_by_itself_brings_nothing_beside_it(restorer_of):
    turns = [
        ("For Kuborsel, the password is pewter-gamel.", "Noted."),
        ("The depot of Tinormel opens at 7:45.", "Noted: it opens at 7:45."),
    ]
    restorer = restorer_of([*OTHERS[:14], *turns, *OTHERS[14:]])
    text = restorer.for_question(ask("What is the password of Kuborsel?", present="Nothing.")).text
    assert "pewter-gamel" in text
    assert "Tinormel" not in text


def test_what_stands_around_short_messages_is_read_at_once_and_line_by_line_only_where_it_may_say_them_again(
    restorer_of,
):
    long = "Nothing of it is said here again. " * 8
    turns = [(f"Which report {n}?", f"{long}Which day of month {n} suits the board?") for n in range(SMALL // 2)]
    colours = ["teal", "amber", "ochre", "mauve", "coral"]
    turns += [(each, f"{long}Which colour of chart {n} comes next?") for n, each in enumerate(colours)]
    restorer = restorer_of(turns)
    with restorer._scope(ask(present="Nothing.")) as scope:
        rows = [row for row in range(len(scope) - 15, len(scope)) if scope.passages.of([row])[0].flat in colours]
        contexts = Contexts(scope)
        contexts.read_around(rows)
        read = scope.passages.read_count
        found = [contexts.of(row) for row in rows]
        assert scope.passages.read_count == read <= 20
        assert [{"colour", "chart"} <= each.words for each in found] == [False, *[True] * 4]
        assert [scope.passages[row]._lines for each in found for row, _ in each.shown] == [None] * 5


def test_where_room_is_left_all_that_users_said_is_there(restorer_of):
    turns = [
        ("Kim takes the early bus, line 40, at the bridge.", "Noted."),
        ("Kim takes the early bus, line 40, on the way back, too, not at the bridge.", "Noted."),
        ("Thanks a lot!", "You're welcome!"),
        ("What is the weather like?", "It rains."),
    ]
    block = loss_of(restorer_of(turns))
    assert "on the way back, too" in block
    assert "Thanks" not in block


def test_the_sentences_between_those_that_were_chosen_of_an_answer_stand_there_where_room_is_left(restorer_of):
    told = (
        'The boy looks up. "Pim," he says. "The Widow sits in the Three Herons. The word for the door is eelskin." '
        "You have 14 gold left."
    )
    assert "eelskin" in loss_of(restorer_of([("I ask the boy's name and give him 2 silver.", told)]))


PODS = """NAME                     READY   STATUS             RESTARTS   AGE
parcelbus-api-2xkqp      1/1     Running            0          3d
parcelbus-worker-q9vzt   0/1     CrashLoopBackOff   214        3d
parcelbus-redis-0        1/1     Running            0          41d
parcelbus-cron-7jw2m     1/1     Running            2          9d"""
QUERY = """ region | shipments | max
--------+-----------+-----
 north  |      1204 |  37
 south  |       911 | 112
 west   |      2040 |  18
(3 rows)"""
SETTINGS = """{
  "queues": {
    "sorting": {
      "limit": 7731
    },
    "tracking": {
      "limit": 4402
    }
  }
}"""

RECORD = """customer: 4724
balance: 6487.76
currency: EUR
status: active
opened: 2019-03-04
branch: Ulm"""


@pytest.mark.parametrize(
    ("printed", "question", "shown", "hidden"),
    [
        (PODS, "How many restarts has the worker?", ["RESTARTS", "CrashLoopBackOff   214"], "cron"),
        (
            QUERY,
            "What was the max in the region west?",
            ["region | shipments | max", "west   |      2040 |  18"],
            "911",
        ),
        (SETTINGS, "Which limit does the queue for tracking have?", ['"tracking": {', "4402"], "7731"),
        (RECORD, "What was the balance of customer 4724?", ["customer: 4724", "balance: 6487.76"], "branch"),
    ],
    ids=["columns", "bars", "json", "record"],
)
def test_what_a_tool_printed_comes_with_the_header_or_the_key_that_it_stands_under_or_beside(
    tmp_path, printed, question, shown, hidden
):
    steps = [*STEPS, ("user", "", "look around"), ("call", "Bash", "show"), ("tool", "Bash", printed)]
    with Archive(tmp_path / "a.db", synchronous="normal") as archive:
        write(archive, of(steps))
        restorer = Restorer(archive, Config(embed=LEXICAL), None)
        restored = restorer.for_question(ask(question, present="Nothing."))
        restorer.close()
    text = restored.text if restored else ""
    assert [each for each in shown if each not in text] == []
    assert hidden not in text


PLAN = """You can reach A2 by August. Let's make a plan that leaves room for the nights that you work:

Week 1:
- greetings, numbers and the alphabet, every morning
- the names of the colours

Week 2:
- at the Nordland hospital, with nurse Solveig
- the pharmacy

Each week has five lessons, and then we look at what was hard."""


@pytest.mark.parametrize("question", ["What is planned for week 2?", "What about the Nordland hospital in my plan?"])
def test_a_head_comes_with_what_stands_below_it_and_the_reverse(restorer_of, question):
    restorer = restorer_of([*OTHERS[:14], ("Teach me Norwegian, please.", PLAN), *OTHERS[14:]])
    text = restorer.for_question(ask(question, present="Nothing.")).text
    assert "Week 2:\n- at the Nordland hospital" in text


def test_a_loss_block_has_no_head_without_what_stands_below_it(restorer_of):
    restorer = restorer_of([*OTHERS[:4], ("Teach me Norwegian, please.", PLAN), *OTHERS[4:8]])
    seen = 0
    for budget in range(300, 2_400, 100):
        block = loss_of(restorer, budget)
        lines = block.split("\n")
        seen += "Nordland" in block
        assert "Nordland" not in block or "Week 2:" in block
        assert not any(line.endswith("Week 2:") and "Nordland" not in next_ for line, next_ in pairwise(lines))
    assert seen


def test_heads_are_told_by_indents_marks_and_colons():
    for text, expected in (
        ("server:\n  host: a\n  tls:\n    cert: /x\ndb:\n  host: b", [-1, 0, 0, 2, -1, 4]),
        ("# Plan\n## Week\nHallo Welt.\nNext:\n- one\n- two\nThat is all.", [-1, 0, 1, 1, 3, 3, 1]),
        ("It costs 5: a bargain.\nYou pay later.", [-1, -1]),
        ("boats:\n  - name: Elk\n    crew: 4\n  - name: Owl\n    crew: 2\nend: 1", [-1, 0, 1, 0, 3, -1]),
        ("- Ada\n  - tent 3\n- Bo. He is late.\n  - tent 4", [-1, 0, -1, -1, 2]),
        ("- tent 3\n- tent 4\nThat is all.", [-1, -1, -1]),
        ("boats:\n  -\n    name: Elk\n    crew: 4\n  -\n    name: Owl\n    crew: 2", [-1, 0, 1, 2, 0, 4, 5]),
        ("[[boat]]\nname = 'Elk'\ncrew = 4\n\n[[boat]]\nname = 'Owl'\ncrew = 2", [-1, 0, 1, -1, 3, 4]),
        ('[\n  {\n    "id": 7,\n    "crew": 4\n  },\n  {\n    "id": 8\n  }\n]', [-1, 0, 1, 2, 0, 0, 5, 0, -1]),
        ('{\n  "crew": 4,\n  "mast": {\n    "height": 9\n  }\n}', [-1, 0, 0, 2, 0, -1]),
    ):
        passage = Passage(id=1, session="", message="", position=0, part=0, turn=0, speaker="tool", text=text)
        assert headings(passage, lines(passage)) == expected


PASTED = """Ana: I can bring the salad and the bread. I need to leave at nine.
Ben: I will bring chairs from the club. There are 14 of them in the shed.
Cleo: The door code of the hall is 4471. Please do not give it to anyone outside.
Ana: Who drives? My car is at the garage until the 12th.
Ben: I can drive. My van takes 8 people. We should meet at 17:15 at the depot."""


@pytest.mark.parametrize(
    ("before", "names"),
    [
        ("", ("Ana", "Ben", "Cleo")),
        ("This is what our group wrote:\n\n", ("Ana", "Ben", "Cleo")),
        ("Our talk:\n", ("[09:02] Ana Sol", "\u00d6zlem", "9:05 Cleo van Dam")),
        ("Our talk:\n", ("Ana Sol", "[9:03] \u00d6zlem", "Cleo Dam")),
    ],
)
def test_of_a_transcript_in_a_message_each_sentence_stands_behind_the_name_of_who_said_it(restorer_of, before, names):
    ana, ben, cleo = names
    pasted = PASTED.replace("Ana:", f"{ana}:").replace("Ben:", f"{ben}:").replace("Cleo:", f"{cleo}:")
    restorer = restorer_of([*OTHERS[:4], (before + pasted, "Noted."), *OTHERS[4:8]])
    who = {"nine": ana, "14 of": ben, "anyone outside": cleo, "My car": ana, "My van": ben, "17:15": ben}
    named = re.compile(f"({'|'.join(map(re.escape, names))}):")
    seen, cut = set(), 0
    for budget in range(300, 900, 20):
        asked = ask(
            "At what time do we meet, and how many people does the van take?", present="Nothing.", budget=budget
        )
        for restored in (restorer.at_compaction(asked), restorer.for_question(asked)):
            text = restored.text if restored else ""
            for told, name in who.items():
                before_it, there, _ = text.partition(told)
                assert not there or named.findall(before_it)[-1:] == [name], text
                seen.add(told if there else "")
            cut += "17:15" in text and "I can drive" not in text
    assert {"My car", "My van", "17:15"} <= seen
    assert cut


@pytest.mark.parametrize("budget", [320, 400, 600])
def test_who_speaks_stays_in_front_of_the_labels_in_their_message(restorer_of, budget):
    talk = [(f"{'Mirko' if n % 2 else 'Jorunn'}: We read page {n + 30} today.", f"Page {n + 30}.") for n in range(14)]
    told = (
        "Jorunn: Here is what you asked for\nIBAN: DE12 3456 7890\nBIC: GENODEF1\nPlease send the 85 euros by Friday."
    )
    restorer = restorer_of([*talk[:6], (told, "Noted."), *talk[6:]])
    asked = ask("Which IBAN was it for the 85 euros?", present="Nothing.", budget=budget)
    for restored in (restorer.at_compaction(asked), restorer.for_question(asked)):
        if "DE12" in restored.text:
            assert re.search(r"user #7\] Jorunn: [^\[]*DE12", restored.text)
    assert "DE12" in restored.text


def test_a_heading_within_a_message_is_no_name_of_the_lines_below_it(restorer_of):
    told = "The plan for the fair is here.\nNote: bring the cash box.\nWe leave from gate 12 at 6:40, all of us."
    restorer = restorer_of([*OTHERS[:4], (told, "Noted."), *OTHERS[4:8]])
    texts = [
        restored.text
        for budget in range(250, 500, 10)
        if (restored := restorer.for_question(ask("At which gate do we leave?", present="Nothing.", budget=budget)))
    ]
    assert any("gate 12" in text and "cash box" not in text for text in texts)
    assert not any("Note: \u2026" in text for text in texts)


BOATS = {"Elk": 411, "Owl": 523, "Fox": 634, "Ibis": 745, "Wren": 856, "Lynx": 967, "Hare": 178, "Moth": 289}


@pytest.mark.parametrize(
    ("before", "record"),
    [
        ("boats:", "  - name: {}\n    harbour: Nyborg, at the old crane\n    sail: {}"),
        ("", "[[boat]]\nname = '{}'\nharbour = 'Nyborg, at the old crane'\nsail = {}\n"),
        ("The boats of the club:", "- {}\n  - lies in Nyborg, at the old crane\n  - has the sail number {}"),
        (
            "# Boats of the club",
            "## {}\nLies in Nyborg, at the old crane. It is as good as new. Its sail number is {}.",
        ),
    ],
    ids=["yaml", "toml", "list", "headings"],
)
def test_of_records_a_block_shows_no_value_without_what_names_its_record(restorer_of, before, record):
    told = "\n".join([before, *(record.format(name, number) for name, number in BOATS.items())])
    restorer = restorer_of(
        [*OTHERS[:4], ("Keep this, please.", told), (told.replace("boat", "ship"), "Kept."), *OTHERS[4:8]]
    )
    seen = 0
    for budget in range(300, 1_500, 60):
        asked = ask("Which sail number does the Ibis have?", present="Nothing.", budget=budget)
        for restored in (restorer.at_compaction(asked), restorer.for_question(asked)):
            text, name = restored.text if restored else "", ""
            for word in re.findall(r"\w+", text):
                name = word if word in BOATS else name
                assert not word.isdigit() or int(word) not in BOATS.values() or BOATS.get(name) == int(word), text
                seen += word == "745"
    assert seen


def test_where_room_is_left_a_number_that_stands_nowhere_else_is_there_though_the_rest_was_said_before(restorer_of):
    turns = [
        ("Can we do Friday instead?", "Friday 5 December, 13-15 is free. Shall I take it?"),
        ("take it", "Done: Friday 5 December, 13-15. Your case number is CS-55192."),
        ("And is it sure?", "Yes, it is Friday 5 December, 13-15."),
    ]
    block = loss_of(restorer_of(turns))
    assert "Your case number is CS-55192." in block
    assert "Yes, it is Friday" not in block


def test_a_decision_that_opens_with_ok_comes_back_and_an_ok_alone_does_not(restorer_of):
    turns = [
        ("The gasket is torn.", "A courier can come on Monday the 13th or on Tuesday the 14th."),
        ("ok take the 14th", "Done!"),
        ("sure, Camp Beringia then", "Good choice."),
        ("ok great", "Anything else?"),
        ("thanks a lot", "You're welcome!"),
    ]
    block = loss_of(restorer_of(turns))
    for said, is_there in (
        ("ok take the 14th", True), ("sure, Camp Beringia then", True), ("ok great", False), ("thanks a lot", False),
    ):  # fmt: skip
        assert (said in block) == is_there


def test_where_room_is_left_short_answers_are_there_whole_but_for_what_one_message_said(restorer_of):
    turns = [
        ("do I have to pack the old kettle?", "No, you don't. The courier brings a box. Only empty it."),
        ("I ask the abbot who wrote the letter", 'He whispers: "Isolde. Not his sister. Careful."'),
        ("the key is under the blue pot", "Understood, the key is under the blue pot."),
    ]
    block = loss_of(restorer_of(turns))
    assert "No, you don't. The courier brings a box. Only empty it." in block
    assert 'He whispers: "Isolde. Not his sister. Careful."' in block
    assert "Understood" not in block


def test_a_plan_that_says_the_same_words_in_another_order_is_no_repeat(restorer_of):
    turns = [
        ("When do we salt and braise the meat?", "On Friday: salt it in the morning, braise it in the evening."),
        ("I have choir on Friday evening", "Then salt it on Thursday evening and braise it on Friday morning."),
        ("Thursday is fine with the butcher", "Good."),
    ]
    assert "Then salt it on Thursday evening and braise it on Friday morning." in loss_of(restorer_of(turns))


def test_where_room_is_left_people_are_heard_to_the_end(restorer_of):
    said = [
        "Ana: I do Saturday dinner, my chili", "Ben: Sunday: noodles, with the mushrooms that I bring",
        "Ana: I arrive late because of a race, can someone swap?", "Ben: I can do saturday, then you do sunday",
        "Ana: great, chili on sunday", "Cleo: what time do we have to be out?", "Ben: 10:30", "Ana: haha",
    ]  # fmt: skip
    block = loss_of(restorer_of([(each, "") for each in said]))
    for each in said[:7]:
        assert each in block
    assert "haha" not in block


@pytest.mark.parametrize(
    ("said", "reply", "question"),
    [
        ("For the rollback criterion .5 is too strict, says Raj. 0.8%", "Noted.", "What is the rollback criterion?"),
        ("I look up.", "The twins are Ilse and Ileana, heirs of the Doge. Not dead.", "Who are the twins of the Doge?"),
    ],
)
def test_a_question_block_does_not_cut_the_few_words_behind_a_sentence(restorer_of, said, reply, question):
    restorer = restorer_of([*OTHERS[:8], (said, reply), *OTHERS[8:16]])
    text = restorer.for_question(ask(question, present="Nothing.")).text
    assert (said if len(reply) < 10 else reply) in text


def test_a_question_block_does_not_ask_of_other_things_behind_what_the_loss_block_shows(restorer_of):
    turns = [
        ("She found a crack in the sump seal.", "The sump seal is part 88-2013, and covered. Which day suits you?"),
        ("Any day but Sunday is fine with us.", "I will send somebody."),
        *OTHERS,
    ]
    restorer = restorer_of(turns)
    shown = "She found a crack in the sump seal. The sump seal is part 88-2013, and covered."
    restored = restorer.for_question(ask("Which part is the sump seal?", present=shown))
    assert "Which day suits you?" not in (restored.text if restored else "")
    restored = restorer.for_question(ask("Which day suits us?", present=shown))
    assert "Which day suits you?" in restored.text


def test_what_says_nothing_beside_a_sentence_that_the_request_holds_is_no_block(restorer_of):
    told = "I refund 14.90 euros for the descaler."
    turns = [("I paid twice for the descaler.", f"I'm truly sorry about that. {told}"), *OTHERS]
    question, shown = "Where does my refund for the descaler go?", "I paid twice for the descaler."
    restorer = restorer_of(turns)
    assert told in restorer.for_question(ask(question, present=shown)).text
    restored = restorer.for_question(ask(question, present=f"{shown} {told}"))
    assert "sorry" not in (restored.text if restored else "")


def test_what_only_says_again_what_the_loss_block_shows_is_not_said_twice(restorer_of):
    turns = [
        ("Emergency contact is my daughter Signe Olufsen, 073-902 11 56.", "Noted: Signe Olufsen, 073-902 11 56."),
        ("My insurance is Alka, policy AK-90-22318.", "Alka, policy AK-90-22318. They need form 77-B by Friday."),
    ]
    restorer = restorer_of([*OTHERS[:3], *turns, *OTHERS[3:6]])
    at_once = ask(present="Nothing.")
    loss = restorer.at_compaction(at_once)
    for question, again, new in (
        ("What is the number of my emergency contact Signe?", "073-902 11 56", ""),
        ("What is my insurance policy at Alka?", "policy AK-90-22318.", "form 77-B"),
    ):
        beside = restorer.for_question(ask(question, present="Nothing.").with_blocks([loss]))
        both = loss.text + (beside.text if beside else "")
        assert new in both
        assert not beside or again not in beside.text
