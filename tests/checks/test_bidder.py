"""The bidder checker: a good bidder passes; each way of being wrong is caught by the check that names it."""

import json

import pytest
from click.testing import CliRunner

from answers.told import tells
from cascade_sim.agents.bidders import BIDDERS
from cascade_sim.checks import bidder as check_bidder_history
from cascade_sim.checks.bidder import check_bidder
from cascade_sim.commands.checks.check_bidder import command
from cascade_sim.foundation.errors import UserError
from worlds.checked_files import not_ok, statuses, write_mine
from worlds.clock import Clock

# A bidder whose parts the cases below replace.
SOURCE = """
import numpy as np
{more_imports}


class Mine:
    def __init__(self, portfolio, cut=0.1{more_arguments}):
        self.value, self.owner = np.array(portfolio.value), portfolio.owner
        self.budget, self.cut = portfolio.budget_micros, cut
        self.share = np.ones(len(portfolio.budget_micros))
        {more_parts}

    def bids(self, now):
        bids = np.where(self.budget[self.owner] > 0, self.value * self.share[self.owner], 0.0)
        {more_bids}
        return bids

    def participation(self, now):
        passing = np.ones(len(self.share))
        {more_participation}
        return passing

    def observe(self, feedback, now):
        self.share = self.share * np.where(feedback.clicks > 0, 1 - self.cut / 10, 1.0)
        {more_observe}

    def state(self):
        state = {{"share": self.share.copy()}}
        {more_state}
        return state

    def restore(self, state):
        self.share = state["share"].copy()
        {more_restore}

    {more_methods}
"""


class Ticking(Clock):
    """A look at it takes a millisecond."""

    def perf_counter(self):
        self.sleep(0.001)
        return self.now


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(check_bidder_history, "SPEED_SECONDS", 0.01)


@pytest.fixture
def on_an_idle_machine(monkeypatch):
    """The check of the speed, the only one that measures, finds nothing to note."""
    monkeypatch.setattr(check_bidder_history, "time", Ticking())


def checked(kind: str, **options: object) -> dict[str, tuple[str, str]]:
    return statuses(check_bidder(kind, options=options))


def test_a_sound_bidder_that_inherits_nothing_passes_every_check(tmp_path, on_an_idle_machine):
    by_check = checked(write_mine(tmp_path, SOURCE), cut=0.2)
    assert not_ok(by_check) == {}
    assert list(by_check)[:4] == ["import", "constructor", "bids", "participation"]
    assert by_check["constructor"][1] == "Mine(portfolio, cut=0.2)"
    assert "2,000 advertisers with 20,000 ads" in by_check["speed"][1]


@pytest.mark.parametrize("name", BIDDERS)
def test_the_built_in_bidders_pass_without_a_note(name, on_an_idle_machine):
    assert not_ok(checked(name)) == {}


