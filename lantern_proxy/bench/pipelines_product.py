"""Lantern's own pipeline, from archiving to the fused ranking: a real archive, real passages, restore's signals."""

import math
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from msgspec import structs

from lantern_proxy import chunk, tune, tune_label
from lantern_proxy.archive import Archive, Record, RequestRow, SessionRow
from lantern_proxy.bench.datasets import Candidate, Conversation
from lantern_proxy.bench.pipelines import Advance, Pipeline, Query, Scorer, refuse_unknown
from lantern_proxy.bench.resources import Resources
from lantern_proxy.config import Config, RestoreConfig
from lantern_proxy.config.retrieval import RetrievalConfig
from lantern_proxy.embed import available
from lantern_proxy.rank import Floats, Ints
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.dense import Dense
from lantern_proxy.restore.light import Reorder
from lantern_proxy.restore.question import parse_question
from lantern_proxy.restore.scope import Key, Scope
from lantern_proxy.restore.signals import WEIGHTS, gather, precompute
from lantern_proxy.turn import Filed, Passage, Role, item, message

TENANT = "bench"


class Default:
    """The ranking of `lantern serve` for a question, with the given configuration (--config)."""

    def __init__(self, resources: Resources, without: frozenset[str] = frozenset()) -> None:
        refuse_unknown("default", without, list(WEIGHTS))
        settings = resources.config.restore
        weights = {str(signal): weight for signal, weight in settings.weights.items()} | dict.fromkeys(without, 0.0)
        self._restore = replace(settings, weights=weights)  # type: ignore[arg-type]
        wanted = not {"vector", "late"} <= without
        self._dense = wanted and resources.config.embed.enabled != "off" and available()
        self._resources = resources
        self._retrieval = resources.config.retrieval

    def prepare(self, conversation: Conversation) -> Scorer:
        return self.archived(conversation).scorer()

    def archived(self, conversation: Conversation) -> "Archived":
        return Archived(conversation, self._resources, self._restore, self._retrieval, dense=self._dense)

    def labelled(
        self, conversations: Sequence[Conversation], advance: Advance = lambda steps: None
    ) -> list[tune.Labelled]:
        """Their questions, with every signal of every passage. advance: called for each"""
        config = replace(self._resources.config, restore=self._restore)
        made: list[tune.Labelled] = []
        for each in conversations:
            for found in self.archived(each).labelled(each, config):
                made.append(found)
                advance(1)
        return made


class Tuned(Default):
    """The product with the settings that `lantern tune` finds on the training conversations."""

    def train(self, conversations: Sequence[Conversation]) -> Pipeline:
        start = tune_label.start(replace(self._resources.config, restore=self._restore))
        part = tune.fragment(tune.fit(self.labelled(conversations), start), self._retrieval.router)
        made = copy(self)
        made._restore = replace(self._restore, weights=part["restore"]["weights"])
        made._retrieval = replace(self._retrieval, **({"types": {}} | part["retrieval"]))
        return made


