"""What a store of logged auctions is made of: its columns, what is known about it, and what it can say.

A row of `requests` is an auction, in the order of time; `candidates` are the ads that took part in it, in the
order of (request, ad); `budgets` are what advertisers could spend a day, where that was logged. Names of the
user's own (ids of ads and so on) are kept beside them, and columns hold their numbers, from 0.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from cascade_sim.auction.pricing import NO_INCREMENT, PRICINGS
from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.storage.columns import Column, Sizes, as_declared

FORMAT = 1  # of a store; a reader refuses a newer one
MICROS = 1_000_000  # of a unit of money
OTHER_NAMES = {"second": "gsp", "second_price": "gsp", "first_price": "first"}  # of pricing rules
MAX_SQUASHING = 2.0  # as the scenario's auction has it

CHARGING = ("click", "impression", "slot")  # what is paid for: a click, an exposed ad, a slot that was won
PRE_SCORES = ("prediction", "score")
RULE_NUMBERS = ("squashing", "pcvr", "reserve_cpc", "score_floor", "rounding", "increment", "soft_floor")
MAX_ROWS = 1 << 40
ALWAYS = ("name", "starts", "zone", "charging", "counts", "level", "is_randomised", "columns", "slots")
FLOATS = ("<f8", "<f4")
TABLES = ("requests", "candidates", "ads", "budgets")
NAMED = (
    "ads",
    "advertisers",
    "users",
    "segments",
    "placements",
    "requests",
)  # what has names of the user's own

RETRIEVED, RANKED, SHOWN = 0, 1, 2  # stages that a candidate can have reached

SCORE, FEATURE = "score.", "feature."  # how columns of further models and of features begin


MAX_SLOTS = 10_000
MAX_MONEY = 1e12  # units: as micro-units, and summed, such are still integers
MAX_MICROS = MAX_MONEY * MICROS
LONGEST = 110 * 366 * 86_400.0  # seconds from the first day to the last: 1990 to 2100
LAST_DAY = 200_000
ROW_BITS = 40  # of a row's number in `source`

_UNKNOWN = "code into names, -1 unknown or not given"

# What every column may hold. Imports, writers and readers all go by it.
REQUESTS: dict[str, Column] = {
    "time": Column(
        ("<f8",), "seconds since About.starts, which is midnight in About.zone", 0, LONGEST, ascends=True
    ),
    "user": Column(("<i4",), _UNKNOWN, -1, "users"),
    "segment": Column(("<i4",), _UNKNOWN, -1, "segments"),
    "placement": Column(("<i4",), _UNKNOWN, -1, "placements"),
    "slots": Column(("<i2",), "places on the page", 1, MAX_SLOTS),
    "reserve": Column(
        ("<f8",),
        "reserve per click or impression in units of money, 0 none, NaN not logged",
        0,
        MAX_MONEY,
        may_be_nan=True,
    ),
    "first": Column(
        ("<i8",),
        "[R+1] the request's candidates are rows first[r] .. first[r+1]-1",
        0,
        "offsets of candidates",
        axes=("offsets of requests",),
        ascends=True,
    ),
}

_MONEY: dict[str, Any] = {"low": 0, "high": MAX_MONEY, "may_be_nan": True}
_CHANCE: dict[str, Any] = {"low": 0, "high": 1}
_FLAG: dict[str, Any] = {"low": -1, "high": 1}

CANDIDATES: dict[str, Column] = {
    "ad": Column(("<i4",), "code into names, ascending within a request", 0, "ads", padding=-1),
    "bid": Column(
        ("<f8",), "what the auction used, units of money per click or impression; NaN not logged", **_MONEY
    ),
    "init_bid": Column(
        ("<f8",), "the advertiser's own bid, which pre-ranking may use", is_optional=True, **_MONEY
    ),
    "pctr": Column(FLOATS, "the ranker's prediction, in the dtype it came in", is_optional=True, **_CHANCE),
    "pcvr": Column(FLOATS, "predicted conversions per click", is_optional=True, **_CHANCE),
    "pre_score": Column(FLOATS, "of pre-ranking: About.pre_score says prediction or score", is_optional=True),
    "stage": Column(
        ("<i1",), "furthest stage: 0 retrieved, 1 ranked (in the competitive set), 2 shown", 0, 2
    ),
    "slot": Column(("<i2",), "0-based, -1 not shown", -1, "slots", padding=-1),
    "price_micros": Column(
        ("<i8",), "logged price per click or impression, -1 not shown or unknown", -1, MAX_MICROS
    ),
    "click": Column(("<i1",), "1 or 0, -1 unknown or not shown", **_FLAG),
    "conversion": Column(("<i1",), "1 or 0, -1 unknown or not shown", **_FLAG),
    "exposed": Column(
        ("<i1",),
        "whether the reader saw the slot that was won: 1 or 0, -1 unknown or not shown",
        is_optional=True,
        **_FLAG,
    ),
    "conversion_delay": Column(
        ("<f4",),
        "seconds from click to conversion, NaN unknown",
        0,
        LONGEST,
        may_be_nan=True,
        is_optional=True,
    ),
    "propensity": Column(
        ("<f8",),
        "probability of this ad in this slot given the slots above; NaN not logged",
        is_optional=True,
        may_be_nan=True,
        **_CHANCE,
    ),
    "source": Column(
        ("<i8",), "number of the file << 40 | row in it, from 1, the header of a CSV included", 0, "sources"
    ),
}

ADS: dict[str, Column] = {
    "advertiser": Column(("<i4",), "[A] whose ad it is: code into names", 0, "advertisers")
}

BUDGETS: dict[str, Column] = {
    "advertiser": Column(("<i4",), "code into names", 0, "advertisers", axes=("budgets",)),
    "day": Column(("<i4",), "days since About.starts, -1 every day", -1, LAST_DAY, axes=("budgets",)),
    "budget_micros": Column(("<i8",), "what could be spent that day", 0, MAX_MICROS, axes=("budgets",)),
}

COLUMNS: dict[str, dict[str, Column]] = {
    "requests": REQUESTS,
    "candidates": CANDIDATES,
    "ads": ADS,
    "budgets": BUDGETS,
}


def column(table: str, name: str) -> Column:
    """What a column is; KeyError for a name that the format does not have."""
    begins = next((begin for begin in (FEATURE, SCORE) if name.startswith(begin)), "")
    own = name.removeprefix(begins)
    if begins and own and all(sign.isalnum() or sign in "_-" for sign in own):
        if begins == FEATURE and table in ("requests", "candidates"):
            return Column(("<f4", "<i4"), "a feature of the user's own", is_optional=True, may_be_nan=True)
        if begins == SCORE and table == "candidates":
            return Column(FLOATS, "pCTR by a further model of the user's", is_optional=True, **_CHANCE)
    return COLUMNS[table][name]


@dataclass(frozen=True)
class Level:
    """What a log contains."""

    name: str
    holds: str
    not_allowed: str
    to_log: str  # what would lift it to the next level


LEVELS: dict[str, Level] = {
    "winners": Level(
        "winners",
        "the shown ads alone",
        "other prices or winners: the losers and their bids are unknown",
        "the bids of all ads that were in the auction (candidates with stage ranked)",
    ),
    "bids": Level(
        "bids",
        "all bids of each auction",
        "stage sizes, pre-ranking models and RCS: which ads pre-ranking left out was not logged",
        "the pre-ranking set with its scores (candidates with stage retrieved, pre_score)",
    ),
    "pre_ranking": Level(
        "pre_ranking",
        "the whole pre-ranking set with its scores",
        "other retrieval: ads that retrieval did not bring are not in the log",
        "",
    ),
}
NOT_RANDOMISED = "off-policy estimates: no propensities were logged"


CHARGED_BY = ("slot", "click", "exposed")  # the columns that say who was charged, where there are


def charged(charging: str, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Which candidates were charged, by the columns CHARGED_BY: what is not known to be hidden was seen."""
    is_charged: np.ndarray = columns["slot"] >= 0
    if charging == "click":
        is_charged = is_charged & (columns["click"] == 1)
    elif charging == "impression" and "exposed" in columns:
        is_charged = is_charged & (columns["exposed"] != 0)
    return is_charged


