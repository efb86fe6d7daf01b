"""The auction: who is shown, in which order, at what cost per click. Pure, and vectorised over requests.

Symbols: b bid per click, q quality (pCTR ** squashing), s = b * q rank score, x_1 >= x_2 >= ... slot effects.

Eligible are ads with b > 0, q > 0, b >= reserve_cpc and s >= score_floor; they are ordered by s, ties by
the smaller id. Cost per click in slot k, with s_(k+1) the score of the next eligible ad (0 if none):

    gsp    max(s_(k+1) / q_k, reserve_cpc, score_floor / q_k)
    vcg    t_k / (x_k q_k),  t_k = sum over j > k of (x_(j-1) - x_j) max(s_j, reserve_cpc q_k, score_floor)
    first  b_k
    soft_floor  b_k if b_k < soft_floor, else max(the gsp price, soft_floor)

With an increment, s_(k+1) / q_k is that plus the increment where there is a next ad (gsp and soft_floor).
With a rounding, prices become multiples of its unit last of all: rounding down may go below a reserve.

never above b_k (float rounding could lift it there). The runner-up of the last slot takes part: prices come
before the cut to the slots.

In vcg the sum has a term for every slot from k on, also where no ad is below (s_j = 0); x = 0 beyond the
last slot. max(...) / q_k is the least bid with which the ad would have had slot j - 1, so the sum is what
makes the bid that equals the value the best one, with reserves as without: the clicks that a slot adds to the
one below are paid at the bid which wins them, and the first of them at the reserve.

Edge cases: no candidates or none eligible gives empty slots only; an empty slot has winner -1 and CPC 0.0;
an ad with pCTR 0 is never eligible, not even with squashing 0 (where 0 ** 0 would be 1).
"""

from collections.abc import Mapping
from decimal import Decimal
from numbers import Integral, Real
from types import ModuleType
from typing import Any, NamedTuple, NoReturn, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascade_sim.auction.pricing import PARAMETERS, RULES, WAYS, Pricing, missing, needless
from cascade_sim.foundation.errors import did_you_mean

MICROS = 1_000_000

_MAX_MONEY = 9.0e12  # above it, micro-units no longer fit into 64 bits
_WORTH_COMPILED = 4_096  # prices; fewer are not worth loading numba for
_NO_IDS, _NO_SHORT_IDS = np.zeros((0, 0), np.int64), np.zeros((0, 0), np.int32)
_NO_TILES = np.zeros((0, 0, 8), np.float32)
_NO_PARAMETERS = np.zeros(0)
_NO_ROUNDING = np.zeros(3)
_Reals: TypeAlias = NDArray[np.float64]
_NUMBER = (Real, Decimal)
KEYWORDS = (
    *("slots", "pricing", "squashing", "reserve_cpc", "score_floor", "slot_effects", "ids", "rounding"),
    *PARAMETERS,
)


class Rounding(NamedTuple):
    """How prices are rounded, and what is added to the next score; by default neither is done.

    Attributes:
        unit: prices are multiples of it, in money, of whole micro-units; 0: they are not rounded.
        how: one of WAYS; halves go up.
        increment: added to the minimum bid that keeps the slot, where there is a next ad; in money.
    """

    unit: float = 0.0
    how: str = "nearest"
    increment: float = 0.0

    @property
    def unit_micros(self) -> int:
        return round(self.unit * MICROS)


EXACT = Rounding()


class AuctionResult(NamedTuple):
    """Winners of requests and their cost per click, in slot order.

    Attributes:
        winners: [slots] or [R, slots] int64 column indices, -1 for an empty slot.
        cpc: same shape, float64, before rounding to micro-units but after `rounding`; 0.0 for an empty slot.
    """

    winners: NDArray[np.int64]  # [slots] or [R, slots] column indices, -1 for an empty slot
    cpc: NDArray[np.float64]  # same shape, before rounding to micro-units, 0.0 for an empty slot


