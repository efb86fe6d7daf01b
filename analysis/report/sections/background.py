"""What is needed to understand a study and to repeat it: measures, scenario, versions, timings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.catalogue import LISTED, MODEL_MEASURES, measure_names, part_measure
from cascade_sim.analysis.report.section import Code, Columns, Details, Heading, Section, Stack, Terms, Text
from cascade_sim.analysis.statistics.estimates import NBSP, finite, number_text

# The columns of the arms table that speak for themselves are not repeated here.
ALWAYS_EXPLAINED = (
    *("rcs", "single_objective_rcs", "true_value_recall"),
    *("expected_ctr", "expected_rpm", "expected_revenue_per_request", "cpc_error_irreducible"),
)
ABOUT_INTERVALS = (
    "Within one world: from a paired bootstrap over requests, the same resamples for every arm. It takes "
    "requests as independent, although requests of one user share a retrieval set, so with many requests per "
    "user the intervals are somewhat too narrow. Over several worlds: Student t intervals between worlds, "
    "which do not rest on that. Neither is adjusted for the number of arms or measures looked at."
)

ABOUT_REPEATING = (
    "The same scenario and seed give the same bytes on the same kind of processor with the same packages. "
    "Elsewhere the last digits of sums differ, and a trained net ends with slightly other weights."
)


def background_section(
    metrics: Mapping[str, Any], manifest: Mapping[str, Any], scenario_yaml_text: str
) -> Section:
    """The glossary, the scenario, and what ran it for how long."""
    rows = {"Versions": versions(metrics, manifest), "Timings": timings(manifest)}
    return Section(
        "background",
        "Background",
        parts=(
            Details(summary="Metric definitions", parts=(Terms(glossary(metrics), "glossary"),)),
            Details(summary="Scenario", parts=(Code(scenario_yaml_text),)),
            Details(
                summary="Versions and timings",
                parts=(
                    Text(ABOUT_REPEATING, "small"),
                    Columns(
                        [
                            Stack((Heading(heading), Terms(terms, "pairs")))
                            for heading, terms in rows.items()
                            if terms or heading == "Versions"
                        ],
                        "columns",
                    ),
                ),
            ),
        ),
    )


def glossary(metrics: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(label, name in the files, meaning) of every measure that the study or the page's tables hold."""
    replay = metrics.get("replay")  # of a replayed log, which has no true rates and trains no models
    always, of_models = ((), {}) if replay else (ALWAYS_EXPLAINED, MODEL_MEASURES)
    steps = {name: step for name in measure_names(metrics) if (step := part_measure(name)) is not None}
    names = [name for name in LISTED if name in {*measure_names(metrics), *always}]
    measures = {name: LISTED[name] for name in names} | steps | of_models
    rows = [(measure.label, name, measure.meaning) for name, measure in measures.items()]
    about = _of_a_log(replay) if replay else ABOUT_INTERVALS
    return [(f"95{NBSP}% interval", "", about), *rows]


def _of_a_log(replay: Mapping[str, Any]) -> str:
    resampled = replay["resampled"]
    return (
        f"From a paired bootstrap over {resampled['by']}s of the log, the same resamples for every arm: "
        f"{resampled['why']}. The uncertainty of the click model is in them."
    )


def versions(metrics: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What is needed to get the same numbers again."""
    rows = [
        ("cascade_sim", metrics.get("version") or manifest.get("version")),
        ("semantics", metrics.get("semantics")),
        ("scenario hash", metrics.get("scenario_hash")),
    ]
    rows += sorted((manifest.get("packages") or {}).items())
    rows += [(f"processor: {name}", which) for name, which in (manifest.get("processor") or {}).items()]
    return [(str(name), "", str(value)) for name, value in rows if value is not None]


def timings(manifest: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Seconds per phase and in total, then the serving rate."""
    seconds = {phase: finite(spent) for phase, spent in (manifest.get("seconds") or {}).items()}
    rows = [(str(phase), "", f"{number_text(spent, 1)} s") for phase, spent in seconds.items()]
    if rows and "total" not in seconds:
        rows.append(("total", "", f"{number_text(sum(spent or 0.0 for spent in seconds.values()), 1)} s"))
    rate = finite(manifest.get("requests_per_second"))
    if rate is not None:
        rows.append(("requests per second", "", number_text(rate, 0)))
    return rows
