"""Made-up learning-to-rank files: clicks or grades that depend on a few of the features, with noise."""

from pathlib import Path

import numpy as np

from cascade_sim.ltr.files import RankingFile
from cascade_sim.ltr.training import list_columns, make_table


def made_lists(seed, n_lists, longest=14, n_features=8, base=-1.7, max_grade=1):
    """(features, labels, lists). Feature 1 is the list's own; classes are not separable."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, longest + 1, n_lists)
    lists = np.concatenate([[0], np.cumsum(sizes)])
    features = np.round(rng.normal(0, 1, (lists[-1], n_features)), 3)
    features[:, 0] = np.repeat(np.round(rng.normal(0, 1, n_lists), 3), sizes)
    logit = base + 0.8 * features[:, 0] + 1.2 * features[:, 1] - 0.7 * features[:, 2] * (features[:, 3] > 0)
    chance = 1 / (1 + np.exp(-logit))
    labels = rng.binomial(max_grade, chance)
    return features, labels, lists


def write_svmlight(path: Path, features, labels, lists, *, qid=True) -> Path:
    """Text in which a value of 0 is left out and every list has its qid."""
    owner = np.repeat(np.arange(len(lists) - 1), np.diff(lists))
    lines = []
    for row, label, query in zip(features, labels, owner, strict=True):
        pairs = [f"{i + 1}:{value:g}" for i, value in enumerate(row) if value]
        lines.append(" ".join([f"{label:g}", *([f"qid:{query + 1}"] if qid else []), *pairs]))
    path.write_text("\n".join(lines) + "\n")
    return path


def made_file(folder: Path, name: str, seed: int, n_lists: int, **options) -> Path:
    return write_svmlight(folder / name, *made_lists(seed, n_lists, **options))


def table(seed=1, n_lists=60, positive_from=1.0, **options):
    """Made-up lists ready for training."""
    features, labels, lists = made_lists(seed, n_lists, **options)
    data = RankingFile(
        features.astype(np.float32), labels.astype(np.float32), lists, np.arange(1, features.shape[1] + 1)
    )
    return make_table(data, list_columns(data), positive_from, "cpu")
