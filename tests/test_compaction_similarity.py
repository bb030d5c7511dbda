"""Is an item what another one was, in another dress? What must hold for that, each alone."""

import pytest

from lantern_proxy.compaction.similarity import is_behind_note, is_patched
from lantern_proxy.turn import Item, Kind, Role, item

SAID = "Please set the burst of the rate limiter to forty, and tell me why it was twenty until now."
NOTE = "Open files of the workspace, as of now:"


def text(words: str, *, role: Role = "user", kind: Kind = "text") -> Item:
    return item(role, kind, words)


NOTED = text(f"{NOTE} limit.go\n\n{SAID}")


@pytest.mark.parametrize(
    ("new", "same"),
    [
        (text(f"{NOTE} limit.go, burst.go and eleven others that were opened since\n\n{SAID}"), True),
        (text(f"{NOTE} limit.go, burst.go\n\nPlease set nothing, and tell me why it was twenty until now."), False),
        (text(f"{NOTE} limit.go, burst.go\n\n{SAID}", kind="result"), False),
        (text(f"{NOTE} limit.go, burst.go\n\n{SAID}", role="assistant"), False),
    ],
)
def test_a_text_is_the_same_behind_another_note_where_a_user_says_the_same_there(new: Item, same: bool) -> None:
    assert is_behind_note(NOTED, new) is same


def test_a_note_with_nothing_behind_it_is_another_one_each_time() -> None:
    old, new = (text(f"{NOTE} {name}, and what belongs to it.\n\n \t") for name in ("limit.go", "burst.go"))
    assert not is_behind_note(old, new)


@pytest.mark.parametrize("at", [16, 60])
def test_a_client_may_put_something_into_either_half_of_a_text(at: int) -> None:
    assert is_patched(text(SAID), text(f"{SAID[:at]}(it is ten o'clock) {SAID[at:]}"))


LONG = f"{SAID} It was set by hand on the first machine, and then by a script on all others. {SAID}"


@pytest.mark.parametrize(
    ("new", "same"),
    [
        (f"{LONG[:60]} ... {LONG[-60:]}", True),
        (
            f"{LONG[:60]} ... whoever reads this has to know of a great many things that stood nowhere {LONG[-60:]}",
            False,
        ),
    ],
)
def test_an_ellipsis_stands_for_what_is_left_out_and_not_beside_other_words(new: str, same: bool) -> None:
    assert is_patched(text(LONG), text(new)) is same


def test_an_ellipsis_that_stood_there_before_stands_for_nothing() -> None:
    before = f"{SAID} So it was ... or so they say, on each machine. {SAID}"
    assert not is_patched(text(before), text(f"{SAID} So ... each machine. {SAID}"))
