"""What randomised logs say about other policies, beside the truth: words and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.report.figures.off_policy import off_policy_targets
from cascade_sim.analysis.report.readings import (
    ESS_OF,
    ESTIMATOR_NAMES,
    is_launch,
    ordered_targets,
    shown_estimate,
    targets_of,
)
from cascade_sim.analysis.report.section import Columns, Figure, Section, Text, titled
from cascade_sim.analysis.report.tables import Cell, Row, Table, cell
from cascade_sim.analysis.report.text_helpers import percent_number
from cascade_sim.analysis.statistics.estimates import (
    MISSING,
    NBSP,
    Estimate,
    decimals_for,
    estimate,
    finite,
    number_text,
)

PARAMETERS = {"reserve_cpc": "log reserve", "squashing": "squashing"}
LAUNCHED_BY = "local_dr"  # whose lift is the launch's
REWARDS = {"revenue": "Revenue per request", "clicks": "Clicks per request"}


def off_policy_section(metrics: Mapping[str, Any]) -> Section | None:
    """The report's section; None for a study without randomised logs."""
    part = metrics.get("off_policy")
    if not part or not part.get("targets"):
        return None
    is_pooled = bool(metrics.get("seeds"))
    figure = Figure(
        "off_policy_targets",
        off_policy_targets,
        "Off-policy estimates of revenue relative to the truth",
        "Estimates of revenue per request relative to the truth (vertical line), with 95 % intervals, by "
        "target. Crosses at the edge: no estimate.",
    )
    about_slopes = (
        "Per unit of the logarithm of the reserve (a tenth: about ten percent) and of squashing, with the "
        "log's noise: what is fixed may respond otherwise. The truth is a finite difference, served by the "
        "simulator."
    )
    told = [] if is_pooled else [Text(line, "small") for line in refusals(part)]
    return Section(
        "off-policy",
        "Off-policy estimates",
        off_policy_words(part, is_pooled),
        (
            *titled(
                "Other parameters", targets_table(part, "parameters", "revenue"), *_asked(part, "parameters")
            ),
            *titled("Other pages", targets_table(part, "slates", "revenue"), *_asked(part, "slates")),
            *told,
            Text(_about(part, is_pooled)),
            Columns((figure,)),
            *titled(
                "How revenue responds to each parameter", slopes_table(part), Text(about_slopes, "small")
            ),
        ),
        short="Logs alone",
    )


def question(target: Mapping[str, Any]) -> str:
    """What is asked of the log, in a sentence: a launch, or its own noise or draw around another value."""
    if target["log"] == "winners":
        return (
            "Asked: the ad of each slot drawn from all ads of the log, evenly or by its predicted click "
            "rate, which is fitted to other requests of the log."
        )
    if target["log"] == "slates":
        return (
            "Asked: pages drawn as the log draws them, from the same list at the list's prices. Not a launch "
            "of an order without a draw."
        )
    if is_launch(target):
        return (
            "Asked: a launch without jitter, every jittered parameter fixed at its value. Lifts are over "
            "the current "
            "values, fixed as well, as whatif has them."
        )
    return (
        "Asked: the log's own jitter around another centre, not a launch. Lifts are over the jittered log; "
        "where the response bends within the noise, a launch without jitter earns otherwise."
    )


def _asked(part: Mapping[str, Any], log: str) -> list[Text]:
    """The questions of a log's targets."""
    return [Text(text, "small") for text in dict.fromkeys(map(question, targets_of(part, log).values()))]


