"""Does a bidder keep the contract of the engine? Tests a class the way it will be built, asked and told.

    check_bidder(MyBidder)                               # or "path/to/file.py:MyBidder"
    check_bidder(MyBidder, options={"margin": 0.2})

The contract: `Class(portfolio, **options)` with `bids(now)` [a] >= 0, `participation(now)` [m] in
[0, 1], `observe(feedback, now)`, `state()` and `restore(state)`. It changes nothing it is given, and the
same history gives the same bits. The tests need no run: the advertisers, and what they are told over two days
and more, are made up here.
"""

import ast
import inspect
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.agents.bidding import Feedback, MarketTime, Portfolio
from cascade_sim.checks.contract import Check, CheckFailed, Findings, Listener, Remark, run_checks
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.signals import is_interrupt
from cascade_sim.market.advertisers import MAX_BID
from cascade_sim.scenario.plugins import BIDDER_KINDS, find_class, kind_of, require_reference
from cascade_sim.storage.code_version import class_file
from cascade_sim.storage.files import read_file

DAY = 86400.0
ADVERTISERS, ADS = 12, 40
MANY = (2_000, 20_000)  # advertisers and ads whose updates are timed
UPDATES_PER_DAY = 24
UPDATES = 2 * UPDATES_PER_DAY + 6  # two days and the morning of the third
MIDDLE = UPDATES_PER_DAY + 7
NO_BUDGET = 2**60
SPEED_SECONDS = 0.5


def check_bidder(
    bidder: type | str,
    *,
    options: Mapping[str, Any] | None = None,
    home: Path = Path("."),
    on_finding: Listener | None = None,
) -> Findings:
    """Check that a bidder keeps the contract of the engine (`cascade_sim.protocols.Bidder`).

    Args:
        bidder: a class, or a kind as a scenario names it ("fixed", "own.py:MyBidder").
        options: keyword arguments of the class.
        home: folder that paths are relative to.
        on_finding: called with each Finding as its check ends.

    Returns:
        Findings: `.ok`, `.frame()`; as text, the output of the command line. Failed checks raise nothing.

    Raises:
        UserError: no such class.

    >>> check_bidder("fixed", options={"factor": 0.5}).ok
    True
    """
    if isinstance(bidder, str):
        require_reference(bidder, home, BIDDER_KINDS)
        subject = Subject(bidder, options or {}, home)
    elif isinstance(bidder, type):
        subject = Subject(kind_of(bidder), options or {}, home, bidder)
    else:
        raise UserError(f"check_bidder: expected a class or the kind of one, found {bidder!r}")
    with np.errstate(all="ignore"):  # what a division by 0 leads to is checked, not announced
        return run_checks((*FIRST_CHECKS, *HISTORY_CHECKS), subject, on_finding)


