"""The findings of a learning-to-rank study as text, tables, CSV and figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cascade_sim.analysis.report.figures.ltr import drift_figure, pareto_figure
from cascade_sim.analysis.report.section import Figure
from cascade_sim.analysis.report.tables import Cell, Row, Table, csv_text
from cascade_sim.analysis.report.text_helpers import listed
from cascade_sim.analysis.statistics.moves import frontier, over_seeds

LEVEL = 0.05  # of the adjusted p below which a mark is set
CSV_COLUMNS = (
    *("objective", "calibrator", "metric", "value", "low", "high", "gap", "p"),
    *("has_scale", "n_stable", "n_judged", "n_learning"),
)
_RULE_COLUMNS = ("ndcg", "loss")
BETTER_IS_MORE = ("ndcg", "ndcg_1")


def columns_of(findings: Mapping[str, Any]) -> dict[str, str]:
    """Metrics of the table of rankers, with their titles. AUC-PR is of clicks."""
    auc_pr = {"auc_pr": "AUC-PR"} if findings["task"] == "binary" else {}
    order = {"ndcg": "NDCG@10", "ndcg_1": "NDCG@1"}
    return {**order, "loss": str(findings["loss"]), "ece": "ECE", "pcoc": "PCOC", **auc_pr}


def settings_of(findings: Mapping[str, Any]) -> dict[str, str]:
    """What was tuned, with the titles of its columns."""
    tuned = {name: name for name in findings["tuned"]}
    return {"alpha": "alpha", "learning_rate": "rate", **tuned}


def text(findings: Mapping[str, Any]) -> str:
    """Everything that is printed: the table of rankers, what to beware of, the strict wins, the frontier."""
    parts = [_table(findings), _gaps(findings), "\n".join(hints(findings))]
    parts += [_rules(findings), _approaches(findings)] if findings.get("by_rule") else []
    parts += [_wins(findings), _frontier(findings)]
    return "\n\n".join(part for part in parts if part) + "\n"


def number(value: float | None, digits: int = 4) -> str:
    """0.1234; four digits of what is large, – for what is not defined."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.{digits}f}" if abs(value) < 100 else f"{value:.4g}"


def mark(cell: Mapping[str, Any], better_is_more: bool) -> str:
    """+ better than the baseline significantly, - worse, a space otherwise."""
    p, gap = cell.get("p"), cell.get("gap")
    if p is None or gap is None or not p < LEVEL:
        return " "
    return "+" if (gap > 0) == better_is_more else "-"


def _entry(row: Mapping[str, Any], column: str) -> str:
    measure = row[column]
    entry = number(measure["value"]) + mark(measure, column in BETTER_IS_MORE)
    if measure.get("low") is not None:
        entry += f"±{number((measure['high'] - measure['low']) / 2, 3)}"
    return entry


def _table(findings: Mapping[str, Any]) -> str:
    columns, settings = columns_of(findings), settings_of(findings)
    titles = ["", *columns.values(), "stable", *settings.values()]
    lines = [
        [row["name"], *(_entry(row, column) for column in columns), _stable(row), *_chosen(row, settings)]
        for row in findings["rows"]
    ]
    return "\n".join([facts_text(findings), "", *grid([titles, *lines]), "", *notes(findings, MARKS)])


def facts(findings: Mapping[str, Any]) -> list[str]:
    """How much there was to learn from, how long it was learned, how often."""
    lists, n_seeds = findings["lists"], len(findings["seeds"])
    fewest, most = min(findings["trainings"].values()), max(findings["trainings"].values())
    each = f"{fewest} to {most} trainings of an objective" if fewest < most else _trainings(most)
    folds = f"the first of {findings['folds']} folds has " if findings.get("folds") else ""
    tested = f"{lists['test']:,} to test on ({findings['skipped']:.0%} of {'all' if folds else 'these'}"
    return [
        f"{folds}{lists['train']:,} lists to train on, {lists['valid']:,} to choose by, {tested}"
        " without positives do not count for NDCG)",
        f"layers {'-'.join(map(str, findings['layers']))}, {findings['epochs']} epochs of "
        f"{findings['batch']} lists a step, {findings['steps']:,} steps",
        f"{n_seeds} seed{'s' if n_seeds > 1 else ''}, {each}{' and seed' if n_seeds > 1 else ''}",
    ]