@dataclass(frozen=True)
class Rule:
    """The auction's rule as the user declares it; None where it is not declared."""

    pricing: str | None = None  # "first" | "second" | "gsp" …, as the scenario's auction says it
    squashing: float | None = None
    reserve_cpc: float | None = None
    score_floor: float | None = None
    rounding: float | None = None  # prices are multiples of it, units of money
    rounding_how: str | None = None  # "nearest" | "up" | "down"
    increment: float | None = None  # over the next score, per click
    soft_floor: float | None = None  # of pricing soft_floor
    slot_effects: tuple[float, ...] | None = None  # which vcg needs
    pcvr: float | None = None  # exponent of the pCVR: score = bid * pCTR ^ squashing * pCVR ^ pcvr


def rule_faults(said: Mapping[str, Any], charging: str) -> Iterator[tuple[str, str]]:
    """What no auction can follow in a rule, given by its values of the right types: (key, why)."""
    pricing, squashing = said.get("pricing"), said.get("squashing")
    pricing = OTHER_NAMES.get(str(pricing), pricing)
    if pricing is not None and pricing not in PRICINGS:
        yield "pricing", unknown_name("pricing", str(pricing), PRICINGS)
    wanted = default_squashing(charging)
    if pricing == "vcg" and squashing not in (None, wanted):
        yield (
            "squashing",
            f"pricing vcg with bids per {charging} needs squashing {wanted:g}, found {squashing:g}",
        )
    elif (squashing or 0.0) > MAX_SQUASHING:
        yield "squashing", f"squashing is {squashing:g}; expected a number from 0 to {MAX_SQUASHING:g}"
    rounding = said.get("rounding")
    if rounding and round(rounding * MICROS) < 1:
        yield "rounding", f"rounding {rounding} is less than a micro-unit (0.000001)"
    if said.get("increment") and pricing in NO_INCREMENT:
        yield "increment", f"pricing {pricing} does not look at the next score, so there is no increment"
    effects = [float(x) for x in said.get("slot_effects") or ()]
    if not all(0 < x <= before for before, x in zip([1.0, *effects], effects, strict=False)):
        found = ", ".join(f"{x:g}" for x in effects)
        yield (
            "slot_effects",
            f"slot_effects are {found}; expected numbers above 0 up to 1, none above the one before",
        )


