"""Runs pipelines over collections: routes questions, scores answers, and computes confidence intervals."""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lantern_proxy.bench import metrics
from lantern_proxy.bench.datasets import Conversation, Question
from lantern_proxy.bench.pipelines import Advance, Pipeline, Query, Trainable
from lantern_proxy.rank import Floats, Ints

SEEDS = (7, 11, 23, 31, 47)
"""Of the ConvMemory papers' splits."""

SHARE = 0.2
"""Share of the second-best turn's score that a session gains; SHARE squared for the third-best, and so on."""


@dataclass(frozen=True, slots=True)
class Rankings:
    """The result for one question: ids of candidates and of sessions, best first."""

    candidates: list[str]
    sessions: list[str]


Measure = Callable[[Rankings, Question, frozenset[str]], dict[str, float]]
"""(rankings, question, sessions that hold gold) -> metric -> value."""


def locomo(ranked: Rankings, asked: Question, sessions: frozenset[str]) -> dict[str, float]:
    return {
        "turn.mrr": metrics.reciprocal_rank(ranked.candidates, asked.gold),
        "turn.hit@1": metrics.hit(ranked.candidates, asked.gold, 1),
        "turn.recall@10": metrics.recall(ranked.candidates, asked.gold, 10),
        "session.hit@1": metrics.hit(ranked.sessions, sessions, 1),
        "session.hit@5": metrics.hit(ranked.sessions, sessions, 5),
        "session.hit@10": metrics.hit(ranked.sessions, sessions, 10),
        "session.mrr": metrics.reciprocal_rank(ranked.sessions, sessions),
        "session.ra@5": metrics.recall_all(ranked.sessions, sessions, 5),
    }


def beam(ranked: Rankings, asked: Question, sessions: frozenset[str]) -> dict[str, float]:
    return {
        "recall@10": metrics.recall(ranked.candidates, asked.gold, 10),
        "ndcg@10": metrics.ndcg(ranked.candidates, _grades(asked), 10),
    }


def longmemeval(ranked: Rankings, asked: Question, sessions: frozenset[str]) -> dict[str, float]:
    return {
        "recall_all@5": metrics.recall_all(ranked.sessions, sessions, 5),
        "ndcg@5": metrics.ndcg(ranked.sessions, dict.fromkeys(sessions, 1.0), 5),
    }


def ir(ranked: Rankings, asked: Question, sessions: frozenset[str]) -> dict[str, float]:
    return {"ndcg@10": metrics.ndcg(ranked.candidates, _grades(asked), 10)}


