"""How clients that could exist shorten their history, or rewrite it and lose nothing.

SUMMARISED[style](case) -> (what is appended to the system prompt, the history that is left, the question at its end)
SILENT, HARMLESS[style](case) -> the history that is left, without the question
VIEWS[style](history, tail) -> what is sent of a history that the client keeps whole
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from possible.wire import Call, Msg

History = list[Msg]
CLIENT_WORDS = "This session is being continued from a previous conversation that ran out of context."


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A history that has become too long."""

    history: Sequence[Msg]
    question: Msg
    tail: int
    summary: str = ""
    """With the words that the client puts around it."""
    earlier: list[str] = field(default_factory=list)
    """Summaries of earlier compactions, for those that keep them."""
    rng: random.Random

    @property
    def first(self) -> Msg:
        return next(m for m in self.history if m.role == "user")

    def told(self, role: str = "user") -> Msg:
        return Msg(role, (self.summary,))

    def kept(self, count: int | None = None) -> History:
        """The last messages, no result without its call, no summary of before."""
        return [m for m in _last(self.history, self.tail if count is None else count) if m.number]

    def kept_behind(self, first: Sequence[Msg], count: int) -> History:
        shown = {m.number for m in first}
        return [m for m in self.kept(count) if m.number not in shown]

    def asked(self, *before: str) -> Msg:
        """The question, with texts of their own before it."""
        return replace(self.question, texts=(*before, *self.question.texts))


def wrapped(summary: str, preamble: str, words: str) -> str:
    """A summary with what a client puts around it. words: such words in the conversation's language"""
    return {
        "none": summary,
        "words": f"{words}\n\n{summary}",
        "client": f"{CLIENT_WORDS}\n{summary}",
        "tags": f"<summary>\n{summary}\n</summary>",
        "heading": f"## {words}\n{summary}",
    }[preamble]


def _last(history: Sequence[Msg], count: int) -> History:
    kept = list(history[-count:]) if count else []
    while kept and kept[0].role == "result":
        kept = kept[1:]
    return kept


def _in_front(m: Msg, text: str) -> Msg:
    return replace(m, texts=(f"{text}\n\n{m.texts[0]}", *m.texts[1:]))


# --- a summary stands for what is gone -------------------------------------------------------------------------------


def _inside_first(c: Case) -> History:
    first = replace(c.first, texts=(c.first.texts[0], c.summary))
    return [first, *c.kept_behind([first], 3), c.question]


def _behind_the_first(c: Case) -> History:
    first: History = []
    for m in c.history:
        if not m.number or (len(first) >= c.tail and m.role != "result"):
            break
        first.append(m)
    while first and first[-1].call and first[-1].role == "assistant":
        first.pop()
    return [*first, c.told(), *c.kept_behind(first, 4), c.question]


def _in_front_of_kept(c: Case) -> History:
    kept = c.kept(max(c.tail, 3))
    while kept and kept[0].role != "user":
        kept = kept[1:]
    return [_in_front(kept[0], c.summary), *kept[1:], c.question] if kept else [_in_front(c.question, c.summary)]


def _as_a_result(c: Case) -> History:
    call = Call(f"call_memory_{c.rng.randrange(10**6)}", "recall", "{}")
    recalled = [Msg("user", ("...",)), Msg("assistant", call=call), Msg("result", (c.summary,), call=call)]
    return [*recalled, *c.kept(), c.question]


def _one_by_one(c: Case) -> History:
    """Summaries pile up until there are three."""
    c.earlier[:] = [*c.earlier, c.summary] if len(c.earlier) < 2 else [c.summary]
    return [*(Msg("user", (text,)) for text in c.earlier), *c.kept(), c.question]


def _messages(build: Callable[[Case], History]) -> Callable[[Case], tuple[str, History]]:
    return lambda c: ("", build(c))


SUMMARISED: dict[str, Callable[[Case], tuple[str, History]]] = {
    "user_tail": _messages(lambda c: [c.told(), *c.kept(), c.question]),
    "user_alone": _messages(lambda c: [c.told(), c.question]),
    "user_ack_tail": _messages(lambda c: [c.told(), Msg("assistant", ("OK.",)), *c.kept(), c.question]),
    "assistant_tail": _messages(lambda c: [c.told("assistant"), *c.kept(), c.question]),
    "assistant_alone": _messages(lambda c: [c.told("assistant"), c.question]),
    "first_assistant": _messages(lambda c: [c.first, c.told("assistant"), *c.kept_behind([c.first], 3), c.question]),
    "system_tail": _messages(lambda c: [c.told("system"), *c.kept(), c.question]),
    "system_alone": _messages(lambda c: [c.told("system"), c.question]),
    "developer_tail": _messages(lambda c: [c.told("developer"), *c.kept(), c.question]),
    "appended_tail": lambda c: (c.summary, [*c.kept(), c.question]),
    "appended_alone": lambda c: (c.summary, [c.question]),
    "inside_first": _messages(_inside_first),
    "behind_the_first": _messages(_behind_the_first),
    "users_kept": _messages(lambda c: [*[m for m in c.history if m.role == "user" and m.number], c.told(), c.question]),
    "in_question": _messages(lambda c: [_in_front(c.question, c.summary)]),
    "in_question_part": _messages(lambda c: [c.asked(c.summary)]),
    "as_a_result": _messages(_as_a_result),
    "in_front_of_kept": _messages(_in_front_of_kept),
    "one_by_one": _messages(_one_by_one),
}


