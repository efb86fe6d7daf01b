"""What a change of a parameter costs on the live page: CPU time of the one thread that answers, and
memory.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from cascade_sim.foundation.errors import UserError
from cascade_sim.live import browse, figures
from cascade_sim.live.controls import curve_values, parameters_of
from cascade_sim.live.session import Session, Variant

MAX_VALUES = 6  # of each parameter
LOOKS = 20


def measure(run: Path) -> dict[str, Any]:
    """Every parameter of the baseline turned a few times, first on some requests and then on all."""
    began = process_time()
    session = Session(run)
    opened = process_time()
    _do(session.warm())
    warm, warm_mb = process_time(), _memory_mb()
    base = session.arm(Variant(session.baseline))
    by_parameter: dict[str, dict[str, list[float]]] = {}
    for parameter in parameters_of(session, session.baseline):
        values = [value for value in curve_values(parameter) if value != parameter["current"]]
        spent = by_parameter.setdefault(parameter["path"], {"quick": [], "all": []})
        for value in values[:: max(1, len(values) // MAX_VALUES)]:
            way = Variant(session.baseline, (f"{parameter['path']}={value}",))
            try:
                for name, is_all in (("quick", False), ("all", True)):
                    start = process_time()
                    arm, blocks = session.arm(way), session.blocks(is_all)
                    _do(session.measured(arm, blocks))
                    json.dumps(figures.answer(session, session.pages(arm), session.pages(base), blocks))
                    spent[name].append(1000.0 * (process_time() - start))
            except UserError:
                continue  # a value that needs another parameter
    looks = []
    arm = session.arm(Variant(session.baseline, ("auction.reserve_cpc=0.2",)))
    for i in range(LOOKS):
        start = process_time()
        browse.look_at(session, arm, base, i * session.n_requests // LOOKS, browse_ad(session, i))
        looks.append(1000.0 * (process_time() - start))
    # Of what all answer after the sample, the sample is a part: a page that begins anew does both.
    whole = {
        path: [a + b for a, b in zip(s["quick"], s["all"], strict=True)] for path, s in by_parameter.items()
    }
    return {
        "requests": session.n_requests,
        "sample": sum(len(session.block(index)) for index in session.sample),
        "open_s": opened - began,
        "warm_s": warm - opened,
        "warm_mb": warm_mb,
        "memory_mb": _memory_mb(),
        "quick_ms": _spread([x for spent in by_parameter.values() for x in spent["quick"]]),
        "all_ms": _spread([x for spent in whole.values() for x in spent]),
        "trace_ms": _spread(looks),
        "by_parameter": {
            path: {"quick_ms": _spread(spent["quick"]), "all_ms": _spread(whole[path])}
            for path, spent in by_parameter.items()
            if spent["quick"]
        },
    }


def browse_ad(session: Session, i: int) -> str:
    """Some ad that a request may be asked about: of a log, one of its candidates."""
    environment = session.sim.environment
    if environment.has("truth"):
        return str(i * session.sim.world.n_ads // LOOKS)
    index, row = session.place(i * session.n_requests // LOOKS)
    there = environment.corpus(session.block(index).take(np.array([row])))
    return environment.names.name("ads", int(there[0]))


def _memory_mb() -> float:
    """The most that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def _do(job: Iterator[None]) -> None:
    for _ in job:
        pass


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": float(np.median(values)), "p95": float(np.quantile(values, 0.95)), "n": len(values)}


def live_text(measured: dict[str, Any]) -> str:
    """The figures as lines for a terminal."""

    def line(name: str, of: dict[str, float]) -> str:
        return f"  {name:<32} median {of['median']:7.1f} ms   95th percentile {of['p95']:7.1f} ms"

    sample, whole = f"{measured['sample']:,} requests", f"all {measured['requests']:,}"
    lines = [
        "CPU time of a change of a parameter, from the question to the text of the answer",
        line(sample, measured["quick_ms"]),
        line(whole, measured["all_ms"]),
        line("a request and the way of an ad", measured["trace_ms"]),
        f"  opened in {measured['open_s']:.1f} s, warm after {measured['warm_s']:.1f} s more; "
        f"{measured['warm_mb']:,.0f} MB then, {measured['memory_mb']:,.0f} MB at most",
        f"by parameter, median on {sample} and on {whole}",
    ]
    for path, of in measured["by_parameter"].items():
        lines.append(f"  {path:<32} {of['quick_ms']['median']:7.1f} ms {of['all_ms']['median']:7.1f} ms")
    return "\n".join(lines)
