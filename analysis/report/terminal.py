"""The study's tables as text for a terminal, with colour only where the terminal can show it."""

from __future__ import annotations

import io
import itertools
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cascade_sim.analysis.report.comparisons import (
    is_about_candidates,
    is_about_pre_ranking,
    lift_measure,
    ordered_arms,
)
from cascade_sim.analysis.report.decision import decide
from cascade_sim.analysis.report.guardrails import GUARDRAILS
from cascade_sim.analysis.report.readings import drift_arms, market_baseline
from cascade_sim.analysis.report.sections.ablation import ablation_table, steps_table
from cascade_sim.analysis.report.sections.asked import asked_answers
from cascade_sim.analysis.report.sections.markets.drift import drift_table, drift_words
from cascade_sim.analysis.report.sections.markets.learning import learning_words
from cascade_sim.analysis.report.sections.markets.market import bidders_table, market_words
from cascade_sim.analysis.report.sections.models import models_table
from cascade_sim.analysis.report.sections.orders import orders_table
from cascade_sim.analysis.report.sections.training import training_warnings
from cascade_sim.analysis.report.tables import Table, arm_rows, lift_column, value_column
from cascade_sim.analysis.report.value_loss import value_lost
from cascade_sim.foundation.terminal import Shown, in_line, joined


def _terminal_arms(metrics: Mapping[str, Any]) -> Table:
    """The arms table: what decides, the guardrails, then CTR and RCS."""
    arms = ordered_arms(metrics)
    known = [
        next((name for name in guardrail.names if name in metrics["arms"][metrics["baseline"]]), None)
        for guardrail in GUARDRAILS
    ]
    lifts = {lift_measure(metrics, "revenue_per_request"): "revenue"}
    heads = ("impr.", "clicks", "CPC", "surplus")
    lifts |= {name: head for name, head in zip(known, heads, strict=True) if name is not None}
    lifts |= {lift_measure(metrics, "ctr"): "CTR"}
    columns, headings = [lift_column(metrics, arms, name) for name in lifts], list(lifts.values())
    if is_about_pre_ranking(metrics):
        columns.append(value_column(metrics, arms, "rcs"))
        headings.append("RCS %")
    title = f"Lifts over {metrics['baseline']} in percent, by request but for CPC and CTR"
    return Table(title, "arm", headings, arm_rows(metrics, arms, columns))


def _models_by_set(metrics: Mapping[str, Any]) -> list[Table]:
    """The models table cut at its groups, because all sets side by side do not fit a terminal."""
    tables = []
    for kind in ("models", "pcvr_models"):
        for heading, table in cut_at_groups(models_table(metrics, kind)):
            tables.append(replace(table, title=f"{table.title} on the {heading.lower()}", corner="model"))
    return tables


def _after_steps(metrics: Mapping[str, Any]) -> list[Table]:
    """The table of RCS after each step of pre-ranking, cut likewise; empty where there is one step."""
    cut = cut_at_groups(steps_table(metrics))
    return [replace(table, title=f"{heading} after each step", corner="arm") for heading, table in cut]


def cut_at_groups(wide: Table | None) -> list[tuple[str, Table]]:
    """The tables that groups of columns are by themselves, with the heading of each."""
    if wide is None:
        return []
    tables, cut = [], 0
    for heading, width in wide.groups:
        span = slice(cut, cut + width)
        rows = [replace(row, cells=row.cells[span]) for row in wide.rows]
        tables.append((heading, Table(wide.title, wide.corner, wide.columns[span], rows)))
        cut += width
    return tables


