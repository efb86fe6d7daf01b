"""Every metric, once: what it is made of, what it is called, in which unit people read it, and what it means.

A metric is a ratio of sums over requests (`top` and `bottom` name COLUMNS), or a function of vectors summed
over requests (`vectors` names VECTORS). Tables of sums, intervals, checks, files and pages are all made from
the records here: a new metric is a record, and a new column of sums also a line where requests are measured
(environments.evaluators, market.tally).

    >>> ARM_MEASURES["rpm"].of({"revenue": 2.0, "impressions": 500.0})
    4.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.analysis.metrics import calibration, money

Floats = NDArray[np.float64]

# Arms that the engine adds to every study. They frame the others and are never recommended,
# but the page says so when one of them pays.
REFERENCE_ARMS: dict[str, str] = {
    "random": "the competitive set is drawn at random",
    "bid_only": "pre-ranking by the bid alone",
    "pctr_only": "pre-ranking by the predicted CTR alone",
    "ranker": "the ranking stage's own model and bid in pre-ranking: the upper bound",
}

# The same where pre-ranking has several steps.
IN_LAST_STEP: dict[str, str] = {
    "random": "the last step of pre-ranking draws at random",
    "bid_only": "the last step of pre-ranking goes by the bid alone",
    "pctr_only": "the last step of pre-ranking goes by the predicted CTR alone",
    "ranker": "the ranking stage's own model and bid in the last step of pre-ranking",
}

# In the place of a step's name: every step of pre-ranking at once.
ALL_STEPS = "all"

# What is summed over requests, in the order in which files list it.
COLUMNS: dict[str, str] = {
    "requests": "requests",
    "slots": "slots of their pages",
    "impressions": "ads shown",
    "clicks": "clicks as drawn",
    "expected_clicks": "true probabilities of a click",
    "charged_clicks": "clicks that have reached the ledger of a market",
    "conversions": "conversions as drawn",
    "revenue": "what clicks were charged",
    "expected_revenue": "prices times true probabilities of a click",
    "forecast_revenue": "prices times predicted probabilities of a click",
    "oracle_revenue": "expected revenue of an oracle cascade",
    **{
        f"{best}_{what}{part}": f"{words}{of}"
        for best in ("ideal", "single_objective", "true_value")
        for part, of in (("", ""), ("_exposed", ", of exposed ads"), ("_unexposed", ", of unexposed ads"))
        for what, words in (
            ("reached", f"shares of the {best} set that pre-ranking lets through"),
            ("requests", f"requests with such a {best} set"),
        )
    },
    "retrieval_reached": "shares of the pre-ranking stage's choice from the corpus that retrieval passed on",
    "retrieval_requests": "requests with such a choice",
    "ideal_page_reached": "shares of the page that ranking would choose from the corpus that are shown",
    "ideal_page_requests": "requests with such a page",
    "best_page_reached": "shares of the best page of the corpus by true CTR times bid that are shown",
    "best_page_requests": "requests with such a page",
    "page_value": "true CTRs times the baseline's bids, of what is shown to requests that see the corpus",
    "best_page_value": "the same of the best page that the corpus has for them",
    "cpc_error": "distances of prices to those with true CTRs, times expected clicks",
    "cpc_error_irreducible": "the same of prices that know all of the CTR but its noise",
    "cpc_bias": "differences of prices to those with true CTRs, times expected clicks",
    "cpc_true": "prices with true CTRs, times expected clicks",
    "click_value": "what clicks were worth to their advertisers",
    "observed_clicks": "of a replayed log: logged clicks on ads in their logged slots",
    "observed_revenue": "of a replayed log: what these are charged",
    "model_cpc_error": "of a replayed log: distances of prices to those with the click model's CTRs",
    "model_cpc_bias": "of a replayed log: the same differences with their sign",
    "model_cpc": "of a replayed log: prices with the click model's CTRs, times clicks",
    "logged_pages": "of a replayed log: requests that show the logged page",
    "known_prices": "of a replayed log: ads in their logged slots, with a logged price",
    "logged_prices": "of a replayed log: those of them that are charged the logged price",
    "welfare": "the baseline's bids times expected clicks",
    "oracle_welfare": "the same of an oracle cascade",
}
# What is summed over requests as a vector, each with its axes.
VECTORS: dict[str, str] = {
    "payments": "expected payments: [by the arm and by an oracle cascade, advertisers]",
    "proxy_bins": "[count, sum of predictions, sum of the ranker's predictions, by bucket of the prediction]",
}


@dataclass(frozen=True)
class Measure:
    """How a number is read: label, unit ("percent" of a fraction, "ratio", "number" or "money"), meaning."""

    label: str
    unit: str
    meaning: str
    decimals: int | None = (
        None  # None: chosen from the size of the column's values, for that many significant digits
    )
    digits: int = 3
    # Perfect at 0 or 1, so a relative lift of it means nothing: tables show the difference instead.
    is_signed_or_near_zero: bool = False
    # "higher", "lower", "at 0" or "at 1"; "" where more is good for one side and bad for another, or for none
    better: str = "higher"
    # Sums of absolute gaps, or of the largest: few requests raise it, and intervals must be centred for it
    # (statistics.bootstrap). Never negative.
    rises_with_noise: bool = False

    @property
    def heading(self) -> str:
        """The label with its unit, for a column."""
        return f"{self.label} %" if self.unit == "percent" else self.label


@dataclass(frozen=True, kw_only=True)
class Metric(Measure):
    """A measure with a name in files, and what it is made of."""

    name: str
    # A ratio of sums: factor * top / bottom, or factor * (top - less) / bottom.
    top: str = ""
    bottom: str = ""
    less: str = ""
    factor: float = 1.0
    is_of_corpus: bool = False  # summed over the requests measured against the whole corpus, not all
    # Or a function of one of VECTORS, summed: [..., its axes] -> [...]
    vectors: str = ""
    function: Callable[[Floats], Floats] | None = None

    @property
    def is_ratio(self) -> bool:
        return bool(self.top)

    @property
    def parts(self) -> tuple[str, str]:
        """The two columns whose sums' ratio is the metric; `with_factors` makes the first, if it must."""
        top = f"{self.top} - {self.less}" if self.less else self.top
        return top if self.factor == 1 else f"{self.factor:g} {top}", self.bottom

    def split(self, sums: Mapping[str, Any]) -> tuple[Any, Any]:
        """Numerator and denominator, without the factor, from numbers or arrays by column."""
        top = sums[self.top] - sums[self.less] if self.less else sums[self.top]
        return top, sums[self.bottom]

    def of(self, sums: Mapping[str, float]) -> float | None:
        """The metric of these sums; None where its denominator is 0."""
        top, bottom = self.split(sums)
        return self.factor * top / bottom if bottom else None


