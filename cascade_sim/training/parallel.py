"""Several models trained at once, each by a process of its own, before the world's process asks for them.

Models know nothing of each other once their data are there. Where there are several workers, and enough to
learn for a process to be worth its start, the models that no store has are partitioned into jobs of the run's
engine. A job is given its data in files of the run's folder, trains as the world's process would, to the same
bytes, and leaves the weights there under their content key. Whatever it does not leave is trained as usual.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from cascade_sim.engines import Engine
from cascade_sim.foundation.progress import Progress
from cascade_sim.foundation.workers import Job
from cascade_sim.models.features import FeatureView
from cascade_sim.models.page_training import ClickedPages, net_to_train, served_net
from cascade_sim.models.recipes import Recipe
from cascade_sim.models.training import Impressions, Lists, Positives
from cascade_sim.scenario.joint import Joint
from cascade_sim.scenario.models import ModelSpec, objective_of
from cascade_sim.storage.checkpoints import load_state, save_state
from cascade_sim.storage.files import below, folder_inside
from cascade_sim.storage.folder import CHECKPOINTS
from cascade_sim.storage.lock import holder_of, written_for
from cascade_sim.storage.model_store import ModelStore
from cascade_sim.training.curves import Samples, is_held_out, kept, watched
from cascade_sim.training.data import split_pages
from cascade_sim.training.fit import Fitted, fit, load_trained, plan_of, save_trained
from cascade_sim.training.modules import KINDS, build_module

WORTH = 4_000_000  # samples: a process that learns from fewer takes as long to start
FOLDER = "training"  # of the checkpoints


@dataclass(frozen=True)
class Task:
    """A model that is to be trained, and what it learns from."""

    alias: str
    spec: ModelSpec
    view: FeatureView
    seed: int  # of weights and shuffles
    module: nn.Module
    data: Samples  # all of it, also what a calibrator is given
    world_seed: int
    key: str
    recipe: Recipe  # with its loss, also where that is a class of the user's

    @property
    def samples(self) -> int:
        return self.spec.epochs * int(self.data.arrays()["ads"].size)


@dataclass(frozen=True)
class DataSplit:
    """A model's data: what it trains on, and what is kept apart, for its calibrator and for validation."""

    train: Samples
    calibration: ClickedPages | None
    held_out: Samples
    watched: Samples  # of those held out or, without any, of those it trains on


def partitioned(data: Samples, spec: ModelSpec | Joint, seed: int) -> DataSplit:
    """Parts by request. What is held out of one model is held out of all with the same share."""
    apart = is_held_out(data, spec.validation, seed)
    train, held_out = (kept(data, ~apart) if spec.validation else data), kept(data, apart)
    calibration = None
    if isinstance(train, ClickedPages) and isinstance(spec, ModelSpec):
        train, calibration = split_for_calibrator(train, spec, seed)
    return DataSplit(train, calibration, held_out, watched(train, held_out, spec, seed))


def split_for_calibrator(
    data: ClickedPages, spec: ModelSpec, seed: int
) -> tuple[ClickedPages, ClickedPages | None]:
    """What a model trains on, and what its calibrator is fitted to when that is done."""
    if spec.calibrator is None or spec.is_joint:
        return data, None
    return (data, data) if spec.fit == "training" else split_pages(data, spec.held_out, seed)


def fit_module(
    task: Task, data: DataSplit, device: torch.device, on_epoch: Callable[[], None] = lambda: None
) -> Fitted:
    """Train a module of one head. An objective of several trains a net that has them, which is folded."""
    spec, module, objective = task.spec, task.module, objective_of(task.spec)
    net = net_to_train(module, objective, task.seed)
    plan = plan_of(spec, task.seed, device=device, on_epoch=lambda epoch, loss: on_epoch())
    what = f"training of model {task.alias!r}"
    fitted = fit(net, spec, task.view, data.train, plan, what=what, recipe=task.recipe, part=data.watched)
    if net is not module:
        module.load_state_dict(served_net(net, objective).state_dict())
        module.eval()
    return fitted


