"""What the functions return: tables, and a short look at them in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascade_sim.errors import UserError
from cascade_sim.terminal import joined, shown

if TYPE_CHECKING:
    import pandas as pd

    from cascade_sim.audit.study import Audit
    from cascade_sim.imports.importer import Imported
    from cascade_sim.likeness.fitting import FittedWorld
    from cascade_sim.questions.export import Exported
    from cascade_sim.questions.landscape import Landscape
    from cascade_sim.revenue.baseline import Baseline
    from cascade_sim.revenue.check import Verdict

ENDS = ("value", "low", "high")
MOST_ROWS = 30  # of a table in a notebook
OVERVIEW = ("expected_revenue_per_request", "expected_rpm", "expected_ctr", "rcs")  # of a run in a notebook


class Result(ABC):
    """What every answer is: a table, and a short look at it in a notebook."""

    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """The answer as a table."""

    @abstractmethod
    def title(self) -> str:
        """A line above the table: which answer to which run this is."""

    def overview(self) -> pd.DataFrame:
        """The table that a notebook shows; by default all of `frame`."""
        return self.frame()

    def _repr_html_(self) -> str:
        table = self.overview()
        shown = table.head(MOST_ROWS).to_html(
            index=False, border=0, na_rep="", escape=True, float_format=lambda value: f"{value:,.4g}"
        )
        left = len(table) - MOST_ROWS
        more = f"<p>… and {left:,} more rows in <code>.frame()</code></p>" if left > 0 else ""
        return f"<p><b>{escape(self.title())}</b></p>{shown}{more}"


@dataclass(frozen=True)
class RunResult(Result):
    """A finished run: `path` is its folder, `metrics` the content of its metrics.json.

    `trust`: what `run` returns is trusted, since it ran that code itself; what `open_run` opens, if told so.
    """

    path: Path
    metrics: dict[str, Any] = field(repr=False)  # a hundred thousand characters in a notebook
    trust: bool = False  # whether code of model classes that lies in the folder may be run

    def frame(self) -> pd.DataFrame:
        """A row per arm and metric: arm, metric, value, low, high, lift, lift_low, lift_high.

        Intervals are 95 %; lifts are relative to the baseline arm and missing for itself.
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
        return f"Run {self.path}; the report is {self.path / 'report.html'}"

    def overview(self) -> pd.DataFrame:
        """A row per arm with the main metrics."""
        import pandas as pd

        arms = self.metrics["arms"]
        known = [metric for metric in OVERVIEW if any(metric in metrics for metrics in arms.values())]
        rows = [
            [arm, *((metrics.get(metric) or {}).get("value") for metric in known)]
            for arm, metrics in arms.items()
        ]
        return pd.DataFrame(rows, columns=["arm", *known])

    def log(self, table: str) -> pd.DataFrame:
        """A table of the run's logs, e.g. `evaluate-logloss`; UserError names those there are.

        A column of codes that stand for names (`answered_by` of a market: stages) is categorical.
        """
        import pandas as pd

        from cascade_sim.storage.tables import read_categories, read_table

        columns: dict[str, Any] = dict(read_table(self.path, table))
        for name, names in read_categories(self.path, table).items():
            columns[name] = pd.Categorical.from_codes(columns[name], list(names))
        return pd.DataFrame(columns)


@dataclass(frozen=True)
class WhatIfResult(Result):
    """An answer: `answer` is the content of whatif.json, `files` what was written (with `out`)."""

    answer: dict[str, Any] = field(repr=False)
    files: tuple[Path, ...] = ()

    def frame(self) -> pd.DataFrame:
        """A row per setting and metric: setting, metric, and today, then, difference, lift with intervals."""
        import pandas as pd

        from cascade_sim.analysis.report.sections.whatif import CSV_COLUMNS, what_if_rows

        return pd.DataFrame(what_if_rows(self.answer), columns=list(CSV_COLUMNS))

    def title(self) -> str:
        return f"What if, arm {self.answer['arm']}, {self.answer['requests']:,} requests"

    def pairing(self) -> pd.DataFrame:
        """A row per setting and kind of revenue: how many times pairing shrinks the variance."""
        import pandas as pd

        from cascade_sim.analysis.report.readings import settings_text
        from cascade_sim.analysis.report.sections.whatif import worth_of

        rows = [
            [settings_text(point["settings"]), kind, worth.value, worth.low, worth.high]
            for point in self.answer["points"]
            for kind in point["pairing"]
            for worth in [worth_of(point, kind)]
        ]
        return pd.DataFrame(rows, columns=["setting", "revenue", "times", "low", "high"])


