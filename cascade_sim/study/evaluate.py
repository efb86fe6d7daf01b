"""The evaluation: every arm serves the same traffic with common random numbers, and is measured."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from cascade_sim.analysis.metrics.catalogue import ALL_STEPS
from cascade_sim.cascade.cache import BlockCache
from cascade_sim.cascade.columns import impression_columns
from cascade_sim.cascade.exploration import as_decided
from cascade_sim.cascade.outcome import Outcome
from cascade_sim.cascade.retrievers.routes import route_column
from cascade_sim.cascade.serve import Arm, Block, Decision, Stage, admitted, score
from cascade_sim.environments.budget_replay import budget_facts
from cascade_sim.environments.evaluators import corpus as detail
from cascade_sim.environments.evaluators.base import Context
from cascade_sim.environments.evaluators.log import has_pre_ranking
from cascade_sim.environments.evaluators.truth import ranking_of
from cascade_sim.environments.statement import Measured
from cascade_sim.environments.uncertainty.base import UNCERTAINTY
from cascade_sim.foundation.limits import GROUPS, MAX_ROWS
from cascade_sim.foundation.progress import Progress
from cascade_sim.foundation.workers import Job
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.storage.tables import TableWriter, iterate_table
from cascade_sim.study.model_quality import QualityStudy
from cascade_sim.study.rebuild import Plan, rebuilt, remote_handler
from cascade_sim.study.simulation import Simulation


@dataclass
class ArmTally:
    """What is kept of an arm: columns per row, and vectors summed over groups of requests."""

    columns: dict[str, np.ndarray]  # [rows]: a request each, or in a long evaluation a few in a row
    detail: list[dict[str, np.ndarray]]
    vectors: dict[str, np.ndarray]  # [G, ...]: the catalogue's VECTORS; no proxy_bins if no probability
    sizes: np.ndarray  # [stages]: candidates after each stage, summed; [1] before any block

    def joined(self, what: str) -> dict[str, np.ndarray]:
        parts = getattr(self, what)
        if isinstance(parts, dict):
            return parts
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}


@dataclass(frozen=True)
class ArmBlock:
    """What an arm decided for a block, what came of it, and the sums that are kept."""

    decision: Decision
    outcome: Outcome
    first_row: int
    columns: dict[str, np.ndarray]  # of the rows from first_row on
    vectors: dict[str, np.ndarray]
    detail: dict[str, np.ndarray]
    routes: dict[str, np.ndarray]  # whether each brought what is shown, where they are merged: [R, k]


@dataclass(frozen=True)
class Served:
    """What an arm decided for a block, what came of it, and the columns.  {name: [R]}"""

    context: Context[Any]
    arm: Arm
    decision: Decision
    outcome: Outcome
    columns: dict[str, np.ndarray]


class Replaced(NamedTuple):
    """What an arm of the ablation has in a step of pre-ranking; ALL_STEPS: in every one, what ranking has."""

    stage: str
    bid: str  # the kind of bid and, of opt-bids, the model of their pCVR
    model: str


def ablation_arms(baseline: Arm) -> dict[Replaced, Arm]:
    """The ablation: bid, model and both of each step of pre-ranking replaced by those of the last stage.

    Each step has a 2 x 2 with the other steps as they are. One arm, the last, has all of them replaced and
    must reach an RCS of exactly 1; where there is one step, its both.
    """
    *steps, rank = baseline.stages
    arms = {}
    for at, step in enumerate(steps):
        for own in (step, rank):
            for other in (step, rank):
                arm = _with_parts(baseline, at, own, other)
                key = Replaced(step.name, arm.stages[at].bid_name, own.scorer.name)
                arms[key] = replace(arm, name=_ablation_name(key, len(steps)))
    if len(steps) > 1:
        arm, key = baseline, Replaced(ALL_STEPS, rank.bid_name, rank.scorer.name)
        for at in range(len(steps)):
            arm = _with_parts(arm, at, rank, rank)
        arms[key] = replace(arm, name=_ablation_name(key, len(steps)))
    return arms


def _with_parts(arm: Arm, at: int, model_of: Stage, bid_of: Stage) -> Arm:
    """The arm with the model (and fusion) of one stage and the bid of another in this place."""
    # Opt-bids bring the pCVR they come from; else a fusion that looks at a pCVR keeps its own.
    rates = bid_of.rates if bid_of.bid == "opt" else model_of.rates
    return arm.with_stage(at, scorer=model_of.scorer, fusion=model_of.fusion, bid=bid_of.bid, rates=rates)


def _ablation_name(key: Replaced, n_steps: int) -> str:
    """Marked by its `x`, and by a step where there are several."""
    name = f"{key.bid} x {key.model}"
    return name if n_steps == 1 else f"{key.stage}: {name}"


class ArmEvaluation:
    """Arms on the traffic of the evaluate phase, and the tallies from which results.py makes the metrics.

    `baseline`: the arm that the evaluator's oracle is made from. `ablations`: more arms, of the
    ablation. Without `has_exposure` the log that tells which ads were exposed is gone; none is taken to be.
    """

    n_detail = 0  # requests that are compared with the whole corpus

    def __init__(
        self,
        sim: Simulation,
        logs: Path,
        arms: dict[str, Arm],
        baseline: Arm,
        *,
        n_requests: int,
        ablations: dict[Replaced, Arm] | None = None,
        has_exposure: bool = True,
    ):
        self.sim, self.logs, self.arms, self.baseline = sim, logs, arms, baseline
        self.ablations, self.n_requests = ablations or {}, n_requests
        self.clusters = sim.environment.clusters(n_requests)
        self.uncertainty = sim.environment.uncertainty(n_requests)
        self.n_rows = self.clusters.n if self.clusters else min(n_requests, MAX_ROWS)
        exposed = self._exposed_ads() if has_exposure else np.zeros(sim.world.n_ads, bool)
        self.evaluator = sim.environment.evaluator(baseline, exposed)
        self.budgets = sim.environment.budget_replay()
        self.tallies = {name: self._empty_tally() for name in self.all_arms()}

    def all_arms(self) -> dict[str, Arm]:
        """The arms of the scenario, the reference arms, and the ablation (marked by its `x`)."""
        return {**self.arms, **{arm.name: arm for arm in self.ablations.values()}}

    def _let_arrive(
        self, finish: Callable[[Block, dict[str, ArmBlock]], None], elsewhere: Job | None = None
    ) -> None:
        """Measure all blocks and hand them to `finish` in order."""
        arrivals, n = self.sim.arrivals, self.n_requests
        if self.budgets is None:
            arrivals.run_phase("evaluate", n, self.measure_block, finish, elsewhere)
            return
        # What a block finds in the ledgers is what the blocks before it left there.
        arrivals.run_phase(
            "evaluate", n, lambda block: None, lambda block, _: finish(block, self.measure_block(block))
        )

    def measure_block(self, block: Block) -> dict[str, ArmBlock]:
        """Serve and measure a block with every arm. Pure, unless budgets are replayed."""
        context = self.context(block)
        block = context.block
        same: dict[Arm, ArmBlock] = {}  # the ablation begins and ends with arms that are there
        by_arm: dict[str, ArmBlock] = {}
        for name, arm in self.all_arms().items():
            unnamed = replace(arm, name="")
            if unnamed not in same:
                same[unnamed] = self._measure_arm(context, arm)
            by_arm[name] = same[unnamed]
        looked_at = self._head(block, self.n_detail)
        if len(looked_at):
            n, n_ads = len(looked_at), self.sim.world.n_ads
            heads = {name: (arm, head_of(by_arm[name].decision, n)) for name, arm in self.arms.items()}
            world = cast(detail.Valued, self.sim.environment)  # it has a corpus, and so a known truth
            extras = detail.corpus_columns(world, n_ads, looked_at, heads, self.baseline.name)
            for name, extra in extras.items():
                by_arm[name] = replace(by_arm[name], detail=extra)
        return by_arm

    def context(self, block: Block) -> Context[Any]:
        """What arms are measured by on this block."""
        block = replace(block, memo=BlockCache())
        return self.evaluator.context(block, self._group(block, GROUPS), GROUPS)

    def serve_on(self, context: Context[Any], arm: Arm) -> Served:
        """Let an arm serve a block, and measure it."""
        if self.budgets is None:  # the whole set is scored first, so that no part of it is scored again
            self.evaluator.prepare(context, arm)
        decision, result, served = self._served(context.block, arm)
        columns = self.evaluator.columns(context, served, decision, result)
        return Served(context, served, decision, result, columns)

    def uncertain(self, served: Served) -> dict[str, np.ndarray]:
        """What is kept of how uncertain these columns are, where anything is fitted: {UNCERTAINTY: [...]}."""
        return self.uncertainty.sums(
            served.context, served.arm, served.decision, served.outcome, served.columns
        )

    def _measure_arm(self, context: Context[Any], arm: Arm) -> ArmBlock:
        served = self.serve_on(context, arm)
        decision, result = served.decision, served.outcome
        row = self._row(context.block)
        first = int(row.min())
        return ArmBlock(
            decision=decision,
            outcome=result,
            first_row=first,
            columns={name: np.bincount(row - first, column) for name, column in served.columns.items()},
            vectors=self.uncertain(served) | self.evaluator.vectors(context, served.arm, decision, result),
            detail={},
            routes=self.sim.brought_by(context.block, arm, decision.win_set),
        )

    def _served(self, block: Block, arm: Arm) -> tuple[Decision, Outcome, Arm]:
        """What the arm decides, what comes of it, and the arm among the ads that its budgets left."""
        sim = self.sim
        if self.budgets is not None:
            settled = self.budgets.settle(block, arm)
            return settled.decision, settled.outcome, settled.arm
        decision = sim.serve(block, arm)
        return decision, sim.environment.outcome(block, decision, arm.charging), arm

    def _add(self, name: str, served: ArmBlock) -> None:
        tally = self.tallies[name]
        for column, part in served.columns.items():
            total = tally.columns.setdefault(column, np.zeros(self.n_rows))
            total[served.first_row : served.first_row + len(part)] += part  # may continue the last block's
        if served.detail:
            tally.detail.append(served.detail)
        for kind, sums in served.vectors.items():
            tally.vectors[kind] = tally.vectors[kind] + sums if kind in tally.vectors else sums
        tally.sizes = tally.sizes + [np.count_nonzero(ids >= 0) for ids in served.decision.sets]

    def _head(self, block: Block, n: int) -> Block:
        """Those requests of this block that are among the first n of the evaluation; possibly none."""
        return block.take(slice(0, int(np.clip(n - self._local(block)[0], 0, len(block)))))

    def _local(self, block: Block) -> np.ndarray:
        return block.requests - self.sim.arrivals.first_request("evaluate")

    def _row(self, block: Block) -> np.ndarray:
        """The row of the tallies that each request is added to.  [R]"""
        if self.clusters is None:
            return self._group(block, self.n_rows)
        return self.clusters.of_request[self._local(block)]

    def resampled(self) -> dict[str, dict[str, np.ndarray]]:
        """The columns of every arm as intervals resample them.  {arm: {column: [rows]}}

        They include the uncertainty of an imputation model, or of a fitted click model.
        """
        return self.uncertainty.widened(self._tables, self._kept, self.clusters, self.reference)

    @property
    def reference(self) -> str:
        """The arm that lifts are over."""
        return self.baseline.name

    def controlled(self) -> dict[str, dict[str, np.ndarray]]:
        """The columns of every arm; of a log, with its click model as control variate of lifts."""
        return self.uncertainty.controlled(self._tables, self._kept, self.clusters, self.reference)

    @property
    def _tables(self) -> dict[str, dict[str, np.ndarray]]:
        return {name: tally.joined("columns") for name, tally in self.tallies.items()}

    @property
    def _kept(self) -> dict[str, np.ndarray]:
        kept = {name: tally.vectors.get(UNCERTAINTY) for name, tally in self.tallies.items()}
        return {name: sums for name, sums in kept.items() if sums is not None}

    def measured(self, current: str) -> Measured:
        """What a statement speaks of; `current` is the arm as it was deployed."""
        sums = {name: float(column.sum()) for name, column in self.tallies[current].columns.items()}
        return Measured(sums, self.clusters, budget_facts(self.budgets, self.arms, current))

    def _group(self, block: Block, n_groups: int, n_requests: int = 0) -> np.ndarray:
        """Which of n groups of consecutive requests each request belongs to.  [R]"""
        if self.clusters is not None:
            return self._row(block) * n_groups // self.clusters.n
        return self._local(block) * n_groups // (n_requests or self.n_requests)

    def _exposed_ads(self) -> np.ndarray:
        """Ads that the deployed cascade showed often enough, exploration apart.  [A] bool"""
        n_ads = self.sim.world.n_ads
        if not self.sim.scenario.phases.log:
            return np.zeros(n_ads, bool)
        shown = np.zeros(n_ads, np.int64)
        for log in iterate_table(self.logs, "log", ["ad", "is_explored"]):
            shown += np.bincount(log["ad"][~log["is_explored"]], minlength=n_ads)
        return shown >= self.sim.scenario.report.exposed_impressions

    def _empty_tally(self) -> ArmTally:
        return ArmTally({}, [], {}, np.zeros(1))


class Evaluation(ArmEvaluation):
    """The evaluate phase of a study: every arm and reference arm, logged, with the quality of the models."""

    def __init__(self, sim: Simulation, logs: Path, progress: Progress):
        self.progress = progress
        self.specs = resolved_arms(sim.scenario)
        arms = {name: sim.arm(name, spec) for name, spec in self.specs.items()}
        baseline = arms[sim.scenario.report.baseline]
        n_requests, ablations = sim.scenario.phases.evaluate, ablations_of(sim, baseline)
        super().__init__(sim, logs, arms, baseline, n_requests=n_requests, ablations=ablations)
        self.n_quality = min(self.n_requests, sim.scenario.report.detail_requests)
        if sim.environment.has("corpus"):  # a log has none beyond each request's candidates
            self.n_detail = detail.n_detail(self.n_quality, sim.world.n_ads)
        seats = [m for s in self.specs.values() for m in (section.model for _, section in s.sections)]
        named = [name for name in dict.fromkeys(seats) if name not in sim.built_in]
        knows_truth = sim.environment.has("truth")
        if not knows_truth:
            named = []  # compared with the log's own clicks, not against a truth
        ranker = self.specs[sim.scenario.report.baseline].ranking.model
        self.model_quality = QualityStudy(
            sim, named, ranker if knows_truth else None, baseline, self.n_quality
        )
        asked = dict.fromkeys(name for spec in self.specs.values() for name in spec.pcvr_models)
        self.pcvr_quality = None
        if asked:
            self.pcvr_quality = QualityStudy(
                sim, list(asked), None, baseline, self.n_quality, sim.environment.cvr
            )

    def run(self) -> None:
        """Serve and measure; impressions of every arm and the shadow's scores go to the log."""
        with ExitStack() as stack:
            bar = stack.enter_context(self.progress.stage("evaluate", self.n_requests))

            def open_table(name: str) -> TableWriter:
                return stack.enter_context(TableWriter(self.logs, name))

            tables = {name: open_table(f"evaluate-{name}") for name in self.arms}
            shadow_table = open_table("shadow")
            # The shadow's scores are the baseline's ranking stage's: only arms that share it can be joined.
            service_tables = {
                name: open_table(f"service-{name}")
                for name in self.sim.scenario.arms
                if ranking_of(self.arms[name]) == ranking_of(self.baseline)
            }

            def finish(block: Block, by_arm: dict[str, ArmBlock]) -> None:
                for name, served in by_arm.items():
                    self._add(name, served)
                    if name in tables:
                        shown = as_decided(served.decision)
                        tables[name].append(
                            impression_columns(
                                self.sim.world, block, shown, served.outcome, routes=served.routes
                            )
                        )
                self._log_detail(block, by_arm, shadow_table, service_tables)
                bar.advance(len(block))

            elsewhere = Job("phase evaluate", evaluation_server, (Plan.of(self.sim, self.logs),))
            self._let_arrive(finish, elsewhere)

    def _log_detail(self, block: Block, by_arm: dict[str, ArmBlock], shadow_table, service_tables) -> None:
        """Scores on whole pre-ranking sets, as the paper's SQL wants them, and the quality of the models."""
        part = self._head(block, self.n_quality)
        if not len(part):
            return
        sim, arm = self.sim, self.baseline
        decision = head_of(by_arm[arm.name].decision, len(part))
        for study in (self.model_quality, self.pcvr_quality):
            if study is not None:
                study.add(part, decision, self._group(part, study.n_groups, self.n_quality))
        ids = decision.retrieved
        rank_score = admitted(score(part, ids, arm.last, arm, sim.platform), arm.last, arm)
        # An ad that the auction would not admit cannot be an ideal winner, however few there are.
        rank_score = np.where(rank_score > 0, rank_score, -np.inf)
        routes = {route_column(n): found for n, found in sim.brought_by(part, arm, ids).items()}
        shadow_table.append(_pair_rows(part, ids, {"rank_score": rank_score.astype(np.float64), **routes}))
        for name, table in service_tables.items():
            own = head_of(by_arm[name].decision, len(part))
            scores = own.passes[-2].order.astype(np.float64)
            table.append(_pair_rows(part, own.passes[-2].ids, {"pre_rank_score": scores}))

    def replay_facts(self) -> dict[str, Any]:
        """What the results of a log rest on, for metrics.json, with the quality of the logged models."""
        sim, baseline = self.sim, self.sim.scenario.report.baseline
        stated = sim.environment.statement(self.measured(baseline))
        if stated.facts is None:
            return {}
        others = {name: name for name in sim.scenario.arms if name != baseline}
        told = [*stated.notes, *stated.budget_notes(baseline, others)]
        models = sim.environment.model_quality(sim.scorers)
        return {"replay": {**stated.facts, "notes": told, "models": models}}


def ablations_of(sim: Simulation, baseline: Arm) -> dict[Replaced, Arm]:
    """The ablation; none where a log has no pre-ranking stage."""
    return ablation_arms(baseline) if sim.environment.has("corpus") or has_pre_ranking(baseline) else {}


def evaluation_server(plan: Plan) -> Callable[..., Any]:
    """Serves and measures the evaluation in another process."""
    sim = rebuilt(plan)
    return remote_handler(sim, Evaluation(sim, plan.folder, Progress(quiet=True)).measure_block)


def head_of(decision: Decision, n: int) -> Decision:
    """The decision for the first n requests of its block."""
    return decision.take(slice(n))


def _pair_rows(block: Block, ids: np.ndarray, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A row per candidate, with values [R, m] of it."""
    row, column = np.nonzero(ids >= 0)
    found = {name: value[row, column] for name, value in values.items()}
    return {"request": block.requests[row], "ad": ids[row, column], **found}
