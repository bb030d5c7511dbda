"""The cascade of the default recipe: where words are sure, the embedder is not asked."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from scripted import Upstream, ask, body, config_for, echo, serving
from test_proxy_restore import blocks, talk
from test_restore import CountedEmbedder

from lantern_proxy.archive import Archive
from lantern_proxy.bench.datasets import Candidate
from lantern_proxy.bench.pipelines_product import TENANT, _archive
from lantern_proxy.config import Config, RestoreConfig
from lantern_proxy.config.retrieval import RetrievalConfig
from lantern_proxy.restore import word_table
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.dense import Dense
from lantern_proxy.restore.question import Evidence, evidence_quality, parse_question
from lantern_proxy.restore.restorer import Restorer
from lantern_proxy.restore.scope import Key, Scope
from lantern_proxy.restore.signals import gather

SAID = [
    "The physician told me to rest for a week.",
    "The copper kettle stands behind the stove.",
    *(f"The weekly meeting was about matter {name}." for name in ("one", "two", "three", "four", "five", "six")),
    "Our neighbour sold the piano.",
    "It rained all of Tuesday.",
]
SURE, UNSURE = "Where does the copper kettle stand?", "What was the weekly meeting about?"


class Counted(CountedEmbedder):
    recipe = "counted/late-1"


@contextmanager
def archived(folder: Path, *, tokens: bool = True) -> Iterator[Archive]:
    """SAID, each in a session of its own, with vectors that tell nothing and words as the table has them."""
    folder.mkdir(exist_ok=True)
    archive = Archive(folder / "cascade.db", synchronous="normal")
    said = [Candidate(id=str(n), session=str(n), speaker="user", text=t, at=1.7e9) for n, t in enumerate(SAID)]
    written, _ = _archive(archive, said)
    flat = np.array([0, 1, 0, 0], np.float32)
    table, vectors = word_table.shipped_table(), word_table.shipped_vectors()
    assert table is not None
    assert vectors is not None
    words = [(TENANT, p.id, vectors[np.frombuffer(table.pieces(p.text), np.uint16)]) for p in written] if tokens else []
    archive.add_vectors("counted", 4, [(TENANT, p.session, p.id, flat) for p in written], recipe=Counted.recipe,
                        tokens=words)  # fmt: skip
    yield archive
    archive.close()


def found(
    archive: Archive, question: str, tau: float = RetrievalConfig().tau, present: str = ""
) -> tuple[Evidence, list[str], list[str]]:
    """What is gathered, what the embedder was asked, and the texts best first."""
    embedder, scope = Counted(), Scope(Key(TENANT, None, None))
    scope.catch_up(archive, math.inf)
    dense = Dense(archive, embedder, wanted=True)  # type: ignore[arg-type]
    asked = Ask(tenant=TENANT, project="", session="", present=present, budget_chars=0, now=0.0, deadline=math.inf)
    made = gather(scope, parse_question(question), asked, dense, RestoreConfig(), RetrievalConfig(tau=tau))
    texts = [scope.passages[row].passage.text for row in np.argsort(-made.fused).tolist()]
    dense.close()
    scope.index.close()
    return made, embedder.asked, texts


def test_where_words_are_sure_the_embedder_is_not_called(tmp_path):
    with archived(tmp_path) as archive:
        sure, asked, texts = found(archive, SURE)
        assert (asked, sure.cosines, texts[0]) == ([], None, SAID[1])
        unsure, asked, _ = found(archive, UNSURE)
        assert len(asked) == 1
        assert unsure.lexical_confidence < RetrievalConfig().tau <= sure.lexical_confidence


def test_words_are_not_sure_of_what_the_request_shows_itself(tmp_path):
    with archived(tmp_path) as archive:
        shown, asked, _ = found(archive, SURE, present=f"Summary: {SAID[1]}")
        assert (len(asked), shown.lexical_confidence) == (1, 0.0)


@pytest.mark.parametrize(("tau", "calls"), [(0.0, 0), (1.0, 1)])
def test_tau_0_skips_always_and_1_never(tmp_path, tau, calls):
    with archived(tmp_path) as archive:
        assert [len(found(archive, question, tau)[1]) for question in (SURE, UNSURE)] == [calls, calls]


def test_an_embedder_without_vectors_of_words_is_always_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(Counted, "recipe", "")
    with archived(tmp_path, tokens=False) as archive:
        assert len(found(archive, SURE)[1]) == 1


def test_one_word_alone_and_words_that_nobody_said_make_nothing_sure(tmp_path):
    with archived(tmp_path) as archive:
        assert found(archive, "kettle?")[0].lexical_confidence == 0
        assert found(archive, "Which violinist conducted the Viennese orchestra?")[0].lexical_confidence == 0


def test_a_skipped_question_is_compared_with_the_vectors_of_words(tmp_path):
    with archived(tmp_path) as archive:
        made, asked, texts = found(archive, "What did the doctor say?", 0.0)
    assert (asked, texts[0], "alike" in made.signals) == ([], SAID[0], True)
    with archived(tmp_path / "pooled", tokens=False) as archive:
        assert "alike" not in found(archive, "What did the doctor say?", 0.0)[0].signals


def test_what_came_since_the_embedder_was_last_asked_is_compared_as_all_else(tmp_path):
    table, vectors = word_table.shipped_table(), word_table.shipped_vectors()
    assert table is not None
    assert vectors is not None
    with archived(tmp_path) as archive:
        scope, dense = Scope(Key(TENANT, None, None)), Dense(archive, Counted(), wanted=True)  # type: ignore[arg-type]
        ask = Ask(tenant=TENANT, project="", session="", present="", budget_chars=0, now=0.0, deadline=math.inf)
        for text, tau in ((UNSURE, 1.0), ("Who repaired the automobile?", 0.0)):
            scope.catch_up(archive, math.inf)
            made = gather(scope, parse_question(text), ask, dense, RestoreConfig(), RetrievalConfig(tau=tau))
            if tau:
                late = [
                    Candidate(id="late", session="late", speaker="user", text="A mechanic mended the car.", at=1.7e9)
                ]
                (new,) = _archive(archive, late)[0]
                words = [(TENANT, new.id, vectors[np.frombuffer(table.pieces(new.text), np.uint16)])]
                flat = [(TENANT, new.session, new.id, np.array([0, 1, 0, 0], np.float32))]
                archive.add_vectors("counted", 4, flat, recipe=Counted.recipe, tokens=words)
        assert scope.passages[int(made.signals["alike"].argmax())].passage.text == "A mechanic mended the car."
        dense.close()
        scope.index.close()


def test_what_words_are_sure_of_is_as_good_without_a_cosine_as_with_a_fair_one(tmp_path):
    question = parse_question("Where does the copper kettle of my aunt Rosalind stand?")
    with archived(tmp_path) as archive:
        scope = Scope(Key(TENANT, None, None))
        scope.catch_up(archive, math.inf)
        lexical = scope.lexical(question.terms)
        alone = Evidence(lexical, None, lexical, {})
        rows = np.argsort(-lexical).tolist()
        without, skipped = (
            evidence_quality(scope, replace(alone, lexical_confidence=by), question, rows) for by in (0.2, 0.3)
        )
        fair = replace(alone, cosines=np.full(len(SAID), 0.5))
        agree = evidence_quality(scope, replace(fair, lexical=np.zeros(len(SAID))), question, rows)
        assert without < skipped
        assert skipped == pytest.approx(agree)
        scope.index.close()


def test_what_may_be_skipped_is_not_embedded_ahead(tmp_path):
    with archived(tmp_path) as archive:
        for tau, calls in ((0.28, []), (1.0, ["the weekly meeting"])):
            embedder = Counted()
            restorer = Restorer(archive, Config(retrieval=RetrievalConfig(tau=tau)), embedder)  # type: ignore[arg-type]
            restorer.expect("Tell me about the weekly meeting")
            restorer.close()
            restorer._dense._threads.shutdown()
            assert embedder.asked == calls


def test_the_proxy_builds_a_question_block_without_the_embedder_where_words_are_sure(tmp_path):
    embedder = Counted()

    class Embedding(Restorer):
        def __init__(self, archive: Archive, config: Config, _: object) -> None:
            super().__init__(archive, config, embedder)  # type: ignore[arg-type]

    with Upstream(echo) as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config, make_restorer=Embedding) as url:
            messages = talk(url, 8)
            ask(url, body(*messages[-4:], "Which depot ships through gate GATE-15838?"))
            assert "GATE-15838" in blocks(upstream)[-1]
            assert embedder.asked == []
            ask(url, body(*messages[-4:], "Through which gates do the depots ship?"))
    assert len(embedder.asked) == 1