def estimator_rows(answer: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The estimators of an answer, in the order of ESTIMATOR_NAMES."""
    return {name: answer["estimators"][name] for name in ESTIMATOR_NAMES if name in answer["estimators"]}


def targets_table(part: Mapping[str, Any], log: str, reward: str) -> Table | None:
    """A row per target: the truth, then each estimator's answer with its interval, or its refusal."""
    targets = targets_of(part, log)
    if not targets:
        return None
    first = estimator_rows(next(iter(targets.values()))["rewards"][reward])
    has_lifts = LAUNCHED_BY in first
    rows = []
    for name, target in targets.items():
        answer = target["rewards"][reward]
        decimals = _decimals(targets, reward)
        truth = estimate(answer.get("truth"))
        plain: Mapping[str, Any] = next(
            (answer["estimators"][key] for key in ESS_OF if key in answer["estimators"]), {}
        )
        cells = [cell(Estimate(truth.value), decimals), Cell(percent_number(plain.get("ess_share"), 0))]
        cells += [_answer_cell(answer["estimators"][key], decimals, truth.value) for key in first]
        if has_lifts:
            cells += [Cell(_lift(answer.get("true_lift"))), _lift_cell(plain.get("lift"))]
        rows.append(Row(name, cells, hint=target["changes"], tag=target["changes"]))
    columns = ["truth", "ESS %", *(ESTIMATOR_NAMES.get(key, key) for key in first)]
    if has_lifts:
        columns += ["lift %, truth", f"lift %, {ESTIMATOR_NAMES[LAUNCHED_BY]}"]
    return Table(
        f"{REWARDS[reward]}, from the log of {'pages' if log == 'slates' else log}", "Target", columns, rows
    )


def _answer_cell(row: Mapping[str, Any], decimals: int, truth: float | None) -> Cell:
    refused = finite(row.get("no_estimate")) or 0.0
    if refused >= 1:
        return Cell("no estimate")
    shown = cell(shown_estimate(row, truth), decimals)
    covers = finite(row.get("covers"))
    tone = "down" if covers == 0 else ""
    note = f"no estimate in {percent_number(refused, 0)} % of worlds" if refused > 0 else ""
    return Cell(shown.text, shown.interval, shown.margin, tone, note)


def _decimals(targets: Mapping[str, Any], reward: str) -> int:
    values = [estimate(target["rewards"][reward]["logged"]).value for target in targets.values()]
    return decimals_for(values, 4)


def slopes_table(part: Mapping[str, Any]) -> Table | None:
    """A row per parameter: how revenue and clicks respond to it, from the log and served."""
    if not part.get("slopes"):
        return None
    rows = []
    for parameter, rewards in part["slopes"].items():
        cells = []
        for reward in REWARDS:
            row = rewards[reward]
            own = estimate(row["estimate"])
            decimals = decimals_for([own.value, own.low, own.high], 3)
            truth = estimate(row.get("truth")).value
            cells += [_answer_cell(row, decimals, truth), cell(Estimate(truth), decimals)]
        rows.append(Row(PARAMETERS.get(parameter, parameter), cells))
    columns = [text for reward in REWARDS for text in (f"{reward}, from the log", f"{reward}, truth")]
    return Table("Response per unit of each parameter", "Parameter", columns, rows)


def answer_table(name: str, target: Mapping[str, Any], reward: str) -> Table:
    """One target in full, for a terminal: a row per estimator with the figures of its weights."""
    return (_launch_table if is_launch(target) else _weights_table)(name, target, reward)


def _launch_table(name: str, target: Mapping[str, Any], reward: str) -> Table:
    """Values, lifts and bias bounds of a launch; the current values fixed, by the estimator LAUNCHED_BY."""
    answer = target["rewards"][reward]
    decimals = decimals_for([estimate(answer["logged"]).value], 4)
    rows = []
    for key, row in estimator_rows(answer).items():
        own, lift = estimate(row["estimate"]), _hundredfold(row.get("lift"))
        is_refused = row["verdict"] == "refuse"
        cells = [
            Cell("no estimate" if is_refused else number_text(own.value, decimals)),
            Cell("" if is_refused else cell(own, decimals).interval),
            Cell(number_text(lift.value, 1, signed=True)),
            Cell(cell(lift, 1, signed=True).interval),
            Cell(number_text(_percent_of(row.get("lift_bias")), 1)),
            Cell(number_text(finite(row.get("inside")), 0)),
            Cell(percent_number(row.get("ess_share"))),
            Cell(row["verdict"]),
        ]
        rows.append(Row(ESTIMATOR_NAMES.get(key, key), cells))
    blank = [Cell("")] * 6
    current = answer["estimators"].get(LAUNCHED_BY, {}).get("current")
    if current:
        shown = cell(estimate(current), decimals)
        label = f"the current values ({ESTIMATOR_NAMES[LAUNCHED_BY]})"
        rows.append(Row(label, [Cell(shown.text), Cell(shown.interval), *blank], "reference"))
    logged = cell(estimate(answer["logged"]), decimals)
    rows.append(
        Row("as logged, with jitter", [Cell(logged.text), Cell(logged.interval), *blank], "reference")
    )
    if "truth" in answer:
        truth = Cell(number_text(estimate(answer["truth"]).value, decimals))
        true_lift = Cell(_lift(answer.get("true_lift")))
        rows.append(Row("truth (simulator)", [truth, Cell(""), true_lift, *blank[1:]], "reference"))
    columns = ["value", "95 % interval", "lift %", "95 % interval", "bias ≤", "inside", "ESS %", "verdict"]
    return Table(_answer_title(name, target, reward), "estimator", columns, rows)


def _hundredfold(entry: Any) -> Estimate:
    own = estimate(entry)
    return Estimate(*(_percent_of(end) for end in (own.value, own.low, own.high)))


def _percent_of(value: Any) -> float | None:
    number = finite(value)
    return None if number is None else 100 * number


def _answer_title(name: str, target: Mapping[str, Any], reward: str) -> str:
    return f"{REWARDS[reward]} under {name}" + (f" ({target['changes']})" if target["changes"] else "")


def _weights_table(name: str, target: Mapping[str, Any], reward: str) -> Table:
    answer = target["rewards"][reward]
    decimals = decimals_for([estimate(answer["logged"]).value], 4)
    rows = []
    for key, row in estimator_rows(answer).items():
        own = estimate(row["estimate"])
        is_refused = row["verdict"] == "refuse"
        mean_weight = finite(row.get("mean_weight"))
        cells = [
            Cell("no estimate" if is_refused else number_text(own.value, decimals)),
            Cell("" if is_refused else cell(own, decimals).interval),
            Cell(_lift(row.get("lift"))),
            Cell(number_text(finite(row.get("n")), 0)),
            Cell(percent_number(row.get("ess_share"))),
            Cell(MISSING if mean_weight is None else number_text(mean_weight, 3)),
            Cell(percent_number(row.get("largest_share"), 2)),
            Cell(percent_number(row.get("clipped_mass"), 2)),
            Cell(row["verdict"]),
        ]
        rows.append(Row(ESTIMATOR_NAMES.get(key, key), cells))
    for key, label in (("inner", "inner (clipped)"), ("outer", "outer (bounds)")):
        if key in answer:
            own = estimate(answer[key])
            text = "no estimate" if own.low is None else number_text(own.value, decimals)
            empty = [Cell("")] * 7
            rows.append(Row(label, [Cell(text), Cell(cell(own, decimals).interval), *empty]))
    logged = cell(estimate(answer["logged"]), decimals)
    rows.append(Row("as logged", [Cell(logged.text), Cell(logged.interval), *[Cell("")] * 7], "reference"))
    if "truth" in answer:
        truth = number_text(estimate(answer["truth"]).value, decimals)
        true_lift = _lift(answer.get("true_lift"))
        blank = [Cell("")] * 6
        rows.append(Row("truth (simulator)", [Cell(truth), Cell(""), Cell(true_lift), *blank], "reference"))
    title = _answer_title(name, target, reward)
    columns = ["value", "95 % interval", "lift %", "n", "ESS %", "mean w", "max %", "clipped %", "verdict"]
    return Table(title, "estimator", columns, rows)


def reasons(target: Mapping[str, Any], reward: str) -> list[str]:
    """Why estimators of a target warn or refuse, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for key, row in estimator_rows(target["rewards"][reward]).items():
        if row.get("reason"):
            by_reason.setdefault(f"{row['verdict']}: {row['reason']}", []).append(
                ESTIMATOR_NAMES.get(key, key)
            )
        elif row.get("lift_reason"):
            text = f"{row['lift_verdict']} on the lift: {row['lift_reason']}"
            by_reason.setdefault(text, []).append(ESTIMATOR_NAMES.get(key, key))
    return [f"{', '.join(names)} {text}" for text, names in by_reason.items()]


def refusals(part: Mapping[str, Any]) -> list[str]:
    """A line per target that a weighted estimator refused, with its reason."""
    lines = []
    for name, target in ordered_targets(part).items():
        rows = estimator_rows(target["rewards"]["revenue"])
        refused = {key: row["reason"] for key, row in rows.items() if row["verdict"] == "refuse"}
        if refused:
            names = ", ".join(ESTIMATOR_NAMES.get(key, key) for key in refused)
            lines.append(f"{name}: no estimate by {names}. {next(iter(refused.values()))}")
    return lines


def off_policy_words(part: Mapping[str, Any], is_pooled: bool = False) -> list[str]:
    """How many answers were given, how many of them cover the truth, and what the direct method does."""
    counts: dict[str, list[float]] = {"given": [], "covers": [], "direct": []}
    n_refused = n_asked = 0.0
    for target in part["targets"].values():
        for key, row in target["rewards"]["revenue"]["estimators"].items():
            covers = finite(row.get("covers"))
            if key == "direct_method":
                counts["direct"] += [] if covers is None else [covers]
                continue
            n_asked += 1
            n_refused += finite(row.get("no_estimate")) or 0.0
            counts["covers"] += [] if covers is None else [covers]
    if not counts["covers"]:
        return []
    share = sum(counts["covers"]) / len(counts["covers"])
    what = "of the answers on revenue, the mean over worlds," if is_pooled else "of the answers on revenue"
    words = [
        f"From the randomised logs alone, {percent_number(share, 0)}{NBSP}% {what} that weigh what was "
        f"logged have the simulator's truth in their 95{NBSP}% interval; "
        f"{percent_number(n_refused / n_asked, 0)}{NBSP}% of the targets have no estimate, since the log "
        "explores too little for them."
    ]
    if counts["direct"]:
        hits = sum(counts["direct"]) / len(counts["direct"])
        words.append(
            "The platform's own click model alone (the direct method) never refuses, and covers the truth in "
            f"{percent_number(hits, 0)}{NBSP}%: its interval does not know its bias."
        )
    return words


def _about(part: Mapping[str, Any], is_pooled: bool) -> str:
    texts = []
    parameters = part.get("parameters")
    if parameters:
        noise = " and ".join(
            f"{sigma:g} in {PARAMETERS.get(k, k)} (around {k} {parameters['centres'][k]:g})"
            for k, sigma in parameters["sigmas"].items()
        )
        texts.append(
            f"{part['arm']} served {number_text(finite(parameters['requests']), 0)} requests with noise of "
            + noise
            + "."
        )
    slates = part.get("slates")
    if slates:
        texts.append(
            f"On {number_text(finite(slates['requests']), 0)} others the page was drawn from the first "
            f"{slates['depth']:g} ads of the ranking order at temperature {slates['temperature']:g}; a click "
            "costs what keeps an ad on that list."
        )
    texts.append(
        "ESS: share of the log that the weights leave. Red: the interval misses the truth."
        + (" Intervals are those of the mean error between worlds." if is_pooled else "")
    )
    return " ".join(texts)


def _lift_cell(entry: Any) -> Cell:
    return cell(_hundredfold(entry), 1, signed=True)


def _lift(entry: Any) -> str:
    value = estimate(entry).value if entry else None
    return MISSING if value is None else number_text(100 * value, 1, signed=True)
