"""What a study that replays a log rests on: its evidence, the click model, and the logged models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import MODEL_MEASURES, REPLAY_MEASURES
from cascade_sim.analysis.report.section import Bullets, Heading, Part, Section, TablePart, Text
from cascade_sim.analysis.report.sections.whatif import calibration_table
from cascade_sim.analysis.report.tables import Row, Table, column
from cascade_sim.analysis.statistics.estimates import estimate

SHOWN = ("auc", "logloss", "ece", "pcoc")  # of models
ABOUT_MODELS = (
    "Each logged prediction against the logged clicks, on the ads that were shown, times the effect of the "
    "slot. A model that did not choose what was shown is judged on another's choice."
)


def replayed_section(metrics: Mapping[str, Any]) -> Section | None:
    """The log behind a study; None where its world was drawn."""
    replay = metrics.get("replay")
    if not replay:
        return None
    parts: list[Part] = [Bullets(list(replay["says"])), *(Text(note) for note in replay["notes"])]
    for heading, table in (
        ("Observed vs imputed clicks", observed_table(metrics)),
        ("The logged models on the logged clicks", models_table(metrics)),
        ("The click model on the log's own clicks", calibration_table(metrics)),
    ):
        if table is not None:
            parts += [Heading(heading), TablePart(table)]
    parts.append(Text(ABOUT_MODELS, "small"))
    return Section("log", f"The log: {replay['log']}", parts=tuple(parts), short="Log")


def observed_table(metrics: Mapping[str, Any]) -> Table | None:
    """Of every arm: how much was observed, how much of the log it repeats, and its prices."""
    arms = metrics["arms"]
    names = [name for name in REPLAY_MEASURES if any(name in own for own in arms.values())]
    if not names:
        return None
    columns = [
        column(REPLAY_MEASURES[name], [estimate(own.get(name)) for own in arms.values()]) for name in names
    ]
    rows = [Row(arm, [made[i] for made in columns]) for i, arm in enumerate(arms)]
    return Table("Observed vs imputed clicks", "arm", [REPLAY_MEASURES[name].heading for name in names], rows)


def models_table(metrics: Mapping[str, Any]) -> Table | None:
    """Logged predictions compared with logged clicks."""
    models = metrics["replay"].get("models") or {}
    if not models:
        return None
    columns = [
        column(MODEL_MEASURES[name], [estimate(own.get(name)) for own in models.values()]) for name in SHOWN
    ]
    rows = [Row(model, [made[i] for made in columns]) for i, model in enumerate(models)]
    return Table("Logged models", "model", [MODEL_MEASURES[name].heading for name in SHOWN], rows)
