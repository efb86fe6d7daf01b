"""What-ifs in words and tables: what another parameter would have brought on the same requests."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure
from cascade_sim.analysis.report.figures.whatif import what_if_curves, what_if_lifts
from cascade_sim.analysis.report.readings import (
    WHAT_IF_MEASURES,
    WHAT_IF_REVENUE,
    point_label,
    settings_text,
    value_text,
    what_if_measures,
)
from cascade_sim.analysis.report.section import Columns, Figure, Heading, Part, Section, TablePart, Text
from cascade_sim.analysis.report.tables import LIFT, Cell, Row, Table, cell, column, csv_text, toned
from cascade_sim.analysis.report.text_helpers import listed
from cascade_sim.analysis.statistics.estimates import (
    NBSP,
    Estimate,
    decimals_for,
    estimate,
    finite,
    interval_text,
    lift_of,
    number_text,
    percent_text,
    scaled,
)

MAIN = 15  # of them, in the terminal
AGAINST_TRUE_PRICES = {"cpc_error", "cpc_error_irreducible", "cpc_bias"}  # charges against those of true CTRs
MAX_TIMES = 1e9  # an interval that ends beyond says nothing
CSV_COLUMNS = (
    *(
        "setting",
        "metric",
        "current",
        "current_low",
        "current_high",
        "variant",
        "variant_low",
        "variant_high",
    ),
    *("difference", "difference_low", "difference_high", "lift", "lift_low", "lift_high"),
)


def budget_words(answer: Mapping[str, Any]) -> str:
    """What budgets do in the answers of a study, or of one question."""
    replay = answer.get("replay")
    if not replay:
        return "budgets are unlimited"
    return "budgets are implicit in the log" if replay.get("budgets") is None else "budgets run out"


def what_if_section(metrics: Mapping[str, Any]) -> Section | None:
    """The questions of a study: their figures, then words and tables of each; None without any."""
    answers = metrics.get("what_if") or {}
    if not answers:
        return None
    about = Text(
        f"The same requests served once more by {metrics['baseline']} with parameters changed. World, "
        "models, "
        "traffic, random draws and the advertisers' bids are held fixed: bidders do not react, and "
        f"{budget_words(metrics)}. Differences are paired by request."
    )
    parts: list[Part] = []
    for name, answer in answers.items():
        table = points_table(answer) if answer.get("parameter") else measures_table(answer, MAIN)
        words = (what_if_words(answer), pairing_words(answer))
        parts += [Heading(name), *(Text(line, "finding") for line in words), TablePart(table)]
    about_pairing = (
        "“Variance reduction, ×”: variance of the difference in revenue per request with independent "
        "requests over its variance with common random numbers, in the same world with the same models."
    )
    figures = (
        Figure(
            "what_if_curves",
            what_if_curves,
            "Revenue per request and fill rate against a parameter",
            "Revenue per request against the parameter, relative to the current value (dashed), and the "
            "fill rate, the share of slots that show an ad. The band and the bars are paired 95 % intervals.",
        ),
        Figure(
            "what_if_lifts",
            what_if_lifts,
            "Lift of revenue per request of single changes",
            "Lift of revenue per request of single changes, with paired 95 % intervals.",
        ),
    )
    return Section(
        "what-if", "What if?", parts=(about, Columns(figures), *parts, Text(about_pairing, "small"))
    )


def what_if_lines(metrics: Mapping[str, Any], width: int) -> list[str]:
    """What a run says of its questions at its end."""
    return [
        textwrap.fill(f"What if, {name}: {what_if_words(answer)} {pairing_words(answer)}", max(width, 40))
        + "\n"
        for name, answer in (metrics.get("what_if") or {}).items()
    ]


def measures_table(answer: Mapping[str, Any], most: int | None = None) -> Table:
    """One other way to serve: current, then, the difference and the lift of every measure."""
    point, current = answer["points"][0], answer["current"]["metrics"]
    main = [name for name in WHAT_IF_MEASURES if name in current][:most]
    rows = []
    for name, measure in what_if_measures(current).items():
        if name in WHAT_IF_MEASURES and name not in main:
            continue
        variant = point["metrics"].get(name)
        values = column(measure, [estimate(current[name]), estimate(variant)])
        lift = Cell("")
        if not measure.is_signed_or_near_zero:
            lift = toned(column(LIFT, [lift_of(variant)], signed=True)[0], measure)
        rows.append(
            Row(measure.heading, [*values, difference_cell(measure, variant), lift], hint=measure.meaning)
        )
    title = f"What if {settings_text(point['settings'])}"
    return Table(title, "measure", ["current", "variant", "difference", "lift %"], rows)


def calibration_table(answer: Mapping[str, Any]) -> Table | None:
    """Observed against predicted clicks of an imported log's click model; None where there is none."""
    model = (answer.get("replay") or {}).get("imputation_model")
    if not model:
        return None
    rows = [
        Row(
            f"{row['by']} {row['group']}",
            [
                Cell(number_text(row["impressions"], 0)),
                Cell(number_text(row["clicks"], 0)),
                Cell(number_text(row["predicted"], 1)),
                Cell(number_text(finite(row["ratio"]), 3)),
                Cell(number_text(row["z"], 1)),
            ],
        )
        for row in model["calibration"]["rows"]
    ]
    heads = ["impressions", "clicks", "predicted", "predicted / clicks", "z"]
    return Table("Calibration of the click model, cross-fitted", "group", heads, rows)


