"""What the functions return: tables, and a short look at them in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.terminal import joined, shown

if TYPE_CHECKING:
    import pandas as pd

    from cascade_sim.counterfactual.landscape import Landscape
    from cascade_sim.logs.audit.study import Audit
    from cascade_sim.logs.export import Exported
    from cascade_sim.logs.fit.fitting import FittedWorld
    from cascade_sim.logs.importing.importer import Imported
    from cascade_sim.regression.baseline import Baseline
    from cascade_sim.regression.check import Verdict

ENDS = ("value", "low", "high")
MAX_ROWS = 30  # of a table in a notebook
DECISION = "expected_revenue_per_request"  # whose lift comes first in a notebook
LIFT = "revenue per request, lift"
OVERVIEW = (DECISION, "expected_rpm", "expected_ctr", "rcs")  # of a run in a notebook


class Result(ABC):
    """Base class of all results: a pandas table, and a short view of it in a notebook."""

    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """Return the result as a table."""

    @abstractmethod
    def title(self) -> str:
        """Return the line above the table in a notebook."""

    def headline(self) -> str:
        """Return the answer in a sentence, which a notebook shows first; empty where there is none."""
        return ""

    def overview(self) -> pd.DataFrame:
        """Return the table that a notebook shows; by default `frame`."""
        return self.frame()

    def _repr_html_(self) -> str:
        table = self.overview()
        shown = table.head(MAX_ROWS).to_html(
            index=False, border=0, na_rep="", escape=True, float_format=lambda value: f"{value:,.4g}"
        )
        left = len(table) - MAX_ROWS
        more = f"<p>… and {left:,} more rows in <code>.frame()</code></p>" if left > 0 else ""
        lines = [line for line in (self.headline(), self.title()) if line]
        head = "".join(f"<p>{escape(line)}</p>" for line in lines[1:])
        return f"<p><b>{escape(lines[0])}</b></p>{head}{shown}{more}"


def _lift_text(entry: Any) -> str:
    """A lift with its interval, as sentences have it."""
    from cascade_sim.analysis.statistics.estimates import lift_of, percent_text

    return percent_text(lift_of(entry))


@dataclass(frozen=True)
class RunResult(Result):
    """Finished run.

    Attributes:
        path: run folder.
        metrics: content of metrics.json.
        trust: whether the code of custom model classes in the folder may be run; True for what `run` returns.
    """

    path: Path
    metrics: dict[str, Any] = field(repr=False)  # a hundred thousand characters in a notebook
    trust: bool = False  # whether code of model classes that lies in the folder may be run

    def frame(self) -> pd.DataFrame:
        """Return a row per arm and metric.

        Returns:
            Columns arm, metric, value, low, high, lift, lift_low, lift_high; 95 % CIs. Lifts are relative to
            the baseline arm and missing for itself.
        """
        import pandas as pd

        rows = []
        for arm, metrics in self.metrics["arms"].items():
            for metric, entry in metrics.items():
                lift = entry.get("lift") or {}
                rows.append(
                    [arm, metric, *(entry.get(key) for key in ENDS), *(lift.get(key) for key in ENDS)]
                )
        return pd.DataFrame(rows, columns=["arm", "metric", *ENDS, "lift", "lift_low", "lift_high"])

    def title(self) -> str:
        """Return run folder and report file."""
        return f"Run {self.path}; the report is {self.path / 'report.html'}"

    def headline(self) -> str:
        """Return what the study answers, as the report and the terminal do."""
        if "baseline" not in self.metrics:
            return ""
        from cascade_sim.analysis.report.decision import decide
        from cascade_sim.analysis.report.sections.asked import asked_answers

        told = self._told()
        asked = [answer.headline for answer in asked_answers(told) if answer.headline]
        return asked[0] if asked else decide(told).headline

    def _told(self) -> dict[str, Any]:
        """The metrics with what each arm changes, as the report has them: texts are about that."""
        from cascade_sim.storage.files import below, read_file
        from cascade_sim.study.report import with_arm_changes

        try:
            text = read_file(below(self.path, "scenario.yaml")).decode()
        except (OSError, UnicodeDecodeError, UserError):  # a folder that is gone has its metrics still
            return self.metrics
        return with_arm_changes(self.metrics, text)

    def overview(self) -> pd.DataFrame:
        """Return a row per arm, best first: the lift of revenue per request with its 95 % CI, main metrics.

        Of a run with a market also the lift there, which the verdict is about.
        """
        import pandas as pd

        from cascade_sim.analysis.report.comparisons import ordered_arms
        from cascade_sim.analysis.report.market_verdict import market_lift
        from cascade_sim.analysis.statistics.estimates import percent_text

        arms, baseline = self.metrics["arms"], self.metrics.get("baseline")
        shown = list(arms) if baseline is None else ordered_arms(self._told())
        others = [] if baseline is None else [arm for arm in shown if arm != baseline]
        in_market = {arm: market_lift(self.metrics, arm) for arm in others}
        has_market = any(lift.value is not None for lift in in_market.values())
        known = [metric for metric in OVERVIEW if any(metric in arms[arm] for arm in shown)]
        rows = []
        for arm in shown:
            lifts = ["" if arm == baseline else _lift_text(arms[arm].get(DECISION))]
            if has_market:
                lifts.append("" if arm == baseline else percent_text(in_market[arm]))
            values = ((arms[arm].get(metric) or {}).get("value") for metric in known)
            rows.append([arm, *lifts, *values])
        heads = [LIFT, *([f"{LIFT}, in the market"] if has_market else [])]
        return pd.DataFrame(rows, columns=["arm", *heads, *known])

    def log(self, table: str) -> pd.DataFrame:
        """Read a table of the run's logs.

        Args:
            table: its name, e.g. "evaluate-logloss".

        Returns:
            A row per impression; times in seconds, money in micro-units. A column of codes that stand for
            names (`served_by_stage` of a market: stages) is categorical.

        Raises:
            UserError: no such table; the message lists the tables.
        """
        import pandas as pd

        from cascade_sim.storage.tables import read_categories, read_table

        columns: dict[str, Any] = dict(read_table(self.path, table))
        for name, names in read_categories(self.path, table).items():
            columns[name] = pd.Categorical.from_codes(columns[name], list(names))
        return pd.DataFrame(columns)


@dataclass(frozen=True)
class WhatIfResult(Result):
    """Answer of `whatif`.

    Attributes:
        answer: content of whatif.json.
        files: the files that were written (with `out`).
    """

    answer: dict[str, Any] = field(repr=False)
    files: tuple[Path, ...] = ()

    def frame(self) -> pd.DataFrame:
        """Return a row per setting and metric.

        Returns:
            Columns setting, metric, current, variant, difference and lift, each with its 95 % CI.
        """
        import pandas as pd

        from cascade_sim.analysis.report.sections.whatif import CSV_COLUMNS, what_if_rows

        return pd.DataFrame(what_if_rows(self.answer), columns=list(CSV_COLUMNS))

    def title(self) -> str:
        """Return arm and number of requests."""
        return f"What if, arm {self.answer['arm']}, {self.answer['requests']:,} requests"

    def headline(self) -> str:
        """Return the best setting and its lift."""
        from cascade_sim.analysis.report.sections.asked import what_if_headline

        return what_if_headline(self.answer)

    def overview(self) -> pd.DataFrame:
        """Return a row per setting: the lift of revenue per request with its 95 % CI, then main metrics."""
        import pandas as pd

        from cascade_sim.analysis.report.readings import settings_text

        current = self.answer["current"]["metrics"]
        known = [metric for metric in OVERVIEW if metric in current]
        sides = [("as it is", "", current)]
        for point in self.answer["points"]:
            lift = _lift_text(point["metrics"].get(DECISION))
            sides.append((settings_text(point["settings"]), lift, point["metrics"]))
        rows = [
            [name, lift, *((metrics.get(metric) or {}).get("value") for metric in known)]
            for name, lift, metrics in sides
        ]
        return pd.DataFrame(rows, columns=["setting", LIFT, *known])

    def variance_reduction(self) -> pd.DataFrame:
        """Return the variance reduction by common random numbers, a row per setting and kind of revenue.

        Returns:
            Columns setting, revenue, times, low, high: Var(independent) / Var(paired) with its 95 % CI.
        """
        import pandas as pd

        from cascade_sim.analysis.report.readings import settings_text
        from cascade_sim.analysis.report.sections.whatif import worth_of

        rows = [
            [settings_text(point["settings"]), kind, worth.value, worth.low, worth.high]
            for point in self.answer["points"]
            for kind in point["variance_reduction"]
            for worth in [worth_of(point, kind)]
        ]
        return pd.DataFrame(rows, columns=["setting", "revenue", "times", "low", "high"])


@dataclass(frozen=True)
class ExportResult(Result):
    """Auction tables of a run.

    Attributes:
        exported: folder, mapping and row counts.
    """

    exported: Exported = field(repr=False)

    @property
    def path(self) -> Path:
        """Folder of the tables."""
        return self.exported.folder

    @property
    def mapping(self) -> Path:
        """Mapping file that `import_logs` reads."""
        return self.exported.mapping

    def frame(self) -> pd.DataFrame:
        """Return a row per table: columns table, rows."""
        import pandas as pd

        done = self.exported
        rows = {"requests": done.requests, "candidates": done.candidates, "outcomes": done.shown}
        return pd.DataFrame(rows.items(), columns=["table", "rows"])

    def title(self) -> str:
        """Return folder and arm."""
        return f"Logs {self.path} of arm {self.exported.arm}"

    def __str__(self) -> str:
        return shown(self.exported.text())


@dataclass(frozen=True)
class ImportResult(Result):
    """Imported log store, which all functions accept that take a run. As text, the command line's output.

    Attributes:
        path: folder of the store.
        imported: the opened store and its validation.
        replayed: share of a sample of pages that match the log under the declared rule (without one,
            under the usual rule); None for logs of winners and for drawn pages.
    """

    path: Path
    imported: Imported = field(repr=False)
    replayed: float | None = None

    @property
    def level(self) -> str:
        """Log completeness: "winners", "bids" or "pre_ranking"."""
        return self.imported.store.about.level

    @property
    def validation(self) -> dict[str, Any]:
        """Content of validation.json: rows, faults, repaired and dropped rows."""
        return self.imported.validation

    def frame(self) -> pd.DataFrame:
        """Return a row per kind of entity: columns what, count, left_out."""
        import pandas as pd

        counts, left_out = vars(self.imported.store.about.counts), self.validation["left_out"]
        rows = [[what, count, left_out.get(what, 0)] for what, count in counts.items()]
        return pd.DataFrame(rows, columns=["what", "count", "left_out"])

    def title(self) -> str:
        """Return folder and log completeness."""
        return f"Log {self.path}, log completeness: {self.level}"

    def __str__(self) -> str:
        from cascade_sim.logs.importing.market import summary

        return joined(summary(self.imported, self.path, self.replayed))


@dataclass(frozen=True)
class FitResult(Result):
    """World fitted to a log. As text, its goodness of fit.

    Attributes:
        path: scenario file, for `run`.
        fitted: the fit.
    """

    path: Path
    fitted: FittedWorld = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """Return fitted against logged values: a row per click check, or statistic of a parametric world."""
        return self.fitted.frame()

    def title(self) -> str:
        """Return the scenario file."""
        return f"World {self.path}"

    def __str__(self) -> str:
        return shown(self.fitted.text())


@dataclass(frozen=True)
class RealismResult(Result):
    """Realism of a world against a log.

    Attributes:
        answer: content of realism.json.
        files: the files that were written (with `out`).
    """

    answer: dict[str, Any] = field(repr=False)
    files: tuple[Path, ...] = ()

    @property
    def verdict(self) -> str:
        """Verdict "equivalent", "inconclusive" or "different", by the classifier's excess AUC."""
        return str(self.answer["verdict"])

    @property
    def gaps(self) -> list[str]:
        """Properties of the log that the world lacks, in sentences."""
        return list(self.answer["gaps"])

    def frame(self) -> pd.DataFrame:
        """Return a row per summary statistic.

        Returns:
            Columns statistic, group, log, world and gap with 95 % CIs, is_relative, differs.
        """
        from cascade_sim.logs.fit.realism import statistics_frame

        return statistics_frame(self.answer["statistics"])

    def classifier(self) -> pd.DataFrame:
        """Return AUC, AUC between two periods of the log and excess, for requests and for impressions."""
        from cascade_sim.logs.fit.realism import classifier_frame

        return classifier_frame(self.answer["two_sample"])

    def whatifs(self) -> pd.DataFrame:
        """Return a row per what-if and metric: lifts in the log and in the world."""
        from cascade_sim.logs.fit.realism import whatifs_frame

        return whatifs_frame(self.answer["whatifs"])

    def overview(self) -> pd.DataFrame:
        """Return the classifier table."""
        return self.classifier()

    def title(self) -> str:
        """Return the verdict in a sentence."""
        from cascade_sim.analysis.report.sections.realism import realism_headline

        return realism_headline(self.answer)


