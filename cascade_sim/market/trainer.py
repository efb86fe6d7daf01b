"""The Trainer of a market: learns from what the arm has shown recently, and redeploys.

Every `interval` seconds the arm's models are fitted on the impressions of the last `window`
seconds, explored ones included, from the weights that are deployed. A click counts if it has arrived by
then. Students (distill, ltr) follow: the new teacher scores candidates of a sample of the same requests, at
the bids of the market's start. The arm owns copies of its models; no other arm sees them change. A model with
an objective learns for it from whole pages. One that learns beside dumped scores is given the raw scores of
the ranker that was deployed when a page was shown, before any calibrator, or those of a model that is trained
for nothing else (`logged_scores_from`). A calibrator stays as the study fitted it; with `refit` it learns
again from pages that its model is not shown (`held_out`); with `fit: joint` it learns on with its model.

Repeatable: the log is read in request order, and every shuffle and fresh weight belongs to
(seed, `training_seed` of the model, version). All that changes is in `state`.
"""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from cascade_sim.cascade.retrievers.routes import models_of, with_models
from cascade_sim.cascade.scorers import ModelScorer
from cascade_sim.cascade.serve import Arm, serve
from cascade_sim.foundation import random as draws
from cascade_sim.market.ad_server import SettledBlock
from cascade_sim.market.panel import Panel
from cascade_sim.models.calibrators import Calibrator, calibrator_class
from cascade_sim.models.page_training import ClickedPages, make_pages, net_to_train, served_net
from cascade_sim.models.training import Impressions, Lists
from cascade_sim.scenario.market import Training
from cascade_sim.scenario.models import ModelSpec, objective_of
from cascade_sim.study.simulation import Simulation
from cascade_sim.training.curves import Samples
from cascade_sim.training.data import arrived_clicks, join_lists, lists_for, positives_of
from cascade_sim.training.fit import fit, fit_calibrator, joint_map, plan_of
from cascade_sim.training.modules import build_module, find_recipe, served_scorer
from cascade_sim.training.parallel import split_for_calibrator

REPLAYED = {
    "request": np.int64, "time": np.float64, "user": np.int32, "context": np.float32, "ad": np.int32,
    "examination": np.float32, "prediction": np.float64, "raw_score": np.float32, "click": np.bool_,
    "click_time": np.float64, "model_version": np.int32, "is_explored": np.bool_, "served_by_stage": np.int8,
}  # fmt: skip


class RecentImpressions:
    """The rows of the market's log that are young enough to learn from, in the order of the log."""

    def __init__(self) -> None:
        self._parts: list[dict[str, np.ndarray]] = []

    def add(self, settled: SettledBlock, slot_effects: np.ndarray) -> None:
        block, raw = settled.block, settled.raw_score
        row, slot = np.nonzero(settled.ads >= 0)
        columns = {
            **block.columns(row),
            "ad": settled.ads[row, slot],
            "examination": slot_effects[slot],
            "prediction": settled.prediction[row, slot],
            "raw_score": np.full(len(row), np.nan) if raw is None else raw[row, slot],
            "click": settled.clicks[row, slot],
            "click_time": settled.click_time[row, slot],
            "model_version": settled.model_version[row],
            "is_explored": settled.lists.is_explored[row],
            "served_by_stage": settled.lists.served_by_stage[row],
        }
        self._parts.append({name: columns[name].astype(dtype) for name, dtype in REPLAYED.items()})

    def since(self, start: float) -> dict[str, np.ndarray]:
        """The rows of pages after `start`; older ones are forgotten."""
        whole = self.state()
        is_recent = whole["time"] > start
        self._parts = [{name: column[is_recent] for name, column in whole.items()}]
        return dict(self._parts[0])

    def state(self) -> dict[str, np.ndarray]:
        parts = self._parts or [{name: np.zeros(0, dtype) for name, dtype in REPLAYED.items()}]
        return {name: np.concatenate([part[name] for part in parts]) for name in REPLAYED}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._parts = [{name: np.array(state[name], dtype) for name, dtype in REPLAYED.items()}]