def _trainings(n: int) -> str:
    return f"{n} training{'s' if n > 1 else ''} of each objective"


def facts_text(findings: Mapping[str, Any]) -> str:
    """The facts in a line."""
    return "; ".join(facts(findings))


# Of a terminal and of a page, which defines its terms itself.
MARKS = (
    "PCOC: predicted over observed. AUC-PR: of the predictions of all items together. ",
    "±: half of the 95 % t interval between seeds.",
    "+ better, - worse than {base}",
)
COLOURS = ("", "Brackets: 95 % t intervals between seeds.", "Coloured: better or worse than {base}")


def notes(findings: Mapping[str, Any], words: tuple[str, str, str] = COLOURS) -> list[str]:
    """How the table of rankers is read; `words` for what a page and a terminal show in their own ways."""
    n_seeds, of = len(findings["seeds"]), "trainings" if findings.get("folds") else "seeds"
    about = words[0] if findings["task"] == "binary" else words[0].partition("AUC-PR")[0]
    lines = [
        f"{about}Without scale (*): predictions are not meant as such.",
        "stable: the mean score of the second half of training is level up to its noise"
        + (f", in how many of the {of}." if n_seeds > 1 or findings.get("folds") else "."),
    ]
    if findings["task"] == "binary":
        lines.append("NDCG is of the grades as they are in the files; all else is of labels 0 and 1.")
    if n_seeds > 1:
        lines.append(words[1])
    if findings["comparisons"]:
        lines.append(
            f"{words[2].format(base=findings['baseline'])}: paired t test over the test lists, "
            f"adjusted p < {LEVEL:g} (Holm, all {findings['comparisons']} comparisons of the table)."
        )
    if findings["diverged"]:
        n_test = sum(cell.get("where") == "test" for cell in findings["diverged"])
        if len(findings["diverged"]) > n_test:
            n = len(findings["diverged"]) - n_test
            lines.append(f"Left out: {n} trainings that never had finite scores.")
        if n_test:
            lines.append(f"Without finite scores of the test lists: {n_test} trainings. Chosen ones show –.")
    if findings["split_by_seed"]:
        lines.append("Each seed drew the lists it chose by from the training file.")
    return lines


def _gaps_lines(findings: Mapping[str, Any]) -> list[list[str]]:
    """Per ranker: how far its means over lists are from the baseline's, with both intervals."""
    rows = [row for row in findings["rows"] if "gaps" in row]
    if not rows:
        return []
    titles = columns_of(findings)
    measures = list(rows[0]["gaps"])
    lines = [["", *(title for name in measures for title in (titles[name], "lists", "folds"))]]
    for row in rows:
        entries = (row["gaps"][name][part] for name in measures for part in ("gap", "lists", "folds"))
        words = [number(entry) for entry in entries]
        signed = [
            word if i % 3 or word.startswith(("-", "–")) else f"+{word}" for i, word in enumerate(words)
        ]
        half = [f"±{word}" if i % 3 else word for i, word in enumerate(signed)]
        lines.append([row["name"], *half])
    return lines


def about_gaps(findings: Mapping[str, Any]) -> str:
    """What the two intervals of a gap are."""
    return (
        f"Gaps to {findings['baseline']} on the same lists, each tested on once in {findings['folds']} "
        "folds, seeds averaged. ±: half of the 95 % t interval, over lists and over the means of folds; not "
        "adjusted."
    )


def _gaps(findings: Mapping[str, Any]) -> str:
    lines = _gaps_lines(findings)
    return "\n".join([about_gaps(findings), "", *grid(lines)]) if lines else ""


