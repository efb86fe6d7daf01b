"""Questions to a finished run, or to an imported log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cascade_sim.api.arguments import (
    RunLike,
    Texts,
    as_texts,
    at_least_one,
    plain_arguments,
    run_path,
    trusted,
)
from cascade_sim.api.results import (
    CompareResult,
    LandscapeResult,
    OffPolicyResult,
    TraceResult,
    WhatIfResult,
)
from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.foundation.loading import loading

if TYPE_CHECKING:
    from cascade_sim.diagnostics.reopen import Trust
    from cascade_sim.foundation.progress import Progress
    from cascade_sim.scenario.questions import Estimand
    from cascade_sim.scenario.schema import Scenario
    from cascade_sim.scenario.targets import Target

POINTS = 21  # bids of a landscape
MAX_BID = 1e9


@plain_arguments
def whatif(
    run: RunLike,
    changes: Mapping[str, Any] | None = None,
    *,
    arm: str | None = None,
    requests: int | None = None,
    out: str | Path | None = None,
    trust: Trust = False,
    quiet: bool = True,
    **parameters: Any,
) -> WhatIfResult:
    """Re-evaluate a finished run under other serving parameters (same requests, common random numbers).

    Args:
        run: run folder, imported log, RunResult or ImportResult.
        changes: {path: value or list of values}; a path is a key of the scenario or its unambiguous end, as
            "auction.reserve_cpc". One parameter may have a list: each value is evaluated by itself.
        arm: the arm to change; by default the baseline.
        requests: number of leading requests; by default all of the evaluation.
        out: folder for JSON, CSV and HTML.
        trust: whether to run the code of custom model classes that the run folder contains, or a function
            that decides. The return value of `run` is trusted.
        quiet: show no progress.
        **parameters: further changes by the end of their path: reserve_cpc=0.2.

    Returns:
        WhatIfResult; `.frame()` has both values, difference and lift with 95 % CIs.

    Raises:
        UserError: an unknown parameter or value, or one that needs another run.

    >>> whatif("runs/quick", {"auction.reserve_cpc": [0.1, 0.2]}, arm="ltr").frame()["setting"].nunique()
    2
    """
    from cascade_sim.counterfactual.whatif import check_out, what_if_study, write_answer
    from cascade_sim.foundation.progress import Progress
    from cascade_sim.scenario.overrides import Refused, refuse

    path = run_path(run)
    if not (changes is None or isinstance(changes, Mapping)):
        raise UserError(f"changes: expected a dict as {{'auction.reserve_cpc': 0.2}}, found {changes!r}")
    asked = {**(changes or {}), **parameters}
    at_least_one(requests=requests)
    if out is not None:
        check_out(Path(out))
    try:
        with Progress(quiet) as progress:
            answer = what_if_study(path, asked, arm, requests or 0, progress, trusted(run, trust))
    except Refused as reason:
        words = [f"{key}={value}" for key, value in asked.items()]
        raise refuse(reason, words) from None
    return WhatIfResult(answer, tuple(write_answer(answer, Path(out))) if out is not None else ())


@plain_arguments
def compare(
    first: RunLike, *others: RunLike, arm: str | None = None, unpaired: bool = False
) -> CompareResult:
    """Compare finished runs: every other run with the first, in scenario and in metrics.

    Args:
        first: run folder or RunResult that the others are compared with.
        *others: further runs.
        arm: compare this arm alone; by default all arms that the runs share.
        unpaired: compare as independent samples, although the runs have the same requests.

    Returns:
        CompareResult; `.frame()` has a row per run, arm and metric with 95 % CIs.

    Raises:
        UserError: runs that are not comparable (other SEMANTICS, no common arm).

    >>> compare("runs/quick", "runs/quick").frame().columns.tolist()[:4]
    ['first', 'other', 'arm', 'metric']
    """
    from cascade_sim.diagnostics.compare import compare_runs

    return CompareResult(compare_runs([run_path(other) for other in (first, *others)], arm, unpaired))


@plain_arguments
def off_policy(
    run: RunLike,
    changes: Mapping[str, Any] | Sequence[str] = (),
    *,
    estimand: str | None = None,
    estimator: Texts = (),
    reward: str | None = None,
    truth: bool = True,
    trust: Trust = False,
    quiet: bool = True,
) -> OffPolicyResult:
    """Estimate the value of another policy from the randomised logs of a run (off-policy evaluation).

    Changed parameters are evaluated as a rollout: fixed at their values, with the lift over the current
    values fixed as well (estimand "launch"), or with the log\'s randomisation around the new value
    ("jittered").

    Args:
        run: run folder, imported log, RunResult or ImportResult.
        changes: {path: value} or texts "path=value"; by default the scenario's off_policy.targets.
        estimand: "launch" or "jittered"; by default the scenario's off_policy.estimand.
        estimator: names of estimators; by default all that apply.
        reward: the reward that `.frame()` reports, "revenue" or "clicks"; by default revenue, of a log
            without prices clicks.
        truth: also serve the policy in the simulator, for comparison; no estimator has access to it.
        trust: whether to run the code of custom model classes that the run folder contains, or a function
            that decides. The return value of `run` is trusted.
        quiet: show no progress.

    Returns:
        OffPolicyResult; `.frame()` has a row per target and estimator.

    Raises:
        UserError: a run without randomised logs, an unknown parameter or estimator.

    >>> randomised = ["auction.reserve_cpc=0.2", "off_policy={randomise: {reserve_cpc: 0.3}}"]
    >>> _ = run("quick", out="runs/randomised", set=randomised)
    >>> off_policy("runs/randomised", {"auction.reserve_cpc": 0.25}, truth=False).frame()["target"].nunique()
    1
    """
    from cascade_sim.foundation.progress import Progress
    from cascade_sim.scenario.questions import ESTIMANDS

    if not (estimand is None or estimand in ESTIMANDS):
        raise UserError(f"--estimand: {unknown_name('choice', estimand, ESTIMANDS)}")
    if isinstance(changes, Mapping):
        changes = [f"{key}={value}" for key, value in changes.items()]
    changes = as_texts(changes)
    with Progress(quiet) as progress:
        answers, slopes = _off_policy(
            run_path(run),
            trusted(run, trust),
            changes,
            cast("Estimand | None", estimand),
            as_texts(estimator),
            truth,
            progress,
        )
    return OffPolicyResult(answers, slopes, _known_reward(reward, answers))


def _known_reward(asked: str | None, answers: Mapping[str, dict[str, Any]]) -> str:
    """The reward that is reported: the one asked for, else revenue where it is known."""
    known = [*next(iter(answers.values()))["rewards"]] if answers else []
    if asked is not None and asked not in known and known:
        would = "prices (price)" if asked == "revenue" else "outcomes (click)"
        raise UserError(
            f"--reward {asked}: {would} would have to be logged; this log has {' and '.join(known)}"
        )
    return asked or ("revenue" if "revenue" in known or not known else known[0])


def _off_policy(
    path: Path,
    trust: Trust,
    changes: Sequence[str],
    estimand: Estimand | None,
    estimators: Sequence[str],
    truth: bool,
    progress: Progress,
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The answers for what is asked, or for the scenario's targets, and the slopes of the parameters."""
    from cascade_sim.diagnostics.reopen import reopen
    from cascade_sim.logs.store.store import open_store
    from cascade_sim.ope import study
    from cascade_sim.ope.estimates import ESTIMATORS
    from cascade_sim.ope.log import baseline_spec
    from cascade_sim.ope.winners_log import winners_answers
    from cascade_sim.scenario.log_support import about_of, find_log
    from cascade_sim.scenario.targets import parse_target

    for name in estimators:
        if name not in ESTIMATORS:
            raise UserError(f"--estimator: {unknown_name('estimator', name, ESTIMATORS)}")
    _asked(changes, "launch")  # a mistake is told before anything is opened
    opened = reopen(path, trust)
    scenario = opened.scenario
    if scenario.world.replay is not None and about_of(scenario.world, path)[0].level == "winners":
        if not changes:
            raise UserError(f"{path}: say what to change with --set, as in slates.temperature=0.1")
        place = find_log(scenario.world.replay.log, path)
        assert place is not None
        asked = _asked(changes, "launch")
        with progress.stage("estimates", len(asked), "targets"):
            return winners_answers(open_store(place), scenario.seed, asked, estimators), {}
    sim = opened.sim
    if not sim.environment.has("randomised_logs"):
        from cascade_sim.ope.market_log import market_answers

        if not changes:
            raise UserError(f"{path}: say what to change with --set, as in slates.temperature=0.1")
        asked = _asked(changes, "launch")
        with progress.stage("estimates", len(asked), "targets"):
            return market_answers(sim, opened.arm(), asked, estimators), {}
    kind = estimand or (scenario.off_policy.estimand if scenario.off_policy is not None else "launch")
    asked = _asked(changes, kind)
    _refuse_targets(path, scenario, asked)
    assert scenario.off_policy is not None
    targets = asked or [
        parse_target(name, words, kind) for name, words in scenario.off_policy.targets.items()
    ]
    _refuse_estimators(estimators, targets)
    arm, spec = opened.arm(), baseline_spec(scenario)
    for model in (target.model for target in targets if target.model is not None):
        section = spec.ranking.model_copy(update={"model": model})
        opened.load_models(spec.model_copy(update={"ranking": section}))
    logs = study.read_logs(sim, path)
    listed = asked or study.with_references(targets, logs, kind)
    with progress.stage("estimates", len(listed), "targets") as bar:
        answers = study.answers(sim, arm, logs, listed, estimators, bar.advance)
        has_parameters = logs.parameters is not None and any(not target.is_slate for target in listed)
        slopes = study.slope_answers(sim, arm, logs.parameters) if has_parameters and logs.parameters else {}
    if truth:  # only now: nothing above has seen it
        with progress.stage("truth", len(listed), "targets") as bar:
            study.add_truth(answers, sim, arm, logs, listed, bar.advance)
            if slopes and logs.parameters:
                study.add_true_slopes(slopes, sim, arm, logs.parameters)
    return answers, slopes


