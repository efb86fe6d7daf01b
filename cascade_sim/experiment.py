"""One study in one world: bootstrap -> log -> train -> shadow -> train pre-rankers -> ready to evaluate."""

from pathlib import Path

import numpy as np
import torch

from cascade_sim import SEMANTICS, draws
from cascade_sim.cascade import Arm, Block, Decision, Stage
from cascade_sim.errors import UserError
from cascade_sim.exploration import Explored, explore
from cascade_sim.fusion import named_fusion
from cascade_sim.model_kinds import build_module, make_scorer
from cascade_sim.model_store import ModelStore, content_key
from cascade_sim.outcome import Outcome, outcome
from cascade_sim.progress import Progress
from cascade_sim.records import TableWriter
from cascade_sim.scenario import resolved_arms
from cascade_sim.seats import BUILT_IN, Scorer
from cascade_sim.simulation import Simulation
from cascade_sim.training_data import impressions, join_lists, sample_lists
from models.training import Impressions, Lists, train


class Experiment:
    """Runs the phases of one seed and leaves trained scorers in `sim.scorers`. Logs go to `logs`."""

    def __init__(
        self, sim: Simulation, logs: Path, store: ModelStore, progress: Progress, device: torch.device
    ):
        self.sim, self.logs, self.store, self.progress, self.device = sim, logs, store, progress, device
        self.modules: dict[str, torch.nn.Module] = {}

    def run(self) -> None:
        """All phases before the evaluation."""
        sim, phases = self.sim, self.sim.scenario.phases
        self.log_phase("bootstrap", phases.bootstrap, self._deployed(first=True), rate=1.0)
        self._train_first_deployment()
        self.log_phase("log", phases.log, self._deployed(first=True), rate=phases.exploration)
        specs = sim.scenario.models
        for name in specs:
            if specs[name].recipe == "logloss":
                self.train_model(name, impressions(self.logs, specs[name].data))
        students = [name for name in specs if specs[name].recipe != "logloss"]
        if students:
            for name, lists in self._shadow_phase(students).items():
                self.train_model(name, lists)

    def log_phase(self, phase: str, n_requests: int, arm: Arm, rate: float) -> None:
        """Serve traffic, realise what happens, and write every impression to the log."""
        sim = self.sim

        def handle(block: Block) -> tuple[Explored, Outcome]:
            explored = explore(block, sim.serve(block, arm), arm, rate, sim.seed, sim.world.init_bid)
            return explored, outcome(block, explored.decision, sim.truth, sim.world.slot_effects, sim.seed)

        with (
            self.progress.stage(f"{phase}: serve", n_requests) as bar,
            TableWriter(self.logs, phase) as table,
        ):

            def finish(block: Block, result: tuple[Explored, Outcome]) -> None:
                table.append(impression_columns(sim, block, *result))
                bar.advance(len(block))

            sim.market.run_phase(phase, n_requests, handle, finish)

    def train_model(self, name: str, data: Impressions | Lists, recipe: str = "", alias: str = "") -> None:
        """Train a model, or take it from the cache when recipe and data are the same to the byte."""
        sim = self.sim
        spec = sim.scenario.models[name]
        recipe, alias = recipe or spec.recipe, alias or name
        view = sim.view(spec.features)
        weights_seed = int(draws.bits(sim.seed, f"weights {alias}")[0] >> np.uint64(1))
        module = build_module(name, spec, view, weights_seed, sim.home)
        inputs = {**data.arrays(), "view.user": view.user_table, "view.ad": view.ad_table}
        key = content_key(
            spec.model_dump(mode="json"), inputs,
            recipe=recipe, seed=weights_seed, semantics=SEMANTICS, torch=torch.__version__,
            device=self.device.type, classes=_source_digest(module),
            pair_threshold=view.pair_threshold if view.pair_width else None,
        )  # fmt: skip
        samples = spec.epochs * data.arrays()["ads"].size
        with self.progress.stage(f"train {alias}", samples, "samples") as bar:
            if not self.store.load(key, module):
                try:
                    train(
                        module, view, data, recipe,
                        epochs=spec.epochs, batch=spec.batch, learning_rate=spec.learning_rate,
                        weight_decay=spec.weight_decay, device=self.device, seed=weights_seed % 2**31,
                        on_epoch=lambda epoch, loss: bar.advance(samples // spec.epochs),
                    )  # fmt: skip
                except ValueError as error:
                    raise UserError(f"training of model {alias!r}: {error}") from error
                self.store.save(key, module, {"model": name, "recipe": recipe})
        self.modules[alias] = module
        self.sim.scorers[alias] = make_scorer(name, recipe, view, module)

    def _train_first_deployment(self) -> None:
        """The models that write the log have seen random traffic only; always by log loss."""
        first = impressions(self.logs, ["bootstrap"])
        cascade = self.sim.scenario.cascade
        for name in dict.fromkeys([cascade.ranking.model, cascade.pre_ranking.model]):
            if name not in BUILT_IN:
                self.train_model(name, first, recipe="logloss", alias=f"{name} (first)")

    def _deployed(self, first: bool) -> Arm:
        """The scenario's own cascade; random seats before the bootstrap is over and its models exist."""
        sim = self.sim
        cascade, auction, bidding = sim.scenario.cascade, sim.scenario.auction, sim.scenario.bidding

        def seat(section) -> Stage:
            names = [f"{section.model} (first)"] if first else [section.model]
            names += [section.model] if section.model in BUILT_IN else []
            scorer: Scorer = next((sim.scorers[n] for n in names if n in sim.scorers), sim.scorers["random"])
            return Stage(
                scorer, section.bid, named_fusion(section.fusion, sim.scenario.fusions, auction.squashing)
            )

        return Arm(
            "deployed", cascade.retrieval.size, seat(cascade.pre_ranking), cascade.pre_ranking.size,
            seat(cascade.ranking), cascade.slots, auction.pricing, auction.reserve_cpc,
            auction.score_floor, bidding.rule, bidding.range,
        )  # fmt: skip

    def _shadow_phase(self, students: list[str]) -> dict[str, Lists]:
        """Requests on which the ranker scores more than it serves, for the students to learn from."""
        sim = self.sim
        n_requests = sim.scenario.phases.shadow
        arms = resolved_arms(sim.scenario)
        arm = sim.arm("shadowed", arms[sim.scenario.report.baseline])
        parts: dict[str, list[Lists]] = {name: [] for name in students}

        def handle(block: Block) -> dict[str, Lists]:
            decision: Decision = sim.serve(block, arm)
            specs = sim.scenario.models
            return {name: sample_lists(sim, arm, block, decision, specs[name]) for name in students}

        with self.progress.stage("shadow", n_requests) as bar:

            def finish(block: Block, lists: dict[str, Lists]) -> None:
                for name in students:
                    parts[name].append(lists[name])
                bar.advance(len(block))

            sim.market.run_phase("shadow", n_requests, handle, finish)
        return {name: join_lists(part) for name, part in parts.items() if part}


def impression_columns(
    sim: Simulation, block: Block, explored: Explored, result: Outcome
) -> dict[str, np.ndarray]:
    """The log of a block: one row per shown ad, in request and slot order."""
    decision = explored.decision
    win_set = decision.win_set
    row, slot = np.nonzero(win_set >= 0)
    ad, is_explored = win_set[row, slot], explored.is_explored[row]
    return {
        "request": block.requests[row],
        "time": block.times[row],
        "user": block.users[row],
        "context": block.context[row],
        "slot": slot.astype(np.int8),
        "ad": ad,
        "advertiser": sim.world.advertiser[ad],
        "examination": sim.world.slot_effects[slot].astype(np.float32),
        "init_bid": sim.world.init_bid[ad],
        # An explored ad met no auction: it has no prediction and no bid in one.
        "bid": np.where(is_explored, np.nan, decision.ranked_bid[row, slot]),
        "pctr": np.where(is_explored, np.nan, decision.ranked_pctr[row, slot]).astype(np.float32),
        "cpc_micros": decision.cpc_micros[row, slot],
        "click": result.clicks[row, slot],
        "conversion": result.conversions[row, slot],
        "charge_micros": result.charges_micros[row, slot],
        "is_explored": is_explored,
        "propensity": explored.propensity[row, slot],
    }


def _source_digest(module: torch.nn.Module) -> str:
    """Changes when the code of the model's class does, so that a cached model never outlives its code."""
    import hashlib
    import inspect

    try:
        source = inspect.getsource(inspect.getmodule(type(module)) or type(module))
    except (OSError, TypeError):
        source = type(module).__qualname__
    return hashlib.blake2b(source.encode(), digest_size=8).hexdigest()
