"""The market phase of a study: every arm lives through the same simulated days, with its own ledger.

Every `market.checkpoint` simulated seconds the state of an arm, its half-written tables included, goes into
checkpoints/ARM.npz of the run folder, and the figures of an arm that is done into checkpoints/ARM.json. A run
that was stopped takes up from there and writes the same bytes as one that was not.

Arms know nothing of each other. Where there are several workers, and enough to do for a process to be worth
its start, each arm is a job of the run's engine; its process builds the world again and leaves tables and
figures in the same places.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.analysis.statistics.days import market_contrasts, market_lifts
from cascade_sim.cascade.retrievers.routes import route_column
from cascade_sim.context import RunContext
from cascade_sim.foundation.progress import Progress
from cascade_sim.foundation.workers import Job
from cascade_sim.market.ad_server import SettledBlock
from cascade_sim.market.panel import learning_sections
from cascade_sim.market.run import MarketRun
from cascade_sim.scenario.market import DAY, Market, market_jobs
from cascade_sim.scenario.plugins import has_registered
from cascade_sim.scenario.schema import ArmSpec, resolved_arms
from cascade_sim.storage import user_code
from cascade_sim.storage.checkpoints import load_figures, load_state, save_figures, save_state, state_errors
from cascade_sim.storage.files import below
from cascade_sim.storage.folder import CHECKPOINTS, keep
from cascade_sim.storage.lock import holder_of, written_for
from cascade_sim.storage.tables import ROW_GROUP, TableWriter
from cascade_sim.study.rebuild import Plan, rebuilt
from cascade_sim.study.simulation import Simulation


def run_markets(sim: Simulation, context: RunContext) -> dict[str, Any]:
    """Section `market` of metrics.json, without its designs: each arm over the simulated days."""
    spec = sim.scenario.market
    assert spec is not None
    files = {name: _figures_file(context.out, name) for name in sim.scenario.arms}
    left = [name for name, file in files.items() if not file.is_file()]
    if _are_jobs(sim, left, context.workers):
        _live_elsewhere(sim, left, context)
    else:
        for name in left:
            live_market(sim, name, context)
    arms = {name: load_figures(file) for name, file in files.items()}
    if spec.training is not None:
        report = sim.scenario.report
        after = spec.training.burn_in
        learning = learning_sections(arms, report.baseline, report.resamples, sim.seed, after)
        arms = {name: {**section, "learning": learning[name]} for name, section in arms.items()}
    return {
        "days": spec.days,
        "window": spec.window,
        "update": spec.update,
        "lifts": market_lifts(arms, sim.scenario.report.baseline),
        "contrasts": market_contrasts(arms),
        "arms": arms,
    }


def _figures_file(out: Path, name: str) -> Path:
    return below(out, CHECKPOINTS, f"{name}.json")


def live_market(sim: Simulation, name: str, context: RunContext) -> None:
    """One arm's market; its tables and its figures are in the run folder when it is over."""
    result = run_market(sim, name, context)
    keep(context.out, f"market-{name}", market_tables(sim, name))
    save_figures(_figures_file(context.out, name), result)


def _are_jobs(sim: Simulation, left: Sequence[str], workers: int) -> bool:
    """Whether several arms are left, there is another worker to do them, and they are worth the start."""
    spec, is_shared = sim.scenario.market, workers > 1 or sim.arrivals.engine.is_elsewhere
    is_worth = market_jobs(spec, len(left), max(workers, 2)) > 0
    return is_shared and is_worth and not has_registered(sim.scenario)


