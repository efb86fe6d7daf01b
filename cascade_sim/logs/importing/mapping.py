"""The mapping: which of the user's tables and columns is what, in which units. Read from YAML with line and
column.

name: tuesday zone: Europe/Berlin charging: click requests:   {files: requests.csv, columns: {request: id,
time: at, slots: {constant: 3}}} candidates: {files: bids-*.parquet, columns: {request: id, ad: creative,
bid: {column: bid, unit: micros}}} outcomes:   {files: shown.csv.gz, columns: {request: id, ad: creative,
slot: place, price: cost, click: clicked}}
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping as Dict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from cascade_sim.foundation.errors import ScenarioError, UserError, did_you_mean, unknown_name
from cascade_sim.logs.importing.faults import KINDS
from cascade_sim.logs.store.format import (
    CHARGING,
    FEATURE,
    PRE_SCORES,
    RULE_NUMBERS,
    SCORE,
    Rule,
    rule_faults,
)
from cascade_sim.scenario.yaml import Document, KeyPath, Problem, parse
from cascade_sim.storage.files import read_file

UNITS = {"unit": 1.0, "cents": 1e-2, "micros": 1e-6, "cpm": 1e-3}  # of money, in units
TIMES = ("iso", "seconds", "milliseconds", "microseconds")
DTYPES = ("float32", "float64")

# Columns of each table; True: must be given.
TABLES: dict[str, dict[str, bool]] = {
    "requests": {
        **dict.fromkeys(("request", "time"), True),
        **dict.fromkeys(("user", "segment", "placement", "slots", "reserve"), False),
    },
    "candidates": {
        **dict.fromkeys(("request", "ad"), True),
        **dict.fromkeys(("advertiser", "bid", "init_bid", "pctr", "pcvr", "pre_score", "stage"), False),
    },
    "outcomes": {
        **dict.fromkeys(("request", "ad", "slot"), True),
        **dict.fromkeys(("shown", "exposed", "price", "click", "conversion"), False),
        **dict.fromkeys(("conversion_delay", "propensity"), False),
        # where there are no candidates but the shown ads
        **dict.fromkeys(("advertiser", "bid", "init_bid", "pctr", "pcvr"), False),
    },
    "propensities": dict.fromkeys(("request", "ad", "propensity"), True),
    "budgets": {"advertiser": True, "budget": True, "day": False},
}
MONEY = ("bid", "init_bid", "price", "reserve", "budget")
IDS = ("request", "ad", "advertiser", "user", "segment", "placement")
TABLE_KEYS = ("files", "columns", "scores", "features")
TOP = (
    *("name", "zone", "currency", "charging", "money", "time", "pre_score", "bids_logged_above", "rule"),
    *("between", "allow", "csv", "format", "sha256", *TABLES),
)
CSV_KEYS = ("delimiter", "encoding", "decimal", "last_row")
COLUMN_KEYS = ("column", "columns", "constant", "unit", "dtype", "values", "base", "since", "packed")
RULE_KEYS = ("pricing", *RULE_NUMBERS, "rounding_how", "slot_effects")
WAYS_OF_ROUNDING = ("nearest", "up", "down")
BASE_OF_SLOTS = 0


@dataclass(frozen=True)
class ColumnSpec:
    """Where one of our columns comes from."""

    name: str
    theirs: tuple[str, ...] = ()  # several are joined by /; none: `constant`, or the number of the row
    constant: Any = None
    unit: str | None = None
    dtype: str | None = None
    values: Dict[str, Any] | None = None
    base: int = BASE_OF_SLOTS
    since: float | None = None  # times, or days, count from this moment (seconds since 1970)
    is_row: bool = False  # the row itself is the request
    is_packed: bool = False  # of slots: they are an order, shown ads move up until there is no gap
    mark: tuple[int, int] = (1, 1)


@dataclass(frozen=True)
class TableSpec:
    """One of our tables: its files and where its columns come from."""

    name: str
    files: tuple[Path, ...]
    columns: Dict[str, ColumnSpec]
    shares: str | None = None  # the table whose rows it is of, where both are one
    mark: tuple[int, int] = (1, 1)

    @property
    def theirs(self) -> list[str]:
        """The user's columns that are read."""
        return list(dict.fromkeys(name for spec in self.columns.values() for name in spec.theirs))