BROKEN = {
    "a syntax error": ({"more_imports": "def"}, "import", "SyntaxError"),
    "another signature": ({"more_arguments": ", *, depth"}, "constructor", "argument: 'depth'"),
    "an option refused": (
        {"more_parts": "raise ValueError('option cut: expected less')"},
        "constructor",
        "mine.py:11: ValueError: option cut: expected less",
    ),
    "a missing method": ({"more_methods": "observe = None"}, "constructor", "found none called observe"),
    "one bid per advertiser": ({"more_bids": "bids = self.share"}, "bids", "[a] = [40], found shape [12]"),
    "integers": ({"more_bids": "bids = bids.astype(int)"}, "bids", "found dtype int64"),
    "a list": ({"more_bids": "bids = bids.tolist()"}, "bids", "found list"),
    "a negative bid": ({"more_bids": "bids = bids - 5"}, "bids", "found -"),
    "a bid that is no number": ({"more_bids": "bids[3] = np.nan"}, "bids", "found nan at 3 at the start"),
    "an error in bids": ({"more_bids": "now.nothing"}, "bids", "mine.py:15: AttributeError"),
    "participation above 1": (
        {"more_participation": "passing = passing * 1.5"},
        "participation",
        "in [0, 1], found 1.5",
    ),
    "participation per ad": (
        {"more_participation": "passing = self.value"},
        "participation",
        "found shape [40]",
    ),
    "a division by no clicks": (
        {"more_observe": "self.share = self.share * (feedback.clicks / feedback.clicks)"},
        "history",
        "found nan",
    ),
    "growth without end": (
        {"more_observe": "self.share = self.share * 1e300"},
        "history",
        "in [0, 1e+06], found 1",
    ),
    "an error on a new day": (
        {"more_observe": "assert now.day == 0, 'a second day'"},
        "history",
        "mine.py:25: AssertionError: a second day",
    ),
    "an answer from observe": ({"more_observe": "return self.share"}, "history", "to return nothing"),
    "a question for the truth": (
        {"more_observe": "getattr(feedback, 'true_ctr', None)"},
        "sees",
        "found feedback.true_ctr",
    ),
    "a question for the others": (
        {"more_parts": "self.others = getattr(portfolio, 'other_bids', None)"},
        "sees",
        "found portfolio.other_bids",
    ),
    "a look into the engine": (
        {"more_imports": "from cascade_sim.foundation.errors import UserError"},
        "sees",
        "found imports of cascade_sim.foundation.errors",
    ),
    "changed feedback": (
        {"more_observe": "feedback.clicks[:] = 0"},
        "side effects",
        "found feedback.clicks changed",
    ),
    "a changed portfolio": (
        {"more_observe": "self.budget -= feedback.spend_micros"},
        "side effects",
        "found portfolio.budget_micros changed",
    ),
    "its own array given away": (
        {
            "more_parts": "self.passing = np.ones(len(self.share))",
            "more_participation": "passing = self.passing",
        },
        "side effects",
        "return a copy",
    ),
    "an earlier answer changed": (
        {
            "more_parts": "self.kept = np.ones(len(self.value))",
            "more_bids": "self.kept[:] = bids; bids = self.kept",
        },
        "side effects",
        "changed by the next update",
    ),
    "random numbers": (
        {"more_bids": "bids = bids * np.random.default_rng().random()"},
        "repeatable",
        "draws no random numbers",
    ),
    "learning in bids": ({"more_bids": "self.share = self.share * 0.99"}, "repeatable", "in observe alone"),
    "a forgotten part of the state": (
        {
            "more_parts": "self.n = 0",
            "more_observe": "self.n += 1",
            "more_bids": "bids = bids / (1 + self.n)",
        },
        "state",
        "It has: share",
    ),
    "a state of other things": ({"more_state": "state['n'] = 3"}, "state", "found int for 'n'"),
    "a state that is no dict": ({"more_state": "state = [self.share]"}, "state", "found list"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_each_fault_is_caught_by_its_check_and_by_no_earlier_one(tmp_path, case):
    parts, check, text = BROKEN[case]
    by_check = checked(write_mine(tmp_path, SOURCE, **parts))
    status, said = by_check[check]
    assert status == "FAILED", by_check
    assert text in said
    assert next(name for name, status in not_ok(by_check).items() if status == "FAILED") == check


def test_a_state_that_goes_on_changing_is_caught(tmp_path):
    source = (
        "import numpy as np\nfrom agents.bidding import Bidder\n\n\nclass Mine(Bidder):\n"
        "    def __init__(self, portfolio):\n        super().__init__(portfolio)\n"
        "        self.n = np.zeros(1)\n"
        "    def observe(self, feedback, now):\n        self.n += 1\n"
        "    def bids(self, now):\n        return self.payable / (1 + self.n[0])\n"
        "    def state(self):\n        return {'n': self.n}\n"
        "    def restore(self, state):\n        self.n = state['n'].copy()\n"
    )
    (tmp_path / "mine.py").write_text(source)
    status, text = checked(f"{tmp_path}/mine.py:Mine")["state"]
    assert status == "FAILED" and tells(text, "copies", "n")


def test_what_a_fault_makes_meaningless_is_skipped_and_not_blamed(tmp_path):
    # The bidder's fault is that nobody can repeat it; ours would be to seed it.
    by_check = checked(
        write_mine(tmp_path, SOURCE, more_bids="bids = bids * np.random.default_rng().random()")
    )
    assert by_check["repeatable"][0] == "FAILED"
    status, text = by_check["state"]
    assert status == "skipped" and tells(text, "'repeatable'")
    assert by_check["sees"][0] == "ok"


@pytest.mark.parametrize(
    ("parts", "check", "text"),
    [
        (
            {"more_observe": "self.share = self.share * np.where(feedback.clicks > 0, 1.1, 1.0)"},
            "reaction",
            "raises",
        ),
        ({"more_bids": "bids = self.value * self.share[self.owner]"}, "zero budget", "bid"),
        ({"more_bids": "import time; time.sleep(0.11 * (len(bids) > 1000))"}, "speed", "loop"),
    ],
)
def test_what_is_allowed_but_odd_is_noted_and_not_refused(tmp_path, parts, check, text):
    by_check = checked(write_mine(tmp_path, SOURCE, **parts))
    assert by_check[check][0] == "note" and tells(by_check[check][1], *text.split())
    assert "FAILED" not in not_ok(by_check).values()


def run(*arguments: str):
    return CliRunner().invoke(command, list(arguments), standalone_mode=False)


def test_the_command_prints_a_line_per_check_and_ends_with_0(tmp_path):
    result = run("pid", "--option", "k_p=0.5")
    assert result.return_value == 0
    lines = result.output.splitlines()
    assert lines[0] == "pid" and "FAILED" not in result.output
    assert lines[2] == "ok       constructor     Pid(portfolio, k_p=0.5)"
    assert len(lines) == 2 + len(checked("pid"))


def test_a_failed_check_ends_the_command_with_1(tmp_path):
    result = run("pid", "--option", "k_p=-1")
    assert result.return_value == 1
    (line,) = [line for line in result.output.splitlines() if line.startswith("FAILED ")]
    assert tells(line, "constructor", "k_p", "[0, 10]")
    assert result.output.splitlines()[-1] == f"1 of {len(checked('pid'))} checks FAILED"


def test_as_json_it_prints_one_document(tmp_path):
    result = run(write_mine(tmp_path, SOURCE, more_bids="bids = bids - 5"), "--json")
    assert result.return_value == 1
    said = json.loads(result.output)
    assert said["ok"] is False and said["options"] == {}
    assert {c["check"] for c in said["checks"] if c["status"] == "FAILED"} == {"bids"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("pidd",), "'pidd' 'pid'?"),
        (("no/such.py:Mine",), "no file 'no/such.py'"),
        (("pid", "--option", "k_p"), "expected KEY=VALUE"),
    ],
)
def test_a_mistake_in_the_command_is_explained(arguments, text):
    result = run(*arguments)
    assert isinstance(result.exception, UserError) and tells(str(result.exception), *text.split())


def test_bids_that_a_run_refuses_do_not_pass(tmp_path):
    text = "from cascade_sim.agents.bidding import Bidder\nclass High(Bidder):\n"
    (tmp_path / "high.py").write_text(text + "    def bids(self, now):\n        return self.value * 1e9\n")
    found = {finding.check: finding for finding in check_bidder(f"{tmp_path / 'high.py'}:High")}
    assert found["bids"].status == "FAILED" and "1e+06" in found["bids"].text
