"""A trace as text for people: aligned columns, and a sentence for what decided."""

from collections.abc import Sequence
from typing import Any

from cascade_sim.auction import MICROS

STAGE_NAMES = {"retrieval": "retrieval", "pre_ranking": "pre-ranking", "ranking": "ranking"}


def trace_text(found: dict[str, Any]) -> str:
    """The whole trace; ends with a newline."""
    funnel = found["funnel"]
    lines = [
        f"request {found['request']} (number {found['index']} of the evaluation), arm {found['arm']}",
        f"user {found['user']}   context {found['context']:+.3f}   time {found['time']:,.3f} s",
        f"funnel  {funnel['corpus']:,} ads -> {funnel['pre_ranking_set']:,} retrieved -> "
        f"{funnel['competitive_set']:,} ranked -> {funnel['win_set']:,} shown",
        "",
        *_page(found),
    ]
    if found["same_as_log"] is None:
        lines.append("The run keeps no log of this arm to compare with.")
    if "ad" in found:
        lines += ["", *_ad(found["ad"], found)]
    return "\n".join(lines) + "\n"


def _page(found: dict[str, Any]) -> list[str]:
    if not found["win_set"]:
        return ["the page is empty: no candidate may take part in the auction"]
    head = ("slot", "ad", "advertiser", "init-bid", "bid", "pCTR", "true CTR", "score", "CPC", "clicked")
    rows = []
    for place in [*found["win_set"], found["runner_up"]]:
        if place is None:
            continue
        is_shown = place["slot"] is not None
        rows.append(
            (
                str(place["slot"]) if is_shown else "next",
                str(place["ad"]),
                str(place["advertiser"]),
                f"{place['init_bid']:.4f}",
                f"{place['bid']:.4f}",
                f"{place['pctr']:.5f}",
                f"{place['true_ctr']:.5f}",
                f"{place['score']:.6f}",
                f"{place['cpc_micros'] / MICROS:.6f}" if is_shown else "-",
                ("yes" if place["clicked"] else "no") if is_shown else "-",
            )
        )
    best = []
    for ad in found["true_best"]:
        fate = f"dropped by {STAGE_NAMES[ad['dropped_by']]}" if ad["dropped_by"] else "shown"
        best.append(f"{ad['ad']} ({fate})")
    return [
        *table(head, rows),
        "score = bid x quality (the pCTR, unless a fusion or squashing says otherwise); next: the runner-up",
        f"best by true value: {', '.join(best)}",
    ]


def _ad(ad: dict[str, Any], found: dict[str, Any]) -> list[str]:
    head = ("stage", "rank", "of", "pass", "score", "last in", "first out", "result")
    rows = []
    for stage in ad["stages"]:
        passed = stage["passed"]
        result = ("passed" if passed else "dropped") if stage["reached"] else "not reached; it would "
        result += "" if stage["reached"] else "have passed" if passed else "have been dropped"
        rows.append(
            (
                STAGE_NAMES[stage["stage"]],
                "-" if stage["rank"] is None else str(stage["rank"]),
                f"{stage['of']:,}",
                f"{stage['passes']:,}",
                _score(stage["score"]),
                _score(stage["last_in"]),
                _score(stage["first_out"]),
                result,
            )
        )
    bar = [f"It may not take part in the auction: {s['why']}." for s in ad["stages"] if s["why"]]
    value = (
        f"Truth: CTR {ad['true_ctr']:.5f}, worth {1000 * ad['true_value']:.3f} eCPM: "
        f"rank {ad['true_rank']:,} of {found['funnel']['corpus']:,} by true value."
    )
    return [_verdict(ad, found), "", *table(head, rows), *bar, value, "", *_bids(ad)]


def _verdict(ad: dict[str, Any], found: dict[str, Any]) -> str:
    who = f"ad {ad['ad']} of advertiser {ad['advertiser']}"
    place = next((p for p in found["win_set"] if p["ad"] == ad["ad"]), None)
    if place is not None:
        return f"{who} won slot {place['slot']} at a CPC of {place['cpc_micros'] / MICROS:.6f}"
    return f"{who} was dropped by {STAGE_NAMES[ad['dropped_by']]}"


def _bids(ad: dict[str, Any]) -> list[str]:
    bids, now = ad["bids"], ad["init_bid"]
    rows = [("bid now", f"{now:.6f}", "")]
    labels = {"pre_ranking": "to pass pre-ranking", "auction": "to win the auction", "cascade": "to win both"}
    for key, label in labels.items():
        bid = bids[key]
        if bid is None:
            rows.append((label, "no bid", ""))
        elif bid * MICROS < 1.5:
            rows.append((label, "any bid", ""))
        else:
            rows.append((label, f"{bid:.6f}", f"x {bid / now:.3f}" if now > 0 else ""))
    lines = table(("least init-bid", "", "of now"), rows)
    if bids["why_none"]:
        return [*lines, f"No bid wins a slot: {bids['why_none']}."]
    lines.append(
        f"At {bids['cascade']:.6f} it enters the auction with a bid of {bids['bid']:.6f} and wins slot "
        f"{bids['slot']} at a CPC of {bids['cpc_micros'] / MICROS:.6f}."
    )
    gap = bids["pre_ranking"] - bids["auction"]
    if gap > 0 and bids["pre_ranking"] > now:
        lines.append(
            f"Pre-ranking asks {gap:.6f} more than the auction: the ad is kept out by the stage that "
            "selects, not by the rivals it would have to outbid."
        )
    return lines


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their longest entry: the first and the last to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [
            cell.ljust(width) if i in (0, len(head) - 1) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
