"""The evaluation served again by a few arms only: measured as the study measured its own, nothing logged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.analysis.statistics.paired_differences import function_differences, ratio_differences
from cascade_sim.analysis.statistics.pairing import worth_of_pairing
from cascade_sim.cascade.serve import Arm, Block
from cascade_sim.phases import measure
from cascade_sim.phases.evaluate import MAX_ROWS, ArmBlock, Evaluation
from cascade_sim.phases.measure import PARTS
from cascade_sim.phases.results import arm_metrics, vector_metrics
from cascade_sim.phases.simulation import Simulation
from cascade_sim.progress import Progress
from cascade_sim.storage.tables import tables

# Beside the measures of every study. The tops and bottoms are ratio_parts' columns.
EXTRA: dict[str, tuple[str, str | None]] = {
    "slots_filled": ("ctr bottom", "slots"),
    "impressions_per_request": ("ctr bottom", "revenue_per_request bottom"),
}
NOT_AGAIN = ("retrieval_rcs",)  # measured on the whole corpus: too dear to repeat for every value of a knob
PAIRED = {"clicked": "revenue_per_request", "expected": "expected_revenue_per_request"}


class WhatIfEvaluation(Evaluation):
    """Some arms on the evaluation's own traffic and luck.

    `ruler_arm` is the run's baseline: welfare and oracle stay those of the run. Without the log of the run
    the ads that were exposed are not known, and measures that are split by exposure are left out.
    """

    def __init__(
        self, sim: Simulation, logs: Path, arms: dict[str, Arm], ruler_arm: Arm, n_requests: int = 0
    ) -> None:
        self.sim, self.logs, self.arms, self.culprits = sim, logs, arms, {}
        block, total = sim.scenario.traffic.block, sim.scenario.phases.evaluate
        # Whole blocks: what a net predicts may differ in the last bit with the requests beside it.
        self.n_requests = min(-(-(n_requests or total) // block) * block, total)
        self.n_rows = min(self.n_requests, MAX_ROWS)
        self.n_detail = 0
        self.has_exposure = not sim.scenario.phases.log or "log" in tables(logs)
        exposed = self._exposed_ads() if self.has_exposure else np.zeros(sim.world.n_ads, bool)
        self.ruler = measure.Ruler(sim.platform, sim.truth, sim.seed, ruler_arm, exposed)
        self.tallies = {name: self._empty_tally() for name in arms}

    def serve(self, progress: Progress) -> None:
        """Serve and measure the traffic once, for all arms."""
        with progress.stage("what if", self.n_requests) as bar:

            def finish(block: Block, found: dict[str, ArmBlock]) -> None:
                for name, one in found.items():
                    self._add(name, one)
                bar.advance(len(block))

            self.sim.market.run_phase("evaluate", self.n_requests, self.measure_block, finish)

    def metrics(self, today: str) -> dict[str, dict[str, dict[str, Any]]]:
        """{arm: {metric: {"value", "low", "high"} and, but for `today`, "lift" and "difference"}}."""
        resamples, seed = self.sim.scenario.report.resamples, self.sim.seed
        for name, arm in self.arms.items():
            columns = self.tallies[name].columns
            columns["slots"] = arm.slots * columns["revenue_per_request bottom"]
        joined = {name: tally.joined("columns") for name, tally in self.tallies.items()}
        known = {column for columns in joined.values() for column in columns}
        ratios = {metric: pair for metric, pair in {**PARTS, **EXTRA}.items() if {*pair} <= {*known, None}}
        found = arm_metrics(self, today, resamples, seed, ratios)
        differences = ratio_differences(joined, ratios, today, resamples, seed)
        for metric, (sums, function) in vector_metrics(self.tallies).items():
            gaps = function_differences(sums, function, today, resamples, seed)
            for name in differences:
                differences[name][metric] = gaps.get(name, {"value": None, "low": None, "high": None})
        dropped = {m for m in found[today] if m.endswith("exposed") and not self.has_exposure} | {*NOT_AGAIN}
        for name in found:
            found[name] = {m: entry for m, entry in found[name].items() if m not in dropped}
            if name != today:
                for metric, entry in found[name].items():
                    entry["difference"] = differences[name][metric]
        return found

    def pairing(self, today: str, name: str) -> dict[str, dict[str, Any]]:
        """How many times the same requests and luck shrink the variance of a difference in revenue."""
        resamples, seed = self.sim.scenario.report.resamples, self.sim.seed
        before, after = self.tallies[today].columns, self.tallies[name].columns
        return {
            kind: worth_of_pairing(before[f"{metric} top"], after[f"{metric} top"], resamples, seed)
            for kind, metric in PAIRED.items()
        }
