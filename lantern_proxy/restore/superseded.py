"""Which statements does a later one replace? Pure; in doubt it keeps both.

A later statement of the user replaces an earlier one when the two are the same but for one value:

    it says that something changed   "now", "instead of", "no longer", "statt", ...
    it is about the same             up to its value it has no word that the older one lacks
    it has another value             of the same sort and unit, which names no record: the older value is named, or both
                                     stand at the end of their clause ("My son Ben is now 9" says nothing of Max)

The older one is replaced *whole* when the newer also has all of its words and values but the one that changed. Else it
says more, as "Never give ibuprofen to Tom, he weighs 31 kg" does: it is true but for a part, and stays.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import NamedTuple

from lantern_proxy.analyze import ends_asking, sentences
from lantern_proxy.restore.compared import CHANGE_STEMS, CUE, OWN, UNITS, Compared, Value, compared
from lantern_proxy.restore.lines import Line, tables
from lantern_proxy.restore.present import never
from lantern_proxy.turn import Passage

MOST_CHARS, HELD_CHARS, MOST_RIVALS, MOST_ALIKE = 400, 6_000, 400, 40
"""Most characters of a sentence that is read, and of the question. Most earlier statements that one is compared with,
the newest, and most of these that read alike or that one statement replaces."""


class Statement(NamedTuple):
    """A sentence and where it was said. turn: 0 for the request itself."""

    text: str
    turn: int
    order: tuple[float, int, int]
    """Increases with time."""
    by_user: bool


class Newer(NamedTuple):
    """What replaces a statement."""

    turn: int
    """0: the request itself."""
    statement: int
    """Index of the newer statement."""
    whole: bool
    """The newer has all of the older statement but the value that changed. Else the older says more, and still holds in
    part."""


def superseded(statements: Sequence[Statement], late: Callable[[], bool] = never) -> dict[int, Newer]:
    """Index of each replaced statement -> the newest that replaces it.

    late: asked before each, the oldest first; once it says so, the newer ones replace nothing
    """
    read: dict[int, Compared] = {}
    about, frames = _About(read), dict[tuple[str, ...], list[int]]()
    replaced: dict[int, Newer] = {}
    for i in sorted(range(len(statements)), key=lambda i: statements[i].order):
        if late():
            break
        said = statements[i]
        now = read[i] = compared(said.text)
        rivals = _rivals(now, about, frames) if said.by_user else ()
        earlier = (j for j in rivals if statements[j].order[:2] < said.order[:2])
        still = (j for j in earlier if j not in replaced or not replaced[j].whole)
        for j in islice((j for j in still if _replaces(now, read[j])), MOST_ALIKE):
            replaced[j] = Newer(said.turn, i, _is_whole(now, read[j]))
        about.add(i)
        frames.setdefault(now.frame, []).append(i)
    return {j: _newest(newer, replaced) for j, newer in replaced.items() if not _holds_again(j, replaced, read)}


def _holds_again(j: int, replaced: Mapping[int, Newer], read: Mapping[int, Compared]) -> bool:
    """Does the last in a chain of statements that replaced each other say again all values that the first one had? What
    changed and changed back holds."""
    last = replaced[j].statement
    while last in replaced:
        last = replaced[last].statement
    return read[j].every <= read[last].has and last != replaced[j].statement


def _newest(newer: Newer, replaced: Mapping[int, Newer]) -> Newer:
    """The last in a chain of statements that replaced each other whole, from `newer` on."""
    while (later := replaced.get(newer.statement)) and later.whole:
        newer = later._replace(whole=newer.whole)
    return newer


class _About:
    """Finds earlier statements by their stems and values. They are indexed when the first that tells of a change
    asks."""

    def __init__(self, read: Mapping[int, Compared]) -> None:
        self._read = read
        self._of: dict[str, list[int]] = {}
        self._waiting: list[int] = []

    def add(self, i: int) -> None:
        self._waiting.append(i)

    def like(self, now: Compared) -> Iterable[int]:
        """Earlier statements that share a stem or a value with `now`, at most MOST_RIVALS."""
        for i in self._waiting:
            each = self._read[i]
            for stem in (*each.words, *each.every) if each.values else ():
                self._of.setdefault(stem, []).append(i)
        self._waiting.clear()
        told = [i for stem in (*(now.words - CHANGE_STEMS), *now.every) for i in self._of.get(stem, ())[-MOST_RIVALS:]]
        return dict.fromkeys(sorted(told, reverse=True)[:MOST_RIVALS])


def _rivals(now: Compared, about: _About, frames: Mapping[tuple[str, ...], list[int]]) -> Iterable[int]:
    """Earlier statements that `now` may replace."""
    if not now.values:
        return ()
    if now.says_so or now.ended:
        return about.like(now)
    same = frames.get(now.frame)
    return same[: -MOST_ALIKE - 1 : -1] if same and now.words else ()


def _replaces(now: Compared, old: Compared) -> bool:
    """Is `now` about the same as `old`, with another value, or without one since it says that something is over?"""
    if now.ended and now.every <= old.every:
        over = now.words - CHANGE_STEMS
        return over <= old.words and (bool(over) or now.every == old.every)
    gone, come = old.every - now.has, now.every - old.has
    if not now.says_so:
        alike = now.frame == old.frame and len(gone) == 1 == len(come)
        return alike and any(new.text in come and new.stated for new in now.told)
    return any(
        new.text in come and come.isdisjoint(new.beside) and not new.denied and _changes(now, new, old, gone)
        for new in now.told
    )


def _changes(now: Compared, new: Value, old: Compared, gone: AbstractSet[str]) -> bool:
    """Does `new`, a value of the newer statement, take the place of a value of the older? gone: values only the older
    has"""
    if not new.head <= old.has_words:
        return False
    if any(_names(now, new, before) for before in old.told):
        return True
    is_of_it = not now.ended and not new.head.isdisjoint(old.words)
    return is_of_it and any(_stands_for(new, before) for before in old.told if before.text in gone)


def _names(now: Compared, new: Value, old: Value) -> bool:
    """Does the newer statement name the old value, as the one that `new` takes the place of ("9443 instead of 8080"),
    and not as the name of a record?"""
    named = next((each for each in now.told if old.text in (each.text, *each.text.split())), None)
    if named is None or named == new:
        return False
    is_record = named.before and named.before != new.before and not named.denied
    return new.sort == old.sort and not is_record and (not new.unit or not old.unit or new.unit == old.unit)


def _stands_for(new: Value, old: Value) -> bool:
    """Can `new` take the place of `old` where no word names `old`: are both of one sort and unit, at the end of their
    clause or counts of the same thing, and no names of records?"""
    goes_on = old.tail if new.sort == "name" or old.before else new.tail and old.tail
    if (new.sort, new.unit, new.tail) != (old.sort, old.unit, goes_on):
        return False
    is_measure = bool(new.unit) and (new.unit in UNITS or not (new.before or old.before))
    if (new.unit or new.tail) and not is_measure:
        return False
    if new.unit in UNITS:
        return True
    return new.before == old.before and (new.moved or bool(new.unit) or not new.before)


def _is_whole(now: Compared, old: Compared) -> bool:
    """Has the newer statement all of the older but the value that changed? Then nothing is lost with the older."""
    gone, come = old.every - now.has, now.every - old.has
    changed = [before for before in old.told if before.text in gone]
    values = [new for new in now.told if new.text in come]
    only = len(gone) <= bool(values) and all(_stands_for(new, before) for new in values for before in changed)
    return now.says_so and only and old.words - OWN <= now.words | now.every


class Changes:
    """An older text, for newer ones that may say otherwise, with or without a word that tells of a change."""

    def __init__(self, old: str) -> None:
        self._old = compared(old)

    def has_other(self, new: str) -> bool:
        """Has `new` a value that the older text lacks, of a sort of which the older text has another one?"""
        later, before = compared(new).values, self._old.values
        return any(later[sort] - self._old.has for sort in later.keys() & before.keys())

    def has_alike(self, new: str) -> bool:
        """Has it one of the same unit, too: 7450 for 7600, and not "6 weeks", 10 mg for 20 mg?"""
        kinds = {(sort, unit) for _, sort, unit in self._old.kinds}
        others = [(sort, unit) for value, sort, unit in compared(new).kinds if value not in self._old.every]
        return any(kind in kinds and kind[0] != "name" for kind in others)

    def is_named(self, new: str) -> bool:
        """Does `new` name a value of the older text? A name counts also where none can be told from other words, as at
        the beginning of a sentence."""
        return not compared(new).has.isdisjoint(self._old.every)


def stating(passage: Passage, of: Sequence[Line]) -> tuple[int, ...]:
    """Lines in which a user or an assistant states something that a later statement may replace. A row of a table is no
    statement: what replaces one of its cells says nothing of the others."""
    told = [
        i
        for i, line in enumerate(of if passage.speaker in ("user", "assistant") else ())
        if line.keys and len(line.flat) <= MOST_CHARS and not line.flat.startswith("```")
    ]
    rows = {i for table in tables(passage, of) for i in table} if told else ()
    return tuple([i for i in told if i not in rows])


def prepare(statement: str) -> None:
    """Compute ahead what `superseded` remembers of a statement."""
    read = compared(statement)
    _ = read.words, read.says_so, read.ended


def of_request(question: str, told: str) -> Iterator[str]:
    """Sentences of the request that may replace what was lost: the question's, and those that tell of a change."""
    found = [question[a:b] for a, b in sentences(question[:HELD_CHARS])]
    for text in told.splitlines():
        found += [change for a, b in sentences(text) if CUE.search(change := text[a:b])]
    yield from (each for each in dict.fromkeys(found) if len(each) <= MOST_CHARS and not ends_asking(each))
