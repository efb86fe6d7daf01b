"""How fast the losses are: CPU time of value and gradient on one thread: fused, plain torch, allRank, rax.

"torch" is the loss as its formula on padded rows, [lists, items, items] in memory where pairs are compared.
"allRank" is that library's own code, timed where it is installed (`pip install --no-deps allRank`: the
torch that it asks for is an old one). "rax" is google/rax in a Python of its own, compiled by jax:

    git clone https://github.com/google/rax
    python -m venv peers
    peers/bin/pip install jax flax optax
    python -m cascade_sim bench losses --rax rax --peer-python peers/bin/python

Both are given padded rows, ours are given flat scores. All forms of a loss take turns.
"""

import ctypes
import multiprocessing
import sys
import types
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cascade_sim.bench import in_turn, seconds
from cascade_sim.bench.peers import Peer
from cascade_sim.models.losses import LOSSES
from cascade_sim.models.losses.lists import make_batch, to_padded

SHAPES = ((128, 100), (512, 200))
GRADES = (0.5, 0.3, 0.14, 0.04, 0.02)
LABELS = ("graded", "10 % positive")
TIMED: dict[str, dict[str, Any]] = {
    "ranknet": {},
    "approx_ndcg": {"beta": 10.0},
    "softmax": {},
    "list_ce": {"transform": "sigmoid"},
    "calibrated_softmax": {},
    "calibrated_ranknet": {},
    "pairwise_logistic": {},
    "pairwise_exponential": {},
}
IN_ALLRANK = ("ranknet", "approx_ndcg")
SHORT = 0.005  # seconds
IN_RAX = ("ranknet", "approx_ndcg", "softmax", "list_ce", "calibrated_softmax")


@dataclass(frozen=True)
class Sample:
    """Random lists, flat and as padded rows; padding has label -1 in the rows, as allRank wants it."""

    scores: torch.Tensor  # [N] float32
    labels: torch.Tensor  # [N] float32
    lists: np.ndarray  # [L + 1]
    row_scores: torch.Tensor  # [L, m]
    row_labels: torch.Tensor  # [L, m]


