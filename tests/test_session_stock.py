"""Users of one app who say the same few words, and hear the same: what one said must not come to another."""

from itertools import cycle

import pytest
from chats import SYSTEM, Lab, Wire, assistant, called, result, user

RESTART = "Please restart the device and wait until all lamps are on."
LAMP = "The lamp on the front shows green when all is well, and red when the line is broken."
HELLO = "Hello! How can I help you today?"
FORWARD = "I will forward your request to a colleague, please hold on."
MANUAL = f"{SYSTEM} From the manual: the device is restarted by its button on the back."
SUM = "Summarize the conversation so far for a colleague who goes on with it. Keep all numbers and names."
SORT = "You sort messages of customers. Answer with one word: contract, device, hours or other."
OWN = "My contract is 7731-R."


def said(*texts: str, first: str = "user") -> list[Wire]:
    """Texts of a user and of the bot in turn."""
    roles = cycle((user, assistant) if first == "user" else (assistant, user))
    return [role(text) for role, text in zip(roles, texts, strict=False)]


def turn(lab: Lab, shown: list[Wire], answer: str | Wire, system: str = SYSTEM, **body: object) -> str:
    """A request and its answer; all that its session holds."""
    front: list[Wire] = [{"role": "system", "content": system}] if system else []
    step = lab.ask([*front, *shown], **body)  # type: ignore[arg-type]
    lab.answer(step, assistant(answer) if isinstance(answer, str) else answer)
    return "\n".join(lab.texts(step.session.id))


def script(*lines: str) -> list[Wire]:
    return [user("\n".join(f"{name}: {line}" for name, line in zip(cycle(("user", "bot")), lines, strict=False)))]


def test_who_was_sorted_under_another_prompt_ends_in_the_answer_before_that_after_a_restart() -> None:
    lab = Lab()
    lab.restarts = True
    turn(lab, said("For an hour.", "Is it open?", first="assistant"), RESTART)
    turn(lab, said(RESTART, OWN, first="assistant"), "Thank you, I found 7731-R.")
    turn(lab, said("Thank you, I found 7731-R.", "Yes, please do that.", first="assistant"), "OK.")
    turn(lab, said("OK.", "Please note 3666-K for me.", first="assistant"), RESTART)
    turn(lab, said("For an hour.", "My box is dead.", first="assistant"), "Thank you, I found your box.")
    turn(lab, said("Thank you, I found your box.", "ok", first="assistant"), RESTART, MANUAL)
    shown = ("Can I park here?", "For an hour.", "My box is dead.", "Thank you, I found your box.", "ok", RESTART)
    turn(lab, said(*shown), "device", SORT)
    assert "7731-R" not in turn(lab, said(RESTART, "50060205", first="assistant"), "OK.")


def test_who_names_nobody_ends_alike_under_a_prompt_with_documents_though_the_request_names_somebody() -> None:
    lab = Lab()
    call = [called("run:0", "run", of="hours"), result("run:0", "weekdays 9-18")]
    turn(lab, said("OK.", "No.", "OK.", "0162-K", first="assistant"), call[0], MANUAL)
    turn(lab, [*said("OK.", "Yes, please do that.", first="assistant"), *call], "OK.", MANUAL)
    turn(lab, said(f"Noted: {OWN}", "When are you open on weekdays?", "OK.", "ok", first="assistant"), call[0])
    turn(lab, [*said("OK.", "ok", first="assistant"), *call], "OK.", MANUAL)
    held = turn(lab, [*call, *said("OK.", "Please look it up for me.", first="assistant")], "OK.", user="rosa")
    assert "7731-R" not in held


