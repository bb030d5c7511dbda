"""What links by words and by texts in texts rests on: each condition alone, where nothing else decides."""

import json

import msgspec
import pytest
from chats import SYSTEM, Chat, Lab, Wire, assistant, called, parts, result, summary_of, turns, user
from msgspec import structs

from lantern_proxy.history import begin
from lantern_proxy.history.branches import is_on_dropped_branch, starts_after
from lantern_proxy.history.forms import form_among, in_form, is_other_person
from lantern_proxy.history.record import Entry, Form, Session
from lantern_proxy.history.transcript import (
    last_line_of,
    transcript_text,
    with_last_line_apart,
    with_transcript_as_user_text,
)
from lantern_proxy.session import forget, link, remember
from lantern_proxy.session.index import SessionIndex
from lantern_proxy.session.instructions import is_result_to_shorten, is_summary_call, is_task_about
from lantern_proxy.session.pasted import quotes_exchange
from lantern_proxy.session.transcript_use import is_own
from lantern_proxy.turn import Identity, Request
from lantern_proxy.wire import chat

ORDERS: Wire = {"role": "system", "content": SYSTEM}
OTHER = "You are Ada, who knows her way about in houses, and you answer in one sentence, however long the question is."
IMAGE: Wire = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0"}}],
}
NEXT = user("And which of them is restarted first?")


def request(*said: Wire, tools: tuple[str, ...] = ()) -> Request:
    offered = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in tools]
    return chat.read(json.dumps({"model": "m", "messages": said, **({"tools": offered} if tools else {})}).encode())


# --- a summary that only claims to be one -----------------------------------------------------------------------------

CLAIMED = user("Summary of the conversation so far: " + summary_of("zephyr", 4))


@pytest.mark.parametrize("orders", [SYSTEM, OTHER])
def test_a_claimed_summary_is_of_a_conversation_under_its_system_prompt(orders: str) -> None:
    talk = Chat(Lab())
    for said, answer in turns("zephyr", 4):
        talk.turn(said, answer)
    step = talk.lab.ask([{"role": "system", "content": orders}, CLAIMED, NEXT])
    assert (step.session.id == talk.session) is (orders == SYSTEM), step.link.why


@pytest.mark.parametrize("which", [0, 1])
def test_of_two_who_said_the_same_a_claimed_summary_is_that_of_whose_key_of_the_cache_it_has(which: int) -> None:
    lab, sessions = Lab(), []
    for key in ("rosa", "emil"):
        history: list[Wire] = []
        for said, answer in turns("zephyr", 4):
            history.append(user(said))
            step = lab.ask([ORDERS, *history], prompt_cache_key=key)
            lab.answer(step, assistant(answer))
            history.append(assistant(answer))
        sessions.append(step.session.id)
    step = lab.ask([ORDERS, CLAIMED, NEXT], prompt_cache_key=("rosa", "emil")[which])
    assert step.session.id == sessions[which], step.link.why


@pytest.mark.parametrize("of", ["its own", "the other", "two of both"])
@pytest.mark.parametrize("key", ["its own", "that of both"])
def test_a_claimed_summary_in_another_language_is_of_the_only_conversation_that_has_its_key(of: str, key: str) -> None:
    lab, sessions = Lab(), []
    names = {
        "its own": "Borgazo Kulinzo Tifedo Pasdopas Zonorzo Gazopas Lindoran Selranmel",
        "the other": "Norgapas Linkudo Wenmelsel Tarvikmel Fezosel Kuranmel Dogalin Zotinor",
    }
    named = {whose: each.split() for whose, each in names.items()}
    for whose, called_so in named.items():
        history: list[Wire] = []
        for name in called_so:
            history.append(user(f"For {name}, the opening hour in the book is wrong, please look at it once more."))
            step = lab.ask([ORDERS, *history], prompt_cache_key="rosa" if key == "that of both" else whose)
            lab.answer(step, assistant(f"I have put the hour of {name} right, and told whoever keeps the book."))
            history.append(assistant(f"I have put the hour of {name} right, and told whoever keeps the book."))
        sessions.append(step.session.id)
    told_of = {**named, "two of both": (*named["its own"][:2], *named["the other"][:2])}[of]
    told = f"これまでに{'、'.join(told_of)}について話し合い、営業時間を直しました。次は残りの項目を順番に進めます。"
    orders = {"role": "system", "content": f"{SYSTEM}\n\nFrom a previous conversation:\n{told}"}
    step = lab.ask([orders, NEXT], prompt_cache_key="rosa" if key == "that of both" else "its own")
    assert (step.session.id == sessions[0]) is (of == key == "its own"), step.link.why


