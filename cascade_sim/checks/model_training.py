"""Checks of a model as it is trained, stored and timed."""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from scipy.special import logit as log_odds
from torch import nn

from cascade_sim import draws
from cascade_sim.cascade.seats import ModelScorer
from cascade_sim.checks.contract import CheckFailed, Remark
from cascade_sim.checks.model import SEED, Subject, logits
from cascade_sim.models.nets.towers import TwoTowers
from cascade_sim.models.training import Impressions, Lists, chunk_of_rank, predict, train
from cascade_sim.questions.reopen import load_weights
from cascade_sim.storage.model_store import ModelStore
from cascade_sim.training.modules import make_scorer

N_LISTS, LIST = 256, 16
BATCH = 256
LEAST_GAIN = 1e-4  # of the loss; less is rounding


def gradients(subject: Subject) -> str:
    """Every parameter learns."""
    module = subject.build().train()
    weights = {name: p for name, p in module.named_parameters() if p.requires_grad and p.numel()}
    if not weights:
        raise CheckFailed("expected parameters to train, found none")
    inputs = subject.inputs(32, 4)
    found = predict(module, *inputs)
    if not found.requires_grad:
        raise CheckFailed(
            "expected logits with a gradient, found none; is something detached, or under no_grad?"
        )
    # Uneven factors: a plain sum would hide gradients that cancel.
    (found.float() * torch.linspace(0.5, 1.5, found.numel()).reshape(found.shape)).sum().backward()
    bad = [
        name for name, p in weights.items() if p.grad is not None and not bool(torch.isfinite(p.grad).all())
    ]
    if bad:
        raise CheckFailed(f"expected finite gradients, found others in: {', '.join(bad)}")
    idle = [name for name, p in weights.items() if p.grad is None]
    if len(idle) == len(weights):
        raise CheckFailed("expected gradients in the parameters, found none in any")
    if idle:
        raise Remark(f"no gradient reaches: {', '.join(idle)}; not used?")
    return f"reach all {len(weights)} parameters"


def training(subject: Subject) -> str:
    """An epoch of the recipe lowers the loss, and the same seed trains the same weights."""
    before = _train(subject, subject.build(), epochs=1, learning_rate=0.0)[0]
    first, second = subject.build(), subject.build()
    after = _train(subject, first, epochs=2, learning_rate=subject.spec.learning_rate)[-1]
    _train(subject, second, epochs=2, learning_rate=subject.spec.learning_rate)
    if not after < before * (1 - LEAST_GAIN):
        raise CheckFailed(
            f"expected an epoch of {subject.spec.recipe} to lower the loss, found {before:.4f} before "
            f"and {after:.4f} after"
        )
    twin = second.state_dict()
    differing = [name for name, value in first.state_dict().items() if not torch.equal(value, twin[name])]
    if differing:
        raise CheckFailed(
            f"expected the same weights from the same seed, found others in {', '.join(differing)}; "
            "forward draws numbers that torch's seed does not govern"
        )
    return f"{subject.spec.recipe}: loss {before:.4f} -> {after:.4f} after an epoch; repeatable"


def save_and_load(subject: Subject) -> str:
    """All that was learned is in the file, and a fresh module reads it."""
    module, fresh = subject.build(), subject.build(SEED + 1)
    _train(subject, module, epochs=1, learning_rate=subject.spec.learning_rate)
    inputs = subject.inputs(6, 5)
    expected = logits(module, inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        ModelStore(folder).export(module, path)
        size = path.stat().st_size
        load_weights(path, fresh)
    found = logits(fresh, inputs)
    if not torch.equal(found, expected):
        gap = float((found - expected).abs().max())
        raise CheckFailed(
            f"expected the same logits after loading, found a difference of {gap:.3g}; state that is neither "
            "a parameter nor a buffer is lost (use register_buffer)"
        )
    return f"{size:,} bytes as safetensors; a fresh module reads them back to the bit"


def speed(subject: Subject) -> str:
    """Candidates per second in the seat, beside the built-in towers in theirs."""
    recipe, view = subject.spec.recipe, subject.view
    own = make_scorer(subject.spec.kind, recipe, view, subject.build())
    towers = TwoTowers(view.request_width, view.ad_width, view.pair_width, hidden=32, dims=12)
    rate = _rate(subject, own)
    built_in = _rate(subject, make_scorer("towers", recipe, view, towers))
    return (
        f"{rate / 1e6:.2f} million candidates/s on one core, {rate / built_in:.2f} of the built-in towers "
        f"({built_in / 1e6:.1f})"
    )


def _rate(subject: Subject, scorer: ModelScorer) -> float:
    block, ids = subject.block(256), subject.candidates(256, 50)
    scorer.predict(block, ids)  # compiled kernels and caches are warm from here on
    best, deadline = float("inf"), time.perf_counter() + 0.3
    while time.perf_counter() < deadline:
        started = time.perf_counter()
        scorer.predict(block, ids)
        best = min(best, time.perf_counter() - started)
    return ids.size / best if best < float("inf") else 0.0


def _train(subject: Subject, module: nn.Module, epochs: int, learning_rate: float) -> list[float]:
    """The engine's training on samples of the small world; losses per epoch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)  # dropout while training draws from torch's own generator
        return train(
            module,
            subject.view,
            samples(subject),
            subject.spec.recipe,
            epochs=epochs,
            batch=BATCH,
            learning_rate=learning_rate,
            weight_decay=subject.spec.weight_decay,
            seed=SEED,
        )


def samples(subject: Subject) -> Impressions | Lists:
    """What the recipe learns from: clicks drawn from the hidden truth, or lists in the truth's order."""
    block = subject.block(N_LISTS)
    rows = np.arange(N_LISTS)[:, None]
    luck = draws.uniform(SEED, "check ads", rows, np.arange(LIST)[None, :])
    ads = (luck * subject.world.n_ads).astype(np.int32)
    ctr = subject.truth.ctr(block, ads)
    if subject.spec.recipe == "logloss":
        click = draws.uniform(SEED, "check clicks", rows, np.arange(LIST)[None, :]) < ctr
        return Impressions(
            users=np.repeat(block.users, LIST),
            context=np.repeat(block.context, LIST),
            ads=ads.ravel(),
            examination=np.ones(ads.size, np.float32),
            click=click.ravel().astype(np.float32),
        )
    bid = subject.world.init_bid[ads]
    chunk = np.empty(ads.shape, np.int8)
    best_first = np.lexsort((ads, -ctr * bid), axis=1)
    np.put_along_axis(chunk, best_first, chunk_of_rank(LIST, subject.spec.chunks)[None, :], 1)
    return Lists(
        users=block.users,
        context=block.context,
        ads=ads,
        teacher_logit=log_odds(ctr).astype(np.float32),
        log_bid=np.log(bid).astype(np.float32),
        chunk=chunk,
    )


TRAINING_CHECKS = (
    ("gradients", gradients, ("output",)),
    ("training", training, ("output", "gradients")),
    ("save and load", save_and_load, ("output", "repeatable", "gradients")),
    ("speed", speed, ("output", "finite")),
)
