"""How fast the simulator is: microseconds of CPU time a request, with spread, beside the arithmetic floor."""

import resource
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from cascade_sim.auction import auction
from cascade_sim.bench import Spread, in_turn, plain, roofline, seconds
from cascade_sim.bench.end_to_end import ready, serving
from cascade_sim.bench.market import auction_rates, market_seconds
from cascade_sim.bench.peers import scenario_rates
from cascade_sim.cascade.columns import impression_columns
from cascade_sim.cascade.exploration import as_decided, explore
from cascade_sim.cascade.retrievers.similarity import Retrieval
from cascade_sim.cascade.scorers import TorchScorer
from cascade_sim.cascade.serve import Arm, Block, Decision, Scores, retrieve, score
from cascade_sim.foundation.kernels import select_top
from cascade_sim.models.training import Impressions, Lists, TrainingPlan, chunk_of_rank, predict, train
from cascade_sim.storage.tables import TableWriter
from cascade_sim.study.simulation import Simulation
from cascade_sim.training.modules import build_module

SEEN = ["user", "context", "quality", "tier", "mismatch", "G1", "G2", "G3"]
SCENARIO: dict[str, Any] = {
    "name": "bench",
    "cascade": {"retrieval": {"size": 500}, "pre_ranking": {"size": 100}, "slots": 5},
    "models": {
        "rank": {"kind": "coaction", "features": [*SEEN, "G4", "mismatch_pair"], "dims": 16, "hidden": 32},
        "logloss": {"kind": "towers", "features": SEEN, "dims": 14, "hidden": 32},
    },
    "arms": {"logloss": {}},
}


