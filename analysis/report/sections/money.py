"""Whether advertisers are charged rightly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import arm_measure
from cascade_sim.analysis.report.comparisons import ordered_arms
from cascade_sim.analysis.report.section import Section, TablePart, Text
from cascade_sim.analysis.report.tables import Table, arm_rows, value_column
from cascade_sim.analysis.statistics.estimates import arm_value

MONEY_MEASURES = (
    "cpc",
    "cpc_error",
    "cpc_error_irreducible",
    "cpc_bias",
    "revenue_pcoc",
    "payment_error_vs_oracle",
    "welfare_vs_oracle",
    "corpus_welfare_efficiency",
    "revenue_vs_oracle",
)
LOGGED_MONEY = ("cpc", "cpc_error_vs_imputation", "cpc_bias_vs_imputation", "revenue_pcoc")


def money_section(metrics: Mapping[str, Any]) -> Section | None:
    """What is charged beside what would be right; None where neither is known."""
    table = money_table(metrics)
    if table is None:
        return None
    about = (
        "Charges are computed from predicted CTRs. The oracle is the baseline's cascade with the true CTRs "
        "in every stage: an arm that retrieves better ads can exceed it. Welfare efficiency is against the "
        "best page of the whole corpus, which none exceeds. The irreducible CPC error is what would be left "
        "if every feature were used perfectly."
    )
    if metrics.get("replay"):
        about = (
            "Charges are computed from predicted CTRs. A log has no true ones: right is here what the same "
            "ranked list would have paid with the CTRs of the click model that is fitted to the log."
        )
    return Section(
        "money",
        "Pricing accuracy",
        parts=(Text(about), TablePart(table)),
        short="Prices",
    )


def money_table(metrics: Mapping[str, Any]) -> Table | None:
    """How rightly advertisers are charged, and how far from an oracle cascade; None if unknown."""
    arms = ordered_arms(metrics)
    names = LOGGED_MONEY if metrics.get("replay") else MONEY_MEASURES
    if all(arm_value(metrics, arm, name).value is None for arm in arms for name in names):
        return None
    columns = [value_column(metrics, arms, name) for name in names]
    return Table(
        "Money",
        "Arm",
        [arm_measure(name).heading for name in names],
        arm_rows(metrics, arms, columns),
    )