def by_name(*metrics: Metric) -> dict[str, Metric]:
    """The metrics as {name: metric}, in the given order."""
    return {metric.name: metric for metric in metrics}


def columns_of(metrics: Iterable[Metric]) -> tuple[str, ...]:
    """The columns that ratios are made of, in the order of COLUMNS."""
    used = {name for metric in metrics for name in (metric.top, metric.bottom, metric.less)}
    return tuple(name for name in COLUMNS if name in used)


def ratio_parts(metrics: Iterable[Metric], *, of_corpus: bool = False) -> dict[str, tuple[str, str | None]]:
    """{metric: (numerator, denominator)} of the ratios among them, as the bootstrap takes them."""
    return {m.name: m.parts for m in metrics if m.is_ratio and m.is_of_corpus == of_corpus}


def with_factors(columns: Mapping[str, Floats]) -> dict[str, Floats]:
    """The columns of requests, and beside them the numerators of metrics that have a factor or a difference.

    Computed request by request: sums are resampled exactly, and what is multiplied later would round.
    """
    made = {}
    for metric in ARM_MEASURES.values():
        if metric.parts[0] != metric.top and {metric.top, metric.less or metric.top} <= columns.keys():
            top = columns[metric.top] - columns[metric.less] if metric.less else columns[metric.top]
            made[metric.parts[0]] = metric.factor * top
    return {**columns, **made}


def _of_payments(function: Callable[[Floats, Floats], Floats]) -> Callable[[Floats], Floats]:
    """A function of what advertisers pay the arm, and what they would pay an oracle cascade."""
    return lambda paid: function(paid[..., 0, :], paid[..., 1, :])


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