class EncodedTowers(torch.nn.Module):
    """Stands for a model of one's own: plain torch, ads encoded apart, no fused kernel."""

    def __init__(self, request_width: int, ad_width: int, pair_width: int, dims: int = 16):
        super().__init__()
        self.request = torch.nn.Linear(request_width, dims)
        self.ads = torch.nn.Linear(ad_width, dims)

    def encode_ads(self, ads: torch.Tensor) -> torch.Tensor:
        return self.ads(ads)

    def forward(self, request: torch.Tensor, ads: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
        return torch.bmm(ads, self.request(request).unsqueeze(2)).squeeze(2)


def build() -> tuple[Simulation, Arm]:
    """The bench market."""
    return ready(SCENARIO)


def per_request(
    timed: dict[str, tuple[Callable[[Any], Any], list[Any]]], repeats: int = 5
) -> dict[str, Spread]:
    """Microseconds per request of {what: (function of a block, blocks)}, in turn.

    Many blocks, not one again and again: the ads of a block that was just scored would still be cached.
    """

    def once(function: Callable[[Any], Any], sample: list[Any]) -> float:
        taken = seconds(lambda: [function(served) for served in sample])
        return taken / sum(len(served.block) for served in sample) * 1e6

    return in_turn({name: partial(once, *given) for name, given in timed.items()}, repeats)


@dataclass(frozen=True)
class Served:
    """A block with what the stages made of it, so that one stage can be timed alone."""

    block: Block
    decision: Decision
    rank: Scores


def served_blocks(sim: Simulation, arm: Arm, n_blocks: int) -> list[Served]:
    """The first blocks of the bench traffic with what the cascade made of them."""
    size = sim.scenario.traffic.block
    blocks = []
    for index in range(n_blocks):
        block = sim.arrivals.block("bench", index, n_blocks * size)
        decision = sim.serve(block, arm)
        rank = score(block, decision.competitive_set, arm.last, arm, sim.platform)
        blocks.append(Served(block, decision, rank))
    return blocks


def stage_times(sim: Simulation, arm: Arm, sample: list[Served]) -> dict[str, Spread]:
    """Microseconds per request of each stage."""
    platform, effects = sim.platform, sim.platform.slot_effects
    seed = sim.seed

    def settle(served: Served):
        return sim.environment.outcome(served.block, served.decision)

    with tempfile.TemporaryDirectory() as folder, TableWriter(Path(folder), "bench") as table:

        def log(served: Served) -> None:
            shown = as_decided(served.decision)
            table.append(impression_columns(sim.world, served.block, shown, results[id(served)]))

        results = {id(served): settle(served) for served in sample}
        stages: dict[str, Callable[[Served], Any]] = {
            "retrieval (kept)": lambda served: retrieve(served.block, arm, platform),
            "pre-ranking": lambda served: score(
                served.block, served.decision.retrieved, arm.stages[-2], arm, platform
            ),
            "selection": lambda served: select_top(
                served.decision.retrieved, served.decision.passes[0].order, arm.most_auctioned
            ),
            "ranking": lambda served: score(
                served.block, served.decision.competitive_set, arm.last, arm, platform
            ),
            "auction": lambda served: auction(
                served.rank.bid, served.rank.quality, slots=arm.slots, slot_effects=effects[: arm.slots]
            ),
            "exploration": lambda served: explore(served.block, served.decision, arm, 0.01, seed, platform),
            "clicks": settle,
            "log": log,
        }
        return per_request({name: (stage, sample) for name, stage in stages.items()})


def first_visit(sim: Simulation, arm: Arm) -> float:
    """Microseconds of exact retrieval from the whole corpus, for a user who has not been seen before."""
    users = np.arange(min(256, sim.world.n_users))
    index = cast(Retrieval, sim.retriever)
    return seconds(lambda: index.nearest(users, arm.retrieval.size)) / len(users) * 1e6


def scoring_alone(arm: Arm, sample: list[Served]) -> dict[str, Spread]:
    """Microseconds per request of scoring alone, on the candidates the cascade scores.

    fused: the kernels that serve. torch: the same nets as batched matrix products in torch, on inputs
    gathered beforehand, the ad side of the pre-ranker computed beforehand too.
    """
    pre: Any = arm.stages[-2].scorer
    rank: Any = arm.last.scorer

    def fused(served: Served) -> None:
        pre.predict(served.block, served.decision.retrieved)
        rank.predict(served.block, served.decision.competitive_set)

    few = sample[:4]  # gathered inputs are large

    def inputs(scorer: Any, served: Served, ids: np.ndarray) -> tuple[torch.Tensor, ...]:
        view = scorer.seen
        request = torch.from_numpy(view.request_features(served.block.users, served.block.context))
        pair = torch.from_numpy(view.pair_features(served.block.users, ids))
        return request, torch.from_numpy(view.ad_table[ids]), pair

    with torch.inference_mode():
        pre_in = {id(served): inputs(pre, served, served.decision.retrieved) for served in few}
        codes = {key: pre.module.ad_code(ads) for key, (_, ads, _) in pre_in.items()}
        rank_in = {id(served): inputs(rank, served, served.decision.competitive_set) for served in few}

        def torch_pre(served: Served) -> torch.Tensor:
            return torch.bmm(codes[id(served)], pre.module.request_code(pre_in[id(served)][0]).unsqueeze(2))

        def in_torch(served: Served) -> None:
            torch_pre(served)
            predict(rank.module, *rank_in[id(served)])

        return per_request({"fused": (fused, sample), "torch": (in_torch, few)})


def arithmetic_floor(sim: Simulation, arm: Arm) -> dict[str, Any]:
    """FLOPs and bytes of a request by stage, the measured peak of this core, and the time that makes."""
    table = roofline.table_bytes(arm, sim.world.n_ads)
    peak, stages = roofline.measured_peak(table), roofline.request_work(arm)
    return {
        "gflops_per_s": peak.flops / 1e9,
        "gb_per_s": peak.bandwidth / 1e9,
        "table_mb": table / 2**20,
        "stages": {name: {**asdict(work), "us": work.micros(peak)} for name, work in stages.items()},
        "us": sum(work.micros(peak) for work in stages.values()),
    }


def own_model_arm(sim: Simulation, arm: Arm) -> Arm:
    """The arm with a plain torch module in the pre-ranking stage."""
    view = sim.view(tuple(SEEN))
    torch.manual_seed(0)
    module = EncodedTowers(view.request_width, view.ad_width, view.pair_width)
    scorer = TorchScorer("own", view, "sigmoid", module)
    return replace(arm.with_stage(-2, scorer=scorer, bid="init", rates=None), name="own model")


def training_rates(sim: Simulation, n: int) -> dict[str, float]:
    """Samples per second of each recipe, one epoch, one thread."""
    generator = np.random.default_rng(0)
    users = generator.integers(0, sim.world.n_users, n).astype(np.int32)
    ads = generator.integers(0, sim.world.n_ads, n).astype(np.int32)
    context, flat = np.zeros(n, np.float32), np.ones(n, np.float32)
    click = (generator.random(n) < 0.05).astype(np.float32)
    rows = Impressions(users, context, ads, flat, click)
    m, lists = 50, n // 50
    chunk = np.broadcast_to(chunk_of_rank(m, 5), (lists, m)).copy()
    logit = generator.standard_normal((lists, m)).astype(np.float32)
    listed = Lists(users[:lists], context[:lists], ads.reshape(lists, m), logit, logit * 0.3, chunk, logit)
    rates = {}
    for label, name, recipe, data in (
        ("rank, logloss", "rank", "logloss", rows),
        ("towers, logloss", "logloss", "logloss", rows),
        ("towers, distill", "logloss", "distill", listed),
        ("towers, ltr", "logloss", "ltr", listed),
    ):
        spec = sim.scenario.models[name]
        view = sim.view(spec.features)
        module = build_module(name, spec, view, 1)
        plan = TrainingPlan(epochs=1, batch=4096, learning_rate=0.001)
        epoch = partial(train, module, view, data, recipe, plan)
        epoch()  # warm-up
        rates[label] = n / seconds(epoch)
    return rates


def peak_memory_mb() -> float:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def run(
    n_requests: int = 20_000, n_samples: int = 200_000, n_auctions: int = 1 << 18, repeats: int = 5
) -> dict[str, Any]:
    """The figures of `cascade_sim bench` without a part named. Times are CPU time; `_us` is per request."""
    sim, arm = build()
    own = own_model_arm(sim, arm)
    ways: dict[str, Callable[[], float]] = {
        "serving_us": lambda: serving(sim, arm, n_requests),
        "own_model_us": lambda: serving(sim, own, n_requests),
        "market_us": lambda: market_seconds(sim, arm, n_requests),
    }
    serving(sim, arm, 2048)  # compiles the kernels, fills the retrieval cache
    serving(sim, own, 2048)
    market_seconds(sim, arm, 2048)
    taken = {name: spread.times(1e6 / n_requests) for name, spread in in_turn(ways, repeats).items()}
    before = peak_memory_mb()
    longer = serving(sim, arm, 4 * n_requests)
    growth = peak_memory_mb() - before
    sample = served_blocks(sim, arm, n_blocks=max(1, min(n_requests, 20_480) // sim.scenario.traffic.block))
    spreads = {
        **taken,
        "scoring_us": scoring_alone(arm, sample),
        "stages_us": stage_times(sim, arm, sample),
    }
    lowest = arithmetic_floor(sim, arm)
    return {
        "requests": n_requests,
        "sizes": (arm.retrieval.size, arm.most_auctioned, arm.slots),
        **plain(spreads),
        "longer_us": longer / (4 * n_requests) * 1e6,
        "memory_growth_mb": growth,
        "first_visit_us": first_visit(sim, arm),
        "floor": {**lowest, "share": lowest["us"] / taken["serving_us"].median},
        "auction": plain(auction_rates(n_auctions, repeats=repeats)),
        "scenario": plain(scenario_rates(n_auctions, repeats=repeats)),
        "training": training_rates(sim, n_samples),
    }