@dataclass(frozen=True)
class AuditResult(Result):
    """Audit of an imported log.

    Attributes:
        answer: content of audit.json.
        files: the files that were written (with `out`).
    """

    answer: dict[str, Any] = field(repr=False)
    files: tuple[Path, ...] = ()

    @property
    def _audit(self) -> Audit:
        from cascade_sim.logs.audit.study import Audit

        return Audit(self.answer)

    def frame(self) -> pd.DataFrame:
        """Return a row per reason for disagreement: columns reason, requests, share, alone, value, …"""
        return self._audit.frame()

    def tally(self) -> pd.DataFrame:
        """Return counts and shares of pages, winners and prices that agree with the log."""
        return self._audit.tally()

    def rules(self) -> pd.DataFrame:
        """Return a row per auction rule that was tried, best first; empty without inference."""
        return self._audit.rules()

    def overview(self) -> pd.DataFrame:
        """Return the tally."""
        return self.tally()

    def title(self) -> str:
        """Return the verdict in a sentence."""
        return self._audit.title()


@dataclass(frozen=True)
class CompareResult(Result):
    """Runs compared with the first one.

    Attributes:
        comparisons: content of compare.json.
    """

    comparisons: list[dict[str, Any]] = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """Return a row per run, arm and metric.

        Returns:
            Columns first, other, arm, metric, before, after, difference and lift with 95 % CIs, is_paired.
        """
        import pandas as pd

        from cascade_sim.analysis.report.sections.compare import CSV_COLUMNS, compare_rows

        return pd.DataFrame(compare_rows(self.comparisons), columns=list(CSV_COLUMNS))

    def title(self) -> str:
        """Return the names of the runs."""
        others = ", ".join(comparison["other"] for comparison in self.comparisons)
        return f"{others} against {self.comparisons[0]['first']}"

    def headline(self) -> str:
        """Return the verdict on each pair."""
        from cascade_sim.analysis.report.compare_verdict import compare_verdict

        if len(self.comparisons) == 1:
            return compare_verdict(self.comparisons[0])[0]
        return " ".join(f"{each['other']}: {compare_verdict(each)[0]}" for each in self.comparisons)

    def overview(self) -> pd.DataFrame:
        """Return a row per run and arm: lift of revenue per request with its 95 % CI, before, after."""
        import pandas as pd

        rows = []
        for comparison in self.comparisons:
            for arm, table in comparison["arms"].items():
                entry = table.get(DECISION) or {}
                values = ((entry.get(side) or {}).get("value") for side in ("before", "after"))
                rows.append([comparison["other"], arm, _lift_text(entry), *values])
        return pd.DataFrame(rows, columns=["run", "arm", LIFT, "before", "after"])

    def scenario(self) -> pd.DataFrame:
        """Return a row per scenario key that differs: columns run, key, old, new."""
        import pandas as pd

        rows = [
            [comparison["other"], change["key"], change["old"], change["new"]]
            for comparison in self.comparisons
            for change in comparison["scenario"]
        ]
        return pd.DataFrame(rows, columns=["run", "key", "old", "new"])


