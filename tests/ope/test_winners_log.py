"""Off-policy answers from logs of shown ads alone, in the form of Open Bandit's data."""

import re

import numpy as np
import pytest

from answers.told import refused, tells
from cascade_sim import import_logs, off_policy
from cascade_sim.cli import main
from cascade_sim.ope.study import answer_of
from cascade_sim.ope.winners_log import (
    FOLDS,
    DrawnPages,
    conditional,
    evidence_of,
    forecast,
    policy_weights,
)
from cascade_sim.scenario.targets import parse_target

ADS, SLOTS, N = 8, 3, 6000
RATE = np.linspace(0.02, 0.3, ADS)
EFFECT = np.array([1.0, 0.8, 0.5])
LAW = np.linspace(2.0, 1.0, ADS) / np.linspace(2.0, 1.0, ADS).sum()  # of the log: the worst ads most often
TARGET, EVEN = parse_target("t", ["slates.temperature=1"]), parse_target("t", ["ranking.model=constant"])


def drawn(seed, n=N):
    """A page with one known ad in one of three slots, as Open Bandit logs it."""
    generator = np.random.Generator(np.random.PCG64(seed))
    ad, slot = generator.choice(ADS, n, p=LAW), generator.integers(0, SLOTS, n)
    click = (generator.random(n) < RATE[ad] * EFFECT[slot]).astype(float)
    fold = generator.integers(0, FOLDS, n)
    pages = DrawnPages(
        ad[:, None], slot[:, None], LAW[ad][:, None], {"clicks": click[:, None]}, click[:, None], fold, None,
        SLOTS, ADS,
    )  # fmt: skip
    return pages


def truth(pages, target):
    """What the target earns, by the true rates, on the slots and folds of the log."""
    weight = policy_weights(pages, target)
    value = (weight * RATE * EFFECT[:, None]).sum(axis=2) / weight.sum(axis=2)
    return value[pages.fold, pages.slot[:, 0]].mean()


@pytest.mark.parametrize("target", [TARGET, EVEN], ids=["by rate", "evenly"])
def test_intervals_cover_what_the_policy_earns(target):
    names = ("ips", "snips", "doubly_robust")
    hits = dict.fromkeys(names, 0)
    for seed in range(60):
        pages = drawn(seed, 2000)
        rows = answer_of(evidence_of(pages, target, "clicks")[0], names)["estimators"]
        for name in names:
            ends = rows[name]["estimate"]
            hits[name] += ends["low"] <= truth(pages, target) <= ends["high"]
    assert min(hits.values()) >= 52  # of 60; at 95 % fewer come in one of 300 series


def test_a_forecast_knows_nothing_of_the_request_that_it_is_for():
    pages = drawn(1)
    rate = forecast(pages, pages.clicks)
    own = pages.clicks.copy()
    own[pages.fold == 2] = 1 - own[pages.fold == 2]
    changed = DrawnPages(**{**vars(pages), "clicks": own})
    again = forecast(changed, own)
    np.testing.assert_array_equal(rate[2], again[2])
    assert not np.array_equal(rate[1], again[1])
    assert np.abs(rate.mean(axis=0) - RATE * EFFECT[:, None]).max() < 0.1


def test_ads_of_a_page_are_drawn_without_replacement():
    """Against the chance of each ad by hand, given those above it."""
    weight = np.tile(np.arange(1.0, 5.0), (FOLDS, 2, 1))
    pages = DrawnPages(
        np.array([[3, 0], [1, -1]]), np.array([[0, 1], [0, 0]]), np.ones((2, 2)), {}, None,
        np.zeros(2, np.int64), None, 2, 4,
    )  # fmt: skip
    np.testing.assert_allclose(conditional(pages, np.log(weight)), [[0.4, 1 / 6], [0.2, 1.0]])


def two_slots(above, below, users=None):
    """Pages that show two of six ads, drawn evenly."""
    ad = np.column_stack([above, below])
    clicks = {"clicks": np.random.Generator(np.random.PCG64(5)).integers(0, 2, ad.shape).astype(float)}
    slot, n = np.tile([0, 1], (len(ad), 1)), len(ad)
    chance = np.tile([1 / 6, 1 / 5], (n, 1))
    return DrawnPages(ad, slot, chance, clicks, clicks["clicks"], np.zeros(n, np.int64), users, 2, 6)


@pytest.mark.parametrize("temperature", [1.0, 0.02, 1e-3])
@pytest.mark.parametrize("above", [0, 1, 5])
def test_however_sharp_the_policy_the_ads_left_share_a_chance_of_1(temperature, above):
    """The nearly certain first ad takes the weight of the others with it when it is taken off the whole."""
    odds = np.tile(np.log([0.3, 0.2, 0.1, 0.05, 0.04, 0.01]) / temperature, (FOLDS, 2, 1))
    below = np.setdiff1d(np.arange(6), above)
    chance = conditional(two_slots(np.full(5, above), below), odds)[:, 1]
    rest = odds[0, 0, below] - odds[0, 0, below].max()
    np.testing.assert_allclose(chance, np.exp(rest) / np.exp(rest).sum(), rtol=1e-9)


