"""Scenarios run: once, over a grid, and against what they earned before.

Keywords are what users write, and stay; below these functions they travel as one `RunContext`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascade_sim.api.arguments import (
    NOT_A_PATH,
    RunLike,
    ScenarioLike,
    Texts,
    as_file,
    as_plain,
    as_texts,
    at_least_one,
    checked_overrides,
    plain_arguments,
    run_path,
    trusted,
)
from cascade_sim.api.results import BaselineResult, CheckResult, RunResult, SweepResult
from cascade_sim.errors import UserError
from cascade_sim.workers import usable_cores

if TYPE_CHECKING:
    from cascade_sim.scenario.schema import Scenario

SWEPT_WORLDS = 3  # of each cell


@plain_arguments
def load_scenario(scenario: ScenarioLike, *, set: Sequence[str] = (), seed: int | None = None) -> Scenario:
    """A scenario from a file, a shipped one's name or a dict, checked; UserError with every problem.

    load_scenario("ads", set=["cascade.slots=3"]).cascade.slots
    """
    from cascade_sim.scenario import file
    from cascade_sim.scenario.schema import Scenario

    if isinstance(scenario, Scenario) and not set and seed is None:
        return scenario
    with as_file(scenario) as path:
        return file.load_scenario(path, checked_overrides(set), seed)


@plain_arguments
def run(
    scenario: ScenarioLike,
    out: str | Path | None = None,
    *,
    set: Sequence[str] = (),
    seed: int | None = None,
    seeds: int = 1,
    workers: int | None = None,
    device: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = True,
    engine: str = "local",
    address: str | None = None,
) -> RunResult:
    """Run a study: simulate, train, compare the arms, write the run folder with its report.

    `scenario` is the path of a scenario file, the name of a shipped one, or its content as a dict. `set` are
    `path.to.key=value`, as on the command line. `out`: the run folder, by default runs/<name>; a run that
    lies there is replaced, or with `resume` gone on with; if answers (whatif/) were asked of it and it is
    another run, that is refused unless told to `overwrite`. `workers`: threads for one world, processes for
    several; results do not depend on it. `engine="ray"` does the work with Ray, on this machine or on the
    cluster at `address`, whose machines must all see `out` (docs/scale.md).

        run("quick", out="runs/quick", set=["phases.evaluate=4096"]).frame()
    """
    from cascade_sim.context import run_context
    from cascade_sim.storage.folder import default_folder
    from cascade_sim.study import run_study

    at_least_one(seeds=seeds, workers=workers)
    loaded = load_scenario(scenario, set=set, seed=seed)
    folder = Path(out) if out is not None else default_folder(loaded.name)
    context = run_context(
        folder, [loaded], workers=workers or usable_cores(), device=device, quiet=quiet,
        engine=engine, address=address,
    )  # fmt: skip
    metrics = run_study(loaded, context, seeds=seeds, resume=resume, overwrite=overwrite, show=False)
    return RunResult(folder, metrics, trust=True)


def open_run(run: RunLike, *, trust: bool = False) -> RunResult:
    """A finished run, read from its folder; UserError if it is none, unfinished or damaged.

    Nothing of it is run. With `trust` later questions to it may run the code of model classes of one's own
    that came with it.

        open_run("runs/quick").frame()
    """
    from cascade_sim.storage import folder

    opened = folder.open_run(run_path(run))
    return RunResult(opened.path, opened.metrics, trust=trusted(run, trust) is True)


@plain_arguments
def sweep(
    scenario: ScenarioLike,
    over: Mapping[str, Sequence[Any]] | Sequence[str],
    *,
    set: Sequence[str] = (),
    seeds: int | None = None,
    arm: str | None = None,
    x: str = "expected_ctr",
    y: str = "expected_revenue_per_request",
    out: str | Path | None = None,
    retrain: bool = False,
    keep_logs: bool = False,
    workers: int | None = None,
    device: str = "auto",
    quiet: bool = True,
    engine: str = "local",
    address: str | None = None,
) -> SweepResult:
    """Run a scenario over a grid of settings, in several worlds each; lifts are over the first cell.

    `seeds` is the number of worlds: 3, or the one that a replayed log is.
    `over` has the values of each key, or is a list of `KEY=A,B`. Writes sweep.csv and sweep.html, with the
    Pareto plot of `y` against `x`, into `out` (by default runs/<name>-sweep). Finished cells are kept. Models
    learn from the log of the first cell's cascade, unless each cell is to `retrain` on its own. `engine` and
    `address` are as for `run`.

        sweep("quick", {"auction.reserve_cpc": [0, 0.2], "cascade.slots": [2, 3]}).frame()
    """
    from cascade_sim.context import run_context
    from cascade_sim.storage.folder import default_folder
    from cascade_sim.sweeps import check_sweep, load_grid, parse_axes, run_sweep, write_sweep

    at_least_one(seeds=seeds, workers=workers)
    axes = parse_axes(_axis_texts(over))
    with as_file(scenario) as path:
        cells = load_grid(path, axes, checked_overrides(set))
    check_sweep(cells, arm, (x, y))
    seeds = seeds or (SWEPT_WORLDS if cells[0].scenario.world.has("seeds") else 1)
    folder = Path(out) if out is not None else default_folder(f"{cells[0].scenario.name}-sweep")
    context = run_context(
        folder, [cell.scenario for cell in cells], workers=workers or usable_cores(), device=device,
        quiet=quiet, engine=engine, address=address,
    )  # fmt: skip
    findings = run_sweep(axes, cells, context, arm=arm, seeds=seeds, retrain=retrain, keep_logs=keep_logs)
    return SweepResult(findings, tuple(write_sweep(findings, folder, x, y)))


def _axis_texts(over: Mapping[str, Sequence[Any]] | Sequence[str]) -> list[str]:
    """Each axis as the command line writes it."""
    import json

    if not isinstance(over, Mapping):
        return list(as_texts(over))
    texts = []
    for key, values in over.items():
        values = as_plain(values) if hasattr(values, "tolist") else values
        if not isinstance(values, list | tuple):
            raise UserError(f"over: expected a list of values for {key!r}, found {values!r}")
        words = (value if isinstance(value, str) else json.dumps(as_plain(value)) for value in values)
        texts.append(f"{key}={','.join(words)}")
    return texts


@plain_arguments
def baseline(run: RunLike, out: str | Path, *, arm: Texts = ()) -> BaselineResult:
    """Keep what a finished run earned in a small file, for `check`. By default the scenario's arms.

    baseline("runs/quick", "revenue.json").frame()
    """
    from cascade_sim.revenue.baseline import read_baseline, write_baseline
    from cascade_sim.revenue.serving import measured_folder

    file = Path(out)
    write_baseline(measured_folder(run_path(run)), file, as_texts(arm))
    return BaselineResult(file, read_baseline(file))


@plain_arguments
def check(
    what: ScenarioLike | RunResult,
    against: str | Path,
    *,
    tolerance: Texts = (),
    metric: Texts = (),
    arm: Texts = (),
    fresh: int | None = None,
    retrain: bool = False,
    set: Sequence[str] = (),
    workers: int | None = None,
    device: str = "auto",
    quiet: bool = True,
) -> CheckResult:
    """Does a scenario, or a finished run, still earn what its baseline earned? `passed` says it.

    Compared on the same requests under the same luck, or with `fresh` on other requests of the same world.
    `tolerance` are moves that pass, as "0.5%" or "rpm=0.5%"; `metric` and `arm` guard these alone. Models
    whose recipe did not change stay as they were, unless they `retrain` on the log of a changed cascade.

        assert check("quick", "revenue.json", tolerance="0.5%").passed
    """
    from cascade_sim.revenue.baseline import read_baseline
    from cascade_sim.revenue.check import check_revenue, guarded, refuse_incomparable
    from cascade_sim.revenue.serving import measured_folder

    at_least_one(fresh=fresh, workers=workers)
    tolerances, metrics, arms = as_texts(tolerance), as_texts(metric), as_texts(arm)
    kept = read_baseline(Path(against))
    plan = guarded(kept, metrics, arms, tolerances)  # mistakes before work
    if isinstance(what, RunResult) or (isinstance(what, str | Path) and Path(what).is_dir()):
        folder = run_path(what)
        for option, value in (("--set", set), ("--fresh", fresh), ("--retrain", retrain)):
            if value:
                raise UserError(f"{option}: {folder} is a finished run; give a scenario to run it otherwise")
        measured = measured_folder(folder)
    else:
        where = str(what) if isinstance(what, str | Path) else NOT_A_PATH
        scenario = load_scenario(what, set=set)
        refuse_incomparable(kept, scenario, where, plan, is_fresh=bool(fresh))

        from cascade_sim.context import scratch_context
        from cascade_sim.progress import Progress
        from cascade_sim.revenue.blocks import MARKET_METRICS
        from cascade_sim.revenue.serving import measure_scenario

        means = {"workers": workers or usable_cores(), "device": device, "progress": Progress(quiet)}
        with scratch_context(**means) as context:
            measured = measure_scenario(
                scenario,
                where,
                context,
                stretch=fresh or 0,
                with_market=any(metric in MARKET_METRICS for _, metric in plan),
                logged_by=None if retrain else kept.scenario,
            )
    verdict = check_revenue(kept, measured, tolerances=tolerances, metrics=metrics, arms=arms)
    return CheckResult(verdict)
