"""What each measure is called, in which unit people read it, and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Arms that the engine adds to every study. They frame the others and are never recommended,
# but the page says so when one of them pays.
REFERENCE_ARMS: dict[str, str] = {
    "random": "the competitive set is drawn at random",
    "bid_only": "pre-ranking by the bid alone",
    "pctr_only": "pre-ranking by the predicted CTR alone",
    "ranker": "the ranking stage's own model and bid in the pre-ranking seat: the ceiling",
}


@dataclass(frozen=True)
class Measure:
    """A measure's label, meaning and unit ("percent" of a fraction, "ratio", "number" or "money")."""

    label: str
    unit: str
    meaning: str
    decimals: int | None = (
        None  # None: chosen from the size of the column's values, for that many significant digits
    )
    digits: int = 3
    # Perfect at 0 or 1, so a relative lift of it means nothing: tables show the difference instead.
    is_signed_or_near_zero: bool = False

    @property
    def heading(self) -> str:
        """The label with its unit, for a column."""
        return f"{self.label} %" if self.unit == "percent" else self.label


_RCS = (
    "Ranking consistency: share of the ideal win set (what ranking would choose from the whole "
    "pre-ranking set) that pre-ranking lets through."
)
_ONE = "RCS with both stages ordering by predicted CTR alone, bids left out."
_TRUE = (
    "Share of the truly most valuable ads of the pre-ranking set that pre-ranking lets through: "
    "being right, rather than imitating the ranker."
)
_SEEN = "counted over the ads that the log showed often enough to learn from."
_UNSEEN = "counted over the ads that the log hardly showed."

ARM_MEASURES: dict[str, Measure] = {
    "rcs": Measure("RCS", "percent", _RCS, 1),
    "rcs_exposed": Measure("RCS, exposed ads", "percent", "RCS " + _SEEN, 1),
    "rcs_unexposed": Measure("RCS, unexposed ads", "percent", "RCS " + _UNSEEN, 1),
    "single_objective_rcs": Measure("Single-objective RCS", "percent", _ONE, 1),
    "single_objective_rcs_exposed": Measure(
        "Single-objective RCS, exposed ads", "percent", "Single-objective RCS " + _SEEN, 1
    ),
    "single_objective_rcs_unexposed": Measure(
        "Single-objective RCS, unexposed ads", "percent", "Single-objective RCS " + _UNSEEN, 1
    ),
    "retrieval_rcs": Measure(
        "Retrieval RCS",
        "percent",
        "RCS one stage earlier: share of what ranking would choose from the whole corpus "
        "that retrieval brings into the pre-ranking set.",
        1,
    ),
    "true_value_recall": Measure("True-value recall", "percent", _TRUE, 1),
    "true_value_recall_exposed": Measure(
        "True-value recall, exposed ads", "percent", "True-value recall " + _SEEN, 1
    ),
    "true_value_recall_unexposed": Measure(
        "True-value recall, unexposed ads", "percent", "True-value recall " + _UNSEEN, 1
    ),
    "proxy_ece": Measure(
        "Proxy-ECE",
        "number",
        "Calibration error of the pre-ranking prediction against the ranker's prediction, over the "
        "pre-ranking set. 0 is perfect.",
        digits=2,
        is_signed_or_near_zero=True,
    ),
    "proxy_ece_relative": Measure(
        "Relative proxy-ECE",
        "percent",
        "Proxy-ECE divided by the mean prediction.",
        1,
        is_signed_or_near_zero=True,
    ),
    "proxy_pcoc": Measure(
        "Proxy-PCOC",
        "ratio",
        "Mean pre-ranking prediction divided by the mean ranker prediction, over the pre-ranking set. "
        "1 is perfect.",
        3,
        is_signed_or_near_zero=True,
    ),
    "ctr": Measure(
        "CTR, clicked", "percent", "Clicks divided by impressions, as drawn in this simulation.", 2
    ),
    "expected_ctr": Measure(
        "CTR, expected",
        "percent",
        "CTR with each click replaced by its true probability: the quantity itself, without the luck "
        "of the draw.",
        2,
    ),
    "rpm": Measure("RPM, clicked", "money", "Revenue per 1,000 impressions, from the clicks drawn."),
    "expected_rpm": Measure(
        "RPM, expected", "money", "Revenue per 1,000 impressions, from the true click probabilities."
    ),
    "revenue_per_request": Measure(
        "Revenue per request, clicked", "money", "Revenue divided by requests, from the clicks drawn."
    ),
    "expected_revenue_per_request": Measure(
        "Revenue per request, expected",
        "money",
        "Revenue divided by requests, from the true click probabilities. Arms are compared and recommended "
        "by it, because an arm that shows fewer ads can raise revenue per impression and still earn less.",
    ),
    "cpc": Measure("CPC", "money", "Mean charge per click."),
    "cpc_error": Measure(
        "CPC error",
        "percent",
        "How far charges are from what the same ranked list would have paid with the true CTRs, as a share "
        "of the latter. 0 is perfect.",
        1,
        is_signed_or_near_zero=True,
    ),
    "cpc_error_floor": Measure(
        "CPC error, floor",
        "percent",
        "The CPC error that would be left on the same ranked list if every feature were used perfectly: what "
        "no model can predict, the noise of each user and ad. Only the part of the CPC error above it is "
        "the model's.",
        1,
        is_signed_or_near_zero=True,
    ),
    "cpc_bias": Measure(
        "CPC bias",
        "percent",
        "CPC error with its sign: positive when advertisers are charged too much. 0 is perfect.",
        1,
        is_signed_or_near_zero=True,
    ),
    "revenue_pcoc": Measure(
        "Revenue PCOC",
        "ratio",
        "Revenue the model forecasts divided by revenue expected under the truth. 1 is perfect.",
        3,
        is_signed_or_near_zero=True,
    ),
    "payment_error": Measure(
        "Payment error",
        "percent",
        "Sum over advertisers of how far their payments are from those under an all-knowing cascade, "
        "as a share of the latter. 0 is perfect.",
        1,
    ),
    "welfare": Measure(
        "Welfare vs oracle",
        "percent",
        "Value created for advertisers, as a share of an all-knowing cascade's.",
        1,
    ),
    "revenue_vs_oracle": Measure(
        "Revenue vs oracle",
        "percent",
        "Revenue as a share of an all-knowing cascade's. Can exceed 100 when mistakes raise prices.",
        1,
    ),
}

