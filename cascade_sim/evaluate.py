"""The evaluation: every arm serves the same traffic under the same luck, and is measured."""

from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.attribution import SlotList
from cascade_sim import detail, measure
from cascade_sim.cascade import Arm, Block, Decision, Stage, admitted, score
from cascade_sim.experiment import impression_columns
from cascade_sim.exploration import Explored
from cascade_sim.outcome import Outcome, outcome
from cascade_sim.progress import Progress
from cascade_sim.quality import QualityStudy
from cascade_sim.records import TableWriter, read_table
from cascade_sim.scenario import resolved_arms
from cascade_sim.seats import BUILT_IN
from cascade_sim.simulation import Simulation

GROUPS = 128  # of consecutive requests, over which vector statistics are resampled


@dataclass
class ArmTally:
    """What is kept of an arm: columns per request, and vectors summed over groups of requests."""

    columns: list[dict[str, np.ndarray]]
    detail: list[dict[str, np.ndarray]]
    proxy: np.ndarray | None  # [G, 3, bins]
    paid: np.ndarray  # [G, 2, advertisers]: by this arm, by the oracle
    sizes: np.ndarray  # [3]: candidates after each stage, summed

    def joined(self, what: str) -> dict[str, np.ndarray]:
        parts = getattr(self, what)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}


@dataclass(frozen=True)
class ArmBlock:
    """One arm on one block."""

    decision: Decision
    outcome: Outcome
    columns: dict[str, np.ndarray]
    proxy: np.ndarray | None
    paid: np.ndarray
    detail: dict[str, np.ndarray]


def culprit_arms(baseline: Arm) -> dict[tuple[str, str], Arm]:
    """The baseline with its pre-ranking seats replaced one at a time by the ranking stage's.

    Keyed by (bid, model); the last one has both replaced and must reach an RCS of exactly 1.
    """
    pre, rank = baseline.pre_ranking, baseline.ranking
    arms = {}
    for scorer, fusion in ((pre.scorer, pre.fusion), (rank.scorer, rank.fusion)):
        for bid in (pre.bid, rank.bid):
            stage = Stage(scorer, bid, fusion)
            arms[bid, scorer.name] = baseline.with_pre_ranking(stage, f"{bid} x {scorer.name}")
    return arms


