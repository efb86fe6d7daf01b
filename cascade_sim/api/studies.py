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
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.workers import usable_cores

if TYPE_CHECKING:
    from cascade_sim.scenario.schema import Scenario

SWEPT_WORLDS = 3  # of each cell


@plain_arguments
def load_scenario(scenario: ScenarioLike, *, set: Sequence[str] = (), seed: int | None = None) -> Scenario:
    """Load and check a scenario.

    Args:
        scenario: path of a scenario file, name of a shipped one, its content as a dict, or a Scenario.
        set: overrides as "path.to.key=value".
        seed: seed of all random draws, in place of the scenario's.

    Returns:
        The checked Scenario.

    Raises:
        UserError: every problem of the scenario, with file, line, key, value and what was expected.

    >>> load_scenario("ads", set=["cascade.slots=3"]).cascade.slots
    3
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
    """Run a study: simulate, train models, evaluate the arms, write the run folder with its report.

    Args:
        scenario: path of a scenario file, name of a shipped one, its content as a dict, or a Scenario.
        out: run folder, by default runs/<name>. A run in it is replaced, unless whatif/ contains answers
            about another run.
        set: overrides as "path.to.key=value", as on the command line.
        seed: seed of all random draws, in place of the scenario's.
        seeds: number of replications, with consecutive seeds.
        workers: threads of one replication, processes for several; by default all cores. Results do not
            depend on it.
        device: where models are trained: "auto", "cpu", "cuda" or "mps".
        resume: continue a run that was stopped.
        overwrite: replace a run although answers about it would be lost.
        quiet: show no progress.
        engine: "local", or "ray" for a cluster (docs/scale.md).
        address: address of the Ray cluster; its machines must all see `out`.

    Returns:
        RunResult; `.frame()` has the metrics of each arm with 95 % CIs.

    Raises:
        UserError: a mistake in the scenario or the options, before any work.

    >>> run("quick", out="runs/quick", set=["phases.evaluate=512"]).frame().columns.tolist()[:4]
    ['arm', 'metric', 'value', 'low']
    """
    from cascade_sim.context import run_context
    from cascade_sim.storage.folder import default_folder
    from cascade_sim.study.run import run_study

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
    """Open a finished run. No code of it is executed.

    Args:
        run: run folder, or a RunResult.
        trust: whether later questions may run the code of custom model classes that the folder contains.

    Returns:
        RunResult.

    Raises:
        UserError: no run, an unfinished or a damaged one.

    >>> open_run("runs/quick").path.name
    'quick'
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
    fixed_models: bool = False,
    keep_logs: bool = False,
    workers: int | None = None,
    device: str = "auto",
    quiet: bool = True,
    engine: str = "local",
    address: str | None = None,
) -> SweepResult:
    """Run a scenario over a grid of settings, several seeds each; lifts are relative to its own setting.

    That setting is the reference, a cell of the grid or one more. Models are trained on the log of its
    cascade unless `retrain`. Finished cells are reused.

    Args:
        scenario: path of a scenario file, name of a shipped one, its content as a dict, or a Scenario.
        over: {key: values}, or texts "KEY=A,B".
        set: overrides of all cells as "path.to.key=value".
        seeds: seeds per cell; by default 3, and 1 for a replayed log.
        arm: the arm whose metrics are reported; by default the baseline.
        x: metric of the horizontal axis of the Pareto plot.
        y: metric of the vertical axis.
        out: folder of sweep.csv and sweep.html, by default runs/<name>-sweep.
        retrain: train each cell's models on its own log.
        fixed_models: run the reference alone, and serve all other cells with its models, as `whatif` does.
        keep_logs: keep the logs of all cells.
        workers: processes; by default all cores.
        device: where models are trained: "auto", "cpu", "cuda" or "mps".
        quiet: show no progress.
        engine: "local" or "ray", as for `run`.
        address: address of the Ray cluster.

    Returns:
        SweepResult; `.frame()` has a row per cell and metric.

    Raises:
        UserError: a mistake in the scenario, the grid or the options, before any work.

    >>> sweep("quick", {"cascade.slots": [2, 3]}, seeds=1).frame().columns.tolist()[:3]
    ['cell', 'cascade.slots', 'measure']
    """
    from cascade_sim.context import run_context
    from cascade_sim.storage.folder import default_folder
    from cascade_sim.study.sweeps import (
        check_sweep,
        load_grid,
        parse_axes,
        run_sweep,
        with_reference,
        write_sweep,
    )

    at_least_one(seeds=seeds, workers=workers)
    axes = parse_axes(_axis_texts(over))
    with as_file(scenario) as path:
        cells = load_grid(path, axes, checked_overrides(set))
        axes, cells = with_reference(path, axes, cells, checked_overrides(set))
    check_sweep(cells, arm, (x, y), retrain=retrain, fixed_models=fixed_models)
    seeds = seeds or (SWEPT_WORLDS if cells[0].scenario.world.has("seeds") else 1)
    folder = Path(out) if out is not None else default_folder(f"{cells[0].scenario.name}-sweep")
    context = run_context(
        folder, [cell.scenario for cell in cells], workers=workers or usable_cores(), device=device,
        quiet=quiet, engine=engine, address=address,
    )  # fmt: skip
    findings = run_sweep(
        axes, cells, context, arm=arm, seeds=seeds, retrain=retrain, fixed_models=fixed_models,
        keep_logs=keep_logs,
    )  # fmt: skip
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
    """Save the metrics of a finished run as the baseline of `check`.

    Args:
        run: run folder, or a RunResult.
        out: file to write (JSON).
        arm: arms to save; by default those of the scenario.

    Returns:
        BaselineResult.

    Raises:
        UserError: no finished run, or an unknown arm.

    >>> baseline("runs/quick", "revenue.json").frame().columns.tolist()
    ['arm', 'metric', 'value']
    """
    from cascade_sim.regression.baseline import read_baseline, write_baseline
    from cascade_sim.regression.serving import measured_folder

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
    traffic_sample: int | None = None,
    retrain: bool = False,
    set: Sequence[str] = (),
    workers: int | None = None,
    device: str = "auto",
    quiet: bool = True,
) -> CheckResult:
    """Test a scenario, or a finished run, for metric changes against a saved baseline.

    Significance is Holm-adjusted over all metrics of all arms, at 5 %.
    Compared on the same requests with common random numbers or, with `traffic_sample`, on new requests of
    the same world. Models whose recipe is unchanged are not trained again unless `retrain`.

    Args:
        what: scenario (path, name, dict or Scenario), run folder or RunResult.
        against: file that `baseline` has written.
        tolerance: relative changes that pass, as "0.5%" or "rpm=0.5%".
        metric: metrics to test; by default all of the baseline.
        arm: arms to test; by default all of the baseline.
        traffic_sample: evaluate on this independent sample of requests (1, 2, …), unpaired; by default on the
            baseline's requests.
        retrain: train models on the log of the changed cascade.
        set: overrides as "path.to.key=value".
        workers: threads; by default all cores.
        device: where models are trained: "auto", "cpu", "cuda" or "mps".
        quiet: show no progress.

    Returns:
        CheckResult; `.passed` is the verdict, `.frame()` has a row per metric.

    Raises:
        UserError: baseline and scenario are not comparable, or an unknown metric or arm.

    >>> check("runs/quick", "revenue.json", tolerance="0.5%").passed
    True
    """
    from cascade_sim.regression.baseline import read_baseline
    from cascade_sim.regression.check import check_revenue, guarded, refuse_incomparable
    from cascade_sim.regression.serving import measured_folder

    at_least_one(traffic_sample=traffic_sample, workers=workers)
    tolerances, metrics, arms = as_texts(tolerance), as_texts(metric), as_texts(arm)
    kept = read_baseline(Path(against))
    plan = guarded(kept, metrics, arms, tolerances)  # mistakes before work
    if isinstance(what, RunResult) or (isinstance(what, str | Path) and Path(what).is_dir()):
        folder = run_path(what)
        for option, value in (("--set", set), ("--traffic-sample", traffic_sample), ("--retrain", retrain)):
            if value:
                raise UserError(f"{option}: {folder} is a finished run; give a scenario to run it otherwise")
        measured = measured_folder(folder)
    else:
        where = str(what) if isinstance(what, str | Path) else NOT_A_PATH
        scenario = load_scenario(what, set=set)
        refuse_incomparable(kept, scenario, where, plan, is_fresh=bool(traffic_sample))

        from cascade_sim.context import scratch_context
        from cascade_sim.foundation.progress import Progress
        from cascade_sim.regression.blocks import MARKET_METRICS
        from cascade_sim.regression.serving import measure_scenario

        means = {"workers": workers or usable_cores(), "device": device, "progress": Progress(quiet)}
        with scratch_context(**means) as context:
            measured = measure_scenario(
                scenario,
                where,
                context,
                stretch=traffic_sample or 0,
                with_market=any(metric in MARKET_METRICS for _, metric in plan),
                logged_by=None if retrain else kept.scenario,
            )
    verdict = check_revenue(kept, measured, tolerances=tolerances, metrics=metrics, arms=arms)
    return CheckResult(verdict)