def _by_exposure(name: str, label: str, meaning: str, best: str) -> list[Metric]:
    """A mean over requests of a share of ads: of all, of exposed, and of unexposed ones."""
    kinds = (
        ("", "", meaning),
        ("_exposed", ", exposed ads", f"{label} {_SEEN}"),
        ("_unexposed", ", unexposed ads", f"{label} {_UNSEEN}"),
    )
    return [
        Metric(
            name=f"{name}{part}",
            label=f"{label}{ads}",
            unit="percent",
            meaning=words,
            decimals=1,
            top=f"{best}_reached{part}",
            bottom=f"{best}_requests{part}",
        )
        for part, ads, words in kinds
    ]


# Columns with modelled clicks, which move with their model's uncertainty: 0 counts clicks, 1 what they pay.
MODELLED = {"clicks": 0, "expected_clicks": 0, "revenue": 1, "expected_revenue": 1}

ARM_MEASURES: dict[str, Metric] = by_name(
    *_by_exposure("rcs", "RCS", _RCS, "ideal"),
    *_by_exposure("single_objective_rcs", "Single-objective RCS", _ONE, "single_objective"),
    Metric(
        name="retrieval_rcs",
        label="Retrieval RCS",
        unit="percent",
        meaning="RCS one stage earlier: share of what pre-ranking, or the first of its steps, would choose "
        "from the whole corpus that retrieval brings to it.",
        decimals=1,
        top="retrieval_reached",
        bottom="retrieval_requests",
        is_of_corpus=True,
    ),
    Metric(
        name="ideal_page_recall",
        label="Ideal-page recall",
        unit="percent",
        meaning="RCS of the whole cascade: share of the page that ranking would choose from the whole corpus "
        "that is shown. Each arm is measured by its own ranking stage.",
        decimals=1,
        top="ideal_page_reached",
        bottom="ideal_page_requests",
        is_of_corpus=True,
    ),
    Metric(
        name="best_page_recall",
        label="Best-page recall",
        unit="percent",
        meaning="Share of the best page of the whole corpus, by true CTR × bid of the ranking stage, that is "
        "shown: being right, rather than imitating the ranker.",
        decimals=1,
        top="best_page_reached",
        bottom="best_page_requests",
        is_of_corpus=True,
    ),
    *_by_exposure("true_value_recall", "True-value recall", _TRUE, "true_value"),
    Metric(
        name="proxy_ece",
        label="Proxy-ECE",
        unit="number",
        meaning="Calibration error of the pre-ranking prediction against the ranker's prediction, over the "
        "pre-ranking set. 0 is perfect.",
        digits=2,
        is_signed_or_near_zero=True,
        better="lower",
        vectors="proxy_bins",
        function=calibration.ece_of_bins,
        rises_with_noise=True,
    ),
    Metric(
        name="proxy_ece_relative",
        label="Relative proxy-ECE",
        unit="percent",
        meaning="Proxy-ECE divided by the mean prediction.",
        decimals=1,
        is_signed_or_near_zero=True,
        better="lower",
        vectors="proxy_bins",
        function=calibration.relative_ece_of_bins,
        rises_with_noise=True,
    ),
    Metric(
        name="proxy_pcoc",
        label="Proxy-PCOC",
        unit="ratio",
        meaning="Mean pre-ranking prediction divided by the mean ranker prediction, over the pre-ranking "
        "set. 1 is perfect.",
        decimals=3,
        is_signed_or_near_zero=True,
        better="at 1",
        vectors="proxy_bins",
        function=calibration.pcoc_of_bins,
    ),
    Metric(
        name="ctr",
        label="CTR, realised",
        unit="percent",
        meaning="Clicks divided by impressions, as drawn in this simulation.",
        decimals=2,
        top="clicks",
        bottom="impressions",
    ),
    Metric(
        name="expected_ctr",
        label="CTR, expected",
        unit="percent",
        meaning="CTR with each click replaced by its true probability: the quantity itself, without noise "
        "of the draw.",
        decimals=2,
        top="expected_clicks",
        bottom="impressions",
    ),
    Metric(
        name="rpm",
        label="RPM, realised",
        unit="money",
        meaning="Revenue per 1,000 impressions, from the clicks drawn.",
        top="revenue",
        bottom="impressions",
        factor=1000.0,
    ),
    Metric(
        name="expected_rpm",
        label="RPM, expected",
        unit="money",
        meaning="Revenue per 1,000 impressions, from the true click probabilities.",
        top="expected_revenue",
        bottom="impressions",
        factor=1000.0,
    ),
    Metric(
        name="revenue_per_request",
        label="Revenue per request, realised",
        unit="money",
        meaning="Revenue divided by requests, from the clicks drawn.",
        top="revenue",
        bottom="requests",
    ),
    Metric(
        name="expected_revenue_per_request",
        label="Revenue per request, expected",
        unit="money",
        meaning="Revenue divided by requests, from the true click probabilities. Arms are compared and "
        "recommended by it, because an arm that shows fewer ads can raise revenue per impression and still "
        "earn less.",
        top="expected_revenue",
        bottom="requests",
    ),
    Metric(
        name="cpc",
        label="CPC",
        unit="money",
        meaning="Mean charge per click.",
        better="",
        top="revenue",
        bottom="clicks",
    ),
    Metric(
        name="cpc_error",
        label="CPC error",
        unit="percent",
        meaning="How far charges are from what the same ranked list would have paid with the true CTRs, as a "
        "share of the latter. 0 is perfect.",
        decimals=1,
        is_signed_or_near_zero=True,
        better="lower",
        top="cpc_error",
        bottom="cpc_true",
    ),
    Metric(
        name="cpc_error_irreducible",
        label="CPC error, irreducible",
        unit="percent",
        meaning="The CPC error that would be left on the same ranked list if every feature were used "
        "perfectly: what no model can predict, the noise of each user and ad. Only the part of the CPC error "
        "above it is the model's.",
        decimals=1,
        is_signed_or_near_zero=True,
        better="",
        top="cpc_error_irreducible",
        bottom="cpc_true",
    ),
    Metric(
        name="cpc_bias",
        label="CPC bias",
        unit="percent",
        meaning="CPC error with its sign: positive when advertisers are charged too much. 0 is perfect.",
        decimals=1,
        is_signed_or_near_zero=True,
        better="at 0",
        top="cpc_bias",
        bottom="cpc_true",
    ),
    Metric(
        name="revenue_pcoc",
        label="Revenue PCOC",
        unit="ratio",
        meaning="Revenue the model forecasts divided by revenue expected under the truth. 1 is perfect.",
        decimals=3,
        is_signed_or_near_zero=True,
        better="at 1",
        top="forecast_revenue",
        bottom="expected_revenue",
    ),
    Metric(
        name="payment_error_vs_oracle",
        label="Payment error vs oracle",
        unit="percent",
        meaning="Sum over advertisers of how far their payments are from those under an oracle cascade, "
        "as a share of the latter. 0 is perfect. Chance counts as error, so it falls with more requests: "
        "compare runs of as many.",
        decimals=1,
        better="lower",
        vectors="payments",
        function=_of_payments(money.payment_error_vs_oracle),
        rises_with_noise=True,
    ),
    Metric(
        name="revenue_share_of_top_1pct_advertisers",
        label="Revenue from the top 1 % of advertisers",
        unit="percent",
        meaning="Share of expected revenue, from the true click probabilities, that the 1 % of advertisers "
        "with the highest payments bring: at least one of them, out of all, those who pay nothing included.",
        decimals=1,
        better="",
        vectors="payments",
        function=_of_payments(lambda paid, _: money.top_advertisers_share(paid)),
        rises_with_noise=True,
    ),
    Metric(
        name="welfare_vs_oracle",
        label="Welfare, share of the oracle's",
        unit="percent",
        meaning="Value created for advertisers, as a share of the oracle cascade's, which knows the true CTR "
        "of what the baseline retrieves. No bound: an arm that retrieves better ads, or admits more, can "
        "exceed 100.",
        decimals=1,
        top="welfare",
        bottom="oracle_welfare",
    ),
    Metric(
        name="corpus_welfare_efficiency",
        label="Welfare efficiency",
        unit="percent",
        meaning="Value created for advertisers, as a share of that of the best page of the whole corpus: by "
        "true CTR × bid of the baseline's ranking stage, with no reserve and as many slots as any arm has. "
        "Never above 100.",
        decimals=1,
        top="page_value",
        bottom="best_page_value",
        is_of_corpus=True,
    ),
    Metric(
        name="revenue_vs_oracle",
        label="Revenue vs oracle",
        unit="percent",
        meaning="Revenue as a share of an oracle cascade's. Can exceed 100 when mistakes raise prices.",
        decimals=1,
        top="expected_revenue",
        bottom="oracle_revenue",
    ),
    Metric(
        name="impressions_per_request",
        label="Ads shown per request",
        unit="number",
        meaning="Impressions divided by requests.",
        top="impressions",
        bottom="requests",
    ),
    Metric(
        name="expected_clicks_per_request",
        label="Clicks per request, expected",
        unit="number",
        meaning="True click probabilities of the ads shown, summed over the page and divided by requests.",
        top="expected_clicks",
        bottom="requests",
    ),
    Metric(
        name="surplus_per_request",
        label="Surplus per request",
        unit="money",
        meaning="What expected clicks are worth to advertisers, at the bids of the baseline's ranking stage, "
        "less what they pay for them, divided by requests.",
        top="welfare",
        less="expected_revenue",
        bottom="requests",
    ),
)

