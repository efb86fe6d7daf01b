"""The folder of an imported log: the store, and beside it what every command reads of a finished run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

from ruamel.yaml import YAML

from cascade_sim.logs.importing.formats import adapter
from cascade_sim.logs.importing.importer import Imported, Progress, import_logs, validation_text
from cascade_sim.logs.importing.mapping import Mapping, load_mapping, read_mapping
from cascade_sim.logs.store.answers import supported_queries
from cascade_sim.logs.store.format import About, Rule
from cascade_sim.logs.store.scenario import logged_scenario
from cascade_sim.logs.store.store import LOG_FILE, STORE, LogStore, open_store
from cascade_sim.storage import checksums
from cascade_sim.storage.checksums import MANIFEST
from cascade_sim.storage.code_version import source_digest
from cascade_sim.storage.environment import packages
from cascade_sim.storage.files import below
from cascade_sim.storage.folder import json_text
from cascade_sim.version import SEMANTICS, __version__

KIND = "imported log"
MAPPING, VALIDATION, SCENARIO = "mapping.yaml", "validation.json", "scenario.yaml"
Completed: TypeAlias = Callable[[LogStore], Rule | None]  # the declared rule and what the log tells of it


def as_declared(store: LogStore) -> Rule | None:
    """The declared rule alone."""
    return store.about.rule


def import_market(
    mapping: str | Path, out: str | Path, progress: Progress | None = None, rule: Completed = as_declared
) -> Imported:
    """Make a log store of the logs that a mapping file names; `rule`: of the scenario that replays it."""
    return _import(load_mapping(mapping), out, progress, rule)


def import_format(
    name: str,
    files: Sequence[str | Path],
    out: str | Path,
    progress: Progress | None = None,
    rule: Completed = as_declared,
) -> Imported:
    """Make a log store of files in a format that is known here; UserError with those that are."""
    text = yaml_text(adapter(name).mapping([Path(file) for file in files]))
    return _import(read_mapping(text, f"--format {name}", Path(".")), out, progress, rule)


def _import(mapping: Mapping, out: str | Path, progress: Progress | None, rule: Completed) -> Imported:
    readers = None if mapping.format is None else adapter(mapping.format).readers

    def finish(folder: Path, about: About, validation: dict[str, Any]) -> None:
        store = open_store(folder)
        scenario = logged_scenario(about.changed(rule=rule(store)), store)
        (folder / MAPPING).write_text(mapping.text, encoding="utf-8")
        (folder / VALIDATION).write_text(validation_text(validation), encoding="utf-8")
        (folder / SCENARIO).write_text(yaml_text(scenario), encoding="utf-8")
        sealed = (MAPPING, VALIDATION, SCENARIO, f"{STORE}/{LOG_FILE}")
        manifest = {
            "kind": KIND,
            "name": about.name,
            "seed": 0,
            "semantics": SEMANTICS,
            "version": __version__,
            "code": source_digest(),
            "packages": packages(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": {},
            "status": "complete",
            # the store's own list has the digests of its columns
            checksums.SEALS: {name: checksums.file_digest(folder / name) for name in sealed},
        }
        below(folder, MANIFEST).write_text(json_text(checksums.with_checksum(manifest)), encoding="utf-8")

    return import_logs(mapping, out, readers=readers, finish=finish, progress=progress)


def yaml_text(data: dict[str, Any]) -> str:
    """Plain YAML, keys in their order."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.allow_unicode = True
    stream = StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()


def summary(imported: Imported, out: str | Path, replayed: float | None = None) -> list[str]:
    """What came of an import, in lines; `replayed`: share of pages that the rule gives as logged."""
    about, left_out = imported.store.about, imported.validation["left_out"]
    counts = about.counts
    lines = [
        f"{about.name}: {counts.requests:,} requests, {counts.candidates:,} candidates, "
        f"{counts.shown:,} shown, {counts.clicks:,} clicks",
        f"{counts.ads:,} ads of {counts.advertisers:,} advertisers",
        f"from {about.starts} ({about.zone}), charged per {about.charged_per}",
        *supported_queries(imported.store, replayed),
    ]
    if left_out["requests"] or left_out["candidates"]:
        lines.append(f"left out: {left_out['requests']:,} requests, {left_out['candidates']:,} candidates")
    lines += [*imported.notes, f"log: {out}"]
    if about.rule is None or about.rule.pricing is None:
        lines.append(
            "no pricing rule was declared, and questions need the one that wrote the log. Find and adopt it: "
            f"python -m cascade_sim audit-logs {out} --adopt"
        )
    return lines
