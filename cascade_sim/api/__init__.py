"""The simulator from Python: the same functions as on the command line, with results as pandas tables.

    from cascade_sim import run, whatif, compare

    study = run("quick", out="runs/quick")                   # a shipped scenario, a file, or a dict
    study.frame()                                            # arm, metric, value, low, high, lift, …
    study.log("evaluate-logloss")                            # what was shown, a row per impression
    whatif(study, {"auction.reserve_cpc": [0.1, 0.2]}).frame()
    wider = run("quick", out="runs/wider", set=["cascade.pre_ranking.size=50"])
    compare(study, wider).frame()

A run is given as its folder or as what `run` returned; options have the names of the command line. Nothing is
printed, and no progress is shown unless `quiet=False`. Mistakes are
`cascade_sim.foundation.errors.UserError` with the text the command line would show.
"""

from cascade_sim.api.logs import audit_logs, export_logs, fit_world, import_logs, realism
from cascade_sim.api.questions import POINTS, checked_bids, compare, landscape, off_policy, trace, whatif
from cascade_sim.api.results import (
    AuditResult,
    BaselineResult,
    CheckResult,
    CompareResult,
    ExportResult,
    FitResult,
    ImportResult,
    LandscapeResult,
    OffPolicyResult,
    RealismResult,
    Result,
    RunResult,
    SweepResult,
    TraceResult,
    WhatIfResult,
)
from cascade_sim.api.studies import baseline, check, load_scenario, open_run, run, sweep
from cascade_sim.scenario.log_support import accepting_mismatch

__all__ = [
    "POINTS",
    "AuditResult",
    "BaselineResult",
    "CheckResult",
    "CompareResult",
    "ExportResult",
    "FitResult",
    "ImportResult",
    "LandscapeResult",
    "OffPolicyResult",
    "RealismResult",
    "Result",
    "RunResult",
    "SweepResult",
    "TraceResult",
    "WhatIfResult",
    "accepting_mismatch",
    "audit_logs",
    "baseline",
    "check",
    "checked_bids",
    "compare",
    "export_logs",
    "fit_world",
    "import_logs",
    "landscape",
    "load_scenario",
    "off_policy",
    "open_run",
    "realism",
    "run",
    "sweep",
    "trace",
    "whatif",
]
