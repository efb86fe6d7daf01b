"""The audit of a log: its tables, its words and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.report.section import Bullets, Columns, Heading, Section, Stack, TablePart, Text
from cascade_sim.analysis.report.short_page import short_page
from cascade_sim.analysis.report.tables import Cell, Row, Table

ALL_OF_THEM = "Every page matches the log."
FOOT = "A page matches the log if the same ads are in the same slots at the same prices, to the micro-unit."
OF_REASONS = (
    " A reason that is a change of the rule counts a request only if the auction, re-run with the "
    "change, gives its page exactly."
)
CSV_COLUMNS = ("reason", "requests", "share", "alone", "value", "where", "examples")


def share_text(n: int, of: int) -> str:
    """A share in percent that says 100 only if nothing is missing, and 0 only if nothing is there.

    >>> share_text(2, 2), share_text(99_999, 100_000), share_text(1, 100_000), share_text(0, 0)
    ('100 %', 'over 99.9 %', 'under 0.1 %', 'none')
    """
    if of == 0:
        return "none"
    if n in (0, of):
        return f"{100 * n / of:.0f} %"
    percent = 100 * n / of
    return "over 99.9 %" if percent >= 99.95 else "under 0.1 %" if percent < 0.05 else f"{percent:.1f} %"


def audit_headline(answer: Mapping[str, Any]) -> str:
    """The share of pages that match the log, in a sentence; of a log that tells nothing, that."""
    if answer["nothing_told"]:
        return f"Nothing can be told of the auction from this log: {answer['nothing_told']}"
    tally = answer["tally"]
    pages = share_text(tally["pages_matched"], tally["requests"])
    rule = "the declared rule" if answer["is_declared"] else "the rule that explains it best"
    winners = share_text(tally["winners_matched"], tally["shown"])
    prices = share_text(tally["prices_matched"], tally["prices"])
    parts = [f"{winners} of the winners" if answer["level"] != "winners" else "the winners cannot be told"]
    parts.append(f"{prices} of the prices" if tally["prices"] else "no price can be told")
    return f"{pages} of the pages match the log under {rule} ({', '.join(parts)})"


def audit_words(answer: Mapping[str, Any]) -> list[str]:
    """What there is to say beside the tables."""
    tally, reasons = answer["tally"], answer["reasons"]
    if answer["nothing_told"]:
        return []
    lines = [f"Rule: {answer['rule_text']}."]
    if not answer["is_declared"] and answer["declared_text"] is not None:
        lines.append(f"Declared: {answer['declared_text']}.")
    if tally["prices_off_by_rounding"]:
        lines.append(
            f"{tally['prices_off_by_rounding']:,} further prices are off by rounding only: by at most "
            f"{tally['unit']:g}, the unit they were logged in."
        )
    named = [entry for entry in reasons if entry["key"] != "unexplained"]
    unexplained = sum(entry["requests"] for entry in reasons if entry["key"] == "unexplained")
    wrong = tally["requests"] - tally["pages_matched"]
    if named:
        lines.append(f"Tested reasons explain {wrong - unexplained:,} of the {wrong:,} pages that differ.")
        first = named[0]
        value = f" ({first['value']})" if first["value"] else ""
        lines.append(
            f"Commonest reason where not: {first['reason']}{value}, on {first['requests']:,} of "
            f"{tally['requests']:,} requests."
        )
    if unexplained:
        lines.append(f"Nothing that was tried explains {unexplained:,} of {tally['requests']:,} requests.")
    return lines if reasons else [*lines, ALL_OF_THEM]


def tally_table(answer: Mapping[str, Any]) -> Table:
    """Pages, winners and prices: how many there are, and how many match the log."""
    tally = answer["tally"]

    def row(label: str, of: int, n: int, hint: str) -> Row:
        return Row(label, [Cell(f"{of:,}"), Cell(f"{n:,}"), Cell(share_text(n, of))], hint=hint)

    rows = [
        row("pages", tally["requests"], tally["pages_matched"], "all ads, slots and prices of a request"),
        row("winners", tally["shown"], tally["winners_matched"], "the ad in a slot"),
        row("prices", tally["prices"], tally["prices_matched"], "of the same ad in the same slot"),
    ]
    return Table("Agreement with the log", "", ["logged", "as logged", "share"], rows)


def slots_table(answer: Mapping[str, Any]) -> Table | None:
    """Winners and prices by slot; None where all pages have one."""
    slots = answer["tally"]["by_slot"]
    if len(slots) < 2:
        return None
    rows = [
        Row(
            f"slot {slot['slot']}",
            [
                Cell(f"{slot['shown']:,}"),
                Cell(share_text(slot["winners"], slot["shown"])),
                Cell(f"{slot['priced']:,}"),
                Cell(share_text(slot["prices"], slot["priced"])),
            ],
        )
        for slot in slots
    ]
    return Table("By slot", "", ["winners", "as logged", "prices", "as logged"], rows)


def reasons_table(answer: Mapping[str, Any]) -> Table | None:
    """Why pages are not as logged, the commonest first; None where all are."""
    if not answer["reasons"]:
        return None
    n = answer["tally"]["requests"]
    rows = []
    for entry in answer["reasons"]:
        cells = [Cell(f"{entry['requests']:,}"), Cell(share_text(entry["requests"], n))]
        about = "; ".join(part for part in (_value(entry), entry["where"]) if part)
        rows.append(Row(entry["reason"], cells, hint=entry["meaning"], about=about))
    return Table("Mismatch causes", "reason", ["requests", "share of all"], rows)


def _value(entry: Mapping[str, Any]) -> str:
    """What the log says of a reason, and what it comes together with."""
    together = f"also with {', '.join(entry['with'])}" if entry["with"] else ""
    return "; ".join(part for part in (entry["value"], together) if part)


def reason_lines(answer: Mapping[str, Any]) -> list[str]:
    """A line per reason with what it means, and requests that show it."""
    return [
        f"{entry['reason']}: {entry['meaning']}; for example {', '.join(entry['examples'])}."
        for entry in answer["reasons"]
    ]


def value_lines(answer: Mapping[str, Any]) -> list[str]:
    """A line per reason of which the log says more: a value, what it comes with, where."""
    lines = []
    for entry in answer["reasons"]:
        parts = [part for part in (_value(entry), entry["where"]) if part]
        if parts:
            lines.append(f"{entry['reason']}: {'; '.join(parts)}.")
    return lines


def rules_table(answer: Mapping[str, Any]) -> Table | None:
    """The rules on requests that did not choose them; None where nothing was inferred."""
    found = answer["inference"]
    if found is None:
        return None
    rows = []
    for i, entry in enumerate(found["rules"]):
        prices = "none" if entry["prices"] is None else f"{100 * entry['prices']:.1f}"
        cells = [Cell(f"{100 * entry['winners']:.1f}"), Cell(prices), Cell(f"{100 * entry['pages']:.1f}")]
        cells.append(Cell("" if i == 0 else f"{entry['differs']:,}"))
        name, _, rest = entry["rule"].partition(", ")
        tag = "declared" if entry["is_declared"] else "best" if i == 0 else ""
        rows.append(Row(name, cells, "baseline" if i == 0 else "", tag=tag, about=rest))
    title = f"Rules on the {found['held_out']:,} requests that did not choose them"
    return Table(title, "rule", ["winners %", "prices %", "pages %", "unlike the best"], rows)


def rule_lines(answer: Mapping[str, Any]) -> list[str]:
    """A line per rule with its parameters; none where nothing was inferred."""
    found = answer["inference"]
    return [] if found is None else [str(entry["rule"]) for entry in found["rules"]]


PARAMETERS = {
    "squashing": "squashing exponent",
    "hidden_reserve": "reserve",
    "reserve": "reserve",
    "hidden_floor": "score floor",
    "soft_floor": "soft floor",
    "increment": "step above the runner-up",
    "slot_effects": "slot effects",
    "rounding": "rounding",
}


def parameters_table(answer: Mapping[str, Any]) -> Table | None:
    """The parameters of the best rule with what the log leaves open of each; None if nothing was inferred."""
    found = answer["inference"]
    if found is None:
        return None
    rows = []
    for name, told in found["rules"][0]["told"].items():
        if name not in PARAMETERS:
            continue
        value = told.get("value")
        if "by_placement" in told:
            text = ", ".join(f"{place} {own:g}" for place, own in told["by_placement"].items())
        elif isinstance(value, list):
            text = " / ".join(f"{x:.4g}" for x in value)
        else:
            text = "not seen" if value is None else value if isinstance(value, str) else f"{value:.6g}"
        low, high = told.get("low"), told.get("high")
        interval = "" if low is None or high is None else f"[{low:.7g}, {high:.7g}]"
        places = told.get("places")
        rows.append(
            Row(
                PARAMETERS[name],
                [Cell(text), Cell(interval), Cell(f"{places:,}" if isinstance(places, int) else "")],
            )
        )
    if not rows:
        return None
    return Table(
        "Parameters of the best rule", "parameter", ["value", "could be", "supporting observations"], rows
    )


def audit_facts(answer: Mapping[str, Any]) -> list[str]:
    """Which market, how large, at what level."""
    return [
        str(answer["log"]),
        f"{answer['tally']['requests']:,} requests",
        f"{answer['candidates']:,} candidates",
        f"log completeness: {answer['level']}",
        f"paid per {answer['charging']}",
    ]


def audit_page(answer: Mapping[str, Any]) -> str:
    """The whole page; everything in it is escaped."""
    words: Sequence[Any] = [Text(line) for line in audit_words(answer)]
    notes = answer["notes"]
    cannot = (
        (Heading("Not identified from the log"), Bullets([f"{note}." for note in notes])) if notes else ()
    )
    told = Columns((Stack((*words, *cannot)), TablePart(tally_table(answer))), "sides")
    sections = [
        Section(
            "",
            audit_headline(answer),
            parts=(Stack((*words, *cannot)),) if answer["nothing_told"] else (told,),
            kind="answer",
            short="Answer",
        )
    ]
    reasons, by_slot = reasons_table(answer), slots_table(answer)
    if reasons is not None:
        parts = (TablePart(reasons), Heading("What each means"), Bullets(reason_lines(answer)))
        sections.append(Section("", "Mismatch causes", parts=parts))
        if by_slot is not None:
            sections.append(Section("", "By slot", parts=(TablePart(by_slot),)))
    rules = rules_table(answer)
    if rules is not None:
        found = answer["inference"]
        about = (
            f"Parameters were fitted to {found['fitted_to']:,} requests; the shares are of "
            f"{found['held_out']:,} others. Unlike the best: places on their pages where a rule has "
            "another ad or price than the best one."
        )
        sections.append(Section("", "Rule identification", (), (TablePart(rules), Text(about, "small"))))
        parameters = parameters_table(answer)
        if parameters is not None:
            sections.append(Section("", "Its parameters", (), (TablePart(parameters),)))
    title = f"Audit of {answer['log']}"
    foot = FOOT + OF_REASONS if answer["reasons"] else FOOT
    return short_page("Audit", title, audit_facts(answer), sections, foot, shown="")
