"""All that is trained, once on the CPU and once on a device: does it run there, and to the same values?

    python tests/drills/on_a_device.py                 # a device that is not there: worlds/pretend_device.py
    python tests/drills/on_a_device.py --device cuda   # or mps: a real one

A row for each net with each recipe and objective, and each calibrator: the largest difference of what is
predicted in the end, and how often the host waited for the device. Ends with 1 if anything did not run, was
further off than rounding makes it, or waited in every batch. A process of its own: torch takes a further
backend only before its first gradient.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

from cascade_sim.models.calibrators import CALIBRATORS, PiecewiseLinear  # noqa: E402
from cascade_sim.models.calibrators.position_debiased import fit_examined  # noqa: E402
from cascade_sim.models.features import FeatureView, make_view  # noqa: E402
from cascade_sim.models.joint import JOINT_OBJECTIVES  # noqa: E402
from cascade_sim.models.nets.ids import IdTables, with_tables  # noqa: E402
from cascade_sim.models.objectives import OBJECTIVES, make_objective  # noqa: E402
from cascade_sim.models.page_training import (  # noqa: E402
    make_pages,
    scores,
    served_net,
    slot_predictions,
    train_pages,
)
from cascade_sim.models.recipes import RECIPES  # noqa: E402
from cascade_sim.models.slot_effects import SlotEffects  # noqa: E402
from cascade_sim.models.training import (  # noqa: E402
    Impressions,
    Lists,
    Positives,
    TrainingMonitor,
    TrainingPlan,
    chunk_of_rank,
    train,
)
from cascade_sim.scenario.joint import Joint  # noqa: E402
from cascade_sim.scenario.plugins import INNER_PRODUCTS, MODEL_KINDS, find_class  # noqa: E402
from cascade_sim.training.fit import fit_together  # noqa: E402
from cascade_sim.training.modules import input_widths  # noqa: E402
from worlds.clicked_ads import AD, ADS, LOGIT, USER, USERS, VIEW  # noqa: E402
from worlds.pretend_device import PretendDevice  # noqa: E402

EPOCHS, BATCH, SMALLER = 2, 256, 64
RATE = 0.01
FAR = 1e-3  # of a logit, after some steps: float32 in another order
SLOTS = np.array([1.0, 0.7, 0.5, 0.4], np.float32)


@dataclass(frozen=True)
class Row:
    """What came of one training."""

    net: str
    what: str
    off: float | None  # largest difference to the CPU; None: it did not run
    waits: int
    waits_of_more: int  # with smaller batches, and so more steps
    error: str = ""

    @property
    def is_sound(self) -> bool:
        return self.off is not None and self.off <= FAR and self.waits_of_more == self.waits


# The same world with its ids and histories seen: nets have embedding tables then, with sparse gradients.
IDS = make_view(
    ("user", "context", "quality", "G1", "mismatch_pair", "user_id", "ad_id", "advertiser_id", "history"),
    USER,
    AD,
    0.0,
    advertiser=(np.arange(ADS) % 7).astype(np.int32),
    n_advertisers=7,
    history=np.random.default_rng(3).integers(-1, ADS, (USERS, 5)).astype(np.int32),
)


def shown_pages(n: int, seed: int = 1) -> tuple[Impressions, np.ndarray, np.ndarray]:
    """Impressions of n pages of two to four slots, their requests, and what a deployed model said."""
    rng = np.random.default_rng(seed)
    size = rng.choice((2, 3, 4), n)
    users = np.repeat(rng.integers(0, USERS, n), size).astype(np.int32)
    ads = rng.integers(0, ADS, len(users)).astype(np.int32)
    logit = LOGIT[users, ads]
    slot = np.arange(len(users)) - np.repeat(np.cumsum(size) - size, size)
    click = rng.random(len(users)) < SLOTS[slot] / (1 + np.exp(-logit))
    request = np.repeat(np.arange(n), size).astype(np.int64)
    context = np.repeat(rng.standard_normal(n), size).astype(np.float32)
    shown = Impressions(users, context, ads, SLOTS[slot], click.astype(np.float32))
    return shown, request, 1 / (1 + np.exp(-0.5 * logit))


def taught_lists(n: int, m: int = 12, seed: int = 2) -> Lists:
    """Lists of a teacher that knows the truth."""
    rng = np.random.default_rng(seed)
    users = rng.integers(0, USERS, n).astype(np.int32)
    ads = np.stack([rng.permutation(ADS)[:m] for _ in range(n)]).astype(np.int32)
    teacher = LOGIT[users[:, None], ads].astype(np.float32)
    chunk = np.empty((n, m), np.int8)
    np.put_along_axis(chunk, np.argsort(-teacher, axis=1), chunk_of_rank(m, 4)[None], 1)
    context = np.zeros(n, np.float32)
    log_bid = rng.normal(0, 0.3, (n, m)).astype(np.float32)
    return Lists(users, context, ads, teacher, log_bid, chunk, log_bid + teacher)


PAGES = make_pages(*shown_pages(300))
LISTS = taught_lists(100)


def fresh(kind: str, heads: int = 1, view: FeatureView = VIEW) -> nn.Module:
    torch.manual_seed(1)
    options: dict[str, Any] = {"hidden": 16, "dims": 6}
    if heads > 1:
        options["heads"] = heads
    tables = IdTables(view, 4) if view.has_ids else None
    net = find_class(MODEL_KINDS, kind, Path("."))(*input_widths(view, tables), **options)
    return with_tables(net, tables)


Training = Callable[[int, torch.device], np.ndarray]  # in batches of a size, on a device


def trainings() -> Iterator[tuple[str, str, Training]]:
    """Net, what it is trained for, and the training, which gives what is predicted after it."""
    for kind in MODEL_KINDS.built_in:
        for objective in OBJECTIVES:
            yield kind, f"logloss, {objective}", partial(for_clicks, kind, objective)
        for name, recipe in RECIPES.items():
            if recipe.crosses:
                if kind in INNER_PRODUCTS:
                    yield kind, name, partial(among_the_batch, kind, name)
            elif recipe.has_teacher:
                yield kind, name, partial(by_teacher, kind, name)
            else:
                yield kind, f"{name}, single impressions", partial(by_sample, kind)
        yield kind, "sbcr, its calibrator joint", partial(with_its_map, kind)
        yield kind, "rcr, slots estimated", partial(with_its_slots, kind)
        yield kind, "rcr, watched", partial(watched, kind)
        for objective in ("pointwise", "rcr", "sbcr"):
            yield kind, f"ids, {objective}", partial(for_clicks, kind, objective, view=IDS)
        yield kind, "ids, single impressions", partial(by_sample, kind, view=IDS)
        yield kind, "ids, distill", partial(by_teacher, kind, "distill", view=IDS)
    for name in JOINT_OBJECTIVES:
        yield "two", f"joint, {name}", partial(together, name)
    for calibrator in CALIBRATORS:
        yield "calibrator", calibrator, partial(calibrated, calibrator)


def order_of(predicted: np.ndarray) -> np.ndarray:
    """Scores less the mean of their page: a level that a loss does not see wanders by rounding alone."""
    sizes = np.diff(PAGES.lists)
    return predicted - np.repeat(np.add.reduceat(predicted, PAGES.lists[:-1]) / sizes, sizes)


def for_clicks(kind: str, name: str, batch: int, where: torch.device, view: FeatureView = VIEW) -> np.ndarray:
    objective = make_objective(name)
    net = fresh(kind, objective.n_heads, view)
    train_pages(net, view, PAGES, objective, TrainingPlan(EPOCHS, batch, RATE, device=where))
    predicted = scores(served_net(net, objective), view, PAGES.shown)
    return predicted if objective.has_scale else order_of(predicted)


def by_sample(kind: str, batch: int, where: torch.device, view: FeatureView = VIEW) -> np.ndarray:
    net = fresh(kind, view=view)
    train(net, view, PAGES.shown, "logloss", TrainingPlan(EPOCHS, batch, RATE, device=where))
    return scores(net, view, PAGES.shown)


def among_the_batch(kind: str, recipe: str, batch: int, where: torch.device) -> np.ndarray:
    shown = PAGES.shown
    request, log_bid = np.arange(len(shown.ads)), np.linspace(-1, 1, ADS, dtype=np.float32)
    data = Positives(shown.users, shown.context, shown.ads, request, log_bid)
    net = fresh(kind)
    train(net, VIEW, data, recipe, TrainingPlan(EPOCHS, batch, RATE, device=where), {"uniform": 20})
    return order_of(scores(net, VIEW, shown))


def together(objective: str, batch: int, where: torch.device) -> np.ndarray:
    nets = {"light": fresh("towers"), "heavy": fresh("coaction")}
    section = Joint(models=tuple(nets), objective=objective, options={"k": 2, "quota": 4}, sample={})
    plan = TrainingPlan(EPOCHS, batch, RATE, device=where)
    told = [(net, VIEW) for net in nets.values()]
    fit_together(told, section, (4, 4), LISTS, plan, what="a drill", kinds=["towers", "coaction"])
    return np.concatenate([order_of(scores(net, VIEW, PAGES.shown)) for net in nets.values()])


def with_its_map(kind: str, batch: int, where: torch.device) -> np.ndarray:
    request = VIEW.request_features(PAGES.shown.users, PAGES.shown.context)
    net, calibrator = fresh(kind), PiecewiseLinear.untrained(request, seed=1)
    plan = TrainingPlan(EPOCHS, batch, RATE, device=where)
    train_pages(net, VIEW, PAGES, make_objective("sbcr"), plan, beside=calibrator.map)
    return np.asarray(calibrator(scores(net, VIEW, PAGES.shown), request))


def with_its_slots(kind: str, batch: int, where: torch.device) -> np.ndarray:
    net, slots = fresh(kind), SlotEffects(PAGES.n_slots)
    plan = TrainingPlan(EPOCHS, batch, RATE, device=where)
    train_pages(net, VIEW, PAGES, make_objective("rcr"), plan, slots=slots)
    return np.concatenate([scores(net, VIEW, PAGES.shown), slots.to("cpu").effects()])


def watched(kind: str, batch: int, where: torch.device) -> np.ndarray:
    """What was seen of the loss, of batches of one size: whoever looks has to wait."""
    net, objective = fresh(kind), make_objective("rcr")

    def look(model: nn.Module) -> dict[str, float]:
        return {"mean": float(slot_predictions(model, VIEW, PAGES.shown, objective)[1].mean())}

    monitor = TrainingMonitor(PAGES, look)
    train_pages(net, VIEW, PAGES, objective, TrainingPlan(EPOCHS, BATCH, RATE, device=where, monitor=monitor))
    return np.array([*monitor.by_group[-1], *(measures["mean"] for measures in monitor.measures)])


def by_teacher(
    kind: str, recipe: str, batch: int, where: torch.device, view: FeatureView = VIEW
) -> np.ndarray:
    net = fresh(kind, view=view)
    train(net, view, LISTS, recipe, TrainingPlan(EPOCHS, batch, RATE, device=where))
    predicted = scores(net, view, PAGES.shown)
    return predicted if RECIPES[recipe].gives_probabilities else order_of(predicted)


def calibrated(name: str, batch: int, where: torch.device) -> np.ndarray:
    shown = PAGES.shown
    request = VIEW.request_features(shown.users, shown.context)
    given = PAGES.dumped.astype(np.float64)
    has_net = CALIBRATORS[name].uses_request
    options = {"epochs": EPOCHS, "batch": batch, "device": where} if has_net else {}
    fitted = fit_examined(name, given, shown.click.astype(float), shown.examination.astype(float),
                          request=request, **options)  # fmt: skip
    return np.asarray(fitted(given, request))


def rows(device: str) -> Iterator[Row]:
    here = torch.device("cpu")
    for net, what, run in trainings():
        there: AbstractContextManager[Any] = PretendDevice() if device == "pretend" else nullcontext()
        more = copy.copy(there)
        where = there.device if isinstance(there, PretendDevice) else torch.device(device)
        wanted = run(BATCH, here)
        try:
            with there:
                found = run(BATCH, where)
            with more:
                run(SMALLER, where)
        except Exception as error:
            yield Row(net, what, None, 0, 0, f"{type(error).__name__}: {str(error)[:200]}")
            continue
        waits = [getattr(each, "waits", 0) for each in (there, more)]
        yield Row(net, what, float(np.abs(found - wanted).max()), *waits)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="pretend", help="pretend, cuda or mps")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each row")
    given = parser.parse_args()
    if given.device == "pretend":
        PretendDevice().device  # noqa: B018 - registered before the first gradient of the process
    done = []
    for row in rows(given.device):
        done.append(row)
        if given.json:
            print(json.dumps({**asdict(row), "is_sound": row.is_sound}))
        else:
            off = "-" if row.off is None else f"{row.off:.1e}"
            mark = row.error or ("" if row.is_sound else "far off, or waits in every batch")
            print(f"{row.net:<11} {row.what:<32} {off:>8} {row.waits:>4} {mark}")
    faults = [row for row in done if not row.is_sound]
    worst = max((row.off for row in done if row.off is not None), default=0.0)
    if not given.json:
        print(f"{len(done)} trainings, largest difference {worst:.1e}, {len(faults)} at fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
