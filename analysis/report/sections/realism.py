"""Realism of a world against its log: the answer, tables, words and the short page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import arm_measure
from cascade_sim.analysis.report.figures.realism import TITLE, realism_figure
from cascade_sim.analysis.report.readings import settings_text
from cascade_sim.analysis.report.section import (
    Bullets,
    Details,
    Figure,
    Heading,
    Part,
    Section,
    TablePart,
    Text,
)
from cascade_sim.analysis.report.short_page import answer_section, short_page
from cascade_sim.analysis.report.tables import Cell, Row, Table, cell
from cascade_sim.analysis.statistics.estimates import (
    NBSP,
    Estimate,
    decimals_for,
    estimate,
    interval_text,
    number_text,
    scaled,
)

CAPTION = (
    "Round: the world against the log, coloured where they differ significantly. Diamonds: the log's second "
    "period against its first. Bars are 95 % intervals."
)
SHOWN = "Brackets hold 95 % intervals."
MAX_PAIRS, MAX_FEATURES = 12, 8
UNITS = {"percent": " %", "money": "", "number": "", "seconds": " s"}
VERDICTS = {
    "equivalent": "Equivalent to the log",
    "inconclusive": "Neither equivalent to the log nor different",
    "different": "Different from the log",
}
TOLD = {"requests": "requests", "shown": "shown ads"}
GROUPS = {
    "response": "Clicks and conversions",
    "bids": "Bids and prices",
    "predictions": "Predictions",
    "stages": "Stages",
    "traffic": "Traffic and popularity",
}


def realism_headline(found: Mapping[str, Any]) -> str:
    """Verdict with its AUCs: those of the table that is distinguished most easily."""
    what = most_discriminating(found)
    test = found["two_sample"][what]
    return (
        f"{VERDICTS[found['verdict']]} at a margin of {number_text(found['margin'], 2)} AUC: the classifier "
        f"reaches {auc_text(test['auc'])} between world and log and {auc_text(test['within_log']['auc'])} "
        f"within the log ({TOLD[what]})"
    )


def most_discriminating(found: Mapping[str, Any]) -> str:
    """requests or shown: of which the classifier finds more beyond what it finds between the periods."""
    return max(TOLD, key=lambda what: found["two_sample"][what]["excess_auc"]["value"] or 0.0)


def auc_text(entry: Mapping[str, Any]) -> str:
    """.531 [.524, .538], on one line."""
    own = estimate(entry)
    return f"{number_text(own.value, 3)} {interval_text(own, 3)}".strip().replace(" ", NBSP)


def realism_words(found: Mapping[str, Any]) -> list[str]:
    """What the answer rests on, a sentence each."""
    (other,) = set(TOLD) - {most_discriminating(found)}
    test, n = found["two_sample"][other], len(found["statistics"])
    differ = sum(row["differs"] for row in found["statistics"])
    words = [
        f"Of {TOLD[other]}: an AUC of {auc_text(test['auc'])}, and {auc_text(test['within_log']['auc'])} "
        "between the periods. 0.5 is a guess.",
        f"{differ} of {n} summary statistics differ significantly and by more than the periods of the log.",
    ]
    if found["whatifs"]:
        inside = sum(row["is_inside"] for row in found["whatifs"])
        words.append(
            f"{inside} of {len(found['whatifs'])} lifts of known what-ifs lie inside the log's interval."
        )
    if found["left_out"]:
        words.append(
            f"Not compared, because log and world are of different length: {', '.join(found['left_out'])}."
        )
    return words


def test_table(found: Mapping[str, Any]) -> Table:
    """The AUCs, of requests and of shown ads."""
    rows = []
    for what, label in (("requests", "Requests"), ("shown", "Shown ads")):
        test = found["two_sample"][what]
        cells = [estimate(test["auc"]), estimate(test["within_log"]["auc"])]
        rows.append(
            Row(label, [*(cell(own, 3) for own in cells), cell(estimate(test["excess_auc"]), 3, signed=True)])
        )
    return Table("Two-sample test", "AUC between", ["log and world", "periods of the log", "excess"], rows)


def feature_table(found: Mapping[str, Any], what: str) -> Table | None:
    """The features that distinguish them; None where none contributes."""
    test = found["two_sample"][what]
    usual = {feature["name"]: feature["permutation_importance"] for feature in test["within_log"]["features"]}
    rows = [
        Row(
            feature["name"],
            [
                Cell(number_text(feature["permutation_importance"], 3)),
                Cell(number_text(usual.get(feature["name"]), 3)),
                Cell(number_text(feature["single_feature_auc"], 3)),
            ],
        )
        for feature in test["features"][:MAX_FEATURES]
        if feature["permutation_importance"] > 0.001
    ]
    if not rows:
        return None
    return Table(
        "Features", f"Feature of {'requests' if what == 'requests' else 'shown ads'}",
        ["Permutation importance (AUC)", "the same, periods", "AUC alone"], rows,
    )  # fmt: skip


def statistics_table(found: Mapping[str, Any], group: str) -> Table | None:
    """Log and world side by side, with the gap; None where no statistic of the group is known."""
    rows = []
    for row in found["statistics"]:
        if row["group"] != group:
            continue
        factor = 100.0 if row["unit"] == "percent" else 1.0
        sides = [scaled(estimate(row[side]), factor) for side in ("log", "world")]
        decimals = decimals_for((side.value for side in sides), 3)
        kind = 100.0 if row["is_relative"] else 1.0
        gap, between = (scaled(estimate(row[key]), kind) for key in ("gap", "between_periods"))
        unit = UNITS[row["unit"]]
        mark = Cell("differs") if row["differs"] else Cell("")
        of_gap = 1 if row["is_relative"] else 3
        rows.append(
            Row(
                f"{row['label']}{',' if unit else ''}{unit}",
                [
                    *(cell(side, decimals) for side in sides),
                    _gap(gap, of_gap, row["is_relative"]),
                    Cell(_gap(between, of_gap, row["is_relative"]).text),
                    mark,
                ],
            )
        )
    if not rows:
        return None
    return Table(GROUPS[group], GROUPS[group], ["log", "world", "gap", "between periods", ""], rows)


def _gap(gap: Estimate, decimals: int, is_relative: bool) -> Cell:
    own = cell(gap, decimals, signed=True)
    if not is_relative or gap.value is None:
        return Cell(own.text, own.interval)
    return Cell(f"{own.text} %", own.interval)


def pairs_table(found: Mapping[str, Any]) -> Table | None:
    """The rank correlations that differ most."""
    rows = [
        Row(
            f"{' and '.join(row['columns'])}, {row['of']}",
            [
                *(cell(estimate(row[side]), 2) for side in ("log", "world")),
                Cell(cell(estimate(row["gap"]), 2, signed=True).text),
                Cell("differs" if row["differs"] else ""),
            ],
        )
        for row in found["pairs"][:MAX_PAIRS]
    ]
    if not rows:
        return None
    return Table("Pairs", "Rank correlation of", ["log", "world", "gap", ""], rows)


def whatif_table(found: Mapping[str, Any]) -> Table | None:
    """Lifts of the same parameters in log and world."""
    rows = [
        Row(
            f"{settings_text(row['settings'])}: {arm_measure(row['metric']).label}",
            [
                *(cell(scaled(estimate(row[side]), 100.0), 1, signed=True) for side in ("log", "world")),
                Cell("inside" if row["is_inside"] else "overlaps" if row["overlaps"] else "differs"),
            ],
        )
        for row in found["whatifs"]
    ]
    return Table("What-ifs", "Lift, %", ["log", "world", ""], rows) if rows else None


def realism_page(found: Mapping[str, Any], svg: str) -> str:
    """The whole page. `svg` comes from realism_svg; all else is escaped."""
    figure = Figure("realism", realism_figure, TITLE, CAPTION)
    parts: list[Part] = [
        *(Text(line) for line in realism_words(found)),
        Heading("Known gaps"),
        Bullets(found["gaps"]),
    ]
    sections = [answer_section(realism_headline(found), parts, figure)]
    features = [TablePart(feature_table(found, what)) for what in ("requests", "shown")]
    hour = (
        "" if found["two_sample"]["with_hour"] else " The hour of the day is left out: the log is too short."
    )
    sections.append(
        Section(
            "", "Classifier two-sample test (C2ST)", (),
            (
                Text(
                    "Gradient boosting, cross-fitted: it scores requests that it was not trained on, and "
                    f"copies of one request are never on both sides.{hour}",
                    "small",
                ),
                TablePart(test_table(found)), *features,
                Text(
                    "Permutation importance (AUC): what is lost when the feature is shuffled. Alone: by "
                    "the feature itself; above 0.5 it is higher in the world.",
                    "small",
                ),
            ),
            short="Classifier",
        )
    )  # fmt: skip
    what_ifs = whatif_table(found)
    if what_ifs is not None:
        sections.append(Section("", "What-if agreement", (), (TablePart(what_ifs),),
                                short="What-ifs"))  # fmt: skip
    tables = [TablePart(statistics_table(found, group)) for group in GROUPS]
    words = (
        f"Intervals resample {found['resampled']['log']} of the log and {found['resampled']['world']} of the "
        "world. “Differs”: significantly, adjusted for the number of statistics, and by more than the "
        "periods of the log."
    )
    sections.append(
        Section("", "Summary statistics", (), (Text(words, "small"), *tables), short="Statistics")
    )
    pairs = pairs_table(found)
    if pairs is not None:
        sections.append(Section("", "Pairs of columns", (), (TablePart(pairs),), short="Pairs"))
    hours = Details((TablePart(hours_table(found)),), "24 hours")
    sections.append(Section("", "Requests by hour of the day", (), (hours,), short="Hours"))
    title = f"Realism of {found['world']['name']} against log {found['log']['name']}"
    return short_page(
        "Realism", title, facts(found), sections, "", {"realism": svg} if svg else {}, shown=SHOWN
    )


def hours_table(found: Mapping[str, Any]) -> Table:
    """Share of the requests by hour."""
    sides = [found["hours"][side] for side in ("log", "world")]
    rows = [
        Row(f"{hour}–{hour + 1}", [Cell(number_text(100 * side[hour], 1)) for side in sides])
        for hour in range(24)
    ]
    return Table("Hours", "Hour", ["log, %", "world, %"], rows)


def facts(found: Mapping[str, Any]) -> list[str]:
    """How much of what was compared."""
    return [
        f"{side} {found[side]['name']}: {number_text(found[side]['requests'], 0)} requests over "
        f"{number_text(found[side]['days'], 1)} days"
        for side in ("log", "world")
    ]