@dataclass(frozen=True)
class Mapping:
    """A mapping as read."""

    where: str
    text: str
    name: str
    tables: Dict[str, TableSpec]
    zone: str = "UTC"
    currency: str = ""
    charging: str = "click"
    money: str = "unit"
    time: str = "iso"
    pre_score: str = "prediction"
    bids_logged_above: float | None = None
    rule: Rule | None = None
    between: tuple[float, float] | None = None
    allow: Dict[str, float] = field(default_factory=dict)
    csv: Dict[str, str] = field(default_factory=dict)
    format: str | None = None  # an adapter that reads the files
    sha256: Dict[Path, str] = field(default_factory=dict)  # what files must have; others are not checked

    def unit(self, spec: ColumnSpec) -> float:
        """Units of money that one of the column's is."""
        return UNITS[spec.unit or self.money]

    def place(self, spec: ColumnSpec | TableSpec) -> str:
        """`mapping.yaml:7:3`."""
        return f"{self.where}:{spec.mark[0]}:{spec.mark[1]}"


def load_mapping(path: str | Path) -> Mapping:
    """The mapping in a file. UserError with file, line and column of everything that is wrong with it."""
    file = Path(path)
    try:
        text = read_file(file, follows=True).decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text: byte {error.start:,} cannot be read") from error
    return read_mapping(text, str(file), file.parent)


def read_mapping(text: str, where: str, folder: Path) -> Mapping:
    """The same of a text; files are looked for from `folder`."""
    document = parse(text)
    problems = list(document.problems)
    reader = _Reader(document, problems, folder)
    mapping = None
    if not isinstance(document.data, dict):
        if not problems:
            problems.append(Problem((), "a mapping begins with `name:`, `requests:`, `candidates:` …"))
    else:
        mapping = reader.mapping(document.data, where, text)
    if problems or mapping is None:
        lines = []
        for problem in problems:
            line, column = problem.mark or document.mark(problem.path)
            key = ".".join(str(step) for step in problem.path)
            lines.append(f"{where}:{line}:{column} {key + ': ' if key else ''}{problem.text}")
        raise ScenarioError(list(dict.fromkeys(lines)))
    return mapping


