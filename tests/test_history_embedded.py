"""A history that its client writes into its system prompt, with what its user says last as the only message."""

import json
from collections.abc import Callable

import pytest
from chats import SYSTEM, Chat, Lab, Wire, assistant, turns, user

SPEAK = {"user": "User", "assistant": "Bot"}


def told_by_system(history: list[Wire], behind: str = "") -> str:
    said = "\n".join(f"{SPEAK[m['role']]}: {m['content']}" for m in history)
    return f"You are the bot of a nursery in Graz.\n\nConversation history:\n{said or 'None'}{behind}"


@pytest.mark.parametrize("behind", ["", "\n\nAnswer in one sentence."])
@pytest.mark.parametrize("window", [0, 6])
@pytest.mark.parametrize("others", [0, 2])
def test_a_history_that_stands_in_the_system_prompt_is_followed(behind, window, others):
    lab = Lab()
    chats = [Chat(lab) for _ in range(1 + others)]
    for n in range(6):
        for chat, project in zip(chats, ("zephyr", "amber", "birch"), strict=False):
            said, answer = turns(project, 1, start=n)[0]
            chat.system = told_by_system(chat.history[-window:] if window else chat.history, behind)
            step = chat.send([user(said)])
            lab.answer(step, assistant(answer))
            chat.history += [user(said), assistant(answer)]
            chat.session = chat.session or step.session.id
            expected = "new" if n == 0 else "window" if window and 2 * n > window else "turn"
            assert (step.event, step.session.id) == (expected, chat.session), (n, step.link.why)
    assert len({chat.session for chat in chats}) == len(chats)
    assert lab.texts(chats[0].session).count(turns("zephyr", 1)[0][0]) == 1


def test_another_prompt_with_the_history_in_it_is_another_use_of_it():
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    said = "\n".join(f"{SPEAK[m['role']]}: {m['content']}" for m in chat.history)
    judge = [{"role": "system", "content": f"Sort the last message into one of note, wish, question.\n{said}"}]
    assert chat.lab.ask([*judge, user("And what comes next?")]).event == "side"
    assert chat.turn("And what comes next?", "The review does.").event == "turn"


# --- all in one text -----------------------------------------------------------------------------------------------

PROMPTS = {
    "documents in front": (
        "Answer from the context and the history.\n\nContext:\n{documents}\n\nHistory:\n{history}\n\nQuestion: {said}\n"
        "Helpful answer:",
        "User: {}\nBot: {}",
    ),
    "documents behind": (
        "History:\n{history}\n\nContext:\n{documents}\n\nQuestion: {said}\nAnswer:", "Human: {}\nAI: {}",
    ),
    "orders and documents behind": (
        "History:\n{history}\n\nUse the pieces of context below to answer.\n\n{documents}\n\nQuestion: {said}\nAnswer:",
        "Human: {}\nAI: {}",
    ),
    "tags": (
        "<history>\n{history}\n</history>\n<documents>{documents}</documents>\n<question>{said}</question>",
        "<user>{}</user>\n<assistant>{}</assistant>",
    ),
    "another name": ("Be kind to all.\n\nHistory:\n{history}\n\nCurrent question: {said}", "User: {}\nBot: {}"),
    "headings alone": ("{history}\n\n### User\n{said}", "### User\n{}\n\n### Assistant\n{}"),
    "headings": ("{history}\n\n### User\n{said}\n\n### Assistant\n", "### User\n{}\n\n### Assistant\n{}"),
}  # fmt: skip


def prompt(name: str, pairs: list[tuple[str, str]], said: str, n: int) -> str:
    """What a program makes of what was said and of the documents that it found for the nth question."""
    whole, pair = PROMPTS[name]
    documents = " ".join(f"doc{n}word{k}" for k in range(40))
    return whole.format(documents=documents, history="\n".join(pair.format(*each) for each in pairs), said=said)


LISTED: dict[str, Callable[[list[Wire]], object]] = {
    "json": json.dumps,
    "json, indented": lambda said: json.dumps(said, indent=2),
    "fields": lambda said: json.dumps({"history": said[:-1], "message": said[-1]["content"], "turn": len(said)}),
    "python": lambda said: f"You are given the chat so far: {said[:-1]}. Now answer this: {said[-1]['content']}",
    "numbered": lambda said: "\n".join(f"{n}. {m['role']}: {m['content']}" for n, m in enumerate(said, start=1)),
    "parts": lambda said: [{"type": "text", "text": f"<{m['role']}>{m['content']}</{m['role']}>"} for m in said],
}


@pytest.mark.parametrize("name", LISTED)
@pytest.mark.parametrize("window", [0, 6])
def test_a_history_that_is_listed_in_one_message_is_followed(name, window):
    lab = Lab()
    chats = [Chat(lab) for _ in range(3)]
    for n in range(7):
        for chat, project in zip(chats, ("zephyr", "amber", "birch"), strict=True):
            said, answer = turns(project, 1, start=n)[0]
            shown = [*chat.history[-window:], user(said)]
            step = chat.send([user(LISTED[name](shown))])
            lab.answer(step, assistant(f'{answer}\n\n- "Übrigens": {project}, {n}'))
            chat.history += [user(said), assistant(f'{answer}\n\n- "Übrigens": {project}, {n}')]
            chat.session = chat.session or step.session.id
            expected = "new" if n == 0 else "window" if window and 2 * n > window else "turn"
            assert (step.event, step.session.id) == (expected, chat.session), (n, step.link.why)
    assert len({chat.session for chat in chats}) == len(chats)


