"""Logs of auctions: out of a run, in as a log store, audited, and a world fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cascade_sim.api.arguments import RunLike, plain_arguments, run_path, trusted
from cascade_sim.api.results import AuditResult, ExportResult, FitResult, ImportResult, RealismResult
from cascade_sim.foundation.errors import UserError

if TYPE_CHECKING:
    from cascade_sim.diagnostics.reopen import Trust


@plain_arguments
def export_logs(
    run: RunLike,
    out: str | Path,
    *,
    arm: str | None = None,
    phase: str = "evaluate",
    trust: Trust = False,
    quiet: bool = True,
) -> ExportResult:
    """Write a run's auctions as Parquet tables, with the mapping file that `import_logs` reads.

    The evaluation is served again and compared with the run's own log.

    Args:
        run: run folder or RunResult.
        out: new folder.
        arm: by default the baseline.
        phase: "evaluate", or "slates" for the randomised pages of off_policy.slates with their propensities.
        trust: whether to run the code of custom model classes that the run folder contains, or a function
            that decides. The return value of `run` is trusted.
        quiet: show no progress.

    Returns:
        ExportResult; `.mapping` is the mapping file.

    Raises:
        UserError: an unknown arm, a folder that exists, or a cascade that the log format cannot hold.

    >>> export_logs("runs/quick", "logs/quick").mapping.name
    'mapping.yaml'
    """
    from cascade_sim.foundation.progress import Progress
    from cascade_sim.logs import export

    with Progress(quiet) as progress:
        done = export.export_logs(
            run_path(run), Path(out), arm=arm, phase=phase, progress=progress, trust=trusted(run, trust)
        )
    return ExportResult(done)


@plain_arguments
def import_logs(
    mapping: str | Path | Sequence[str | Path] | ExportResult,
    out: str | Path,
    *,
    format: str | None = None,
    quiet: bool = True,
) -> ImportResult:
    """Check auction logs row by row and write a log store.

    Args:
        mapping: YAML file that assigns columns to fields, or the return value of `export_logs`; with `format`
            one or several files of that format.
        out: new folder of the store. A refused log leaves no files behind.
        format: "auction-net", "open-bandit", "open-rtb" or "rec-flow"; None: by the mapping.
        quiet: show no progress.

    Returns:
        ImportResult, which all functions that take a run accept.

    Raises:
        UserError: invalid rows, with file, line, column and value.

    >>> import_logs("logs/quick/mapping.yaml", "stores/quick").level
    'pre_ranking'
    """
    from cascade_sim.foundation.progress import Progress
    from cascade_sim.logs.audit.study import completed, replayed_share
    from cascade_sim.logs.importing.market import import_format, import_market

    given = [mapping.mapping] if isinstance(mapping, ExportResult) else mapping
    files = [given] if isinstance(given, str | Path) else list(given)
    if format is None and len(files) != 1:
        raise UserError(f"one mapping, found {len(files)} files; several files are for --format")
    with Progress(quiet) as progress, progress.stage("import", None, "rows") as bar:

        def advance(table: str, rows: int) -> None:
            bar.advance(rows)

        if format is None:
            imported = import_market(files[0], out, advance, completed)
        else:
            imported = import_format(format, files, out, advance, completed)
    return ImportResult(Path(out), imported, replayed_share(imported.store))


@plain_arguments
def audit_logs(
    log: RunLike, *, infer: bool = False, adopt: bool = False, out: str | Path | None = None
) -> AuditResult:
    """Re-run every auction of an imported log and compare winners and prices with the logged ones.

    Args:
        log: folder of the log store, or an ImportResult.
        infer: infer the auction rule from the log, although it declares one.
        adopt: infer the rule and declare it in the market, which is then audited under it; refused where the
            declared rule reproduces the log, or none that was found does.
        out: folder for JSON, CSV and HTML.

    Returns:
        AuditResult; `.tally()` has the shares of pages, winners and prices that agree.

    Raises:
        UserError: no log store, or one without the bids that the rule needs.

    >>> audit_logs("stores/quick").tally().shape[0]
    3
    """
    from cascade_sim.counterfactual.whatif import check_out
    from cascade_sim.logs.audit import adoption
    from cascade_sim.logs.audit.study import audit, write_audit

    if out is not None:
        check_out(Path(out))
    adopted = adoption.adopt(run_path(log)) if adopt else None
    answer = audit(run_path(log), infer=infer).answer
    answer |= {} if adopted is None else {"adopted": adopted}
    return AuditResult(answer, tuple(write_audit(answer, Path(out))) if out is not None else ())


@plain_arguments
def fit_world(
    log: RunLike,
    out: str | Path,
    *,
    parametric: bool = False,
    share: float = 1.0,
    seed: int = 1,
    replicates: int | None = None,
    quiet: bool = True,
) -> FitResult:
    """Fit a world to an imported log and write the scenario that runs it.

    Requests, candidates and bids are resampled from the log in blocks of time; clicks come from a fitted
    click model. With `parametric` the world is synthetic, with parameters fitted to the log's summary
    statistics, and contains no row of the log.

    Args:
        log: folder of the log store, or an ImportResult.
        out: scenario file to write (.yaml).
        parametric: fit a synthetic world.
        share: fraction of the log, from its start, that is used for fitting; the rest can validate the world.
        seed: seed of the fit.
        replicates: bootstrap replicates of the fit, for the model uncertainty of answers: 0 (none) or >= 8;
            20 by default.
        quiet: show no progress.

    Returns:
        FitResult; `.path` is the scenario for `run`.

    Raises:
        UserError: a log that is too small, or one that lacks what the fit needs.

    >>> fit_world("stores/quick", "worlds/quick.yaml", replicates=0).path.name
    'quick.yaml'
    """
    from cascade_sim.foundation.progress import Progress
    from cascade_sim.logs.fit.fitting import fit_to

    with Progress(quiet) as progress:
        fitted = fit_to(
            run_path(log), Path(out), parametric=parametric, share=share, seed=seed,
            replicates=replicates, progress=progress,
        )  # fmt: skip
    return FitResult(Path(out), fitted)


@plain_arguments
def realism(
    log: RunLike, world: RunLike, *, part: str = "all", seed: int = 1, out: str | Path | None = None
) -> RealismResult:
    """Measure the realism of a world against an imported log.

    By summary statistics, a classifier two-sample test and the lifts of what-ifs.

    Args:
        log: folder of the log store, or an ImportResult.
        world: another log store, or scenario or run of a world fitted to a log.
        part: the part of the log to compare: "all", "first" or "second" half.
        seed: seed of the samples and of the classifier.
        out: folder for JSON, CSV and HTML.

    Returns:
        RealismResult; `.verdict` is "equivalent", "inconclusive" or "different".

    Raises:
        UserError: no log store, or a world that is not comparable with it.

    >>> realism("stores/quick", "worlds/quick.yaml").verdict in ("equivalent", "inconclusive", "different")
    True
    """
    from cascade_sim.logs.fit.realism import compare_world, write_realism

    folder = None if out is None else Path(out)
    answer = compare_world(run_path(log), run_path(world), part=part, seed=seed, out=folder)
    return RealismResult(answer, tuple(write_realism(answer, folder)) if folder is not None else ())