@dataclass(frozen=True)
class ExportResult(Result):
    """A run's auctions as tables: `mapping` is the file that `import_logs` takes."""

    exported: Exported = field(repr=False)

    @property
    def path(self) -> Path:
        """The folder of the tables."""
        return self.exported.folder

    @property
    def mapping(self) -> Path:
        return self.exported.mapping

    def frame(self) -> pd.DataFrame:
        """A row per table: table, rows."""
        import pandas as pd

        done = self.exported
        rows = {"requests": done.requests, "candidates": done.candidates, "outcomes": done.shown}
        return pd.DataFrame(rows.items(), columns=["table", "rows"])

    def title(self) -> str:
        return f"Logs {self.path} of arm {self.exported.arm}"

    def __str__(self) -> str:
        return shown(self.exported.text())


@dataclass(frozen=True)
class ImportResult(Result):
    """A market: give it to any function that takes a run. As text it is what the command line prints."""

    path: Path
    imported: Imported = field(repr=False)

    @property
    def level(self) -> str:
        """The evidence level: winners, bids or pre_ranking."""
        return self.imported.store.about.level

    @property
    def validation(self) -> dict[str, Any]:
        """The content of validation.json: rows, faults, what was mended and what was left out."""
        return self.imported.validation

    def frame(self) -> pd.DataFrame:
        """A row per kind of thing: what, count, left_out."""
        import pandas as pd

        counts, left_out = vars(self.imported.store.about.counts), self.validation["left_out"]
        rows = [[what, count, left_out.get(what, 0)] for what, count in counts.items()]
        return pd.DataFrame(rows, columns=["what", "count", "left_out"])

    def title(self) -> str:
        return f"Market {self.path}, evidence level {self.level}"

    def __str__(self) -> str:
        from cascade_sim.imports.market import summary

        return joined(summary(self.imported, self.path))


@dataclass(frozen=True)
class FitResult(Result):
    """A world fitted to a log: `path` is its scenario, for `run`. As text, how it holds against the log."""

    path: Path
    fitted: FittedWorld = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """What was fitted beside the log: a row per check of the clicks, or per moment of a drawn world."""
        return self.fitted.frame()

    def title(self) -> str:
        return f"World {self.path}"

    def __str__(self) -> str:
        return shown(self.fitted.text())


@dataclass(frozen=True)
class RealismResult(Result):
    """How like a world is to a log: `answer` is what realism.json holds, `files` what was written."""

    answer: dict[str, Any] = field(repr=False)
    files: tuple[Path, ...] = ()

    @property
    def verdict(self) -> str:
        """alike, nearly or unlike: by what a classifier finds beyond what it finds between two periods."""
        return str(self.answer["verdict"])

    @property
    def not_captured(self) -> list[str]:
        """What the world does not have of the log, in sentences."""
        return list(self.answer["not_captured"])

    def frame(self) -> pd.DataFrame:
        """A row per moment: moment, group, log, world and gap with intervals, is_relative, differs."""
        from cascade_sim.likeness.study import moments_frame

        return moments_frame(self.answer["moments"])

    def classifier(self) -> pd.DataFrame:
        """By requests and by shown ads: the AUC, that between two periods of the log, and the excess."""
        from cascade_sim.likeness.study import classifier_frame

        return classifier_frame(self.answer["two_sample"])

    def whatifs(self) -> pd.DataFrame:
        """A row per what-if and metric that both were asked: the lifts of the log and of the world."""
        from cascade_sim.likeness.study import whatifs_frame

        return whatifs_frame(self.answer["whatifs"])

    def overview(self) -> pd.DataFrame:
        return self.classifier()

    def title(self) -> str:
        from cascade_sim.analysis.report.sections.realism import realism_headline

        return realism_headline(self.answer)


@dataclass(frozen=True)
class AuditResult(Result):
    """The audit of a market: `answer` is the content of audit.json, `files` what was written (with `out`)."""

    answer: dict[str, Any] = field(repr=False)
    files: tuple[Path, ...] = ()

    @property
    def _audit(self) -> Audit:
        from cascade_sim.audit.study import Audit

        return Audit(self.answer)

    def frame(self) -> pd.DataFrame:
        """A row per reason why pages are not as logged: reason, requests, share, alone, value, where, …"""
        return self._audit.frame()

    def tally(self) -> pd.DataFrame:
        """Pages, winners and prices: how many there are and how many come out as logged."""
        return self._audit.tally()

    def rules(self) -> pd.DataFrame:
        """A row per rule that was tried, the best first; empty where nothing was inferred."""
        return self._audit.rules()

    def overview(self) -> pd.DataFrame:
        return self.tally()

    def title(self) -> str:
        return self._audit.title()


@dataclass(frozen=True)
class CompareResult(Result):
    """Runs held against the first: `comparisons` is the content of compare.json."""

    comparisons: list[dict[str, Any]] = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """A row per run, arm and metric: before, after, difference, lift with intervals, and is_paired."""
        import pandas as pd

        from cascade_sim.analysis.report.sections.compare import CSV_COLUMNS, compare_rows

        return pd.DataFrame(compare_rows(self.comparisons), columns=list(CSV_COLUMNS))

    def title(self) -> str:
        others = ", ".join(comparison["other"] for comparison in self.comparisons)
        return f"{others} against {self.comparisons[0]['first']}"

    def scenario(self) -> pd.DataFrame:
        """A row per key of the scenarios that differs: run, key, old, new."""
        import pandas as pd

        rows = [
            [comparison["other"], change["key"], change["old"], change["new"]]
            for comparison in self.comparisons
            for change in comparison["scenario"]
        ]
        return pd.DataFrame(rows, columns=["run", "key", "old", "new"])


