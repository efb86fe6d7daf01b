"""Arms of a study over several worlds, each compared with one of them, world by world.

All arms of a world meet the same requests and learn from the same log, so what differs between two of them
differs within a world; worlds are what is drawn. Differences are taken world by world, and their mean has a
t interval between worlds. Of many comparisons some look good by chance: intervals hold together, all at once
(Bonferroni), and p-values are Holm's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.analysis.metrics.catalogue import MODEL_MEASURES, arm_measure
from cascade_sim.analysis.statistics.moves import holm, paired_p
from cascade_sim.counterfactual.whatif import worlds_of
from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.storage.files import below
from cascade_sim.storage.folder import open_run, require_measures

RELATIVE = "%"  # behind a measure: the difference in percent of the other's
USUAL = ("gauc", "logloss", "ece", "cpc_error", "expected_rpm%")
LEVEL = 0.05  # of all comparisons together
WIN_SET = "win_set"
LOST = "value_lost_"  # and a stage


@dataclass(frozen=True)
class Contrast:
    """One arm and one measure over all worlds."""

    arm: str
    measure: str
    value: float | None  # the arm's own, mean over worlds
    other: float | None  # that of the arm it is compared with
    difference: float | None  # mean over worlds
    low: float | None  # of an interval that holds for all comparisons together
    high: float | None
    p: float | None  # Holm's, over all comparisons
    ahead: int  # worlds in which it is better; 0 where neither side is
    worlds: int  # that count

    @property
    def is_told(self) -> bool:
        """Whether the difference is significant, adjusted for the others."""
        return self.p is not None and self.p < LEVEL

    def data(self) -> dict[str, Any]:
        return {**asdict(self), "is_told": self.is_told}


def contrasts(
    run: Path,
    against: str,
    arms: Sequence[str] = (),
    measures: Sequence[str] = USUAL,
    of: str = WIN_SET,
) -> list[Contrast]:
    """Every arm (default: all of the scenario) against one, in each measure.

    A measure is one of an arm, or of the model in its ranking stage on the set `of`; with `%` behind it, the
    difference is in percent. UserError for a run of fewer than two worlds, or names that are not there.
    """
    folders = worlds_of(run)
    if folders == [run]:
        open_run(run)  # one that did not finish is told how it can
        raise UserError(f"{run} has one world; contrasts are taken between worlds: run it with --seeds")
    worlds = [_measured(folder) for folder in folders]
    known = [name for name in worlds[0]["arms"] if name in worlds[0]["rankers"]]
    for name in (against, *arms):
        if name not in known:
            raise UserError(f"--against or --arms: {unknown_name('arm', name, known)}")
    sets = worlds[0]["sets"]
    if of not in sets:
        raise UserError(f"--candidates: {unknown_name('set', of, sets)}")
    compared = [name for name in arms or known if name != against]
    rows = []
    for measure in measures:
        base = np.array([_value(world, against, measure, of) for world in worlds])
        for arm in compared:
            own = np.array([_value(world, arm, measure, of) for world in worlds])
            rows.append((arm, measure, own, base))
    n = sum(np.isfinite(own - base).sum() > 1 for _, _, own, base in rows)
    made = [_contrast(*row, comparisons=max(int(n), 1)) for row in rows]
    adjusted = holm([math.nan if each.p is None else each.p for each in made])
    return [
        Contrast(**{**asdict(each), "p": None if math.isnan(p) else p})
        for each, p in zip(made, adjusted, strict=True)
    ]


def _measured(folder: Path) -> dict[str, Any]:
    run = open_run(folder)
    require_measures(run)
    from cascade_sim.logs.audit.reproduction import require_reproduced
    from cascade_sim.scenario.file import load_scenario
    from cascade_sim.scenario.schema import resolved_arms

    scenario = load_scenario(below(folder, "scenario.yaml"))
    require_reproduced(scenario, folder)
    arms = resolved_arms(scenario)
    rankers = {name: arms[name].ranking.model for name in scenario.arms}
    models = run.metrics.get("models") or {}
    steps = ("pre_ranking", *reversed(scenario.cascade.pre_ranking.earlier))
    lost = {name: losses_of(run.metrics, name) for name in scenario.arms}
    return {
        "arms": {name: {**run.metrics["arms"][name], **lost[name]} for name in scenario.arms},
        "models": models,
        "rankers": rankers,
        "sets": (WIN_SET, "competitive_set", *(f"{step}_set" for step in steps)),
    }


def losses_of(metrics: Mapping[str, Any], arm: str) -> dict[str, dict[str, float]]:
    """What each stage of an arm loses of the best pages' value, and what it costs: {measure: {"value": x}}.

    Of value as a part of that of the best page of the corpus, `value_lost_STAGE`; of cost `cost.flops`.
    """
    own, cost = ((metrics.get(section) or {}).get(arm) or {} for section in ("attribution", "cost"))
    found = {f"cost.{name}": {"value": cost[name]} for name in ("flops", "bytes") if cost.get(name)}
    for row in own["stages"] if own.get("ecpm_best") else ():
        found[f"{LOST}{row['stage']}"] = {"value": row["ecpm_lost"]["value"] / own["ecpm_best"]}
    return found


def _value(world: Mapping[str, Any], arm: str, measure: str, of: str) -> float:
    """NaN where it is undefined; UserError where it was not measured."""
    name = measure.removesuffix(RELATIVE)
    own = world["arms"][arm]
    if name in own:
        found = own[name]["value"]
    elif name in MODEL_MEASURES:
        model = world["models"].get(world["rankers"][arm], {})
        found = model.get(of, {}).get(name, {}).get("value")
    else:
        raise UserError(f"--metrics: {unknown_name('measure', name, [*own, *MODEL_MEASURES])}")
    return math.nan if found is None else float(found)


def _contrast(arm: str, measure: str, own: np.ndarray, base: np.ndarray, comparisons: int) -> Contrast:
    from scipy.stats import t

    gap = 100.0 * (own / base - 1.0) if measure.endswith(RELATIVE) else own - base
    counts = np.isfinite(gap)
    gap, own, base, n = gap[counts], own[counts], base[counts], int(counts.sum())
    if n < 2:
        return Contrast(arm, measure, None, None, None, None, None, None, 0, n)
    half = float(t.ppf(1.0 - LEVEL / (2 * comparisons), n - 1) * gap.std(ddof=1) / math.sqrt(n))
    mean = float(gap.mean())
    return Contrast(
        arm=arm,
        measure=measure,
        value=float(own.mean()),
        other=float(base.mean()),
        difference=mean,
        low=mean - half,
        high=mean + half,
        p=paired_p(gap, np.zeros(n)),
        ahead=_ahead(measure.removesuffix(RELATIVE), own, base),
        worlds=n,
    )


def _ahead(measure: str, own: np.ndarray, base: np.ndarray) -> int:
    """Worlds in which the first is better, by what the catalogue calls better."""
    better = (MODEL_MEASURES.get(measure) or arm_measure(measure)).better
    if measure.startswith((LOST, "cost.")):
        better = "lower"
    if better == "higher":
        return int((own > base).sum())
    if better == "lower":
        return int((own < base).sum())
    if better.startswith("at "):
        aim = float(better.removeprefix("at "))
        return int((np.abs(own - aim) < np.abs(base - aim)).sum())
    return 0
