"""Coverage in tables, as CSV and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cascade_sim.analysis.off_policy.coverage import NOMINAL, Coverage, Share, expected_band
from cascade_sim.analysis.report.readings import ESTIMATOR_NAMES
from cascade_sim.analysis.report.sections.off_policy import REWARDS
from cascade_sim.analysis.report.tables import Cell, Row, Table, cell
from cascade_sim.analysis.statistics.estimates import MISSING, Estimate, decimals_for, number_text

Rows = Mapping[str, Mapping[str, Coverage]]  # by target and estimator
MODEL_ONLY = ("direct_method",)  # its bias is unknown to its interval: shown for what it is
EDGE = 0.05
CSV_COLUMNS = (
    *("reward", "target", "estimator", "requests", "replications", "ess_share", "no_estimate", "truth"),
    *(
        "bias",
        "bias_low",
        "bias_high",
        "rmse",
        "width",
        "answers",
        "coverage",
        "coverage_low",
        "coverage_high",
    ),
    *("pairs", "false_positive_rate", "false_positive_rate_low", "false_positive_rate_high"),
)


def coverage_tables(rows: Rows, ess_share: Mapping[str, float], reward: str) -> list[Table]:
    """A table per target, a row per estimator; errors and widths in percent of the truth."""
    made = []
    for target, by_estimator in rows.items():
        truth = next(iter(by_estimator.values())).truth
        lines = [Row(ESTIMATOR_NAMES.get(name, name), _cells(row)) for name, row in by_estimator.items()]
        title = (
            f"{target}: {REWARDS[reward].lower()} {number_text(truth, decimals_for([truth], 4))}, "
            f"ESS {number_text(100 * ess_share[target], 0)} %"
        )
        columns = [
            "no estimate %",
            "bias %",
            "RMSE %",
            "width %",
            "coverage %",
            "verdict",
            "false positives %",
        ]
        made.append(Table(title, "estimator", columns, lines))
    return made


def _cells(coverage: Coverage) -> list[Cell]:
    def relative(value: float | None) -> float | None:
        return None if value is None or coverage.truth == 0 else 100 * value / coverage.truth

    bias = Estimate(relative(coverage.bias), relative(coverage.bias_low), relative(coverage.bias_high))
    return [
        Cell(number_text(100 * coverage.no_estimate, 1)),
        cell(bias, 2, signed=True),
        Cell(number_text(relative(coverage.rmse), 2)),
        Cell(number_text(relative(coverage.width), 1)),
        _share_cell(coverage.coverage),
        Cell(coverage.verdict or MISSING),
        _share_cell(coverage.false_positive_rate),
    ]


def _share_cell(what: Share) -> Cell:
    ends = (what.value, what.low, what.high)
    return cell(Estimate(*(None if end is None else 100 * end for end in ends)), 1)


@dataclass(frozen=True)
class CoverageWords:
    """What a terminal says below the tables."""

    lines: list[str]
    is_good: bool  # no estimator but those of MODEL_ONLY covers too seldom where it answers


def coverage_words(rows: Rows, requests: int) -> CoverageWords:
    """Which answers hold, which do not, and who refuses."""
    cells = [
        (target, name, row)
        for target, by_estimator in rows.items()
        for name, row in by_estimator.items()
        if name not in MODEL_ONLY
    ]
    judged = [(target, name, row) for target, name, row in cells if row.verdict is not None]
    outside = [entry for entry in judged if entry[2].verdict != "holds"]
    n = max((row.replications for _, _, row in cells), default=0)
    low, high = expected_band(n) if n else (NOMINAL, NOMINAL)
    lines = [
        f"{len(judged) - len(outside)} of {len(judged)} answers on logs of {requests:,} requests, the direct "
        "method's apart, cover as right 95 % intervals do: between "
        f"{100 * low:.1f} and {100 * high:.1f} % of {n:,} replications (a 99.8 % band, wider where some are "
        f"no estimate; of {len(judged)} right ones, about {0.002 * len(judged):.1f} would lie outside)"
    ]
    lines += [
        f"{row.verdict}: {ESTIMATOR_NAMES.get(name, name)} on {target}, "
        f"{100 * (row.coverage.value or 0):.1f} % of {row.coverage.n:,} answers"
        + (
            f"; {100 * row.no_estimate:.0f} % of the logs gave no estimate, so those that did are a selection"
            * _is_edge(row)
        )
        for target, name, row in outside
    ]
    refused = [
        f"{ESTIMATOR_NAMES.get(name, name)} on {target}"
        for target, name, row in cells
        if row.no_estimate == 1
    ]
    if refused:
        lines.append(f"never an estimate: {', '.join(refused)}")
    return CoverageWords(lines, not any(row.verdict == "too seldom" for _, _, row in outside))


def _is_edge(coverage: Coverage) -> bool:
    """Whether refusing is so frequent that the logs that pass differ from the others."""
    return EDGE < coverage.no_estimate < 1 - EDGE


def coverage_csv(rows: Rows, ess_share: Mapping[str, float], reward: str, requests: int) -> str:
    """A line per target and estimator; what is undefined is empty."""
    lines = [",".join(CSV_COLUMNS)]
    for target, by_estimator in rows.items():
        for name, row in by_estimator.items():
            values = (
                *(
                    reward,
                    target,
                    name,
                    requests,
                    row.replications,
                    ess_share[target],
                    row.no_estimate,
                    row.truth,
                ),
                *(row.bias, row.bias_low, row.bias_high, row.rmse, row.width),
                *(row.coverage.n, row.coverage.value, row.coverage.low, row.coverage.high),
                *(
                    row.false_positive_rate.n,
                    row.false_positive_rate.value,
                    row.false_positive_rate.low,
                    row.false_positive_rate.high,
                ),
            )
            lines.append(",".join("" if value is None else str(value) for value in values))
    return "\n".join(lines) + "\n"