def _asked(changes: Sequence[str], estimand: Estimand) -> list[Target]:
    """The policy that a command asks about; nothing if it changes nothing."""
    from cascade_sim.scenario.targets import parse_target

    try:
        return [parse_target("the asked policy", changes, estimand)] if changes else []
    except UserError as error:
        raise UserError(f"--set {error}") from None


def _refuse_estimators(names: Sequence[str], targets: Sequence[Target]) -> None:
    """UserError where none of the named estimators answers any of the questions."""
    from cascade_sim.ope.estimates import PARAMETER_ESTIMATORS, estimators_of

    known = list(dict.fromkeys(name for target in targets for name in estimators_of(target)))
    if not names or set(names) & set(known):
        return
    is_kept = any(target.is_launch for target in targets) and set(names) <= set(PARAMETER_ESTIMATORS)
    hint = "; it weighs the log's own noise around another centre: --estimand jittered" if is_kept else ""
    raise UserError(f"--estimator {', '.join(names)}: here {', '.join(known)} answer{hint}")


def _refuse_targets(path: Path, scenario: Scenario, asked: Sequence[Target]) -> None:
    """UserError where the run's logs cannot answer, naming the key to set."""
    from cascade_sim.ope.log import baseline_spec
    from cascade_sim.scenario.checks import target_fault

    if scenario.off_policy is None:
        raise UserError(
            f"{path}: nothing was randomised in this run, so its logs cannot say what another policy "
            "would do; add off_policy: {randomise: {reserve_cpc: 0.3}} to the scenario and run it again"
        )
    for target in asked:
        fault = target_fault(target, scenario.off_policy, baseline_spec(scenario), scenario)
        if fault:
            raise UserError(f"--set {target.words}: {fault}")
    if not asked and not scenario.off_policy.targets:
        raise UserError(
            f"{path}: the scenario has no off_policy.targets; say what to change with --set KEY=VALUE"
        )


