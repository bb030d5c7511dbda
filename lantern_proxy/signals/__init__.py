"""Kinds of evidence for a passage, each a pure scoring function over a question's candidates; larger is better.

words      BM25 (bm25/), with scores flowing into neighbours (rank.smooth)
vectors    cosine, and word by word (signals/late.py)
alike      signals/word_similarity.py: word by word with a table, while there are no vectors
keywords   keywords(): terms of the question among tags, paths and tool names
speaker    speaker_scores(): is the passage by the speaker that the question is about?
dates      signals/dates.py: days named in the question and in the passage
form       signals/form.py: the kind of answer that is wanted, and the kind of text a passage is
"""

import re
from collections.abc import Collection, Sequence

import numpy as np

from lantern_proxy.analyze import terms
from lantern_proxy.rank import Floats

_NAME = re.compile(r"([^\W\d_][\w.'\u2019-]{1,30}): ")
_TRANSCRIPT_NAME = re.compile(
    r"(?:[\[(]?\d{1,2}[:.]\d\d(?:[:.]\d\d)?(?: ?[ap]m)?[\])]?,? +)?(?:- )?"
    r"([^\W\d_][\w.'\u2019-]{0,30}(?: [^\W\d_][\w.'\u2019-]{0,30}){0,2}): "
)
"""A speaker's name in front of a line of a transcript: "[09:02] Mara Ode: ", "Özlem: "."""


def speaker_name(text: str) -> str:
    """The index term of a speaker's name in front of a passage ("Caroline: we moved"), as in group chats; "" if
    none."""
    match = _match_name(text)
    found = terms(match.group(1)) if match else []
    return found[0] if found else ""


def speaker_name_end(text: str) -> int:
    """Where the speaker's name in front of a passage ends, after its colon; 0 if there is none."""
    match = _match_name(text)
    return match.end() - 1 if match else 0


def _match_name(text: str) -> re.Match[str] | None:
    return _NAME.match(text) if text[:1].isupper() else None


def transcript_name_end(text: str, at: int) -> int:
    """Where the speaker's name in front of a transcript's line ends; 0 if there is none. It may include a time and
    several names.

    at: where the line begins
    """
    match = _TRANSCRIPT_NAME.match(text, at)
    words = match[1].split() if match else []
    return match.end() - 1 if match and words[0][0].isupper() and words[-1][0].isupper() else 0


MIN_NAMED_SHARE = 0.25
"""Least share of user text with names in front of it; the rest may be later pieces of long messages."""


def has_speaker_names(names: Sequence[str], speakers: Sequence[str], counts: Sequence[int] | None = None) -> bool:
    """Do user messages begin with their author's name, as in group chats? In only a few of them it is a heading:
    "Hotels: ".

    names:    the possible name in front of each text, "" if there is none
    speakers: of each text
    counts:   how many texts each entry stands for; None: one
    """
    texts = zip(names, speakers, counts or [1] * len(names), strict=True)
    user_texts = [(n, n if name else 0) for name, speaker, n in texts if speaker == "user"]
    return sum(n for _, n in user_texts) >= max(2.0, MIN_NAMED_SHARE * sum(n for n, _ in user_texts))


def speaker_scores(roles: Sequence[str], names: Sequence[str], question_terms: Collection[str], role: str) -> Floats:
    """(n,) 1 for passages by the speaker that the question is about, else 0.

    roles: speaker of each candidate: user, assistant, tool ...
    names: speaker_name() of each
    question_terms: index terms of the question
    role:  used if the question names no speaker; "" for nobody in particular: then all get 0
    """
    named = set(names) & set(question_terms)
    return np.array(
        [name in named for name in names] if named else [each == role for each in roles],
        np.float64,
    )


def keywords(wanted: Collection[str], tagged: Sequence[Collection[str]]) -> Floats:
    """(n,) share of the question's terms among the terms of each candidate's tags and tools. wanted: not empty"""
    sought = frozenset(wanted)
    return np.array([len(sought.intersection(own)) / len(wanted) for own in tagged], np.float64)
