"""The recipe `lantern`: the LANTERN paper's own method, as a baseline.

Extractive summaries of turns, four rankings (vector, lexical, keywords, importance), reciprocal rank fusion (k = 60),
MMR with lambda = 0.7, whole summaries into 6,000 characters; the query is the compaction's summary and the question.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from lantern_proxy import pack
from lantern_proxy.config import Config
from lantern_proxy.rank import Floats, diversify, fuse, importance, overlap, ranking
from lantern_proxy.restore.block import Picked
from lantern_proxy.restore.candidates import Source
from lantern_proxy.restore.dense import Dense
from lantern_proxy.restore.passages import ReadPassage
from lantern_proxy.restore.present import Present
from lantern_proxy.restore.question import Question, parse_question
from lantern_proxy.restore.rerank import Rerankers
from lantern_proxy.restore.scope import Scope
from lantern_proxy.turn import Passage

if TYPE_CHECKING:
    from lantern_proxy.restore.ask import Ask

MOST_TERMS = 256
"""Most index terms of the query, which is a summary and a question."""
MOST_TURNS = 64
"""Turns that MMR orders: more than any budget holds."""


class RankedTurns(Struct, frozen=True):
    """The best turns of a scope and their scores."""

    rows: dict[int, int]
    """Passage id -> row in the scope, best first."""
    fused: dict[int, float]
    signals: dict[str, Floats]
    considered: int
    """How many turns the request lacks."""

    def of(self, row: int) -> dict[str, float]:
        """signal -> score of the turn at `row`."""
        return {name: float(values[row]) for name, values in self.signals.items()}


def rank_turns(scope: Scope, present: Present, ask: "Ask", dense: Dense, config: Config) -> RankedTurns:
    """The turns that the request lacks, in the paper's order."""
    question = parse_question(f"{ask.summary}\n{ask.question}", most_terms=MOST_TERMS)
    rows = [row for row, read in enumerate(scope.passages) if _lost(read, present)]
    signals = _signals(scope, question, ask, dense, config)
    weights = {str(name): float(weight) for name, weight in config.restore.weights.items()}
    fused = fuse(_rankings(signals, rows), weights, k=config.restore.rrf_k)
    passages = scope.passages

    def similarity(a: int, b: int) -> float:
        return overlap(passages[a].words, passages[b].words)

    order = diversify(fused, similarity, lam=config.restore.mmr_lambda, limit=MOST_TURNS)
    return RankedTurns({passages[row].passage.id: row for row in order}, fused, signals, len(rows))


def pick_turns(ranked: RankedTurns, source: Source, ask: "Ask", rerankers: Rerankers) -> Picked:
    """The ranked turns that no rule and no person excludes, whole, up to the budget."""
    now = source.archive.of(ask.tenant).passages_by_id([*ranked.rows])
    kept: list[Passage] = []
    for passage in (now[id_] for id_ in ranked.rows if id_ in now):
        reason = source.refused(passage)
        ask.passed.add(passage, reason or "budget", value=passage.confidence, row=ranked.rows[passage.id])
        kept += [] if reason else [passage]
    ask.passed.weigh(ranked.fused.__getitem__, ranked.of)
    if rerankers.on:
        kept = [kept[i] for i in rerankers.order(ask, ask.question or ask.summary, kept)]
    totals = {passage.id: ranked.fused[ranked.rows[passage.id]] for passage in kept}
    signals = {passage.id: ranked.of(ranked.rows[passage.id]) for passage in kept}
    return Picked("loss", pack.whole(kept, ask.budget_chars, ask.session), totals, signals, ranked.considered)


def _signals(scope: Scope, question: Question, ask: "Ask", dense: Dense, config: Config) -> dict[str, Floats]:
    """The paper's four signals, each (n,); `vector` only if it is available."""
    signals: dict[str, Floats] = {"bm25": scope.lexical(question.terms)}
    meaning = dense.compare(scope, question, ask) if dense.begin(scope, question, ask) else None
    if meaning is not None:
        signals["vector"] = meaning.cosines
    wanted = frozenset(question.terms)
    signals["keywords"] = np.array([float(len(wanted & read.tag_terms)) for read in scope.passages])
    signals["importance"] = np.array([_importance(read.passage, ask.now, config) for read in scope.passages])
    return signals


def _rankings(signals: dict[str, Floats], rows: Sequence[int]) -> dict[str, list[int]]:
    """signal -> rows best first, without those that it does not rank."""
    chosen = frozenset(rows)
    return {name: [row for row in ranking(values) if row in chosen] for name, values in signals.items()}


def _lost(read: ReadPassage, present: Present) -> bool:
    """Does the request lack any line of a turn's summary? The speakers in front of lines are ignored."""
    said = [line for line in read.passage.text.split("\n") if not line.startswith(("tools:", "files:"))]
    return not all(present.holds([" ".join((line.partition(": ")[2] or line).split()) for line in said]))


def _importance(passage: Passage, now: float, config: Config) -> float:
    return importance(
        now - passage.created_at,
        accesses=passage.accesses,
        tools=bool(passage.tools),
        files=any("/" in tag or "." in tag[1:-1] for tag in passage.tags),
        confidence=passage.confidence,
        success=passage.success,
        half_life_s=config.reinforce.half_life_s,
    )
