"""The ablation: which step of pre-ranking, and which part of it, breaks its agreement with ranking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import AFTER_STEPS, ALL_STEPS, ARM_MEASURES, after_step, steps_of
from cascade_sim.analysis.report.comparisons import is_about_pre_ranking, ordered_arms
from cascade_sim.analysis.report.figures.arms import ablation
from cascade_sim.analysis.report.readings import ablation_measures, bid_label, row_label, score_label
from cascade_sim.analysis.report.section import Columns, Figure, Section, Stack, TablePart, Text, titled
from cascade_sim.analysis.report.tables import LIFT, Row, Table, arm_rows, column, value_column
from cascade_sim.analysis.report.text_helpers import listed, stage_name
from cascade_sim.analysis.statistics.estimates import NBSP, estimate, lift_of, number_text

# What a row replaces, as metrics.json says it, and as a table does.
ROLES = {
    "as it is": "as it is",
    "bid": "bid replaced",
    "model": "model replaced",
    "both": "both replaced",
    ALL_STEPS: "every step replaced",
}
IN_STEP = ("as it is", "bid", "model", "both")


def ablation_section(metrics: Mapping[str, Any]) -> Section | None:
    """Bid and model replaced one at a time; None where that was not measured, or arms differ elsewhere."""
    table = ablation_table(metrics)
    if table is None or not is_about_pre_ranking(metrics):
        return None
    title = "Pre-ranking ablation: model or bid?"
    about = (
        "Pre-ranking scores an ad by bid × model. Each row replaces bid, model or both of "
        f"{metrics['baseline']} by those of the ranking stage; with both replaced, pre-ranking "
        "agrees with ranking by construction."
    )
    alt = "Ranking consistency with bid and model of pre-ranking replaced one at a time"
    caption = "RCS with each combination of bid and model in the pre-ranking stage. Bars are 95 % intervals."
    if steps_of(metrics):
        title = "Pre-ranking ablation: which step, model or bid?"
        about = (
            "Each step of pre-ranking scores an ad by bid × model. Each row replaces bid, model or both of "
            f"one step of {metrics['baseline']} by those of the ranking stage, with the other steps as they "
            "are. Only with every step replaced pre-ranking agrees with ranking by construction."
        )
        alt = "Ranking consistency with parts of one step of pre-ranking replaced at a time"
        caption = "RCS with each combination of bid and model in each step. Bars are 95 % intervals."
    return Section(
        "ablation",
        title,
        parts=(
            Text(about),
            Text(ablation_words(metrics), "finding"),
            Columns((Stack((TablePart(table),)), Figure("ablation", ablation, alt, caption)), "figures even"),
            *titled("Ranking consistency after each step", steps_table(metrics), Text(STEPS, "small")),
        ),
        short="Ablation",
    )


def ablation_table(metrics: Mapping[str, Any]) -> Table | None:
    """The baseline's pre-ranking with parts replaced by ranking's own; None if not measured."""
    replaced = metrics.get("ablation")
    if not replaced:
        return None
    ctr, revenue = ablation_measures(metrics)
    columns = [
        column(ARM_MEASURES["rcs"], [estimate(row.get("rcs")) for row in replaced]),
        column(LIFT, [lift_of(row.get(ctr)) for row in replaced], signed=True),
        column(LIFT, [lift_of(row.get(revenue)) for row in replaced], signed=True),
    ]
    rows = [
        Row(row_label(row), [made[i] for made in columns], tag=ROLES[role_of(row, replaced[0])])
        for i, row in enumerate(replaced)
    ]
    money = "Revenue lift %" if "revenue" in revenue else "RPM lift %"
    return Table("Pre-ranking ablation", "Pre-ranking score", ["RCS %", "CTR lift %", money], rows)


STEPS = (
    "The share of the ideal win set (what ranking would choose from all that is retrieved) that is still "
    "there after each step of pre-ranking; after the last it is the RCS. And the share of the ranker's best "
    "by predicted CTR alone among as many ads as the step hands on, if it chose by predicted CTR alone "
    "(rcs_after_STEP and single_objective_rcs_after_STEP in metrics.json)."
)


def steps_table(metrics: Mapping[str, Any]) -> Table | None:
    """RCS of every arm after each step of pre-ranking; None where there is one step."""
    steps = steps_of(metrics)
    if not steps:
        return None
    arms = ordered_arms(metrics)
    named = [[*(after_step(name, step) for step in steps[:-1]), name] for name in AFTER_STEPS]
    columns = [value_column(metrics, arms, name) for names in named for name in names]
    groups = [(ARM_MEASURES[name].heading, len(steps)) for name in AFTER_STEPS]
    headings = [f"after {stage_name(step)}" for step in steps] * len(AFTER_STEPS)
    return Table("RCS after each step", "Arm", headings, arm_rows(metrics, arms, columns), groups)


def role_of(row: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """What the row replaces; a run without roles wrote the baseline as it is first."""
    if row.get("role") in ROLES:
        return str(row["role"])
    has_other_bid, has_other_model = row["bid"] != first["bid"], row["model"] != first["model"]
    if has_other_bid and has_other_model:
        return "both"
    return "bid" if has_other_bid else "model" if has_other_model else "as it is"


def ablation_corners(
    metrics: Mapping[str, Any], step: str | None = None
) -> dict[str, Mapping[str, Any]] | None:
    """Role → row, of one step where there are several. None if a row or its RCS is missing.

    Stages that share a bid (or a model) leave two rows: as it is, and with the other part replaced.
    """
    rows = [row for row in metrics.get("ablation") or [] if row.get("stage") == step]
    if any(estimate(row.get("rcs")).value is None for row in rows):
        return None
    corners = {role_of(row, rows[0]): row for row in rows}
    complete = (set(IN_STEP), {"as it is", "model"}, {"as it is", "bid"}, {"as it is"})
    is_whole = set(corners) in complete[: 3 if step is None else 4]
    return corners if len(corners) == len(rows) and is_whole else None


def ablation_words(metrics: Mapping[str, Any]) -> str:
    """Which part of the baseline's pre-ranking breaks consistency most; empty if not measured."""
    steps = steps_of(metrics)
    if steps:
        return _step_words(metrics, steps)
    corners = ablation_corners(metrics)
    if corners is None:
        return ""
    level, shown = _levels(corners)
    text = f"As it is ({score_label(corners['as it is'])}) RCS is {shown['as it is']}. Giving pre-ranking "
    if "both" not in corners:
        part, other = ("model", "bid") if "model" in corners else ("bid", "model")
        return text + f"the ranker's {part} makes it {shown[part]}; the {other} is the same in both stages."
    text += (
        f"the ranker's model ({corners['model']['model']}) makes it {shown['model']}, giving it the ranker's "
        f"bid ({bid_label(corners['bid'])}) {shown['bid']}, both {shown['both']}. "
    )
    blamed = _part_to_blame(level)
    if blamed is None:
        return text + "Model and bid explain about as much of the inconsistency."
    fix = "a better pre-ranking model" if blamed == "model" else "use the opt-bid in pre-ranking"
    if blamed == "bid" and corners["as it is"]["bid"] == "opt":
        fix = "a pre-ranking pCVR nearer to ranking's"
    return text + f"The {blamed} explains most of the inconsistency. First candidate: {fix}."