def _live_elsewhere(sim: Simulation, names: Sequence[str], context: RunContext) -> None:
    """These arms' markets as jobs, each with its part of the workers."""
    plan, holder = Plan.of(sim, context.out), holder_of(context.out)
    threads = max(1, context.workers // len(names))
    jobs = [Job(f"market of {name}", market_job, (plan, name, threads, holder)) for name in names]
    with context.progress.stage("markets", len(jobs), "markets") as bar:

        def finished(name: str) -> None:
            bar.advance(1)
            bar.tell(f"{name} finished")

        engine = sim.arrivals.engine
        done = engine.jobs(jobs, context.workers, on_done=finished, go_on="resume it with --resume")
    for loaded in done.values():
        user_code.loaded_elsewhere(loaded)


def market_job(plan: Plan, name: str, workers: int, holder: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """`live_market` in another process than the one that holds the run folder.

    Returns the user's own modules that came in meanwhile: they belong to the run's code.
    """
    before = user_code.loaded()
    with written_for(plan.folder, holder), Progress(quiet=True) as progress:
        context = RunContext(plan.folder, workers=workers, progress=progress)
        live_market(rebuilt(plan), name, context)
    return user_code.loaded_since(before)


def run_market(sim: Simulation, name: str, context: RunContext) -> dict[str, Any]:
    """One arm's market, from its last checkpoint if there is one."""
    arm = resolved_arms(sim.scenario)[name]
    run = MarketRun(sim, sim.arm(name, arm), arm_market(sim, arm), workers=context.workers, is_watched=True)
    figures = run_recorded(run, name, context)
    compute = run.server.compute.metrics(figures["revenue"])
    figures = figures if compute is None else {**figures, "compute": compute}
    watched = run.live_shadow.metrics()
    figures = figures if watched is None else {**figures, "consistency": watched}
    learning = run.trainer.metrics(run.now)
    return figures if learning is None else {**figures, "learning": learning}


def run_recorded(
    run: MarketRun,
    name: str,
    context: RunContext,
    further: Callable[[SettledBlock], dict[str, np.ndarray]] = lambda settled: {},
) -> dict[str, Any]:
    """Let a market run, from its last checkpoint if there is one, and write its tables; its figures.

    `further` gives more columns [R] of a block's requests for the table of impressions.
    """
    sim, spec, out = run.sim, run.spec, context.out
    file = below(out, CHECKPOINTS, f"{name}.npz")
    state = load_state(file) if file.is_file() else None
    names, kept = market_tables(sim, name), {}
    categories = {names[0]: {"served_by_stage": run.server.arm.stage_names}}
    if state is not None:
        with state_errors(file):
            kept = {table: state["tables"][table] for table in names}
    with ExitStack() as stack:
        bar = stack.enter_context(
            context.progress.stage(f"market: {name}", int(spec.days * DAY * spec.requests_per_second))
        )
        tables = {}
        for table in names:
            named = categories.get(table)
            writer = (
                TableWriter.anew(out, table, ROW_GROUP, named)
                if state is None
                else TableWriter.resume(out, table, kept[table], named)
            )
            tables[table] = stack.enter_context(writer)

        def on_block(settled: SettledBlock) -> None:
            row = np.nonzero(settled.ads >= 0)[0]
            more = {column: values[row] for column, values in further(settled).items()}
            tables[names[0]].append({**market_columns(sim, settled, run.server.routes), **more})
            bar.advance(len(settled.block))

        def on_checkpoint(now: dict[str, Any]) -> None:
            keep(out, f"market-{name}", names, is_finished=False)
            save_state(file, {**now, "tables": {table: tables[table].state() for table in names}})

        run.on_block, run.on_checkpoint = on_block, on_checkpoint
        run.on_charges = lambda charges: tables[names[-1]].append(charge_columns(charges))
        if state is not None:
            with state_errors(file):
                run.restore(state)
            bar.advance(int(run.tally.hours["requests"].sum()))
        return run.run().metrics()


def arm_market(sim: Simulation, arm: ArmSpec) -> Market:
    """The scenario's market with the arm's own exploration."""
    spec = sim.scenario.market
    assert spec is not None
    return spec if arm.exploration is None else spec.model_copy(update={"exploration": arm.exploration})


def market_tables(sim: Simulation, arm: str) -> list[str]:
    """The tables an arm's market writes: impressions and, where clicks are charged late, their charges."""
    assert sim.scenario.market is not None
    is_late = sim.scenario.market.charging.click_delay > 0
    return [f"market-{arm}", *([f"charges-{arm}"] if is_late else [])]


def market_columns(
    sim: Simulation, settled: SettledBlock, routes: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """A row per shown ad, in request and slot order: what was decided, and what the user did with it.

    `routes` are those that the server merges.
    `served_by_stage` are places in `arm.stage_names`, which the table has as the categories of the column.
    """
    block = settled.block
    row, slot = np.nonzero(settled.ads >= 0)
    ad = settled.ads[row, slot]
    brought = () if settled.routes is None else settled.routes[row, slot].T
    dumped = {} if settled.raw_score is None else {"raw_score": settled.raw_score[row, slot]}
    return {
        **block.columns(row),
        "slot": slot.astype(np.int8),
        "ad": ad,
        "advertiser": sim.world.advertiser[ad],
        "examination": _examination(sim)[slot],
        "bid": settled.bid[row, slot],
        "quality": settled.quality[row, slot],
        "prediction": settled.prediction[row, slot],
        **dumped,
        "model_version": settled.model_version[row],
        "is_explored": settled.lists.is_explored[row],
        "served_by_stage": settled.lists.served_by_stage[row],
        "cpc_micros": settled.cpc_micros[row, slot],
        "click": settled.clicks[row, slot],
        "click_time": settled.click_time[row, slot],
        "conversion": settled.conversions[row, slot],
        "charge_micros": settled.charges_micros[row, slot],
        **{route_column(name): is_brought for name, is_brought in zip(routes, brought, strict=True)},
    }


def charge_columns(charges: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A row per click that is charged after its page, in order of arrival."""
    names = {"cpc": "cpc_micros", "charge": "charge_micros"}
    return {names.get(name, name): values for name, values in charges.items()}


def _examination(sim: Simulation) -> np.ndarray:
    """P(examined) of each slot as float32; NaN where users do not follow the slot effects."""
    market = sim.scenario.market
    if market is None or market.users.click_model == "position":
        return sim.world.slot_effects.astype(np.float32)
    return np.full(len(sim.world.slot_effects), np.nan, np.float32)
