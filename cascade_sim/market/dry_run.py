"""A dry run on a toy: every model, bidder and click model is built and asked once, before any work is done.

A class that cannot be built, or answers with what the engine refuses, would otherwise be found out by the
phase that needs it first, after hours. What a class draws here from generators that Python, numpy and torch
share is put back: the study begins as if nothing had been run before. Code that a class brings in only now
counts as its own from here on.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn

from cascade_sim.agents.bidding import MICROS, Feedback, MarketTime
from cascade_sim.foundation.errors import UserError
from cascade_sim.market.advertisers import MAX_BID, BidderPopulation
from cascade_sim.market.visits import ask, build_click_model
from cascade_sim.models.features import FeatureView
from cascade_sim.models.nets.codes import encoders
from cascade_sim.models.recipes import Recipe
from cascade_sim.models.training import Tables, outputs
from cascade_sim.scenario.market import Market
from cascade_sim.scenario.plugins import errors_of
from cascade_sim.scenario.schema import Scenario
from cascade_sim.storage import user_code
from cascade_sim.study.simulation import Simulation
from cascade_sim.training.modules import KINDS, build_module, find_recipe, make_scorer
from cascade_sim.world.world import init_bids

TOY = {"users": 64, "ads": 256, "advertisers": 32}
REQUESTS, CANDIDATES = 3, 5
BUDGET = 10 * MICROS


def dry_run(scenario: Scenario, home: Path = Path("."), seeds: int = 1) -> None:
    """UserError for the first class that cannot be used, and for bids that a market would refuse."""
    if not scenario.world.has("training"):
        return  # no class has a part in a replay
    is_synthetic = scenario.world.has("corpus")
    if scenario.market is not None and is_synthetic:
        for seed in range(scenario.seed, scenario.seed + seeds):
            _check_bids(scenario, seed)
    toy = scenario
    if is_synthetic:  # a world fitted to a log has the size of the log, and is soon opened
        toy = scenario.model_copy(update={"world": scenario.world.model_copy(update=TOY)})
    with _same_state():
        sim = Simulation(toy, scenario.seed, home=home)
        _models(sim)
        if scenario.market is not None:
            _bidders(sim, scenario.market)
            _users(sim, scenario.market)


@contextmanager
def _same_state() -> Iterator[None]:
    """What is drawn inside from generators that all share is drawn again after it."""
    python, numpys = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpys)


def _models(sim: Simulation) -> None:
    block = sim.arrivals.block("bench", 0, REQUESTS)
    ids = np.tile(np.arange(CANDIDATES, dtype=np.int32) % sim.world.n_ads, (len(block), 1))
    for name, spec in sim.scenario.models.items():
        view, before = sim.view(spec.features), user_code.loaded()
        module = build_module(name, spec, view, seed=0, home=sim.home)
        with errors_in_rehearsal(name):
            make_scorer(name, spec.trained_by, view, module).predict(block, ids)
            if spec.kind not in KINDS:
                _learn(name, spec.kind, view, module)
            if spec.trained_by.crosses and encoders(module) is None:
                raise UserError(f"recipe {spec.recipe} needs a net with encode_users and encode_ads")
        user_code.note_late(type(module), before)
        if spec.has_custom_recipe:
            before = user_code.loaded()
            recipe = find_recipe(name, spec, sim.home)
            with errors_in_rehearsal(name), errors_of(f"recipe {spec.recipe!r} fails", spec.recipe):
                try_loss(recipe)
            assert recipe.cls is not None
            user_code.note_late(recipe.cls, before)


@contextmanager
def errors_in_rehearsal(name: str) -> Iterator[None]:
    """Says of a model that failed on the toy where that was: the request is none of the study's."""
    try:
        yield
    except UserError as error:
        raise UserError(f"models.{name}, tried on a toy before any work: {error}") from error


def _learn(name: str, kind: str, view: FeatureView, module: nn.Module) -> None:
    """A gradient of what a module of one's own answers in training: one that has none cannot learn."""
    rows = torch.arange(REQUESTS)
    with errors_of(f"model {name!r}: training fails", kind):
        answer = outputs(module.train(), Tables(view, torch.device("cpu")), rows, torch.zeros(REQUESTS), rows)
        answer.double().sum().backward()


def try_loss(recipe: Recipe) -> None:
    """What a custom loss says of a few lists, and its gradient: ValueError if neither can be trained by."""
    shape = (REQUESTS, CANDIDATES)
    score = torch.linspace(-1, 1, REQUESTS * CANDIDATES).reshape(shape).requires_grad_()
    place = torch.arange(CANDIDATES).expand(shape)
    lists = {
        "users": place[:, 0].int(), "context": score.detach()[:, 0], "ads": place.int(),
        "teacher_logit": -score.detach(), "log_bid": 0.1 * score.detach(), "log_score": -0.9 * score.detach(),
        "chunk": (1 + place % 2).to(torch.int8),
    }  # fmt: skip
    value = recipe.loss(score, lists)
    if not isinstance(value, torch.Tensor) or value.shape != ():
        found = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise ValueError(f"expected loss to give one number, a tensor of shape [], found {found}")
    if not value.requires_grad:
        raise ValueError("expected a loss of the scores, found one without a gradient")
    (slope,) = torch.autograd.grad(value, score)
    if not (torch.isfinite(value) and torch.isfinite(slope).all()):
        raise ValueError(f"expected a finite loss with finite slopes, found {float(value.detach())}")


def _bidders(sim: Simulation, market: Market) -> None:
    """Each alone, so that all of them have advertisers."""
    n = sim.world.n_advertisers
    nothing = Feedback(*(np.zeros(n, np.int64) for _ in range(6)))
    for name, spec in market.bidders.items():
        before = user_code.loaded()
        crowd = BidderPopulation(sim, {name: spec}, np.full(n, BUDGET), sim.home)
        for n_updates in range(2):
            now = MarketTime(n_updates * market.update, 0, 0.0, 0.0)
            crowd.bids(now, sim.world.n_ads)
            crowd.participation(now, n)
            crowd.observe(nothing, now)
        crowd.state()
        for bidder in crowd.bidders:
            user_code.note_late(type(bidder), before)


def _users(sim: Simulation, market: Market) -> None:
    before = user_code.loaded()
    model = build_click_model(market.users, sim.platform.slot_effects, sim.home)
    slots = len(sim.platform.slot_effects)
    shown = np.arange(slots)[None, :] <= np.arange(REQUESTS)[:, None] * slots // REQUESTS  # short pages too
    draw = (np.arange(shown.size).reshape(shown.shape) + 0.5) / shown.size
    ask(model, market.users, np.where(shown, 0.3, 0.0), shown, draw, draw)
    user_code.note_late(type(model), before)


def _check_bids(scenario: Scenario, seed: int) -> None:
    bids = scenario.world.bids
    highest = float(init_bids(scenario.world, seed).max())
    if highest > MAX_BID:
        raise UserError(
            f"world.bids: the highest of {scenario.world.ads:,} init-bids is {highest:,.0f}; a market takes "
            f"bids up to {MAX_BID:,.0f}; lower median ({bids.median:g}) or sigma ({bids.sigma:g})"
            + ("" if bids.tail is None else f", or raise tail ({bids.tail:g})")
        )
