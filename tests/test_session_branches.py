"""Branches that are taken up in turn: a cloned chat, two versions of one question."""

import pytest
from chats import Chat, Lab, assistant, summary_of, turns, user


def cloned(rounds: int) -> tuple[Chat, Chat]:
    """Two chats with the same four turns, and turns of their own in turn."""
    a = Chat(Lab())
    for said, answer in turns("zephyr", 4):
        a.turn(said, answer)
    b = Chat(a.lab, history=[*a.history], session=a.session)
    for ours, theirs in zip(turns("amber", rounds), turns("birch", rounds), strict=True):
        assert a.turn(*ours).session.id == b.turn(*theirs).session.id == a.session
    return a, b


def left(chat: Chat, word: str) -> list[str]:
    """Texts with `word` that the session has from branches that were left."""
    session = chat.lab.known.sessions[chat.session]
    texts = {f.key: f.message.text for f in chat.lab.kept[chat.session].filed}
    return [texts[key] for key in session.abandoned if word in texts[key]]


@pytest.mark.parametrize("rounds", [1, 6])
@pytest.mark.parametrize("kept", [5, 100])
def test_what_was_said_on_one_branch_is_none_of_the_other_one_s(rounds, kept):
    a, b = cloned(rounds)
    for n in range(3):
        for chat, own, other in ((a, "amber", "birch"), (b, "birch", "amber")):
            chat.history.append(user(f"And what was number {n} about, {other[0]}?"))
            step = chat.send(chat.history[-kept:])
            assert step.event == ("window" if kept == 5 else "branch"), step.link.why
            assert (len(left(chat, other)), len(left(chat, own))) == (2 * rounds, 0)
            chat.lab.answer(step, assistant(f"It was {n}, and so on."))
            chat.history.append(assistant(f"It was {n}, and so on."))


def test_of_a_compaction_on_a_branch_that_was_left_its_own_messages_are_gone():
    a, _ = cloned(6)
    step = a.compact(
        lambda c, s, q: (c.system, [user(s), *c.history[-2:], user(q)]), summary_of("amber", 6), "Next?", "Yes."
    )
    gone = {f.key: f.message.text for f in a.lab.kept[a.session].filed if f.key in step.verdict.gone}
    assert step.event == "compacted"
    assert any("amber" in text for text in gone.values())
    assert not any("birch" in text for text in gone.values())


def test_a_user_who_edits_again_and_again_is_on_the_last_branch():
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 3):
        chat.turn(said, answer)
    kept = [*chat.history]
    for n in range(6):
        chat.history = [*kept]
        assert chat.turn(f"Version {n} of what I want.", f"Answer {n}.").event == ("branch" if n else "turn")
    step = chat.turn("Go on with that.", "Gladly.")
    assert (step.event, len(left(chat, "Version "))) == ("turn", 5)
    assert left(chat, "Version 5") == []


@pytest.mark.parametrize("kept", [3, 100])
def test_short_words_that_were_said_often_on_a_branch_that_was_left_do_not_lead_back_to_it(kept):
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 2):
        chat.turn(said, answer)
    before = [*chat.history]
    for n in range(6):
        chat.turn("Continue.", f"Part {n} of the old story about the harbour.")
    chat.history = [*before]
    chat.turn("No: write it about the mountains, with a hut in it.", "The hut of Bormio stands at 2400 m.")
    chat.turn("And who lives there, in the hut of Bormio?", "An old guide named Ulisse, of Bormio.")
    for n in range(3):
        chat.history.append(user("Continue."))
        step = chat.send(chat.history[-kept:])
        assert kept == 3 or step.event == "turn"
        assert left(chat, "Bormio") == []
        chat.lab.answer(step, assistant(f"And so on, mountain part {n}."))
        chat.history.append(assistant(f"And so on, mountain part {n}."))


def test_former_states_hold_no_former_states():
    a, b = cloned(6)
    session = a.lab.known.sessions[a.session]
    assert len(session.forks) == 1
    assert all(not each.forks and each.before_form is None for each in session.forks)
    assert b.session == a.session


def test_a_branch_that_was_left_counts_as_memory():
    chat = Chat(Lab())
    for said, answer in turns("zephyr", 2):
        chat.turn(said, answer)
    before = [*chat.history]
    chat.turn(f"Read this: {'word ' * 20_000}", "Read.")
    held = chat.lab.known.sizes[chat.session]
    chat.history = before
    chat.turn("Leave it.", "Gladly.")
    assert chat.lab.known.sizes[chat.session] > held