def _grades(asked: Question) -> Mapping[str, float]:
    return asked.grades or dict.fromkeys(asked.gold, 1.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The metrics of one question. ms: CPU milliseconds of ranking, including the embedding of the question."""

    conversation: str
    question: int
    category: str
    ms: float
    values: dict[str, float]

    @property
    def key(self) -> tuple[str, int]:
        return self.conversation, self.question


def judge(
    pipeline: Pipeline, conversations: Sequence[Conversation], measure: Measure, advance: Advance
) -> Iterator[Outcome]:
    """Ask every question of every conversation. advance: called with 1 after each"""
    for conversation in conversations:
        score = pipeline.prepare(conversation)
        ids = [candidate.id for candidate in conversation.candidates]
        names = list(dict.fromkeys(candidate.session for candidate in conversation.candidates))
        number = {name: n for n, name in enumerate(names)}
        group = np.array([number[candidate.session] for candidate in conversation.candidates], np.int64)
        session_of = {candidate.id: candidate.session for candidate in conversation.candidates}
        for n, asked in enumerate(conversation.questions):
            begun = time.process_time()
            scores = score(Query(asked.text, asked.at))
            ms = (time.process_time() - begun) * 1e3
            ranked = Rankings(
                [ids[row] for row in _order(scores)], [names[s] for s in _order(by_group(scores, group, share=SHARE))]
            )
            sessions = frozenset(session_of[each] for each in asked.gold)
            yield Outcome(conversation.id, n, asked.category, ms, measure(ranked, asked, sessions))
            advance(1)


def by_group(scores: Floats, group: Ints, *, share: float = 0.0) -> Floats:
    """Scores of groups (sessions) from those of their members: the best one, plus a decreasing share of the others.

    scores: (n,); group: (n,) number of each member's group, 0 .. m - 1, none empty; returns (m,)
    share:  of the second best; the third adds share^2 and so on. Members count from the lowest score of all.
    """
    if not len(scores):
        return np.zeros(0)
    raised = scores - scores.min()
    order = np.lexsort((-raised, group))
    starts = np.flatnonzero(np.r_[True, np.diff(group[order]) != 0])
    place = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    total = np.zeros(int(group.max()) + 1)
    np.add.at(total, group[order], raised[order] * float(share) ** place)
    return total


def _order(scores: Floats) -> list[int]:
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order


Split = tuple[list[str], list[str]]


def splits(conversations: Sequence[Conversation]) -> Iterator[Split]:
    """(dev, test) ids for each of SEEDS: ids sorted, shuffled, first half dev, second half test."""
    for seed in SEEDS:
        ids = sorted(conversation.id for conversation in conversations)
        random.Random(seed).shuffle(ids)
        half = len(ids) // 2
        yield ids[:half], ids[half:]


def by_splits(
    pipeline: Pipeline, conversations: Sequence[Conversation], measure: Measure, advance: Advance
) -> list[list[Outcome]]:
    """The outcomes of each seed's test half. A trainable pipeline is trained on the dev half of the same seed; any
    other answers each question once for all seeds."""
    known = {conversation.id: conversation for conversation in conversations}
    if isinstance(pipeline, Trainable):
        return [
            list(judge(pipeline.train([known[i] for i in dev]), [known[i] for i in test], measure, advance))
            for dev, test in splits(conversations)
        ]
    wanted = {i for _, test in splits(conversations) for i in test}
    outcomes = list(judge(pipeline, [known[i] for i in sorted(wanted)], measure, advance))
    return [[outcome for outcome in outcomes if outcome.conversation in test] for _, test in splits(conversations)]


def questions_of(pipeline: Pipeline, conversations: Sequence[Conversation], *, split: bool) -> int:
    """Number of questions to be asked, for a progress bar."""
    count = {conversation.id: len(conversation.questions) for conversation in conversations}
    if not split:
        return sum(count.values())
    tests = [test for _, test in splits(conversations)]
    if isinstance(pipeline, Trainable):
        return sum(count[i] for test in tests for i in test)
    return sum(count[i] for i in {i for test in tests for i in test})


@dataclass(frozen=True, slots=True)
class Report:
    """Means of one pipeline, and one value per question (averaged over its splits) for comparisons."""

    n: tuple[int, ...]
    """Questions of each split; one number without splits."""
    means: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    ms_per_query: float
    categories: dict[str, dict[str, float]]
    values: dict[tuple[str, int], dict[str, float]]


def report(runs: Sequence[Sequence[Outcome]]) -> Report:
    """The mean over runs of the mean over questions, with bootstrap intervals over distinct questions, each weighted by
    its share in that mean: more, the more runs it is in and the fewer questions these have."""
    runs = [run for run in runs if run]
    if not runs:
        raise ValueError("no question has evidence among the candidates; nothing to measure")
    outcomes: dict[tuple[str, int], list[Outcome]] = {}
    shares: dict[tuple[str, int], list[float]] = {}
    for run in runs:
        for outcome in run:
            outcomes.setdefault(outcome.key, []).append(outcome)
            shares.setdefault(outcome.key, []).append(1 / len(runs) / len(run))
    values = {key: _means([outcome.values for outcome in found]) for key, found in outcomes.items()}
    categories: dict[str, list[dict[str, float]]] = {}
    for key, found in outcomes.items():
        categories.setdefault(found[0].category, []).append(values[key])
    share = np.array([sum(each) for each in shares.values()])
    added = {
        name: np.array([np.dot(shares[key], [each.values[name] for each in found]) for key, found in outcomes.items()])
        for name in runs[0][0].values
    }
    return Report(
        n=tuple(len(run) for run in runs),
        means={name: float(each.sum()) for name, each in added.items()},
        intervals={name: metrics.interval(each / share, share) for name, each in added.items()},
        ms_per_query=float(np.mean([outcome.ms for run in runs for outcome in run])),
        categories={category: _means(found) for category, found in sorted(categories.items())},
        values=values,
    )


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric."""
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def compare(a: Report, b: Report) -> dict[str, tuple[float, float, float, float]]:
    """Metric -> (mean of a - b, low, high, p) over the questions that both answered; see metrics.paired."""
    shared = sorted(a.values.keys() & b.values.keys())
    return {
        name: metrics.paired(
            np.array([a.values[key][name] for key in shared]), np.array([b.values[key][name] for key in shared])
        )
        for name in a.means
    }
