"""Make the light rerankers that come with Lantern: python scripts/shipped_reranker.py (half an hour; needs the extras
dense and train). lantern_proxy/data/light_minilm_l6.npz looks at vectors, too, light_lexical.npz does without.

They learn from the first conversations of tests/data/conversations.jsonl.gz, whose people and chats are made up, but
not from HELD_OUT. Each is learned from twice: as it is, and as one long session, which is what most clients have.

What they say is a feature of models that users train: raise VERSION in lantern_proxy/rerank/light.py with new ones.
"""

from dataclasses import replace
from pathlib import Path

from lantern_proxy.bench import pipelines_light as light
from lantern_proxy.bench.datasets import Conversation, labelled
from lantern_proxy.bench.pipelines_product import Default
from lantern_proxy.bench.resources import Resources
from lantern_proxy.config import Config, EmbedConfig
from lantern_proxy.rerank.light import save

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data" / "conversations.jsonl.gz"
LEARNED = 86
"""Conversations at the beginning of DATA; more of them gain nothing. HELD_OUT is to measure on."""
TARGETS = {"light_minilm_l6.npz": Config(), "light_lexical.npz": Config(embed=EmbedConfig(enabled="off"))}
HELD_OUT = frozenset((
    "exchange-year", "trondheim-move", "marsh-boardwalk", "queens-park-leads", "harbour-splits", "van-and-varnish",
    "three-weeks-on", "wool-and-walnut", "cold-steps", "long-exposure", "box-and-siren",
))  # fmt: skip
"""tests/test_light_shipped.py measures on four of them."""


def to_learn_from(first: int | None = None) -> list[Conversation]:
    return [each for each in labelled(DATA)[:first] if each.id not in HELD_OUT]


def in_one_session(conversation: Conversation) -> Conversation:
    candidates = tuple(replace(each, session="") for each in conversation.candidates)
    return replace(conversation, candidates=candidates)


def examples(conversations: list[Conversation], config: Config) -> list[light.Examples]:
    """Without the last feature, which is what these very models say."""
    with Resources(config) as resources:
        default = Default(resources)
        found = [part for each in conversations if (part := light.collect(default, each, lambda _: None))]
    return [replace(part, features=part.features[:-1], table=part.table[:, :-1]) for part in found]


def main() -> None:
    once = to_learn_from(LEARNED)
    twice = [*once, *map(in_one_session, once)]
    for name, config in TARGETS.items():
        parts = examples(twice, config)
        told = {"conversations": len(once), "n": sum(len(part.groups) for part in parts) // 2}
        save(light.train(parts), ROOT / "lantern_proxy" / "data" / name, told)
        print(name, told)


if __name__ == "__main__":
    main()
