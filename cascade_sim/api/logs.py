"""Logs of auctions: out of a run, in as a market, audited, and a world fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cascade_sim.api.arguments import RunLike, plain_arguments, run_path, trusted
from cascade_sim.api.results import AuditResult, ExportResult, FitResult, ImportResult, RealismResult
from cascade_sim.errors import UserError

if TYPE_CHECKING:
    from cascade_sim.questions.reopen import Trust


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
    """Write a run's auctions as Parquet tables into the new folder `out`, with the mapping that imports them.

    The evaluation is served again and held against the run's own log. `arm` is by default the baseline;
    `phase` "slates" are the randomised pages of off_policy.slates, with their propensities. `trust`: as in
    `whatif`.

        export_logs("runs/quick", "logs/quick").mapping
    """
    from cascade_sim.progress import Progress
    from cascade_sim.questions import export

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
    """Check logs row by row and make a market of them, in the new folder `out`.

    `mapping` is the YAML file that says which column is what, or what `export_logs` returned; with `format`
    (auction-net, open-bandit, open-rtb, rec-flow) it is one or several files in that format. A log that is
    refused leaves nothing behind, and the UserError names its rows.

        import_logs("logs/mapping.yaml", "markets/last_week").level
    """
    from cascade_sim.imports.market import import_format, import_market
    from cascade_sim.progress import Progress

    given = [mapping.mapping] if isinstance(mapping, ExportResult) else mapping
    files = [given] if isinstance(given, str | Path) else list(given)
    if format is None and len(files) != 1:
        raise UserError(f"one mapping, found {len(files)} files; several files are for --format")
    with Progress(quiet) as progress, progress.stage("import", None, "rows") as bar:

        def advance(table: str, rows: int) -> None:
            bar.advance(rows)

        if format is None:
            imported = import_market(files[0], out, advance)
        else:
            imported = import_format(format, files, out, advance)
    return ImportResult(Path(out), imported)


@plain_arguments
def audit_logs(market: RunLike, *, infer: bool = False, out: str | Path | None = None) -> AuditResult:
    """Hold every auction of an imported market again: do winners and prices come out as logged?

    Under the rule that the log declares or, without one or with `infer`, under the one that it follows. With
    `out`, files are written into that folder.

        audit_logs("markets/last_week").tally()
    """
    from cascade_sim.audit.study import audit, write_audit
    from cascade_sim.questions.whatif import check_out

    if out is not None:
        check_out(Path(out))
    answer = audit(run_path(market), infer=infer).answer
    return AuditResult(answer, tuple(write_audit(answer, Path(out))) if out is not None else ())


@plain_arguments
def fit_world(
    market: RunLike,
    out: str | Path,
    *,
    parametric: bool = False,
    share: float = 1.0,
    seed: int = 1,
    replicates: int | None = None,
    quiet: bool = True,
) -> FitResult:
    """Fit a world to an imported market, and write the scenario `out` (.yaml) in which it can be run.

    Requests, candidates and bids are the log's, drawn in blocks of time; clicks come from a fitted response.
    `share`: fit to so much of the log, from its start, so that the rest can judge the world. With
    `parametric` the world is drawn, with parameters fitted to the log's moments: no row of the log is in it.
    `replicates` (20) are fits to logs drawn from the log, by which answers know how uncertain the fit is.

        fit_world("markets/last_week", "worlds/last_week.yaml").frame()
    """
    from cascade_sim.likeness.fitting import fit_to
    from cascade_sim.progress import Progress

    with Progress(quiet) as progress:
        fitted = fit_to(
            run_path(market), Path(out), parametric=parametric, share=share, seed=seed,
            replicates=replicates, progress=progress,
        )  # fmt: skip
    return FitResult(Path(out), fitted)


@plain_arguments
def realism(
    log: RunLike, world: RunLike, *, part: str = "all", seed: int = 1, out: str | Path | None = None
) -> RealismResult:
    """How like a world is to `log`, an imported market.

    `world` is a market, or the scenario or run of a world that was fitted to a log. `part` "first" or
    "second": the half of the log that is compared. With `out`, files are written into that folder.

        realism("markets/last_week", "worlds/last_week.yaml").verdict
    """
    from cascade_sim.likeness.study import held_against, write_realism

    folder = None if out is None else Path(out)
    answer = held_against(run_path(log), run_path(world), part=part, seed=seed, out=folder)
    return RealismResult(answer, tuple(write_realism(answer, folder)) if folder is not None else ())