class _Reader:
    """Walks the data, and writes down what is wrong with it."""

    def __init__(self, document: Document, problems: list[Problem], folder: Path) -> None:
        self.document, self.problems, self.folder = document, problems, folder

    def problem(self, path: KeyPath, text: str) -> None:
        self.problems.append(Problem(path, text))

    def known(self, path: KeyPath, data: Dict[str, Any], names: Sequence[str], what: str) -> None:
        for key in data:
            if key not in names:
                self.problem((*path, key), unknown_name(what, key, names))

    def choice(self, path: KeyPath, value: Any, names: Sequence[str], default: str) -> str:
        if value is None:
            return default
        if not isinstance(value, str) or value not in names:
            hint = did_you_mean(str(value), names)
            self.problem(path, f"must be one of {', '.join(names)}, found {value!r}{hint}")
            return default
        return value

    def number(self, path: KeyPath, value: Any, least: float = -math.inf) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.problem(path, f"must be a number, found {value!r}")
            return None
        if value < least:
            self.problem(path, f"must be at least {least:g}, found {value:g}")
            return None
        return float(value)

    def text(self, path: KeyPath, value: Any, default: str) -> str:
        if value is None:
            return default
        if isinstance(value, dict | list):
            self.problem(path, "must be text")
            return default
        return str(value)

    def section(self, path: KeyPath, value: Any) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.problem(path, f"must be `key: value` pairs, found {value!r}")
            return {}
        return value

    def mapping(self, data: dict[str, Any], where: str, text: str) -> Mapping:
        self.known((), data, TOP, "key")
        zone = self.zone(data.get("zone"))
        tables = self.tables(data)
        allow = self.section(("allow",), data.get("allow"))
        self.known(("allow",), allow, ("all", *KINDS), "kind of fault")
        shares = {kind: self.number(("allow", kind), share, 0.0) for kind, share in allow.items()}
        for kind, share in shares.items():
            if share is not None and share > 1:
                self.problem(("allow", kind), f"is a share of rows, 0 … 1, found {share:g}")
        charging = self.choice(("charging",), data.get("charging"), CHARGING, "click")
        rule = self.rule(data.get("rule"), charging)
        if rule is not None and rule.pcvr:
            self.fused(tables, charging)
        csv = self.section(("csv",), data.get("csv"))
        self.known(("csv",), csv, CSV_KEYS, "key")
        for key, value in csv.items():
            if key == "last_row":
                self.choice(("csv", key), value, ("whole",), "whole")
            elif not isinstance(value, str) or (key != "encoding" and len(value) != 1):
                self.problem(("csv", key), f"must be {'a name' if key == 'encoding' else 'one sign'}")
        return Mapping(
            where=where,
            text=text,
            name=self.text(("name",), data.get("name"), "market"),
            tables=tables,
            zone=zone,
            currency=self.text(("currency",), data.get("currency"), ""),
            charging=charging,
            money=self.choice(("money",), data.get("money"), tuple(UNITS), "unit"),
            time=self.choice(("time",), data.get("time"), TIMES, "iso"),
            pre_score=self.choice(("pre_score",), data.get("pre_score"), PRE_SCORES, "prediction"),
            bids_logged_above=self.number(("bids_logged_above",), data.get("bids_logged_above"), 0.0),
            rule=rule,
            between=self.between(data.get("between"), zone),
            allow={kind: share for kind, share in shares.items() if share is not None},
            csv={key: value for key, value in csv.items() if isinstance(value, str)},
            format=None if data.get("format") is None else str(data["format"]),
            sha256=self.digests(data.get("sha256"), tables),
        )

    def digests(self, value: Any, tables: Dict[str, TableSpec]) -> dict[Path, str]:
        """What files must have; a name that no table has would check nothing, and is a problem."""
        files = {file for table in tables.values() for file in table.files}
        found = {}
        for name, digest in self.section(("sha256",), value).items():
            file = self.folder / str(name)
            if file not in files:
                self.problem(("sha256", name), f"no table is of the file {name}")
            if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
                self.problem(("sha256", name), f"must be 64 hexadecimal digits, found {digest!r}")
            found[file] = str(digest)
        return found

    def zone(self, value: Any) -> str:
        zone = self.text(("zone",), value, "UTC")
        try:
            ZoneInfo(zone)
        except (KeyError, ValueError, OSError):
            from zoneinfo import available_timezones

            hint = did_you_mean(zone, sorted(available_timezones()))
            self.problem(("zone",), f"there is no time zone {zone!r}{hint or '; write it as Europe/Berlin'}")
            return "UTC"
        return zone

    def rule(self, value: Any, charging: str) -> Rule | None:
        if value is None:
            return None
        rule = self.section(("rule",), value)
        self.known(("rule",), rule, RULE_KEYS, "part of the rule")
        pricing = rule.get("pricing")
        if pricing is not None and not isinstance(pricing, str):
            self.problem(("rule", "pricing"), f"must be a name such as gsp or first, found {pricing!r}")
            pricing = None
        numbers = {key: self.number(("rule", key), rule.get(key), 0.0) for key in RULE_NUMBERS}
        how = rule.get("rounding_how")
        if how not in (None, *WAYS_OF_ROUNDING):
            ways = ", ".join(WAYS_OF_ROUNDING)
            self.problem(("rule", "rounding_how"), f"must be one of {ways}, found {how!r}")
            how = None
        effects = rule.get("slot_effects")
        if effects is not None and not isinstance(effects, list):
            self.problem(("rule", "slot_effects"), f"must be a list of numbers, found {effects!r}")
            effects = None
        of_slots = [self.number(("rule", "slot_effects", i), x, 0.0) for i, x in enumerate(effects or [])]
        slot_effects = tuple(x for x in of_slots if x is not None) if effects is not None else None
        found = Rule(pricing=pricing, rounding_how=how, slot_effects=slot_effects, **numbers)
        for key, fault in rule_faults(vars(found), charging):
            self.problem(("rule", key), fault)
        return found

    def fused(self, tables: Dict[str, TableSpec], charging: str) -> None:
        """Whether a rule can look at a pCVR."""
        path: KeyPath = ("rule", "pcvr")
        if charging != "click":
            self.problem(path, f"bids per {charging} are ordered as they are; remove it")
        if not any("pcvr" in tables[name].columns for name in ("candidates", "outcomes") if name in tables):
            self.problem(path, "scores have a pCVR in them, which is not mapped: add `pcvr` to candidates")

    def between(self, value: Any, zone: str) -> tuple[float, float] | None:
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != 2:
            self.problem(("between",), "must be two moments: [2026-03-03, 2026-03-04]")
            return None
        ends = [self.moment(("between", i), end, zone) for i, end in enumerate(value)]
        if ends[0] is None or ends[1] is None:
            return None
        if ends[0] >= ends[1]:
            self.problem(("between",), "must begin before it ends")
        return ends[0], ends[1]

    def moment(self, path: KeyPath, value: Any, zone: str) -> float | None:
        """Seconds since 1970."""
        try:
            found = datetime.datetime.fromisoformat(str(value))
        except ValueError:
            self.problem(path, f"must be a time such as 2026-03-03T00:00:00, found {value!r}")
            return None
        if found.tzinfo is None:
            found = found.replace(tzinfo=ZoneInfo(zone))
        return found.timestamp()

    def tables(self, data: dict[str, Any]) -> dict[str, TableSpec]:
        found: dict[str, TableSpec] = {}
        if "candidates" not in data and "outcomes" not in data:
            self.problem((), "there is neither `candidates` nor `outcomes`: nothing to import")
        if "requests" not in data:
            self.problem((), "there is no `requests`: at least `request` and `time` must be said")
        home = "candidates" if "candidates" in data else "outcomes"
        for name in (home, *(name for name in TABLES if name != home)):
            if name in data:
                spec = self.table(name, data[name], found.get(home))
                if spec is not None:
                    found[name] = spec
        return {name: found[name] for name in TABLES if name in found}

    def table(self, name: str, value: Any, home: TableSpec | None) -> TableSpec | None:
        path: KeyPath = (name,)
        table = self.section(path, value)
        self.known(path, table, TABLE_KEYS, f"key of {name}")
        files, shares = self.files(name, table.get("files"), home)
        columns = self.columns(name, table)
        for key, is_needed in TABLES[name].items():
            if is_needed and key not in columns:
                self.problem((*path, "columns"), f"'{key}' is missing: {name} needs it")
        return TableSpec(name, files, columns, shares, self.document.mark(path))

    def files(self, name: str, value: Any, home: TableSpec | None) -> tuple[tuple[Path, ...], str | None]:
        path: KeyPath = (name, "files")
        if value is None:
            if home is None:
                self.problem(
                    (name,), "'files' is missing: a file, a list of files, or a pattern such as *.csv"
                )
                return (), None
            return home.files, home.name
        found: list[Path] = []
        for i, entry in enumerate(value if isinstance(value, list) else [value]):
            here: KeyPath = (*path, i) if isinstance(value, list) else path
            if not isinstance(entry, str):
                self.problem(here, f"must be the name of a file, found {entry!r}")
                continue
            found += self.matching(here, entry)
        if len(set(found)) < len(found):
            twice = next(file for file in found if found.count(file) > 1)
            self.problem(path, f"{twice} is named twice: its rows would count twice")
        if home is not None and tuple(found) == home.files:
            return home.files, home.name
        return tuple(found), None

    def matching(self, path: KeyPath, entry: str) -> list[Path]:
        target = Path(entry) if Path(entry).is_absolute() else self.folder / entry
        if any(sign in entry for sign in "*?["):
            import glob

            files = sorted(Path(file) for file in glob.glob(str(target)) if Path(file).is_file())
            if not files:
                self.problem(path, f"no file is called {entry} in {self.folder}")
            return files
        if target.is_dir():
            self.problem(path, f"{entry} is a folder; write {entry}/*.parquet")
            return []
        if not target.is_file():
            beside = [file.name for file in target.parent.glob("*")] if target.parent.is_dir() else []
            self.problem(
                path, f"there is no file {entry} in {self.folder}{did_you_mean(target.name, beside)}"
            )
            return []
        return [target]

    def columns(self, name: str, table: dict[str, Any]) -> dict[str, ColumnSpec]:
        path: KeyPath = (name, "columns")
        given = self.section(path, table.get("columns"))
        self.known(path, given, tuple(TABLES[name]), f"column of {name}")
        found = {
            key: self.column((*path, key), key, value) for key, value in given.items() if key in TABLES[name]
        }
        for section, begins, where in (
            ("scores", SCORE, ("candidates",)),
            ("features", FEATURE, ("requests", "candidates")),
        ):
            further = self.section((name, section), table.get(section))
            if further and name not in where:
                self.problem((name, section), f"{section} belong to {' or '.join(where)}")
                continue
            for key, value in further.items():
                if not all(sign.isalnum() or sign in "_-" for sign in key):
                    self.problem((name, section, key), "a name has letters, digits, _ and -")
                found[begins + key] = self.column((name, section, key), begins + key, value)
        return {key: spec for key, spec in found.items() if spec is not None}  # type: ignore[misc]

    def column(self, path: KeyPath, key: str, value: Any) -> ColumnSpec | None:
        mark = self.document.mark(path)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return ColumnSpec(key, (str(value),), mark=mark)
        if isinstance(value, list):
            return self.joined(path, key, value, mark)
        spec = self.section(path, value)
        if not spec:
            self.problem(path, "must be the name of a column, a list of them, or {column: …, unit: …}")
            return None
        self.known(path, spec, (*COLUMN_KEYS, "row"), "key")
        sources = [part for part in ("column", "columns", "constant", "row") if part in spec]
        if len(sources) != 1:
            self.problem(path, "must have one of: column, columns, constant, row")
            return None
        theirs: tuple[str, ...] = ()
        if "column" in spec:
            theirs = (str(spec["column"]),)
        elif "columns" in spec:
            joined = self.joined((*path, "columns"), key, spec["columns"], mark)
            theirs = () if joined is None else joined.theirs
        if "row" in spec and key != "request":
            self.problem((*path, "row"), "only `request` can be the row itself")
        unit = None
        if key in MONEY:
            unit = self.choice((*path, "unit"), spec.get("unit"), tuple(UNITS), "") or None
        elif key == "time":
            unit = self.choice((*path, "unit"), spec.get("unit"), TIMES, "") or None
        elif "unit" in spec:
            self.problem((*path, "unit"), f"{key} has no unit; {', '.join((*MONEY, 'time'))} have")
        for part, owner in (("packed", "slot"), ("base", "slot")):
            if part in spec and key != owner:
                self.problem((*path, part), f"belongs to {owner}")
        since = None
        if "since" in spec:
            if key not in ("time", "day"):
                self.problem((*path, "since"), "belongs to time and day")
            since = self.moment((*path, "since"), spec["since"], "UTC")
        values = None
        if "values" in spec:
            values = {
                str(label): meant for label, meant in self.section((*path, "values"), spec["values"]).items()
            }
        base = self.number((*path, "base"), spec.get("base", BASE_OF_SLOTS), 0.0)
        return ColumnSpec(
            name=key,
            theirs=theirs,
            constant=spec.get("constant"),
            unit=unit,
            dtype=self.choice((*path, "dtype"), spec.get("dtype"), DTYPES, "") or None,
            values=values,
            base=int(base or 0),
            since=since,
            is_row="row" in spec,
            is_packed=spec.get("packed") is True,
            mark=mark,
        )

    def joined(self, path: KeyPath, key: str, value: Any, mark: tuple[int, int]) -> ColumnSpec | None:
        if key not in IDS or not isinstance(value, list) or not value:
            self.problem(path, f"only ids ({', '.join(IDS)}) can be made of several columns")
            return None
        return ColumnSpec(key, tuple(str(part) for part in value), mark=mark)