def gaps_table(findings: Mapping[str, Any]) -> Table | None:
    """Paired gaps of all rankers to the baseline; None without folds."""
    return _as_table("Gaps", "Ranker", _gaps_lines(findings))


def hints(findings: Mapping[str, Any]) -> list[str]:
    """What speaks against trusting the table: nets that were not at their end, predictions worth nothing."""
    lines = []
    own = [row for row in findings["rows"] if not row["calibrator"]]
    learning = [row["objective"] for row in own if row["n_learning"]]
    if learning:
        lines.append(
            f"Still learning: {listed(learning)}. Their validation metric rose to the end of the "
            f"{findings['epochs']} epochs; give more --epochs, or a higher --learning-rate."
        )
    constant = findings["constant_loss"]
    worse = [
        f"{row['name']} ({number(row['loss']['value'])})"
        for row in findings["rows"]
        if row["has_scale"] and (row["loss"]["value"] is None or row["loss"]["value"] > constant)
    ]
    if worse:
        lines.append(
            f"No use as predictions: {listed(worse)}. Predicting the mean label of the training lists for "
            f"every item has a {findings['loss']} of {number(constant)}."
        )
    return lines


def headline(findings: Mapping[str, Any]) -> str:
    """Who orders best and who predicts best, and from how many others each is not significantly different."""
    parts = []
    for metric, does in (("ndcg", "orders"), ("loss", "predicts")):
        best = (findings.get("best") or {}).get(metric)
        if best is not None:
            parts.append(f"{_plain(best['name'])} {does} best{_told(best, 3)}")
    return f"{'; '.join(parts)}." if parts else "No ranker has a finite score."


def _told(best: Mapping[str, Any], most: int) -> str:
    """Of the others: "; not significantly different from a and b", or that it is ahead of all."""
    near, n = best["near"], best["others"]
    if not n:
        return ""
    if not near:
        return ", ahead of all others significantly" if n > 1 else ", ahead of the other significantly"
    names = listed([_plain(name) for name in near])
    return (
        f", not significantly different from {names if len(near) <= most else f'{len(near)} of {n} others'}"
    )


def _plain(name: str) -> str:
    """A ranker's name without the mark of the table."""
    return name.removesuffix(" *")


def best_words(findings: Mapping[str, Any]) -> list[str]:
    """Which ranker has the best order, and which the best scale, by the test lists, with their values."""
    lines = []
    names = {"ndcg": "NDCG@10", "loss": str(findings["loss"])}
    for metric, best in (findings.get("best") or {}).items():
        if best is None:
            continue
        value = next(row[metric]["value"] for row in findings["rows"] if row["name"] == best["name"])
        most = "Greatest" if metric == "ndcg" else "Least"
        who = f"{_plain(best['name'])}, {number(value)}"
        lines.append(f"{most} {names[metric]}: {who}{_told(best, best['others'])}.")
    if (findings.get("best") or {}).get("loss"):
        constant = number(findings["constant_loss"])
        lines.append(
            f"Predicting the mean label of the training lists for every item has {names['loss']} {constant}."
        )
    if any(best and best["others"] for best in (findings.get("best") or {}).values()):
        lines.append(
            "Not significantly different: paired t test over the test lists against the best, adjusted p of "
            f"{LEVEL:g} or more (Holm, within a measure)."
        )
    return lines


def rankers_table(findings: Mapping[str, Any]) -> Table:
    """A row per ranker with its metrics; coloured where it differs from the baseline significantly."""
    measures, settings = columns_of(findings), settings_of(findings)
    columns = [*measures.values(), "stable", *settings.values()]
    rows = []
    for row in findings["rows"]:
        cells = [_cell(row[column], column in BETTER_IS_MORE) for column in measures]
        cells += [Cell(word) for word in (_stable(row), *_chosen(row, settings))]
        kind = "baseline" if row["name"] == findings["baseline"] else ""
        rows.append(Row(row["name"], cells, kind, arm=row["objective"]))
    return Table("Rankers", "Ranker", columns, rows)


