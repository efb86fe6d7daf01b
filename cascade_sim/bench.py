"""How fast the simulator is, as rates and as ratios within one run (ratios carry over between machines)."""

import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cascade_sim.auction import auction
from cascade_sim.cascade import Arm, Block, score
from cascade_sim.experiment import Experiment, impression_columns
from cascade_sim.exploration import explore
from cascade_sim.kernels import select_top
from cascade_sim.model_kinds import build_module, make_scorer
from cascade_sim.model_store import ModelStore
from cascade_sim.outcome import outcome
from cascade_sim.progress import Progress
from cascade_sim.records import TableWriter
from cascade_sim.scenario import Scenario, resolve_arm
from cascade_sim.seats import TorchScorer
from cascade_sim.simulation import Simulation
from models.training import Impressions, Lists, chunk_of_rank, predict, train

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
    """The bench market. Weights are as drawn: a net takes the same time trained or not."""
    scenario = Scenario.model_validate(SCENARIO)
    sim = Simulation(scenario, seed=1)
    for name, spec in scenario.models.items():
        view = sim.view(spec.features)
        sim.scorers[name] = make_scorer(name, "logloss", view, build_module(name, spec, view, 1))
    return sim, sim.arm("bench", resolve_arm(scenario, scenario.arms["logloss"]))


def serving(sim: Simulation, arm: Arm, n_requests: int) -> float:
    """Seconds for the complete way of n requests: SimPy traffic, serve, clicks, charges, log on disk."""
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(
            sim, Path(folder), ModelStore(Path(folder)), Progress(True), torch.device("cpu")
        )
        started = time.perf_counter()
        experiment.log_phase("bench", n_requests, arm, rate=0.01)
        return time.perf_counter() - started


def per_request(function: Callable[[], Any], n_requests: int, repeats: int = 7) -> float:
    """Microseconds per request, the best of several repeats."""
    function()
    best = min(_timed(function) for _ in range(repeats))
    return best / n_requests * 1e6


def _timed(function: Callable[[], Any]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def stage_times(sim: Simulation, arm: Arm, block: Block) -> dict[str, float]:
    """Microseconds per request of each stage on one block."""
    platform, n = sim.platform, len(block)
    decision = sim.serve(block, arm)
    ids, short = decision.pre_ranking_set, decision.competitive_set
    rank = score(block, short, arm.ranking, arm, platform)
    shown = explore(block, decision, arm, 0.01, sim.seed, sim.world.init_bid)
    result = outcome(block, decision, sim.truth, sim.world.slot_effects, sim.seed)
    effects = platform.slot_effects[: arm.slots]
    with tempfile.TemporaryDirectory() as folder, TableWriter(Path(folder), "bench") as table:
        return {
            "retrieval": per_request(lambda: platform.retrieval(block.users, arm.retrieval_size), n),
            "pre-ranking": per_request(lambda: score(block, ids, arm.pre_ranking, arm, platform), n),
            "selection": per_request(lambda: select_top(ids, decision.pre_score, arm.pre_ranking_size), n),
            "ranking": per_request(lambda: score(block, short, arm.ranking, arm, platform), n),
            "auction": per_request(
                lambda: auction(rank.bid, rank.quality, slots=arm.slots, slot_effects=effects), n
            ),
            "exploration": per_request(
                lambda: explore(block, decision, arm, 0.01, sim.seed, sim.world.init_bid), n
            ),
            "clicks": per_request(
                lambda: outcome(block, decision, sim.truth, sim.world.slot_effects, sim.seed), n
            ),
            "log": per_request(lambda: table.append(impression_columns(sim, block, shown, result)), n),
        }


def floors(sim: Simulation, arm: Arm, block: Block) -> dict[str, float]:
    """Microseconds per request of scoring alone, on the candidates the cascade scores.

    fused: the kernels that serve. torch: the same nets as batched matrix products in torch, on inputs
    gathered beforehand.
    """
    decision = sim.serve(block, arm)
    ids, short = decision.pre_ranking_set, decision.competitive_set
    pre, rank = arm.pre_ranking.scorer, arm.ranking.scorer

    def torch_floor(scorer, candidates) -> float:
        view, module = scorer.view, scorer._module
        request = torch.from_numpy(view.request_features(block.users, block.context))
        pair = torch.from_numpy(view.pair_features(block.users, candidates))
        ads = torch.from_numpy(view.ad_table[candidates])
        with torch.inference_mode():
            if hasattr(module, "ad_code"):
                code = module.ad_code(ads)
                return per_request(
                    lambda: torch.bmm(code, module.request_code(request).unsqueeze(2)), len(block)
                )
            return per_request(lambda: predict(module, request, ads, pair), len(block))

    return {
        "fused": per_request(lambda: (pre.predict(block, ids), rank.predict(block, short)), len(block)),
        "torch": torch_floor(pre, ids) + torch_floor(rank, short),
    }


def own_model_arm(sim: Simulation, arm: Arm) -> Arm:
    """The arm with a plain torch module in the pre-ranking seat."""
    from cascade_sim.cascade import Stage

    view = sim.view(tuple(SEEN))
    torch.manual_seed(0)
    module = EncodedTowers(view.request_width, view.ad_width, view.pair_width)
    scorer = TorchScorer("own", view, "sigmoid", module)
    return arm.with_pre_ranking(Stage(scorer, "init", arm.pre_ranking.fusion), "own model")


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
    listed = Lists(users[:lists], context[:lists], ads.reshape(lists, m), logit, logit * 0.3, chunk)
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
        epoch = partial(train, module, view, data, recipe, epochs=1, batch=4096, learning_rate=0.001)
        epoch()  # warm-up
        rates[label] = n / _timed(epoch)
    return rates


def peak_memory_mb() -> float:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def run(n_requests: int = 20_000, n_samples: int = 200_000) -> dict[str, Any]:
    """Everything the bench prints."""
    sim, arm = build()
    serving(sim, arm, 2048)  # compiles the kernels, fills the retrieval cache
    seconds = min(serving(sim, arm, n_requests) for _ in range(3))
    before = peak_memory_mb()
    longer = serving(sim, arm, 4 * n_requests)
    own = own_model_arm(sim, arm)
    serving(sim, own, 2048)
    own_seconds = min(serving(sim, own, n_requests) for _ in range(2))
    block = sim.market.block("bench", 0, sim.scenario.traffic.block)
    return {
        "requests": n_requests,
        "sizes": (arm.retrieval_size, arm.pre_ranking_size, arm.slots),
        "serving": n_requests / seconds,
        "serving_longer": 4 * n_requests / longer,
        "memory_growth_mb": peak_memory_mb() - before,
        "own_model": n_requests / own_seconds,
        "floors": floors(sim, arm, block),
        "stages": stage_times(sim, arm, block),
        "training": training_rates(sim, n_samples),
    }