@dataclass(frozen=True)
class SweepResult(Result):
    """Grid of settings.

    Attributes:
        findings: cells and metrics as plain data.
        files: the files that were written.
    """

    findings: dict[str, Any] = field(repr=False)
    files: tuple[Path, ...] = ()

    def frame(self) -> pd.DataFrame:
        """Return a row per cell and metric.

        Returns:
            Columns cell, one per swept key, measure, value, low, high and lift over the reference; 95 % CIs.
        """
        import pandas as pd

        paths = [axis["path"] for axis in self.findings["axes"]]
        rows = []
        for cell in self.findings["cells"]:
            settings = [cell["settings"][path] for path in paths]
            for measure, entry in cell["measures"].items():
                lift = entry.get("lift") or {}
                values = (part.get(key) for part in (entry, lift) for key in ENDS)
                rows.append([cell["name"], *settings, measure, *values])
        columns = ["cell", *paths, "measure", *ENDS, "lift", "lift_low", "lift_high"]
        return pd.DataFrame(rows, columns=columns)

    def title(self) -> str:
        """Return scenario and arm."""
        return f"Sweep of {self.findings['name']}, arm {self.findings['arm']}"

    def headline(self) -> str:
        """Return which cell is best in revenue per request and in CTR."""
        from cascade_sim.analysis.report.sections.sweep import sweep_headline

        return sweep_headline(self.findings, "expected_ctr", DECISION)

    def overview(self) -> pd.DataFrame:
        """Return a row per cell: the lift of revenue per request with its 95 % CI, then the main metrics."""
        import pandas as pd

        cells = self.findings["cells"]
        known = [metric for metric in OVERVIEW if any(metric in cell["measures"] for cell in cells)]
        rows = []
        for i, cell in enumerate(cells):
            measures = cell["measures"]
            lift = _lift_text(measures.get(DECISION)) if i else "reference"
            values = ((measures.get(metric) or {}).get("value") for metric in known)
            rows.append([cell["name"], lift, *values])
        return pd.DataFrame(rows, columns=["cell", LIFT, *known])


