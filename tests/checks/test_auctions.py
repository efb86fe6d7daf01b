"""The check of auctions: the same for any number of processes, and planted bugs are found."""

import ast
import re

import numpy as np
import pytest

from answers.told import tells
from cascade_sim.auction import AuctionResult, run_auction, to_micros
from cascade_sim.auction.pricing import RULES
from cascade_sim.checks import auctions as checker
from cascade_sim.checks.auctions import BLOCK, TOLERANCE, Answer, check_auctions, check_block, compare
from cascade_sim.cli import main
from cascade_sim.commands.checks.check_auctions import comparison_text
from cascade_sim.foundation.progress import Progress
from cascade_sim.protocols import Parameter, Pricing
from places import ROOT


def check(n=5000, seed=1, workers=1):
    with Progress(quiet=True) as progress:
        return check_auctions(n, seed, workers, progress)


@pytest.fixture(scope="module")
def verdict():
    return check(15_250, seed=3)


def test_engine_and_reference_agree(verdict):
    assert (verdict.auctions, verdict.different, verdict.first) == (15_250, 0, [])
    assert verdict.by_last_bit < verdict.charges / 10_000


def test_every_kind_of_auction_is_among_them(verdict):
    kinds = {*RULES, "squashed", "CPC reserve", "score floor", "rounded prices", "increment", "unequal slots"}
    kinds |= {"tied scores", "zero bids", "zero pCTRs", "fewer bidders than slots", "many powers of ten"}
    assert kinds == set(verdict.seen)
    assert min(verdict.seen.values()) > 15_250 / 20, verdict.seen
    assert verdict.bids > 4 * verdict.auctions


@pytest.mark.drill
def test_the_same_auctions_are_drawn_however_many_processes_share_them(verdict):
    alone = check(3 * BLOCK + 7, seed=3)
    shared = check(3 * BLOCK + 7, seed=3, workers=2)
    assert shared == alone
    assert check(3 * BLOCK + 7, seed=4) != alone


def with_other_rules(**rules):
    """The engine, but with rules of its own."""

    def engine(bid, pctr, **given):
        asked = {**given, **rules}
        foreign = {name for rule in RULES.values() for name in rule.parameters} - {
            *RULES[asked["pricing"]].parameters
        }
        return run_auction(bid, pctr, **{name: asked[name] for name in asked if name not in foreign})

    return engine


def dearer(bid, pctr, **rules):
    """A price that is off by twice what rounding may do."""
    result = run_auction(bid, pctr, **rules)
    return AuctionResult(result.winners, result.cpc * (1 - 2 * TOLERANCE))


def last_of_equals(bid, pctr, *, ids, **rules):
    """Ties go to the larger id."""
    ids = np.tile(np.arange(bid.shape[1]), (len(bid), 1)) if ids is None else ids
    return run_auction(bid, pctr, ids=np.where(ids >= 0, ids.max(initial=0) - ids, -1), **rules)


def without_runner_up(bid, pctr, *, slots, **rules):
    """The last slot is priced as if nobody stood behind it."""
    result = run_auction(bid, pctr, slots=slots, **rules)
    top = np.zeros(bid.shape, bool)
    for k in range(slots):
        rows = np.flatnonzero(result.winners[:, k] >= 0)
        top[rows, result.winners[rows, k]] = True
    return run_auction(np.where(top, bid, 0.0), pctr, slots=slots, **rules)


PLANTED = {
    "a wrong pricing": with_other_rules(pricing="first"),
    "no reserve": with_other_rules(reserve_cpc=0.0),
    "no floor": with_other_rules(score_floor=0.0),
    "equal slots": with_other_rules(slot_effects=None),
    "a price a hair off": dearer,
    "ties to the larger id": last_of_equals,
    "no runner-up": without_runner_up,
}


@pytest.mark.drill
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug, monkeypatch):
    monkeypatch.setattr(checker, "run_auction", PLANTED[bug])
    outcome = check(5000)
    assert outcome.different > 50 and len(outcome.first) == checker.KEPT
    numbers = [difference.number for difference in outcome.first]
    assert numbers == sorted(numbers)
    for difference in outcome.first:
        assert difference.engine != difference.reference