# --- nothing stands for it -------------------------------------------------------------------------------------------


def _third_of_chars(c: Case) -> History:
    room, kept = sum(len(m.text) for m in c.history) // 3, 0
    for m in reversed(c.history):
        room -= len(m.text)
        if room < 0 and kept:
            break
        kept += 1
    return _last(c.history, kept)


def _from_a_result_on(c: Case) -> History:
    """Carelessly cut: a result without its call comes first."""
    results = [at for at, m in enumerate(c.history[:-1]) if m.role == "result"]
    return list(c.history[results[-1] if results else -4 :])


def _without_pairs(c: Case) -> History:
    last = len(c.history) - 4
    return [m for at, m in enumerate(c.history) if at >= last or not (m.call or m.role == "result")]


CLEARED: dict[str, Callable[[str], str]] = {
    "placeholder": lambda text: "[old tool result cleared]",
    "empty": lambda text: "",
    "middle": lambda text: f"{text[:40]}\n[... truncated ...]\n{text[-40:]}",
    "file": lambda text: f"Output saved to /tmp/out/{len(text)}.txt",
    "half": lambda text: text[: len(text) // 2] + "…",
}
"""What is left of a result."""


def _cleared(history: Sequence[Msg], how: str, kept: int = 1) -> History:
    """All results but the last ones."""
    results = [at for at, m in enumerate(history) if m.role == "result"]
    old = {*results[:-kept]}
    return [replace(m, texts=(CLEARED[how](m.text),)) if at in old else m for at, m in enumerate(history)]


def _clearing(how: str) -> Callable[[Case], History]:
    return lambda c: _cleared(c.history, how)


def _without_images(c: Case, *mark: str) -> History:
    return [replace(m, image=False, texts=(*mark, *m.texts)) if m.image else m for m in c.history]


def _cut_short(c: Case, role: str, chars: int, mark: str) -> History:
    """Long messages of one speaker, but for the last ones. The upstream's copy of one is whole: no reference."""
    old = [m.role == role and not m.call and len(m.text) > 3 * chars for m in c.history[:-2]]
    cut = [
        replace(m, texts=(m.text[:chars] + mark,), item="") if is_old else m
        for m, is_old in zip(c.history, old, strict=False)
    ]
    return [*cut, *c.history[-2:]]


SILENT: dict[str, Callable[[Case], History]] = {
    "window_messages": lambda c: _last(c.history, max(2, c.tail)),
    "window_chars": _third_of_chars,
    "window_mid_tools": _from_a_result_on,
    "window_after_first": lambda c: [c.first, *[m for m in _last(c.history, 4) if m.number != c.first.number]],
    "pairs_left_out": _without_pairs,
    **{f"cleared_{how}": _clearing(how) for how in CLEARED},
    "images_replaced": lambda c: _without_images(c, "[image removed]"),
    "images_left_out": _without_images,
    "users_cut_short": lambda c: _cut_short(c, "user", 120, "… [truncated]"),
    "answers_cut_short": lambda c: _cut_short(c, "assistant", 100, "…"),
}
VIEWS: dict[str, Callable[[Sequence[Msg], int], History]] = {
    "view_window": lambda history, tail: _last(history, 2 * max(4, tail)),
    "view_cleared": lambda history, tail: _cleared(history, "placeholder", 2),
}


# --- nothing is lost -------------------------------------------------------------------------------------------------


def _texts(c: Case, change: Callable[[str], str]) -> History:
    return [replace(m, texts=tuple(map(change, m.texts))) for m in c.history]


def _at_most_60(text: str) -> str:
    return "\n".join(re.findall(r".{1,60}(?:\s|$)|.{1,60}", text))


def _other_signs(text: str) -> str:
    return text.replace("'", "’").replace("...", "…").replace("—", "-")  # noqa: RUF001


def _users_joined(c: Case) -> History:
    """Messages of the user that follow each other are one."""
    out: History = []
    for m in c.history:
        if out and out[-1].role == m.role == "user":
            out[-1] = replace(out[-1], texts=("\n\n".join([*out[-1].texts, *m.texts]),))
        else:
            out.append(m)
    return out


HARMLESS: dict[str, Callable[[Case], History]] = {
    "thoughts_left_out": lambda c: [replace(m, thought="") for m in c.history],
    "white_space": lambda c: _texts(c, lambda text: " ".join(text.split())),
    "line_breaks": lambda c: _texts(c, _at_most_60),
    "typography": lambda c: _texts(c, _other_signs),
    "users_joined": _users_joined,
    "one_text": lambda c: [Msg("user", ("\n\n".join(f"{m.role.upper()}: {m.text}" for m in c.history),))],
}