@pytest.mark.parametrize(("told", "words", "is_its"), [
    (summary_of("zephyr", range(1, 6)), "This session is being continued from a previous conversation.", True),
    ("In project omega the worker of hall/lamp.py got watts 7713 and that of hall/door.py width 412, then it was "
     "restarted.", "This session is being continued from a previous conversation.", False),
    (summary_of("zephyr", range(1, 6)), "These are the tickets of the week.", False),
])  # fmt: skip
def test_a_claimed_summary_may_stand_behind_orders_that_stood_in_front_of_the_first_text(
    told: str, words: str, is_its: bool
) -> None:
    orders = f"{SYSTEM} The conversation so far may hold mistakes; say so."
    talk = Chat(Lab(), system="")
    for said, answer in turns("zephyr", 6):
        talk.turn(said if talk.history else f"{orders}\n\n{said}", answer)
    step = talk.lab.ask([parts(f"{orders}\n\n{words}\n{told}", "And which of them is restarted first?")])
    assert (step.session.id == talk.session) is is_its, step.link.why


def test_a_claimed_summary_counts_where_conversations_open_with_two_texts() -> None:
    lab, history = Lab(), [user("Documents of the project are below."), user("Answer from them alone, please.")]
    for said, answer in turns("zephyr", 4):
        history.append(user(said))
        step = lab.ask([ORDERS, *history])
        lab.answer(step, assistant(answer))
        history.append(assistant(answer))
    found = lab.ask([ORDERS, CLAIMED, NEXT])
    assert found.session.id == step.session.id, found.link.why


NAMES = ("Arlund", "Bexhill", "Corvane", "Dunmoor", "Estrava", "Fenwick", "Galtham", "Hollin", "Iverna", "Jarrow")
OTHERS = tuple(name[::-1].title() for name in NAMES)
SAILS = ("anchor", "rudder", "harbour", "compass", "current", "sails", "mast", "keel", "buoy", "reef")
FARMS = ("barley", "harrow", "meadow", "orchard", "pasture", "plough", "stable", "thresher", "wagon", "acre")


@pytest.mark.parametrize(
    ("named", "found"),
    [
        (NAMES, True),
        (NAMES[:6], False),
        ([*NAMES[:7], "Morwen", "Nethers", "Osgood"], False),
        ([*NAMES[:2], *OTHERS[2:]], False),
    ],
    ids=["all of the one", "few", "not all", "most of the other"],
)
def test_of_two_who_speak_of_both_a_claimed_summary_is_that_of_who_named_all_in_it(
    named: list[str], found: bool
) -> None:
    lab, chats = Lab(), []
    for names, words in ((NAMES, SAILS), (OTHERS, FARMS)):
        chats.append(Chat(lab))
        for name, word in zip(names, words, strict=True):
            chats[-1].turn(f"note {word} under {name}.", f"noted under {name}: {word}.")
    told = f"summary of the conversation so far: {' '.join((*SAILS, *FARMS))} noted under {', '.join(named)}."
    step = lab.ask([ORDERS, user(told), NEXT])
    assert (step.event, step.session.id == chats[0].session) == (("compacted", True) if found else ("new", False))


# --- texts in a text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "answer", "text", "told"),
    [
        ("Is it?", "It is.", "User: Is it? Bot: It is.", True),
        ("Is it?", "It is.", "So I said to him: well, is this so? Is it? Bot: It is.", False),
        ("ok", "It is.", "User: a book Bot: It is.", False),
        ("", "It is.", "User: Bot: It is.", False),
    ],
)
def test_an_exchange_is_told_where_both_stand_behind_their_names(
    asked: str, answer: str, text: str, told: bool
) -> None:
    assert quotes_exchange([(asked, answer)], [text]) is told


def test_a_line_that_another_session_has_is_no_sessions_own() -> None:
    lab = Lab()
    line = "Human: my customer number is 7731-R, as I said"
    for front in ("", "Earlier it was said that all is well.\n"):
        step = lab.ask([user(f"{front}{line}\nAI:")])
        lab.answer(step, assistant("Noted."))
    first, last = lab.index.sessions.values()
    assert not is_own(lab.index, first, line)
    forget(lab.index, last.id)
    assert is_own(lab.index, first, line)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ([user("Human: Hello\nAI:")], "Human: Hello\nAI:"),
        ([ORDERS, user("Human: Hello\nAI:")], "Human: Hello\nAI:"),
        ([user("Human: Hello\nAI:"), user("Human: Are you there?")], ""),
        ([assistant("Human: Hello\nAI:")], ""),
        ([IMAGE], ""),
        ([parts("Human: Hello", "AI:")], "Human: Hello\nAI:"),
    ],
)
def test_a_script_is_the_only_text_of_its_user(said: list[Wire], text: str) -> None:
    assert transcript_text(request(*said)) == text