# Beside them where pages are looked at again: in what-ifs, and in runs that are compared by their logs.
PAGE_MEASURES: dict[str, Metric] = by_name(
    Metric(
        name="fill_rate",
        label="Fill rate",
        unit="percent",
        meaning="Share of the page's slots that show an ad.",
        decimals=1,
        top="impressions",
        bottom="slots",
    ),
    Metric(
        name="conversions_per_request",
        label="Conversions per request",
        unit="number",
        meaning="Conversions divided by requests.",
        top="conversions",
        bottom="requests",
    ),
)

# Of a replayed log, which has no ground truth: what was observed, and whether a replay agrees.
REPLAY_MEASURES: dict[str, Metric] = by_name(
    Metric(
        name="observed_clicks_share",
        label="Clicks observed",
        unit="percent",
        meaning="Share of the expected clicks that were logged: the same ad was in the same slot of the "
        "same "
        "request. The rest is the click model's.",
        decimals=1,
        better="",
        top="observed_clicks",
        bottom="expected_clicks",
    ),
    Metric(
        name="observed_revenue_share",
        label="Revenue observed",
        unit="percent",
        meaning="Share of the expected revenue that comes from logged clicks (or impressions) rather than "
        "from "
        "the click model.",
        decimals=1,
        better="",
        top="observed_revenue",
        bottom="expected_revenue",
    ),
    Metric(
        name="cpc_error_vs_imputation",
        label="CPC error vs imputation",
        unit="percent",
        meaning="How far charges are from what the same ranked list would have paid with the CTRs of the "
        "imputation model fitted to the log, as a share of the latter. A log has no true CTRs.",
        decimals=1,
        is_signed_or_near_zero=True,
        better="lower",
        top="model_cpc_error",
        bottom="model_cpc",
    ),
    Metric(
        name="cpc_bias_vs_imputation",
        label="CPC bias vs imputation",
        unit="percent",
        meaning="The same with its sign: positive when advertisers are charged too much.",
        decimals=1,
        is_signed_or_near_zero=True,
        better="at 0",
        top="model_cpc_bias",
        bottom="model_cpc",
    ),
    Metric(
        name="page_match_rate",
        label="Page match rate",
        unit="percent",
        meaning="Share of the requests that show the logged ads in the logged slots.",
        decimals=2,
        better="",
        top="logged_pages",
        bottom="requests",
    ),
    Metric(
        name="price_match_rate",
        label="Price match rate",
        unit="percent",
        meaning="Of the ads that are where they were, the share that is charged the logged price.",
        decimals=2,
        better="",
        top="logged_prices",
        bottom="known_prices",
    ),
)

