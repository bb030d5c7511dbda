"""A history that its client writes into its system prompt, with what its user says last as the only message."""

import pytest
from chats import Chat, Lab, Wire, assistant, turns, user

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
    "headings": ("{history}\n\n### User\n{said}\n\n### Assistant\n", "### User\n{}\n\n### Assistant\n{}"),
}  # fmt: skip


def prompt(name: str, pairs: list[tuple[str, str]], said: str, n: int) -> str:
    """What a program makes of what was said and of the documents that it found for the nth question."""
    whole, pair = PROMPTS[name]
    documents = " ".join(f"doc{n}word{k}" for k in range(40))
    return whole.format(documents=documents, history="\n".join(pair.format(*each) for each in pairs), said=said)


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