class Archived:
    """A conversation in an archive of its own, which is removed with this object."""

    def __init__(
        self,
        conversation: Conversation,
        resources: Resources,
        restore: RestoreConfig,
        retrieval: RetrievalConfig,
        *,
        dense: bool,
    ) -> None:
        folder = tempfile.TemporaryDirectory(prefix="lantern-bench-")
        archive = Archive(Path(folder.name) / "bench.db", synchronous="normal")
        self._restore, self._retrieval, self._n = restore, retrieval, len(conversation.candidates)
        self._now = max((candidate.at for candidate in conversation.candidates), default=0.0)
        self.light: Reorder | None = None
        """Reorders the best, if not None."""
        written, self.rows = _archive(archive, conversation.candidates)
        if dense:
            model = resources.embedder
            texts = [passage.text for passage in written]
            given = [(TENANT, p.session, p.id, v) for p, v in zip(written, resources.vectors(texts), strict=True)]
            tokens = [(TENANT, p.id, words) for p, words in zip(written, resources.tokens(texts), strict=True)]
            archive.add_vectors(model.name, model.dim, given, recipe=model.recipe, tokens=tokens)
        self._vectors = dense
        self._dense = Dense(archive, resources.embedder if dense else None, wanted=False)
        self._scope = Scope(Key(TENANT, None, None))
        self._scope.catch_up(archive, math.inf)
        weakref.finalize(self, _close_all, self._scope, archive, folder)

    def scorer(self, light: Reorder | None = None) -> Scorer:
        """`score` with the given reranker, if any. Values cached per passage are computed now, as the proxy does before
        a compaction."""
        self.light = light
        make = partial(precompute, vectors=self._vectors, reorders=light is not None)
        self._scope.passages.prepare_ahead(len(self._scope), make)
        return self.score

    def score(self, query: Query) -> Floats:
        ask = Ask(tenant=TENANT, question=query.text, now=query.at or self._now)
        evidence = gather(
            self._scope, parse_question(query.text), ask, self._dense, self._restore, self._retrieval, self.light
        )
        found = np.full(self._n, evidence.fused.min(initial=0.0))
        np.maximum.at(found, self.rows, evidence.fused)
        return found

    def labelled(self, conversation: Conversation, config: Config) -> Iterator[tune.Labelled]:
        """The conversation's questions, with every signal of every passage."""
        row_of = {candidate.id: row for row, candidate in enumerate(conversation.candidates)}
        for asked in conversation.questions:
            wanted = {row_of[each] for each in asked.gold}
            gold = [n for n, row in enumerate(self.rows.tolist()) if row in wanted]
            found = tune_label.labelled(self._scope, asked.text, gold, self._dense, config)
            if found is not None:
                yield structs.replace(found, group=conversation.id)


def _close_all(scope: Scope, archive: Archive, folder: "tempfile.TemporaryDirectory[str]") -> None:
    scope.index.close()
    archive.close()
    folder.cleanup()


def _archive(archive: Archive, candidates: Sequence[Candidate]) -> tuple[list[Passage], Ints]:
    """Write everything as the proxy would; the passages, and (p,) the candidate that each was cut from."""
    sessions: dict[str, list[tuple[int, Filed]]] = {}
    for row, filed in _filed(candidates):
        sessions.setdefault(candidates[row].session, []).append((row, filed))
    written: list[Passage] = []
    rows: list[int] = []
    for name, rows_and_messages in sessions.items():
        own = {filed.key: row for row, filed in rows_and_messages}
        cut = [passage for _, filed in rows_and_messages for passage in chunk.passages(filed, name)]
        at = rows_and_messages[0][1].created_at
        (found,) = archive.write(
            [
                Record(
                    tenant=TENANT,
                    session=SessionRow(id=name, api="chat", created_at=at, last_seen_at=at),
                    request=RequestRow(id=f"bench-{name}", at=at, api="chat", path="", event="new"),
                    messages=tuple(filed for _, filed in rows_and_messages),
                    passages=tuple(cut),
                )
            ]
        )
        written += found
        rows += [own[passage.message] for passage in found]
    return written, np.array(rows, np.int64)


def _filed(candidates: Sequence[Candidate]) -> Iterator[tuple[int, Filed]]:
    """Candidates as archived messages. A speaker with a name is a user, with the name in front of the text."""
    position: dict[str, int] = {}
    for row, each in enumerate(candidates):
        known = each.speaker in ("user", "assistant")
        place = position[each.session] = position.get(each.session, -1) + 1
        role: Role = "assistant" if each.speaker == "assistant" else "user"
        text = each.text if known else each.text_with_speaker
        archived_message = message(role, [item(role, "text", text)], b"")
        yield row, Filed(key=f"m{row}", position=place, turn=place + 1, message=archived_message, created_at=each.at)