@pytest.mark.parametrize("name", PROMPTS)
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("others", [0, 2])
def test_a_history_among_documents_in_one_text_is_followed(name, window, others):
    lab = Lab()
    chats = [Chat(lab) for _ in range(1 + others)]
    pairs: list[list[tuple[str, str]]] = [[] for _ in chats]
    for n in range(7):
        for at, (chat, project) in enumerate(zip(chats, ("zephyr", "amber", "birch"), strict=False)):
            said, answer = turns(project, 1, start=n)[0]
            step = chat.send([user(prompt(name, pairs[at][-window:] if window else pairs[at], said, n))])
            lab.answer(step, assistant(answer))
            pairs[at].append((said, answer))
            chat.session = chat.session or step.session.id
            expected = "new" if n == 0 else "window" if window and n > window else "turn"
            assert (step.event, step.session.id) == (expected, chat.session), (n, step.link.why)
    assert len({chat.session for chat in chats}) == len(chats)


@pytest.mark.parametrize("name", PROMPTS)
def test_the_same_documents_and_another_question_are_another_conversation(name):
    lab = Lab()
    chats = [Chat(lab), Chat(lab)]
    for chat, project in zip(chats, ("zephyr", "amber"), strict=True):
        step = chat.send([user(prompt(name, [], turns(project, 1)[0][0], 0))])
        lab.answer(step, assistant(turns(project, 1)[0][1]))
        assert step.event == "new"


@pytest.mark.parametrize("name", PROMPTS)
def test_a_task_about_such_a_history_is_no_turn_of_it(name):
    lab, pairs = Lab(), turns("zephyr", 3)
    chat = Chat(lab)
    for n, (said, answer) in enumerate(pairs):
        step = chat.send([user(prompt(name, pairs[:n], said, n))])
        lab.answer(step, assistant(answer))
    told = "\n".join(f"User: {said}\nBot: {answer}" for said, answer in pairs)
    title = lab.ask([{"role": "system", "content": "You write titles."}, user(f"A title for this:\n{told}\nTitle:")])
    assert title.session.id != step.session.id, title.link.why
    assert chat.send([user(prompt(name, pairs, "And what comes next?", 3))]).session.id == step.session.id


@pytest.mark.parametrize("by_system", [False, True])
def test_a_history_behind_a_summary_under_other_names_with_times_is_followed(by_system):
    lab = Lab()
    chats = [Chat(lab) for _ in range(3)]
    for n in range(6):
        for chat, project in zip(chats, ("zephyr", "amber", "birch"), strict=True):
            said, answer = turns(project, 1, start=n)[0]
            recent = list(enumerate(chat.history))[-4:]
            rows = "\n".join(f"[2026-03-01T10:{at:02d}:07.113] {SPEAK[m['role']]}: {m['content']}" for at, m in recent)
            summed = f"--- Summary ---\nSo far {project} was spoken of {n} times.\n{'-' * 15}\n\n" if n > 2 else ""
            told = f"{summed}--- Recent ---\n{rows}\n{'-' * 14}" if rows else ""
            chat.system = f"{SYSTEM}\n\n{told}".strip() if by_system else SYSTEM
            step = chat.send([user(said if by_system else f"{told}\n\nuser: {said}".strip())])
            lab.answer(step, assistant(answer))
            chat.history += [user(said), assistant(answer)]
            chat.session = chat.session or step.session.id
            expected = {"new"} if n == 0 else {"turn"} if n < 3 else {"window", "compacted"}
            assert step.event in expected, (n, step.event)
            assert step.session.id == chat.session, (n, step.link.why)


# --- the rest of a conversation, in one text -----------------------------------------------------------------------


@pytest.mark.parametrize("frame", ["<conversation_history>\n{}\n</conversation_history>", "{}", "Before this:\n{}"])
@pytest.mark.parametrize("acknowledged", [False, True])
def test_what_is_left_of_a_history_in_one_text_goes_on_with_it_also_where_others_are_written_so(frame, acknowledged):
    lab = Lab()
    for project in ("zephyr", "amber", "birch"):
        chat = Chat(lab)
        for said, answer in turns(project, 6):
            chat.turn(said, answer)
        left = "\n".join(f"<{m['role']}>{m['content']}</{m['role']}>" for m in chat.history[-4:])
        front = [user(frame.format(left)), *([assistant("I go on from there.")] if acknowledged else [])]
        step = chat.send([*front, user("What were the columns of the first one again?")])
        assert (step.event, step.session.id) == ("compacted", chat.session), (project, step.link.why)


@pytest.mark.parametrize(
    "task", ["Summarize this conversation in a few words.", "A short title for this chat, please."]
)
def test_a_task_behind_a_history_in_one_text_is_not_what_its_user_says_next(task):
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 6):
        chat.turn(said, answer)
    left = "\n".join(f"<{m['role']}>{m['content']}</{m['role']}>" for m in chat.history[-4:])
    step = chat.send([user(f"<log>\n{left}\n</log>"), user(task)])
    assert step.link.why != "the end of its history in one text"
