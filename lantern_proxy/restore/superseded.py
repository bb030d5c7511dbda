"""Which statements does a later one replace? Pure; in doubt both are kept.

A later statement of the user replaces an earlier one if the two are the same except for one value:

    it signals a change        "now", "instead of", "no longer", "statt", ...
    it has the same subject    up to its value it has no word that the older one lacks
    it has another value       of the same sort and unit, not naming a record: the older value is repeated, or both end
                               their clause ("My son Ben is now 9" says nothing of Max)

A change without a subject ("Make it 7000 instead.") is of the value named last, in the same turn or the one before.

The older one is replaced *whole* if the newer also has all of its words and values but the one that changed. Otherwise
the older says more, as "Never give ibuprofen to Tom, he weighs 31 kg" does: it is true except for a part, and is kept.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import NamedTuple

from lantern_proxy.analyze import ends_asking, sentences
from lantern_proxy.restore.headings import tables
from lantern_proxy.restore.lines import Line
from lantern_proxy.restore.parsed_statement import (
    CHANGE_STEMS,
    CUE,
    OWN,
    UNITS,
    ParsedStatement,
    Value,
    parse_statement,
)
from lantern_proxy.restore.present import never
from lantern_proxy.turn import Passage

MOST_CHARS, HELD_CHARS, MOST_RIVALS, MOST_ALIKE = 400, 6_000, 400, 40
"""Most characters of a sentence that is read, and of the question. Most earlier statements that one is compared with,
the newest, and most of these that read alike or that one statement replaces."""


class Statement(NamedTuple):
    """A sentence and its origin. turn: 0 for the request itself."""

    text: str
    turn: int
    order: tuple[float, int, int]
    """Increases with time."""
    by_user: bool
    session: str = ""


class Newer(NamedTuple):
    """What replaces a statement."""

    turn: int
    """0: the request itself."""
    statement: int
    """Index of the newer statement."""
    whole: bool
    """The newer has all of the older statement but the value that changed. Otherwise the older says more, and still
    holds in part."""


def superseded(statements: Sequence[Statement], late: Callable[[], bool] = never) -> dict[int, Newer]:
    """Index of each replaced statement -> the newest one that replaces it.

    late: called before each statement, the oldest first; once it returns True, the remaining ones replace nothing
    """
    read: dict[int, ParsedStatement] = {}
    index, frames = _StatementIndex(read), dict[tuple[str, ...], list[int]]()
    recent: dict[str, list[int]] = {}
    """Session -> its statements of the last two turns, at most MOST_ALIKE."""
    replaced: dict[int, Newer] = {}
    for i in sorted(range(len(statements)), key=lambda i: statements[i].order):
        if late():
            break
        statement = statements[i]
        now = read[i] = parse_statement(statement.text)
        rivals = _rivals(now, index, frames) if statement.by_user else ()
        earlier = (j for j in rivals if statements[j].order[:2] < statement.order[:2])
        still = (j for j in earlier if j not in replaced or not replaced[j].whole)
        for j in islice((j for j in still if _replaces(now, read[j])), MOST_ALIKE):
            replaced[j] = Newer(statement.turn, i, _is_whole(now, read[j]))
        near = [j for j in recent.get(statement.session, ()) if 0 < statement.turn <= statements[j].turn + 1]
        new = _only_value(now) if statement.by_user else None
        for j in _with_one_value(near, new, read) if new else ():
            if statements[j].order[:2] < statement.order[:2]:
                replaced.setdefault(j, Newer(statement.turn, i, whole=False))
        recent[statement.session] = [*near[1 - MOST_ALIKE :], i]
        index.add(i)
        frames.setdefault(now.frame, []).append(i)
    return {j: _newest(j, replaced, read) for j in replaced if not _is_restored(j, replaced, read)}


def _only_value(now: ParsedStatement) -> Value | None:
    """The value of a statement that only says that it is another one: "Make it 7000 instead." Else None."""
    if not now.says_changed or now.says_ended or len(now.located_values) != 1:
        return None
    (value,) = now.located_values
    return value if now.words - CHANGE_STEMS <= {value.unit} and not value.negated else None


def _with_one_value(recent: Sequence[int], new: Value, read: Mapping[int, ParsedStatement]) -> Sequence[int]:
    """Those of `recent` statements that have a value that `new` can replace, if they all end with the same one."""
    fitting = {j: [each.text for each in read[j].located_values if _stands_for(new, each)] for j in recent}
    last = {j: values[-1] for j, values in fitting.items() if values}
    return [*last] if len({*last.values()} - {new.text}) == 1 else []


def _is_restored(j: int, replaced: Mapping[int, Newer], read: Mapping[int, ParsedStatement]) -> bool:
    """Does the last in a chain of replacing statements repeat all values of the first? What changed and changed back
    holds."""
    last = replaced[j].statement
    while last in replaced:
        last = replaced[last].statement
    return read[j].all_values <= read[last].tokens and last != replaced[j].statement


def _newest(j: int, replaced: Mapping[int, Newer], read: Mapping[int, ParsedStatement]) -> Newer:
    """The last in a chain of statements that replaced j and then each other: whole, or naming the value that replaced
    the one of j."""
    newer = replaced[j]
    while later := replaced.get(newer.statement):
        if not (later.whole or _names_value(read[later.statement], read[newer.statement], of=read[j])):
            break
        newer = later._replace(whole=newer.whole)
    return newer


def _names_value(now: ParsedStatement, newer: ParsedStatement, *, of: ParsedStatement) -> bool:
    """Does `now`, which replaces `newer`, replace the value that `newer` has instead of one `of` the oldest? It repeats
    that value, or `newer` has no other one that is new."""
    added = [before for before in newer.located_values if before.text not in of.tokens]
    values = [new for new in now.located_values if new.text not in newer.tokens]
    if now.says_changed and len(added) == 1 and any(_stands_for(new, added[0]) for new in values):
        return True
    return any(_names_old_value(now, new, before) for new in values for before in added)


class _StatementIndex:
    """Finds earlier statements by their stems and values. They are indexed when the first one with a signal of change
    asks."""

    def __init__(self, read: Mapping[int, ParsedStatement]) -> None:
        self._read = read
        self._of: dict[str, list[int]] = {}
        self._waiting: list[int] = []

    def add(self, i: int) -> None:
        self._waiting.append(i)

    def sharing_with(self, now: ParsedStatement) -> Iterable[int]:
        """Earlier statements that share a stem or a value with `now`, at most MOST_RIVALS."""
        for i in self._waiting:
            each = self._read[i]
            for stem in (*each.words, *each.all_values) if each.values else ():
                self._of.setdefault(stem, []).append(i)
        self._waiting.clear()
        sharing = [
            i for stem in (*(now.words - CHANGE_STEMS), *now.all_values) for i in self._of.get(stem, ())[-MOST_RIVALS:]
        ]
        return dict.fromkeys(sorted(sharing, reverse=True)[:MOST_RIVALS])


def _rivals(now: ParsedStatement, index: _StatementIndex, frames: Mapping[tuple[str, ...], list[int]]) -> Iterable[int]:
    """Earlier statements that `now` may replace."""
    if not now.values:
        return ()
    if now.says_changed or now.says_ended:
        return index.sharing_with(now)
    same = frames.get(now.frame)
    return same[: -MOST_ALIKE - 1 : -1] if same and now.words else ()


def _replaces(now: ParsedStatement, old: ParsedStatement) -> bool:
    """Is `now` about the same as `old` with another value, or without one because something is over?"""
    if now.says_ended and now.all_values <= old.all_values:
        over = now.words - CHANGE_STEMS
        return over <= old.words and (bool(over) or now.all_values == old.all_values)
    gone, added = old.all_values - now.tokens, now.all_values - old.tokens
    if not now.says_changed:
        alike = now.frame == old.frame and len(gone) == 1 == len(added)
        return alike and any(new.text in added and new.stated for new in now.located_values)
    return any(
        new.text in added and added.isdisjoint(new.other_values) and not new.negated and _changes(now, new, old, gone)
        for new in now.located_values
    )


def _changes(now: ParsedStatement, new: Value, old: ParsedStatement, gone: AbstractSet[str]) -> bool:
    """Does `new`, a value of the newer statement, replace a value of the older? gone: values only the older has"""
    if not new.head <= old.words_and_values:
        return False
    if any(_names_old_value(now, new, before) for before in old.located_values):
        return True
    is_of_it = not now.says_ended and not new.head.isdisjoint(old.words)
    return is_of_it and any(_stands_for(new, before) for before in old.located_values if before.text in gone)


def _names_old_value(now: ParsedStatement, new: Value, old: Value) -> bool:
    """Does the newer statement repeat the old value as the one that `new` replaces ("9443 instead of 8080"), and not as
    the name of a record?"""
    named = next((each for each in now.located_values if old.text in (each.text, *each.text.split())), None)
    if named is None or named == new:
        return False
    is_record = named.before and named.before != new.before and not named.negated
    return new.sort == old.sort and not is_record and (not new.unit or not old.unit or new.unit == old.unit)


def _stands_for(new: Value, old: Value) -> bool:
    """Can `new` replace `old` if no word repeats `old`? Both must have the same sort and unit, end their clause or
    count the same thing, and not name records."""
    goes_on = old.tail if new.sort == "name" or old.before else new.tail and old.tail
    if (new.sort, new.unit, new.tail) != (old.sort, old.unit, goes_on):
        return False
    is_measure = bool(new.unit) and (new.unit in UNITS or not (new.before or old.before))
    if (new.unit or new.tail) and not is_measure:
        return False
    if new.unit in UNITS:
        return True
    return new.before == old.before and (new.after_to or bool(new.unit) or not new.before)


def _is_whole(now: ParsedStatement, old: ParsedStatement) -> bool:
    """Does the newer statement contain all of the older except the value that changed? Then nothing is lost with the
    older."""
    gone, added = old.all_values - now.tokens, now.all_values - old.tokens
    changed = [before for before in old.located_values if before.text in gone]
    values = [new for new in now.located_values if new.text in added]
    only = len(gone) <= bool(values) and all(_stands_for(new, before) for new in values for before in changed)
    return now.says_changed and only and old.words - OWN <= now.words | now.all_values


class Changes:
    """An older text, to be compared with newer ones that may contradict it, with or without a signal of change."""

    def __init__(self, old: str) -> None:
        self._old = parse_statement(old)

    def has_other_value(self, new: str) -> bool:
        """Has `new` a value that the older text lacks, of a sort of which the older text has another one?"""
        later, before = parse_statement(new).values, self._old.values
        return any(later[sort] - self._old.tokens for sort in later.keys() & before.keys())

    def lacks(self, value: Value) -> bool:
        """Does the older text lack `value`, but no name that stands beside it?"""
        names = {each for each in value.other_values if not any(map(str.isdigit, each))}
        return value.text not in self._old.tokens and names <= self._old.tokens

    def has_same_unit(self, new: str) -> bool:
        """Has `new` another value of the same unit: 7450 for 7600 or 10 mg for 20 mg, but not "6 weeks"?"""
        kinds = {(sort, unit) for _, sort, unit in self._old.kinds}
        new_kinds = [
            (sort, unit) for value, sort, unit in parse_statement(new).kinds if value not in self._old.all_values
        ]
        return any(kind in kinds and kind[0] != "name" for kind in new_kinds)

    def has_another(self, new: str) -> bool:
        """Has `new` another value of the same unit, or does it have names alone and another one?"""
        only_names = all(value.sort == "name" for value in parse_statement(new).located_values)
        return self.has_same_unit(new) or (only_names and self.has_other_value(new))

    def names_old_value(self, new: str) -> bool:
        """Does `new` repeat a value of the older text? A name counts even where it cannot be told from other words, as
        at the start of a sentence."""
        return not parse_statement(new).tokens.isdisjoint(self._old.all_values)


def stating(passage: Passage, of: Sequence[Line]) -> tuple[int, ...]:
    """Lines in which a user or an assistant states something that a later statement may replace. Table rows are left
    out: what replaces one cell says nothing of the others."""
    stating_lines = [
        i
        for i, line in enumerate(of if passage.speaker in ("user", "assistant") else ())
        if line.keys and len(line.flat) <= MOST_CHARS and not line.flat.startswith("```")
    ]
    rows = {i for table in tables(passage, of) for i in table} if stating_lines else ()
    return tuple([i for i in stating_lines if i not in rows])


def precompute(statement: str) -> None:
    """Compute in advance what `superseded` caches of a statement."""
    read = parse_statement(statement)
    _ = read.words, read.says_changed, read.says_ended


def statements_of_request(question: str, users_text: str) -> Iterator[str]:
    """Sentences of the request that may replace what was lost: those of the question, and those that signal a
    change."""
    found = [question[a:b] for a, b in sentences(question[:HELD_CHARS])]
    for text in users_text.splitlines():
        found += [change for a, b in sentences(text) if CUE.search(change := text[a:b])]
    yield from (each for each in dict.fromkeys(found) if len(each) <= MOST_CHARS and not ends_asking(each))
