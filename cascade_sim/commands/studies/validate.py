"""`cascade_sim validate`: check a scenario without running it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cascade_sim.commands.options import scenario_argument, set_option
from cascade_sim.foundation.terminal import echo

if TYPE_CHECKING:
    from cascade_sim.scenario.schema import Scenario


@click.command()
@scenario_argument
@set_option()
def command(scenario: Path, overrides: tuple[str, ...]) -> None:
    """Check a scenario and summarise it, without running it."""
    from cascade_sim.environments.build import check_log
    from cascade_sim.scenario.file import load_scenario

    loaded = load_scenario(scenario, overrides)
    check_log(loaded.world)
    echo(f"ok: {scenario}")
    for title, text in summary(loaded):
        echo(f"  {title:<8} {text}")


def summary(scenario: Scenario) -> list[tuple[str, str]]:
    """A line each for world, traffic, stages, models, arms, phases, a market if there is one, and memory."""
    from cascade_sim.scenario.memory import available_bytes, bytes_text, peak_bytes, sizes_of
    from cascade_sim.scenario.schema import AUTOMATIC_ARMS, resolved_arms

    world, cascade, phases = scenario.world, scenario.cascade, scenario.phases
    steps = (*cascade.pre_ranking.earlier.values(), cascade.pre_ranking)
    sizes: tuple[int, ...] = (world.ads, cascade.retrieval.total, *(step.size for step in steps))
    arms = [f"{name} (baseline)" if name == scenario.report.baseline else name for name in scenario.arms]
    models = [f"{name} ({spec.kind}, {spec.recipe})" for name, spec in scenario.models.items()]
    requests = [f"{name} {getattr(phases, name):,}" for name in ("cold_start", "log", "shadow", "evaluate")]
    market = [("market", market_text(scenario))] if scenario.market is not None else []
    need, room = peak_bytes(sizes_of(scenario)), available_bytes()
    memory = f"about {bytes_text(need)} at the peak, with one worker"
    if room is not None and need > room:
        memory += f": more than the {bytes_text(room)} that are available here, where a run would be refused"
    rate = f"{scenario.traffic.requests_per_second:g} requests/s"
    people = f"{world.users:,} users, {world.ads:,} ads of {world.advertisers:,} advertisers"
    if world.replay is not None:
        people, rate, sizes = f"the log of {world.replay.log}", "as logged", sizes[1:]
    automatic = [name for name in AUTOMATIC_ARMS if name in resolved_arms(scenario)]
    return [
        ("world", people),
        ("traffic", f"{rate} in blocks of {scenario.traffic.block:,}"),
        ("stages", " -> ".join(f"{size:,}" for size in sizes) + f" -> {cascade.slots} slots"),
        *retrievers_text(scenario),
        ("models", ", ".join(models) or "none"),
        ("arms", ", ".join(arms) + ("; automatic: " if automatic else "") + ", ".join(automatic)),
        ("phases", ", ".join(requests) + f" requests; exploration {phases.exploration:g}"),
        *market,
        ("memory", memory),
    ]


def retrievers_text(scenario: Scenario) -> list[tuple[str, str]]:
    """A line for who retrieves in the deployed cascade and in arms; none where it is similarity alone."""
    from cascade_sim.scenario.schema import retrievals

    found = dict(retrievals(scenario))
    if all(retrieval.is_similarity for retrieval in found.values()):
        return []
    texts = []
    for at, retrieval in found.items():
        parts = retrieval.parts.items()
        text = " + ".join(
            f"{' '.join((*place[1:], route.searched_by))} ({route.size:,})" for place, route in parts
        )
        texts.append(f"arm {at[1]}: {text}" if at[0] == "arms" else text)
    return [("retrieve", "; ".join(texts))]


def market_text(scenario: Scenario) -> str:
    """How long the market lasts, who bids in it, in how many arms, and what else happens there."""
    from cascade_sim.scenario.market import DAY

    market = scenario.market
    assert market is not None
    shares = sum(spec.share for spec in market.bidders.values())
    bidders = [
        f"{name} {spec.share / shares:.0%}".replace("%", " %") for name, spec in market.bidders.items()
    ]
    requests = round(market.days * DAY * market.requests_per_second)
    arms = scenario.arms  # those that every study adds stay outside
    parts = [
        f"{market.days:g} {'day' if market.days == 1 else 'days'} of about {requests / market.days:,.0f} "
        f"requests ({market.profile}) in each of {len(arms)} {'arm' if len(arms) == 1 else 'arms'}",
        f"bidders {', '.join(bidders)}",
        f"budgets for {market.budgets.share:.0%} of the advertisers".replace("%", " %")
        if market.budgets is not None
        else "no budgets",
    ]
    parts += ["stages take time on servers"] if market.compute is not None else []
    parts += ["models go on learning"] if market.training is not None else []
    parts += [f"experiments: {', '.join(market.designs.kinds)}"] if market.designs is not None else []
    return "; ".join(parts)
