"""What is published of real markets, as ranges: a run far outside of them is told so.

The ranges are wide: from the lowest to the highest figure found, and a factor of several beyond. A study may
well leave them on purpose; its reader should know. Money is taken to be US dollars, for a scenario does not
say what its unit is.

    CTR          0.46 % display and 3.17 % search as means of industries (WordStream, Google AdWords
                 benchmarks, 2018); 6.42 % search, 13.0 % in the highest industry (WordStream, search
                 advertising benchmarks, 2024); 4.05 % of 84 million impressions in Taobao (Ma et al., Entire
                 space multi-task model, 2018, the Ali-CCP data); display in real-time bidding mostly below
                 0.1 % (Zhang et al., Real-time bidding benchmarking with iPinYou dataset, 2014)
    bid spread   log-normal bids fitted to Yahoo! auctions (Lahaie, Pennock, Revenue analysis of a family of
                 ranking rules for keyword auctions, 2007), log-normal values in Yahoo!'s field experiment
                 (Ostrovsky, Schwarz, Reserve prices in Internet advertising auctions, 2009); who draws bids
                 independently, with a spread of their own, meets averages but not single auctions (Gabbard et
                 al., Empirical price modeling for sponsored search, 2007)
    price        0.63 $ display and 2.69 $ search as means (WordStream, 2018); 1.72 to 8.94 $ by industry
                 (WordStream, 2024); reserves of 0.10 $ (Ostrovsky, Schwarz, 2009)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cascade_sim.analysis.statistics.estimates import estimate


@dataclass(frozen=True)
class Published:
    """A range of a figure. `typical` is what is published; `source` names where, in short."""

    name: str
    label: str
    low: float
    high: float
    typical: str
    source: str
    is_percent: bool = False

    def text(self, value: float) -> str:
        return f"{100 * value:.3g} %" if self.is_percent else f"{value:.3g}"


PUBLISHED = (
    Published(
        "ctr", "The CTR", 0.0001, 0.15, "0.05 to 13 %", "WordStream 2018 and 2024, Ali-CCP, iPinYou",
        is_percent=True,
    ),
    Published(
        "bid_spread", "The spread of bids (standard deviation of their logarithm)", 0.1, 2.5,
        "a few tenths to about 1", "Lahaie and Pennock 2007, Ostrovsky and Schwarz 2009",
    ),
    Published(
        "price", "The price per click", 0.02, 50.0, "0.1 to 9 dollars", "WordStream 2018 and 2024",
    ),
)  # fmt: skip


def figures_of(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """The figures of a run's baseline that there is something published of."""
    arm = (metrics.get("arms") or {}).get(str(metrics.get("baseline"))) or {}
    bids = metrics.get("bids") or {}
    return {
        "ctr": estimate(arm.get("ctr")).value,
        "bid_spread": estimate(bids.get("spread")).value,
        "price": estimate(arm.get("cpc")).value,
    }


def out_of_published_range(metrics: Mapping[str, Any]) -> list[str]:
    """A sentence for every figure of a run that is far from what is published.

    >>> run = {"baseline": "a", "arms": {"a": {"ctr": 0.4, "cpc": 1.0}}, "bids": {"spread": 0.5}}
    >>> len(out_of_published_range(run))
    1
    """
    told, values = [], figures_of(metrics)
    for known in PUBLISHED:
        value = values[known.name]
        if value is None or known.low <= value <= known.high:
            continue
        far = "below" if value < known.low else "above"
        told.append(
            f"{known.label} is {known.text(value)}, far {far} what is published of real markets "
            f"({known.typical}; {known.source})."
        )
    return told