def test_a_text_that_waits_for_a_name_but_gives_none_has_no_line() -> None:
    assert last_line_of("Human: Hello\nAI:") == "Human: Hello"
    assert last_line_of("please go on with it AI:") == ""
    for bare in ("please go on with it", "Human: Hello\nAI:"):
        assert with_last_line_apart(request(user(bare))) == request(user(bare))


def test_only_a_request_that_shows_all_is_told_by_a_system_prompt() -> None:
    told = request({"role": "system", "content": "AI: Good day.\nHuman: Hello\nAI:"})
    assert with_transcript_as_user_text(told).messages[-1].role == "user"
    added = structs.replace(told, delta=True)
    assert with_transcript_as_user_text(added) is added
    empty = structs.replace(told, messages=())
    assert with_transcript_as_user_text(empty) is empty


# --- what is wished for -----------------------------------------------------------------------------------------------

LONG = "The burst of the rate limiter is forty, the retry policy waits two seconds, and the backup is kept for a month."
SUMMARISE = "Summarize the conversation for a colleague: "


@pytest.mark.parametrize("about", [LONG, "The weather is fine."])
def test_a_summary_of_an_only_turn_is_wished_with_what_was_said_in_it(about: str) -> None:
    session = Session(id="ses_1", api="chat", tools=frozenset({"run"}), turn=1)
    assert is_task_about({LONG: "user"}, session, request(user(SUMMARISE + about))) is (about == LONG)


@pytest.mark.parametrize("who", ["tool", "user"])
def test_a_result_is_to_be_shortened_and_nothing_else(who: str) -> None:
    session = Session(id="ses_1", api="chat", tools=frozenset({"run"}))
    orders = {"role": "system", "content": "You summarize the output of tools."}
    assert is_result_to_shorten({LONG: who}, session, request(orders, user(LONG))) is (who == "tool")


@pytest.mark.parametrize("shown", [[ORDERS], []])
def test_who_says_nothing_wishes_for_no_summary(shown: list[Wire]) -> None:
    assert not is_summary_call(request(*shown), Session(id="ses_1", api="chat"), {})


# --- forms and former states ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "now", "others"), [("a", "b", True), ("a", "a", False), ("a", "", False), ("", "b", False)]
)
def test_a_session_is_anothers_where_both_are_named(of: str, now: str, others: bool) -> None:
    asked = structs.replace(request(NEXT), person=now)
    assert is_other_person(Session(id="ses_1", api="chat", person=of), asked) is others


def test_a_form_without_a_system_prompt_is_that_of_a_request_without_one() -> None:
    bare = Form("", frozenset())
    assert form_among([bare], request(NEXT)) is bare
    assert form_among([bare], request(ORDERS, NEXT)) is None


@pytest.mark.parametrize(("used", "offered"), [((), ()), ((), ("run",)), (("run",), ("run",)), (("run",), ())])
def test_an_imported_session_with_calls_is_not_in_the_form_of_a_request_without_tools(
    used: tuple[str, ...], offered: tuple[str, ...]
) -> None:
    session = Session(id="ses_1", api="chat", tools=frozenset(used), imported=True)
    asked = request({"role": "system", "content": OTHER}, NEXT, tools=offered)
    assert (in_form(session, asked).system == OTHER) is bool(offered or not used)


def stored(*said: tuple[Wire, str]) -> Session:
    """A session whose upstream stored its answers: its messages, and what each answer was called."""
    made = [(request(m).messages[0], name) for m, name in said]
    head = [Entry(str(n), m, m.role == "assistant", names=(name,) if name else ()) for n, (m, name) in enumerate(made)]
    return Session(id="ses_1", api="responses", head=tuple(head), answered=True)


def test_others_begin_behind_a_first_answer_and_not_behind_a_call() -> None:
    then = ((NEXT, ""), (assistant("The first."), "resp_2"))
    assert starts_after(stored((user("Read this."), ""), (assistant("I did."), "resp_1"), *then), "resp_1")
    call, found = called("call_1", "read", path="a"), result("call_1", "It is empty.")
    assert not starts_after(stored((user("Read."), ""), (call, "resp_1"), (found, ""), *then[1:]), "resp_1")


@pytest.mark.parametrize("named", ["resp_1", ""])
def test_an_answer_is_let_go_where_another_one_has_its_name_still(named: str) -> None:
    asked = (user("Read this."), ""), (assistant("I did."), named), (NEXT, "")
    session = stored(*asked, (assistant("The first."), "resp_3"))
    assert is_on_dropped_branch(session, "resp_2")
    assert not is_on_dropped_branch(session, "resp_3")
    from_archive = stored(*asked[:1], (assistant("I did."), ""), *asked[2:], (assistant("The first."), ""))
    assert not is_on_dropped_branch(from_archive, "resp_2")