# Of the hours of a market, whose clicks may be charged after the hour in which they fell. Impressions,
# conversions and surplus are totals there, and are compared by request, since arms may meet unequally many.
MARKET_MEASURES: dict[str, Metric] = by_name(
    ARM_MEASURES["revenue_per_request"],
    replace(ARM_MEASURES["impressions_per_request"], name="impressions"),
    ARM_MEASURES["ctr"],
    replace(ARM_MEASURES["cpc"], bottom="charged_clicks"),
    ARM_MEASURES["rpm"],
    replace(PAGE_MEASURES["conversions_per_request"], name="conversions"),
    Metric(
        name="surplus",
        label="Surplus per request",
        unit="money",
        meaning="Value of the clicks to their advertisers less what they paid, divided by requests.",
        top="click_value",
        less="revenue",
        bottom="requests",
    ),
    Metric(
        name="clicks_per_request",
        label="Clicks per request",
        unit="number",
        meaning="Clicks divided by requests.",
        top="clicks",
        bottom="requests",
    ),
)

MODEL_MEASURES: dict[str, Metric] = by_name(
    Metric(
        name="auc",
        label="AUC",
        unit="ratio",
        meaning="Probability that a clicked ad is scored above one not clicked, over all requests.",
        decimals=4,
    ),
    Metric(
        name="gauc",
        label="GAUC",
        unit="ratio",
        meaning="AUC within each request, averaged with the number of candidates as weight.",
        decimals=4,
    ),
    Metric(
        name="ndcg",
        label="NDCG@10",
        unit="ratio",
        meaning="Discounted true CTR of the first ten by score, relative to the best order, by request.",
        decimals=4,
    ),
    Metric(
        name="logloss",
        label="LogLoss",
        unit="number",
        meaning="Mean negative log-likelihood against the truth. Lower is better.",
        decimals=4,
        better="lower",
    ),
    Metric(
        name="ece",
        label="ECE",
        unit="number",
        meaning="Calibration error against the truth. 0 is perfect.",
        digits=2,
        better="lower",
        rises_with_noise=True,
    ),
    Metric(
        name="pcoc",
        label="PCOC",
        unit="ratio",
        meaning="Mean prediction divided by the mean true CTR. 1 is perfect.",
        decimals=3,
        better="at 1",
    ),
    Metric(
        name="mean_prediction",
        label="Mean pCTR",
        unit="percent",
        meaning="Mean predicted CTR.",
        decimals=2,
        better="",
    ),
)


