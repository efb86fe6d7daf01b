"""Checks of a bidder over two days and more: what it answers once it has been told something."""

import ast
import inspect
import time
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.agents.bidding import Feedback, Moment, Portfolio
from cascade_sim.checks.bidder import (
    ADS,
    ADVERTISERS,
    UPDATES_PER_DAY,
    Subject,
    answers_well,
    copies,
    live,
    make_feedback,
    make_portfolio,
    moment_of,
)
from cascade_sim.checks.contract import CheckFailed, Remark
from cascade_sim.training.bidders import find_bidder

UPDATES = 2 * UPDATES_PER_DAY + 6  # two days and the morning of the third
MIDDLE = UPDATES_PER_DAY + 7
LARGE = (2_000, 20_000)  # advertisers, ads
SPEED_SECONDS = 0.5


def history(subject: Subject) -> str:
    """Bids and participation stay proper through quiet hours, spent budgets and changes of the day."""
    portfolio, bidder = make_portfolio(), subject.build()
    for update in range(UPDATES):
        now = moment_of(update)
        if update > 0:
            told = bidder.observe(make_feedback(portfolio, update), now)
            if told is not None:
                raise CheckFailed(f"expected observe to return nothing, found {type(told).__name__}")
        when = f"after {update} updates"
        answers_well(bidder.bids(now), "bids", (ADS,), "a", np.inf, when)
        answers_well(bidder.participation(now), "participation", (ADVERTISERS,), "m", 1.0, when)
    return f"proper over {UPDATES} updates: quiet hours, spent budgets, two changes of the day"


class _Watched:
    """Mixed into a record: notes each name that is asked for and is not there."""

    asked: set[str]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            type(self).asked.add(name)
        raise AttributeError(f"{type(self).__bases__[1].__name__} has no {name!r}")


class _Portfolio(_Watched, Portfolio):
    asked = set()


class _Moment(_Watched, Moment):
    asked = set()


class _Feedback(_Watched, Feedback):
    asked = set()


def sees(subject: Subject) -> str:
    """It asks for nothing that an advertiser cannot know, and does not reach into the engine."""
    inside = _engine_imports(find_bidder(subject.kind, subject.home))
    if inside:
        raise CheckFailed(
            "expected a bidder to see only Portfolio, Moment and Feedback, "
            f"found imports of {', '.join(inside)}"
        )
    for record in (_Portfolio, _Moment, _Feedback):
        record.asked.clear()
    portfolio, failure = make_portfolio(), None
    try:
        bidder = subject.build(_Portfolio(**vars(portfolio)))
        for update in range(1, 4):
            now = _Moment(**vars(moment_of(update)))
            bidder.observe(_Feedback(**vars(make_feedback(portfolio, update))), now)
            bidder.bids(now)
            bidder.participation(now)
    except Exception as error:  # most likely for want of what it asked for
        failure = error
    names = [
        f"{what}.{name}"
        for what, record in (("portfolio", _Portfolio), ("moment", _Moment), ("feedback", _Feedback))
        for name in sorted(record.asked)
    ]
    if names:
        raise CheckFailed(f"expected a bidder to ask only for what there is, found {', '.join(names)}")
    if failure is not None:
        raise failure
    return "only Portfolio, Moment and Feedback"


def _engine_imports(cls: type) -> list[str]:
    """Modules of the engine, the models or the analysis that the class's file imports."""
    try:
        file = inspect.getsourcefile(cls)
        tree = ast.parse(Path(file).read_bytes()) if file else None
    except (OSError, TypeError, SyntaxError):
        return []
    found: list[str] = []
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
    ours = {name for name in found if name.split(".")[0] == "cascade_sim"}
    return sorted(name for name in ours if not name.startswith("cascade_sim.agents"))


def side_effects(subject: Subject) -> str:
    """What it is given stays as it is, and what it gives does not change later."""
    portfolio = make_portfolio()
    known, bidder = copies(portfolio), subject.build(portfolio)
    for update in range(1, 6):
        feedback, now = make_feedback(portfolio, update), moment_of(update)
        told = copies(feedback)
        given, passing = bidder.bids(now), bidder.participation(now)
        was = given.copy(), passing.copy()
        bidder.observe(feedback, now)
        bidder.bids(now)
        changed = [f"feedback.{k}" for k, v in told.items() if not same(v, getattr(feedback, k))]
        changed += [f"portfolio.{k}" for k, v in known.items() if not same(v, getattr(portfolio, k))]
        if changed:
            raise CheckFailed(f"expected the inputs to stay as they are, found {', '.join(changed)} changed")
        if not (same(was[0], given) and same(was[1], passing)):
            raise CheckFailed(
                "expected bids that were given to stay as they are, found them changed by the next update; "
                "return a copy"
            )
        untouched = bidder.bids(now), bidder.participation(now)
        was = untouched[0].copy(), untouched[1].copy()
        try:
            untouched[0][:], untouched[1][:] = -1.0, -1.0  # what was given belongs to the engine
        except ValueError:
            continue  # read-only: safe as well
        if not (same(was[0], bidder.bids(now)) and same(was[1], bidder.participation(now))):
            raise CheckFailed(
                "expected the answers to be the engine's own, found the bidder changed by writing into them; "
                "return a copy"
            )
    return "inputs and earlier answers stay as they are"