def table_text(table: Table, *, color: bool = False, width: int = 100, margins: bool = True) -> Shown:
    """The table as text for a terminal; colour codes only if asked for (a terminal that can show them).

    A number is never cut off: where the table is too wide, its columns move closer, and then some move below.
    """
    width = max(width, 80)
    n = len(table.columns)
    for parts, gap in [(1, 2), *((parts, 1) for parts in range(1, n + 1))]:
        cuts = [n * part // parts for part in range(parts + 1)]
        spans = [slice(*ends) for ends in itertools.pairwise(cuts)]
        plain = [_span_text(table, span, gap, False, ENDLESS, margins) for span in spans]
        if max(len(line) for text in plain for line in text.splitlines()) <= width:
            break
    texts = [_span_text(table, span, gap, color, width, margins) for span in spans]
    lines = ("\n".join(line.rstrip() for line in text.splitlines()) for text in texts)
    return Shown("\n".join(text.strip("\n") + "\n" for text in lines))


ENDLESS = 100_000  # columns: every table has its natural width


def _span_text(table: Table, span: slice, gap: int, color: bool, width: int, margins: bool) -> str:
    """Some columns of a table, with the labels of its rows; the title is over the first of them."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(
        box=box.SIMPLE_HEAD,
        title=Text(in_line(table.title)) if table.title and not span.start else None,
        title_justify="left",
        pad_edge=False,
        padding=(0, gap - 1, 0, 0),
    )
    # Text, and not strings, in which rich would look for its markup.
    made.add_column(Text(in_line(table.corner)), no_wrap=True)
    for heading in table.columns[span]:
        made.add_column(Text(in_line(heading)), justify="right", no_wrap=True)
    marks = {"baseline": " (baseline)", "reference": ""}
    tones = {"up": "green", "down": "red"}
    for row in table.rows:
        style = "dim" if row.kind == "reference" else ""
        texts = [
            Text(
                in_line(f"{cell.text} {cell.margin}".rstrip() if margins else cell.text),
                style=tones.get(cell.tone, style),
            )
            for cell in row.cells[span]
        ]
        mark = f" ({row.tag})" if row.tag else marks.get(row.kind, "")
        made.add_row(Text(in_line(row.label + mark), style=style), *texts)
    out = io.StringIO()
    Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        force_interactive=False,
        legacy_windows=False,
    ).print(made)
    return out.getvalue()


def terminal_summary(metrics: Mapping[str, Any], *, color: bool = False, width: int = 100) -> Shown:
    """What a run prints at its end: the answer, the arms, the ablation, the models, and the budgets."""
    answer = decide(metrics)
    lost = value_lost(metrics) if is_about_candidates(metrics) else None
    lead = [line for asked in asked_answers(metrics) for line in (asked.headline, *asked.lines) if line]
    heads = [textwrap.fill(line, max(width, 40)) for line in (*lead, answer.headline)]
    parts = ["\n".join(heads) + "\n", table_text(_terminal_arms(metrics), color=color, width=width)]
    ablation = ablation_table(metrics)
    if ablation is not None and is_about_pre_ranking(metrics):
        parts.append(table_text(ablation, color=color, width=width))
    if is_about_pre_ranking(metrics):
        parts += [table_text(table, color=color, width=width) for table in _after_steps(metrics)]
    orders = [orders_table(metrics, name) for name in metrics.get("orders") or {}]
    parts += [table_text(table, color=color, width=width) for table in orders if table is not None]
    parts += [table_text(table, color=color, width=width, margins=False) for table in _models_by_set(metrics)]
    words = [answer.gain, *answer.guardrails, *answer.reasons, *answer.findings, *(lost or [])]
    if market_baseline(metrics) is not None:
        parts.append(table_text(bidders_table(metrics, narrow=True), color=color, width=width))
        if drift_arms(metrics):
            parts.append(table_text(drift_table(metrics, narrow=True), color=color, width=width))
        said = (market_words(metrics), drift_words(metrics), learning_words(metrics))
        words += [line for line in said if line]
    words += [*answer.notes, *answer.warnings, *training_warnings(metrics)]
    lines = [textwrap.fill(line, max(width, 40)) for line in words if line]
    return joined([*parts, *lines, ""])