# What arms may have, in the order of a table of all of it.
LISTED: dict[str, Metric] = {**ARM_MEASURES, **PAGE_MEASURES, **REPLAY_MEASURES}


# Measured after each earlier step of pre-ranking, too, and what their columns are called by.
AFTER_STEPS = {"rcs": "ideal", "single_objective_rcs": "single_objective"}
# Of pages from the whole corpus: measured for each stage and for each route of retrieval, too.
OF_PAGES = {"ideal_page_recall": "ideal_page", "best_page_recall": "best_page"}


@dataclass(frozen=True)
class Part:
    """A measure of a stage or of a route: what follows a measure's name, and its words."""

    infix: str  # between the measure, or a column, and the part
    measures: Mapping[str, str]  # what is measured so: what their columns are called by
    label: str
    meaning: str


_AFTER = "_after_"
PARTS: tuple[Part, ...] = (
    Part(
        _AFTER,
        AFTER_STEPS,
        "{label} after {part}",
        "{label} counted after the step {part} of pre-ranking: the share of the same ads that {part} and the "
        "steps before it let through.",
    ),
    Part(
        _AFTER,
        OF_PAGES,
        "{label} after {part}",
        "{label} counted after {part}: the share of the same page that {part} and what comes before it let "
        "through.",
    ),
    Part(
        "_of_",
        OF_PAGES,
        "{label} of {part}",
        "{label} of {part} by itself: of the ads of the same page that reach {part}, the share that it lets "
        "through.",
    ),
    Part("_by_", OF_PAGES, "{label} by {part}", "{label}: share of that page that the route {part} brings."),
    Part(
        "_only_by_",
        OF_PAGES,
        "{label} only by {part}",
        "{label}: share of that page that the route {part} brings and no other route does.",
    ),
)


def after_step(name: str, step: str) -> str:
    """The name of a metric, or of a column, after an earlier step of pre-ranking, or after any stage.

    >>> after_step("rcs", "coarse")
    'rcs_after_coarse'
    """
    return f"{name}{_AFTER}{step}"


def part_measure(name: str) -> Metric | None:
    """The metric of a part of the cascade that such a name means; None for any other name.

    >>> part_measure("rcs_after_coarse").parts
    ('ideal_reached_after_coarse', 'ideal_requests_after_coarse')
    """
    for part in PARTS:
        for metric, best in part.measures.items():
            which = name.removeprefix(f"{metric}{part.infix}")
            if which and which != name:
                return _measure_of_part(part, ARM_MEASURES[metric], best, which)
    return None


def _measure_of_part(part: Part, whole: Metric, best: str, which: str) -> Metric:
    words, behind = {"label": whole.label, "part": which.replace("_", "-")}, f"{part.infix}{which}"
    return replace(
        whole,
        name=f"{whole.name}{behind}",
        label=part.label.format(**words),
        meaning=part.meaning.format(**words),
        top=f"{best}_reached{behind}",
        bottom=f"{best}_requests{behind}",
    )