class Trainer:
    """One arm's models. `arm` is the cascade with the models of deployment `version`."""

    def __init__(self, sim: Simulation, arm: Arm, spec: Training, exploration: float = 0.0):
        self.sim, self.spec, self.exploration = sim, spec, exploration
        self.arm, self.version, self.due = arm, 0, spec.interval
        self.recent = RecentImpressions()
        self._panel = Panel(sim, arm, spec.panel)
        self._modules = self._own_models(arm)
        self._calibrators: dict[str, Calibrator | None] = {
            name: self._first_calibrator(name) for name in self._modules
        }
        self._scorers: dict[str, ModelScorer] = {}
        self._measured: list[tuple[float, int, dict[str, np.ndarray]]] = []
        self._deploy()
        self._measure(0.0)

    def add(self, settled: SettledBlock) -> None:
        """Keep pages that were served, in request order, to learn from."""
        self.recent.add(settled, self.sim.world.slot_effects)

    def train(self, now: float) -> None:
        """Fit every model, redeploy, and look at the panel. Without any impression the models stay."""
        interval = self.spec.interval
        self.due = (np.floor(now / interval) + 1) * interval
        coverage = self._coverage()  # before what is too old to learn from is forgotten
        shown = self.recent.since(now - (self.spec.window or interval))
        if not len(shown["request"]):
            return
        self.version += 1
        data = Impressions(
            users=shown["user"], context=shown["context"], ads=shown["ad"],
            examination=shown["examination"], click=arrived_clicks(shown, now),
        )  # fmt: skip
        served = shown["prediction"]
        served = np.where(served > 0, served, np.nan)
        pages = make_pages(data, shown["request"], served, shown["raw_score"])
        students = {name: spec for name in self._modules if (spec := self._spec(name)).trained_by.has_teacher}
        for name in self._modules:
            spec = self._spec(name)
            if spec.trained_by.crosses:
                found = positives_of({**shown, "click": data.click}, spec, self.sim.platform.bids.init_bid)
                self._fit(name, found)
            elif name not in students:
                self._learn(name, pages)
        if students:
            self._deploy()  # the new teacher ranks
            for name, lists in self._lists(shown, students).items():
                self._fit(name, lists)
        self._deploy()
        self._measure(now, coverage)

    def metrics(self, end: float) -> dict[str, Any]:
        """What the panel saw of each deployment, as plain lists; the last one is also at the end."""
        seen = self._measured + ([(end, *self._measured[-1][1:])] if self._measured[-1][0] < end else [])
        return {
            "requests": self.spec.panel,
            "interval": self.spec.interval,
            "exploration": self.exploration,
            **self._ranker(),
            "time": [time for time, _, _ in seen],
            "version": [version for _, version, _ in seen],
            "panel": [{name: _plain(table[name]) for name in self._panel.names} for _, _, table in seen],
        }

    def state(self) -> dict[str, Any]:
        return {
            "clock": np.array([self.version, self.due]),
            "recent": self.recent.state(),
            "weights": {name: _weights(module) for name, module in self._modules.items()},
            "calibrators": {
                name: calibrator.arrays()
                for name, calibrator in self._calibrators.items()
                if calibrator is not None and (self._spec(name).refit or self._spec(name).is_joint)
            },
            "measured": {
                "time": np.array([time for time, _, _ in self._measured]),
                "version": np.array([version for _, version, _ in self._measured]),
                **{
                    name: np.stack([table[name] for _, _, table in self._measured])
                    for name in self._panel.names
                },
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.version, self.due = int(state["clock"][0]), float(state["clock"][1])
        self.recent.restore(state["recent"])
        for name, module in self._modules.items():
            module.load_state_dict(
                {k: torch.from_numpy(np.array(a)) for k, a in state["weights"][name].items()}
            )
        for name, arrays in state["calibrators"].items():
            kind = calibrator_class(str(self._spec(name).calibrator))
            self._calibrators[name] = kind.from_arrays({k: np.array(a) for k, a in arrays.items()})
        seen = state["measured"]
        self._measured = [
            (float(time), int(version), {name: np.array(seen[name][i]) for name in self._panel.names})
            for i, (time, version) in enumerate(zip(seen["time"], seen["version"], strict=True))
        ]
        self._deploy()

    def _own_models(self, arm: Arm) -> dict[str, torch.nn.Module]:
        """Copies of the arm's trained models, teachers included."""
        scorers = [stage.scorer for stage in reversed(arm.stages)]
        names = [scorer.name for scorer in scorers if isinstance(scorer, ModelScorer)]
        names += models_of(arm.retrieval.retriever)
        for name in names:  # and their teachers, who may have one themselves
            teacher = self._spec(name).teacher
            names += [teacher] if teacher is not None and teacher not in names else []
        ranker = arm.last.scorer.name
        if ranker in names and self._spec(ranker).logged_scores_from is not None:
            names.append(str(self._spec(ranker).logged_scores_from))
        return {
            name: self._fresh(name) if self.spec.start_from == "random" else self._copy(name)
            for name in dict.fromkeys(names)
        }

    def _first_calibrator(self, name: str) -> Calibrator | None:
        """The study's; of a model that begins anew and has one in its own training, an untrained one."""
        if self._spec(name).is_joint and self.spec.start_from == "random":
            return joint_map(self.sim.view(self._spec(name).features), None, self._seed(name) % 2**31)
        return getattr(self.sim.scorers.get(name), "calibrator", None)

    def _copy(self, name: str) -> torch.nn.Module:
        """The study's model, with the heads that its objective trains."""
        module: torch.nn.Module = copy.deepcopy(self.sim.scorers[name].module)  # type: ignore[attr-defined]
        return net_to_train(module, objective_of(self._spec(name)))

    def _spec(self, name: str) -> ModelSpec:
        return self.sim.scenario.models[name]

    def _seed(self, name: str) -> int:
        """Seed of shuffles and fresh weights: models share it, so that their differences are not noise."""
        draw = self._spec(name).training_seed
        return int(draws.bits(self.sim.seed, "retrain", self.version, draw)[0] >> np.uint64(1))

    def _fresh(self, name: str) -> torch.nn.Module:
        """A net with weights of its own, and the heads that its objective trains."""
        spec, seed = self._spec(name), self._seed(name)
        module = build_module(name, spec, self.sim.view(spec.features), seed, self.sim.home)
        return net_to_train(module, objective_of(spec), seed)

    def _ranker(self) -> dict[str, Any]:
        """What the model in the ranking stage is trained for; nothing if it has no objective."""
        name = self.arm.last.scorer.name
        if name not in self._modules or not self._spec(name).trained_by.has_objective:
            return {}
        spec = self._spec(name)
        keys = ("objective", "batching", "calibrator", "refit")
        told = {key: getattr(spec, key) for key in keys}
        told |= spec.model_dump(
            include={"ranking", "logged_scores_from", "fit"}
        )  # where they are not the usual ones
        return {"ranker": {"model": name, **told, "has_scale": objective_of(spec).has_scale}}

    def _learn(self, name: str, pages: ClickedPages) -> None:
        """Fit a model that learns from clicks and, if it is to be, its calibrator on pages kept apart.

        Without a click among those the calibrator stays as it was.
        """
        spec, apart = self._spec(name), None
        if spec.refit:
            pages, apart = split_for_calibrator(pages, spec, self.sim.seed)
        effects = self._fit(name, pages).get("slot_effects")
        if apart is not None and apart.shown.click.any():
            apart = apart if effects is None else apart.examined(effects)
            net = served_net(self._modules[name], objective_of(spec))
            view, seed = self.sim.view(spec.features), self._seed(name) % 2**31
            self._calibrators[name] = fit_calibrator(name, spec, view, net, apart, seed, self.sim.device)

    def _fit(self, name: str, data: Samples) -> dict[str, Any]:
        spec, own = self._spec(name), self.spec
        is_warm = own.warm_start and (self.version > 1 or own.start_from == "study")
        if not own.warm_start:
            self._modules[name] = self._fresh(name)
        plan = plan_of(
            spec, self._seed(name), epochs=own.epochs, batch=own.batch, learning_rate=own.learning_rate,
            warm_start=is_warm, device=self.sim.device,
        )  # fmt: skip
        what, view = f"deployment {self.version} of model {name!r}", self.sim.view(spec.features)
        before = self._calibrators[name] if is_warm else None
        fitted = fit(
            self._modules[name],
            spec,
            view,
            data,
            plan,
            what=what,
            recipe=find_recipe(name, spec, self.sim.home),
            calibrator=before,
        )
        if fitted.calibrator is not None:
            self._calibrators[name] = fitted.calibrator
        return fitted.line

    def _lists(self, shown: Mapping[str, np.ndarray], students: Mapping[str, ModelSpec]) -> dict[str, Lists]:
        """Candidates of a keyed sample of the shown requests, scored by the teacher, for each student."""
        sim, size = self.sim, self.sim.scenario.traffic.block
        requests, first = np.unique(shown["request"], return_index=True)
        draw = draws.uniform(sim.seed, "retrain lists", self.version, requests)
        picked = first[np.sort(np.argsort(draw, kind="stable")[: self.spec.lists])]
        parts = []
        for start in range(0, len(picked), size):
            rows = picked[start : start + size]
            columns = (shown[name][rows] for name in ("request", "user", "context", "time"))
            block = sim.arrivals.again(*columns)
            decision = serve(block, self.arm, sim.platform)
            parts.append(
                lists_for(students, self._scorers, block, decision, self.arm, sim.platform, sim.seed)
            )
        return {name: join_lists([lists[name] for lists in parts]) for name in students}

    @property
    def dumper(self) -> ModelScorer | None:
        """Who scores what is shown for the ranker to learn beside; None: the ranker itself."""
        name = self.arm.last.scorer.name
        logged_scores_from = self._spec(name).logged_scores_from if name in self._modules else None
        return None if logged_scores_from is None else self._scorers[logged_scores_from]

    def _deploy(self) -> None:
        """One scorer a model: stages that share a model stay equal, which the reserves look at."""
        self._scorers = {}
        for name, module in self._modules.items():
            spec = self._spec(name)
            net = served_net(module, objective_of(spec))
            view, calibrator = self.sim.view(spec.features), self._calibrators[name]
            self._scorers[name] = served_scorer(name, spec, view, net, calibrator)

        self.arm = self.arm.with_scorers(lambda stage: self._scorers.get(stage.scorer.name, stage.scorer))
        self.arm = self.arm.among(with_models(self.arm.retrieval.retriever, self._scorers))

    def _coverage(self) -> float:
        """The share of the corpus that was shown, other than at random, since the deployment before."""
        shown = self.recent.state()
        own = ~shown["is_explored"] & (shown["time"] > self._measured[-1][0])
        return len(np.unique(shown["ad"][own])) / self.sim.world.n_ads

    def _measure(self, now: float, coverage: float | None = None) -> None:
        table = self._panel.measure(self.arm, now)
        if coverage is not None:
            table["coverage"] = np.array(coverage)
        self._measured.append((now, self.version, table))


class NoTrainer:
    """Stands for a trainer where a market's models stay as they are: it is never due."""

    version = 0
    due = np.inf
    dumper = None

    def __init__(self, arm: Arm):
        self.arm = arm

    def add(self, settled: SettledBlock) -> None: ...

    def train(self, now: float) -> None: ...

    def metrics(self, end: float) -> None:
        return None

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None: ...


def make_trainer(
    sim: Simulation, arm: Arm, spec: Training | None, exploration: float = 0.0
) -> Trainer | NoTrainer:
    """The trainer of an arm's market; one that does nothing where the market has no training."""
    return NoTrainer(arm) if spec is None else Trainer(sim, arm, spec, exploration)


def _plain(values: np.ndarray) -> Any:
    """An array as JSON has it: a number or a list of them, None for NaN."""
    if values.ndim == 0:
        return float(values) if np.isfinite(values) else None
    return [None if np.isnan(x) else x for x in values.tolist()]


def _weights(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: value.detach().cpu().numpy().copy() for name, value in module.state_dict().items()}
