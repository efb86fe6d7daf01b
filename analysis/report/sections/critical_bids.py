"""Critical bids in words and tables: what an ad must bid to keep its slot, and what the cascade adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure
from cascade_sim.analysis.report.figures.critical_bids import critical_bids
from cascade_sim.analysis.report.readings import critical_arms, critical_value
from cascade_sim.analysis.report.section import Columns, Figure, Section, Stack, TablePart, Text
from cascade_sim.analysis.report.tables import Cell, Table, arm_rows, column
from cascade_sim.analysis.report.text_helpers import percent
from cascade_sim.analysis.statistics.estimates import (
    decimals_for,
    finite,
    number_text,
    percent_text,
)

# (group, [(heading, metric)])
COLUMNS: list[tuple[str, list[tuple[str, str]]]] = [
    (
        "In the auction, % of bid",
        [("mean", "local_mean"), ("median", "local_median"), ("90th pct.", "local_p90")],
    ),
    (
        "Through the cascade, % of bid",
        [("mean", "cascade_mean"), ("median", "cascade_median"), ("90th pct.", "cascade_p90")],
    ),
    ("The gap", [("impressions %", "with_gap"), ("mean, % of bid", "gap_share"), ("mean, money", "gap")]),
    ("CPC, % of what the slot takes", [("auction", "cpc_of_local"), ("cascade", "cpc_of_cascade")]),
]
PERCENT, MONEY = Measure("", "percent", "", 1), Measure("", "money", "")
RULES = {
    "gsp": "GSP charges just what the auction takes",
    "vcg": "VCG charges no more than what the auction takes",
    "first": "first price charges the bid, whatever the auction takes",
    "soft_floor": "a soft floor charges what the auction takes or more: lower bids in full",
}


def critical_bids_section(metrics: Mapping[str, Any]) -> Section | None:
    """The report's section; None for a study without critical bids."""
    if not critical_arms(metrics):
        return None
    figure = Figure(
        "critical_bids",
        critical_bids,
        "Critical bids as a share of the bid, in the auction and through the cascade",
        "Share of impressions that would have kept their slot with so much of their bid or less: dashed, in "
        "the auction; line, through the whole cascade. The shaded area is the mean gap.",
    )
    intervals = "± is the longer half of the 95 % interval, from resampling requests."
    return Section(
        "critical-bids",
        "Critical bids",
        (critical_words(metrics),),
        (
            TablePart(critical_table(metrics), margins=True),
            Columns((figure, Stack((Text(_about(metrics)), Text(intervals, "small"))))),
        ),
        short="Critical bids",
    )


def critical_table(metrics: Mapping[str, Any]) -> Table:
    """A row per arm: both critical bids, the gap between them, and the CPC beside them."""
    arms = critical_arms(metrics)
    columns = [_column(metrics, arms, name) for _, group in COLUMNS for _, name in group]
    headings = [heading for _, group in COLUMNS for heading, _ in group]
    groups = [(group, len(columns)) for group, columns in COLUMNS]
    return Table("Critical bids", "Arm", headings, arm_rows(metrics, arms, columns), groups)


def narrow_tables(metrics: Mapping[str, Any]) -> list[Table]:
    """The table cut in two, for a terminal."""
    arms = critical_arms(metrics)
    heads = {
        "local_mean": "auction mean",
        "local_median": "median",
        "local_p90": "p90",
        "cascade_mean": "cascade mean",
        "cascade_median": "median",
        "cascade_p90": "p90",
        "with_gap": "impressions %",
        "gap_share": "% of bid",
        "gap": "money",
        "cpc_of_local": "CPC % of auction's",
        "cpc_of_cascade": "of cascade's",
    }
    names = list(heads)
    titles = ("Critical bids in % of the bid", "The gap between them, and the CPC beside them")
    return [
        Table(
            title,
            "arm",
            [heads[name] for name in part],
            arm_rows(metrics, arms, [_column(metrics, arms, name) for name in part]),
        )
        for title, part in zip(titles, (names[:6], names[6:]), strict=True)
    ]


def _column(metrics: Mapping[str, Any], arms: Sequence[str], name: str) -> list[Cell]:
    return column(MONEY if name == "gap" else PERCENT, [critical_value(metrics, arm, name) for arm in arms])


def critical_words(metrics: Mapping[str, Any]) -> str:
    """What the gap is in the baseline arm, or in the first where that has none."""
    arms = critical_arms(metrics)
    arm = metrics["baseline"] if metrics["baseline"] in arms else arms[0]
    share, gap = critical_value(metrics, arm, "with_gap"), critical_value(metrics, arm, "gap_share")
    if share.value is None:
        return f"{arm} showed no ad."
    held = ""
    if metrics["critical_bids"]["arms"][arm].get("retrieval") == "held":
        held = " Retrieval looks at bids, too: what it asks for is not in these figures; `trace` has it."
    if share.value == 0:
        return f"With {arm}, pre-ranking asks no more of any ad on the page than the auction does.{held}"
    local, cascade = (critical_value(metrics, arm, f"{name}_mean").value for name in ("local", "cascade"))
    money = critical_value(metrics, arm, "gap").value
    amount = number_text(money, decimals_for([money]))
    return (
        f"With {arm}, {percent_text(share, signed=False)} of impressions need a higher bid to pass "
        f"pre-ranking than to hold their slot in the auction. On average a slot takes {percent(local)} of "
        f"the bid in the auction and {percent(cascade)} through the cascade: a gap of "
        f"{percent_text(gap, signed=False)} of the bid, or {amount} per click.{held}"
    )


def _about(metrics: Mapping[str, Any]) -> str:
    """What was asked, on how much, and how the CPC relates to it."""
    part = metrics["critical_bids"]
    requests = number_text(finite(part.get("requests")), 0)
    worlds = " of each world" if metrics.get("seeds") else ""
    pricings = {part["arms"][arm].get("pricing") for arm in critical_arms(metrics)}
    rules = "; ".join(text for name, text in RULES.items() if name in pricings)
    return (
        f"For every impression in {requests} requests{worlds}: the least init-bid with which the ad would "
        "have kept its slot or a better one, all else equal, among the ads that reached the auction and "
        "through the whole cascade. The price rests on the first, so where the second is higher, an "
        "advertiser that lowers its bid towards the price falls out before the auction. CPC and critical "
        f"bids are compared on the scale of the auction's bids{': ' + rules if rules else ''}."
    )
