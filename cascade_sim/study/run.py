"""A whole study: from a scenario to a run folder with logs, models, metrics and a report."""

import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.analysis.metrics.published import out_of_published_range
from cascade_sim.context import RunContext
from cascade_sim.foundation.errors import Notice, UserError
from cascade_sim.foundation.loading import loading
from cascade_sim.foundation.precompile import precompile
from cascade_sim.foundation.progress import Progress, terminal_width
from cascade_sim.foundation.terminal import echo
from cascade_sim.foundation.workers import Job
from cascade_sim.scenario.file import dump_scenario, scenario_hash
from cascade_sim.scenario.memory import require_memory
from cascade_sim.scenario.plugins import (
    attribute_late_code,
    code_changed_since,
    named_files_digest,
    refuse_registered,
    require_options,
    user_code_of,
)
from cascade_sim.scenario.schema import Scenario
from cascade_sim.storage import user_code
from cascade_sim.storage.code_version import source_digest
from cascade_sim.storage.environment import stack
from cascade_sim.storage.files import below
from cascade_sim.storage.folder import (
    CHECKPOINTS,
    LATE_CODE,
    METRICS,
    USER_CODE,
    RunFolder,
    is_same_run,
    open_run,
    read_manifest,
)
from cascade_sim.study.report import with_arm_changes, write_report
from cascade_sim.version import SEMANTICS, __version__

CRITICAL_BID_REQUESTS = 200  # the first of the evaluation, in every arm


def refuse_worlds(scenario: Scenario, seeds: int) -> None:
    """UserError for several worlds of a replayed log: they would be alike, and any spread between them 0."""
    if seeds > 1:
        scenario.world.require("seeds", "--seeds")


def run_study(
    scenario: Scenario,
    context: RunContext,
    *,
    seeds: int = 1,
    resume: bool = False,
    overwrite: bool = False,
    show: bool = True,
) -> dict[str, Any]:
    """Run, write everything into `out`, print the table of arms (unless not `show`); returns the metrics.

    With `resume` a run that was stopped in `out` goes on from what it had finished. Answers that were asked
    of another run in `out` are removed with it only if told to `overwrite`. Where the engine works on several
    machines, all must see `out`, and all leave the same bytes there.
    """
    with loading():
        from cascade_sim.market.dry_run import dry_run

    workers, is_far = context.workers, context.engine.is_far
    if seeds > 1:
        refuse_registered(scenario)
    refuse_worlds(scenario, seeds)
    require_memory(scenario, *((workers, 1) if seeds == 1 else (1, 1 if is_far else min(seeds, workers))))
    require_options(scenario, context.home)
    dry_run(scenario, context.home, seeds)
    with loading():  # after torch: what lacks memory first should be what says so
        from cascade_sim.logs.audit.reproduction import require_reproduced

    require_reproduced(scenario, context.home)
    with context.engine as engine:
        placed = replace(context, out=engine.place(context.out))
        return _run_study(scenario, placed, seeds, resume, overwrite, show)


def _run_study(
    scenario: Scenario, context: RunContext, seeds: int, resume: bool, overwrite: bool, show: bool
) -> dict[str, Any]:
    """The study by an engine that is open."""
    out, home = context.out, context.home
    manifest, before = _manifest(scenario, context.device, context.workers, seeds, home), user_code.loaded()
    taken = (
        RunFolder.resume(out, manifest)
        if resume
        else RunFolder.create(out, manifest=manifest, remove_answers=overwrite)
    )
    with taken as folder:
        if resume and folder.is_complete():
            metrics = open_run(out).metrics
            if show:
                _print_summary(metrics, out, dump_scenario(scenario), 0.0)
            return metrics
        context.engine.require_folder(out)
        folder.write_manifest(manifest)  # first: it marks the folder as a run
        folder.write_text("scenario.yaml", dump_scenario(scenario))
        started = time.perf_counter()
        with context.progress as progress:
            if context.workers > 1 and not context.engine.is_elsewhere:
                precompile(progress, context.workers)
            metrics = run_seed(scenario, context) if seeds == 1 else _run_seeds(scenario, context, seeds)
            folder.write_json("metrics.json", metrics)
            with progress.stage("report", 1, "pages"):
                manifest["seconds"] = {**progress.seconds, "total": time.perf_counter() - started}
                manifest["micros"] = progress.micros
                _write_tables(folder, metrics)
                write_report(out, metrics, {**manifest, "status": "complete"}, dump_scenario(scenario))
        worlds = [out] if seeds == 1 else [below(out, f"seed-{scenario.seed + i}") for i in range(seeds)]
        folder.finish(_with_late_code(manifest, scenario, home, worlds, before))
    for words in out_of_published_range(metrics):
        warnings.warn(words, Notice, stacklevel=2)
    if show:
        _print_summary(metrics, out, dump_scenario(scenario), time.perf_counter() - started)
    return metrics


