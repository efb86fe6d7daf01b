"""A world of either kind, fitted to a log and written: empirical (fitted.py) or drawn (parametric.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.terminal import joined
from cascade_sim.logs.audit.reproduction import require_log_reproduced
from cascade_sim.logs.fit.fitted import REPLICATES, checks_text, fit_world, named_cells
from cascade_sim.logs.fit.parametric import Fit, fit_parametric, fit_table, fit_words, fitted_yaml
from cascade_sim.logs.fit.realism import statistics_frame
from cascade_sim.logs.store.store import LogStore, open_store
from cascade_sim.storage.files import storage_errors, write_file

if TYPE_CHECKING:
    import pandas as pd

    from cascade_sim.foundation.progress import Progress


MIN_REPLICATES = 8  # fewer say nothing of a spread


class FittedWorld(ABC):
    """A world that was written, compared with its log."""

    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """What was looked at, a row each."""

    @abstractmethod
    def text(self, width: int = 100, color: bool = False) -> str:
        """The same in lines."""


@dataclass(frozen=True)
class Empirical(FittedWorld):
    """Clicks of the log over those that its click model predicts for requests it has not learned from."""

    checks: Mapping[str, Any]

    def frame(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(list(self.checks["cells"]))

    def text(self, width: int = 100, color: bool = False) -> str:
        return checks_text(self.checks)


@dataclass(frozen=True)
class ParametricWorld(FittedWorld):
    """Summary statistics of the log and of the synthetic world."""

    fit: Fit

    def frame(self) -> pd.DataFrame:
        return statistics_frame(self.fit.rows)

    def text(self, width: int = 100, color: bool = False) -> str:
        from cascade_sim.analysis.report.terminal import table_text

        return joined([table_text(fit_table(self.fit), color=color, width=width), *fit_words(self.fit)])


def fit_to(
    log: Path,
    out: Path,
    *,
    parametric: bool = False,
    share: float = 1.0,
    seed: int = 1,
    replicates: int | None = None,
    progress: Progress | None = None,
) -> FittedWorld:
    """Fit a world to a log and write the scenario `out`; UserError before any work where it cannot be."""
    if not 0 < share <= 1:
        raise UserError(f"--fit-share: expected a number above 0 and at most 1, found {share}")
    if parametric and share != 1:
        raise UserError("--fit-share is for a world of the log's own requests; leave it out, or --parametric")
    if replicates is not None and parametric:
        raise UserError(
            "--replicates is for a world of the log's own requests; leave it out, or --parametric"
        )
    if replicates is not None and (replicates < 0 or 0 < replicates < MIN_REPLICATES):
        raise UserError(
            f"--replicates: expected 0, for answers without the fit's doubt, or {MIN_REPLICATES} or more, "
            f"found {replicates}"
        )
    if out.suffix not in (".yaml", ".yml"):
        raise UserError(f"--out: {out} should end in .yaml")
    if out.exists():
        raise UserError(f"--out: {out} exists already; name another file, or remove it")
    store = open_store(log)
    require_log_reproduced(store)
    if parametric:
        return _drawn(store, out, seed)
    many = REPLICATES if replicates is None else replicates
    checks = fit_world(log, store, out, share=share, seed=seed, replicates=many, progress=progress)
    return Empirical({**checks, "cells": named_cells(checks["cells"], store)})


def _drawn(store: LogStore, out: Path, seed: int) -> ParametricWorld:
    fit = fit_parametric(store, seed, out.stem)
    with storage_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    write_file(out, fitted_yaml(fit, store.about.name).encode())
    return ParametricWorld(fit)
