"""Experiments on a market, and what a launch would bring: the section `market.designs` of metrics.json.

Truth is a market in which all requests get the treatment from the first day of the trial on, less one in
which none does: the same requests, the same draws, so for these days of this world it is exact. Each design
is run as it would be in production, and read as an experimenter would.

Checkpoints and tables are those of a market called design-KIND (split budgets: design-budget-control and
design-budget-treatment); the table has a column `is_treated`.
"""

from typing import Any

import numpy as np

from cascade_sim.cascade.serve import Arm
from cascade_sim.context import RunContext
from cascade_sim.experiments.assignment import make_assignment
from cascade_sim.experiments.effects import (
    bias_of,
    cuped_section,
    daily_sums,
    design_effects,
    paired_by_day,
    sequence_section,
    truth_effects,
)
from cascade_sim.experiments.run import DesignRun
from cascade_sim.experiments.server import ARMS
from cascade_sim.market.study import arm_market, market_tables, run_recorded
from cascade_sim.scenario.market import PREFIX, Designs, Market
from cascade_sim.scenario.schema import control_arm, resolved_arms
from cascade_sim.storage.checkpoints import load_figures, save_figures
from cascade_sim.storage.files import below
from cascade_sim.storage.folder import CHECKPOINTS, keep
from cascade_sim.study.simulation import Simulation

LAUNCH = "launch"


def run_designs(sim: Simulation, context: RunContext) -> dict[str, Any]:
    """Every design of the scenario, the truth, and how far each design is from it."""
    study = DesignStudy(sim, context)
    spec, market = study.spec, study.market
    launch, control = study.launch(), study.none_treated()
    truth = truth_effects(launch["hours"], control["hours"], spec.pre_days, market.days)
    kinds = {}
    for kind in spec.kinds:
        result = study.budget_split() if kind == "budget" else study.shared(kind)
        effects = result.pop("measures")
        measures = {name: {**effect, **bias_of(effect, truth[name])} for name, effect in effects.items()}
        kinds[kind] = {**result, "measures": measures}
    section = {
        "treatment": spec.treatment,
        "control": control_arm(sim.scenario),
        "share": spec.share,
        "pre_days": spec.pre_days,
        "days": market.days - spec.pre_days,
        "switchback": spec.switchback,
        "truth": truth,
        "kinds": kinds,
    }
    for kind, name in (("user", "cuped"), ("request", "sequence")):
        if kind in kinds:
            section[name] = kinds[kind].pop(name)
    return section


class DesignStudy:
    """The markets of the designs of one world, each from its checkpoint if there is one."""

    def __init__(self, sim: Simulation, context: RunContext):
        assert sim.scenario.market is not None and sim.scenario.market.designs is not None
        self.sim, self.context, self.out = sim, context, context.out
        self.market: Market = sim.scenario.market
        self.spec: Designs = sim.scenario.market.designs
        names = dict(zip(ARMS, (control_arm(sim.scenario), self.spec.treatment), strict=True))
        arms = resolved_arms(sim.scenario)
        self.arms: dict[str, tuple[Arm, Market]] = {
            role: (sim.arm(name, arms[name]), arm_market(sim, arms[name])) for role, name in names.items()
        }

    def none_treated(self) -> dict[str, Any]:
        """The control's own market, which has run before."""
        return self._finished(control_arm(self.sim.scenario))

    def launch(self) -> dict[str, Any]:
        """All treated from the trial's first day on; without days before it, the treatment's market."""
        if self.spec.pre_days == 0:
            return self._finished(self.spec.treatment)
        return self._market(LAUNCH, "all", lambda run, figures: {"hours": figures["hours"]})

    def shared(self, kind: str) -> dict[str, Any]:
        """A design whose arms share budgets and bidders."""

        def read(run: DesignRun, figures: dict[str, Any]) -> dict[str, Any]:
            columns = run.outcomes.columns()
            result = {
                "measures": design_effects(kind, columns, self.spec),
                **_shares(daily_sums(columns, self.spec.pre_days, self.market.days)),
                "overspend": figures["overspend"],
            }
            if kind == "user":
                n_users = self.sim.world.n_users
                result["cuped"] = cuped_section(columns, run.assignment, n_users)
            if kind == "request":
                result["sequence"] = sequence_section(columns, run.assignment.start, self.market)
            return result

        return self._market(kind, kind, read)

    def budget_split(self) -> dict[str, Any]:
        """Two markets, each with its part of the requests and of every budget."""

        def read(run: DesignRun, figures: dict[str, Any]) -> dict[str, Any]:
            sums = daily_sums(run.outcomes.columns(), self.spec.pre_days, self.market.days)
            return {"days": sums["treatment" if run.part else "control"], "overspend": figures["overspend"]}

        parts = {
            "control": self._market("budget-control", "none", read, part=False),
            "treatment": self._market("budget-treatment", "all", read, part=True),
        }
        days = {role: part["days"] for role, part in parts.items()}
        return {
            "measures": paired_by_day(days, self.market.days),
            **_shares(days),
            "overspend": max(part["overspend"] for part in parts.values()),
        }

    def _market(self, kind: str, unit: str, read, part: bool | None = None) -> dict[str, Any]:
        """What `read` finds in a market on trial, from its file if it is done."""
        name = f"{PREFIX}{kind}"
        done = below(self.out, CHECKPOINTS, f"{name}.json")
        if not done.is_file():
            assignment = make_assignment(self.spec, unit, self.sim.seed)
            run = DesignRun(self.sim, self.arms, assignment, part=part, workers=self.context.workers)
            figures = run_recorded(
                run,
                name,
                self.context,
                lambda settled: {"is_treated": assignment.is_treated(settled.block)},
            )
            keep(self.out, f"market-{name}", market_tables(self.sim, name))
            save_figures(done, read(run, figures))
        return load_figures(done)

    def _finished(self, arm: str) -> dict[str, Any]:
        return load_figures(below(self.out, CHECKPOINTS, f"{arm}.json"))


def _shares(days: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """Requests of each arm in the trial, and the treatment's share of them and of the spend."""

    def total(role: str, name: str) -> float:
        return float(np.sum(days[role][name]))

    shares: dict[str, Any] = {"requests": {role: total(role, "requests") for role in ARMS}}
    for key, name in (("request_share", "requests"), ("spend_share", "revenue")):
        whole = total("control", name) + total("treatment", name)
        shares[key] = {"value": total("treatment", name) / whole if whole else None}
    return shares