def run_seed(scenario: Scenario, context: RunContext, teacher: Scenario | None = None) -> dict[str, Any]:
    """One world: all phases and the evaluation. Writes logs and models below the context's `out`.

    `teacher`: the scenario whose cascade writes the log that the models learn from, if not this one.
    """
    with loading():
        from cascade_sim.counterfactual.critical_bids import critical_bid_section
        from cascade_sim.regression.blocks import write_blocks
        from cascade_sim.study.cost import measured_micros
        from cascade_sim.study.evaluate import Evaluation
        from cascade_sim.study.prepare import prepare
        from cascade_sim.study.results import collect

    out, progress = context.out, context.progress
    prepared = prepare(scenario, context, teacher=teacher)
    prepared.export(below(out, "models"))
    sim = prepared.sim
    evaluation = Evaluation(sim, out, progress)
    evaluation.run()
    with progress.stage("time stages", 1, "arms"):
        progress.micros = measured_micros(evaluation)
    with progress.stage("intervals", 1, "tables"):
        metrics = collect(evaluation)
    metrics["training"] = prepared.training_section()
    metrics["bids"] = bid_figures(sim.world.init_bid)
    metrics |= evaluation.replay_facts()
    metrics["critical_bids"] = critical_bid_section(sim, evaluation.arms, CRITICAL_BID_REQUESTS, progress)
    if scenario.what_if:
        from cascade_sim.counterfactual.whatif import what_if_section

        metrics["what_if"] = what_if_section(sim, out, progress)
    if scenario.market is not None:
        from cascade_sim.market.study import run_markets

        metrics["market"] = run_markets(sim, context)
        if scenario.market.designs is not None:
            from cascade_sim.experiments.study import run_designs

            metrics["market"]["designs"] = run_designs(sim, context)
    write_blocks(evaluation, metrics.get("market"), out)
    if scenario.off_policy is not None:
        from cascade_sim.ope.study import run_off_policy

        metrics["off_policy"] = run_off_policy(sim, evaluation.baseline, out, progress)
    return metrics


def bid_figures(bids: np.ndarray) -> dict[str, float]:
    """Median and spread (standard deviation of the logarithm) of the ads' usual bids, of those above 0."""
    known = bids[bids > 0]
    if not len(known):
        return {}
    return {"median": float(np.median(known)), "spread": float(np.std(np.log(known)))}


def _run_seeds(scenario: Scenario, context: RunContext, seeds: int) -> dict[str, Any]:
    """The study in several worlds, each in a process of its own; results do not depend on workers."""
    from cascade_sim.study.cost import mean_micros
    from cascade_sim.study.results import combine_seeds

    worlds = [scenario.model_copy(update={"seed": scenario.seed + i}) for i in range(seeds)]
    jobs = [
        Job(
            f"world seed-{world.seed}",
            run_world,
            (world, below(context.out, f"seed-{world.seed}"), context.device, context.home),
        )
        for world in worlds
    ]
    done = taken_or_run([jobs], "worlds", context, go_on="resume it with --resume")
    left = [read_manifest(below(context.out, job.name.removeprefix("world "))) for job in jobs]
    context.progress.micros = mean_micros([manifest.get("micros") or {} for manifest in left])
    return combine_seeds([done[job.name] for job in jobs])


def taken_or_run(
    batches: Sequence[Sequence[Job]], what: str, context: RunContext, *, go_on: str
) -> dict[str, dict[str, Any]]:
    """The metrics of jobs of `run_world`, by name, one batch after the other.

    Worlds that are finished are read here: a process that only reads a file takes seconds to start.
    """
    done: dict[str, dict[str, Any]] = {}
    for job in (job for batch in batches for job in batch):
        metrics = finished_world(*job.arguments, **job.options)
        if metrics is not None:
            done[job.name] = metrics
    total, n_taken = sum(len(batch) for batch in batches), len(done)
    if n_taken == total:
        return done
    with context.progress.stage(what, total - n_taken, "worlds") as bar:
        if n_taken:
            bar.tell(f"{n_taken:,} of {total:,} worlds are finished already, and taken as they are")

        def finished(name: str) -> None:
            bar.advance(1)
            bar.tell(f"{name} finished" + (f", {bar.state()}" if total - n_taken > 1 else ""))

        for batch in batches:
            left = [job for job in batch if job.name not in done]
            if left:
                done |= context.engine.jobs(left, context.workers, on_done=finished, go_on=go_on)
    return done


