"""How fast the metrics are: milliseconds for a usual evaluation, one thread."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cascade_sim.analysis import metrics
from cascade_sim.bench import seconds


def bench_metrics(n_lists: int = 2000, n_items: int = 40, repeats: int = 15) -> dict[str, float]:
    """Milliseconds, the best of several rounds, for n_lists lists of n_items: {what: ms}.

    "gauc + ndcg" is both from flat scores and offsets, the sort included; single metrics below it likewise.
    Grades 0..4, scores without ties.
    """
    generator = np.random.default_rng(0)
    lists = np.arange(n_lists + 1) * n_items
    scores = generator.standard_normal(n_lists * n_items)
    grades = generator.choice(5, size=scores.size, p=[0.5, 0.3, 0.14, 0.04, 0.02]).astype(np.float64)
    clicks = (grades > 0).astype(np.float64)
    pctr = 1.0 / (1.0 + np.exp(-scores))

    def both() -> None:
        ranking = metrics.rank_lists(scores, lists)
        metrics.gauc(ranking, clicks)
        metrics.ndcg(ranking, grades)

    timed: dict[str, Callable[[], Any]] = {
        "gauc + ndcg": both,
        "gauc": lambda: metrics.gauc(scores, clicks, lists),
        "ndcg": lambda: metrics.ndcg(scores, grades, lists),
        "err": lambda: metrics.err(scores, grades, lists),
        "average_precision": lambda: metrics.average_precision(scores, clicks, lists),
        "spearman": lambda: metrics.spearman(scores, grades, lists),
        "ece_per_request": lambda: metrics.ece_per_request(pctr, clicks, lists),
    }
    return {name: min(seconds(function) for _ in range(repeats)) * 1e3 for name, function in timed.items()}


def metrics_text(milliseconds: dict[str, float], n_lists: int = 2000, n_items: int = 40) -> str:
    """The figures as lines for a terminal."""
    rows = [f"  {name:<20} {value:8.2f} ms" for name, value in milliseconds.items()]
    return "\n".join([f"metrics, one core ({n_lists:,} lists x {n_items} items)", *rows])
