"""What the columns of a run's log may hold, by name: a name means the same in every table that has it."""

from __future__ import annotations

from cascade_sim.storage.columns import Column, Sizes

_WHOLE, _FLOAT, _FLAG = ("<i8", "<i4", "<i2", "|i1"), ("<f8", "<f4"), ("|b1",)
MAX_MICROS = 10**18
# How long axes are where a reader does not know them: no code of ours is longer.
LONGEST: Sizes = {"users": 1 << 31, "ads": 1 << 31, "advertisers": 1 << 31, "slots": 128, "places": 128}

ROUTE_COLUMN = "route."  # and the name of one of several routes that are merged

LOG_COLUMNS: dict[str, Column] = {
    "request": Column(_WHOLE, "its number: rows are in this order", 0, 1 << 62, ascends=True),
    "time": Column(_FLOAT, "seconds", 0),
    "user": Column(_WHOLE, "who came; -1: not known", -1, "users"),
    "context": Column(_FLOAT, "a feature of the request"),
    "slot": Column(_WHOLE, "place on the page, from 0", 0, "slots"),
    "place": Column(_WHOLE, "in the list that the page was drawn from", 0, "places"),
    "ad": Column(_WHOLE, "which ad", 0, "ads"),
    "advertiser": Column(_WHOLE, "whose ad", 0, "advertisers"),
    "examination": Column(_FLOAT, "chance that the slot is looked at", 0, may_be_nan=True),
    "init_bid": Column(_FLOAT, "the advertiser's own bid", 0),
    "bid": Column(_FLOAT, "what the auction used", 0),
    "pctr": Column(
        _FLOAT, "the ranker's output, a probability or not; NaN where none ranks", may_be_nan=True
    ),
    "cpc_micros": Column(_WHOLE, "price of a click", 0, MAX_MICROS),
    "charge_micros": Column(_WHOLE, "what was paid", 0, MAX_MICROS),
    "click": Column(_FLAG, "whether it was clicked"),
    "conversion": Column(_FLAG, "whether it converted"),
    "is_explored": Column(_FLAG, "whether the page was drawn"),
    "propensity": Column(_FLOAT, "chance of this ad in this slot", 0, 1),
    "page_propensity": Column(_FLOAT, "chance of this page", 0, 1),
    "n_candidates": Column(_WHOLE, "in the pre-ranking set", 0, 1 << 31),
    "n_shown": Column(_WHOLE, "ads on the page", 0, 127),
    "n_listed": Column(_WHOLE, "ads that the page was drawn from", 0, 127),
    "revenue_limit": Column(_FLOAT, "no page of the request can earn more", 0),
    "reserve_cpc": Column(_FLOAT, "the request's reserve", 0),
    "temperature": Column(_FLOAT, "of the draw", 0),
    ROUTE_COLUMN: Column(_FLAG, "whether this route of retrieval brought the ad"),
}


def log_column(name: str) -> Column | None:
    """What a column may hold; None of a name that means nothing here."""
    return LOG_COLUMNS.get(ROUTE_COLUMN if name.startswith(ROUTE_COLUMN) else name)
