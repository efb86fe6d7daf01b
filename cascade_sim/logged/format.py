"""What a store of logged auctions is made of: its columns, what is known about it, and what it can say.

A row of `requests` is an auction, in the order of time; `candidates` are the ads that took part in it, in the
order of (request, ad); `budgets` are what advertisers could spend a day, where that was logged. Names of the
user's own (ids of ads and so on) are kept beside them, and columns hold their numbers, from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from cascade_sim.errors import UserError

FORMAT = 1  # of a store; a reader refuses a newer one
MICROS = 1_000_000  # of a unit of money

CHARGING = ("click", "impression")  # what an advertiser pays for
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


@dataclass(frozen=True)
class Column:
    """A column of a table: the dtypes it may have (the first is written), and what its values mean."""

    dtypes: tuple[str, ...]
    meaning: str
    is_optional: bool = False
    padding: float = 0  # in `LoggedStore.padded`


REQUESTS: dict[str, Column] = {
    "time": Column(("<f8",), "seconds since About.starts, which is midnight in About.zone"),
    "user": Column(("<i4",), "code into names, -1 unknown or not given"),
    "segment": Column(("<i4",), "code into names, -1 unknown or not given"),
    "placement": Column(("<i4",), "code into names, -1 unknown or not given"),
    "slots": Column(("<i2",), "places on the page"),
    "reserve": Column(("<f8",), "reserve per click or impression in units of money, 0 none, NaN not logged"),
    "first": Column(("<i8",), "[R+1] the request's candidates are rows first[r] .. first[r+1]-1"),
}

CANDIDATES: dict[str, Column] = {
    "ad": Column(("<i4",), "code into names, ascending within a request", padding=-1),
    "bid": Column(("<f8",), "what the auction used, units of money per click or impression; NaN not logged"),
    "init_bid": Column(("<f8",), "the advertiser's own bid, which pre-ranking may use", is_optional=True),
    "pctr": Column(FLOATS, "the ranker's prediction, in the dtype it came in", is_optional=True),
    "pcvr": Column(FLOATS, "predicted conversions per click", is_optional=True),
    "pre_score": Column(FLOATS, "of pre-ranking: About.pre_score says prediction or score", is_optional=True),
    "stage": Column(("<i1",), "furthest stage: 0 retrieved, 1 ranked (in the competitive set), 2 shown"),
    "slot": Column(("<i2",), "0-based, -1 not shown", padding=-1),
    "price_micros": Column(("<i8",), "logged price per click or impression, -1 not shown or unknown"),
    "click": Column(("<i1",), "1 or 0, -1 unknown or not shown"),
    "conversion": Column(("<i1",), "1 or 0, -1 unknown or not shown"),
    "conversion_delay": Column(("<f4",), "seconds from click to conversion, NaN unknown", is_optional=True),
    "propensity": Column(
        ("<f8",),
        "probability of this ad in this slot given the slots above; NaN not logged",
        is_optional=True,
    ),
    "source": Column(("<i8",), "number of the file << 40 | row in it, from 1, the header of a CSV included"),
}

ADS: dict[str, Column] = {"advertiser": Column(("<i4",), "[A] whose ad it is: code into names")}

BUDGETS: dict[str, Column] = {
    "advertiser": Column(("<i4",), "code into names"),
    "day": Column(("<i4",), "days since About.starts, -1 every day"),
    "budget_micros": Column(("<i8",), "what could be spent that day"),
}

COLUMNS: dict[str, dict[str, Column]] = {
    "requests": REQUESTS,
    "candidates": CANDIDATES,
    "ads": ADS,
    "budgets": BUDGETS,
}


def column(table: str, name: str) -> Column:
    """What a column is; KeyError for a name that the format does not have."""
    if name.startswith(FEATURE) and table in ("requests", "candidates") and len(name) > len(FEATURE):
        return Column(("<f4", "<i4"), "a feature of the user's own", is_optional=True)
    if name.startswith(SCORE) and table == "candidates" and len(name) > len(SCORE):
        return Column(FLOATS, "pCTR by a further model of the user's", is_optional=True)
    return COLUMNS[table][name]


@dataclass(frozen=True)
class Level:
    """What a log is evidence of."""

    name: str
    holds: str
    allows: str
    not_allowed: str
    to_log: str  # what would lift it to the next level


LEVELS: dict[str, Level] = {
    "winners": Level(
        "winners",
        "the shown ads and their prices alone",
        "what was shown, clicked and paid; bounds on what a higher reserve would have earned",
        "other prices or winners: nobody knows who lost, or with what bid",
        "the bids of all ads that were in the auction (candidates with stage ranked)",
    ),
    "bids": Level(
        "bids",
        "all bids of each auction",
        "pricing rules, higher reserves, squashing and other predictions within the logged set",
        "stage sizes, seats and RCS: which ads pre-ranking left out was not logged",
        "the pre-ranking set with its scores (candidates with stage retrieved, pre_score)",
    ),
    "pre_ranking": Level(
        "pre_ranking",
        "the whole pre-ranking set with its scores",
        "all of the auction, and stage sizes, seats and RCS on the logged sets",
        "other retrieval: ads that retrieval did not bring are not in the log",
        "",
    ),
}
RANDOMISED = "off-policy estimates: the shown pages were drawn, with known probabilities"
NOT_RANDOMISED = "off-policy estimates: no propensities were logged"


@dataclass(frozen=True)
class Rule:
    """The auction's rule as the user declares it; None where it is not declared."""

    pricing: str | None = None  # "first" | "second" | "gsp" …, as the scenario's auction says it
    squashing: float | None = None
    reserve_cpc: float | None = None
    score_floor: float | None = None
    rounding: float | None = None  # prices are multiples of it, units of money
    rounding_how: str | None = None  # "nearest" | "up" | "down"
    soft_floor: float | None = None  # of pricing soft_floor
    slot_effects: tuple[float, ...] | None = None  # which vcg needs
    pcvr: float | None = None  # exponent of the pCVR: score = bid * pCTR ^ squashing * pCVR ^ pcvr


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
    """What is known about a log as a whole: store/market.json."""

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

    def changed(self, **values: Any) -> About:
        """A copy with other values."""
        return replace(self, **values)

    def as_json(self) -> dict[str, Any]:
        """Plain data for market.json."""
        return {"format": FORMAT, **asdict(self)}