@dataclass(frozen=True)
class SweepResult(Result):
    """A grid of settings: `findings` as plain data, `files` what was written."""

    findings: dict[str, Any] = field(repr=False)
    files: tuple[Path, ...] = ()

    def frame(self) -> pd.DataFrame:
        """A row per cell and measure: cell, its settings, measure, value and lift over the first cell."""
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
        return f"Sweep of {self.findings['name']}, arm {self.findings['arm']}"


@dataclass(frozen=True)
class OffPolicyResult(Result):
    """What logs alone say: `answers` by target, `slopes` by knob.

    The "jitter" of an answer about knobs tells its question: "drop" a launch, "keep" the log's noise.
    """

    answers: dict[str, dict[str, Any]] = field(repr=False)
    slopes: dict[str, dict[str, Any]] = field(repr=False)
    reward: str = "revenue"

    def frame(self) -> pd.DataFrame:
        """A row per target and estimator: value, low, high, the truth, verdict, ess_share, reason; for knobs
        what became of the jitter, and the lift (over today's values: fixed too, if the jitter is dropped).

        Without an interval where the log holds too little of what the target does.
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
                rows.append([target, name, *ends, truth, *judged, answer.get("jitter"), *lift])
        columns = ["target", "estimator", *ENDS, "truth", "verdict", "ess_share", "reason", "jitter"]
        columns += ["lift", "lift_low", "lift_high"]
        return pd.DataFrame(rows, columns=columns)

    def title(self) -> str:
        return f"From logs alone: {self.reward} per request"

    @property
    def is_refused(self) -> bool:
        """Whether no estimator that weighs what was logged had anything to go by."""
        verdicts = [
            row["verdict"]
            for answer in self.answers.values()
            for name, row in answer["rewards"][self.reward]["estimators"].items()
            if name != "direct_method"
        ]
        return bool(verdicts) and all(verdict == "refuse" for verdict in verdicts)


@dataclass(frozen=True)
class TraceResult(Result):
    """One request, explained: `trace` as plain data; as text it is what the command line prints."""

    trace: dict[str, Any] = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """A row per slot of the page that was shown, from the top."""
        import pandas as pd

        return pd.DataFrame(self.trace["win_set"])

    def stages(self) -> pd.DataFrame:
        """A row per stage with the ad's rank, score and cut-offs; UserError if no ad was asked about."""
        import pandas as pd

        if "ad" not in self.trace:
            raise UserError("stages: no ad was asked about; give trace(…, ad=ID)")
        return pd.DataFrame(self.trace["ad"]["stages"])

    def title(self) -> str:
        return f"Request {self.trace['request']} in arm {self.trace['arm']}"

    def __str__(self) -> str:
        from cascade_sim.questions.trace import trace_text

        return shown(trace_text(self.trace))


@dataclass(frozen=True)
class LandscapeResult(Result):
    """What one ad would have got at other bids."""

    landscape: Landscape = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """A row per bid: impressions, clicks, cost, CPC and value, expected and as they fell."""
        import pandas as pd

        return pd.DataFrame(self.landscape.columns())

    def title(self) -> str:
        answer = self.landscape
        return f"Ad {answer.ad} in arm {answer.arm}; its own bid is {answer.init_bid:.6f}"


@dataclass(frozen=True)
class BaselineResult(Result):
    """What a run earned, kept in the file `path`."""

    path: Path
    baseline: Baseline = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """A row per arm and metric: arm, metric, value."""
        import pandas as pd

        rows = [
            [arm, metric, value]
            for arm, own in self.baseline.blocks.arms.items()
            for metric, value in own.values.items()
        ]
        return pd.DataFrame(rows, columns=["arm", "metric", "value"])

    def title(self) -> str:
        return f"Baseline {self.path} of {self.baseline.name}"


@dataclass(frozen=True)
class CheckResult(Result):
    """Whether a scenario still earns what its baseline earned; as text it is what the command line prints."""

    verdict: Verdict = field(repr=False)

    @property
    def passed(self) -> bool:
        """Whether nothing moved beyond chance and tolerance."""
        return self.verdict.passed

    def frame(self) -> pd.DataFrame:
        """A row per guarded metric: arm, metric, before, after, change, low, high, p, tolerance, failed."""
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
        result = "passed" if self.passed else f"FAILED in {len(self.verdict.failed)} metrics"
        return f"{self.verdict.where} against {self.verdict.against}: {result}"

    def __str__(self) -> str:
        from cascade_sim.revenue.text import verdict_text

        return shown(verdict_text(self.verdict))
