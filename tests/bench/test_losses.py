"""The bench of the losses times the same loss in every form."""

import json
import sys

import numpy as np
import pytest

from answers.told import tells
from cascade_sim.bench import losses as bench_losses
from cascade_sim.bench import plain
from cascade_sim.cli import main


@pytest.fixture(scope="module")
def rows():
    return bench_losses.bench_losses(((4, 10), (3, 20)), repeats=2, with_memory=False)


def test_every_loss_is_timed_at_every_shape_and_kind_of_labels(rows):
    found = [(row["lists"], row["items"], row["labels"], row["loss"]) for row in rows]
    assert len(set(found)) == len(found) == 2 * 2 * len(bench_losses.TIMED)
    assert all(row["ms"]["fused"].least > 0 and row["ms"]["torch"].least > 0 for row in rows)


@pytest.mark.parametrize("labels", bench_losses.LABELS)
def test_lists_are_between_half_and_full_length_and_labels_as_named(labels):
    sample = bench_losses.draw(300, 40, labels)
    sizes = np.diff(sample.lists)
    assert sizes.min() == 20 and sizes.max() == 40 and abs(sizes.mean() - 30) < 1.5
    shares = np.bincount(sample.labels.int().numpy()) / len(sample.labels)
    expected = bench_losses.GRADES if labels == "graded" else (0.9, 0.1)
    assert shares == pytest.approx(expected, abs=0.02)
    is_item = sample.row_labels >= 0
    assert is_item.sum(1).tolist() == sizes.tolist()
    assert sample.row_scores[is_item].tolist() == sample.scores.tolist()


@pytest.mark.parametrize("name", bench_losses.TIMED)
def test_both_forms_compute_the_same(name):
    sample = bench_losses.draw(5, 12, "graded")
    (mine, slope), (theirs, naive) = (bench_losses.step(name, form, sample)() for form in ("fused", "torch"))
    assert mine == pytest.approx(theirs, rel=1e-5)
    assert slope.numpy() == pytest.approx(naive.numpy(), rel=1e-4, abs=1e-6)


@pytest.mark.drill
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_a_fused_loss_keeps_nothing_of_the_size_of_pairs():
    pairs_mb = 512 * 200 * 200 * 4 / 2**20
    assert 0 < bench_losses.extra_memory_mb("ranknet", "fused", (512, 200)) < pairs_mb / 8


def test_the_command_prints_text_or_json(rows, monkeypatch, capsys):
    monkeypatch.setattr(bench_losses, "bench_losses", lambda rax, python: rows)
    assert main(["bench", "losses"]) == 0
    text = capsys.readouterr().out
    assert tells(text, "4 lists", "5..10 items") and text.count("approx_ndcg") == 4
    assert main(["bench", "losses", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == plain(rows)


def test_rax_is_given_the_same_lists_as_rows():
    """A stand-in that keeps what it is asked."""
    asked = []

    class Rax:
        def ask(self, **what):
            asked.append(what)
            return {"seconds": 2.0}

    sample = bench_losses.draw(3, 8, "graded")
    assert bench_losses.asked_of(Rax(), "softmax", sample, 3)() == 2.0
    first, second = asked
    assert first["loss"] == "softmax" and second == {"calls": 3}
    items = [row[:size] for row, size in zip(first["labels"], first["sizes"], strict=True)]
    assert sum(items, []) == sample.labels.tolist()
    assert min(map(min, first["labels"])) >= 0
