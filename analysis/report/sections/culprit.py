"""Which seat of the baseline's pre-ranking stage, bid or model, breaks its agreement with ranking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES
from cascade_sim.analysis.report.figures.arms import culprit
from cascade_sim.analysis.report.readings import bid_label, culprit_measures, score_label
from cascade_sim.analysis.report.section import Columns, Figure, Section, Stack, TablePart, Text
from cascade_sim.analysis.report.tables import LIFT, Row, Table, column
from cascade_sim.analysis.statistics.estimates import NBSP, estimate, lift_of, number_text

# What a row replaces, as metrics.json says it, and as a table does.
ROLES = {
    "as it is": "as it is",
    "bid": "bid replaced",
    "model": "model replaced",
    "both": "both replaced",
}


def culprit_section(metrics: Mapping[str, Any]) -> Section | None:
    """Seats replaced one at a time; None where that was not measured."""
    table = culprit_table(metrics)
    if table is None:
        return None
    return Section(
        "culprit",
        "Which part of pre-ranking is to blame?",
        parts=(
            Text(
                "Pre-ranking scores an ad by bid × model. Each row replaces seats of "
                f"{metrics['baseline']} by those of the ranking stage; with both replaced, pre-ranking "
                "agrees with ranking by construction."
            ),
            Text(culprit_words(metrics), "finding"),
            Columns(
                (
                    Stack((TablePart(table),)),
                    Figure(
                        "culprit",
                        culprit,
                        "Ranking consistency with one pre-ranking seat replaced at a time",
                        "RCS with each combination of bid and model in the pre-ranking seat. Bars are 95 % "
                        "intervals.",
                    ),
                ),
                "figures even",
            ),
        ),
        short="Culprit",
    )


def culprit_table(metrics: Mapping[str, Any]) -> Table | None:
    """The baseline's pre-ranking stage with seats replaced by ranking's own; None if not measured."""
    replaced = metrics.get("culprit")
    if not replaced:
        return None
    ctr, revenue = culprit_measures(metrics)
    columns = [
        column(ARM_MEASURES["rcs"], [estimate(row.get("rcs")) for row in replaced]),
        column(LIFT, [lift_of(row.get(ctr)) for row in replaced], signed=True),
        column(LIFT, [lift_of(row.get(revenue)) for row in replaced], signed=True),
    ]
    rows = [
        Row(score_label(row), [made[i] for made in columns], tag=ROLES[role_of(row, replaced[0])])
        for i, row in enumerate(replaced)
    ]
    money = "Revenue lift %" if "revenue" in revenue else "RPM lift %"
    return Table("Finding the culprit", "Pre-ranking score", ["RCS %", "CTR lift %", money], rows)


def role_of(row: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """What the row replaces; a run without roles wrote the baseline as it is first."""
    if row.get("role") in ROLES:
        return str(row["role"])
    has_other_bid, has_other_model = row["bid"] != first["bid"], row["model"] != first["model"]
    if has_other_bid and has_other_model:
        return "both"
    return "bid" if has_other_bid else "model" if has_other_model else "as it is"


def culprit_corners(metrics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]] | None:
    """Role → row. None if a row or its RCS is missing.

    Stages that share a bid (or a model) leave two rows: as it is, and with the other seat replaced.
    """
    rows = metrics.get("culprit") or []
    if any(estimate(row.get("rcs")).value is None for row in rows):
        return None
    corners = {role_of(row, rows[0]): row for row in rows}
    complete = (set(ROLES), {"as it is", "model"}, {"as it is", "bid"})
    return corners if len(corners) == len(rows) and set(corners) in complete else None


def culprit_words(metrics: Mapping[str, Any]) -> str:
    """Which seat of the baseline's pre-ranking stage breaks consistency more; empty if not measured."""
    corners = culprit_corners(metrics)
    if corners is None:
        return ""
    level = {role: 100 * (estimate(row["rcs"]).value or 0.0) for role, row in corners.items()}
    shown = {role: f"{number_text(percent, 1)}{NBSP}%" for role, percent in level.items()}
    text = f"As it is ({score_label(corners['as it is'])}) RCS is {shown['as it is']}. Giving pre-ranking "
    if "both" not in corners:
        seat, other = ("model", "bid") if "model" in corners else ("bid", "model")
        return text + f"the ranker's {seat} makes it {shown[seat]}; the {other} is the same in both stages."
    text += (
        f"the ranker's model ({corners['model']['model']}) makes it {shown['model']}, giving it the ranker's "
        f"bid ({bid_label(corners['bid'])}) {shown['bid']}, both {shown['both']}. "
    )
    gain = {seat: level[seat] - level["as it is"] for seat in ("model", "bid")}
    if abs(gain["model"] - gain["bid"]) < 1.0:
        return text + "Model and bid are about equally to blame."
    seat = "model" if gain["model"] > gain["bid"] else "bid"
    fix = "A better pre-ranking model" if seat == "model" else "Bringing the optimised bid to pre-ranking"
    if seat == "bid" and corners["as it is"]["bid"] == "opt":
        fix = "A pre-ranking pCVR nearer to ranking's"
    return text + f"The {seat} is the main culprit. {fix} is the first thing to try."
