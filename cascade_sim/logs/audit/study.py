"""The audit of an imported log: every logged auction re-run under its rule, and why not where not.

from cascade_sim.logs.audit.study import audit

audit("logs/last_week").frame()       # a row per reason
audit("logs/last_week", infer=True)   # also: which rule the log follows, whatever it declares
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.kernels import take_columns
from cascade_sim.logs.audit.changes import Change, effects_of, soft_floors, unit_of
from cascade_sim.logs.audit.inference import Fit, Inference, explained_places, infer
from cascade_sim.logs.audit.reasons import (
    MAX_CELLS,
    MAX_SAMPLE,
    MEANINGS,
    REASONS,
    Classifier,
    Context,
    Digits,
    Lag,
    context_of,
    digits_of,
    find_changes,
    label_names,
)
from cascade_sim.logs.audit.replay import (
    Auctions,
    blocks,
    chosen_rows,
    load,
    match_pages,
    replay,
    spending_of,
)
from cascade_sim.logs.audit.rule import (
    UNITS,
    WAYS,
    Declared,
    Rounding,
    Rule,
    declared_rule,
    default_squashing,
)
from cascade_sim.logs.store.format import Rule as DeclaredRule
from cascade_sim.logs.store.store import LogStore, open_store

if TYPE_CHECKING:
    import pandas as pd

EXAMPLES = 3  # requests named for each reason
WHOLLY = 0.95  # of a reason's pages in one placement: it is said to be there
PART = 0.8  # of all requests: a placement or a time that is more than this is no place to name
SETTLED = 2_000  # requests that tell what a declared rule leaves open


@dataclass
class Tally:
    """How much matches the log. Winners and prices are of shown ads; prices of those that can be told."""

    unit: int  # that prices were logged in, micro-units
    requests: int = 0
    pages: int = 0
    shown: int = 0
    winners: int = 0
    priced: int = 0
    prices: int = 0
    open_prices: int = 0  # logged, but the log cannot tell what they should be
    no_price: int = 0
    bids: int = 0  # that could take part in an auction
    off_by: dict[int, int] = field(default_factory=lambda: dict.fromkeys(UNITS, 0))  # at most so many micros
    by_slot: dict[int, list[int]] = field(default_factory=dict)  # shown, winners, priced, prices

    def add(self, auctions: Auctions, micros: np.ndarray, held: Any) -> None:
        shown = auctions.shown >= 0
        logged = shown & (auctions.price >= 0)
        same_ad, priced = held.is_same_ad & shown, held.is_priced
        same_price = held.is_same_price & priced
        self.requests += len(auctions)
        self.bids += int(np.count_nonzero(auctions.bid > 0))
        self.pages += int(held.is_page.sum())
        self.open_prices += int((logged & ~priced).sum())
        self.no_price += int((shown & ~logged).sum())
        counts = [mask.sum(axis=0) for mask in (shown, same_ad, priced, same_price)]
        for slot in range(auctions.n_places):
            own = self.by_slot.setdefault(slot, [0, 0, 0, 0])
            for i, count in enumerate(counts):
                own[i] += int(count[slot])
        self.shown, self.winners, self.priced, self.prices = (
            sum(own[i] for own in self.by_slot.values()) for i in range(4)
        )
        off = np.abs(micros - auctions.price)[same_ad & priced & ~same_price]
        for unit in UNITS:
            self.off_by[unit] += int((off <= unit).sum())

    def as_json(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "pages_matched": self.pages,
            "shown": self.shown,
            "winners_matched": self.winners,
            "prices": self.priced,
            "prices_matched": self.prices,
            "prices_off_by_rounding": self.off_by[self.unit],
            "unit": self.unit / 1e6,
            "prices_undetermined": self.open_prices,
            "shown_without_price": self.no_price,
            "bids": self.bids,
            "by_slot": [
                dict(zip(("slot", "shown", "winners", "priced", "prices"), (slot + 1, *own), strict=True))
                for slot, own in sorted(self.by_slot.items())
            ],
        }


@dataclass(frozen=True)
class Audit:
    """What an audit found: `answer` is the content of audit.json."""

    answer: dict[str, Any] = field(repr=False)

    def frame(self) -> pd.DataFrame:
        """A row per reason: reason, requests, share (of all requests), alone, value, where, examples."""
        import pandas as pd

        columns = ["reason", "requests", "share", "alone", "value", "where", "examples"]
        rows = [[entry[name] for name in columns] for entry in self.answer["reasons"]]
        return pd.DataFrame(rows, columns=columns)

    def tally(self) -> pd.DataFrame:
        """Pages, winners and prices: how many there are and how many match the log."""
        import pandas as pd

        rows = [[what, of, n, n / of if of else None] for what, of, n in tally_rows(self.answer["tally"])]
        return pd.DataFrame(rows, columns=["what", "of", "as_logged", "share"])

    def rules(self) -> pd.DataFrame:
        """A row per rule that was tried, the best first; empty where nothing was inferred."""
        import pandas as pd

        found = self.answer["inference"]
        columns = ["rule", "pages", "winners", "prices", "differs"]
        rows = [] if found is None else [[row[name] for name in columns] for row in found["rules"]]
        return pd.DataFrame(rows, columns=columns)

    def title(self) -> str:
        tally = self.answer["tally"]
        return f"Audit of {self.answer['log']}: {tally['pages_matched']:,} of {tally['requests']:,} pages"


def tally_rows(tally: dict[str, Any]) -> list[tuple[str, int, int]]:
    """(what, how many there are, how many match the log)"""
    return [
        ("pages", tally["requests"], tally["pages_matched"]),
        ("winners", tally["shown"], tally["winners_matched"]),
        ("prices", tally["prices"], tally["prices_matched"]),
    ]


def audit(log: str | Path | LogStore, *, infer: bool = False) -> Audit:
    """Re-run every auction of a log under the rule it declares or, without one, the one it follows.

    `infer`: find the rule in any case, and audit under it.
    """
    store = log if isinstance(log, LogStore) else open_store(log)
    if store.n_requests == 0:
        raise UserError(f"{store.path} has no requests")
    context = context_of(store)
    declared = declared_rule(store.about.rule, store.about.charging)
    said = None if declared is None else settled(store, declared)
    has_bids = any((part["bid"] > 0).any() for _, _, part in store.blocks(("bid",)))
    if not has_bids:  # nothing can be told, whatever the rule
        infer, said = False, said or Rule("gsp", default_squashing(store.about.charging))
    inference = infer_rule(store, context, said) if infer or said is None else None
    notes = list(inference.notes) if inference is not None else []
    if inference is not None:
        rule = inference.best.rule
    else:
        assert said is not None
        rule = said
        if declared is not None:
            notes += [f"{part} was not declared, and is taken so" for part in declared.defaults]
            notes += [
                f"{SETTLED_WORDS[part](rule)} was not declared, and is read off the log"
                for part in declared.unknown
            ]
    tally, wrong, is_lagged = replayed(store, rule)
    reasons = explained_by(store, rule, context, wrong, is_lagged, tally.unit) if has_bids else []
    notes += [*open_words(tally, store), *budget_words(store, rule, wrong)]
    return Audit(
        {
            "log": store.about.name,
            "level": store.about.level,
            "charging": store.about.charging,
            "currency": store.about.currency,
            "candidates": store.about.counts.candidates,
            "is_declared": inference is None,
            "rule": rule.as_json(),
            "rule_text": rule.text(),
            "declared_text": None if said is None else said.text(),
            "tally": tally.as_json(),
            "nothing_told": nothing_told(tally, store),
            "reasons": reasons,
            "notes": notes,
            "inference": None if inference is None else inference_json(inference),
        }
    )


def write_audit(answer: dict[str, Any], out: Path) -> list[Path]:
    """audit.json, audit.csv and audit.html in a folder; returns their paths."""
    from cascade_sim.analysis.report.sections.audit import CSV_COLUMNS, audit_page
    from cascade_sim.analysis.report.tables import csv_text
    from cascade_sim.storage.files import write_file
    from cascade_sim.storage.folder import json_text

    rows = [{**entry, "examples": " ".join(entry["examples"])} for entry in answer["reasons"]]
    contents = {
        "audit.json": json_text(answer),
        "audit.csv": csv_text(CSV_COLUMNS, rows),
        "audit.html": audit_page(answer),
    }
    for name, content in contents.items():
        write_file(out / name, content.encode())
    return [out / name for name in contents]


infer_rule = infer
SETTLED_WORDS = {
    "rounding": lambda rule: f"the way of rounding ({rule.rounding.how})",
    "soft_floor": lambda rule: f"the soft floor ({rule.soft_floor:g})",
    "slot_effects": lambda rule: (
        "the slot effects (" + " / ".join(f"{x:.4g}" for x in rule.slot_effects) + ")"
    ),
}


def settled(store: LogStore, declared: Declared) -> Rule:
    """The declared rule with what it leaves open as the log has it."""
    rule = declared.rule
    if not declared.unknown:
        return rule
    auctions = load(store, chosen_rows(np.arange(store.n_requests), SETTLED))
    if "slot_effects" in declared.unknown:
        rule = rule.changed(slot_effects=effects_of(auctions, rule))
    tried = [rule]
    if "soft_floor" in declared.unknown:
        tried = [rule.changed(soft_floor=floor) for floor in soft_floors(auctions, rule)] or tried
    if "rounding" in declared.unknown:
        tried = [r.changed(rounding=Rounding(r.rounding.unit, how)) for r in tried for how in WAYS]
    return max(tried, key=lambda r: explained_places(auctions, r))


def completed(store: LogStore) -> DeclaredRule | None:
    """The rule as it was declared, with what that leaves open as the log has it; None without one."""
    given = store.about.rule
    declared = declared_rule(given, store.about.charging)
    if given is None or declared is None or not declared.unknown:
        return given
    rule = settled(store, declared)
    found: dict[str, dict[str, Any]] = {
        "rounding": {"rounding_how": rule.rounding.how},
        "soft_floor": {"soft_floor": rule.soft_floor},
        "slot_effects": {"slot_effects": rule.slot_effects},
    }
    return replace(given, **{key: value for part in declared.unknown for key, value in found[part].items()})


def replayed(store: LogStore, rule: Rule) -> tuple[Tally, np.ndarray, np.ndarray]:
    """The tally, the rows of pages that are not as logged, and whether their prices are those of before."""
    some = load(store, chosen_rows(np.arange(store.n_requests), SETTLED))
    tally = Tally(unit_of(some.price, take_columns(some.bid, some.shown, 0.0)))
    lag = Lag.start(store.n_ads, store.about.counts.placements, max(1, store.about.slots))
    wrong: list[np.ndarray] = []
    lagged: list[np.ndarray] = []
    for auctions in blocks(store):
        played = replay(auctions, rule)
        held = match_pages(auctions, played, rule)
        tally.add(auctions, played.micros, held)
        is_wrong = ~held.is_page
        is_lagged = lag.lagged(auctions, played, held.is_priced & ~held.is_same_price)
        wrong.append(auctions.rows[is_wrong])
        lagged.append(is_lagged[is_wrong])
    return tally, np.concatenate(wrong), np.concatenate(lagged)


def assumed(store: LogStore) -> Rule:
    """The declared rule, GSP where no pricing is declared, with what is left open as the log has it."""
    given = {} if store.about.rule is None else vars(store.about.rule)
    declared = declared_rule({**given, "pricing": given.get("pricing") or "gsp"}, store.about.charging)
    assert declared is not None
    return settled(store, declared)


def replayed_share(store: LogStore) -> float | None:
    """The share of a sample of pages that match the log under the declared rule, without one GSP.

    None where pages cannot be run again: only winners were logged, or pages were drawn.
    """
    about = store.about
    if about.level == "winners" or about.is_randomised or not store.n_requests:
        return None
    rule = assumed(store)
    auctions = load(store, chosen_rows(np.arange(store.n_requests), SETTLED))
    return float(match_pages(auctions, replay(auctions, rule), rule).is_page.mean())


def explained_by(
    store: LogStore, rule: Rule, context: Context, wrong: np.ndarray, is_lagged: np.ndarray, unit: int
) -> list[dict[str, Any]]:
    """The reasons of the pages that are not as logged, the commonest first; what is unexplained last."""
    if len(wrong) == 0:
        return []
    width = max(1, store.about.largest_request)
    most = int(np.clip(MAX_CELLS // width, 100, MAX_SAMPLE))
    sample = load(store, chosen_rows(wrong, most))
    digits = digits_of(sample.pctr)
    changes = find_changes(sample, rule, context, digits)
    classifier = Classifier(rule, changes, unit)
    codes, at = np.empty(len(wrong), np.int16), 0
    for auctions in blocks(store, wrong):
        end = at + len(auctions)
        codes[at:end] = classifier.classify(auctions, is_lagged[at:end], digits)
        at = end
    return _rows_of(store, classifier, wrong, codes, rule, digits)


def _rows_of(
    store: LogStore,
    classifier: Classifier,
    wrong: np.ndarray,
    codes: np.ndarray,
    rule: Rule,
    digits: Digits | None,
) -> list[dict[str, Any]]:
    """A row per change and per fact, with requests that show it named."""
    changes = classifier.changes
    parts: dict[int | str, None] = {part: None for label in classifier.labels for part in label}
    rows: list[dict[str, Any]] = []
    for part in parts:
        own = [i for i, label in enumerate(classifier.labels) if part in label]
        is_own = np.isin(codes, own)
        alone = [i for i in own if len(classifier.labels[i]) == 1]
        requests = wrong[is_own]
        reason = label_names((part,), changes)[0]
        told = dict(changes[part].details) if isinstance(part, int) else {}
        value = _value(store, reason, changes[part] if isinstance(part, int) else None, rule, digits)
        together = Counter(
            name
            for i in own
            for name in label_names(tuple(x for x in classifier.labels[i] if x != part), changes)
        )
        rows.append(
            {
                "key": reason,
                "reason": REASONS[reason],
                "meaning": MEANINGS[reason],
                "requests": len(requests),
                "share": len(requests) / store.n_requests,
                "alone": int(np.isin(codes, alone).sum()),
                "with": sorted(REASONS[name] for name in together),
                "value": value,
                "told": _named(store, told),
                "where": _where(store, requests),
                "examples": [store.name("requests", int(row)) for row in requests[:EXAMPLES]],
            }
        )
    rows.sort(key=lambda row: (row["key"] == "unexplained", -row["requests"], row["key"]))
    return rows


def _value(store: LogStore, reason: str, change: Change | None, rule: Rule, digits: Digits | None) -> str:
    """What the log says of a reason, in a few words."""
    if reason == "rounded_pctr" and digits is not None:
        return digits.text()
    if change is None:
        return ""
    told = change.details
    if reason == "hidden_reserve" and "by_placement" in told:
        pairs = [
            f"{store.name('placements', code) or 'no placement'} {value:g}"
            for code, value in sorted(told["by_placement"].items())
        ]
        return ", ".join(pairs)
    if reason == "boost":
        words = [
            f"{entry['kind']} {store.name(entry['kind'] + 's', entry['code'])} × {entry['value']:.6g}"
            for entry in told["boosted"][:4]
        ]
        more = len(told["boosted"]) - len(words)
        return ", ".join(words) + (f", and {more} more" if more > 0 else "")
    if reason == "other_rule":
        return change.on(rule).text()
    if reason == "rounding":
        return str(told["value"])
    return f"{told['value']:.6g}"


def _named(store: LogStore, told: dict[str, Any]) -> dict[str, Any]:
    """With the user's own names in place of codes."""
    if "boosted" in told:
        named = [
            {**entry, "name": store.name(f"{entry['kind']}s", entry["code"])} for entry in told["boosted"]
        ]
        return {"boosted": [{k: v for k, v in entry.items() if k != "code"} for entry in named]}
    if "by_placement" in told:
        return {
            "by_placement": {
                store.name("placements", code): value for code, value in told["by_placement"].items()
            }
        }
    return told


