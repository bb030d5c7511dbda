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
