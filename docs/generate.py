"""The pages that are made from the code: commands, keys of a scenario, metrics.

`python docs/generate.py FOLDER` writes them; building the site does so by itself, into docs/made.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

WIDTH = 90  # characters of a help text: a screen's width, and half of it can be scrolled on a phone


def write_pages(folder: Path) -> None:
    """All pages, each written only if it changed: what did not is not built again."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"commands": commands(), "scenario": scenario_keys(), "metrics": metrics()}.items():
        file = folder / f"{name}.md"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def page(title: str, about: str, parts: Iterator[str]) -> str:
    return "\n\n".join([f"# {title}", about, *parts]) + "\n"


def cell(text: str) -> str:
    """A text as a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ").replace("*", "\\*").replace("<", "&lt;")


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [" | ".join(heads), " | ".join("---" for _ in heads), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def commands() -> str:
    """Every command's own help, in the order of `--help`."""
    from cascade_sim.cli import COMMAND_GROUPS, COMMANDS, cli

    def parts() -> Iterator[str]:
        settings = {**cli.context_settings, "terminal_width": WIDTH}
        top = click.Context(cli, info_name="python -m cascade_sim", **settings)
        for group, lines in COMMAND_GROUPS.items():
            yield table(
                (group.lower(), "what it does"), [(f"[{n}](#{n})", cell(t)) for n, t in lines.items()]
            )
        for name in COMMANDS:
            command = cli.get_command(top, name)
            assert command is not None
            context = click.Context(command, info_name=name, parent=top, terminal_width=WIDTH)
            yield f"## {name}\n\n```text\n{command.get_help(context)}\n```"

    about = (
        "What `python -m cascade_sim COMMAND --help` says. Where a command takes a scenario, a shipped one "
        "may be given by its name: `run quick`. Mistakes are refused before any work, with exit code 2."
    )
    return page("Commands", about, parts())


def scenario_keys() -> str:
    """Every key of a scenario: what is expected, what it is by default, what it means."""
    about = (
        "Every key a scenario may have, from `python -m cascade_sim schema`. A scenario says only what "
        "differs from the defaults. NAME is a name of your choice; `[]` is each item of a list."
    )
    return page("Keys of a scenario", about, sections_of(()))


def sections_of(path: tuple[str | int, ...]) -> Iterator[str]:
    """The mapping at a path as a table, then the mappings in it."""
    from cascade_sim.scenario.messages import expected, schema_at

    node = schema_at(path)
    assert node is not None
    needed, rows, inner = node.get("required", ()), [], []
    for key in node["properties"]:
        below = schema_at((*path, key))
        assert below is not None
        found = list(mappings_of((*path, key), below))
        inner += found
        what = f"[Keys below](#{anchor(found[0])})" if found else sentence(expected(below))
        given = ["required"] if key in needed else []
        if below.get("default") is not None and not isinstance(below["default"], Mapping):
            given = [f"default `{value_text(below['default'])}`"]
        rows.append((f"`{key}`", f"{cell(below.get('description', ''))} {'; '.join([cell(what), *given])}."))
    title = key_text(path) or "The scenario"
    about = node.get("description", "")
    yield f"## {title}\n\n{cell(about) if path else ''}\n\n" + table(("key", "meaning"), rows)
    for deeper in inner:
        yield from sections_of(deeper)


def mappings_of(path: tuple[str | int, ...], node: Mapping[str, Any]) -> Iterator[tuple[str | int, ...]]:
    """Paths, from this one down, of mappings with keys of their own: itself, or what it holds by name."""
    from cascade_sim.scenario.messages import has_free_names, schema_at

    if "properties" in node:
        yield path
    elif has_free_names(node) or node.get("type") == "array":
        step = "NAME" if has_free_names(node) else 0
        below = schema_at((*path, step))
        if below is not None:
            yield from mappings_of((*path, step), below)


def key_text(path: tuple[str | int, ...]) -> str:
    return ".".join(str(step) for step in path).replace(".0", "[]")


def anchor(path: tuple[str | int, ...]) -> str:
    """As Markdown makes it of the heading."""
    return "".join(c for c in key_text(path).lower() if c.isalnum() or c in "_-")


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def value_text(value: Any) -> str:
    """How a default looks in a file."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else f"{value}" or '""'


def metrics() -> str:
    """Every metric of the catalogue, by where it is measured."""
    from cascade_sim.analysis.metrics import catalogue

    groups = {
        "Of an arm": (catalogue.ARM_MEASURES, "In `metrics.json`, `metrics.csv` and the report of a run."),
        "Of a part of an arm": (
            part_measures(),
            "Beside them, by the name of a stage, of a step of pre-ranking or of a route of retrieval.",
        ),
        "Of pages": (catalogue.PAGE_MEASURES, "Beside them in what-ifs and compared runs."),
        "Of a market": (catalogue.MARKET_MEASURES, "Of the hours and days of a market."),
        "Of a model": (
            catalogue.MODEL_MEASURES,
            "Against the true CTR, on the win set and the pre-ranking set.",
        ),
    }

    def parts() -> Iterator[str]:
        for title, (measures, about) in groups.items():
            yield f"## {title}\n\n{about}"
            yield from (metric_text(metric) for metric in measures.values())
        arms = [(f"`{name}`", cell(text)) for name, text in catalogue.REFERENCE_ARMS.items()]
        yield "## Reference arms\n\nThey are in every table.\n\n" + table(("arm", "what it is"), arms)
        used = {
            name for group, _ in groups.values() for m in group.values() for name in (m.top, m.less, m.bottom)
        }
        sums = [(f"`{name}`", cell(text)) for name, text in catalogue.COLUMNS.items() if name in used]
        yield "## What is summed\n\nOver requests; metrics are ratios of these.\n\n" + table(
            ("sum", "of"), sums
        )

    about = (
        "Made from the catalogue, `cascade_sim.analysis.metrics.catalogue`: reports, files and checks read "
        "the same records. How money and intervals are counted: [conventions](../conventions.md)."
    )
    return page("Metrics", about, parts())


def part_measures() -> dict[str, Any]:
    """Those of stages and routes, with a word in the place of a name."""
    from cascade_sim.analysis.metrics import catalogue

    names = [
        f"{metric}{part.infix}{'ROUTE' if 'by' in part.infix else 'STAGE'}"
        for part in catalogue.PARTS
        for metric in part.measures
    ]
    return {name: catalogue.part_measure(name) for name in names}


def metric_text(metric: Any) -> str:
    """An entry of the glossary: name in files, label, what it means, what it is made of."""
    unit = {"percent": ", in %", "money": ", money"}.get(metric.unit, "")
    better = {"": "", "higher": "Higher is better.", "lower": "Lower is better."}.get(
        metric.better, f"Best {metric.better}."
    )
    parts = (f"**{cell(metric.label)}**{unit}. {cell(metric.meaning)}", ratio_text(metric), better)
    return f"### {metric.name}\n\n" + " ".join(part for part in parts if part)


def ratio_text(metric: Any) -> str:
    """`1000 × revenue / impressions`; empty where the meaning says it all."""
    if not metric.is_ratio:
        return ""
    top = f"({metric.top} − {metric.less})" if metric.less else metric.top
    factor = "" if metric.factor == 1 else f"{metric.factor:g} × "
    return f"It is {factor}`{top}` / `{metric.bottom}`."


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