def difference_cell(measure: Measure, entry: Any) -> Cell:
    """With decimals of its own: it may be far smaller than what it is the difference of."""
    gap = estimate((entry or {}).get("difference"))
    if measure.unit == "percent":
        gap = scaled(gap, 100.0)
    size = gap.half_width or gap.value  # more digits than the interval knows would be noise
    decimals = decimals_for([size], 2) if size else measure.decimals or 2
    made = cell(gap, min(max(decimals, 1), 6), signed=True)
    return toned(made, measure)


def points_table(answer: Mapping[str, Any], *, narrow: bool = False) -> Table:
    """Several ways to serve, one a row, compared with the arm as it is; `narrow`: headings need no groups."""
    current, points = answer["current"], answer["points"]
    entries = [current["metrics"], *(point["metrics"] for point in points)]

    def lifts(name: str) -> list[Cell]:
        made = column(LIFT, [lift_of(metrics.get(name)) for metrics in entries[1:]], signed=True)
        return [Cell("0"), *made]

    def levels(name: str) -> list[Cell]:
        return column(WHAT_IF_MEASURES[name], [estimate(metrics.get(name)) for metrics in entries])

    # A log has no welfare, and says how much of its clicks it saw instead.
    is_log = "observed_clicks_share" in current["metrics"]
    shown = {"observed_clicks_share": "observed %"} if is_log else {}
    shown |= {"fill_rate": "filled %", "expected_ctr": "CTR %", "cpc": "CPC", "rcs": "RCS %"}
    shown |= {} if is_log else {"welfare_vs_oracle": "welfare %"}
    if "replay" in answer:
        shown = {name: head for name, head in shown.items() if name in current["metrics"]}
    columns = [
        lifts(WHAT_IF_REVENUE), lifts("revenue_per_request"), *(levels(name) for name in shown),
        _worths(points, "expected"), _worths(points, "realised"),
    ]  # fmt: skip
    heads = ["expected", "realised", *shown.values(), "expected", "realised"]
    if narrow:
        heads[:2] = ["revenue lift %", "realised lift %"]
        heads[-2:] = ["variance reduction ×", "realised ×"]
    groups = [
        ("Revenue per request, lift %", 2),
        ("Page, price and order", len(shown)),
        ("Variance reduction, ×", 2),
    ]
    parameter = answer.get("parameter")
    own = current["settings"].get(parameter) if parameter else None
    rows = [
        Row(
            value_text(own) if parameter else "current",
            [made[0] for made in columns],
            "baseline",
            tag="current",
        )
    ]
    rows += [
        Row(point_label(answer, point), [made[i + 1] for made in columns]) for i, point in enumerate(points)
    ]
    return Table(f"What if {parameter or 'it were otherwise'}", parameter or "setting", heads, rows, groups)


def _worths(points: Sequence[Mapping[str, Any]], kind: str) -> list[Cell]:
    """How many times pairing shrinks the variance; nothing to say of the arm as it is."""
    return [Cell(""), *(worth_cell(worth_of(point, kind)) for point in points)]


def worth_of(point: Mapping[str, Any], kind: str) -> Estimate:
    """How many times pairing shrinks the variance of a difference in revenue; kind: realised or expected."""
    logs = estimate(((point.get("variance_reduction") or {}).get(kind) or {}).get("log_times"))
    # Two worlds may leave an interval of hundreds of powers of ten.
    return Estimate(
        *(None if x is None else math.exp(min(x, 700.0)) for x in (logs.value, logs.low, logs.high))
    )


def worth_cell(worth: Estimate) -> Cell:
    """`310` with its interval; a dash where there is no difference to be sure of."""
    decimals = 0 if worth.value is None or worth.value >= 10 else 1
    is_vague = worth.high is not None and worth.high > MAX_TIMES
    return Cell(number_text(worth.value, decimals), "" if is_vague else interval_text(worth, decimals))