def draw(n_lists: int, n_items: int, labels: str, seed: int = 0) -> Sample:
    """Lists of n_items / 2 to n_items items, all lengths alike; labels 0..4 or a tenth of them 1."""
    generator = np.random.default_rng(seed)
    lists = np.concatenate([[0], np.cumsum(generator.integers(n_items // 2, n_items + 1, n_lists))])
    n = int(lists[-1])
    scores = torch.from_numpy(generator.normal(0, 2, n).astype(np.float32))
    drawn = generator.choice(5, n, p=GRADES) if labels == "graded" else generator.random(n) < 0.1
    y = torch.from_numpy(drawn.astype(np.float32))
    batch = make_batch(scores, y, lists)
    return Sample(scores, y, lists, to_padded(scores, batch), to_padded(y + 1, batch) - 1)


def load_allrank() -> dict[str, Callable[..., torch.Tensor]] | None:
    """allRank's RankNet and ApproxNDCG, or None if it is not installed.

    All its losses want of its data loader is a constant, and of its model utilities the device. Those modules
    need torchvision and a cloud client, so while the losses are imported others stand in for them.
    """
    stand_ins: dict[str, dict[str, Any]] = {
        "allrank.data.dataset_loading": {"PADDED_Y_VALUE": -1},
        "allrank.models.model_utils": {"get_torch_device": lambda: torch.device("cpu")},
    }
    ours = [name for name in stand_ins if name not in sys.modules]
    for name in ours:
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(stand_ins[name])
    try:
        from allrank.models.losses import approxNDCGLoss, rankNet
    except ImportError:
        return None
    finally:
        for name in ours:
            del sys.modules[name]
    return {"ranknet": rankNet, "approx_ndcg": partial(approxNDCGLoss, alpha=10.0)}


def step(name: str, form: str, sample: Sample) -> Callable[[], tuple[float, torch.Tensor]]:
    """A call that computes the loss and its gradient once, of fresh scores."""
    if form == "allRank":
        theirs = load_allrank()
        if theirs is None:
            raise ValueError("allRank is not installed")
        loss, start = theirs[name], sample.row_scores
        given: tuple[Any, ...] = (sample.row_labels,)
    else:
        loss, start = partial(LOSSES[name], engine=form, **TIMED[name]), sample.scores
        given = (sample.labels, sample.lists)

    def run() -> tuple[float, torch.Tensor]:
        scores = start.clone().requires_grad_()
        value = loss(scores, *given)
        value.backward()
        assert scores.grad is not None
        return value.item(), scores.grad

    return run


def mean_seconds(run: Callable[[], Any], calls: int) -> float:
    """CPU seconds of one call, the mean of several in a row."""
    return seconds(lambda: [run() for _ in range(calls)]) / calls


def asked_of(rax: Peer, name: str, sample: Sample, calls: int) -> Callable[[], float]:
    """A call that has rax compute the loss of this sample some times and gives the CPU seconds of one."""
    labels = sample.row_labels.clamp(min=0)
    rows = {"scores": sample.row_scores.tolist(), "labels": labels.tolist()}
    rax.ask(loss=name, **rows, sizes=np.diff(sample.lists).tolist())
    return lambda: float(rax.ask(calls=calls)["seconds"])


def extra_memory_mb(name: str, form: str, shape: tuple[int, int]) -> float | None:
    """Peak memory of one call above what the process held before it, in a fresh process. Linux only."""
    if not sys.platform.startswith("linux"):
        return None
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_extra_memory_mb, (name, form, shape))


def _extra_memory_mb(name: str, form: str, shape: tuple[int, int]) -> float:
    torch.set_num_threads(1)
    step(name, form, draw(4, 10, "graded"))()  # loads and compiles
    run = step(name, form, draw(*shape, "graded"))
    # What is free but still held would hide what the call takes.
    getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: None)(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak is counted from here
    before = _status_mb("VmRSS")
    run()
    return max(_status_mb("VmHWM") - before, 0.0)


def _status_mb(key: str) -> float:
    with open("/proc/self/status") as file:
        return next(float(line.split()[1]) for line in file if line.startswith(key + ":")) / 1024.0


def bench_losses(
    shapes: tuple[tuple[int, int], ...] = SHAPES,
    *,
    repeats: int = 15,
    with_memory: bool = True,
    rax: Path | None = None,
    python: Path | None = None,
) -> list[dict[str, Any]]:
    """One row per shape, labels and loss: {"lists", "items", "labels", "loss", "ms", "memory_mb"}.

    "ms" (a Spread) and "memory_mb" are by form: fused, torch and, where it is there and has the loss, allRank
    and rax (a checkout and the Python to run it with).
    Memory is measured for RankNet and ApproxNDCG on graded labels, None elsewhere.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    has_allrank = load_allrank() is not None
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, threads)
        peer = None
        if rax is not None and python is not None:
            peer = stack.enter_context(Peer("rax", rax, python))
        for shape in shapes:
            for labels in LABELS:
                sample = draw(*shape, labels)
                for name in TIMED:
                    forms = ["fused", "torch"] + ["allRank"] * (has_allrank and name in IN_ALLRANK)
                    runs = {form: step(name, form, sample) for form in forms}
                    for run in runs.values():
                        run()  # compiles
                    # Short ones several times a turn: in a training the caches are not cold.
                    calls = 10 if seconds(runs["fused"]) < SHORT else 1
                    timed: dict[str, Callable[[], float]] = {
                        form: partial(mean_seconds, run, calls) for form, run in runs.items()
                    }
                    if peer is not None and name in IN_RAX:
                        timed["rax"] = asked_of(peer, name, sample, calls)
                    row: dict[str, Any] = dict(zip(("lists", "items"), shape, strict=True))
                    row |= {"labels": labels, "loss": name, "memory_mb": None}
                    row["ms"] = {form: s.times(1e3) for form, s in in_turn(timed, repeats).items()}
                    if with_memory and labels == "graded" and name in IN_ALLRANK:
                        row["memory_mb"] = {form: extra_memory_mb(name, form, shape) for form in forms}
                    rows.append(row)
    return rows


def losses_text(rows: list[dict[str, Any]]) -> str:
    """The figures as lines for a terminal."""
    lines = ["losses, CPU time of value and gradient, one core; medians, and least to upper quartile of ours"]
    seen: tuple[Any, ...] = ()
    for row in rows:
        if (row["lists"], row["items"], row["labels"]) != seen:
            seen = (row["lists"], row["items"], row["labels"])
            lines.append(f"{seen[0]} lists x {seen[1] // 2}..{seen[1]} items, {seen[2]}")
        fused = row["ms"]["fused"]
        others = [
            f"{form} {ms.median:9.2f} ms {ms.median / fused.median:6.1f} x"
            for form, ms in row["ms"].items()
            if form != "fused"
        ]
        own = f"fused {fused.median:8.2f} ms ({fused.least:.2f} to {fused.upper:.2f})"
        lines.append(f"  {row['loss']:<20} {own:<34} " + "   ".join(others))
        if row["memory_mb"]:
            known = {form: mb for form, mb in row["memory_mb"].items() if mb is not None}
            peaks = "   ".join(f"{form} {mb:.1f} MB" for form, mb in known.items())
            lines.append(f"  {'':<20} peak extra memory: {peaks or 'not measured here'}")
    return "\n".join(lines)
