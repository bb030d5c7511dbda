"""The text of a request, prepared once for many questions of the kind "does it hold this?". Pure."""

import re
from collections.abc import Collection, Sequence
from functools import cached_property

from lantern_proxy.analyze import key, sequence
from lantern_proxy.analyze.held import Held
from lantern_proxy.compaction import shown_to_model
from lantern_proxy.history import plain
from lantern_proxy.turn import Item, Request

_WORD = re.compile(r"\w+")


def text_of(request: Request) -> str:
    """All that the model is shown of a request, as Present takes it: one line an item, white space collapsed."""
    return "\n".join([_plain(i) for message in shown_to_model(request) for i in message.items])


def _plain(i: Item) -> str:
    """An item as passages are cut from it. Arguments of calls are JSON."""
    escaped = i.kind == "call" and "\\" in i.text
    return plain(i.text.replace("\\n", " ").replace('\\"', '"') if escaped else i.text)


class Present:
    """Each way of looking at the text is prepared when it is first asked for: about 15 ms a megabyte."""

    def __init__(self, text: str) -> None:
        """text: white space collapsed, but for line breaks"""
        self.text = text.replace("\n", " ")

    def holds(self, flats: Sequence[str]) -> list[bool]:
        """Which of some texts (white space collapsed) stand in it as whole words?"""
        return self._held.holds(flats)

    def words(self, words: Sequence[str]) -> list[bool]:
        """Which of some words, in lower case, stand in it?"""
        return self._lower.holds(words)

    def terms(self, terms: Collection[str]) -> set[str]:
        """Those of some index terms that its text has, too."""
        return _between(self._terms, terms, "\n")

    def specific_terms(self, term_keys: Collection[str]) -> set[str]:
        """Those of some specific terms, in the form of analyze.key(), that stand in it."""
        return _between(self._keys, term_keys, " ")

    def may_hold(self, term_keys: Collection[str]) -> set[str]:
        """Those of some specific terms whose words stand in it, together or apart."""
        words = {each: _WORD.findall(each) for each in term_keys}
        there = self._lower.held(list({word for each in words.values() for word in each}))
        return {each for each in term_keys if there.issuperset(words[each])}

    @cached_property
    def _held(self) -> Held:
        return Held(self.text)

    @cached_property
    def _lower(self) -> Held:
        return Held(self.text.lower())

    @cached_property
    def _terms(self) -> Held:
        return Held(sequence(self.text))

    @cached_property
    def _keys(self) -> Held:
        return Held(f" {key(self.text)} ")


def _between(held: Held, wanted: Collection[str], sign: str) -> set[str]:
    """Those of `wanted` that stand in it with `sign` on both sides."""
    return {each[1:-1] for each in held.held([f"{sign}{each}{sign}" for each in wanted])}
