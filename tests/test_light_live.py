"""The light reranker in a restore: trained with real vectors, then asked by a real Restorer over a real archive."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from test_light import THINGS, conversation

from lantern_proxy.archive import Archive, Record, RequestRow, SessionRow
from lantern_proxy.bench import pipelines_light as light
from lantern_proxy.bench.datasets import labelled
from lantern_proxy.bench.pipelines_product import Default
from lantern_proxy.bench.resources import Resources
from lantern_proxy.chunk import passages
from lantern_proxy.compiled import MINILM, ModelError
from lantern_proxy.compiled_export import sources
from lantern_proxy.config import Config, EmbedConfig, RerankConfig, RestoreConfig
from lantern_proxy.embed import Embedder, available
from lantern_proxy.rerank.light import save
from lantern_proxy.rerank.match import MatchModel
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.light import KNOWN, open_light
from lantern_proxy.restore.restorer import Restorer
from lantern_proxy.turn import Filed, Restored, item, message

pytest.importorskip("lightgbm")

TENANT, SESSION = "t", "s"
FORMLESS = RestoreConfig(admission=0.0, weights={"form": 0.0})
"""Without what the untrained ranking knows of forms, which is all that there is to learn here."""


@pytest.fixture(scope="module")
def resources(cache_dir) -> Iterator[Resources]:
    if not available():
        pytest.skip("the extra `dense` is not installed")
    with Resources(Config(embed=EmbedConfig(cache_dir=cache_dir), restore=FORMLESS)) as resources:
        yield resources


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Six conversations; the one that is asked about is not among them."""
    file = tmp_path_factory.mktemp("live") / "labelled.jsonl"
    file.write_text("".join(json.dumps(conversation(n)) + "\n" for n in range(1, 7)), "utf-8")
    return file


@pytest.fixture(scope="module")
def model(resources, data) -> Path:
    """Trained on them with the vectors that are configured."""
    file = data.with_name("model.npz")
    parts = [light.collect(Default(resources), each, lambda _: None) for each in labelled(data)]
    save(light.train(parts), file, {})
    return file


@pytest.fixture(scope="module")
def archive(resources, tmp_path_factory) -> Iterator[Archive]:
    """Conversation 0 as one session of a client, with its vectors."""
    said = [
        Filed(
            key=f"m{n}",
            position=n,
            turn=n + 1,
            message=message("user", [item("user", "text", candidate["text"])], b""),
            created_at=1e9 + n,
        )
        for n, candidate in enumerate(conversation(0)["candidates"])
    ]
    record = Record(
        tenant=TENANT,
        session=SessionRow(id=SESSION, api="chat", created_at=1e9, last_seen_at=1e9),
        request=RequestRow(id="r", at=1e9, api="chat", path="", event="new"),
        messages=tuple(said),
        passages=tuple(passage for filed in said for passage in passages(filed, SESSION)),
    )
    with Archive(tmp_path_factory.mktemp("archive") / "a.db", synchronous="normal") as archive:
        (written,) = archive.write([record])
        embed(archive, written, resources.embedder)
        yield archive


def embed(archive: Archive, written, embedder: Embedder) -> None:
    vectors, tokens = embedder.embed_passages([passage.text for passage in written])
    archive.add_vectors(
        embedder.name,
        embedder.dim,
        [(TENANT, SESSION, passage.id, vector) for passage, vector in zip(written, vectors, strict=True)],
        recipe=embedder.recipe,
        tokens=[(TENANT, passage.id, found) for passage, found in zip(written, tokens, strict=True)],
    )


def restored(
    archive, resources, path: str, thing: str, *, dense: bool = True, evidence: str = "",
    asked: str = "When did I start with the {}?", budget_chars: int = 420,
) -> Restored | None:  # fmt: skip
    """The block for a question, with room for one or two of the 40 messages."""
    rerank = RerankConfig(light=path, evidence=evidence)
    config = Config(embed=resources.config.embed, restore=FORMLESS, rerank=rerank)
    restorer = Restorer(archive, config, resources.embedder if dense else None)
    try:
        if restorer.rerankers.evidence is not None:
            assert restorer.rerankers.evidence.wait(240), restorer.rerankers.evidence.detail
        return restorer.for_question(
            Ask(
                tenant=TENANT,
                project="",
                session=SESSION,
                present="",
                question=asked.format(thing),
                budget_chars=budget_chars,
                now=1e9 + 500,
                deadline=time.monotonic() + 60,
            )
        )
    finally:
        restorer.close()


