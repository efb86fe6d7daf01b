"""What a replayed log can be asked: its log, its stage models, and what goes beyond what was logged.

A log knows what it holds (`logged.format.About`): winners and prices alone, all bids of its auctions, or
the pre-ranking sets with their scores. An arm, or a parameter that is turned, that needs more is refused with
what would have to be logged for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascade_sim.foundation.errors import UserError, did_you_mean, unknown_name
from cascade_sim.models.features import ID_FEATURES
from cascade_sim.scenario.capabilities import CORPUS, LACKS, Capability
from cascade_sim.scenario.market import Market
from cascade_sim.scenario.plugins import path_from_working_folder
from cascade_sim.scenario.schema import (
    BUILT_IN_SCORERS,
    LOGGED,
    LOGGED_PRE,
    LOGGED_SCORE,
    ArmSpec,
    Scenario,
    World,
    resolved_arms,
)
from cascade_sim.scenario.yaml import KeyPath, Problem

if TYPE_CHECKING:
    from cascade_sim.logs.store.format import About

Blame = list[
    tuple[KeyPath, str]
]  # keys, as an arm writes them, that could be changed, each with what is wrong

AT: KeyPath = ("world", "replay")
LOG_FILE = Path("store") / "log.json"
RESPONSE_FILE = "fitted.json"
# What models may learn from in a fitted world, and what it has no use for.
FITTED_FEATURES = ("user", "context", "quality", "tier", *ID_FEATURES)

# Sections that need a capability, which a replayed log may lack.
NEEDS: dict[str, Capability] = {
    "models": "training",
    "joint": "training",
    "market": "market",
    "off_policy": "randomised_logs",
}


def find_log(log: str, folder: Path) -> Path | None:
    """The folder of an imported log: looked for beside the scenario, then from the working folder."""
    places = (folder / log, Path(log))
    return next((place for place in places if (place / LOG_FILE).is_file()), None)


def find_click_model(response: str, folder: Path) -> Path | None:
    """The folder of a fitted click model: looked for beside the scenario, then from the working folder."""
    places = (folder / response, Path(response))
    return next((place for place in places if (place / RESPONSE_FILE).is_file()), None)


def click_model_seal(place: Path) -> str:
    """The seal that a fitted click model has."""
    from cascade_sim.storage.folder import read_object

    return str(read_object(place / RESPONSE_FILE).get("seal"))


def about_of(world: World, folder: Path) -> tuple[About, str]:
    """What is known of the log that a world replays, and its seal; UserError if there is none."""
    assert world.replay is not None
    place = find_log(world.replay.log, folder)
    if place is None:
        near = [str(file.parent.parent) for file in folder.glob(f"*/{LOG_FILE}")]
        hint = did_you_mean(world.replay.log, near) or "; make one with import-logs"
        raise UserError(f"no imported log in '{world.replay.log}'{hint}")
    file = place / LOG_FILE
    stat = file.stat()
    return _read(str(place), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=8)
def _read(place: str, changed: int, size: int) -> tuple[About, str]:
    from cascade_sim.logs.store.store import read_log_store
    from cascade_sim.storage.folder import read_object

    return read_log_store(place)[1], str(read_object(Path(place) / LOG_FILE)["seal"])


def world_from_working_folder(world: World, folder: Path) -> World:
    """The same world; of a replayed log with the path from the working folder, and the seal of the log."""
    if world.replay is None:
        return world
    place = find_log(world.replay.log, folder)
    assert place is not None  # else it was refused
    found: dict[str, Any] = {"log": path_from_working_folder(place), "digest": about_of(world, folder)[1]}
    if world.replay.fitted is not None:
        response = find_click_model(world.replay.fitted.click_model, folder)
        assert response is not None  # else it was refused
        fitted = {"click_model": path_from_working_folder(response), "digest": click_model_seal(response)}
        found["fitted"] = world.replay.fitted.model_copy(update=fitted)
    return world.model_copy(update={"replay": world.replay.model_copy(update=found)})


_accepting: list[None] = []  # an entry for each that is under way, in whatever thread


@contextmanager
def accepting_mismatch() -> Iterator[None]:
    """Continue inside with logs that their rule does not reproduce; answers are no evidence about them."""
    _accepting.append(None)
    try:
        yield
    finally:
        _accepting.pop()


def is_accepting() -> bool:
    """Whether `accepting_mismatch` is said."""
    return bool(_accepting)


def with_acceptance(world: World) -> World:
    """The same world; of a log, accepted as it is where `accepting_mismatch` is said."""
    if world.replay is None or not _accepting:
        return world
    return world.model_copy(update={"replay": world.replay.model_copy(update={"accept_mismatch": True})})


def stage_models_of(scenario: Scenario, about: About | None) -> tuple[str, ...]:
    """Who may sit in a stage without being trained: in a synthetic world, or of a replayed log."""
    if about is None:
        return BUILT_IN_SCORERS
    seats = ["random", "constant"]
    if scenario.world.has("truth"):
        seats += ["truth"]
    seats += [LOGGED] if about.has("pctr") else []
    seats += [LOGGED_PRE] if about.has("pre_score") else []
    return (*seats, *(f"{LOGGED_SCORE}{name}" for name in about.scores))


def logged_about(scenario: Scenario, folder: Path) -> About | None:
    """What is known of the log that a scenario replays; None if it draws its world, or there is no log."""
    if scenario.world.replay is None:
        return None
    try:
        return about_of(scenario.world, folder)[0]
    except UserError:
        return None  # said once, by check_logged


def check_logged(scenario: Scenario, given: Collection[KeyPath], folder: Path) -> Iterator[Problem]:
    """What is wrong with `world.replay`, and with sections that a replayed log has no use for."""
    world = scenario.world
    if world.replay is None:
        return
    for key in World.model_fields:
        if key != "replay" and ("world", key) in given:
            text = "has no meaning with replay: the log takes the place of a synthetic world; remove it"
            yield Problem(("world", key), text, uses=(("world", key), AT))
    fitted = world.replay.fitted
    for section, capability in NEEDS.items():
        if getattr(scenario, section) and not world.has(capability):
            yield Problem((section,), LACKS[world.kind][capability], uses=((section,), AT))
    for section in ("phases", "market"):
        if getattr(getattr(scenario, section), "exploration_pool", None) == "corpus":
            pool = (section, "exploration_pool")
            yield Problem(pool, f"{CORPUS}; use retrieved", uses=(pool, AT))
    try:
        about, seal = about_of(world, folder)
    except UserError as error:
        yield Problem((*AT, "log"), str(error), uses=(AT,))
        return
    if world.replay.digest not in (None, seal):
        text = (
            f"the log in '{world.replay.log}' is not the one that this scenario was resolved with; "
            "give that one, or remove digest"
        )
        yield Problem((*AT, "digest"), text, uses=(AT,))
    if world.replay.resample == "user" and not about.counts.users:
        text = "the log does not say which user a request is of; map `user`, or use request or hour"
        yield Problem((*AT, "resample"), text, uses=(AT,))
    effects = world.replay.slot_effects
    if effects is not None:
        if len(effects) < about.slots:
            text = f"{len(effects)} slot effects for pages of {about.slots} slots; give one for each"
            yield Problem((*AT, "slot_effects"), text, uses=(AT,))
        elif any(b > a for a, b in zip(effects, effects[1:], strict=False)):
            yield Problem(
                (*AT, "slot_effects"), "slot effects never rise from one slot to the next", uses=(AT,)
            )
    if fitted is not None:
        yield from _check_fitted(scenario, folder)
        yield from _check_fitted_market(scenario, about)
        yield from _check_fitted_logs(scenario, folder)
        return
    for phase in ("cold_start", "log", "shadow"):
        if getattr(scenario.phases, phase):
            text = "a replayed log has no such phase; use 0"
            yield Problem(("phases", phase), text, uses=(("phases", phase), AT))
    n = about.counts.requests
    if scenario.phases.evaluate > n:
        text = f"{scenario.phases.evaluate} is more than the {n} requests of the log; use at most {n}"
        yield Problem(("phases", "evaluate"), text, uses=(("phases", "evaluate"), AT))


def _check_fitted(scenario: Scenario, folder: Path) -> Iterator[Problem]:
    """What is wrong with `world.replay.fitted`, and with what a fitted world is asked."""
    assert scenario.world.replay is not None and scenario.world.replay.fitted is not None
    fitted, at = scenario.world.replay.fitted, (*AT, "fitted")
    place = find_click_model(fitted.click_model, folder)
    if place is None:
        text = f"no fitted click model in '{fitted.click_model}'; make one with fit-world"
        yield Problem((*at, "click_model"), text, uses=(at,))
    elif fitted.digest not in (None, click_model_seal(place)):
        text = (
            f"the click model in '{fitted.click_model}' is not the one that this scenario was resolved with; "
            "give that one, or remove digest"
        )
        yield Problem((*at, "digest"), text, uses=(at,))
    for name, spec in scenario.models.items():
        for feature in spec.features:
            if feature not in FITTED_FEATURES:
                text = unknown_name("feature of a fitted world", feature, FITTED_FEATURES)
                key = ("models", name, "features")
                yield Problem(key, text, uses=(key, AT))


def _check_fitted_market(scenario: Scenario, about: About) -> Iterator[Problem]:
    """What a market in a world fitted to a log cannot have."""
    market = scenario.market
    if market is None:
        return
    usual = Market()
    for key in ("requests_per_second", "profile"):
        if getattr(market, key) != getattr(usual, key):
            text = "requests of a world fitted to a log come when the log's came; remove it"
            yield Problem(("market", key), text, uses=(("market", key), AT))
    if market.users.sessions is not None:
        text = "requests of a world fitted to a log come when, and by whom, the log's came; remove it"
        yield Problem(("market", "users", "sessions"), text, uses=(AT,))
    if market.compute is not None:
        text = (
            "requests of a log have slots and reserves of their own, which answers that come too late do not "
            "know; remove it, or fit a synthetic world (--parametric)"
        )
        yield Problem(("market", "compute"), text, uses=(AT,))
    if not about.counts.users:
        no_users = "the log does not say which user a request is of; map `user`, or remove it"
        if market.users.fatigue.strength > 0:
            yield Problem(("market", "users", "fatigue"), no_users, uses=(AT,))
        if market.designs is not None and "user" in market.designs.kinds:
            yield Problem(("market", "designs", "kinds"), no_users, uses=(AT,))
    if market.budgets is not None and market.budgets.logged and not about.columns.get("budgets"):
        text = "the log has no budgets; map the table `budgets`, or leave them to be drawn"
        yield Problem(("market", "budgets", "logged"), text, uses=(AT,))


def _check_fitted_logs(scenario: Scenario, folder: Path) -> Iterator[Problem]:
    """What the randomised logs of a world fitted to a log cannot have."""
    section = scenario.off_policy
    if section is None:
        return
    baseline = resolved_arms(scenario)[scenario.report.baseline]
    drawn = None if section.randomise is None else section.randomise.reserve_cpc
    if drawn is not None and baseline.auction.logged_reserves:
        text = (
            "each request has the reserve that was logged, so there is no one reserve to draw around; set "
            "auction: {logged_reserves: false, reserve_cpc: …}"
        )
        yield Problem(("off_policy", "randomise", "reserve_cpc"), text, uses=(AT,))
    if section.slates is not None and _fewest_slots(scenario.world, folder) < baseline.slots:
        text = (
            f"pages of the log have from {_fewest_slots(scenario.world, folder)} slots on, and pages are "
            f"drawn with {baseline.slots}; use cascade.slots of the shortest page, or remove it"
        )
        yield Problem(("off_policy", "slates"), text, uses=(AT,))


def _fewest_slots(world: World, folder: Path) -> int:
    from cascade_sim.logs.store.store import open_store

    assert world.replay is not None
    place = find_log(world.replay.log, folder)
    assert place is not None
    return int(open_store(place).requests["slots"].min(initial=1000))


def evidence_conflicts(scenario: Scenario, arm: ArmSpec, about: About) -> Iterator[Blame]:
    """What an arm asks of a log that was not logged; with what would have to be."""
    yield from _of_retrieval(arm, about)
    yield from _of_pre_ranking(arm, about)
    yield from _of_ranking(scenario, arm, about)
    yield from _of_auction(scenario, arm, about)


def largest_of(about: About) -> int:
    """The candidates of the largest request; a stage hands on two or more by its schema."""
    return max(about.largest_request, 2)


def _of_retrieval(arm: ArmSpec, about: About) -> Iterator[Blame]:
    at, largest = ("retrieval", "size"), largest_of(about)
    if not arm.retrieval.is_similarity:
        text = f"{CORPUS}, so no other retriever can be asked; remove it"
        key = "kind" if arm.retrieval.model is None else "model"
        yield [(("retrieval", "routes" if arm.retrieval.routes else key), text)]
        return
    if arm.retrieval_size > largest:
        text = (
            f"{arm.retrieval_size} is more than the {largest} candidates of the largest logged request: ads "
            "that retrieval did not bring are not in the log, and would have to be logged"
        )
        yield [(at, text)]
    elif arm.retrieval_size < largest:
        text = (
            f"{arm.retrieval_size} would leave out some of up to {largest} logged candidates, and the log "
            "has no "
            "score of retrieval to say which; it would have to be logged"
        )
        yield [(at, text)]
    if arm.slots > about.slots:
        text = (
            f"{arm.slots} slots, but the logged pages have at most {about.slots}: who clicks further down "
            "was "
            "not observed; ask for fewer"
        )
        yield [(("slots",), text)]


def _of_pre_ranking(arm: ArmSpec, about: About) -> Iterator[Blame]:
    pre = arm.pre_ranking
    if about.level != "pre_ranking":
        why = (
            f"the log completeness is '{about.level}': which ads pre-ranking left out was not logged, so "
            "other stage sizes and stage models cannot be tried. The pre-ranking set with its scores would "
            "have to be logged (candidates with stage retrieved, and pre_score)"
        )
        if pre.model != "constant" or pre.bid != "none":
            yield [(("pre_ranking", "model"), why), (("pre_ranking", "bid"), why)]
        if arm.sizes is not None:
            yield [(("pre_ranking", "sizes"), why)]
        elif pre.size < largest_of(about):
            yield [(("pre_ranking", "size"), why)]
        return
    if arm.sizes is not None:
        text = "a rule for sizes is learned on shadowed requests, which a log does not have; use size"
        yield [(("pre_ranking", "sizes"), text)]
    if pre.model == LOGGED_PRE and about.pre_score == "score" and pre.bid != "none":
        text = "the logged pre_score is a score with the bid in it already; use bid: none"
        yield [(("pre_ranking", "bid"), text), (("pre_ranking", "model"), text)]
    if pre.bid == "init" and not about.has("init_bid"):
        text = "the log has no init_bid, the advertiser's own bid; use opt, which is the auction's bid"
        yield [(("pre_ranking", "bid"), text)]


def _of_ranking(scenario: Scenario, arm: ArmSpec, about: About) -> Iterator[Blame]:
    if arm.ranking.bid == "init" and not about.has("init_bid"):
        text = "the log has no init_bid, the advertiser's own bid; use opt, which is the auction's bid"
        yield [(("ranking", "bid"), text)]
    for stage in ("pre_ranking", "ranking"):
        seat = getattr(arm, stage)
        fusion = scenario.fusions.get(seat.fusion)
        if fusion is not None and fusion.pcvr and not about.has("pcvr"):
            text = f"fusion '{seat.fusion}' looks at a pCVR, which would have to be logged (pcvr)"
            yield [((stage, "fusion"), text)]
    if arm.bidding.rule != "none":
        text = "bids of a replayed log are the logged ones, whatever rule made them; use none"
        yield [(("bidding", "rule"), text)]
    if arm.bidding.pcvr != "known":
        yield [(("bidding", "pcvr"), "bids of a replayed log are the logged ones; remove it")]


def _of_auction(scenario: Scenario, arm: ArmSpec, about: About) -> Iterator[Blame]:
    auction, floor = arm.auction, about.bids_logged_above
    if auction.charging != about.charging:
        text = f"the logged bids are per {about.charging}; as bids per {auction.charging} they mean nothing"
        yield [(("auction", "charging"), text)]
    if not auction.logged_reserves and floor is not None and auction.reserve_cpc < floor:
        text = (
            f"{auction.reserve_cpc:g} is below {floor:g}, and bids below that were not logged: who would "
            "have "
            f"won is unknown. Use {floor:g} or more, or log the bids that a reserve kept out"
        )
        yield [(("auction", "reserve_cpc"), text)]
    if about.level != "winners":
        return
    deployed = scenario.auction
    why = (
        "the log completeness is 'winners': the losers and their bids are unknown. All bids of the "
        "auction would have to be logged (candidates with stage ranked)"
    )
    for key in ("pricing", "squashing", "score_floor"):
        if getattr(auction, key) != getattr(deployed, key):
            yield [(("auction", key), why)]


def seat_fault(stage: str, name: str, about: About, known: Collection[str]) -> str:
    """Why no model of this name can serve in a stage of a replayed log."""
    if name == "truth":
        return "a log does not know the true CTR; use logged, the ranker's own prediction"
    if name == LOGGED:
        return "the log has no pCTR; it would have to be logged (pctr)"
    if name == LOGGED_PRE:
        return "the log has no prediction of a pre-ranking model; it would have to be logged (pre_score)"
    if name.startswith(LOGGED_SCORE):
        own = name.removeprefix(LOGGED_SCORE)
        return f"the log has no score of a model '{own}'; it would have to be logged (score.{own})"
    return unknown_name("model", name, known)