def arm_measures(columns: Iterable[str]) -> dict[str, Metric]:
    """The measures of arms, and those of parts of the cascade that these columns are of."""
    known = set(columns)
    made: list[Metric] = []
    for part in PARTS:
        tops = {metric: f"{best}_reached{part.infix}" for metric, best in part.measures.items()}
        which = {name.removeprefix(top) for top in tops.values() for name in known if name.startswith(top)}
        made += [
            _measure_of_part(part, ARM_MEASURES[metric], best, one)
            for one in sorted(which)
            for metric, best in part.measures.items()
        ]
    return ARM_MEASURES | by_name(*(metric for metric in made if {*metric.parts} <= known))


def arm_measure(name: str) -> Measure:
    """The measure of that name; one that is not listed here is shown under its own name as a plain number."""
    return LISTED.get(name) or part_measure(name) or Measure(name, "number", "", None)


def measure_names(metrics: Mapping[str, Any]) -> list[str]:
    """Every measure that any arm has: the listed ones in the catalogue's order, then others by name.

    What is measured after earlier stages comes before what is measured after the last, and by stage or route
    behind it.
    """
    measured = {name for values in metrics["arms"].values() for name in values}
    stages = stages_of(metrics)
    listed: list[str] = []
    for name in LISTED:
        early = [after_step(name, stage) for stage in stages]
        late = [f"{name}_of_{stage}" for stage in stages]
        late += sorted(one for one in measured if one.startswith((f"{name}_by_", f"{name}_only_by_")))
        listed += [one for one in (*early, name, *late) if one in measured]
    return listed + sorted(measured - set(listed))


def stages_of(metrics: Mapping[str, Any]) -> list[str]:
    """The stages of the baseline's cascade in their order, retrieval first, as far as they are known."""
    rows = ((metrics.get("attribution") or {}).get(metrics.get("baseline")) or {}).get("stages") or []
    return [row["stage"] for row in rows] or steps_of(metrics)


def routes_of(metrics: Mapping[str, Any]) -> list[str]:
    """The routes of retrieval that any arm has, by name."""
    head = f"{next(iter(OF_PAGES))}_by_"
    names = {name for values in metrics["arms"].values() for name in values if name.startswith(head)}
    return sorted(name.removeprefix(head) for name in names)


def steps_of(metrics: Mapping[str, Any]) -> list[str]:
    """The steps of pre-ranking in their order; none where there is a single one, which needs no name."""
    named = dict.fromkeys(row.get("stage") for row in metrics.get("ablation") or [])
    return [step for step in named if step is not None and step != ALL_STEPS]


def is_reference(arm: str) -> bool:
    """Whether the engine added this arm by itself."""
    return arm in REFERENCE_ARMS


def reference_arms(metrics: Mapping[str, Any]) -> dict[str, str]:
    """The arms that cannot be shipped, and what they are: the engine's own, and those that know the truth."""
    return {**REFERENCE_ARMS, **(metrics.get("references") or {})}


# Words of the cascade that a page explains where they first appear.
TERMS: dict[str, str] = {
    "RCS": _RCS,
    "single-objective RCS": _ONE,
    "pre-ranking set": "Candidates that pre-ranking receives: with one step those that retrieval passes on.",
    "competitive set": "Candidates that pre-ranking passes to ranking and the auction.",
    "win set": "The ads that win the auction and are shown, in slot order.",
    "ideal win set": "The ads that ranking would show if it scored the whole pre-ranking set.",
    "init-bid": "The advertiser's submitted bid per click.",
    "opt-bid": "The platform's adjusted bid (optimised CPC), which ranking and the auction use; the init-bid "
    "is the advertiser's own.",
    "squashing": "The exponent s of the predicted CTR in the rank score, bid × pCTR^s.",
    "score floor": "The least rank score that takes part in the auction (an Ad Rank threshold).",
    "critical bid": "The least bid that keeps the slot.",
    "PCOC": "Mean prediction divided by the mean of what it predicts: the ranker's prediction, the true CTR "
    "or, on a log, the click model's CTR. 1 is perfect.",
    "proxy-ECE": "Calibration error of the pre-ranking model's predictions against the ranker's, not clicks.",
    "proxy-PCOC": "PCOC of the pre-ranking model's predictions against the ranker's, not clicks.",
    "GAUC": "AUC within a request, averaged over requests with their numbers of candidates as weights.",
    "virtual item": "An item of score 0 and label y0 in every list, which anchors the scale of a list loss.",
}