@dataclass(frozen=True)
class Subject:
    """The class under test and its options."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    home: Path = Path(".")
    own: type | None = None  # the class itself, where it was given

    @property
    def cls(self) -> type[Any]:
        return self.own or find_class(BIDDER_KINDS, self.kind, self.home)

    def build(self, portfolio: Portfolio | None = None) -> Any:
        """A fresh bidder, as the engine builds it."""
        return self.cls(portfolio or make_portfolio(), **self.options)


def imports(subject: Subject) -> str:
    """The class can be imported by the name it was given."""
    assert isinstance(subject.cls, type)
    return subject.kind


def constructs(subject: Subject) -> str:
    """The signature takes the portfolio and the options, and all methods are there."""
    cls = subject.cls
    signature = inspect.signature(cls)
    try:
        signature.bind(make_portfolio(), **subject.options)
    except TypeError as error:
        raise CheckFailed(
            f"expected {cls.__name__}(portfolio, **options), found {cls.__name__}{signature}: {error}"
        ) from error
    methods = BIDDER_KINDS.methods
    missing = [name for name in methods if not callable(getattr(cls, name, None))]
    if missing:
        raise CheckFailed(
            f"expected the methods {', '.join(methods)}, found none called {', '.join(missing)}; "
            "cascade_sim.agents.bidding.Bidder has defaults for all of them"
        )
    subject.build()
    call = ", ".join(("portfolio", *(f"{key}={value!r}" for key, value in subject.options.items())))
    return f"{cls.__name__}({call})"


def first_bids(subject: Subject) -> str:
    """Bids asked for before anything was observed are well formed."""
    answers_well(subject.build().bids(time_of(0)), "bids", (ADS,), "a", MAX_BID, "at the start")
    return f"floats of shape [{ADS}], from 0 to {MAX_BID:,.0f}"


def first_participation(subject: Subject) -> str:
    answer = subject.build().participation(time_of(0))
    answers_well(answer, "participation", (ADVERTISERS,), "m", 1.0, "at the start")
    return f"floats of shape [{ADVERTISERS}] in [0, 1]"


def history(subject: Subject) -> str:
    """Bids and participation stay proper through quiet hours, spent budgets and changes of the day."""
    portfolio, bidder = make_portfolio(), subject.build()
    for update in range(UPDATES):
        now = time_of(update)
        if update > 0:
            told = bidder.observe(make_feedback(portfolio, update), now)
            if told is not None:
                raise CheckFailed(f"expected observe to return nothing, found {type(told).__name__}")
        when = f"after {update} updates"
        answers_well(bidder.bids(now), "bids", (ADS,), "a", MAX_BID, when)
        answers_well(bidder.participation(now), "participation", (ADVERTISERS,), "m", 1.0, when)
    return f"proper over {UPDATES} updates: quiet hours, spent budgets, two changes of the day"


def sees(subject: Subject) -> str:
    """It asks for nothing that an advertiser cannot know, and does not reach into the engine."""
    inside = _engine_imports(subject)
    if inside:
        raise CheckFailed(
            "expected a bidder to see only Portfolio, MarketTime and Feedback, "
            f"found imports of {', '.join(inside)}"
        )
    for record in (_Portfolio, _MarketTime, _Feedback):
        record.asked.clear()
    portfolio = make_portfolio()
    failure: BaseException | None = None
    try:
        bidder = subject.build(_Portfolio(**vars(portfolio)))
        for update in range(1, 4):
            now = _MarketTime(**vars(time_of(update)))
            bidder.observe(_Feedback(**vars(make_feedback(portfolio, update))), now)
            bidder.bids(now)
            bidder.participation(now)
    except BaseException as error:  # most likely for want of what it asked for
        if is_interrupt(error):
            raise
        failure = error
    names = [
        f"{what}.{name}"
        for what, record in (("portfolio", _Portfolio), ("now", _MarketTime), ("feedback", _Feedback))
        for name in sorted(record.asked)
    ]
    if names:
        raise CheckFailed(f"expected a bidder to ask only for what there is, found {', '.join(names)}")
    if failure is not None:
        raise failure
    return "only Portfolio, MarketTime and Feedback"


def repeatable(subject: Subject) -> str:
    """Two bidders with the same history, one of them asked twice each time: the same bits."""
    portfolio = make_portfolio()
    first, second = subject.build(), subject.build()
    for update in range(UPDATES):
        now = time_of(update)
        if update > 0:
            first.observe(make_feedback(portfolio, update), now)
            second.observe(make_feedback(portfolio, update), now)
        second.bids(now), second.participation(now)
        for method in ("bids", "participation"):
            once, twice = np.array(getattr(first, method)(now)), np.array(getattr(second, method)(now))
            if not same(once, twice):
                raise CheckFailed(
                    f"expected the same {method} from the same history, found a difference of "
                    f"{np.nanmax(np.abs(once - twice)):.3g} after {update} updates; a bidder draws no random "
                    "numbers, and learns in observe alone"
                )
    return f"the same history gives the same bits, over {UPDATES} updates"


def side_effects(subject: Subject) -> str:
    """What it is given stays as it is, and what it gives does not change later."""
    portfolio = make_portfolio()
    known, bidder = copies(portfolio), subject.build(portfolio)
    for update in range(1, 6):
        feedback, now = make_feedback(portfolio, update), time_of(update)
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
    m, a = MANY
    portfolio = make_portfolio(m, a)
    bidder = subject.build(portfolio)
    news = [make_feedback(portfolio, update) for update in range(1, 5)]
    n, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < SPEED_SECONDS or n < 2:
        now = time_of(n + 1)
        bidder.observe(news[n % len(news)], now)
        bidder.bids(now)
        bidder.participation(now)
        n += 1
    text = f"{n / passed:,.0f} updates/s of {m:,} advertisers with {a:,} ads, {n * a / passed:,.0f} bids/s"
    if n / passed < 10.0:
        raise Remark(f"{text}: an update takes {1000 * passed / n:,.0f} ms; is there a loop over ads?")
    return text


def answers_well(
    answer: Any, what: str, shape: tuple[int, ...], symbol: str, highest: float, when: str
) -> None:
    """Floats of the shape, finite, in [0, highest]; otherwise CheckFailed."""
    expected = f"expected {what} as a float array of shape [{symbol}] = {list(shape)}"
    if not isinstance(answer, np.ndarray):
        raise CheckFailed(f"{expected}, found {type(answer).__name__} {when}")
    if answer.shape != shape:
        raise CheckFailed(f"{expected}, found shape {list(answer.shape)} {when}")
    if answer.dtype not in (np.float64, np.float32):
        raise CheckFailed(f"{expected}, found dtype {answer.dtype} {when}")
    allowed = f"in [0, {highest:g}]"
    bad = ~(np.isfinite(answer) & (answer >= 0.0) & (answer <= highest))
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise CheckFailed(f"expected {what} that are finite and {allowed}, found {answer[i]} at {i} {when}")


class _Watched:
    """Mixed into a record: notes each name that is asked for and is not there."""

    asked: set[str]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            type(self).asked.add(name)
        raise AttributeError(f"{type(self).__bases__[1].__name__} has no {name!r}")


class _Portfolio(_Watched, Portfolio):
    asked = set()


class _MarketTime(_Watched, MarketTime):
    asked = set()


class _Feedback(_Watched, Feedback):
    asked = set()


def _engine_imports(subject: Subject) -> list[str]:
    """Modules of the engine, the models or the analysis that the class's file imports.

    Of a class that was given, the class alone is read: its file may well import what runs and checks it.
    """
    file = class_file(subject.cls)
    if file is None:
        return []
    source = read_file(file, follows=True).decode("utf-8")
    if subject.own is not None:
        source = textwrap.dedent(inspect.getsource(subject.own))
    imported: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.append(node.module)
    ours = {name for name in imported if name.split(".")[0] == "cascade_sim"}
    return sorted(name for name in ours if not name.startswith("cascade_sim.agents"))


def make_portfolio(m: int = ADVERTISERS, a: int = ADS, budget: int | None = None) -> Portfolio:
    """Advertisers with budgets from 0 to none at all, owning ads of different value."""
    ads, who = np.arange(a), np.arange(m)
    budgets = np.round(2_000_000 * (1.5 + np.sin(who))).astype(np.int64)
    budgets[0], budgets[m - 1] = 0, NO_BUDGET
    if budget is not None:
        budgets = np.full(m, budget, dtype=np.int64)
    return Portfolio(
        value=1.0 + 0.5 * np.sin(ads),
        owner=ads % m,
        mean_pcvr=0.1 + 0.05 * np.cos(ads),
        budget_micros=budgets,
    )


def time_of(update: int) -> MarketTime:
    """When the bids of an update are asked for. Traffic is even."""
    elapsed = (update % UPDATES_PER_DAY) / UPDATES_PER_DAY
    return MarketTime(update / UPDATES_PER_DAY * DAY, update // UPDATES_PER_DAY, elapsed, elapsed)


def make_feedback(portfolio: Portfolio, update: int, pace: float | None = None) -> Feedback:
    """What the update that ends at time_of(update) brought.

    Without a pace: quiet at first, then waves that run some budgets dry. With one: every advertiser spends
    `pace` times its even share of the budget.
    """
    who = np.arange(len(portfolio.budget_micros))
    budget = portfolio.budget_micros.astype(np.int64)

    def spent_by(n: int) -> np.ndarray:
        """Since the day began, after n of its updates."""
        if pace is not None:
            return np.minimum(budget, (budget * (pace * n / UPDATES_PER_DAY)).astype(np.int64))
        wave = np.maximum(n - 2, 0) * (0.6 + 0.5 * np.sin(who + update // UPDATES_PER_DAY)) * 200_000
        return np.minimum(budget, wave.astype(np.int64))

    n = (update - 1) % UPDATES_PER_DAY + 1
    spend = spent_by(n) - spent_by(n - 1)
    clicks = np.where(spend > 0, 1 + spend // 700_000, 0)
    today = spent_by(n) if n < UPDATES_PER_DAY else np.zeros_like(spend)  # at midnight a new day has begun
    requests = 400 + 50 * (who % 4) + 0 * spend
    return Feedback(clicks * 20, clicks, spend, clicks // 5, today, requests)


def live(
    bidder: Any, portfolio: Portfolio, first: int, last: int, pace: float | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Bids and participation at the moments first..last-1; what each update brought is told in between."""
    answers = []
    for update in range(first, last):
        now = time_of(update)
        if update > 0:
            bidder.observe(make_feedback(portfolio, update, pace), now)
        answers.append((np.array(bidder.bids(now)), np.array(bidder.participation(now))))
    return answers


def copies(record: Any) -> dict[str, np.ndarray]:
    """The fields of a Portfolio or a Feedback."""
    return {item.name: np.array(getattr(record, item.name)) for item in fields(record)}


def same(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two arrays have the same type, shape and bits."""
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()


FIRST_CHECKS: tuple[Check[Subject], ...] = (
    ("import", imports, ()),
    ("constructor", constructs, ("import",)),
    ("bids", first_bids, ("import", "constructor")),
    ("participation", first_participation, ("import", "constructor")),
)
BOTH = ("constructor", "bids", "participation")
HISTORY_CHECKS: tuple[Check[Subject], ...] = (
    ("history", history, BOTH),
    ("sees", sees, BOTH),
    ("repeatable", repeatable, (*BOTH, "history")),
    ("side effects", side_effects, (*BOTH, "history", "repeatable")),
    ("state", round_trip, (*BOTH, "history", "repeatable")),
    ("zero budget", zero_budget, (*BOTH, "history")),
    ("reaction", reaction, (*BOTH, "history")),
    ("speed", speed, (*BOTH, "history")),
)