def default_squashing(charging: str) -> float:
    """Of an auction nothing is known of: eCPM order of bids per click, the bids' own order per impression."""
    return 1.0 if charging == "click" else 0.0


@dataclass(frozen=True)
class Source:
    """A file that the log came from."""

    file: str
    rows: int
    sha256: str


@dataclass(frozen=True)
class Counts:
    """How much of everything there is."""

    requests: int = 0
    candidates: int = 0
    shown: int = 0
    clicks: int = 0
    ads: int = 0
    advertisers: int = 0
    users: int = 0
    segments: int = 0
    placements: int = 0


@dataclass(frozen=True)
class About:
    """What is known about a log as a whole: store/log.json."""

    name: str
    starts: str  # ISO 8601 with offset: local midnight of the first day
    zone: str = "UTC"
    currency: str = ""
    charging: str = "click"  # CHARGING
    counts: Counts = field(default_factory=Counts)
    level: str = "bids"  # LEVELS
    is_randomised: bool = False
    bids_logged_above: float | None = None  # bids below it were not logged
    rule: Rule | None = None
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # {table: {column: dtype}}
    scores: tuple[str, ...] = ()  # further models
    sources: tuple[Source, ...] = ()
    slots: int = 0  # on the largest page
    largest_request: int = 0  # most candidates
    pre_score: str | None = None  # "prediction" | "score"
    units: Mapping[str, str] = field(default_factory=dict)  # {column: unit it came in}

    def has(self, *names: str, table: str = "candidates") -> bool:
        """Whether the log has all of these columns."""
        return all(name in self.columns.get(table, {}) for name in names)

    @property
    def charged_per(self) -> str:
        """What is paid for, in words."""
        words = {"impression": "exposed impression", "slot": "slot that is won"}
        return words.get(self.charging, self.charging) if self.has("exposed") else self.charging

    @property
    def charged_by(self) -> tuple[str, ...]:
        """Those of CHARGED_BY that the log has."""
        return tuple(name for name in CHARGED_BY if self.has(name))

    def changed(self, **values: Any) -> About:
        """A copy with other values."""
        return replace(self, **values)

    def as_json(self) -> dict[str, Any]:
        """Plain data for log.json."""
        return {"format": FORMAT, **asdict(self)}


