"""Questions that a log supports, computed from what is in it: which columns have values, whether pages were
drawn, and how many of them the declared rule gives again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cascade_sim.logs.store.format import LEVELS, NOT_RANDOMISED, About
from cascade_sim.logs.store.store import LogStore

MIN_CLICKS = 20  # with fewer there is no click model
MIN_PAGES = 0.8  # of the pages: where the rule gives fewer, a replay is no answer about this auction


@dataclass(frozen=True)
class Known:
    """Of how many shown ads something was logged."""

    shown: int
    priced: int
    outcomes: int  # clicked or not
    exposures: int  # seen or not

    @classmethod
    @lru_cache(maxsize=2)
    def of(cls, store: LogStore) -> Known:
        """All of the log is read, once for all answers from it."""
        shown = priced = outcomes = exposures = 0
        for _, _, columns in store.blocks(("price_micros", *store.about.charged_by)):
            is_shown = columns["slot"] >= 0
            shown += int(np.count_nonzero(is_shown))
            priced += int(np.count_nonzero(is_shown & (columns["price_micros"] >= 0)))
            outcomes += int(np.count_nonzero(is_shown & (columns["click"] >= 0)))
            if "exposed" in columns:
                exposures += int(np.count_nonzero(is_shown & (columns["exposed"] >= 0)))
        return cls(shown, priced, outcomes, exposures)

    def rewards(self, about: About) -> tuple[str, ...]:
        """What a page is known to have brought: clicks, revenue."""
        has_clicks, is_per_click = self.outcomes > 0, about.charging == "click"
        has_revenue = self.priced > 0 and (has_clicks or not is_per_click)
        return (*(["clicks"] if has_clicks else []), *(["revenue"] if has_revenue else []))


def supported_queries(store: LogStore, replayed: float | None = None) -> tuple[str, ...]:
    """The log completeness in sentences: what the log can answer, what not, and what would have to be logged.

    Args:
        store: the log.
        replayed: share of pages that match the log under the declared rule (without one, under the usual
            rule); None where nothing can be replayed.
    """
    about, known = store.about, Known.of(store)
    level = LEVELS[about.level]
    can, cannot = [_observed(known)], []
    if not known.outcomes:
        cannot.append("clicks, or what depends on them: no outcome was logged (click)")
    if not known.priced:
        cannot.append("what was paid: no price was logged (price)")
    if about.level == "winners":
        can += ["bounds on what a higher reserve would have earned"] if known.priced else []
    else:
        _replay(about, known, replayed, can, cannot)
    _drawn(about, known, can, cannot)
    cannot.append(level.not_allowed)
    if about.bids_logged_above:
        cannot.append(f"a reserve below {about.bids_logged_above:g}: lower bids were not logged")
    lines = [f"log completeness: {level.name} ({level.holds})"]
    lines += [f"supports: {line}" for line in can] + [f"does not support: {line}" for line in cannot]
    lines += [f"to extend: log {level.to_log}"] if level.to_log else []
    return tuple(lines)


def _observed(known: Known) -> str:
    parts = ["shown"]
    for word, n in (("exposed", known.exposures), ("clicked", known.outcomes), ("paid", known.priced)):
        part = "" if n == known.shown else f" (known of {100 * n / known.shown:.3g} % of the shown ads)"
        parts += [f"{word}{part}"] if n else []
    return f"what was {_joined(parts)}"


def _replay(about: About, known: Known, replayed: float | None, can: list[str], cannot: list[str]) -> None:
    """Questions that the auctions are run again for."""
    asked, others = ["pricing rules"], ["higher reserves"]
    has_order = about.charging == "click" and about.has("pctr")
    others += ["squashing"] if has_order else []
    others += [f"other predictions ({', '.join(about.scores)})"] if has_order and about.scores else []
    others += ["stage sizes", "pre-ranking models", "RCS"] if about.level == "pre_ranking" else []
    clicks = about.counts.clicks
    if about.charging == "click" and clicks < MIN_CLICKS:  # other pages, whose clicks were not logged
        why = f"{clicks:,} clicks are too few for a click model ({MIN_CLICKS})"
        why = why if known.outcomes else "no outcome was logged (click)"
        cannot.append(f"{_joined(others)}: the clicks of other pages cannot be told, as {why}")
    else:
        asked += others
    what = f"{_joined(asked)} within the logged set"
    share = "" if replayed is None else f"{100 * replayed:.3g} % of the pages match the log"
    rule = "the usual rule (none is declared)" if about.rule is None else "the declared rule"
    if replayed is not None and replayed < MIN_PAGES:
        cannot.append(
            f"{what}: under {rule} only {share}; audit-logs looks for the rule that the log follows"
        )
    else:
        can.append(f"{what}; under {rule} {share}" if share else what)
    if about.charging == "click" and not about.has("pctr"):
        cannot.append("squashing and other predictions: no pCTR was logged (pctr)")


def _drawn(about: About, known: Known, can: list[str], cannot: list[str]) -> None:
    """Off-policy questions."""
    rewards = known.rewards(about)
    if not about.is_randomised:
        cannot.append(NOT_RANDOMISED)
    elif rewards:
        drawn = "the shown pages were drawn, with known probabilities"
        can.append(f"off-policy estimates of {' and '.join(rewards)}: {drawn}")
    else:
        cannot.append("off-policy estimates: neither clicks nor prices were logged")


def _joined(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