MODEL_MEASURES: dict[str, Measure] = {
    "auc": Measure(
        "AUC", "ratio", "Probability that a clicked ad is scored above one not clicked, over all requests.", 4
    ),
    "gauc": Measure(
        "GAUC", "ratio", "AUC within each request, averaged with the number of candidates as weight.", 4
    ),
    "ndcg": Measure(
        "NDCG@10",
        "ratio",
        "Discounted true CTR of the first ten by score, relative to the best order, by request.",
        4,
    ),
    "logloss": Measure(
        "LogLoss", "number", "Mean negative log-likelihood against the truth. Lower is better.", 4
    ),
    "ece": Measure("ECE", "number", "Calibration error against the truth. 0 is perfect.", digits=2),
    "pcoc": Measure("PCOC", "ratio", "Mean prediction divided by the mean true CTR. 1 is perfect.", 3),
    "mean_prediction": Measure("Mean pCTR", "percent", "Mean predicted CTR.", 2),
}


def arm_measure(name: str) -> Measure:
    """The measure of that name; one that is not listed here is shown under its own name as a plain number."""
    return ARM_MEASURES.get(name, Measure(name, "number", "", None))


def measure_names(metrics: Mapping[str, Any]) -> list[str]:
    """Every measure that any arm has: the listed ones in the catalogue's order, then others by name."""
    found = {name for values in metrics["arms"].values() for name in values}
    return [name for name in ARM_MEASURES if name in found] + sorted(found - set(ARM_MEASURES))


def is_reference(arm: str) -> bool:
    """Whether the engine added this arm by itself."""
    return arm in REFERENCE_ARMS