def _step_words(metrics: Mapping[str, Any], steps: list[str]) -> str:
    """Which of several steps breaks consistency most, and by which part; empty if not measured."""
    found = {step: ablation_corners(metrics, step) for step in steps}
    corners = {step: own for step, own in found.items() if own is not None}
    if len(corners) < len(steps):
        return ""
    gains, parts = {}, []
    for step, own in corners.items():
        level, shown = _levels(own)
        whole = next(role for role in ("both", "model", "bid", "as it is") if role in own)
        gains[step] = level[whole] - level["as it is"]
        parts.append(f"{stage_name(step)} {shown[whole]}")
    _, now = _levels(corners[steps[0]])
    text = (
        f"As it is RCS is {now['as it is']}. With the ranker's bid and model in one step alone it is: "
        f"{listed(parts)}. "
    )
    worst, *others = sorted(steps, key=lambda step: -gains[step])
    if gains[worst] <= 0:
        return text + "No step alone explains it: what one lets through, another drops."
    if gains[worst] - gains[others[0]] < ABOUT_EQUAL:
        both = listed([stage_name(worst), stage_name(others[0])]).capitalize()
        return text + f"{both} explain about as much of the inconsistency."
    text += f"{stage_name(worst).capitalize()} explains most of the inconsistency"
    own = corners[worst]
    part = _part_to_blame(_levels(own)[0]) if "both" in own else "model" if "model" in own else "bid"
    return f"{text}, and of it the {part}." if part else f"{text}, by bid and model about equally."


ABOUT_EQUAL = 1.0  # points of RCS


def _levels(corners: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, float], dict[str, str]]:
    """RCS in percent by role, and as text."""
    level = {role: 100 * (estimate(row["rcs"]).value or 0.0) for role, row in corners.items()}
    return level, {role: f"{number_text(percent, 1)}{NBSP}%" for role, percent in level.items()}


def _part_to_blame(level: Mapping[str, float]) -> str | None:
    """The part whose replacement gains more; None where both gain about as much."""
    gain = {part: level[part] - level["as it is"] for part in ("model", "bid")}
    if abs(gain["model"] - gain["bid"]) < ABOUT_EQUAL:
        return None
    return "model" if gain["model"] > gain["bid"] else "bid"