def about_from(data: Mapping[str, Any], file: object) -> About:
    """`About` from market.json; UserError if it is of a newer format or not one at all."""
    version = data.get("format")
    if not isinstance(version, int):
        raise UserError(f"{file}: 'format' must be a whole number, found {version!r}")
    if version > FORMAT:
        raise UserError(
            f"{file} has format {version}, this version reads up to {FORMAT}; use the version that "
            "wrote it, or a newer one"
        )
    known = {entry.name for entry in fields(About)}
    values = {key: value for key, value in data.items() if key in known}
    try:
        about = About(
            **{
                **values,
                "counts": Counts(**values["counts"]),
                "rule": None if values.get("rule") is None else Rule(**values["rule"]),
                "sources": tuple(Source(**source) for source in values.get("sources", ())),
                "scores": tuple(values.get("scores", ())),
            }
        )
    except (TypeError, KeyError) as error:
        raise UserError(f"{file} does not describe a market: {error}") from error
    if about.charging not in CHARGING:
        raise UserError(f"{file}: charging must be one of {', '.join(CHARGING)}, found {about.charging!r}")
    if about.level not in LEVELS:
        raise UserError(f"{file}: level must be one of {', '.join(LEVELS)}, found {about.level!r}")
    return about


def what_it_says(about: About) -> tuple[str, ...]:
    """The evidence level in sentences: what it allows, what not, and what would have to be logged."""
    level = LEVELS[about.level]
    lines = [f"evidence level {level.name}: {level.holds}", f"can answer: {level.allows}"]
    lines += [f"can answer: {RANDOMISED}"] if about.is_randomised else []
    lines += [f"cannot: {level.not_allowed}"]
    lines += [] if about.is_randomised else [f"cannot: {NOT_RANDOMISED}"]
    if about.bids_logged_above:
        lines += [f"cannot: a reserve below {about.bids_logged_above:g}: lower bids were not logged"]
    lines += [f"to know more, log {level.to_log}"] if level.to_log else []
    return tuple(lines)
