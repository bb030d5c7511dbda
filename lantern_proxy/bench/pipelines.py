"""Named ways to rank the candidates of a conversation, by a common interface.

    bm25 = pipeline("bm25", resources)
    score = bm25.prepare(conversation)           # once a conversation; not timed
    score(Query("when is the launch?"))          # (n,) one score a candidate, larger is better; timed

A new pipeline is a class or function in a module of its own and a line in FACTORIES.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Protocol, runtime_checkable

from lantern_proxy.bench.datasets import Conversation
from lantern_proxy.bench.resources import Resources
from lantern_proxy.rank import Floats

Advance = Callable[[int], None]
"""Called with the amount of work done since the last call, mostly in questions."""


@dataclass(frozen=True, slots=True)
class Query:
    """Everything that a pipeline may know of a question: not its evidence, category or answer."""

    text: str
    at: float = 0.0
    """Unix seconds; 0 if unknown."""


Scorer = Callable[[Query], Floats]
"""Scores of all candidates in their order, (n,); ties go to the earlier one."""


class Pipeline(Protocol):
    def prepare(self, conversation: Conversation) -> Scorer: ...


@runtime_checkable
class Trainable(Protocol):
    """A pipeline that can be trained. Untrained (`--protocol zero-shot`) it uses what is shipped."""

    def prepare(self, conversation: Conversation) -> Scorer: ...

    def train(self, conversations: Sequence[Conversation]) -> Pipeline:
        """A pipeline trained on these conversations with their evidence, and no others."""
        ...


Factory = Callable[[Resources, frozenset[str]], Pipeline]
"""(resources, signals to leave out) -> pipeline. UnknownSignal for a signal that it does not have."""

FACTORIES: Mapping[str, str] = {
    "fts5": "pipelines_single:Fts5",
    "bm25": "pipelines_single:Bm25",
    "dense": "pipelines_single:Dense",
    "rrf": "pipelines_papers:rrf",
    "lantern": "pipelines_papers:lantern",
    "selroute": "pipelines_routed:SelRoute",
    "agentir": "pipelines_routed:AgentIr",
    "default": "pipelines_product:Default",
    "tuned": "pipelines_product:Tuned",
    "evidence": "pipelines_evidence:Evidence",
    "trained": "pipelines_light:Trained",
}
"""Name -> module of this package and the factory there; imported on demand."""


class UnknownSignal(ValueError):
    """--without names a signal that the pipeline does not have."""


def pipeline(name: str, resources: Resources, without: frozenset[str] = frozenset()) -> Pipeline:
    """A pipeline by name. ValueError if there is none."""
    if name not in FACTORIES:
        close = get_close_matches(name, FACTORIES, n=1) or list(FACTORIES)
        raise ValueError(f"pipeline {name} is not known; use {' or '.join(close)}")
    module, _, attribute = FACTORIES[name].partition(":")
    factory: Factory = getattr(import_module(f"lantern_proxy.bench.{module}"), attribute)
    return factory(resources, without)


def refuse_unknown(name: str, without: frozenset[str], signals: Sequence[str]) -> None:
    for signal in sorted(without - set(signals)):
        has = ", ".join(signals) or "none"
        raise UnknownSignal(f"pipeline {name} has no signal {signal}; it has {has}")
