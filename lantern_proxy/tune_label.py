"""Labelled questions of an archive, with every signal's scores for every candidate: what tune.py learns from.

Labels come from a JSON lines file and from `lantern feedback` (`useful`):

    {"question": "Which port does staging use?", "relevant": ["port 9443"]}
    {"question": "When is the launch?", "relevant": [118, 121], "session": "chat-7"}

A relevant text names the passages that contain it, a number the passage with that id.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from msgspec import Struct, structs

from lantern_proxy.archive import Archive
from lantern_proxy.config import Config
from lantern_proxy.config.retrieval import Signal
from lantern_proxy.embed import Embedder
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.dense import Dense
from lantern_proxy.restore.question import parse_question
from lantern_proxy.restore.scope import Key, Scope
from lantern_proxy.restore.signals import WEIGHTS, gather
from lantern_proxy.route_types import query_type
from lantern_proxy.tune import Labelled, Settings


class LabelError(ValueError):
    """A label is unusable. The message names the place and the way out."""


class Label(Struct, frozen=True):
    """A question and its answer: passage ids, or words that occur in the passages."""

    question: str
    relevant: tuple[int | str, ...]
    session: str | None
    place: str
    """Where the label is, for errors."""


def read(path: Path) -> list[Label]:
    """The labels of a JSON lines file. LabelError names the line."""
    try:
        rows = path.read_text("utf-8-sig").split("\n")  # not splitlines, which also breaks at U+2028 in a question
    except OSError as error:
        raise LabelError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise LabelError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from None
    return [_label(row, f"{path}: line {n}") for n, row in enumerate(rows, start=1) if row.strip()]


def _label(row: str, place: str) -> Label:
    try:
        parsed = json.loads(row)
        question, relevant, session = parsed["question"], parsed["relevant"], parsed.get("session")
        is_text = isinstance(question, str) and isinstance(session, str | None)
        listed = isinstance(relevant, list) and all(map(_is_passage, relevant))
        if not is_text or not listed or not relevant:
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise LabelError(f'{place} is no label; write {{"question": "...", "relevant": ["words of it"]}}') from None
    return Label(question, tuple(relevant), session, place)


def _is_passage(value: object) -> bool:
    """Is it a text, or a number that may be a passage's id?"""
    if isinstance(value, str):
        return bool(value.strip())
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 63


def of_feedback(archive: Archive, tenant: str) -> list[Label]:
    """Labels for questions whose restored passages were judged useful."""
    found = archive.of(tenant).useful()
    return [Label(one.query, one.passages, one.session, f"request {one.request}") for one in found]


def start(config: Config) -> Settings:
    """The current settings of the config, from which `fit` starts."""
    weights = {**WEIGHTS, **_floats(config.restore.weights)}
    types = config.retrieval.types if config.retrieval.router != "off" else ()
    own = {name: config.retrieval.of(name) for name in types}
    return Settings(
        fusion=config.retrieval.fusion,
        weights=weights,
        tau=config.retrieval.tau,
        types={name: {**weights, **_floats(of.weights)} for name, of in own.items() if of.weights},
        taus={name: of.tau for name, of in own.items()},
        rrf_k=config.restore.rrf_k,
    )


def _floats(weights: Mapping[Signal, float]) -> dict[str, float]:
    return {str(signal): float(weight) for signal, weight in weights.items()}


def measure(
    archive: Archive, tenant: str, labels: Iterable[Label], config: Config, embedder: Embedder | None
) -> Iterator[tuple[Label, Labelled | None]]:
    """Every label with its signals; None if its question asks for nothing, or no passage has what is relevant."""
    dense = Dense(archive, embedder, wanted=False)
    scopes: dict[str | None, Scope] = {}
    try:
        for label in labels:
            name = label.session if config.restore.scope == "session" else None
            if name not in scopes:
                scopes[name] = Scope(Key(tenant, None, name))
                scopes[name].catch_up(archive, math.inf)
            found = labelled(scopes[name], label.question, _rows(scopes[name], label.relevant), dense, config)
            yield label, None if found is None else structs.replace(found, group=label.session or "")
    finally:
        for scope in scopes.values():
            scope.index.close()


def labelled(scope: Scope, question: str, gold: Sequence[int], dense: Dense, config: Config) -> Labelled | None:
    """One question over a scope; None if there is nothing to learn from it."""
    read_as = parse_question(question)
    if not gold or not read_as.terms:
        return None
    ask = Ask(tenant=scope.key.tenant, question=question, now=max(read.passage.created_at for read in scope.passages))
    full, skipped = (
        gather(scope, read_as, ask, dense, config.restore, replace(config.retrieval, tau=tau, types={}))
        for tau in (1.0, 0.0)
    )
    made = Labelled(
        question=question,
        type=query_type(question),
        signals=full.signals,
        units=full.units,
        gold=np.array(sorted(gold), np.int64),
        sure=full.lexical_confidence,
    )
    return structs.replace(made, skipped=structs.replace(made, signals=skipped.signals, units=skipped.units))


def _rows(scope: Scope, relevant: Sequence[int | str]) -> list[int]:
    rows: set[int] = set()
    for each in relevant:
        if isinstance(each, int):
            row = scope.row(each)
            rows |= set() if row is None else {row}
        else:
            wanted = " ".join(each.lower().split())
            rows |= {row for row, read in enumerate(scope.passages) if wanted in read.flat.lower()}
    return sorted(rows)