@plain_arguments
def trace(
    run: RunLike,
    request: int | str,
    *,
    ad: int | str | None = None,
    arm: str | None = None,
    trust: Trust = False,
) -> TraceResult:
    """Explain one request: its page and, with `ad`, the rank and the cut-off of that ad at each stage.

    Args:
        run: run folder, imported log, RunResult or ImportResult.
        request: request id of the evaluate log, or its number from 0; of an imported log also its name.
        ad: ad id; of an imported log also its name.
        arm: by default the baseline.
        trust: whether to run the code of custom model classes that the run folder contains, or a function
            that decides. The return value of `run` is trusted.

    Returns:
        TraceResult; as text it is the output of the command line.

    Raises:
        UserError: an unknown request, ad or arm.

    >>> trace("runs/quick", 0, ad=40).stages()["stage"].tolist()[0]
    'retrieval'
    """
    with loading():
        from cascade_sim.diagnostics import trace as explained
        from cascade_sim.diagnostics.reopen import reopen

    return TraceResult(explained.trace(reopen(run_path(run), trusted(run, trust)), request, ad, arm))


@plain_arguments
def landscape(
    run: RunLike,
    ad: int | str,
    *,
    arm: str | None = None,
    bids: Sequence[float] | None = None,
    points: int | None = None,
    requests: int | None = None,
    trust: Trust = False,
    quiet: bool = True,
) -> LandscapeResult:
    """Compute the bid landscape of an ad: impressions, clicks and cost by bid, over the run's evaluation.

    Args:
        run: run folder, imported log, RunResult or ImportResult.
        ad: ad id; of an imported log also its name.
        arm: by default the baseline.
        bids: bids per click, each in (0, 1e9].
        points: number of bids from a quarter of the ad's bid to four times that; 21 by default.
        requests: number of leading requests; by default all of the evaluation.
        trust: whether to run the code of custom model classes that the run folder contains, or a function
            that decides. The return value of `run` is trusted.
        quiet: show no progress.

    Returns:
        LandscapeResult; `.frame()` has a row per bid.

    Raises:
        UserError: an unknown ad or arm, or both `bids` and `points`.

    >>> landscape("runs/quick", ad=40, bids=[0.2, 0.4, 0.8]).frame()["bid"].tolist()
    [0.2, 0.4, 0.8]
    """
    if bids is not None and points is not None:
        raise UserError("--bids and --points: give one of them")
    given = None if bids is None else checked_bids(bids)
    at_least_one(points=points, requests=requests)

    import numpy as np

    from cascade_sim.counterfactual import landscape as questions
    from cascade_sim.diagnostics.reopen import reopen
    from cascade_sim.diagnostics.trace import ad_number
    from cascade_sim.foundation.progress import Progress

    opened = reopen(run_path(run), trusted(run, trust))
    ad = ad_number(opened.sim, ad)
    served = opened.arm(arm)
    own_bid = float(opened.sim.world.init_bid[ad])
    grid = np.array(given) if given else questions.bid_grid(own_bid, points or POINTS)
    n = min(requests or opened.scenario.phases.evaluate, opened.scenario.phases.evaluate)
    with Progress(quiet) as progress, progress.stage("landscape", n) as bar:
        return LandscapeResult(questions.landscape(opened.sim, served, ad, grid, n, bar.advance))


def checked_bids(bids: Sequence[float]) -> list[float]:
    """Return the bids ascending, each once.

    Args:
        bids: bids per click.

    Returns:
        The distinct bids in ascending order.

    Raises:
        UserError: a bid that is not in (0, 1e9].

    >>> checked_bids([0.8, 0.2, 0.8])
    [0.2, 0.8]
    """
    if not (len(bids) and all(0 < bid <= MAX_BID for bid in bids)):
        raise UserError(f"--bids: each must be above 0 and at most {MAX_BID:g}, in {list(bids)}")
    return sorted({float(bid) for bid in bids})
