"""The section `retrieval`: how signals become one ranking. `lantern tune` writes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, Literal

from lantern_proxy.config.check import ConfigError, Section, Within
from lantern_proxy.route_types import QueryType

Signal = Literal["bm25", "vector", "late", "speaker", "keywords", "form", "session", "days", "alike", "importance"]
"""Kinds of evidence that can be weighed."""
Weight = Annotated[float, Within(0, 100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig(Section):
    """One way to rank: an entry of `retrieval.types`, or the settings for all types."""

    fusion: Literal["zscore", "rrf"] = "zscore"
    """zscore: a weighted sum of z-scores, so that a clear winner counts for more. rrf: by ranks, as the papers do."""
    weights: Mapping[Signal, Weight] = field(default_factory=dict)
    """Signal -> weight, if it differs from `restore.weights`."""
    tau: Annotated[float, Within(0, 1)] = 0.5
    """Cascade: vectors are skipped if words are at least this sure of their best passages. 1: never, 0: always."""
    recency: Annotated[float, Within(0, 100)] = 0.0
    """Bonus of the newest passage over an old one: in z-scores, or in reciprocal ranks (AgentIR: 0.005)."""
    recency_days: Annotated[float, Within(0.01, 100_000, "days")] = 30.0
    """Days after which that bonus has fallen to 1/e."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalConfig(Section):
    """The `retrieval:` section: how signals become one ranking. `lantern tune` finds values for your questions."""

    router: Literal["off", "rules", "soft"] = "rules"
    """Which of `types` a question uses. rules: its type's. soft: all, weighted by how likely each is. off: none."""
    fusion: Literal["zscore", "rrf"] = "zscore"
    """zscore: a weighted sum of z-scores, so that a clear winner counts for more. rrf: by ranks, as the papers do."""
    tau: Annotated[float, Within(0, 1)] = 0.5
    """Cascade: vectors are skipped if words are at least this sure of their best passages. 1: never, 0: always."""
    recency: Annotated[float, Within(0, 100)] = 0.0
    """Bonus of the newest passage over an old one: in z-scores, or in reciprocal ranks (AgentIR: 0.005)."""
    recency_days: Annotated[float, Within(0.01, 100_000, "days")] = 30.0
    """Days after which that bonus has fallen to 1/e."""
    types: Mapping[QueryType, Mapping[str, Any]] = field(default_factory=dict)
    """Type of question -> settings that differ for it: fusion, weights, tau, recency, recency_days."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        for name in self.types:
            try:
                self.of(name)
            except ConfigError as error:
                raise error.under(f"types.{name}") from None
            except TypeError:
                unknown = next(key for key in self.types[name] if key not in PipelineConfig.__slots__)
                known = ", ".join(PipelineConfig.__slots__)
                raise ConfigError(f"types.{name}.{unknown}", f"is not a setting; use {known}") from None

    def of(self, query_type: QueryType | None) -> PipelineConfig:
        """The pipeline of a type; None: that for no particular type."""
        shared = _pipeline(fusion=self.fusion, tau=self.tau, recency=self.recency, recency_days=self.recency_days)
        own = self.types.get(query_type, {}) if query_type else {}
        return replace(shared, **own) if own else shared


_pipeline = lru_cache(maxsize=16)(PipelineConfig)
"""Cached, so that the settings are checked once and not for every question."""