def best_point(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The point with the highest expected revenue per request."""
    best: Mapping[str, Any] = max(
        answer["points"],
        key=lambda point: _or_least(finite((point["metrics"].get(WHAT_IF_REVENUE) or {}).get("value"))),
    )
    return best


def _or_least(value: float | None) -> float:
    return float("-inf") if value is None else value


def what_if_words(answer: Mapping[str, Any]) -> str:
    """Which of the settings has the highest expected revenue per request, and its lift."""
    parameter, arm = answer.get("parameter"), answer["arm"]
    best = best_point(answer)
    lift = lift_of(best["metrics"].get(WHAT_IF_REVENUE))
    sure = "" if lift.is_above_zero or lift.is_below_zero else ", not significant"
    change = f"{percent_text(lift)} expected revenue per request{sure}"
    if not parameter:
        return f"With {settings_text(best['settings'])}, the lift of {arm} is {change}."
    current = value_text(answer["current"]["settings"].get(parameter))
    own, value = finite(answer["current"]["settings"].get(parameter)), finite(best["settings"][parameter])
    values = [finite(point["settings"][parameter]) for point in answer["points"]]
    of = f"Of {len(values)} values of {parameter}, "
    if own is not None and own == value:
        return (
            f"{of}the current one of {arm} ({value_text(own)}) has the highest expected revenue per request."
        )
    best_text = value_text(best["settings"][parameter])
    if lift.value is not None and lift.value <= 0.0:
        return (
            f"{of}none has a higher expected revenue per request than the current {current}; the best of "
            f"them, {best_text}, has {percent_text(lift)}{sure}."
        )
    text = (
        f"{of}{best_text} has the highest expected revenue per request: {percent_text(lift)} against the "
        f"current {current}{sure}."
    )
    # The current value has been looked at, too: what lies between it and the others is no end.
    known = [v for v in [*values, own] if v is not None]
    if None not in values and value in (min(known), max(known)):
        text += " It is the last value on its side: the best may lie beyond."
    return text


def pairing_words(answer: Mapping[str, Any]) -> str:
    """What the same requests and common random numbers were worth."""
    worths = {
        kind: [worth_of(point, kind) for point in answer["points"]] for kind in ("realised", "expected")
    }
    known = {kind: [worth for worth in own if worth.value is not None] for kind, own in worths.items()}
    if not known["realised"] and not known["expected"]:
        same = "Nothing that was shown or charged differs, so there is no difference to be sure of."
        return " ".join(filter(None, (same, _moves_off_the_page(answer))))
    if len(answer["points"]) == 1:
        parts = [f"{_times(known[kind][0])} for {kind} revenue" for kind in known if known[kind]]
    else:
        parts = [f"{_range(known[kind])} for {kind} revenue" for kind in known if known[kind]]
    if answer.get("replay"):
        return (
            "Replaying the same requests reduces the variance of the difference in revenue per request by a "
            f"factor of {' and '.join(parts)}, compared with other requests of the same market."
        )
    return (
        "Common random numbers reduce the variance of the difference in revenue per request by a factor of "
        f"{' and '.join(parts)}, compared with independent requests in the same world."
    )


def _moves_off_the_page(answer: Mapping[str, Any]) -> str:
    """Why measures move although every page and charge is the same: what they are compared with is not."""
    moved = {
        name
        for point in answer["points"]
        for name in WHAT_IF_MEASURES
        if estimate((point["metrics"].get(name) or {}).get("difference")).value
    }
    priced = [
        WHAT_IF_MEASURES[name].label for name in WHAT_IF_MEASURES if name in moved & AGAINST_TRUE_PRICES
    ]
    others = [
        WHAT_IF_MEASURES[name].label for name in WHAT_IF_MEASURES if name in moved - AGAINST_TRUE_PRICES
    ]
    lines = []
    if priced:
        lines.append(
            f"{listed(priced)} {'moves' if len(priced) == 1 else 'move'} all the same: charges are held "
            "against what the true CTRs would have charged under the new setting, and that has changed."
        )
    if others:
        lines.append(
            f"{listed(others)} {'moves' if len(others) == 1 else 'move'} all the same: what is measured lies "
            "inside the cascade, before the page."
        )
    return " ".join(lines)


def _times(worth: Estimate) -> str:
    made = worth_cell(worth)
    return f"{made.text} {made.interval}".strip().replace(" ", NBSP)


def _range(worths: Sequence[Estimate]) -> str:
    values = [worth.value for worth in worths if worth.value is not None]
    low, high = (number_text(x, 0 if x >= 10 else 1) for x in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def what_if_csv(answer: Mapping[str, Any]) -> str:
    """Every measure of every point, one a line, unrounded; undefined numbers are empty."""
    return csv_text(CSV_COLUMNS, what_if_rows(answer))


def what_if_rows(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The lines of the CSV as plain data."""
    rows = []
    for point in answer["points"]:
        for name, current in answer["current"]["metrics"].items():
            variant = point["metrics"].get(name) or {}
            parts = {
                "current": estimate(current), "variant": estimate(variant),
                "difference": estimate(variant.get("difference")), "lift": lift_of(variant),
            }  # fmt: skip
            row: dict[str, Any] = {"setting": settings_text(point["settings"]), "metric": name}
            for part, own in parts.items():
                row |= {part: own.value, f"{part}_low": own.low, f"{part}_high": own.high}
            rows.append(row)
    return rows