# --- calls ------------------------------------------------------------------------------------------------------------

CRANES, QUAYS, ROADS = [
    (f"{what}.txt", "\n".join(f"{what} {n} is closed from {n + at} o'clock." for n in range(9)))
    for at, what in enumerate(("crane", "quay", "road"))
]


def read_again(lab: Lab, *files: tuple[str, str]) -> list[Wire]:
    """Calls and their results, under ids that are new with each request."""
    ids = [lab.call_id() for _ in files]
    pairs = zip(ids, files, strict=True)
    return [m for id, (path, text) in pairs for m in (called(id, "read_file", path=path), result(id, text))]


def working(lab: Lab, said: str, *files: tuple[str, str]) -> str:
    """The session of a client whose model reads files, and waits for the last one."""
    step = None
    for n, (path, _) in enumerate(files):
        step = lab.ask([ORDERS, user(said), *read_again(lab, *files[:n])], tools=["read_file"])
        lab.answer(step, called(lab.call_id(), "read_file", path=path))
    assert step is not None
    return step.session.id


@pytest.mark.parametrize(("others", "event"), [([], "window"), ([ROADS, QUAYS], "new"), ([CRANES, ROADS], "new")])
def test_a_window_of_calls_under_new_ids_goes_on_where_the_last_one_waits_if_its_results_are_no_others(others, event):
    lab = Lab()
    session = working(lab, "Read what there is.", CRANES, QUAYS)
    if others:
        working(lab, "When is it closed?", *others)
    step = lab.ask([ORDERS, *read_again(lab, CRANES, QUAYS)], tools=["read_file"])
    assert (step.event, step.session.id == session) == (event, event == "window"), step.link.why


# --- memory -----------------------------------------------------------------------------------------------------------


def test_what_is_like_a_session_that_left_memory_is_linked_without_it() -> None:
    """Its side call is known still, and so is how its texts begin."""
    talk = Chat(Lab())
    for said, answer in turns("zephyr", 3):
        talk.turn(said, answer)
    talk.summarise("transcript under another system prompt", summary_of("zephyr", 3))
    forget(talk.lab.index, talk.session)
    for shown in (
        [*talk.history, NEXT],
        [talk.history[-1], NEXT],
        [talk.history[0], assistant("Well."), NEXT],
        [CLAIMED],
    ):
        found = link(talk.lab.index, request(ORDERS, *shown), Identity(), talk.lab.now)
        assert found.session is None or found.session.id != talk.session


@pytest.mark.parametrize(("chars", "count"), [(10, 530), (1_500_000, 17)])
def test_a_session_that_waits_for_its_answer_stays_in_memory(chars: int, count: int) -> None:
    index = SessionIndex()
    for n in range(count):
        asked = request(user(f"{n} " + "a" * chars))
        session = begin(asked, session_id=f"ses_{n}", now=float(n))
        entry = Entry(f"k{n}", asked.messages[0], False)
        remember(index, msgspec.structs.replace(session, head=(entry,)))
        index.in_flight["ses_0"] = 1
    assert {"ses_0", "ses_1", f"ses_{count - 1}"} & index.sessions.keys() == {"ses_0", f"ses_{count - 1}"}


def imported() -> Chat:
    """A conversation of which no request was seen, under the id that its client gives it."""
    chat = Chat(Lab(), system="", named="one")
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    kept = chat.lab.kept[chat.session]
    kept.filed, kept.names = [structs.replace(f, created_at=float(n)) for n, f in enumerate(kept.filed)], []
    chat.lab.restart()
    assert chat.lab.index.sessions[chat.session].imported
    return chat


@pytest.mark.parametrize(
    ("system", "behind", "event"),
    [
        (SYSTEM, [user("And which of them is restarted first?")], "turn"),
        ("Summarize the conversation for a colleague.", [], "side"),
        (SYSTEM, [user("Write a summary of this conversation so far, and keep all names in it. " * 8)], "side"),
        ("Rate the answers.", [], "side"),
    ],
)
def test_what_is_made_of_an_imported_conversation_is_no_turn_of_it(system: str, behind: list[Wire], event: str) -> None:
    chat = imported()
    chat.system = system
    assert chat.send([*chat.history, *behind]).event == event


def test_a_short_text_under_the_id_of_an_imported_conversation_is_no_turn_of_it_and_a_summary_is() -> None:
    for text, event in (("Name this chat, please.", "side"), (summary_of("zephyr", 3), "compacted")):
        chat = imported()
        chat.system = SYSTEM
        assert chat.send([user(text)]).event == event