def test_a_charge_that_is_one_micro_unit_off_is_found(monkeypatch):
    monkeypatch.setattr(checker, "to_micros", lambda cpc, bid: np.maximum(to_micros(cpc, bid) - 1, 0))
    assert check(2000).different > 100


def test_a_difference_can_be_run_again_from_what_is_kept(monkeypatch):
    monkeypatch.setattr(checker, "run_auction", PLANTED["a wrong pricing"])
    outcome = check_block(1, 1, BLOCK)
    difference = outcome.first[0]
    again = run_auction(difference.bid, difference.pctr, ids=difference.ids, **difference.rules)
    assert [None if w < 0 else w for w in again.winners.tolist()] == difference.reference.winners
    shown = [price for price in difference.reference.cpc if price is not None]
    assert again.cpc[: len(shown)].tolist() == pytest.approx(shown, rel=TOLERANCE)


def test_only_beside_half_a_micro_unit_may_the_last_bit_of_a_double_decide():
    price = 12_345.678_901_5  # half a micro-unit, as near as a double comes
    right, other = (
        Answer([0], [price], [12_345_678_902]),
        Answer([0], [price * (1 - 1e-16)], [12_345_678_901]),
    )
    assert compare(other, right, [20_000.0], has_exact_doubles=False) == 1
    assert compare(other, right, [20_000.0], has_exact_doubles=True) is None
    assert compare(right, right, [20_000.0], has_exact_doubles=True) == 0
    assert compare(Answer([0], [price], [12_345_678_900]), right, [20_000.0], has_exact_doubles=False) is None
    plain = Answer([0], [1.25], [1_250_000])
    assert compare(Answer([0], [1.25], [1_250_001]), plain, [2.0], has_exact_doubles=False) is None


def test_the_command_ends_with_the_count(capsys):
    assert main(["check-auctions", "--auctions", "1200", "--workers", "1", "--quiet"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"1,200 auctions \([\d,]+ bids\), 0 differences, \d+ s", last)


def test_rules_that_were_not_drawn_are_named(verdict, capsys):
    assert main(["check-auctions", "--auctions", "10", "--workers", "1", "--quiet"]) == 0
    (told,) = re.findall(r"^not among them: (.*); a rule is drawn", capsys.readouterr().out, re.MULTILINE)
    assert len(told.split(", ")) == len(RULES) - 1
    assert "not among them" not in comparison_text(verdict, seconds=1.0)


@pytest.mark.parametrize("parameters", [{}, {"share": Parameter("of the way to the bid", 1.0)}])
def test_a_rule_that_the_reference_lacks_is_named_before_any_auction(capsys, monkeypatch, parameters):
    monkeypatch.setitem(RULES, "halfway", Pricing(lambda slot, *_: slot.bid / 2, parameters=parameters))
    assert main(["check-auctions", "--auctions", "10", "--workers", "1", "--quiet"]) == 2
    told = capsys.readouterr().err
    assert tells(told, "halfway", "cascade_sim/auction/reference.py")


def test_the_command_prints_what_differs_in_full(capsys, monkeypatch):
    monkeypatch.setattr(checker, "run_auction", PLANTED["a wrong pricing"])
    assert main(["check-auctions", "--auctions", "3000", "--workers", "1", "--quiet"]) == 1
    text = capsys.readouterr().out
    assert text.count(" differs\n") == checker.KEPT
    for word in ("slots", "pricing", "squashing", "reserve_cpc", "slot_effects", "bid", "pctr", "ids"):
        assert re.search(rf"^    {word} +\S", text, re.MULTILINE), word
    assert text.count("  engine\n") == text.count("  reference\n") == checker.KEPT
    assert re.search(r"… and [\d,]+ more", text) and " 0 differences" not in text


def test_the_reference_is_plain_python():
    tree = ast.parse((ROOT / "cascade_sim" / "auction" / "reference.py").read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert modules == {"collections.abc", "fractions", "math", "sys"}
    assert not any(isinstance(node, ast.Import) for node in ast.walk(tree))