def repeatable(subject: Subject) -> str:
    """Two bidders with the same history, one of them asked twice each time: the same bits."""
    portfolio = make_portfolio()
    first, second = subject.build(), subject.build()
    for update in range(UPDATES):
        now = moment_of(update)
        if update > 0:
            first.observe(make_feedback(portfolio, update), now)
            second.observe(make_feedback(portfolio, update), now)
        second.bids(now), second.participation(now)
        for method in ("bids", "participation"):
            one, other = np.array(getattr(first, method)(now)), np.array(getattr(second, method)(now))
            if not same(one, other):
                raise CheckFailed(
                    f"expected the same {method} from the same history, found a difference of "
                    f"{np.nanmax(np.abs(one - other)):.3g} after {update} updates; a bidder draws no random "
                    "numbers, and learns in observe alone"
                )
    return f"the same history gives the same bits, over {UPDATES} updates"


def round_trip(subject: Subject) -> str:
    """A fresh bidder that is given the state goes on as the old one does."""
    portfolio, old = make_portfolio(), subject.build()
    live(old, portfolio, 0, MIDDLE)
    state = old.state()
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise CheckFailed(f"expected state() to be a dict of names to arrays, found {type(state).__name__}")
    for name, value in state.items():
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            kind = f"dtype {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
            raise CheckFailed(f"expected state() to hold numpy arrays of numbers, found {kind} for {name!r}")
    saved = {name: value.copy() for name, value in state.items()}
    expected = live(old, portfolio, MIDDLE, UPDATES)
    aliased = [name for name, value in saved.items() if not same(value, state[name])]
    if aliased:
        raise CheckFailed(
            f"expected state() to give copies, found {', '.join(aliased)} changed by later updates"
        )
    new = subject.build()
    new.restore(saved)
    for n, (was, now) in enumerate(zip(expected, live(new, portfolio, MIDDLE, UPDATES), strict=True)):
        if not (same(was[0], now[0]) and same(was[1], now[1])):
            raise CheckFailed(
                f"expected a restored bidder to go on with the same bits, found another answer {n + 1} "
                f"updates later; does state() name everything that observe changes? It has: "
                f"{', '.join(state) or 'nothing'}"
            )
    size = sum(value.nbytes for value in saved.values())
    return f"a restored bidder goes on with the same bits; {len(saved)} arrays, {size:,} bytes"


def zero_budget(subject: Subject) -> str:
    """Who cannot pay need not bid."""
    portfolio = make_portfolio(budget=0)
    bids, passing = live(subject.build(portfolio), portfolio, 0, 6, pace=0.0)[-1]
    if (bids * passing[portfolio.owner] > 0).any():
        raise Remark("advertisers whose budget is 0 bid all the same; the engine does not let them in")
    return "advertisers whose budget is 0 do not bid"


def reaction(subject: Subject) -> str:
    """Spending three times the plan should not raise what is bid."""
    portfolio = make_portfolio(budget=10_000_000)
    answers = live(subject.build(portfolio), portfolio, 0, UPDATES_PER_DAY // 3, pace=3.0)
    before, after = (bids * passing[portfolio.owner] for bids, passing in (answers[0], answers[-1]))
    change = after.sum() / before.sum() - 1.0 if before.sum() > 0 else 0.0
    if change > 0.01:
        raise Remark(f"spending 3 times as fast as the budget lasts raises the bids, by {100 * change:.0f} %")
    return f"spending 3 times as fast as the budget lasts changes the bids by {100 * change:+.0f} %"


def speed(subject: Subject) -> str:
    """Updates per second of many advertisers: observe, bids, participation."""
    m, a = LARGE
    portfolio = make_portfolio(m, a)
    bidder = subject.build(portfolio)
    news = [make_feedback(portfolio, update) for update in range(1, 5)]
    n, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < SPEED_SECONDS or n < 2:
        now = moment_of(n + 1)
        bidder.observe(news[n % len(news)], now)
        bidder.bids(now)
        bidder.participation(now)
        n += 1
    text = f"{n / passed:,.0f} updates/s of {m:,} advertisers with {a:,} ads, {n * a / passed:,.0f} bids/s"
    if n / passed < 10.0:
        raise Remark(f"{text}: an update takes {1000 * passed / n:,.0f} ms; is there a loop over ads?")
    return text


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """The same bits."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


BOTH = ("constructor", "bids", "participation")
HISTORY_CHECKS = (
    ("history", history, BOTH),
    ("sees", sees, BOTH),
    ("repeatable", repeatable, (*BOTH, "history")),
    ("side effects", side_effects, (*BOTH, "history", "repeatable")),
    ("state", round_trip, (*BOTH, "history", "repeatable")),
    ("zero budget", zero_budget, (*BOTH, "history")),
    ("reaction", reaction, (*BOTH, "history")),
    ("speed", speed, (*BOTH, "history")),
)
