"""How much memory a study takes at its peak, from the sizes in its scenario: told before any work is done.

The large arrays, counted in bytes as the engine makes them: features of users and ads, what retrieval keeps
and scans, what models keep per ad, the blocks that are under way with all arms, payments by advertiser, and
what is learned from; the resamples of intervals, randomised logs, and what a market keeps: its users and
bidders, clicks under way, the impressions it learns from, the rows of a trial. It is an estimate: right to a
factor of two where one of them is large.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.limits import (
    COACTION_UNITS,
    COUNTED_AT_ONCE,
    DRAWN_AT_ONCE,
    GROUPS,
    INTTOWER_HEADS,
    KEPT_IDS,
    LANES,
    MAX_ESTIMATED,
    MAX_LEARNED,
    MAX_ROWS,
    READ_AT_ONCE,
    SEARCHED_AT_ONCE,
    SUMMED_AT_ONCE,
)
from cascade_sim.scenario.market import DAY, Market, market_jobs
from cascade_sim.scenario.questions import OffPolicy
from cascade_sim.scenario.schema import AUTOMATIC_ARMS, Route, Scenario, World, resolved_arms
from cascade_sim.scenario.teaching import learners

BASE = 600 * 10**6  # the interpreter and its libraries
ABLATED = 4  # arms that the ablation adds for each step of pre-ranking
COLUMNS = 60  # kept of every arm at most
OF_ID = 6  # numbers kept for each of an embedding: itself, what its training keeps, what is served
SPARE = 1.2  # more of the nearest ads than are mostly there


@dataclass(frozen=True)
class Sizes:
    """The sizes of a scenario that memory depends on."""

    users: int
    ads: int
    advertisers: int
    block: int
    retrieved: int
    log: int
    shadow: int
    evaluate: int
    dims: int  # of all vectors of a user or an ad
    index_width: int  # numbers of a user or an ad in indexes of retrieval, over all of them
    ranked: int  # handed on by the steps of pre-ranking, together
    slots: int
    arms: int
    retrievals: int  # different sizes that arms ask for
    seen_of_user: int  # features, over all models
    seen_of_ad: int
    kept_of_ad: int  # numbers that models keep per ad
    sampled: int  # candidates per shadowed request, over all students
    students: int
    resamples: int
    pool: int = 0  # ads of the corpus drawn for a list
    crossed: int = 0  # pairs of request and ad in a batch, where every ad of it is scored for every request
    listed: int = 0  # ads in lists of neighbours, where retrieval is approximate
    listed_width: int = 0
    hidden_of_user: int = 0  # numbers that no feature shows, and past clicks
    hidden_of_ad: int = 0
    spare: float = 1.0  # ads kept for each retrieved one, where some of them are not there
    parameters: int = 0  # requests of the log with randomised parameters
    slates: int = 0  # and of that with randomised pages
    depth: int = 0  # of the lists that those are drawn from
    rate: float = 0.0  # requests a second of a market
    days: float = 0.0
    waiting: float = 0.0  # seconds for which something of a shown ad is under way
    recent: float = 0.0  # seconds of impressions that a market learns from
    is_trial: bool = False
    own_markets: int = 0  # arms whose market is worth a process of its own
    workers: int = 1  # threads
    worlds: int = 1  # processes


KEYS = {
    "users": "world.users",
    "ads": "world.ads",
    "advertisers": "world.advertisers",
    "block": "traffic.block",
    "retrieved": "cascade.retrieval.size",
    "log": "phases.log",
    "shadow": "phases.shadow",
    "evaluate": "phases.evaluate",
    "resamples": "report.resamples",
    "parameters": "off_policy.requests",
    "slates": "off_policy.slates.requests",
    "rate": "market.requests_per_second",
    "worlds": "--workers",
    "workers": "--workers",
}
LEAST = {"ads": 2, "retrieved": 2, "log": 0, "shadow": 0, "resamples": 2, "parameters": 2, "slates": 2}


def sizes_of(scenario: Scenario, workers: int = 1, worlds: int = 1) -> Sizes:
    """The sizes of a scenario, run by so many threads in so many processes."""
    world, arms = scenario.world, resolved_arms(scenario)
    if world.replay is not None:  # nothing of a log stays in memory but its requests
        few = {"users": 1, "ads": 2, "advertisers": 1}
        world = world.model_copy(update=few)
    own = {"mismatch": world.mismatch.dims, "conversion": world.conversion.dims}
    widths = {**{name: group.dims for name, group in world.groups.items()}, **own}
    seen = [feature for spec in scenario.models.values() for feature in spec.features]
    models = scenario.models.values()
    proxied = [one for one in models if one.is_shadowed and not one.trained_by.has_teacher]
    taught = [*learners(scenario).values(), *proxied]
    crossing = [one for one in models if one.trained_by.crosses]
    is_logged = world.replay is not None
    retrieved = {
        arm.retrieval_size if is_logged else min(arm.retrieval_size, world.ads) for arm in arms.values()
    }
    routes = [route for arm in arms.values() for route in arm.retrieval.parts.values()]
    routes = [r for r in routes if r.is_similarity or r.model is not None]  # a custom one keeps what it likes
    asked = {(*_index_key(route), route.size) for route in routes}
    indexes = list({_index_key(route): route for route in routes}.values())
    listed = [route for route in indexes if route.probes is not None]
    return Sizes(
        users=world.users,
        ads=world.ads,
        advertisers=world.advertisers,
        block=scenario.traffic.block,
        retrieved=max(retrieved),
        log=scenario.phases.log + scenario.phases.cold_start,
        shadow=scenario.phases.shadow,
        evaluate=scenario.phases.evaluate,
        dims=sum(widths.values()),
        index_width=sum(_index_width(scenario, widths, route) for route in indexes),
        ranked=max(sum(step.size for _, step in arm.steps) for arm in arms.values()),
        slots=max(arm.slots for arm in arms.values()),
        arms=len(scenario.arms) + len(AUTOMATIC_ARMS) + _ablations(scenario),
        retrievals=max(len(asked), 1),
        seen_of_user=sum(widths.get(name, 1) for name in seen) + _embedded(scenario, "user_id"),
        seen_of_ad=sum(widths.get(name, 1) for name in seen) + _embedded(scenario, "ad_id"),
        kept_of_ad=sum(_kept_of_ad(spec.kind, spec.hidden, spec.dims) for spec in scenario.models.values()),
        sampled=sum(one.sample.per_request for one in taught),
        students=len(taught),
        pool=max((one.sample.drawn for one in taught if one.sample.set == "corpus"), default=0),
        crossed=max((one.batch * (one.batch + one.recipe_values["uniform"]) for one in crossing), default=0),
        resamples=scenario.report.resamples,
        listed=0 if not listed else world.ads,
        listed_width=sum(_index_width(scenario, widths, route) + 2 for route in listed),
        **_hidden_sizes(world),
        **_off_policy_sizes(scenario.off_policy),
        **_market_sizes(scenario.market, len(scenario.arms)),
        workers=workers,
        worlds=worlds,
    )


def _kept_of_ad(kind: str, hidden: int, dims: int) -> int:
    """Numbers that a model keeps of each ad, beside its features: what its kernel reads."""
    if kind == "coaction":
        return _padded(dims + 1) + COACTION_UNITS * dims + _padded(hidden + 1)
    if kind == "inttower":
        return INTTOWER_HEADS * dims + 1
    if kind == "cold":
        return _padded(dims) + LANES + _padded(hidden)
    return _padded(dims + 1)


def _index_key(route: Route) -> tuple[Any, ...]:
    """What two routes that share an index have in common."""
    if route.model is not None:
        return (route.model, route.bid_weight, route.probes)
    return (route.group, route.overlap, route.probes)


def _index_width(scenario: Scenario, widths: dict[str, int], route: Route) -> int:
    """Numbers of an ad in an index; of a model's, its code beside the index, and its first deployment's."""
    if route.model is not None:
        model = scenario.models.get(route.model)
        return 0 if model is None else 4 * (model.dims + 3)
    return 2 * widths.get(route.group, 0) + 1


def _ablations(scenario: Scenario) -> int:
    """Arms of the ablation: some for each step of pre-ranking, and one for all where there are several."""
    earlier = len(scenario.cascade.pre_ranking.earlier)
    return ABLATED * (earlier + 1) + bool(earlier)


def _embedded(scenario: Scenario, feature: str) -> int:
    """Numbers that models keep of each id of a feature, over all of them."""
    return sum(OF_ID * spec.embedding for spec in scenario.models.values() if feature in spec.features)


def _hidden_sizes(world: World) -> dict[str, Any]:
    """What the options of a world add to each user and ad."""
    of_user = of_ad = 0
    if world.intent is not None:
        group = world.intent.group
        of_ad += _padded(world.groups[group].dims if group is not None else world.intent.dims or 4)
    if world.id_effects is not None:
        of_user, of_ad = (
            of_user + _padded(world.id_effects.dims + 2),
            of_ad + _padded(world.id_effects.dims + 2),
        )
    if world.drift is not None:
        of_user += 2 * _padded(sum(group.dims for group in world.groups.values()))
    if world.history is not None:
        of_user += world.history.length
    if world.churn is not None:
        of_ad += 4  # two numbers of double length
    spare = 1.0 if world.churn is None else SPARE / world.churn.available_share
    return {"hidden_of_user": of_user, "hidden_of_ad": of_ad, "spare": spare}


def _off_policy_sizes(spec: OffPolicy | None) -> dict[str, Any]:
    if spec is None:
        return {}
    pages = {} if spec.slates is None else {"slates": spec.slates.requests, "depth": spec.slates.depth}
    return {"parameters": 0 if spec.randomise is None else spec.requests, **pages}


def _market_sizes(spec: Market | None, n_arms: int) -> dict[str, Any]:
    if spec is None:
        return {}
    whole, charging, training = spec.days * DAY, spec.charging, spec.training
    is_late = charging.click_delay > 0
    learned = 0.0 if training is None else training.window or training.interval
    return {
        "rate": spec.requests_per_second,
        "days": spec.days,
        "waiting": min(whole, max(charging.click_window, 3 * charging.click_delay)) if is_late else 0.0,
        "recent": min(whole, learned),
        "is_trial": spec.designs is not None,
        "own_markets": market_jobs(spec, n_arms, n_arms),
    }


def peak_bytes(sizes: Sizes) -> int:
    """Bytes at the peak: what stays, and the largest of what comes and goes."""
    kept, market = sum(staying(sizes).values()), market_bytes(sizes)
    jobs = min(sizes.own_markets, sizes.workers)
    if jobs > 1:  # each process has a world of its own
        market = jobs * (BASE + kept + market)
    return (BASE + kept + max(*passing(sizes).values(), market)) * sizes.worlds


def staying(sizes: Sizes) -> dict[str, int]:
    """Bytes of what a study keeps to its end, by what it is."""
    n = sizes
    rows, columns = n.users + n.ads, n.dims + 2
    most_ids = KEPT_IDS * (n.retrievals + 3) // 4  # a quarter more for every further size
    return {
        "features": rows * (4 * columns + 24),
        "truth": rows * 4 * (_padded(n.dims + 2) + 2 * LANES),
        "retrieval": rows * 4 * n.index_width + n.listed * 4 * n.listed_width,
        "hidden": 4 * (n.users * n.hidden_of_user + n.ads * n.hidden_of_ad),
        "retrieved": 4 * min(int(n.users * n.retrieved * n.spare) * n.retrievals, most_ids),
        "seen": 4 * (n.users * n.seen_of_user + n.ads * n.seen_of_ad),
        "codes": 4 * n.ads * n.kept_of_ad,
        "tallies": n.arms * 8 * (min(n.evaluate, MAX_ROWS) * COLUMNS + 2 * GROUPS * n.advertisers),
    }


def passing(sizes: Sizes) -> dict[str, int]:
    """Bytes of what comes and goes, by when."""
    n = sizes
    under_way = 1 if n.workers == 1 else 2 * n.workers
    decided = n.block * (n.retrieved * 16 + n.ranked * 48 + n.slots * 80)
    scored = n.block * max(n.retrieved, n.pool) * 64 * n.workers
    paid = 8 * 3 * GROUPS * n.advertisers
    searched = SEARCHED_AT_ONCE * n.retrieved * 16 * n.workers
    impressions = min(n.log * n.slots, MAX_LEARNED)
    candidates = min(n.shadow * n.sampled, n.students * MAX_LEARNED)
    return {
        "building the world": 8 * min(n.users + n.ads, DRAWN_AT_ONCE) * (n.dims + 2),
        "serving": under_way * n.arms * (decided + paid) + scored + searched,
        "learning": impressions * 96 + candidates * 32 + n.crossed * 24,
        "intervals": _interval_bytes(n),
        "off-policy": _log_bytes(n.parameters, 88) + _log_bytes(n.slates, 24 + 32 * (n.depth + n.slots)),
    }


def _interval_bytes(n: Sizes) -> int:
    """Of the bootstrap: every arm's columns in parts that sum exactly, the counts, and the resampled sums."""
    rows = min(n.evaluate, MAX_ROWS)
    parts = n.arms * 8 * 2 * COLUMNS * rows + (n.arms + 1) * 8 * GROUPS * n.advertisers
    counts = 24 * min(COUNTED_AT_ONCE, n.resamples * rows)
    return parts + counts + 32 * min(SUMMED_AT_ONCE, n.resamples * n.advertisers)


