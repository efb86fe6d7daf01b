"""All that comes before the evaluation: cold_start -> log -> train -> shadow -> train pre-rankers.

made = prepare(scenario, RunContext(Path("runs/mine")))
made.sim.scorers, made.modules, made.calibrators   # trained scorers, and what they were trained to
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cascade_sim.cascade.cache import BlockCache
from cascade_sim.cascade.columns import impression_columns, request_columns
from cascade_sim.cascade.exploration import Corpus, explore
from cascade_sim.cascade.fusion import named_fusion
from cascade_sim.cascade.links import calibrator_file, export_calibrator
from cascade_sim.cascade.outcome import conversion_times
from cascade_sim.cascade.retrievers.learned import LearnedRetrieval
from cascade_sim.cascade.retrievers.routes import route_names
from cascade_sim.cascade.retrievers.similarity import Retrieval, Retriever
from cascade_sim.cascade.retrievers.uniform import UniformRetrieval
from cascade_sim.cascade.scorers import BUILT_IN, Scorer
from cascade_sim.cascade.serve import Arm, Block, Stage
from cascade_sim.context import RunContext
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.limits import MAX_LEARNED
from cascade_sim.foundation.progress import Progress
from cascade_sim.foundation.workers import Job
from cascade_sim.models.calibrators import Calibrator
from cascade_sim.models.page_training import ClickedPages, make_pages
from cascade_sim.models.training import Lists, pick_device
from cascade_sim.scenario.file import scenario_data
from cascade_sim.scenario.models import ModelSpec
from cascade_sim.scenario.plugins import find_file, kept_retrievers
from cascade_sim.scenario.schema import (
    KNOWN,
    ArmOverrides,
    PreRankingStep,
    Ranking,
    Scenario,
    resolve_arm,
    resolved_arms,
)
from cascade_sim.scenario.teaching import Learner, learners, quotas_of, waves
from cascade_sim.storage import user_code
from cascade_sim.storage.code_version import class_source, model_code_digest
from cascade_sim.storage.environment import processor
from cascade_sim.storage.files import below, folder_inside, read_file, write_file
from cascade_sim.storage.folder import is_done, keep
from cascade_sim.storage.model_store import ModelStore, content_key
from cascade_sim.storage.tables import TableWriter
from cascade_sim.study.rebuild import FIRST, Plan, rebuilt, remote_handler
from cascade_sim.study.simulation import Simulation
from cascade_sim.training.curves import Samples
from cascade_sim.training.data import (
    clicked,
    is_learned,
    join_lists,
    lists_for,
    logged_rows,
    pages,
    positives,
    sample_lists,
    share_learned,
)
from cascade_sim.training.fit import (
    fit_calibrator,
    fit_proxy_calibrator,
    fit_together,
    load_trained,
    plan_of,
    save_trained,
    stored_calibrator,
)
from cascade_sim.training.modules import build_module, find_recipe, served_scorer
from cascade_sim.training.parallel import WORTH, Task, fit_module, forget, partitioned, train_ahead
from cascade_sim.version import SEMANTICS

# The sections that decide what a log holds, besides the world, its traffic, the phases and the models.
SERVING = ("cascade", "fusions", "auction", "bidding")
# Keys of a model's section that its weights do not depend on; what is trained with them is kept with them.
OTHER_KEYS = {"calibrator", "proxy_calibrator", "fit", "held_out", "refit", "logged_scores_from"}
# Of a block of the shadow phase: lists for the students to learn from, and for the proxy calibrators.
Shadowed = tuple[dict[str, Lists], dict[str, Lists]]


def prepare(
    scenario: Scenario,
    context: RunContext,
    *,
    store: ModelStore | None = None,
    teacher: Scenario | None = None,
) -> "Preparation":
    """Build the scenario's world and take it through the phases before the evaluation. Logs go to `out`.

    Models that `store` holds (the usual one, if None) are not trained again. `teacher`: the scenario whose
    cascade writes the log that the models learn from, if not this one (see `logging_scenario`).
    """
    try:
        chosen = pick_device(context.device)
    except ValueError as error:
        raise UserError(f"--device: {error}") from error
    serving = (context.workers, context.home, context.engine, chosen)
    with context.progress.stage("build the world", 1, "worlds") as bar:
        sim = Simulation(teacher or scenario, scenario.seed, *serving)
        for route in scenario.cascade.retrieval.parts.values():
            if route.model is None:  # that of a model is trained later
                tell_recall(sim.route_retriever(route), route.size, bar.tell)
    preparation = Preparation(sim, context.out, store or ModelStore(), context.progress, chosen)
    if not sim.environment.has("training"):
        return preparation  # nothing is learned from a replayed log
    preparation.run()
    if teacher is not None:
        preparation.sim = Simulation(scenario, scenario.seed, *serving)
        preparation.sim.scorers.update(sim.scorers)
    return preparation


def logging_scenario(scenario: Scenario, logged_by: Mapping[str, Any]) -> Scenario | None:
    """The scenario with the cascade of an earlier one, so that its models learn from the same log as before.

    None where there is nothing to hold: nothing that decides a log has changed, no model is trained, or the
    earlier cascade asks for a model that is no more.
    """
    now = scenario_data(scenario)
    baseline = logged_by["report"]["baseline"]
    held = {key: logged_by[key] for key in SERVING}
    arms = {baseline: logged_by["arms"][baseline]}  # students learn from what these hand on
    arms |= {name: logged_by["arms"].get(name, now["arms"][name]) for name in _arms_of_lists(now)}
    if not scenario.models or is_logged_alike(now, logged_by):
        return None
    teacher = Scenario.model_validate(
        {
            **{key: value for key, value in now.items() if key not in ("market", "what_if", "off_policy")},
            **held,
            "arms": arms,
            "report": {**now["report"], "baseline": baseline},
        }
    )
    shadowed = resolved_arms(teacher)
    asked = {*teacher.cascade.seats, *(model for name in arms for model in shadowed[name].seats)}
    return teacher if asked <= {*teacher.models, *BUILT_IN} else None


def is_logged_alike(now: Mapping[str, Any], logged_by: Mapping[str, Any]) -> bool:
    """Whether the cascades of two scenarios, as data, write the same log in the same world."""
    baseline = logged_by["report"]["baseline"]
    arms = (baseline, *_arms_of_lists(now))
    same_arms = now["report"]["baseline"] == baseline
    same_arms = same_arms and all(now["arms"].get(name) == logged_by["arms"].get(name) for name in arms)
    return same_arms and all(now[key] == logged_by[key] for key in SERVING)


def _arms_of_lists(data: Mapping[str, Any]) -> list[str]:
    """The arms beside the baseline that make lists for models to learn from, of a scenario as data."""
    sections = [*data["models"].values(), *data.get("joint", {}).values()]
    named = (section.get("sample", {}).get("arm") for section in sections)
    return [name for name in dict.fromkeys(named) if name is not None]


class Preparation:
    """The phases of one world before its evaluation; they leave trained scorers in `sim.scorers`.

    `modules` and `calibrators` are those of the trained models and of first deployments, by name. `lines`:
    how their training went, and what else came of it (`recipes.fit`).
    """

    def __init__(
        self, sim: Simulation, logs: Path, store: ModelStore, progress: Progress, device: torch.device
    ):
        self.sim, self.logs, self.store, self.progress, self.device = sim, logs, store, progress, device
        self.modules: dict[str, torch.nn.Module] = {}
        self.calibrators: dict[str, Calibrator] = {}
        self.lines: dict[str, dict[str, Any]] = {}
        self._ahead: ModelStore | None = None
        self._held: set[str] = set()  # models whose proxy calibrators have been fitted

    def run(self) -> None:
        """All phases before the evaluation."""
        self.write_logs()
        scenario = self.sim.scenario
        specs = scenario.models
        self.train_logged({n: spec for n, spec in specs.items() if not spec.trained_by.has_teacher})
        proxied = {name: spec for name, spec in specs.items() if spec.proxy_calibrator is not None}
        taught, began = learners(scenario), self.sim.arrivals.start_of("shadow", scenario.phases.shadow)
        held: dict[str, Lists] = {}
        for number, names in enumerate(waves(scenario) or ([()] if proxied else [])):
            wave = Wave({name: taught[name] for name in names}, proxied, number)
            lists, apart = self._shadow_phase(wave, began)
            held |= apart
            with self._ahead_of({name: own for name, own in lists.items() if name in specs}):
                for name, own in lists.items():
                    if name in specs:
                        self.train_model(name, own)
                    else:
                        self.train_joint(name, own)
            for name in proxied:
                if name in self.modules and name not in self._held:
                    self._hold_to_ranker(name, held[name])

    def write_logs(self) -> None:
        """The phases that are logged, and the models of the first deployment between them."""
        phases = self.sim.scenario.phases
        self.log_phase("cold_start", phases.cold_start, None, rate=1.0)
        self._train_first_deployment()
        self.log_phase("log", phases.log, None, rate=phases.exploration)

    def train_logged(self, specs: Mapping[str, ModelSpec]) -> None:
        """The models that learn from clicks."""
        phases = {name: self.logged(spec.data) for name, spec in specs.items()}
        logged = {name: logged_rows(self.logs, phases[name]) for name in specs}

        def read(name: str) -> Samples:
            if specs[name].trained_by.crosses:
                init_bid = self.sim.platform.bids.init_bid
                return positives(name, specs[name], self.logs, phases[name], init_bid, self.sim.seed)
            if specs[name].target == "conversion":
                return self._clicked(name, phases[name])
            return pages(self.logs, phases[name], self.sim.seed)

        samples = sum(spec.epochs * min(logged[name], MAX_LEARNED) for name, spec in specs.items())
        if samples < 2 * WORTH or not self._has_helpers():
            for name in specs:
                self.train_model(name, read(name), logged=logged[name])
            return
        data: dict[Any, Samples] = {}  # several models at once: what they have in common is there once
        own: dict[str, Samples] = {}
        for name, spec in specs.items():
            told = spec.recipe_values.get("positives")
            same = (spec.target, spec.delay_correction, spec.delay_window, told, *phases[name])
            if same not in data:
                data[same] = read(name)
            own[name] = data[same]
        with self._ahead_of(own):
            for name in specs:
                self.train_model(name, own[name], logged=logged[name])

    def _clicked(self, name: str, phases: list[str]) -> ClickedPages:
        """Logged clicks and the conversions that have come of them by now, which is the end of the log.

        A click is a page of its own.
        """
        spec = self.sim.scenario.models[name]
        now = float(self.sim.arrivals.env.now) if self.sim.delays is not None else None
        shown = clicked(name, spec, self.logs, phases, self.sim.seed, now)
        n = len(shown.users)
        return make_pages(shown, np.arange(n), np.full(n, np.nan))

    def _has_helpers(self) -> bool:
        return self.sim.arrivals.workers > 1 or self.sim.arrivals.engine.is_elsewhere

    @contextmanager
    def _ahead_of(self, data: Mapping[str, Samples]) -> Iterator[None]:
        """Where several processes may, and it is worth it, these models are trained by them beforehand."""
        if not self._has_helpers():
            yield
            return
        tasks = [self._task(name, own) for name, own in data.items()]
        arrivals = self.sim.arrivals
        try:
            self._ahead = train_ahead(
                tasks, self.logs, self.store, arrivals.engine, arrivals.workers, self.device, self.progress
            )
            yield
        finally:
            self._ahead = None
            forget(self.logs)

    def training_section(self) -> dict[str, Any]:
        """How each model was trained, for metrics.json: its line, and what it took the slots to be worth."""
        section = {}
        for alias, line in self.lines.items():
            spec = self.sim.scenario.models[alias.removesuffix(FIRST)]
            section[alias] = {"epochs": spec.epochs, "validation": spec.validation, **line}
            if "slot_effects" in line:
                section[alias]["true_slot_effects"] = self.sim.world.slot_effects.tolist()
        return section

    def export(self, folder: Path) -> None:
        """Write weights, calibrators and the files of the user's own classes into a folder.

        With those files the run can be looked into after they have changed or moved.
        """
        folder_inside(folder.parent, folder.name)
        kinds = {name: spec.kind for name, spec in self.sim.scenario.models.items()}
        for name, kind in {**kinds, **kept_retrievers(self.sim.scenario)}.items():
            file = find_file(kind, self.sim.home)
            if file is not None:
                write_file(below(folder, f"{name}.py"), read_file(file, follows=True))
        for name, module in self.modules.items():
            file = below(folder, f"{name}.safetensors")
            self.store.export(module, file)
            if name in self.calibrators:
                export_calibrator(self.calibrators[name], calibrator_file(file))

    def log_phase(self, phase: str, n_requests: int, arm: Arm | None, rate: float) -> None:
        """Serve traffic, realise what happens, and write every impression to the log.

        An arm of the caller's own is served on this machine; None is the deployed one, which any can make.
        """
        sim = self.sim
        if is_done(self.logs, phase):  # a stopped run left its tables: only time has to pass
            sim.arrivals.run_phase(phase, n_requests, lambda block: None, lambda block, nothing: None)
            return
        names = (phase, f"{phase}-requests")
        with self.progress.stage(f"{phase}: serve", n_requests) as bar, ExitStack() as stack:
            tables = [stack.enter_context(TableWriter(self.logs, name)) for name in names]

            def finish(block: Block, rows: Sequence[dict[str, np.ndarray]]) -> None:
                for table, columns in zip(tables, rows, strict=True):
                    table.append(columns)
                bar.advance(len(block))

            arm_of_log = arm or deployed_arm(sim)
            if arm is None and isinstance(arm_of_log.retrieval.retriever, LearnedRetrieval):
                tell_recall(arm_of_log.retrieval.retriever, arm_of_log.retrieval.size, bar.tell)
            handle = partial(rows_to_log, sim, arm_of_log, rate)
            elsewhere = Job(f"phase {phase}", log_server, (self._plan(), rate)) if arm is None else None
            sim.arrivals.run_phase(phase, n_requests, handle, finish, elsewhere)
        keep(self.logs, phase, names)

    def _plan(self) -> Plan:
        """How this world is made anew on another machine, which finds the models of by now in the folder."""
        if self.sim.arrivals.engine.is_elsewhere:
            self.export(below(self.logs, "models"))
        return Plan.of(self.sim, self.logs)

    def train_model(self, name: str, data: Samples, *, is_first: bool = False, logged: int = 0) -> None:
        """Train a model, or take it from the cache when recipe and data are the same to the byte.

        And the processor of the same kind: on another the weights would differ in their last digits.
        `is_first`: as its first deployment, beside the model itself. `logged`: impressions of its log, where
        the data may be a sample of them.
        """
        sim, task = self.sim, self._task(name, data, is_first=is_first)
        spec, alias, module = task.spec, task.alias, task.module
        parts = partitioned(data, spec, sim.seed)
        samples = spec.epochs * parts.train.arrays()["ads"].size
        with self.progress.stage(f"train {alias}", samples, "samples") as bar:
            if share_learned(logged) < 1:
                bar.tell(f"learns from a sample of the requests, {share_learned(logged):.1%} of the log")
            fitted = load_trained(self.store, task.key, module, spec)
            if fitted is None:
                before = user_code.loaded()
                if self._ahead is not None:
                    fitted = load_trained(self._ahead, task.key, module, spec)
                if fitted is None:
                    each = samples // spec.epochs
                    fitted = fit_module(task, parts, self.device, lambda: bar.advance(each))
                own = [cls for cls in (type(module), task.recipe.cls) if cls is not None]
                late = [user_code.note_late(cls, before) for cls in own]
                if not any(late):  # else code that the key knows nothing of
                    meta = {"model": name, "recipe": spec.recipe}
                    save_trained(self.store, task.key, module, fitted, meta)
            self.lines[alias] = line = fitted.line
            if fitted.calibrator is not None:
                self.calibrators[alias] = fitted.calibrator
            apart = parts.calibration
            if apart is not None:
                effects = line.get("slot_effects")
                apart = apart if effects is None else apart.examined(effects)
                fit_new = partial(
                    fit_calibrator, alias, spec, task.view, module, apart, task.seed % 2**31, self.device
                )
                self.calibrators[alias] = stored_calibrator(self.store, task.key, spec, apart, fit_new)
        self.modules[alias] = module
        if spec.proxy_calibrator is None:  # else it is seated when that is fitted
            sim.scorers[alias] = served_scorer(name, spec, task.view, module, self.calibrators.get(alias))

    def train_joint(self, learner: str, data: Lists) -> None:
        """Train the models of a joint section together, or take all of them from the cache.

        The key of each holds what all of them are: their sections, features, code and data.
        """
        sim, scenario = self.sim, self.sim.scenario
        joint = scenario.joint[learner.removeprefix("joint.")]
        quotas, parts = quotas_of(scenario, joint), partitioned(data, joint, sim.seed)
        train, part = parts.train, parts.watched
        assert isinstance(train, Lists) and isinstance(part, Lists)
        tasks = [self._task(model, data) for model in joint.models]
        told = {"joint": joint.model_dump(mode="json"), "quotas": quotas}
        shared = content_key(told, {}, members=[task.key for task in tasks])
        keys = [content_key({"model": model}, {}, joint=shared) for model in joint.models]
        with self.progress.stage(
            f"train {' and '.join(joint.models)}", joint.epochs * train.ads.size, "samples"
        ) as bar:
            pairs = zip(keys, tasks, strict=True)
            kept = [load_trained(self.store, key, task.module, task.spec) for key, task in pairs]
            fitted = kept[0]
            if fitted is None or None in kept:
                before = user_code.loaded()
                tasks = [self._task(model, data) for model in joint.models]  # some may have been loaded
                nets = [(task.module, task.view) for task in tasks]
                done = partial(bar.advance, train.ads.size)
                seed = tasks[0].seed
                plan = plan_of(joint, seed, device=self.device, on_epoch=lambda epoch, loss: done())
                what, kinds = f"training of {learner}", [task.spec.kind for task in tasks]
                fitted = fit_together(nets, joint, quotas, train, plan, what=what, kinds=kinds, part=part)
                late = [user_code.note_late(type(task.module), before) for task in tasks]
                for key, task in zip(keys, tasks, strict=True) if not any(late) else ():
                    meta = {"model": task.alias, "joint": learner}
                    save_trained(self.store, key, task.module, fitted, meta)
        steps = {"joint": learner.removeprefix("joint."), "epochs": joint.epochs}
        line = {**fitted.line, **steps, "validation": joint.validation}
        for task in tasks:
            self.lines[task.alias], self.modules[task.alias] = line, task.module
            sim.scorers[task.alias] = served_scorer(task.alias, task.spec, task.view, task.module)

    def _hold_to_ranker(self, name: str, apart: Lists) -> None:
        """Fit the proxy calibrator of a trained model on requests that no student has seen, and seat it."""
        self._held.add(name)
        spec, module = self.sim.scenario.models[name], self.modules[name]
        view = self.sim.view(spec.features)
        with self.progress.stage(f"hold {name} to its ranker", apart.ads.size, "samples"):
            self.calibrators[name] = fit_proxy_calibrator(name, spec, view, module, apart)
        self.sim.scorers[name] = served_scorer(name, spec, view, module, self.calibrators[name])

    def _task(self, name: str, data: Samples, *, is_first: bool = False) -> Task:
        """A model before its training, with the key of what it will be."""
        sim, own = self.sim, self.sim.scenario.models[name]
        spec, alias = (own.as_first_deployed(), first(name)) if is_first else (own, name)
        view, seed = sim.view(spec.features), self._seed(spec, is_first)
        module = build_module(name, spec, view, seed, sim.home)
        others = OTHER_KEYS - ({"calibrator", "fit"} if spec.is_joint else set())
        parts = partitioned(data, spec, sim.seed)
        looked_at = {f"watched {name}": column for name, column in parts.watched.arrays().items()}
        recipe = find_recipe(name, spec, sim.home)
        told = {} if recipe.cls is None else {"loss": class_source(recipe.cls).hex()}
        key = content_key(
            own.model_dump(mode="json", exclude=others),
            {**parts.train.arrays(), **looked_at, **view.arrays()},
            recipe=spec.recipe, seed=seed, semantics=SEMANTICS, torch=torch.__version__,
            device=self.device.type, code=model_code_digest(module), processor=processor(), **told,
        )  # fmt: skip
        return Task(alias, spec, view, seed, module, data, sim.seed, key, recipe)

    def logged(self, phases: Iterable[str]) -> list[str]:
        """Those of these phases that have requests, and so a table."""
        return [phase for phase in phases if getattr(self.sim.scenario.phases, phase)]

    def _seed(self, spec: ModelSpec, is_first: bool) -> int:
        """Seed of weights and shuffles: one for all models of a world, so that differences are not noise.

        First deployments have another: who learns from their pages must not err as they do from the start.
        """
        purpose = "weights of first deployments" if is_first else "weights"
        return int(draws.bits(self.sim.seed, purpose, spec.training_seed)[0] >> np.uint64(1))

    def _train_first_deployment(self) -> None:
        """The models that write the log have seen random traffic only; always by log loss."""
        random_traffic = pages(self.logs, self.logged(["cold_start"]), self.sim.seed)
        cascade = self.sim.scenario.cascade
        for name in cascade.seats:
            if name not in self.sim.built_in:
                self.train_model(name, random_traffic, is_first=True)

    def _shadow_phase(self, wave: "Wave", began: float) -> Shadowed:
        """Requests on which the ranker scores more than it serves, for the students to learn from.

        And, of requests kept from all of them, for the proxy calibrators. Of very many requests a sample
        (`share_learned`); the others are not served. Every wave sees the requests of the first.
        """
        sim = self.sim
        n_requests = sim.scenario.phases.shadow
        sampled = [spec.sample.per_request for spec in (*wave.students.values(), *wave.proxied.values())]
        wave = replace(wave, share=share_learned(n_requests * max(sampled)))
        parts: list[Shadowed] = []
        with self.progress.stage(wave.name, n_requests) as bar:
            if wave.share < 1:
                bar.tell(f"students learn from a sample of the requests, {wave.share:.1%} of them")

            def finish(block: Block, lists: Shadowed) -> None:
                parts.append(lists)
                bar.advance(len(block))

            handle = partial(shadow_lists, sim, shadowed_arms(sim, wave), wave)
            elsewhere = Job("phase shadow", shadow_server, (self._plan(), wave))
            past = began if wave.number else None
            sim.arrivals.run_phase("shadow", n_requests, handle, finish, elsewhere, past)
        learned, apart = (
            {
                name: join_lists(own)
                for name in names
                if (own := [part[side][name] for part in parts if name in part[side]])
            }
            for side, names in enumerate((wave.students, wave.proxied))
        )
        for name in wave.proxied if wave.number == 0 else ():
            if name not in apart:
                raise UserError(
                    f"the proxy calibrator of model {name!r} has no request to learn from among "
                    f"{n_requests:,}; raise held_out or phases.shadow"
                )
        return learned, apart


@dataclass(frozen=True)
class Wave:
    """What is listed in one pass over the requests of the shadow phase.

    Every pass keeps the same requests from students, for the `proxied`, whose lists are made in the first.
    """

    students: Mapping[str, Learner]
    proxied: Mapping[str, ModelSpec]
    number: int = 0
    share: float = 1.0  # of the requests, that students learn from

    @property
    def name(self) -> str:
        """As progress has it."""
        return "shadow" if self.number == 0 else f"shadow, wave {self.number + 1}"


def tell_recall(retriever: Retriever, size: int, tell: Callable[[str], None]) -> None:
    """Say what part of the best ads an approximate search finds."""
    searches = isinstance(retriever, Retrieval | LearnedRetrieval)
    found = retriever.share_found(size) if searches else None  # type: ignore[attr-defined]
    if found is not None:
        tell(f"approximate retrieval finds {found:.1%} of the nearest ads")


def deployed_arm(sim: Simulation) -> Arm:
    """The cascade that writes the log: the scenario's own, with the models of the first deployment.

    Random models, and any ads where a model retrieves, before the cold start is over and its models exist. A
    pCVR that is learned is learned from this very log, so it has no part in it.
    """
    spec = resolve_arm(sim.scenario, ArmOverrides())

    def deployed(model: str) -> Scorer:
        name = model if model in sim.built_in else first(model)
        return sim.scorers.get(name, sim.scorers["random"])

    def seat(section: PreRankingStep | Ranking) -> Stage:
        scorer = deployed(section.model)
        fusion = named_fusion(section.fusion, sim.scenario.fusions, sim.scenario.auction.squashing)
        stage = Stage(scorer, section.bid, fusion)
        return stage if spec.pcvr_of(section) == KNOWN else without_pcvr(stage)

    is_trained = all(first(model) in sim.scorers for model in spec.retrieval.models)
    retriever = sim.retriever_of(spec.retrieval, deployed) if is_trained else sim.any_ads
    return sim.arm_of("deployed", spec, [seat(section) for _, section in spec.sections], retriever)


def shadowed_arm(sim: Simulation, name: str | None = None) -> Arm:
    """An arm, or the baseline; with the deployed stage where its own model is still to be trained."""
    spec = resolved_arms(sim.scenario)[name or sim.scenario.report.baseline]

    def seat(section: PreRankingStep | Ranking, deployed: Stage) -> Stage:
        if section.model not in sim.scorers:
            return deployed
        if spec.pcvr_of(section) in (KNOWN, *sim.scorers):
            return sim.stage(section, spec)
        fusion = named_fusion(section.fusion, sim.scenario.fusions, spec.auction.squashing)
        return without_pcvr(Stage(sim.scorers[section.model], section.bid, fusion))

    deployed = deployed_arm(sim)
    pairs = zip(spec.sections, deployed.stages, strict=True)
    stages = [seat(section, stage) for (_, section), stage in pairs]
    is_trained = all(model in sim.scorers for model in spec.retrieval.models)
    retriever = sim.retriever_of(spec.retrieval) if is_trained else deployed.retrieval.retriever
    return sim.arm_of("shadowed", spec, stages, retriever)


def shadowed_arms(sim: Simulation, wave: Wave) -> dict[str | None, Arm]:
    """The arms whose sets a wave learns from, by their names in its sections; None: the baseline."""
    names = dict.fromkeys([None, *(learner.sample.arm for learner in wave.students.values())])
    return {name: shadowed_arm(sim, name) for name in names}


def without_pcvr(stage: Stage) -> Stage:
    """A stage before the model of its pCVR is trained: opt-bids are init-bids, and its fusion has no pCVR."""
    bid = "init" if stage.bid == "opt" else stage.bid
    return replace(stage, bid=bid, fusion=replace(stage.fusion, pcvr=0.0))


def rows_to_log(sim: Simulation, arm: Arm, rate: float, block: Block) -> list[dict[str, np.ndarray]]:
    """What is written down of a block of a logged phase: its impressions, and its requests. Pure."""
    if route_names(arm.retrieval.retriever):
        block = replace(block, memo=BlockCache())  # each route is asked once
    pool = exploration_pool(sim, arm)
    explored = explore(block, sim.serve(block, arm), arm, rate, sim.seed, sim.platform, pool)
    happened = sim.environment.outcome(block, explored.decision)
    routes = sim.brought_by(block, arm, explored.decision.win_set)
    late, arrives = sim.delays, None
    if late is not None:
        arrives = conversion_times(block, explored.decision, happened, late, sim.seed)
    return [
        impression_columns(sim.world, block, explored, happened, arrives, routes),
        request_columns(block, explored, rate),
    ]


def exploration_pool(sim: Simulation, arm: Arm) -> Corpus | None:
    """What random pages of the log are drawn from; None: from what was retrieved."""
    is_any = isinstance(
        arm.retrieval.retriever, UniformRetrieval
    )  # then those retrieved are a part at random
    if is_any or sim.scenario.phases.exploration_pool == "corpus":
        return Corpus(sim.world.n_ads, sim.platform.lives)
    return None


def shadow_lists(sim: Simulation, arms: Mapping[str | None, Arm], wave: Wave, block: Block) -> Shadowed:
    """What students and proxy calibrators learn from a block of the shadow phase. Pure.

    Of a share of its requests; those that a proxy calibrator is given are kept from every student, so that
    students with and without one are the same net.
    """
    if wave.share < 1:
        block = block.take(is_learned(block.requests, wave.share, sim.seed))
    proxied = wave.proxied
    draw = draws.uniform(sim.seed, "held to the ranker", block.requests) if proxied else np.ones(len(block))
    learned: dict[str, Lists] = {}
    rest = block.take(draw >= max((spec.held_out for spec in proxied.values()), default=0.0))
    for name, arm in arms.items() if len(rest) else ():
        students = {key: one for key, one in wave.students.items() if one.sample.arm == name}
        if students:
            decision = sim.serve(rest, arm)
            learned |= lists_for(students, sim.scorers, rest, decision, arm, sim.platform, sim.seed)
    apart = {}
    for name, spec in proxied.items() if wave.number == 0 else ():
        if len(held := block.take(draw < spec.held_out)):
            arm = arms[None]
            teacher = arm.last.scorer if spec.teacher is None else sim.scorers[spec.teacher]
            whole = spec.model_copy(update={"sample": spec.sample.model_copy(update={"set": "pre_ranking"})})
            decision = sim.serve(held, arm)
            apart[name] = sample_lists(whole, teacher, held, decision, arm, sim.platform, sim.seed)
    return {name: learned[name] for name in wave.students if name in learned}, apart


def log_server(plan: Plan, rate: float) -> Callable[..., Any]:
    """Serves a logged phase in another process."""
    sim = rebuilt(plan)
    return remote_handler(sim, partial(rows_to_log, sim, deployed_arm(sim), rate))


def shadow_server(plan: Plan, wave: Wave) -> Callable[..., Any]:
    """Serves the shadow phase in another process."""
    sim = rebuilt(plan)
    return remote_handler(sim, partial(shadow_lists, sim, shadowed_arms(sim, wave), wave))


def first(model: str) -> str:
    """The name of a model's first deployment, trained on random traffic, which writes the log."""
    return f"{model}{FIRST}"