def _cell(measure: Mapping[str, Any], better_is_more: bool) -> Cell:
    interval = ""
    if measure.get("low") is not None:
        interval = f"[{number(measure['low'])}, {number(measure['high'])}]"
    tone = {"+": "up", "-": "down"}.get(mark(measure, better_is_more), "")
    return Cell(number(measure["value"]), interval, tone=tone)


def wins_table(findings: Mapping[str, Any]) -> Table | None:
    """Who wins how often against whom; None with fewer than two objectives."""
    return _as_table("Strict wins", "Objective", _wins_lines(findings["wins"]))


def frontier_table(findings: Mapping[str, Any]) -> Table | None:
    """The cells that no other beats; None with fewer than two."""
    return _as_table("Pareto frontier", "Objective", _frontier_lines(findings))


def _as_table(title: str, corner: str, lines: Sequence[Sequence[str]]) -> Table | None:
    if not lines:
        return None
    # The objective is the last word, after its number where rivals are numbered.
    rows = [
        Row(line[0].strip(), [Cell(word) for word in line[1:]], arm=line[0].split()[-1]) for line in lines[1:]
    ]
    return Table(title, corner, list(lines[0][1:]), rows)


def ltr_figures(findings: Mapping[str, Any]) -> tuple[Figure, Figure]:
    """The figures of the study, of the page and as files."""
    loss = findings["loss"]
    return (
        Figure(
            "pareto",
            pareto_figure,
            f"NDCG@10 against {loss}, by objective",
            "A point per cell, seeds averaged; lines join each objective's own frontier, the dashed one that "
            "of all. Left and up is better.",
        ),
        Figure(
            "drift",
            drift_figure,
            "Mean score while training, by objective",
            "The mean score of the training batches, a line per seed.",
        ),
    )


def ltr_csv(findings: Mapping[str, Any]) -> str:
    """Every metric of every ranker, one a line, unrounded; what is not defined is empty."""
    rows = [
        {
            **{key: row[key] for key in ("objective", "calibrator", "has_scale")},
            **{key: row[key] for key in ("n_stable", "n_judged", "n_learning")},
            "metric": metric,
            **{key: row[metric].get(key) for key in ("value", "low", "high", "gap", "p")},
        }
        for row in findings["rows"]
        for metric in columns_of(findings)
    ]
    return csv_text(CSV_COLUMNS, rows)


def _stable(row: Mapping[str, Any]) -> str:
    if row["n_judged"] == 0:
        return "–"
    if row["n_judged"] == 1:
        return "yes" if row["n_stable"] else "no"
    return f"{row['n_stable']} of {row['n_judged']}"


def _chosen(row: Mapping[str, Any], settings: Iterable[str] = ("alpha", "learning_rate")) -> list[str]:
    """Alphas, learning rates, … of the chosen cells, most frequent first."""

    def listed(key: str) -> str:
        values = [cell[key] for cell in row["chosen"] if cell[key] is not None]
        order = sorted(set(values), key=lambda value: (-values.count(value), value))
        return ",".join(f"{value:g}" for value in order)

    return [listed(name) for name in settings]


def _rules(findings: Mapping[str, Any]) -> str:
    return "\n".join([*about_rules(findings), "", *grid(_rules_lines(findings))])


def about_rules(findings: Mapping[str, Any]) -> list[str]:
    """How the table of rules is read."""
    loss, rival, n = findings["loss"], findings["rival"], findings["rule_comparisons"]
    lines = [
        f"Test lists after choosing alpha, rate and epoch on the validation lists by NDCG@10 or by {loss}."
    ]
    if n:
        lines.append(
            f"+ better, - worse than {rival} by the same rule: paired t test over the test lists, "
            f"adjusted p < {LEVEL:g} (Holm, all {n} comparisons of this table)."
        )
    return lines


