"""The findings of a learning-to-rank study as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.statistics.moves import frontier, over_seeds

LEVEL = 0.05  # of the adjusted p below which a mark is set
_COLUMNS = ("ndcg", "loss", "ece", "pcoc")


def text(findings: Mapping[str, Any]) -> str:
    """Everything that is printed: the table of rankers, the strict wins, the frontier."""
    parts = [_table(findings), _wins(findings), _frontier(findings)]
    return "\n\n".join(part for part in parts if part) + "\n"


def number(value: float | None, digits: int = 4) -> str:
    """0.1234; four digits of what is large, – for what is not defined."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.{digits}f}" if abs(value) < 100 else f"{value:.4g}"


def mark(cell: Mapping[str, Any], better_is_more: bool) -> str:
    """+ better than the baseline beyond chance, - worse, a space otherwise."""
    p, gap = cell.get("p"), cell.get("gap")
    if p is None or gap is None or not p < LEVEL:
        return " "
    return "+" if (gap > 0) == better_is_more else "-"


def _entry(row: Mapping[str, Any], column: str) -> str:
    measure = row[column]
    entry = number(measure["value"]) + mark(measure, column == "ndcg")
    if measure.get("low") is not None:
        entry += f"±{number((measure['high'] - measure['low']) / 2, 3)}"
    return entry


def _table(findings: Mapping[str, Any]) -> str:
    loss = findings["loss"]
    titles = ["", "NDCG@10", loss, "ECE", "PCOC", "stable", "alpha", "rate"]
    lines = [
        [row["name"], *(_entry(row, column) for column in _COLUMNS), _stable(row), *_chosen(row)]
        for row in findings["rows"]
    ]
    lists, n_seeds = findings["lists"], len(findings["seeds"])
    head = (
        f"{lists['train']:,} lists to train on, {lists['valid']:,} to choose by, {lists['test']:,} to test on"
        f" ({findings['skipped']:.0%} of these without positives do not count for NDCG);"
        f" {n_seeds} seed{'s' if n_seeds > 1 else ''}"
    )
    notes = [
        "PCOC: predicted over observed. Without scale (*): predictions are not meant as such.",
        "stable: the mean score of the second half of training is level up to its noise"
        + (", in how many of the seeds." if n_seeds > 1 else "."),
    ]
    if n_seeds > 1:
        notes.append("±: half of the 95 % t interval between seeds.")
    if findings["comparisons"]:
        notes.append(
            f"+ better, - worse than {findings['baseline']}: paired t test over the test lists, "
            f"adjusted p < {LEVEL:g} (Holm, all {findings['comparisons']} comparisons of the table)."
        )
    if findings["diverged"]:
        notes.append(f"Left out: {len(findings['diverged'])} trainings that never had finite scores.")
    return "\n".join([head, "", *grid([titles, *lines]), "", *notes])


def _stable(row: Mapping[str, Any]) -> str:
    if row["n_judged"] == 0:
        return "–"
    if row["n_judged"] == 1:
        return "yes" if row["n_stable"] else "no"
    return f"{row['n_stable']} of {row['n_judged']}"


def _chosen(row: Mapping[str, Any]) -> tuple[str, str]:
    """Alphas and learning rates of the chosen cells, most frequent first."""

    def listed(key: str) -> str:
        values = [cell[key] for cell in row["chosen"] if cell[key] is not None]
        order = sorted(set(values), key=lambda value: (-values.count(value), value))
        return ",".join(f"{value:g}" for value in order)

    return listed("alpha"), listed("learning_rate")


def _wins(findings: Mapping[str, Any]) -> str:
    """Per objective: games won and lost, and a square of the shares won against each rival."""
    wins = findings["wins"]
    if len(wins) < 2:
        return ""
    names = list(wins)
    lines = [["", "games", "won", "lost", *(str(i + 1) for i in range(len(names)))]]
    for i, name in enumerate(names):
        total = {key: sum(tally[key] for tally in wins[name].values()) for key in ("games", "won", "lost")}
        against = ["·" if rival == name else _share(wins[name][rival], "won") for rival in names]
        lines.append(
            [f"{i + 1:>2} {name}", str(total["games"]), _share(total, "won"), _share(total, "lost"), *against]
        )
    head = [
        f"Strict wins on the test lists: no worse in NDCG@10 nor in {findings['loss']}, and not equal.",
        "A game is a pair of cells of one learning rate and seed. Columns 1…: share won against that rival.",
    ]
    return "\n".join([*head, "", *grid(lines)])


def _share(tally: Mapping[str, int], key: str) -> str:
    return f"{100 * tally[key] / tally['games']:.0f}%" if tally["games"] else "–"


def _frontier(findings: Mapping[str, Any]) -> str:
    """The cells that no other cell beats, seeds averaged."""
    cells = over_seeds(findings["cells"])
    if len(cells) < 2:
        return ""
    lines = [["", "alpha", "rate", "NDCG@10", findings["loss"]]]
    for i in frontier(cells):
        cell = cells[i]
        alpha = "" if cell["alpha"] is None else f"{cell['alpha']:g}"
        rate, ndcg, loss = f"{cell['learning_rate']:g}", number(cell["ndcg"]), number(cell["loss"])
        lines.append([cell["objective"], alpha, rate, ndcg, loss])
    return "\n".join([f"Pareto frontier of the {len(cells)} cells (mean over seeds):", "", *grid(lines)])


def grid(lines: Sequence[Sequence[str]]) -> list[str]:
    """Cells in aligned columns: the first to the left, the others to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
