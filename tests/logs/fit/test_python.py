"""`fit_world` and `realism` from Python: tables beside what the command line prints, and its refusals."""

from functools import partial

import pytest

from answers.told import refused
from cascade_sim import fit_world, realism
from cascade_sim.logs.fit import realism as study


@pytest.fixture(scope="module")
def found(place):
    """A short look: few resamples of few requests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "realism", partial(study.realism, resamples=10, most=200))
        return realism(place / "market", place / "world.yaml", out=place / "looked at")


def test_realism_has_its_statistics_and_its_test_as_tables(found):
    frame = found.frame().set_index("statistic")
    ctr = next(row for row in found.answer["statistics"] if row["name"] == "ctr")
    assert frame.loc[ctr["label"], "log"] == ctr["log"]["value"]
    assert frame.loc[ctr["label"], "gap_high"] == ctr["gap"]["high"]
    test = found.classifier().set_index("compared")
    assert list(test.index) == ["requests", "shown"]
    shown = found.answer["two_sample"]["shown"]
    assert test.loc["shown", "auc"] == shown["auc"]["value"]
    assert test.loc["shown", "within_log_auc_low"] == shown["within_log"]["auc"]["low"]
    assert found.verdict in ("equivalent", "inconclusive", "different")
    assert list(found.gaps) == found.answer["gaps"]
    assert found.whatifs().empty and "is_inside" in found.whatifs().columns
    assert {path.name for path in found.files} == {"realism.json", "realism.html"}
    assert "within_log_auc" in found._repr_html_()


def test_an_ad_that_never_changes_its_bid_has_a_spread_of_zero(tmp_path):
    import numpy as np

    from cascade_sim.logs.fidelity.sample import take
    from cascade_sim.logs.fidelity.summary_statistics import spread_within_ad
    from worlds.logged_auctions import drawn, paged, stored

    log = drawn(44, requests=60)
    log.bid[:] = 0.3  # its logarithm is no round number
    sample = take(stored(tmp_path, paged(log)))
    weight = np.random.default_rng(3).random(len(sample))
    assert spread_within_ad(sample, weight) == 0.0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda place: fit_world(place / "market", place / "world.yaml"), "exists already"),
        (lambda place: fit_world(place / "market", place / "w.json"), "w.json .yaml"),
        (lambda place: fit_world(place / "market", place / "w.yaml", share=0), "0 1"),
        (
            lambda place: fit_world(place / "market", place / "w.yaml", share=0.5, parametric=True),
            "--fit-share",
        ),
        (
            lambda place: realism(place / "market", place / "wrld", out=place / "new"),
            "wrld",
        ),
        (lambda place: realism(place / "market", place / "market", part="frist"), "'frist' 'first'?"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(place, call, said):
    before = sorted(place.iterdir())
    with refused(*said.split()):
        call(place)
    assert sorted(place.iterdir()) == before