def _rules_lines(findings: Mapping[str, Any]) -> list[list[str]]:
    """Per objective: order and loss of the ranker chosen by each rule."""
    titles = {"ndcg": "NDCG@10", "loss": str(findings["loss"])}
    rules = findings["by_rule"]
    lines = [["", *(f"by {titles[rule]}: {titles[column]}" for rule in rules for column in _RULE_COLUMNS)]]
    by_name = {rule: {row["name"]: row for row in rows} for rule, rows in rules.items()}
    for name in next(iter(by_name.values())):
        rows = [by_name[rule][name] for rule in rules]
        lines.append([name, *(_entry(row, column) for row in rows for column in _RULE_COLUMNS)])
    return lines


def rules_table(findings: Mapping[str, Any]) -> Table | None:
    """What each objective is worth by the rule that chose it; None where no rules were asked for."""
    return _as_table("By rule", "Objective", _rules_lines(findings)) if findings.get("by_rule") else None


def _approaches(findings: Mapping[str, Any]) -> str:
    lines = _wins_lines(findings["approaches"])
    return "\n".join([about_approaches(findings), "", *grid(lines)]) if lines else ""


def about_approaches(findings: Mapping[str, Any]) -> str:
    """What a game between groups is."""
    return (
        "Strict wins between approaches: a game is a pair of chosen rankers of one rule and seed. "
        "Columns 1…: share won against that approach."
    )


def approaches_table(findings: Mapping[str, Any]) -> Table | None:
    """Games between groups of objectives; None where no rules were asked for, or for one group."""
    if not findings.get("by_rule"):
        return None
    return _as_table("Approaches", "Approach", _wins_lines(findings["approaches"]))


def _wins(findings: Mapping[str, Any]) -> str:
    lines = _wins_lines(findings["wins"])
    return "\n".join([*about_wins(findings), "", *grid(lines)]) if lines else ""


def about_wins(findings: Mapping[str, Any]) -> list[str]:
    """What a strict win is and how its table is read."""
    return [
        f"Strict wins on the test lists: no worse in NDCG@10 nor in {findings['loss']}, and not equal.",
        "A game is a pair of cells of one learning rate and seed. Columns 1…: share won against that rival.",
    ]


def _wins_lines(wins: Mapping[str, Any]) -> list[list[str]]:
    """Per objective: games won and lost, and a square of the shares won against each rival."""
    if len(wins) < 2:
        return []
    names = list(wins)
    lines = [["", "games", "won", "lost", *(str(i + 1) for i in range(len(names)))]]
    for i, name in enumerate(names):
        total = {key: sum(tally[key] for tally in wins[name].values()) for key in ("games", "won", "lost")}
        against = ["·" if rival == name else _share(wins[name][rival], "won") for rival in names]
        lines.append(
            [f"{i + 1:>2} {name}", str(total["games"]), _share(total, "won"), _share(total, "lost"), *against]
        )
    return lines


def _share(tally: Mapping[str, int], key: str) -> str:
    return f"{100 * tally[key] / tally['games']:.0f}%" if tally["games"] else "–"


def _frontier(findings: Mapping[str, Any]) -> str:
    lines = _frontier_lines(findings)
    return "\n".join([about_frontier(findings) + ":", "", *grid(lines)]) if lines else ""


def about_frontier(findings: Mapping[str, Any]) -> str:
    """What its table lists."""
    return f"Pareto frontier of the {len(over_seeds(findings['cells']))} cells (mean over seeds)"


def _frontier_lines(findings: Mapping[str, Any]) -> list[list[str]]:
    """The cells that no other cell beats, seeds averaged."""
    cells = over_seeds(findings["cells"])
    if len(cells) < 2:
        return []
    settings = settings_of(findings)
    lines = [["", *settings.values(), "NDCG@10", findings["loss"]]]
    for i in frontier(cells):
        cell = cells[i]
        point = ["" if cell[name] is None else f"{cell[name]:g}" for name in settings]
        lines.append([cell["objective"], *point, number(cell["ndcg"]), number(cell["loss"])])
    return lines


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