def test_an_answer_that_several_heard_is_not_the_last_of_one_behind_what_was_never_asked_there() -> None:
    lab = Lab()
    turn(
        lab,
        script("How do I read the lamp?", "Noted.", "No.", "OK.", "I need some help.", FORWARD, "Note 4260."),
        HELLO,
    )
    turn(lab, script(OWN), FORWARD)
    turn(lab, script(OWN, FORWARD, "Look it up.", LAMP, "Go on.", HELLO, "It still does not work."), HELLO)
    shown = ("Hello, I need some help with my contract.", HELLO, "My contract is 9178.", "OK.", "Yes.", FORWARD, "No.",
             FORWARD, "Who speaks next?")  # fmt: skip
    assert "7731-R" not in turn(lab, said(*shown), "The customer.")


def test_a_canned_answer_to_a_side_call_is_no_summary_of_its_conversation() -> None:
    lab = Lab()
    noted, note = "I have noted {} for you. What else can I do?", "Please note {} for me, I need it later."

    def notes(*numbers: str) -> list[str]:
        return [text.format(number) for number in numbers for text in (note, noted)]

    first = [OWN, noted.format("7731-R"), "Thanks.", LAMP, *notes("5363-K"), "No.", LAMP, "5056-L", "OK.",
             note.format("9701-M"), "OK.", *notes("4613-N", "6994-P")]  # fmt: skip
    for end in (3, 5, 9):
        turn(lab, script(*first[:end]), first[end], "")
    turn(lab, said(*first, "Who speaks next?"), "The customer.", "")
    turn(lab, script(*first, "Yes, please do that."), RESTART, "")
    other = ["It is 1900-M.", LAMP, *notes("6263-K"), "No.", LAMP, "Yes, please do that.", HELLO]
    turn(lab, script(*other[:5]), LAMP, "")
    turn(lab, script(*other[:7]), HELLO, "")
    other += [*notes("4643-L"), "My contract is 2474-N.", HELLO, "I need some help.", LAMP, "Hi", LAMP]
    turn(lab, said(*other, "Who speaks next?"), "The customer.", "")
    last = ["Yes, please do that.", LAMP, "My contract is 5481-N.", "Thank you, I found 5481-N.", "Is it dead?",
            LAMP, "Yes, please do that.", RESTART, "My contract is 2329-P.", "OK.", note.format("9295-Q"),
            "Thank you, I found 9295-Q.", "Who speaks next?"]  # fmt: skip
    turn(lab, script(*last[:1]), LAMP, "")
    turn(lab, said(*last[:2], last[-1]), "The customer.", "")
    turn(lab, script(*last[:7]), RESTART, "")
    assert "7731-R" not in turn(lab, said(*last), "The customer.", "")


@pytest.mark.parametrize("restarts", [False, True])
def test_who_goes_back_to_where_they_began_gets_nothing_of_who_came_to_the_same_words_later(restarts: bool) -> None:
    lab = Lab()
    turn(lab, said("It is dead."), RESTART)
    turn(lab, said("It is dead.", RESTART, "Where can I park my car?"), LAMP)
    turn(lab, said("Where can I park my car?", LAMP, "And where is that?"), "OK.")
    turn(lab, said(OWN), HELLO)
    turn(lab, said(OWN, HELLO, "It is dead."), RESTART)
    lab.restarts = restarts
    assert "7731-R" not in turn(lab, said("It is dead.", RESTART, "Thanks."), "OK.")


def test_a_greeting_that_one_was_answered_begins_no_window_behind_examples() -> None:
    lab = Lab()
    examples = [*said("How long is the warranty?", "Two years.", "Can I park at the shop?", "For an hour."),
                assistant(HELLO)]  # fmt: skip
    turn(lab, [*examples, user("My box is dead.")], "OK.")
    turn(lab, [assistant(f"The customer of case 7731-R asked for help. {OWN}"), user("Go on.")], HELLO)
    assert "7731-R" not in turn(lab, [*examples, user("Hello, I need some help.")], "OK.")


