"""The report: one HTML page that opens from disk and answers which arm to ship, how sure that is, and why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES, MODEL_MEASURES, REFERENCE_ARMS, measure_names
from cascade_sim.analysis.report.culprit import culprit_words
from cascade_sim.analysis.report.decision import decide, key_figures, money_lost
from cascade_sim.analysis.report.figures.registry import FIGURES
from cascade_sim.analysis.report.sections.compute import compute_section
from cascade_sim.analysis.report.sections.critical_bids import critical_bids_section
from cascade_sim.analysis.report.sections.designs import design_section
from cascade_sim.analysis.report.sections.drift import drift_section
from cascade_sim.analysis.report.sections.learning import learning_section
from cascade_sim.analysis.report.sections.market import market_section
from cascade_sim.analysis.report.sections.objectives import objectives_section
from cascade_sim.analysis.report.sections.off_policy import off_policy_section
from cascade_sim.analysis.report.sections.pareto import pareto_section
from cascade_sim.analysis.report.sections.whatif import what_if_sections
from cascade_sim.analysis.report.tables import (
    all_measures_table,
    arms_table,
    attribution_table,
    culprit_table,
    models_table,
    money_table,
    spread_table,
)
from cascade_sim.analysis.statistics.estimates import (
    NBSP,
    Estimate,
    decimals_for,
    finite,
    interval_text,
    number_text,
    scaled,
)

TEMPLATE = "report_template.html"
# The columns of the arms table that speak for themselves are not repeated here.
ALWAYS_EXPLAINED = (
    *("rcs", "single_objective_rcs", "true_value_recall"),
    *("expected_ctr", "expected_rpm", "expected_revenue_per_request", "cpc_error_floor"),
)
ABOUT_INTERVALS = (
    "Within one world: from a paired bootstrap over requests, the same resamples for every arm. It takes "
    "requests as independent, although requests of one user share a retrieval set, so with many requests per "
    "user the intervals are somewhat too narrow. Over several worlds: Student t intervals between worlds, "
    "which do not rest on that. Neither is adjusted for the number of arms or measures looked at."
)


def render(
    metrics: Mapping[str, Any], manifest: Mapping[str, Any], scenario_yaml_text: str, svgs: Mapping[str, str]
) -> str:
    """The page for a study. `svgs` come from `figures.registry.draw_all`; all else is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    decision = decide(metrics)
    page = environment.get_template(TEMPLATE).render(
        name=str(metrics.get("name", "study")),
        baseline=metrics["baseline"],
        facts=facts(metrics, manifest),
        decision=decision,
        tiles=tiles(metrics, decision.arm) if decision.arm else [],
        lost=money_lost(metrics),
        seeds=metrics.get("seeds"),
        arms=arms_table(metrics),
        reference_arms={arm: text for arm, text in REFERENCE_ARMS.items() if arm in metrics["arms"]},
        spread=spread_table(metrics),
        culprit=culprit_table(metrics),
        culprit_words=culprit_words(metrics),
        losses=attribution_table(metrics),
        models=models_table(metrics),
        money=money_table(metrics),
        objectives=objectives_section(metrics),
        pareto=pareto_section(metrics),
        critical=critical_bids_section(metrics),
        what_ifs=what_if_sections(metrics),
        off_policy=off_policy_section(metrics),
        market=market_section(metrics),
        compute=compute_section(metrics),
        learning=learning_section(metrics),
        designs=design_section(metrics),
        drift=drift_section(metrics),
        everything=all_measures_table(metrics),
        glossary=glossary(metrics),
        scenario=scenario_yaml_text,
        versions=versions(metrics, manifest),
        timings=timings(manifest),
        corpus_requests=detail_requests(metrics, "corpus_requests"),
        quality_requests=detail_requests(metrics, "quality_requests"),
        reliability_worlds=reliability_worlds(metrics),
        figures={name: Markup(svgs[name]) for name in FIGURES if name in svgs},
    )
    return page.rstrip() + "\n"