def answers(found: Restored | None, thing: str) -> bool:
    """Does the block begin its choice with the one message that tells the day?"""
    return found is not None and f"I started with my {thing} on" in best(found)


def best(found: Restored) -> str:
    return max(found.placed, key=lambda placed: placed.score).passage.text


def test_a_model_brings_more_answers_to_the_top_of_the_block(archive, resources, model):
    off = [answers(restored(archive, resources, "", thing), thing) for thing in THINGS]
    on = [answers(restored(archive, resources, str(model), thing), thing) for thing in THINGS]
    assert sum(on) > sum(off)
    assert sum(on) >= 8


def test_what_untrained_comes_first_stays_in_the_block_where_a_question_is_unlike_those_learned_from(
    archive, resources, model
):
    """Of the talk about a thing, where the model looks for what was done."""
    for thing in THINGS:
        asked = "Was a {} called a lot of work?"
        plain = restored(archive, resources, "", thing, asked=asked)
        found = restored(archive, resources, str(model), thing, asked=asked, budget_chars=600)
        assert best(plain) in {placed.passage.text for placed in found.placed}


def test_the_model_looks_at_words_and_vectors(resources, model):
    assert set(open_light(str(model)).models[0].features) == set(KNOWN)


def test_a_model_learns_from_the_vectors_that_rank_its_questions_better_and_says_which(data, resources, tmp_path):
    def untrained(by: Resources) -> float:
        parts = [light.collect(Default(by), each, lambda _: None) for each in labelled(data)]
        return float(np.concatenate([light.measure(part, part.before) for part in parts])[:, 0].mean())

    asked = []
    learned = light.training_data(resources, labelled(data), asked.append, without=frozenset())
    published, adapted = untrained(resources), untrained(resources.adapted)
    assert published != adapted
    chosen = learned.best(learned.all_parts)
    assert chosen.embed.adapted == (adapted > published)
    assert len(asked) == 2 * sum(len(each.questions) for each in labelled(data))
    assert np.concatenate(learned.by[0].untrained)[:, 0].mean() == pytest.approx(published)

    file = tmp_path / "model.npz"
    save(chosen.train(learned.all_parts), file, {})
    (found,) = open_light(str(file)).models
    assert found.embedder == (resources.adapted if chosen.embed.adapted else resources).embedder.name


def test_what_is_configured_is_kept_where_the_other_embedder_is_not_to_be_had(data, resources, monkeypatch):
    class Missing:
        config = resources.adapted.config

        def __getattr__(self, name: str) -> NoReturn:
            raise ModelError(f"no {name}")

    monkeypatch.setitem(vars(resources), "adapted", Missing())
    learned = light.training_data(resources, labelled(data), lambda _: None, without=frozenset())
    assert [(seen.embed.adapted, len(seen.parts)) for seen in learned.by] == [(False, 6)]


def test_where_a_model_cannot_work_the_block_is_that_without_one_byte_for_byte(archive, resources, model, tmp_path):
    broken = tmp_path / "broken.npz"
    broken.write_bytes(model.read_bytes()[:100])
    for thing in THINGS[:4]:
        plain = restored(archive, resources, "", thing)
        failed = restored(archive, resources, str(broken), thing)
        assert failed.text == plain.text
        assert failed.degraded == ("light:unusable",)
        no_vectors = restored(archive, resources, str(model), thing, dense=False)
        assert no_vectors.text == restored(archive, resources, "", thing, dense=False).text


def matching(folder: Path, weight: float) -> str:
    """An evidence reranker that corrects the ranking by `weight` times how alike the words are."""
    import torch

    made = MatchModel(sources(MINILM)[0][0], 1, 64)
    with torch.no_grad():
        made.model.head.weight[0, -2:] = weight
    made.save_pretrained(str(folder))
    return str(folder)


def test_an_evidence_reranker_corrects_the_order_that_the_model_gave(archive, resources, model, tmp_path):
    thing = THINGS[3]
    light = restored(archive, resources, str(model), thing)
    assert answers(light, thing)
    hardly = restored(archive, resources, str(model), thing, evidence=matching(tmp_path / "hardly", 1e-6))
    assert hardly.text == light.text
    much = restored(archive, resources, str(model), thing, evidence=matching(tmp_path / "much", -100.0))
    assert best(much) != best(light)
    assert (hardly.degraded, much.degraded) == ((), ())
