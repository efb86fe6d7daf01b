"""Training convergence: in words, a table, and a panel for each model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure
from cascade_sim.analysis.metrics.convergence import UNCONVERGED, is_unconverged
from cascade_sim.analysis.report.figures.training import training_curves
from cascade_sim.analysis.report.readings import training_lines
from cascade_sim.analysis.report.section import Figure, Section, TablePart, Text
from cascade_sim.analysis.report.tables import Cell, Row, Table, column
from cascade_sim.analysis.report.text_helpers import listed, percent
from cascade_sim.analysis.statistics.estimates import Estimate, estimate, finite, number_text

MANY = 6  # names that a sentence can hold
COLUMNS = {
    "epochs": Measure("epochs", "number", "", 0),
    "steps": Measure("steps", "number", "", 0),
    "loss": Measure("loss", "ratio", "", 4),
    "half": Measure("GAUC, half way", "ratio", "", 4),
    "end": Measure("GAUC, end", "ratio", "", 4),
    "residual_improvement": Measure("residual improvement %", "percent", "", 1),
}
ABOUT = (
    "A model is looked at before its first step and at twenty even distances, always on the same samples: "
    "on requests that were held out of its training (its key validation) or, where none were, on some that "
    "it learned from. The loss is that which it is trained by; GAUC is on the clicks of these pages. Steps "
    "grow shorter along a line to the end, so every curve ends flat. What tells whether a net was trained is "
    "its residual improvement: the gain of the second quarter of the steps less that of the last, as a share "
    "of all that it gained, with a 95 % interval over groups of samples. A net has not converged where this "
    "is significant and more than {share}. “(first)” is the first deployment, which wrote the log."
)


def training_section(metrics: Mapping[str, Any]) -> Section | None:
    """The report's section on how models were trained; None for a study that tells nothing of it."""
    lines = training_lines(metrics)
    if not lines:
        return None
    warnings = training_warnings(metrics)
    return Section(
        "training",
        "Training convergence",
        () if warnings else (f"All {len(lines)} trainings converged.",),
        (
            *(Text(line, "caution") for line in warnings),
            TablePart(training_table(metrics), margins=True),
            Figure(
                "training_curves",
                training_curves,
                "What loss and GAUC had still to gain, by model and share of the steps",
                "What was left of each model's gain, in its loss and its GAUC, while it trained. Models that "
                "are not converged are in another colour.",
            ),
            Text(slots_words(metrics), "small"),
            Text(ABOUT.format(share=percent(UNCONVERGED, 0)), "small"),
        ),
        short="Training",
    )


def training_warnings(metrics: Mapping[str, Any]) -> list[str]:
    """A sentence if some models have not converged; nothing otherwise."""
    lines = training_lines(metrics)
    cut = {model: line for model, line in lines.items() if is_unconverged(line)}
    if not cut:
        return []
    told = [
        f"{model} ({number_text(line['steps'][-1], 0)} steps)" for model, line in list(cut.items())[:MANY]
    ]
    rest = [f"{len(cut) - MANY} others"] if len(cut) > MANY else []
    return [
        f"Training not converged: {listed([*told, *rest])} of {len(lines)} still improving. What is said of "
        "models here may change with more epochs or smaller batches."
    ]


def training_table(metrics: Mapping[str, Any]) -> Table:
    """A row per model: how long it was trained, where it ended, and whether it converged."""
    lines = training_lines(metrics)

    def at(line: Mapping[str, Any], name: str, share: float) -> Estimate:
        values = line.get(name) or [None]
        return Estimate(finite(values[round(share * (len(values) - 1))]))

    columns = [
        column(COLUMNS["epochs"], [Estimate(finite(line.get("epochs"))) for line in lines.values()]),
        column(COLUMNS["steps"], [Estimate(finite(line["steps"][-1])) for line in lines.values()]),
        column(COLUMNS["loss"], [at(line, "part_loss", 1.0) for line in lines.values()]),
        column(COLUMNS["half"], [at(line, "gauc", 0.5) for line in lines.values()]),
        column(COLUMNS["end"], [at(line, "gauc", 1.0) for line in lines.values()]),
        column(
            COLUMNS["residual_improvement"],
            [estimate(line.get("residual_improvement")) for line in lines.values()],
        ),
        [
            Cell("not converged", tone="down") if is_unconverged(line) else Cell("converged")
            for line in lines.values()
        ],
    ]
    rows = [
        Row(
            model,
            [cells[i] for cells in columns],
            hint=f"watched on requests {'held out' if line.get('validation') else 'that it learned from'}",
            arm=model,
        )
        for i, (model, line) in enumerate(lines.items())
    ]
    return Table(
        "How models were trained", "Model", [*(c.label for c in COLUMNS.values()), "at the end"], rows
    )


def slots_words(metrics: Mapping[str, Any]) -> str:
    """What models that estimate the slots' chances to be seen took them for; empty without any."""
    told = [
        f"{model} {_numbers(line['slot_effects'])}"
        for model, line in training_lines(metrics).items()
        if line.get("slot_effects")
    ]
    if not told:
        return ""
    truth = next(
        line["true_slot_effects"]
        for line in training_lines(metrics).values()
        if line.get("true_slot_effects")
    )
    return (
        "How often slots are looked at, as estimated with the net relative to the first: "
        f"{'; '.join(told)}. The truth: {_numbers(truth)}."
    )


def _numbers(values: Any) -> str:
    return ", ".join(number_text(value, 2) for value in values)
