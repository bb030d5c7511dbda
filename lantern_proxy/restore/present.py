"""The text of a request, indexed once for many lookups of the kind "does it contain this?". Pure."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property

from lantern_proxy.analyze import key, sequence
from lantern_proxy.analyze.held import Held
from lantern_proxy.compaction import shown_to_model
from lantern_proxy.turn import Item, Request, plain

_WORD = re.compile(r"\w+")
USERS_CHARS = 6_000
"""How much of the users' text in a request is searched for changes of earlier statements."""
_PIECE_CHARS = 65_536
"""Characters processed between two checks of the deadline: a millisecond, or many times that without C."""


class Late(Exception):
    """The deadline passed before the text was indexed."""


def never() -> bool:
    return False


def text_of(request: Request) -> str:
    """Everything that a request shows the model, as Present takes it: one line per item, white space collapsed."""
    return "\n".join([_plain(i) for message in shown_to_model(request) for i in message.items])


def texts_of(request: Request) -> tuple[str, str]:
    """(text_of(request), users_text_of(request)), for Ask.present and Ask.users_text."""
    return text_of(request), users_text_of(request)


def users_text_of(request: Request) -> str:
    """What users say in a request, one line per text, for Ask.users_text; of a long request about the last USERS_CHARS.
    Text of tools and models is left out, since it does not change a user's statement."""
    texts, chars = list[str](), 0
    for m in reversed(request.messages):
        for i in reversed(m.items):
            if i.role == "user" and i.kind == "text" and chars < USERS_CHARS:
                texts.append(plain(i.text)[-USERS_CHARS:])
                chars += len(texts[-1])
    return "\n".join(reversed(texts))


def _plain(i: Item) -> str:
    """The text of an item in the form of passages: JSON in call arguments is unescaped, white space collapsed."""
    escaped = i.kind == "call" and "\\" in i.text
    return plain(i.text.replace("\\n", " ").replace('\\"', '"') if escaped else i.text)


class Present:
    """The contents of a request. Each kind of lookup builds its index on first use, about 15 ms a megabyte. Raises Late
    if a long text would have to be indexed after the deadline."""

    def __init__(self, text: str, late: Callable[[], bool] = never) -> None:
        """text: white space collapsed, except line breaks. late: has the deadline passed?"""
        self.text = text.replace("\n", " ")
        self._late = late

    def holds(self, flats: Sequence[str]) -> list[bool]:
        """For each of some texts (white space collapsed): does it occur in the request, as whole words?"""
        return self._held.holds(flats)

    def words(self, words: Sequence[str]) -> list[bool]:
        """For each of some lower-case words: does it occur in the request?"""
        return self._lower.holds(words)

    def terms(self, terms: Collection[str]) -> set[str]:
        """Those index terms that occur in the request."""
        return _between(self._terms, terms, "\n")

    def specific_terms(self, term_keys: Collection[str]) -> set[str]:
        """Those specific terms, in the form of analyze.key(), that occur in the request."""
        return _between(self._keys, term_keys, " ")

    def may_hold(self, term_keys: Collection[str]) -> set[str]:
        """Those specific terms whose words all occur in the request, together or apart."""
        words = {each: _WORD.findall(each) for each in term_keys}
        there = self._lower.held(list({word for each in words.values() for word in each}))
        return {each for each in term_keys if there.issuperset(words[each])}

    def without(self, text: str) -> "Present":
        """The request without `text`, which is canonical."""
        return Present(self.text.replace(text, " "), self._late)

    @cached_property
    def _held(self) -> Held:
        return self._prepared(self.text)

    @cached_property
    def _lower(self) -> Held:
        return self._prepared(self.text.lower())

    @cached_property
    def _terms(self) -> Held:
        told = [within for piece in self._pieces() if (within := sequence(piece)[1:-1])]
        return self._prepared("\n".join(["", *told, ""]))

    @cached_property
    def _keys(self) -> Held:
        told = [within for piece in self._pieces() if (within := key(piece))]
        return self._prepared(" ".join(["", *told, ""]))

    def _prepared(self, text: str) -> Held:
        self._look(len(text))
        return Held(text)

    def _look(self, chars: int) -> None:
        """Check the deadline if there is much to read; raises Late if it has passed."""
        if chars > _PIECE_CHARS and self._late():
            raise Late

    def _pieces(self) -> Iterator[str]:
        """The text in pieces of about _PIECE_CHARS, cut at spaces."""
        at = 0
        while at < len(self.text):
            self._look(at)
            end = self.text.find(" ", at + _PIECE_CHARS)
            end = end if end >= 0 else len(self.text)
            yield self.text[at:end]
            at = end


def _between(held: Held, wanted: Collection[str], sign: str) -> set[str]:
    """Those of `wanted` that `held` contains with `sign` on both sides."""
    return {each[1:-1] for each in held.held([f"{sign}{each}{sign}" for each in wanted])}
