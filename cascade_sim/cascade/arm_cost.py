"""What a request costs an arm: FLOPs and bytes of every stage, by the candidates that it was handed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cascade_sim.cascade.cost import added, cost_of
from cascade_sim.cascade.request import Arm, Stage
from cascade_sim.protocols import Cost


@dataclass(frozen=True)
class StageCost:
    """A stage of an arm: what it is asked, and what it takes a request. None: its part does not say."""

    stage: str
    model: str
    candidates: float  # of retrieval the corpus
    flops: float | None
    bytes: float | None
    ads_flops: float | None  # of all ads, once per deployment
    is_kept: bool = False


def stage_costs(arm: Arm, n_ads: int, candidates: Iterable[float]) -> list[StageCost]:
    """Every stage of an arm with the mean candidates of its scoring stages; retrieval first.

    A stage that hands on all that it gets has nothing to choose, and is not asked.
    """
    retriever, size = arm.retrieval.retriever, min(arm.retrieval.size, n_ads)
    search = cost_of(retriever, size)
    rows = [_stage_cost(arm.retrieval.name, retriever.name, n_ads, search, 0.0, 0)]
    most = size
    for stage, n in zip(arm.stages, candidates, strict=True):
        is_asked = stage.size is None or stage.size_rule is not None or stage.size < most
        cost = added(_parts(stage)) if is_asked else Cost()
        rows.append(_stage_cost(stage.name, stage.scorer.name, n, cost, n, n_ads))
        most = min(most, most if stage.size is None else stage.size)
    return rows


def _parts(stage: Stage) -> list[Cost | None]:
    """A stage's model, and that of the pCVR which it looks at."""
    rates = [] if stage.rates is None else [cost_of(stage.rates)]
    return [cost_of(stage.scorer), *rates]


def _stage_cost(
    name: str, model: str, candidates: float, cost: Cost | None, pairs: float, n_ads: int
) -> StageCost:
    if cost is None:
        return StageCost(name, model, candidates, None, None, None)
    flops = cost.request_flops + cost.pair_flops * pairs
    read = cost.request_bytes + cost.pair_bytes * pairs
    return StageCost(name, model, candidates, flops, read, cost.ad_flops * n_ads, cost.is_kept)