def run_world(
    scenario: Scenario,
    out: Path,
    device: str,
    home: Path = Path("."),
    keep_logs: bool = True,
    logged_by: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One world of several, in a process of its own, leaving a complete run folder.

    The same run that lies there complete is taken as it is, one that was stopped goes on; any other run is
    replaced. `logged_by`: a scenario, resolved, whose cascade writes the log that the models learn from.
    """
    with loading():
        from cascade_sim.market.dry_run import dry_run

    require_memory(scenario)
    require_options(scenario, home)
    dry_run(scenario, home)
    manifest, teacher = _world_manifest(scenario, device, home, logged_by)
    before = user_code.loaded()
    with RunFolder.resume(out, manifest) if is_same_run(out, manifest) else RunFolder.create(out) as folder:
        if folder.is_complete():
            return open_run(out).metrics
        folder.write_manifest(manifest)  # first: it marks the folder as a run
        folder.write_text("scenario.yaml", dump_scenario(scenario))
        with Progress(quiet=True) as progress:
            context = RunContext(out, home, device=device, progress=progress)
            metrics = run_seed(scenario, context, teacher)
        folder.write_json("metrics.json", metrics)
        _write_tables(folder, metrics)
        if not keep_logs:
            folder.remove_logs()
        manifest |= {"seconds": progress.seconds, "micros": progress.micros}
        folder.finish(_with_late_code(manifest, scenario, home, [out], before))
    # As they are read from the disk: a world that was finished before a run was stopped comes from there.
    return open_run(out).metrics


def finished_world(
    scenario: Scenario,
    out: Path,
    device: str,
    home: Path = Path("."),
    keep_logs: bool = True,
    logged_by: dict[str, Any] | None = None,
) -> dict[str, Any] | None:
    """What `run_world` returns where it has nothing to do: the metrics of a complete run; None otherwise."""
    if not below(out, METRICS).exists() or below(out, CHECKPOINTS).exists():
        return None
    manifest, _ = _world_manifest(scenario, device, home, logged_by)
    if not is_same_run(out, manifest) or read_manifest(out).get("status") != "complete":
        return None
    return open_run(out).metrics


def _world_manifest(
    scenario: Scenario, device: str, home: Path, logged_by: dict[str, Any] | None
) -> tuple[dict[str, Any], Scenario | None]:
    """The manifest of one world of several, and the scenario whose log its models learn from, if another."""
    manifest = _manifest(scenario, device, workers=1, home=home)
    if logged_by is None:
        return manifest, None
    from cascade_sim.study.prepare import logging_scenario

    teacher = logging_scenario(scenario, logged_by)
    if teacher is not None:
        manifest["learned_from"] = scenario_hash(teacher)
    return manifest, teacher


def _write_tables(folder: RunFolder, metrics: dict[str, Any]) -> None:
    from cascade_sim.analysis.report.tables import metrics_csv

    folder.write_text("metrics.csv", metrics_csv(metrics))


def _manifest(
    scenario: Scenario, device: str, workers: int, seeds: int = 1, home: Path = Path(".")
) -> dict[str, Any]:
    """What a reader needs to repeat the run; everything that may differ between machines is here."""
    code = user_code_of(scenario, home)
    return {
        "name": scenario.name,
        "seed": scenario.seed,
        "semantics": SEMANTICS,
        "version": __version__,
        "scenario_hash": scenario_hash(scenario),
        "code": source_digest(),
        "files": named_files_digest(scenario, home),
        **({USER_CODE: code} if code else {}),
        "device": device,
        "workers": workers,
        "seeds": seeds,
        **stack(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": {},
        "status": "running",
    }


def _with_late_code(
    manifest: dict[str, Any],
    scenario: Scenario,
    home: Path,
    worlds: Sequence[Path],
    before: Iterable[str] = (),
) -> dict[str, Any]:
    """The manifest with the modules that came in while the run was under way, since `before`.

    UserError if a class or what it imports was edited meanwhile: which of it made what would be unknown.
    """
    known = manifest.get(USER_CODE) or {}
    left = [read_manifest(world) for world in worlds]
    changed = code_changed_since(known, scenario, home)
    for world in left:
        code = world.get(USER_CODE) or {}
        changed += [name for name in {**known, **code} if known.get(name) != code.get(name)]
    if changed:
        raise UserError(
            f"{', '.join(dict.fromkeys(changed))}: edited while the run was under way, so it is not of one "
            "piece; run again, without --resume"
        )
    late = user_code.late(known, before)
    for world in left:
        late |= world.get(LATE_CODE) or {}
    attribute_late_code(scenario, home, late)
    return {**manifest, LATE_CODE: late} if late else manifest


def _print_summary(metrics: dict[str, Any], out: Path, scenario_text: str, seconds: float) -> None:
    import sys

    from cascade_sim.analysis.report.sections.whatif import what_if_lines
    from cascade_sim.analysis.report.terminal import terminal_summary

    width = terminal_width()
    metrics = with_arm_changes(metrics, scenario_text)
    echo(terminal_summary(metrics, color=sys.stdout.isatty(), width=width))
    for line in what_if_lines(metrics, width):
        echo(line)
    echo(f"report: {out / 'report.html'}   ({seconds:.0f} s)")