def test_intervals_of_pages_of_several_ads_resample_users():
    generator = np.random.Generator(np.random.PCG64(9))
    above, step = generator.integers(0, 6, 2000), generator.integers(1, 6, 2000)
    single = two_slots(above, (above + step) % 6)
    thrice = DrawnPages(  # the same again: nothing more is known
        **{
            name: {k: np.tile(v, (3, 1)) for k, v in value.items()} if isinstance(value, dict)
            else np.concatenate([value] * 3) if isinstance(value, np.ndarray) else value
            for name, value in vars(single).items()
        }
    )  # fmt: skip
    own, tripled = np.arange(2000), np.tile(np.arange(2000), 3)

    def width(pages, users):
        pages = DrawnPages(**{**vars(pages), "users": users})
        answer = answer_of(evidence_of(pages, EVEN, "clicks")[0], ("reward_interaction_ips",))
        both = answer["logged"], answer["estimators"]["reward_interaction_ips"]["estimate"]
        return [ends["high"] - ends["low"] for ends in both]

    assert width(thrice, tripled) == pytest.approx(width(single, own), rel=0.02)


def bandit_csv(path, n=N, propensity=True):
    pages = drawn(11, n)
    columns = zip(pages.ad[:, 0], pages.slot[:, 0] + 1, pages.clicks[:, 0], LAW[pages.ad[:, 0]], strict=True)
    head = "timestamp,item_id,position,click,propensity_score,user_feature_0\n"
    rows = "".join(
        f"2019-11-24 {i // 3600:02}:{i // 60 % 60:02}:{i % 60:02}+00:00,{ad},{slot},{int(click)},"
        f"{p if propensity else ''},x{i % 3}\n"
        for i, (ad, slot, click, p) in enumerate(columns)
    )
    path.write_text(head + rows)
    return path


@pytest.fixture(scope="module")
def bandit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bandit")
    return import_logs([bandit_csv(folder / "all.csv")], folder / "market", format="open-bandit")


def test_a_log_that_promises_off_policy_answers_gives_them(bandit, capsys):
    assert tells(bandit, "supports: off-policy estimates")
    answer = off_policy(bandit, ["ranking.model=constant"])
    rows = answer.frame().set_index("estimator")
    assert answer.reward == "clicks" and set(rows.index) == {"ips", "snips", "doubly_robust", "direct_method"}
    even = RATE.mean() * EFFECT.mean()
    for name in ("ips", "snips", "doubly_robust"):
        assert rows["low"][name] <= even <= rows["high"][name] and 0.5 < rows["ess_share"][name] < 1
    assert rows["lift"]["ips"] > 0  # the log showed the worst ads most often
    assert main(["off-policy", str(bandit.path), "--set", "slates.temperature=1", "--quiet"]) == 0
    text = capsys.readouterr().out
    assert tells(text, "clicks per request", "all ads")
    assert "revenue" not in text.lower()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reward", "revenue", "--set", "ranking.model=constant"], r"prices \(price\) would have to be"),
        (["--set", "auction.reserve_cpc=0.2"], "parameters were not randomised in this log"),
        (["--set", "ranking.model=constent"], "slates.temperature=T"),
        (["--set", "ranking.model=constent", "--set", "slates.temperature=1"], "did you mean 'constant'"),
        (["--set", "ranking.model=constant", "--estimator", "cascade_dr"], "here ips, snips"),
        ([], "say what to change with --set"),
    ],
)  # fmt: skip
def test_what_it_does_not_know_is_refused(bandit, words, said, capsys):
    assert main(["off-policy", str(bandit.path), *words, "--quiet"]) == 2
    assert re.search(said, capsys.readouterr().err)


def test_without_propensities_nothing_is_promised_and_nothing_answered(tmp_path):
    market = import_logs(
        [bandit_csv(tmp_path / "all.csv", 60, propensity=False)], tmp_path / "m", format="open-bandit"
    )
    assert tells(market, "support: off-policy estimates") and "supports: off-policy" not in str(market)
    with refused("propensities"):
        off_policy(market, ["ranking.model=constant"])


PAGES = """\
requests: {columns: {request: id, time: at, slots: {constant: 2}}}
outcomes:
  files: shown.csv
  columns: {request: id, ad: ad, slot: slot, price: cost, click: click, propensity: p}
time: seconds
name: pages
"""


def test_pages_of_several_ads_are_weighed_slot_by_slot(tmp_path):
    """Drawn evenly from four: the even policy changes nothing, and revenue is known where prices are."""
    generator = np.random.Generator(np.random.PCG64(3))
    lines = ["id,at,ad,slot,cost,click,p"]
    for i in range(800):
        for slot, ad in enumerate(generator.permutation(4)[:2]):
            click = int(generator.random() < 0.1 * (ad + 1))
            at, cost = 1_772_492_400 + i, 0.5 if click else ""
            lines.append(f"r{i},{at},{ad},{slot},{cost},{click},{1 / (4 - slot)}")
    (tmp_path / "shown.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "mapping.yaml").write_text(PAGES)
    market = import_logs(tmp_path / "mapping.yaml", tmp_path / "market")
    assert tells(market, "supports: off-policy estimates", "revenue")
    answer = off_policy(market, ["ranking.model=constant"])
    row = answer.answers["the asked policy"]["rewards"]["revenue"]
    assert answer.reward == "revenue" and list(row["estimators"]) == ["slate_ips", "reward_interaction_ips"]
    for name in row["estimators"]:
        assert row["estimators"][name]["estimate"]["value"] == pytest.approx(row["logged"]["value"])