@dataclass(frozen=True)
class OffPolicyResult(Result):
    """Off-policy estimates.

    Attributes:
        answers: {target: estimates}; "estimand" of an answer is "launch" (a rollout) or "jittered".
        slopes: {parameter: slope estimates}.
        reward: the reward that `frame` reports.
    """

    answers: dict[str, dict[str, Any]] = field(repr=False)
    slopes: dict[str, dict[str, Any]] = field(repr=False)
    reward: str = "revenue"

    def frame(self) -> pd.DataFrame:
        """Return a row per target and estimator.

        Returns:
            Columns target, estimator, value, low, high (95 % CI), truth, verdict, ess_share (effective sample
            size as a fraction of the log), reason, estimand, lift, lift_low, lift_high. Without an interval
            where the log has too little overlap with the target.
        """
        import pandas as pd

        rows = []
        for target, answer in self.answers.items():
            asked = answer["rewards"][self.reward]
            truth = asked.get("truth", {}).get("value")
            for name, row in asked["estimators"].items():
                judged = (row[key] for key in ("verdict", "ess_share", "reason"))
                lift = [row.get("lift", {}).get(key) for key in ENDS]
                ends = (row["estimate"][key] for key in ENDS)
                rows.append([target, name, *ends, truth, *judged, answer.get("estimand"), *lift])
        columns = ["target", "estimator", *ENDS, "truth", "verdict", "ess_share", "reason", "estimand"]
        columns += ["lift", "lift_low", "lift_high"]
        return pd.DataFrame(rows, columns=columns)

    def title(self) -> str:
        """Return the reward."""
        return f"From logs alone: {self.reward} per request"

    @property
    def is_refused(self) -> bool:
        """Whether every importance-weighted estimator was refused for lack of overlap."""
        verdicts = [
            row["verdict"]
            for answer in self.answers.values()
            for name, row in answer["rewards"][self.reward]["estimators"].items()
            if name != "direct_method"
        ]
        return bool(verdicts) and all(verdict == "refuse" for verdict in verdicts)