class RankedAuction(NamedTuple):
    """An auction's result with the runner-up of the last slot, as `reprice` needs it."""

    winners: NDArray[np.int64]  # [slots] or [R, slots]
    cpc: NDArray[np.float64]  # [slots] or [R, slots]
    ranked: NDArray[np.int64]  # [slots + 1] or [R, slots + 1]: the winners, then the runner-up; -1 at the end
    bid: NDArray[np.float64]  # of those, 0 at the end
    quality: NDArray[np.float64]


class DotPage(NamedTuple):
    """What requests show and the runner-up of the last slot, with prices as they are charged."""

    ads: NDArray[np.int32]  # [R, slots + 1], -1 at the end
    pctr: NDArray[np.float32]  # of those, 0 at the end
    bid: NDArray[np.float64]
    cpc_micros: NDArray[np.int64]  # [R, slots]


def run_auction(
    bid: ArrayLike,
    pctr: ArrayLike,
    *,
    slots: int,
    pricing: str = "gsp",
    squashing: float = 1.0,
    reserve_cpc: float = 0.0,
    score_floor: float = 0.0,
    slot_effects: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    rounding: Rounding = EXACT,
    **parameters: float,
) -> AuctionResult:
    """Rank, price and cut one request [c] or many [R, c]; rank score = bid * pctr ** squashing.

    Args:
        bid: [c] or [R, c] bids per click, >= 0.
        pctr: same shape, predicted CTR in [0, 1].
        slots: slots of a page.
        pricing: name of a rule of `pricing.RULES`.
        squashing: exponent of pCTR: 1 is the eCPM order, 0 the bid order; vcg needs 1.
        reserve_cpc: minimum bid per click.
        score_floor: minimum rank score.
        slot_effects: [>= slots] examination probabilities, for vcg alone; None: all slots alike.
        ids: same shape as bid; break ties (smaller first) and mark padding (negative: never eligible).
            Without ids the smaller column wins a tie.
        rounding: unit and way in which prices are rounded, and the increment over the next score.
        **parameters: parameters of the pricing rule.

    Returns:
        AuctionResult.

    Raises:
        ValueError: input that is no bid or no pCTR; names the argument, and of a table request and candidate.

    Rank scores are 0.20, 0.12 and 0.15; each winner pays the minimum bid that keeps its slot:

    >>> page = run_auction([2.0, 1.0, 3.0], [0.10, 0.12, 0.05], slots=2)
    >>> page.winners.tolist(), page.cpc.round(6).tolist()
    ([0, 2], [1.5, 2.4])
    """
    squashing = _amount(squashing, "squashing")
    if squashing != 1 and _rule(pricing).needs_squashing_1:
        raise ValueError(f"pricing {pricing} needs squashing 1, not {squashing}")
    bids, pctrs = _table(bid, "bid"), _table(pctr, "pctr")
    _same_shape(bid, pctr, "pctr")
    padding = _NO_IDS if ids is None else _id_table(ids)
    _check_pctr(pctrs, padding)
    quality = pctrs if squashing == 1 else _squash(bids, pctrs, padding, squashing)
    result = auction(
        bids if np.ndim(bid) == 2 else bids[0],
        quality if np.ndim(bid) == 2 else quality[0],
        slots=slots,
        pricing=pricing,
        reserve_cpc=reserve_cpc,
        score_floor=score_floor,
        slot_effects=slot_effects,
        ids=ids,
        rounding=rounding,
        quality_name="pctr" if squashing == 1 else f"pctr ** {squashing}",
        **parameters,
    )
    return AuctionResult(result.winners, result.cpc)


