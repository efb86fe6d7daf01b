"""A study repeated under other settings: where do its conclusions hold, and where do they fade?

A variants file names a scenario and, for each variant, the keys it overrides:

    scenario: ranking_consistency.yaml
    common: [phases.evaluate=4096]          # overrides of every variant; may be left out
    variants:
      as it is: []
      wide bids: [world.bids.sigma=0.7]

Each (variant, seed) is a run folder of its own. One that is complete, of the same scenario and made by
the same code is taken as it is, so a stopped study goes on where it was.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cascade_sim.errors import UserError
from cascade_sim.progress import Progress
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.schema import Scenario
from cascade_sim.workers import Job, run_jobs


def load_variants(path: Path, overrides: tuple[str, ...] = ()) -> dict[str, Scenario]:
    """The scenario of every variant, all checked before any work starts."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        content = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise UserError(f"{path}: {error}") from error
    allowed = {"scenario", "common", "variants"}
    if not isinstance(content, dict) or not {"scenario", "variants"} <= set(content) <= allowed:
        raise UserError(f"{path}: expected the keys scenario, variants and optionally common")
    if not isinstance(content["variants"], dict) or not content["variants"]:
        raise UserError(f"{path} variants: expected NAME: [key=value, …], at least one")
    common = tuple(content.get("common") or ())
    scenario = path.parent / str(content["scenario"])
    found = {}
    for name, changes in content["variants"].items():
        if not isinstance(changes, list) or not all(isinstance(change, str) for change in changes):
            raise UserError(f"{path} variants.{name}: expected a list of key=value, not {changes!r}")
        found[str(name)] = load_scenario(scenario, (*common, *changes, *overrides))
    folders = {folder_name(name): name for name in found}
    if len(folders) < len(found):
        same = next(name for name in found if folders[folder_name(name)] != name)
        raise UserError(f"{path} variants.{same}: differs from another name only in punctuation; rename it")
    return found


def run_variants(
    scenarios: dict[str, Scenario], out: Path, seeds: int, workers: int, device: str, quiet: bool
) -> dict[str, dict[str, Any]]:
    """The combined metrics of every variant over its seeds."""
    from cascade_sim.phases.results import combine_seeds

    folders = {name: out / folder_name(name) for name in scenarios}
    done = run_worlds(scenarios, folders, seeds, workers, device, quiet, "variants")
    return {name: combine_seeds(worlds) for name, worlds in done.items()}


def run_worlds(
    scenarios: Mapping[str, Scenario],
    folders: Mapping[str, Path],
    seeds: int,
    workers: int,
    device: str,
    quiet: bool,
    what: str,
) -> dict[str, list[dict[str, Any]]]:
    """The metrics of each scenario in each of its worlds, seed after seed; complete ones are not run again.

    Each world leaves a run folder without logs: FOLDER/seed-N.
    """
    from cascade_sim.study import run_world

    worlds = {
        (name, i): scenario.model_copy(update={"seed": scenario.seed + i})
        for name, scenario in scenarios.items()
        for i in range(seeds)
    }
    jobs = {
        key: Job(
            f"{key[0]}, seed {world.seed}",
            run_world,
            (world, folders[key[0]] / f"seed-{world.seed}", device),
            {"keep_logs": False},
        )
        for key, world in worlds.items()
    }
    with Progress(quiet) as progress, progress.stage(what, len(jobs), "worlds") as bar:
        done = run_jobs(
            list(jobs.values()),
            workers,
            on_done=lambda name: bar.advance(1),
            go_on="the same command goes on from there",
        )
    return {name: [done[jobs[name, i].name] for i in range(seeds)] for name in scenarios}


def folder_name(variant: str) -> str:
    """A variant's name as the name of a folder."""
    return "".join(c if c.isalnum() else "-" for c in variant.lower()).strip("-")


def table(results: dict[str, dict[str, Any]], arms: list[str], metric: str, lift: bool) -> str:
    """A Markdown table: a row per variant, a column per arm, mean ± half the interval."""
    lines = ["| variant | " + " | ".join(arms) + " |", "|---|" + "---|" * len(arms)]
    for name, metrics in results.items():
        cells = []
        for arm in arms:
            node = metrics["arms"].get(arm, {}).get(metric, {})
            cells.append(_cell(node.get("lift") if lift else node, lift))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def culprit_table(results: dict[str, dict[str, Any]]) -> str:
    """A Markdown table of the RCS with pre-ranking seats replaced, a row per variant."""
    first = next(iter(results.values()))["culprit"]
    heads = [f"{row['bid']} × {row['model']}" for row in first]
    lines = ["| variant | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for name, metrics in results.items():
        cells = [_cell(row["rcs"], False) for row in metrics["culprit"]]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(node: dict[str, Any] | None, signed: bool) -> str:
    """Percent with half the width of the interval; – where undefined."""
    if not node or node.get("value") is None:
        return "–"
    text = f"{100 * node['value']:+.1f}" if signed else f"{100 * node['value']:.1f}"
    if node.get("low") is not None:
        text += f" ± {50 * (node['high'] - node['low']):.1f}"
    return text