def test_whose_first_question_came_with_a_name_is_as_likely_as_who_asked_it_without() -> None:
    lab = Lab()
    lab.restarts = True
    asked, own = "Hello, I need some help with my contract.", (OWN, HELLO)
    turn(lab, script(asked), "OK.")
    turn(lab, script(asked, "OK.", OWN), HELLO)
    turn(lab, said(asked, "OK.", OWN, HELLO, "Who speaks next?"), "The customer.")
    turn(lab, script(asked, "OK.", *own, "And 5919-K.", RESTART, "2066"), RESTART)
    turn(lab, script(asked, "OK.", *own, "And 5919-K.", RESTART, "2066", RESTART, asked, HELLO, "ok"), "OK.")
    turn(lab, script(asked), "OK.")
    assert "7731-R" not in turn(lab, said(asked, "OK.", "Who speaks next?"), "The customer.")


def test_a_word_and_a_stock_question_under_a_prompt_with_another_summary_are_anothers() -> None:
    lab = Lab()
    told = f"{SYSTEM}\n\nThe customer of case {{}} asked for help. {{}} The matter is still open."
    turn(lab, said("Please look it up for me."), "Noted.")
    shown = said("Noted.", "Please look it up for me.", first="assistant")
    asked = lab.ask([{"role": "system", "content": told.format("A-1", "The contract 7731-R was told.")}, *shown])
    lab.fail(asked)
    assert "7731-R" not in turn(lab, shown, "Noted.", told.format("B-2", ""))


def test_a_key_that_names_another_conversation_leads_to_none_that_has_a_key_of_its_own() -> None:
    lab = Lab()
    begun = ("How long is the warranty?", "Two years.", "Hello, I need some help with my contract.")
    for who in ("rosa", "emil"):
        turn(lab, said(*begun), HELLO, prompt_cache_key=who)
    told = f"{SYSTEM}\n\nThe customer of case 1 asked for help. The matter is still open, a colleague calls back."
    shown = said(HELLO, "ok", first="assistant")
    lab.fail(lab.ask([{"role": "system", "content": told}, *shown], prompt_cache_key="rosa"))
    again = ("It still does not work, what else?", HELLO)
    turn(lab, [*said(*begun, HELLO, *again, "ok"), *said(*again, SUM)], told.rpartition("\n")[2])
    turn(lab, said(HELLO, OWN, first="assistant"), HELLO, told, prompt_cache_key="rosa")
    assert "7731-R" not in turn(lab, said(*begun, HELLO, "No."), HELLO, prompt_cache_key="emil")


def test_who_began_like_another_does_not_take_what_that_one_alone_said_since() -> None:
    lab = Lab()
    lab.restarts = True
    begun = said("Go on.", LAMP)
    turn(lab, begun[:1], LAMP, "", user="rosa")
    turn(lab, [*begun, user(OWN)], RESTART, "", user="rosa")
    turn(lab, [*begun, user(OWN), assistant(RESTART), user("Who speaks next?")], "The customer.", "", user="rosa")
    turn(lab, begun[:1], LAMP, "", user="emil")
    turn(lab, [*begun, user(OWN), assistant(RESTART), user("Thanks.")], "OK.", "", user="rosa")
    assert "7731-R" not in turn(lab, [*begun, user("ok")], "OK.", "", user="emil")


def test_a_script_that_comes_to_the_same_answer_behind_lines_that_others_said_is_nobodys() -> None:
    lab = Lab()
    looked = "\nbot: run(hours)\nresult: weekdays 9-18"
    begun = ("How long is the warranty?", "Two years.")
    own = (*begun, OWN, RESTART, "No.", RESTART, "Go on.", LAMP, "Thanks.")
    turn(lab, script(*own), "OK.", f"{SYSTEM} You speak to customer 0.")
    turn(lab, script(*own[:-1], f"Thanks.{looked}"), RESTART, f"{SYSTEM} You speak to customer 0.")
    other = (*begun, "No.", LAMP, "Go on.", RESTART, "My box is dead.", LAMP, f"Go on.{looked}")
    assert "7731-R" not in turn(lab, script(*other), LAMP, f"{SYSTEM} You speak to customer 1.")