def auction(
    bid: ArrayLike,
    quality: ArrayLike,
    *,
    slots: int,
    pricing: str = "gsp",
    reserve_cpc: ArrayLike = 0.0,
    score_floor: float = 0.0,
    slot_effects: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    rounding: Rounding = EXACT,
    quality_name: str = "quality",
    **parameters: float,
) -> RankedAuction:
    """The auction over ready-made qualities, [c] or [R, c]; as `run_auction`, with the runner-up kept.

    reserve_cpc is one for all or one for each request [R]; quality_name is what an error message calls the
    qualities.
    """
    is_short = isinstance(quality, np.ndarray) and quality.dtype == np.float32
    bids = _table(bid, "bid")
    qualities = _table(quality, quality_name, np.float32 if is_short else np.float64)
    _same_shape(bid, quality, quality_name)
    id_table = _NO_IDS
    if ids is not None:
        id_table = _id_table(ids)
        _same_shape(bid, ids, "ids")
    slots = _slots(slots)
    kernels, rules = _rules(
        len(bids), slots, pricing, reserve_cpc, score_floor, slot_effects, rounding, parameters
    )
    ranked = np.empty((len(bids), slots + 1), np.int64)
    ranked_bid, ranked_quality = np.empty(ranked.shape), np.empty(ranked.shape)
    cpc = np.empty((len(bids), slots))
    filled = (ranked, ranked_bid, ranked_quality, cpc)
    bad = kernels.rank_and_price(bids, qualities, id_table, ids is not None, *rules, *filled)
    if bad >= 0:
        _refuse(bids, qualities, bad, quality_name)
    if np.ndim(bid) == 1:
        return RankedAuction(ranked[0, :slots], cpc[0], ranked[0], ranked_bid[0], ranked_quality[0])
    return RankedAuction(ranked[:, :slots], cpc, ranked, ranked_bid, ranked_quality)


def dot_auction(
    code: NDArray[np.float32],
    ad_code: NDArray[np.float32],
    tiles: NDArray[np.float32] | None,
    ids: NDArray[np.int32],
    bid: NDArray[np.float64],
    *,
    slots: int,
    pricing: str = "gsp",
    reserve_cpc: ArrayLike = 0.0,
    score_floor: float = 0.0,
    slot_effects: ArrayLike | None = None,
    rounding: Rounding = EXACT,
    **parameters: float,
) -> DotPage | None:
    """The auction among ads whose pCTR is the sigmoid of <code [R, D], ad_code [A, D]>, in one pass.

    Candidates are ids [R, n], ascending, -1 padding; `tiles` (`kernels.tiled` of ad_code) say that all ads
    are candidates of every request. Bids are of ads [A]. The same bits as of `auction` and `to_micros`, one
    after the other. None where those would refuse, or anything is out of the ordinary: ask them.
    """
    from cascade_sim.auction.fused import rank_dots  # numba is loaded when first needed

    slots = _slots(slots)
    _, rules = _rules(len(code), slots, pricing, reserve_cpc, score_floor, slot_effects, rounding, parameters)
    shape = (len(code), slots + 1)
    page = DotPage(
        np.empty(shape, np.int32),
        np.empty(shape, np.float32),
        np.empty(shape),
        np.empty((len(code), slots), np.int64),
    )
    candidates = (_NO_TILES, ids, False) if tiles is None else (tiles, _NO_SHORT_IDS, True)
    odd = rank_dots(code, ad_code, *candidates, bid, *rules, *page)
    return page if odd < 0 else None


def reprice(
    bid: ArrayLike,
    quality: ArrayLike,
    *,
    slots: int,
    reserve_cpc: float = 0.0,
    score_floor: float = 0.0,
    pricing: str = "gsp",
    slot_effects: ArrayLike | None = None,
    rounding: Rounding = EXACT,
    **parameters: float,
) -> NDArray[np.float64]:
    """CPC [slots] or [R, slots] of lists already in rank order, under other qualities; no ad moves.

    bid, quality: [m] or [R, m], winners in slot order and then the runner-up; what follows place slots + 1 is
    ignored. Bid 0 marks padding, at the end of a row. s_(k+1) is the score of the next ad listed, also where
    the new qualities would have ordered them differently, and no CPC exceeds its bid. An ad of quality 0 pays
    its bid if there is a next score or a floor to meet, else the reserve.
    """
    bids, qualities = _table(bid, "bid"), _table(quality, "quality")
    _same_shape(bid, quality, "quality")
    slots = _slots(slots)
    kernels, rules = _rules(
        len(bids), slots, pricing, reserve_cpc, score_floor, slot_effects, rounding, parameters
    )
    cpc = np.empty((len(bids), slots))
    bad = kernels.price_in_order(bids, qualities, *rules, cpc)
    if bad >= 0:
        _refuse(bids, qualities, bad, "quality")
    return cpc[0] if np.ndim(bid) == 1 else cpc