def about_from(data: Mapping[str, Any], file: object) -> About:
    """`About` from log.json; UserError if it is of a newer format or not one at all."""
    version = data.get("format")
    if not isinstance(version, int):
        raise UserError(f"{file}: 'format' must be an integer, found {version!r}")
    if version > FORMAT:
        raise UserError(
            f"{file} has format {version}, this version reads up to {FORMAT}; use the version that "
            "wrote it, or a newer one"
        )
    if lacks := [key for key in ALWAYS if key not in data]:  # a default would pass for what was logged
        raise UserError(f"{file} does not describe a log store: it has no {lacks[0]!r}")
    known = {entry.name for entry in fields(About)}
    values = {key: value for key, value in data.items() if key in known}
    about: About = as_declared(About, values, file, "a log store")
    for key, word in (("charging", CHARGING), ("level", tuple(LEVELS)), ("pre_score", (None, *PRE_SCORES))):
        if getattr(about, key) not in word:
            names = ", ".join(str(one) for one in word if one)
            raise UserError(f"{file}: {key} must be one of {names}, found {getattr(about, key)!r}")
    _check_about(about, file)
    return about


def _check_about(about: About, file: object) -> None:
    """UserError where what is said of a log cannot be."""
    for name, size in {
        **asdict(about.counts),
        "slots": about.slots,
        "largest": about.largest_request,
    }.items():
        if not 0 <= size <= MAX_ROWS:
            raise UserError(f"{file}: there cannot be {size} {name}")
    try:
        starts = datetime.datetime.fromisoformat(about.starts)
        ZoneInfo(about.zone)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise UserError(f"{file}: starts {about.starts!r}, zone {about.zone!r}: {error}") from error
    if starts.tzinfo is None or not 1900 <= starts.year <= 2200:
        raise UserError(f"{file}: starts must be a moment with its offset from UTC, found {about.starts!r}")
    numbers = [about.bids_logged_above]
    if about.rule is not None:
        numbers += [getattr(about.rule, name) for name in RULE_NUMBERS] + [*(about.rule.slot_effects or ())]
    if any(number is not None and not 0 <= number <= MAX_MONEY for number in numbers):
        raise UserError(f"{file}: a number of the rule is below 0, or too large: {about.rule}")


def check_layout(about: About, file: object) -> None:
    """UserError unless the log has the columns that every log has, and no other than a log can have."""
    for table, needed in COLUMNS.items():
        names = about.columns.get(table, {})
        lacks = [name for name, entry in needed.items() if not entry.is_optional and name not in names]
        if lacks and (names or table != "budgets"):
            raise UserError(f"{file}: the log has no {table}.{lacks[0]}")
    for table, names in about.columns.items():
        for name, dtype in names.items():
            try:
                known = [np.dtype(kind).str for kind in column(table, name).dtypes]
            except KeyError:
                raise UserError(f"{file}: no table of a log has a column {table}.{name}") from None
            if dtype not in known:
                raise UserError(
                    f"{file}: {table}.{name} is of {dtype!r}; such columns are of {' or '.join(known)}"
                )
    scores = {name.removeprefix(SCORE) for name in about.columns["candidates"] if name.startswith(SCORE)}
    if len(about.scores) != len(scores) or set(about.scores) != scores:
        raise UserError(f"{file}: scores {', '.join(about.scores)}, but columns of {', '.join(scores)}")


def sizes_of(about: About, budgets: int = 0) -> Sizes:
    """How long the axes are that columns count along."""
    counts = {kind: int(n) for kind, n in asdict(about.counts).items()}
    return {
        **counts,
        "slots": about.slots,
        "budgets": budgets,
        "sources": max(len(about.sources), 1) << ROW_BITS,
        "offsets of candidates": counts["candidates"] + 1,
        "offsets of requests": counts["requests"] + 1,
    }