@dataclass(frozen=True)
class TraceResult(Result):
    """Explanation of one request. As text, the output of the command line.

    Attributes:
        trace: the explanation as plain data.
    """

    trace: dict[str, Any] = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """Return a row per slot of the page, from the top."""
        import pandas as pd

        return pd.DataFrame(self.trace["win_set"])

    def stages(self) -> pd.DataFrame:
        """Return a row per stage with the ad's rank, score and cut-offs.

        Raises:
            UserError: `trace` was called without an ad.
        """
        import pandas as pd

        if "ad" not in self.trace:
            raise UserError("stages: no ad was asked about; give trace(…, ad=ID)")
        return pd.DataFrame(self.trace["ad"]["stages"])

    def headline(self) -> str:
        """Return what became of the ad; empty if `trace` was called without one."""
        from cascade_sim.diagnostics.trace import ad_verdict

        return ad_verdict(self.trace)

    def overview(self) -> pd.DataFrame:
        """Return the stages of the ad, or the page if `trace` was called without one."""
        return self.stages() if "ad" in self.trace else self.frame()

    def title(self) -> str:
        """Return request and arm."""
        return f"Request {self.trace['request']} in arm {self.trace['arm']}"

    def __str__(self) -> str:
        from cascade_sim.diagnostics.trace import trace_text

        return shown(trace_text(self.trace))