def to_micros(cpc: ArrayLike, bid: ArrayLike | None = None) -> NDArray[np.int64]:
    """Money as integer micro-units, rounded to the nearest (halves up) but not above `floor_micros(bid)`.

    For reserve <= cpc <= bid the charge is between floor_micros(reserve) and floor_micros(bid), so a charge
    never exceeds the bid, and amounts of six decimals or fewer are kept exactly.

    >>> to_micros([1.5, 0.1234567]).tolist()
    [1500000, 123457]
    >>> int(to_micros(0.1234567, bid=0.1234569))
    123456
    """
    if bid is not None and _are_many(cpc, bid):
        from cascade_sim.auction import kernels  # numba is loaded when first needed

        charges = np.empty(np.shape(cpc), np.int64)
        if kernels.all_micros(np.ravel(cpc), np.ravel(bid), charges.reshape(-1)):
            return charges
    money = _money(cpc)
    whole = np.floor(money)
    charge = (whole + (money - whole >= 0.5)).astype(np.int64)  # floor(money + .5) errs just below a half
    return charge if bid is None else np.minimum(charge, floor_micros(bid))


def _are_many(*amounts: ArrayLike) -> bool:
    """Whether these are arrays of one shape that are worth a compiled loop."""
    arrays = [values for values in amounts if isinstance(values, np.ndarray) and values.dtype == np.float64]
    is_alike = len(arrays) == len(amounts) and len({values.shape for values in arrays}) == 1
    return is_alike and arrays[0].size >= _WORTH_COMPILED


def floor_micros(amount: ArrayLike) -> NDArray[np.int64]:
    """Money as whole micro-units, rounded down; an amount of six decimals or fewer is kept exactly."""
    money = _money(amount)
    nearest = np.rint(money)
    # 0.000019 * 1e6 is a hair below 19: two roundings away from an integer counts as that number.
    is_below = nearest > money * (1 + 4 * np.finfo(float).eps)
    return (nearest - is_below).astype(np.int64)


def _money(amount: ArrayLike) -> NDArray[np.float64]:
    money = np.asarray(amount, np.float64)
    if not np.all((money >= 0) & (money <= _MAX_MONEY)):
        raise ValueError(f"money must be between 0 and {_MAX_MONEY:g}, and not NaN")
    return money * MICROS


def _squash(
    bid: NDArray[Any], pctr: NDArray[Any], ids: NDArray[Any], squashing: float
) -> NDArray[np.float64]:
    """pctr ** squashing, 0 where pctr is 0. Checks first: the power would hide NaN, signs and infinity."""
    is_bad = ~((pctr >= 0) & (pctr < np.inf))
    if is_bad.any():
        if ids.shape == pctr.shape:
            is_bad &= ids >= 0
            pctr = np.where(ids >= 0, pctr, 0.0)
        if is_bad.any():
            _refuse(bid, pctr, int(np.argmax(is_bad)), "pctr")
    if squashing == 0:
        return np.where(pctr > 0, 1.0, 0.0)
    return np.sqrt(pctr) if squashing == 0.5 else np.power(pctr, squashing)


def _check_pctr(pctr: NDArray[Any], ids: NDArray[Any]) -> None:
    """ValueError for the first pCTR above 1; NaN, signs and infinity are left to those who look later."""
    is_above = pctr > 1
    if not is_above.any():
        return
    is_above &= pctr < np.inf
    if ids.shape == pctr.shape:
        is_above &= ids >= 0
    if is_above.any():
        request, candidate = divmod(int(np.argmax(is_above)), pctr.shape[1])
        value = pctr[request, candidate]
        raise ValueError(f"{_place(request, candidate)}: pctr is {value}; a probability is at most 1")


def _table(values: ArrayLike, name: str, kind: type[np.floating[Any]] = np.float64) -> NDArray[Any]:
    """Numbers [R, c], contiguous; a single request [c] becomes [1, c]."""
    table = np.ascontiguousarray(_numbers(values, name), kind)
    return table if table.ndim == 2 else table[None, :]