def _where(store: LogStore, rows: np.ndarray) -> str:
    """The placement, or the time, that nearly all of these requests lie in; empty if they lie everywhere."""
    if len(rows) < 5:
        return ""
    placement = store.requests["placement"]
    codes, counts = np.unique(placement[rows], return_counts=True)
    at = int(np.argmax(counts))
    in_it = int((placement == codes[at]).sum())
    if codes[at] >= 0 and counts[at] >= WHOLLY * len(rows) and in_it <= PART * len(placement):
        name = store.name("placements", int(codes[at]))
        return f"placement {name}: {counts[at]:,} of its {in_it:,} requests"
    first, last = int(rows[0]), int(rows[-1])
    inside = last - first + 1
    if inside <= PART * store.n_requests and len(rows) >= 0.5 * inside:
        time = store.requests["time"]
        begin, end = (_clock(store, float(time[row])) for row in (first, last))
        return f"{begin} to {end}: {len(rows):,} of {inside:,} requests"
    return ""


def _clock(store: LogStore, seconds: float) -> str:
    start = datetime.fromisoformat(store.about.starts)
    return (start + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def nothing_told(tally: Tally, store: LogStore) -> str:
    """Why the log tells nothing of its auction; empty where it tells something."""
    if not tally.bids:
        return "no bids were logged, so no auction can be run again"
    if store.about.level == "winners" and not tally.priced:
        return "only shown ads were logged, and the price of each is set by an ad that was not"
    return ""


def open_words(tally: Tally, store: LogStore) -> list[str]:
    """What could not be looked at."""
    notes = []
    if tally.open_prices:
        notes.append(
            f"{tally.open_prices:,} prices are not identified by this log: only winners were logged, and "
            "the runner-up of a full page is unknown"
        )
    if tally.no_price:
        notes.append(f"{tally.no_price:,} shown ads have no logged price; only their places are looked at")
    spending = spending_of(store)
    if spending is not None and spending.n_ran_out:
        notes.append(
            f"{spending.n_ran_out:,} advertisers spent a day's logged budget: from then on their ads count "
            "as out of the day's auctions, unless they were shown"
        )
    if store.about.is_randomised:
        notes.append(
            "pages of this log were drawn, with logged propensities: the places of ads are not the "
            "auction's doing, so of such pages only the prices are looked at"
        )
    if not store.about.has("pctr") and store.about.charging == "click":
        notes.append("no pCTRs were logged: scores are the bids")
    return notes


def budget_words(store: LogStore, rule: Rule, wrong: np.ndarray) -> list[str]:
    """Whether pages match the log once none counts as out: then the budgets are not those in force."""
    if spending_of(store) is None or not len(wrong):
        return []
    rows = chosen_rows(wrong, SETTLED)
    auctions = load(store, rows, with_budgets=False)
    right = int(match_pages(auctions, replay(auctions, rule), rule).is_page.sum())
    if not right:
        return []
    of = "the" if len(rows) == len(wrong) else "a sample of"
    return [
        f"{right:,} of {of} {len(rows):,} pages that do not match the log would if no advertiser counted as "
        "out: are the budgets in another unit or of other days, or is the log a sample of the traffic?"
    ]


def inference_json(found: Inference) -> dict[str, Any]:
    def row(entry: Fit) -> dict[str, Any]:
        return {
            "rule": entry.fitted.rule.text(),
            "values": entry.fitted.rule.as_json(),
            "told": _plain(entry.fitted.details),
            "pages": entry.pages / max(1, found.requests),
            "winners": entry.winners / max(1, found.winners),
            "prices": entry.prices / entry.priced if entry.priced else None,
            "is_declared": entry.is_declared,
            "differs": entry.differs,
            "only_this_rule": entry.only_this_rule,
            "only_best_rule": entry.only_best_rule,
        }

    return {
        "fitted_to": found.fitted_to,
        "held_out": found.requests,
        "held_out_winners": found.winners,
        "held_out_prices": found.prices,
        "is_identified": found.is_identified,
        "rules": [row(entry) for entry in found.fits],
    }


def _plain(value: Any) -> Any:
    """Numbers of numpy as Python's; what is not finite as None."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