def shares(samples: Mapping[str, int], most: int) -> list[list[str]]:
    """Models in at most so many groups of about equal samples, each worth a process; [] if one is enough."""
    n = min(len(samples), most, sum(samples.values()) // WORTH)
    if n < 2:
        return []
    groups: list[list[str]] = [[] for _ in range(n)]
    for name in sorted(samples, key=lambda name: -samples[name]):
        min(groups, key=lambda group: sum(samples[member] for member in group)).append(name)
    return groups


def train_ahead(
    tasks: Sequence[Task],
    logs: Path,
    store: ModelStore,
    engine: Engine,
    workers: int,
    device: torch.device,
    progress: Progress,
) -> ModelStore | None:
    """Train those of the tasks that the store has not, as jobs; what is left of it, for `forget`.

    None: nothing was worth it. Users' own classes are trained by the world's process, which knows their code.
    """
    known = (task for task in tasks if task.spec.kind in KINDS and not task.spec.has_custom_recipe)
    left = {task.alias: task for task in known}
    left = {alias: task for alias, task in left.items() if not _is_kept(store, task)}
    most = len(left) if engine.is_elsewhere else workers
    groups = shares({alias: task.samples for alias, task in left.items()}, most)
    if not groups:
        return None
    folder = folder_inside(logs, CHECKPOINTS, FOLDER)
    files = _Files(folder)
    holder = holder_of(logs)
    jobs = [
        Job(
            f"training of {', '.join(group)}",
            train_job,
            (logs, [files.words(left[alias]) for alias in group], device.type, holder),
        )
        for group in groups
    ]
    with progress.stage(f"train {len(left)} models", len(jobs), "processes") as bar:
        engine.jobs(jobs, workers, on_done=lambda name: bar.advance(1), go_on="run again with --workers 1")
    return ModelStore(folder)


def _is_kept(store: ModelStore, task: Task) -> bool:
    return load_trained(store, task.key, task.module, task.spec) is not None


def forget(logs: Path) -> None:
    """Remove what the jobs were given and left."""
    shutil.rmtree(below(logs, CHECKPOINTS, FOLDER), ignore_errors=True)


def train_job(
    logs: Path, models: Sequence[Mapping[str, Any]], device: str, holder: Mapping[str, Any]
) -> None:
    """Train these models, one after the other, and leave their weights under their keys."""
    torch.set_num_threads(1)
    with written_for(logs, holder):
        for model in models:
            spec, alias, seed = ModelSpec.model_validate(model["spec"]), model["alias"], model["seed"]
            view, whole = _view(load_state(model["view"])), _samples(load_state(model["data"]))
            module = build_module(alias, spec, view, seed)
            task = Task(
                alias, spec, view, seed, module, whole, model["world_seed"], model["key"], spec.trained_by
            )
            fitted = fit_module(task, partitioned(whole, spec, task.world_seed), torch.device(device))
            save_trained(ModelStore(model["data"].parent), task.key, module, fitted, {"model": alias})


class _Files:
    """What jobs are given, as files; models that learn from the same share one."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._written: dict[tuple[str, int], Path] = {}
        self._kept: list[object] = []  # an id belongs to one object as long as that is there

    def words(self, task: Task) -> dict[str, Any]:
        return {
            "alias": task.alias, "spec": task.spec.model_dump(mode="json"), "seed": task.seed,
            "key": task.key, "world_seed": task.world_seed,
            "view": self._file("view", task.view, _state_of_view),
            "data": self._file("data", task.data, lambda data: dict(data.arrays())),
        }  # fmt: skip

    def _file(self, what: str, content: Any, state: Callable[[Any], dict[str, Any]]) -> Path:
        key = (what, id(content))
        if key not in self._written:
            self._kept.append(content)
            self._written[key] = self._folder / f"{what}-{len(self._written)}.npz"
            save_state(self._written[key], state(content))
        return self._written[key]


def _state_of_view(view: FeatureView) -> dict[str, Any]:
    state = {"names": np.array(view.names), "user": view.user_table, "ad": view.ad_table}
    state |= {"has_context": np.array(view.has_context), "threshold": np.array(view.pair_threshold)}
    if view.pair_user is not None and view.pair_ad is not None:
        state |= {"pair_user": view.pair_user, "pair_ad": view.pair_ad}
    if view.advertiser is not None:
        state |= {"advertiser": view.advertiser, "n_advertisers": np.array(view.n_advertisers)}
    if view.history is not None:
        state["history"] = view.history
    return state


def _view(state: Mapping[str, Any]) -> FeatureView:
    return FeatureView(
        tuple(str(name) for name in state["names"]), state["user"], state["ad"], bool(state["has_context"]),
        state.get("pair_user"), state.get("pair_ad"), float(state["threshold"]),
        state.get("advertiser"), int(state.get("n_advertisers", 0)), state.get("history"),
    )  # fmt: skip


def _samples(arrays: Mapping[str, Any]) -> Samples:
    for form in (Lists, Positives):
        if {column.name for column in fields(form)} == arrays.keys():
            return form(**arrays)
    own = {name: arrays[name] for name in ("lists", "request", "dumped")}
    return ClickedPages(
        Impressions(**{name: values for name, values in arrays.items() if name not in own}), **own
    )