def facts(metrics: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    """The line under the title: which worlds, how much traffic, when."""
    found = []
    seeds = metrics.get("seeds")
    if seeds:
        names = ", ".join(str(seed) for seed in seeds.get("seeds") or [])
        found.append(f"mean over {seeds.get('n')} worlds (seeds {names})")
    elif metrics.get("seed") is not None:
        found.append(f"one world, seed {metrics['seed']}")
    if finite(metrics.get("requests")) is not None:
        found.append(f"{number_text(metrics['requests'], 0)} requests per arm{' and world' if seeds else ''}")
    found.append(f"{len(metrics['arms'])} arms" if len(metrics["arms"]) != 1 else "1 arm")
    if manifest.get("started"):
        found.append(f"started {manifest['started']}")
    if manifest.get("status") not in (None, "complete"):
        found.append(f"status: {manifest['status']}")
    return found


def detail_requests(metrics: Mapping[str, Any], key: str) -> str:
    """On how many requests a dear measure rests ("512 requests per arm and world"); empty if unknown."""
    n = finite((metrics.get("detail") or {}).get(key))
    if n is None and key == "corpus_requests":  # an older run says it arm by arm
        rows = [row for row in (metrics.get("attribution") or {}).values() if row]
        n = finite(rows[0].get("requests")) if rows else None
    if n is None:
        return ""
    return f"{number_text(n, 0)} requests{' of each world' if metrics.get('seeds') else ''}"


def reliability_worlds(metrics: Mapping[str, Any]) -> str:
    """What the reliability figure holds of a study over several worlds; empty for one world."""
    if not metrics.get("seeds"):
        return ""
    curves = [
        curve for curve in ((metrics.get("curves") or {}).get("proxy_reliability") or {}).values() if curve
    ]
    if curves and all(curve.get("worlds") for curve in curves):
        return f"All {curves[0]['worlds']} worlds pooled."
    return "Mean over worlds where their bins match, otherwise the first world alone."


def tiles(metrics: Mapping[str, Any], arm: str) -> list[dict[str, str]]:
    """The recommended arm's numbers, large: lifts of revenue per request, RPM and CTR, and RCS."""
    made = []
    for name, own, base in key_figures(metrics, arm):
        percent = scaled(own, 100.0)
        is_level = name == "RCS"
        made.append(
            {
                "label": name if is_level else f"{name}, lift",
                "value": f"{number_text(percent.value, 1, signed=not is_level)} %",
                "interval": interval_text(percent, 1, signed=not is_level),
                "base": _base_text(name, base, metrics["baseline"]),
            }
        )
    return made


def _base_text(name: str, base: Estimate, baseline: str) -> str:
    """What the baseline has, in the unit of the measure."""
    if base.value is None:
        return ""
    if name in ("Revenue per request", "RPM"):
        return f"{baseline}: {number_text(base.value, decimals_for([base.value]))}"
    return f"{baseline}: {number_text(100 * base.value, 2 if name == 'CTR' else 1)} %"


def glossary(metrics: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(name in the files, label, meaning) of every measure that the study or the page's tables hold."""
    names = [name for name in ARM_MEASURES if name in {*measure_names(metrics), *ALWAYS_EXPLAINED}]
    rows = [("", f"95{NBSP}% interval", ABOUT_INTERVALS)]
    rows += [(name, ARM_MEASURES[name].label, ARM_MEASURES[name].meaning) for name in names]
    return rows + [(name, measure.label, measure.meaning) for name, measure in MODEL_MEASURES.items()]


def versions(metrics: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is needed to get the same numbers again."""
    rows = [
        ("cascade_sim", metrics.get("version") or manifest.get("version")),
        ("semantics", metrics.get("semantics")),
        ("scenario hash", metrics.get("scenario_hash")),
    ]
    rows += sorted((manifest.get("packages") or {}).items())
    return [(str(name), str(value)) for name, value in rows if value is not None]


def timings(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Seconds per phase and in total, then the serving rate."""
    seconds = {phase: finite(spent) for phase, spent in (manifest.get("seconds") or {}).items()}
    rows = [(str(phase), f"{number_text(spent, 1)} s") for phase, spent in seconds.items()]
    if rows and "total" not in seconds:
        rows.append(("total", f"{number_text(sum(spent or 0.0 for spent in seconds.values()), 1)} s"))
    rate = finite(manifest.get("requests_per_second"))
    if rate is not None:
        rows.append(("requests per second", number_text(rate, 0)))
    return rows
