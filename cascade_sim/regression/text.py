"""A check's verdict for people: what moved, by how much, how surely, and what could not have been seen."""

import math

from cascade_sim.analysis.statistics.moves import POWER, ROUNDING
from cascade_sim.regression.blocks import MARKET_METRICS
from cascade_sim.regression.check import ALPHA, MetricChange, Verdict

MAX_KEYS = 6
MAX_WARNINGS = 3


def verdict_text(verdict: Verdict) -> str:
    """The whole answer, several lines without a newline at the end."""
    total, moved = len(verdict.findings), verdict.moved
    lines = [_opening(verdict), *_notes(verdict)]
    if not moved:
        note = "; common random numbers: any change would have shown" if verdict.is_paired else ""
        lines.append(f"identical: all {total} metrics, to the last digit{note}")
        return "\n".join(lines)
    lines += ["", *_table(moved)]
    if len(moved) < total:
        lines.append(f"identical: the other {total - len(moved)} of {total} metrics")
    lines += ["", *_warnings(verdict), _conclusion(verdict)]
    return "\n".join(lines)


def _opening(verdict: Verdict) -> str:
    how = "the same requests, paired" if verdict.is_paired else "other requests of the same world, unpaired"
    n = len(verdict.findings)
    return (
        f"{verdict.where} against {verdict.against}: {how}; {verdict.requests:,} requests "
        f"in {verdict.groups} groups;\n{n} metrics guarded, Holm's correction keeps false positives of all "
        f"together at {ALPHA:.0%}"
    )


def _notes(verdict: Verdict) -> list[str]:
    notes = []
    if verdict.changed_keys:
        keys = verdict.changed_keys
        more = f" and {len(keys) - MAX_KEYS} more" if len(keys) > MAX_KEYS else ""
        notes.append(f"the scenario has changed since: {', '.join(keys[:MAX_KEYS])}{more}")
    if verdict.has_held_models:
        notes.append(
            "models held: they learned from the log of the baseline's cascade (--retrain: from their own)"
        )
    for what in verdict.other_environment:
        notes.append(f"the baseline and this run were {what}: moves may come from there")
    if verdict.is_market_unguarded:
        notes.append("the days of its market are not guarded: what is compared is the evaluation")
    if verdict.unguarded:
        notes.append(f"not in the baseline, so not guarded: {', '.join(verdict.unguarded)}")
    return notes


def _table(findings: list[MetricChange]) -> list[str]:
    head = ("arm", "metric", "before", "after", "change", "95 % CI", "p (Holm)", "MDE", "")
    failed_first = sorted(findings, key=lambda finding: not finding.has_failed)
    rows = [head, *(_row(finding) for finding in failed_first)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    left = (0, 1, 8)
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _row(finding: MetricChange) -> tuple[str, ...]:
    if finding.has_failed:
        word = "FAILED"
    elif finding.move.is_rounding and finding.move.se <= ROUNDING:
        word = "rounding"  # with more noise, moves of the groups happen to cancel
    elif finding.is_significant:
        word = "within tolerance"
    else:
        word = "not significant"
    if math.isinf(finding.move.log):
        interval = ""
    elif finding.metric in MARKET_METRICS and finding.move.se == 0.0:
        interval = "few days: none"
    else:
        low, high = finding.move.interval()
        interval = f"[{percent(low)}, {percent(high)}]"
    return (
        finding.arm,
        finding.metric,
        f"{finding.before:.6g}",
        "undefined" if finding.after is None else f"{finding.after:.6g}",
        percent(finding.move.relative) + " %",
        interval,
        "<0.0001" if finding.p < 1e-4 else f"{finding.p:.4f}",
        f"{percent(finding.mde, sign=False)} %",
        word,
    )


def percent(share: float, sign: bool = True) -> str:
    """A share in percent with three digits that count: +0.512, −12.3, 0.0004."""
    amount = 100.0 * share
    decimals = 3 if amount == 0 else min(8, max(1, 2 - math.floor(math.log10(abs(amount)))))
    text = f"{abs(amount):.{decimals}f}"
    return ("−" if amount < 0 else "+" if sign and amount > 0 else "") + text


def _warnings(verdict: Verdict) -> list[str]:
    """Tolerances that the check was too blunt for: a line for each of the first, with the requests that do.

    What failed was seen, so it is not among them.
    """
    lines, most = [], 0
    for case in verdict.findings:
        seen = case.move.minimum_detectable_effect(ALPHA / len(verdict.findings))
        if case.tolerance > 0 and case.has_changed and not case.has_failed and seen > case.tolerance:
            needed = needed_requests(verdict.requests, seen, case.tolerance)
            most = max(most, needed)
            more = f"a log of about {needed:,} requests"
            if verdict.has_fresh_requests:
                more = f"about {needed:,} requests (phases.evaluate)"
            lines.append(
                f"warning: {case.arm} {case.metric}: this much noise hides a change below "
                f"{percent(seen, False)} % (power {POWER:.0%}), the tolerance is "
                f"{percent(case.tolerance, False)} %: needs {more}"
            )
    if len(lines) > MAX_WARNINGS:
        rest = len(lines) - MAX_WARNINGS
        lines[MAX_WARNINGS:] = [
            f"warning: the same holds for {rest} more; all {len(lines)} together need about {most:,} requests"
        ]
    return lines


def needed_requests(requests: int, seen: float, wanted: float) -> int:
    """Noise falls with the square root of the requests: n (seen / wanted)^2, to two digits."""
    exact = requests * (math.log1p(seen) / math.log1p(wanted)) ** 2
    step = 10 ** max(0, math.floor(math.log10(exact)) - 1)
    return int(math.ceil(exact / step) * step)


def _conclusion(verdict: Verdict) -> str:
    failed = verdict.failed
    if not failed:
        return "passed: no guarded metric moved significantly and by more than its tolerance"
    worst = max(failed, key=lambda finding: abs(finding.move.relative))
    return (
        f"FAILED: {len(failed)} of {len(verdict.findings)} metrics moved; the most: {worst.arm} "
        f"{worst.metric} {percent(worst.move.relative)} %"
    )