def _id_table(ids: ArrayLike) -> NDArray[np.int64]:
    """Whole numbers [R, c], as `_table`."""
    given = _numbers(ids, "ids")
    table = np.atleast_2d(given)
    if table.dtype.kind != "i":
        is_bad = ~((table >= -(2.0**63)) & (table < 2.0**63) & (table == np.floor(table)))
        if is_bad.any():
            request, candidate = divmod(int(np.argmax(is_bad)), table.shape[1])
            value = table[request, candidate]
            raise ValueError(f"{_place(request, candidate)}: ids is {value}; it must be an integer")
    return np.ascontiguousarray(table, np.int64)


def _numbers(
    values: ArrayLike,
    name: str,
    dims: tuple[int, ...] = (1, 2),
    wanted: str = "[candidates] or [requests, candidates]",
) -> NDArray[Any]:
    """The values as an array of real numbers; ValueError if they are none, or not of the shape wanted."""
    if values is None:
        raise ValueError(f"{name} is None; give numbers")
    try:
        table = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise ValueError(f"{name} is no table: its rows differ in length") from None
    if table.ndim not in dims:
        raise ValueError(f"{name} must be {wanted}, not of shape {table.shape}")
    if table.dtype.kind in "fiu":
        return table
    for value in table.ravel().tolist():  # fractions and decimals are numbers too
        if not isinstance(value, _NUMBER) or isinstance(value, bool):
            raise ValueError(f"{name} holds {value!r}; give real numbers")
    return table.astype(np.float64)


def _same_shape(bid: ArrayLike, other: ArrayLike, name: str) -> None:
    if np.shape(bid) != np.shape(other):
        raise ValueError(f"bid and {name} differ in shape: {np.shape(bid)} and {np.shape(other)}")


def _place(request: int, candidate: int) -> str:
    return f"request {request}, candidate {candidate}"


def _slots(slots: int) -> int:
    """An integer from 1, of Python or numpy."""
    if not isinstance(slots, Integral) or isinstance(slots, bool):
        raise ValueError(f"slots is {slots!r}; it must be an integer, 1 or more")
    if slots < 1:
        raise ValueError(f"slots is {slots}; an auction needs at least 1")
    return int(slots)


def _amount(value: float, name: str, high: float = np.inf) -> float:
    """A finite number, 0 or more and at most `high`."""
    number = float(value) if isinstance(value, _NUMBER) and not isinstance(value, bool) else np.nan
    if not 0 <= number < np.inf:
        shown = value if isinstance(value, _NUMBER) else repr(value)
        raise ValueError(f"{name} is {shown}; it must be a finite number, 0 or more")
    if number > high:
        raise ValueError(f"{name} is {value}; it must be at most {high:g}")
    return number


def _rule(pricing: str) -> Pricing:
    """The rule of that name."""
    if not isinstance(pricing, str) or pricing not in RULES:
        raise ValueError(f"unknown pricing {pricing!r}; known: {', '.join(RULES)}")
    return RULES[pricing]


def _rules(
    n_requests: int,
    slots: int,
    pricing: str,
    reserve_cpc: ArrayLike,
    score_floor: float,
    slot_effects: ArrayLike | None,
    rounding: Rounding,
    parameters: Mapping[str, float],
) -> tuple[ModuleType, tuple[int, _Reals, _Reals, float, _Reals, _Reals]]:
    """The kernels, and the checked rules in the order they take them; reserves [1] for all, or [R]."""
    from cascade_sim.auction import kernels  # numba is loaded when first needed

    _rule(pricing)
    if pricing not in kernels.NAMES:
        raise ValueError(f"pricing {pricing!r} was registered after the first auction; register it before")
    own = _parameters(pricing, parameters)
    score_floor = _amount(score_floor, "score_floor")
    if np.ndim(reserve_cpc) == 0 and not isinstance(reserve_cpc, np.ndarray):
        reserves = np.array([_amount(cast(float, reserve_cpc), "reserve_cpc")])
    else:
        reserves = _reserves(reserve_cpc, n_requests)
    if slot_effects is None:
        effects = np.ones(slots)
    else:
        effects = np.ascontiguousarray(_numbers(slot_effects, "slot_effects", (1,), "a list"), np.float64)
        if len(effects) < slots:
            raise ValueError(
                f"slot_effects has shape {effects.shape}; {slots} slots need at least {slots} of them"
            )
        if not (np.all(effects > 0) and np.all(np.isfinite(effects)) and np.all(np.diff(effects) <= 0)):
            raise ValueError(f"slot_effects must be positive, finite and never increase: {effects.tolist()}")
        effects = effects[:slots]
    habits = _NO_ROUNDING if rounding == EXACT else _checked_rounding(rounding)
    return kernels, (kernels.NAMES.index(pricing), own, reserves, score_floor, effects, habits)