def test_a_script_that_shows_less_than_was_said_behind_the_same_lines_is_nobodys() -> None:
    lab = Lab()
    begun = "When are you open on weekdays?\nbot: run(hours)\nresult: weekdays 9-18"
    for _ in range(2):
        turn(lab, script(begun), RESTART)
    turn(lab, script(begun, RESTART, OWN), "Please wait for it.")
    turn(lab, script(begun, RESTART, f"{OWN}\nbot: run(contract)\nresult: contract 7731-R"), RESTART)
    assert "7731-R" not in turn(lab, script(begun, RESTART, "Thanks."), "OK.")


def test_what_all_conversations_open_with_is_no_window_of_one_that_heard_its_last_words_again() -> None:
    lab = Lab()
    opening = [*said("How long is the warranty?", "Two years.", "Can I park at the shop?", "Yes, for an hour."),
               assistant(HELLO)]  # fmt: skip
    turn(lab, [*opening, user(f"Context: red means no line.\n\nQuestion: {OWN}")], HELLO)
    turn(lab, [assistant("The customer of case 3 asked for help, and it is still open."), user("It is dead.")], HELLO)
    asked = user("Context: a reset takes ten seconds.\n\nQuestion: My contract is 8531-K.")
    assert "7731-R" not in turn(lab, [*opening, asked], "OK.")


def system(text: str) -> Wire:
    return {"role": "system", "content": text}


def group(*lines: str) -> Wire:
    return user("\n".join(["You are in a group chat.", *lines, "What does Bot say?"]))


def test_an_answer_that_stood_in_what_was_asked_already_leads_no_other_history_in_one_text_there():
    lab = Lab()
    step = lab.ask([system(SYSTEM), group(f"[Bot] {HELLO}", "[Emil] 42633065")])
    lab.answer(step, assistant(HELLO))
    other = lab.ask([system(SYSTEM), group(f"[Bot] {HELLO}", "[Emil] My contract is 66461044.")])
    assert (other.event, other.session.id == step.session.id) == ("new", False), other.link.why
    lines = [f"[Bot] {HELLO}", "[Emil] 42633065", f"[Bot] {HELLO}", "[Emil] Please note 31797178 for me."]
    own = lab.ask([system(SYSTEM), group(*lines)])
    assert own.session.id == step.session.id, own.link.why


def test_what_got_no_answer_is_asked_again_by_nobody_else_whom_the_client_names():
    lab = Lab()
    asked = [system("The customer of case 71 told the number 68578873."), user("When do you open?")]
    step = lab.ask(asked, user="person-2")
    lab.fail(step)
    other = lab.ask([system("The customer of case 72 told the number 64873756."), asked[1]], user="person-3")
    assert (other.event, other.session.id == step.session.id) == ("new", False), other.link.why
    assert lab.ask(asked, user="person-2").session.id == step.session.id


def test_an_answer_that_several_heard_to_a_question_never_asked_here_tells_nothing() -> None:
    lab = Lab()
    asked = "Can you explain to me how the lamp on the front of the device has to be read?"
    turn(lab, [group(f"[Rosa] {OWN}")], RESTART)
    turn(lab, [group(f"[Rosa] {OWN}", f"[Bot] {RESTART}", f"[Rosa] {asked}")], RESTART)
    turn(lab, said(OWN, RESTART, asked, RESTART), "device", SORT)
    turn(lab, [group("[Rosa] Hi")], RESTART)
    turn(lab, [group("[Rosa] Hi", f"[Bot] {RESTART}", f"[Rosa] {asked}")], RESTART)
    assert "7731-R" not in turn(lab, said("Hi", RESTART, asked, RESTART, SUM), "Rosa asked about the lamp.")