def _log_bytes(requests: int, each: int) -> int:
    """A randomised log: its portions and all of it joined, what is computed from it, and the tables' rows."""
    return 3 * each * min(requests, MAX_ESTIMATED) + 300 * min(requests, READ_AT_ONCE)


def market_bytes(sizes: Sizes) -> int:
    """Bytes of one arm's market while it is lived through; of the experiments on it, the larger one."""
    n = sizes
    if not n.rate:
        return 0
    shown = n.rate * n.slots  # ads a second
    kept = 40 * n.users + 110 * n.ads + (300 + 16 * n.days) * n.advertisers
    served = n.block * (n.retrieved * 80 + n.ranked * 48 + n.slots * 160)
    rows = 90 * n.rate * n.days * DAY if n.is_trial else 0
    return int(kept + served + 100 * shown * n.waiting + 120 * shown * n.recent + rows)


def _padded(width: int) -> int:
    return -(-width // LANES) * LANES


def available_bytes(root: Path = Path("/")) -> int | None:
    """Memory that a new process could take: what the machine has left, within the limits of its group."""
    found = [*_left_on_machine(root), *_left_in_group(root)]
    return max(0, min(found)) if found else None


def _left_on_machine(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024
            return
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _left_in_group(root: Path) -> Iterator[int]:
    """Of a container or a job: its limit without what is in use, files that can be dropped not counted."""
    for line in _lines(root / "proc/self/cgroup"):
        _, kinds, path = (*line.split(":", 2), "", "")[:3]
        base = root / "sys/fs/cgroup"
        names = ("memory.max", "memory.current")
        if "memory" in kinds.split(","):
            base, names = base / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        elif kinds:
            continue
        place = Path(path.strip().lstrip("/"))
        for folder in (base / place, *(base / above for above in place.parents)):
            limit, used = (next(_lines(folder / name), "") for name in names)
            if limit.strip().isdecimal() and used.strip().isdecimal():
                files = [text.split()[1] for text in _lines(folder / "memory.stat") if _is_dropped(text)]
                yield int(limit) - int(used) + sum(map(int, files[:1]))


def _is_dropped(line: str) -> bool:
    return line.split()[:1] in (["inactive_file"], ["total_inactive_file"])


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            yield from file
    except OSError:
        return


def dominating(sizes: Sizes) -> str:
    """The size whose halving saves most."""
    whole = peak_bytes(sizes)
    return max(KEYS, key=lambda name: whole - peak_bytes(_with(sizes, name, getattr(sizes, name) // 2)))


def largest_that_fits(sizes: Sizes, name: str, room: int) -> int | None:
    """The largest value of one size with which a study takes no more than `room`; None if there is none."""
    low, high = LEAST.get(name, 1), int(getattr(sizes, name))
    if peak_bytes(_with(sizes, name, low)) > room:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if peak_bytes(_with(sizes, name, middle)) <= room else (low, middle - 1)
    return low


def _with(sizes: Sizes, name: str, value: float) -> Sizes:
    changed: dict[str, Any] = {name: max(value, LEAST.get(name, 1))}
    return replace(sizes, **changed)


def require_memory(
    scenario: Scenario, workers: int = 1, worlds: int = 1, available: int | None = None
) -> None:
    """UserError if a study needs more memory than there is, with the key to change."""
    sizes = sizes_of(scenario, workers, worlds)
    need, room = peak_bytes(sizes), available_bytes() if available is None else available
    if room is None or need <= room:
        return
    name = dominating(sizes)
    fits = largest_that_fits(sizes, name, room)
    value = f"{getattr(sizes, name):,}"
    advice = f"{fits:,} would fit" if fits is not None else "no value of it alone would make it fit"
    raise UserError(
        f"this study needs about {bytes_text(need)} of memory, and {bytes_text(room)} are available; most "
        f"of it goes to {KEYS[name]} ({value}): {advice}"
    )


def bytes_text(n: int) -> str:
    """`1.5 GB`, in powers of ten."""
    for unit, size in (("PB", 10**15), ("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if n >= size:
            return f"{n / size:,.1f} {unit}"
    return f"{n:,} bytes"