@dataclass(frozen=True)
class LandscapeResult(Result):
    """Bid landscape of an ad.

    Attributes:
        landscape: bids and totals.
    """

    landscape: Landscape = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """Return a row per bid: impressions, clicks, cost, CPC and value, expected and realised."""
        import pandas as pd

        return pd.DataFrame(self.landscape.columns())

    def title(self) -> str:
        """Return ad, arm and the ad's own bid."""
        answer = self.landscape
        return f"Ad {answer.label} in arm {answer.arm}; its own bid is {answer.init_bid:.6f}"


@dataclass(frozen=True)
class BaselineResult(Result):
    """Saved baseline of `check`.

    Attributes:
        path: the file.
        baseline: its content.
    """

    path: Path
    baseline: Baseline = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """Return a row per arm and metric: columns arm, metric, value."""
        import pandas as pd

        rows = [
            [arm, metric, value]
            for arm, own in self.baseline.blocks.arms.items()
            for metric, value in own.values.items()
        ]
        return pd.DataFrame(rows, columns=["arm", "metric", "value"])

    def title(self) -> str:
        """Return file and scenario."""
        return f"Baseline {self.path} of {self.baseline.name}"


@dataclass(frozen=True)
class CheckResult(Result):
    """Result of `check`. As text, the output of the command line.

    Attributes:
        verdict: the findings.
    """

    verdict: Verdict = field(repr=False)

    @property
    def passed(self) -> bool:
        """Whether no metric changed significantly and beyond its tolerance."""
        return self.verdict.passed

    def frame(self) -> pd.DataFrame:
        """Return a row per tested metric.

        Returns:
            Columns arm, metric, before, after, change (relative), low, high (95 % CI), p (Holm-adjusted),
            tolerance, failed.
        """
        import pandas as pd

        rows = [
            [
                *(finding.arm, finding.metric, finding.before, finding.after, finding.move.relative),
                *(*finding.move.interval(), finding.p, finding.tolerance, finding.has_failed),
            ]
            for finding in self.verdict.findings
        ]
        columns = ["arm", "metric", "before", "after", "change", "low", "high", "p", "tolerance", "failed"]
        return pd.DataFrame(rows, columns=columns)

    def title(self) -> str:
        """Return the verdict in a sentence."""
        result = "passed" if self.passed else f"FAILED in {len(self.verdict.failed)} metrics"
        return f"{self.verdict.where} against {self.verdict.against}: {result}"

    def __str__(self) -> str:
        from cascade_sim.regression.text import verdict_text

        return shown(verdict_text(self.verdict))