class Evaluation:
    """Runs the evaluate phase and holds the tallies from which results.py makes the metrics."""

    def __init__(self, sim: Simulation, logs: Path, progress: Progress):
        self.sim, self.logs, self.progress = sim, logs, progress
        self.n_requests = sim.scenario.phases.evaluate
        self.n_detail = detail.n_detail(sim, self.n_requests)
        self.specs = resolved_arms(sim.scenario)
        self.arms = {name: sim.arm(name, spec) for name, spec in self.specs.items()}
        self.baseline = self.arms[sim.scenario.report.baseline]
        self.culprits = culprit_arms(self.baseline)
        self.is_exposed = self._exposed_ads()
        pre_rankers = [spec.pre_ranking.model for spec in self.specs.values()]
        named = [name for name in dict.fromkeys(pre_rankers) if name not in BUILT_IN]
        self.quality = QualityStudy(sim, named, self.specs[sim.scenario.report.baseline].ranking.model)
        self.tallies = {name: self._empty_tally() for name in self.all_arms()}

    def all_arms(self) -> dict[str, Arm]:
        """The arms of the scenario, the reference arms, and the culprit search (marked by its `x`)."""
        return {**self.arms, **{arm.name: arm for arm in self.culprits.values()}}

    def run(self) -> None:
        """Serve and measure; impressions of every arm and the shadow's scores go to the log."""
        with ExitStack() as stack:
            bar = stack.enter_context(self.progress.stage("evaluate", self.n_requests))

            def open_table(name: str) -> TableWriter:
                return stack.enter_context(TableWriter(self.logs, name))

            tables = {name: open_table(f"evaluate-{name}") for name in self.arms}
            shadow_table = open_table("shadow")
            service_tables = {name: open_table(f"service-{name}") for name in self.sim.scenario.arms}

            def finish(block: Block, found: dict[str, ArmBlock]) -> None:
                for name, one in found.items():
                    self._add(name, one)
                    if name in tables:
                        propensity = (one.decision.win_set >= 0).astype(np.float64)
                        shown = Explored(one.decision, np.zeros(len(block), bool), propensity)
                        tables[name].append(impression_columns(self.sim, block, shown, one.outcome))
                self._log_detail(block, found, shadow_table, service_tables)
                bar.advance(len(block))

            self.sim.market.run_phase("evaluate", self.n_requests, self.measure_block, finish)

    def measure_block(self, block: Block) -> dict[str, ArmBlock]:
        """All arms on one block. Pure."""
        sim = self.sim
        yards: dict[Any, measure.Yardstick] = {}
        best: dict[Any, SlotList] = {}
        looked_at = self._detail_part(block)
        found = {}
        for name, arm in self.all_arms().items():
            key = replace(arm, name="", pre_ranking=arm.ranking, pre_ranking_size=1)
            if key not in yards:
                yards[key] = measure.yardstick(block, arm, sim.platform, sim.truth, sim.seed)
                if len(looked_at):
                    best[key] = detail.true_best_of_corpus(sim, arm, looked_at)
            found[name] = self._measure_arm(block, arm, yards[key], looked_at, best.get(key))
        return found

    def _measure_arm(
        self, block: Block, arm: Arm, yard: measure.Yardstick, looked_at: Block, best: SlotList | None
    ) -> ArmBlock:
        sim = self.sim
        decision = sim.serve(block, arm)
        result = outcome(block, decision, sim.truth, sim.world.slot_effects, sim.seed)
        group, owner, n = self._group(block), sim.world.advertiser, sim.world.n_advertisers
        paid = measure.payments(decision, result, owner, n, group, GROUPS)
        paid_oracle = measure.payments(yard.oracle, yard.oracle_outcome, owner, n, group, GROUPS)
        proxy = measure.proxy_sums(decision, arm, yard)
        extra: dict[str, np.ndarray] = {}
        if best is not None and arm.name in self.arms:
            head = head_of(decision, len(looked_at))
            extra = detail.attribution_columns(sim, arm, looked_at, head, best)
            extra["retrieval_rcs"] = detail.retrieval_rcs(sim, arm, looked_at, head)
        return ArmBlock(
            decision=decision,
            outcome=result,
            columns=measure.columns(
                decision, result, arm, yard, sim.truth, block, sim.platform, self.is_exposed
            ),
            proxy=None if proxy is None else _by_group(proxy, group),
            paid=np.stack([paid, paid_oracle], axis=1),
            detail=extra,
        )

    def _add(self, name: str, one: ArmBlock) -> None:
        tally = self.tallies[name]
        tally.columns.append(one.columns)
        if one.detail:
            tally.detail.append(one.detail)
        if one.proxy is not None:
            tally.proxy = one.proxy if tally.proxy is None else tally.proxy + one.proxy
        tally.paid += one.paid
        sets = (one.decision.pre_ranking_set, one.decision.competitive_set, one.decision.win_set)
        tally.sizes += [(ids >= 0).sum() for ids in sets]

    def _log_detail(self, block: Block, found: dict[str, ArmBlock], shadow_table, service_tables) -> None:
        """Scores on whole pre-ranking sets, as the paper's SQL wants them, and the quality of the models."""
        part = self._detail_part(block)
        if not len(part):
            return
        sim, arm = self.sim, self.baseline
        decision = head_of(found[arm.name].decision, len(part))
        self.quality.add(part, decision)
        ids = decision.pre_ranking_set
        rank_score = admitted(score(part, ids, arm.ranking, arm, sim.platform), arm.ranking, arm)
        # An ad that the auction would not admit cannot be an ideal winner, however few there are.
        rank_score = np.where(rank_score > 0, rank_score, -np.inf)
        shadow_table.append(_score_rows(part, ids, "rank_score", rank_score))
        for name, table in service_tables.items():
            own = head_of(found[name].decision, len(part))
            table.append(_score_rows(part, own.pre_ranking_set, "pre_rank_score", own.pre_score))

    def _detail_part(self, block: Block) -> Block:
        """The requests of this block that are looked at in detail; possibly none."""
        n = int(np.clip(self.n_detail - self._local(block)[0], 0, len(block)))
        return Block(block.requests[:n], block.users[:n], block.context[:n], block.times[:n])

    def _local(self, block: Block) -> np.ndarray:
        return block.requests - self.sim.market.first_request("evaluate")

    def _group(self, block: Block) -> np.ndarray:
        return self._local(block) * GROUPS // self.n_requests

    def _exposed_ads(self) -> np.ndarray:
        """Ads that the deployed cascade showed often enough, exploration apart.  [A] bool"""
        n_ads = self.sim.world.n_ads
        if not self.sim.scenario.phases.log:
            return np.zeros(n_ads, bool)
        log = read_table(self.logs, "log", ["ad", "is_explored"])
        shown = np.bincount(log["ad"][~log["is_explored"]], minlength=n_ads)
        return shown >= self.sim.scenario.report.exposed_impressions

    def _empty_tally(self) -> ArmTally:
        paid = np.zeros((GROUPS, 2, self.sim.world.n_advertisers))
        return ArmTally([], [], None, paid, np.zeros(3))


def head_of(decision: Decision, n: int) -> Decision:
    """The decision for the first n requests of its block."""
    return Decision(**{f.name: getattr(decision, f.name)[:n] for f in fields(decision)})


def _by_group(per_request: np.ndarray, group: np.ndarray) -> np.ndarray:
    """[R, ...] -> [G, ...]"""
    total = np.zeros((GROUPS, *per_request.shape[1:]))
    np.add.at(total, group, per_request)
    return total


def _score_rows(block: Block, ids: np.ndarray, name: str, scores: np.ndarray) -> dict[str, np.ndarray]:
    row, column = np.nonzero(ids >= 0)
    return {
        "request": block.requests[row],
        "ad": ids[row, column],
        name: scores[row, column].astype(np.float64),
    }
