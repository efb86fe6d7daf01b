"""Does a bidder keep the contract of the engine? Tests a class the way it will be built, asked and told.

The contract: `Class(portfolio, **options)` with `bids(moment)` [a] >= 0, `participation(moment)` [m] in
[0, 1], `observe(feedback, moment)`, `state()` and `restore(state)`. It changes nothing it is given, and the
same history gives the same bits. The tests need no run: the advertisers, and what they are told, are made up
here.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.agents.bidders import BIDDERS
from cascade_sim.agents.bidding import Feedback, Moment, Portfolio
from cascade_sim.checks.contract import CheckFailed, Finding, Remark
from cascade_sim.errors import UserError
from cascade_sim.training.bidders import METHODS, find_bidder

DAY = 86400.0
ADVERTISERS, ADS = 12, 40
UPDATES_PER_DAY = 24
NO_BUDGET = 2**60


@dataclass(frozen=True)
class Subject:
    """The class under test and its options."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    home: Path = Path(".")

    def build(self, portfolio: Portfolio | None = None) -> Any:
        """A fresh bidder, as the engine builds it."""
        return find_bidder(self.kind, self.home)(portfolio or make_portfolio(), **self.options)


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


def moment_of(update: int) -> Moment:
    """When the bids of an update are asked for. Traffic is even."""
    elapsed = (update % UPDATES_PER_DAY) / UPDATES_PER_DAY
    return Moment(update / UPDATES_PER_DAY * DAY, update // UPDATES_PER_DAY, elapsed, elapsed)


def make_feedback(portfolio: Portfolio, update: int, pace: float | None = None) -> Feedback:
    """What the update that ends at moment_of(update) brought.

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
        now = moment_of(update)
        if update > 0:
            bidder.observe(make_feedback(portfolio, update, pace), now)
        answers.append((np.array(bidder.bids(now)), np.array(bidder.participation(now))))
    return answers


def check_bidder(subject: Subject, on_finding: Callable[[Finding], None] = lambda f: None) -> list[Finding]:
    """All checks in order. What needs an earlier success is skipped without it."""
    from cascade_sim.checks.bidder_history import HISTORY_CHECKS

    findings: list[Finding] = []
    for name, check, needs in (*FIRST_CHECKS, *HISTORY_CHECKS):
        not_ok = {
            f.check: f.status for f in findings if f.check in needs and f.status in ("FAILED", "skipped")
        }
        if not_ok:
            bad = [n for n, status in not_ok.items() if status == "FAILED"] or list(not_ok)
            finding = Finding(name, "skipped", f"needs {' and '.join(repr(n) for n in bad)} to be ok")
        else:
            finding = verdict(name, check, subject)
        findings.append(finding)
        on_finding(finding)
    return findings


def verdict(name: str, check: Callable[[Subject], str], subject: Subject) -> Finding:
    """Run one check; whatever the user's code raises is a failure with its place."""
    try:
        with np.errstate(all="ignore"):  # what a division by 0 leads to is checked, not announced
            return Finding(name, "ok", check(subject))
    except Remark as remark:
        return Finding(name, "note", str(remark))
    except CheckFailed as failure:
        return Finding(name, "FAILED", str(failure))
    except UserError as error:
        return Finding(name, "FAILED", str(error))
    except Exception as error:  # the user's code may raise anything
        if subject.kind in BIDDERS:
            return Finding(name, "FAILED", f"{type(error).__name__}: {error}")
        from cascade_sim.training.modules import where_and_what

        return Finding(name, "FAILED", where_and_what(error, subject.kind))


def imports(subject: Subject) -> str:
    find_bidder(subject.kind, subject.home)
    return subject.kind


def constructs(subject: Subject) -> str:
    """The signature takes the portfolio and the options, and all methods are there."""
    cls = find_bidder(subject.kind, subject.home)
    signature = inspect.signature(cls)
    try:
        signature.bind(make_portfolio(), **subject.options)
    except TypeError as error:
        raise CheckFailed(
            f"expected {cls.__name__}(portfolio, **options), found {cls.__name__}{signature}: {error}"
        ) from error
    missing = [name for name in METHODS if not callable(getattr(cls, name, None))]
    if missing:
        raise CheckFailed(
            f"expected the methods {', '.join(METHODS)}, found none called {', '.join(missing)}; "
            "cascade_sim.agents.bidding.Bidder has defaults for all of them"
        )
    subject.build()
    call = ", ".join(("portfolio", *(f"{key}={value!r}" for key, value in subject.options.items())))
    return f"{cls.__name__}({call})"


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
    allowed = "0 or more" if np.isinf(highest) else f"in [0, {highest:g}]"
    bad = ~(np.isfinite(answer) & (answer >= 0.0) & (answer <= highest))
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise CheckFailed(f"expected {what} that are finite and {allowed}, found {answer[i]} at {i} {when}")


def first_bids(subject: Subject) -> str:
    """Before anything was observed."""
    answers_well(subject.build().bids(moment_of(0)), "bids", (ADS,), "a", np.inf, "at the start")
    return f"floats of shape [{ADS}], 0 or more"


def first_participation(subject: Subject) -> str:
    answer = subject.build().participation(moment_of(0))
    answers_well(answer, "participation", (ADVERTISERS,), "m", 1.0, "at the start")
    return f"floats of shape [{ADVERTISERS}] in [0, 1]"


def copies(record: Any) -> dict[str, np.ndarray]:
    """The fields of a Portfolio or a Feedback."""
    return {item.name: np.array(getattr(record, item.name)) for item in fields(record)}


FIRST_CHECKS: tuple[tuple[str, Callable[[Subject], str], tuple[str, ...]], ...] = (
    ("import", imports, ()),
    ("constructor", constructs, ("import",)),
    ("bids", first_bids, ("import", "constructor")),
    ("participation", first_participation, ("import", "constructor")),
)