def _checked_rounding(rounding: Rounding) -> _Reals:
    """[3] as the kernels take it; ValueError for a unit that is not of whole micro-units, or another way."""
    unit, increment = _amount(rounding.unit, "rounding unit"), _amount(rounding.increment, "increment")
    micros = round(unit * MICROS)
    if unit and (micros < 1 or abs(unit * MICROS - micros) > 1e-6 * micros):
        raise ValueError(f"rounding unit is {unit}; it must be 0, or whole micro-units (0.000001)")
    if rounding.how not in WAYS:
        raise ValueError(f"rounding is {rounding.how!r}; known: {', '.join(WAYS)}")
    return np.array([micros, WAYS.index(rounding.how), increment], np.float64)


def round_prices(cpc: ArrayLike, rounding: Rounding) -> NDArray[np.float64]:
    """Prices as multiples of a rounding's unit, as the auction rounds them; nothing is added.

    >>> round_prices([0.1234, 0.12], Rounding(0.01, "up")).tolist()
    [0.13, 0.12]
    """
    prices = np.ascontiguousarray(cpc, np.float64)
    unit, way, _ = _checked_rounding(rounding).tolist()
    if not unit:
        return prices
    from cascade_sim.auction import kernels  # numba is loaded when first needed

    out = np.empty(prices.shape)
    kernels.all_rounded(prices.reshape(-1), unit, way, out.reshape(-1))
    return out


def _parameters(pricing: str, given: Mapping[str, float]) -> NDArray[np.float64]:
    """The checked parameters of a rule, in the order in which it declares them."""
    rule = RULES[pricing]
    if not given and not rule.parameters:
        return _NO_PARAMETERS
    for name in given:
        if name not in PARAMETERS and name not in rule.parameters:
            raise TypeError(f"unknown keyword {name!r}{did_you_mean(name, KEYWORDS)}")
    for name, text in needless(pricing, given):
        raise ValueError(f"{name} {text}")
    for _, text in missing(pricing, given):
        raise ValueError(text)
    return np.array([_amount(given[name], name, one.high) for name, one in rule.parameters.items()])


def _reserves(reserve_cpc: ArrayLike, n_requests: int) -> NDArray[np.float64]:
    """Checked reserves [R], or one for all as an array."""
    given = _numbers(reserve_cpc, "reserve_cpc", (0, 1), "one, or one for each request")
    reserves = np.ascontiguousarray(given, np.float64)
    if given.ndim == 1 and len(reserves) != n_requests:
        raise ValueError(f"reserve_cpc has shape {reserves.shape}; give one, or one for each request")
    is_bad = ~((reserves >= 0) & np.isfinite(reserves))
    if is_bad.any():
        bad = reserves[int(np.argmax(is_bad))]
        raise ValueError(f"reserve_cpc is {bad}; it must be a finite number, 0 or more")
    return reserves


def _refuse(bid: NDArray[Any], quality: NDArray[Any], flat: int, quality_name: str) -> NoReturn:
    """Name the first bad input, found at that flat index."""
    request, candidate = divmod(flat, bid.shape[1])
    b, q = float(bid[request, candidate]), float(quality[request, candidate])
    for name, value in (("bid", b), (quality_name, q)):
        if not (value >= 0 and np.isfinite(value)):
            fault = f"{name} is {value}; it must be a finite number, 0 or more"
            break
    else:
        is_overflow = b * q == np.inf
        fault = f"bid {b} * {quality_name} {q} is not finite" if is_overflow else f"bid {b} follows padding"
    raise ValueError(f"{_place(request, candidate)}: {fault}")
