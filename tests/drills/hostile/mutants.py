"""Mutants: scenarios with keys dropped and misspelt, values replaced, text torn; `validate` has to tell.

Refused in words, or valid; and of the valid ones that are small enough many are really run: what `validate`
lets through must not be refused after work has begun.
"""

from __future__ import annotations

import copy
import json
import resource
from pathlib import Path
from random import Random
from typing import Any

from drills.hostile.commands import OPTIONS, here, run
from drills.hostile.outcome import CRASH, DETECTED, HARMLESS, WRONG, Outcome
from drills.hostile.prepared import SCENARIOS, Prepared
from places import ROOT

KNOWN_LATE = ("no click to learn by",)
LONGEST = 30_000  # characters of a refusal: a value is not echoed whole
SLOWEST = 30.0  # processor seconds to say no
RUN_SHARE = 0.35  # of the valid ones that are small
CPU_LIMIT = 120  # seconds, of a valid one that is run

NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 7, 1.5, -0.0, 0.1, 1e-9, 1e-306, 5e-324, 1e308, -1e308, 10**9, 2**31, 2**63, 2**64),
    *(10**40, 10**400, 1e6, 1e6 + 1, 99999999),
)
WORDS: tuple[Any, ...] = (
    *("", " ", "nan", ".nan", ".inf", "yes", "null", "~", "1", "1e3", "0x10", "../..", "/etc/passwd", "a b"),
    *(
        "x" * 300,
        "x" * 100_000,
        "ü",
        "日本",
        "\u202e",
        "\x07",
        "a/b",
        "a:b",
        "rank",
        "oracle",
        "now",
        "first",
    ),
    *("%s%n", "{0}", "${HOME}", "__class__", "file.py:Class", "os:system", "os.path:join", "🙂", "design-x"),
)
OTHERS: tuple[Any, ...] = (
    *(None, True, False, [], {}, [None], [[]], {"": None}, {"a": 1}, [1, 2, 3], [1.0, 0.5], [-1.0, 2.0]),
    *([1] * 2000, float("nan"), float("inf"), {"kind": "towers"}, {"model": "rank", "size": 6}),
)
# Put into the text as they stand.
SNIPPETS = (
    *(
        "\t",
        "\x00",
        "\ufeff",
        "&a [*a]",
        "<<: *nothing",
        "<<: {a: 1}",
        "<<: [1, 2]",
        "? [a, b]\n: 1\n",
        "---\n",
    ),
    *(
        "...\n",
        "!!python/object/apply:os.system ['true']",
        "!!binary aGk=",
        "!!set {a}",
        "2001-01-01",
        "0o17",
    ),
    *("[" * 2000, "{a: " * 500, "- " * 500, "'", '"', "|", ">\n", "# ", "%YAML 9.9\n", "*x", "&x", "1_000"),
    *("9" * 6000, "1:30", "\u2028", "\r", "a: &x 1\nb: *x\n", "key: value\n", "name: again\n", "}", "]", ","),
)


def prepare(prepared: Prepared) -> None:
    """The texts to begin with: the tiny ones and those that ship."""
    prepared.finished("plain")
    prepared.make("scenarios", _texts)


def _texts() -> dict[str, tuple[str, Any]]:
    """Text and data of each scenario, by name."""
    from ruamel.yaml import YAML

    texts = {path.stem: path.read_text() for path in sorted((ROOT / "scenarios").glob("*.yaml"))}
    texts |= SCENARIOS
    return {name: (text, YAML(typ="safe", pure=True).load(text)) for name, text in texts.items()}


def case(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    scenarios = prepared.kept["scenarios"]
    name = rng.choice(["plain", "market"]) if rng.random() < 0.6 else rng.choice(sorted(scenarios))
    text, data = scenarios[name]
    file, words, how = place / "mutant.yaml", [], []
    draw = rng.random()
    if draw < 0.2:
        raw, what = torn(text, rng)
        file.write_bytes(raw)
        how.append(what)
    elif draw < 0.4:
        file.write_text(text)
        for _ in range(rng.choice((1, 1, 2))):
            path, value = rng.choice(list(places(data))), hostile(rng)
            words += ["--set", f"{'.'.join(map(str, path))}={_short_text(value)}"]
        how += words
    else:
        data = copy.deepcopy(data)
        how += [mutate(data, rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        file.write_text(_text(data))
    what = f"{name}: {'; '.join(how)}"[:160]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    answer = here(["validate", str(file), *words])
    took = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
    if answer.is_crash:
        return Outcome(CRASH, what, answer.last_words)
    if took > SLOWEST:
        return Outcome(WRONG, what, f"validate took {took:.0f} s")
    if answer.code == 0:
        return valid(prepared, place, file, words, what, rng)
    if not answer.is_refusal:
        return Outcome(WRONG, what, f"exit code {answer.code}; {answer.last_words}")
    if len(answer.err) > LONGEST:
        return Outcome(WRONG, what, f"a refusal of {len(answer.err):,} characters")
    is_named = answer.names(str(file), "--set ")
    return Outcome(DETECTED if is_named else WRONG, what, answer.last_words)


def valid(prepared: Prepared, place: Path, file: Path, words: list[str], what: str, rng: Random) -> Outcome:
    """A valid one is run if it is small and drawn."""
    if rng.random() > RUN_SHARE or not is_small(file, words):
        return Outcome(HARMLESS, f"{what}: valid")
    out = place / "out"
    answer = run(
        ["run", str(file), *words, "--out", str(out), *OPTIONS], place, cache=place / "cache", first=_limit
    )
    what = f"{what}: valid; run"
    if answer.is_crash:
        return Outcome(CRASH, what, answer.last_words)
    if answer.code == 0:
        return Outcome(HARMLESS, what)
    if not answer.is_refusal:
        return Outcome(WRONG, what, f"exit code {answer.code}; {answer.last_words}")
    # A refusal comes before work, or it is too late; except for what nobody knew before the log was drawn.
    has_worked = (out / "logs").exists() and not answer.names(*KNOWN_LATE)
    return Outcome(
        WRONG if has_worked else DETECTED, what, "refused after work: " * has_worked + answer.last_words
    )


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT, CPU_LIMIT))
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, resource.RLIM_INFINITY))


def is_small(file: Path, words: list[str]) -> bool:
    """Whether a run takes a second or so."""
    from cascade_sim.scenario.file import load_scenario

    scenario = load_scenario(file, words[1::2])
    world, phases, market = scenario.world, scenario.phases, scenario.market
    requests = phases.cold_start + phases.log + phases.shadow + phases.evaluate
    sizes = [world.users / 2000, world.ads / 2000, requests / 3000, scenario.report.resamples / 100]
    sizes += [len(scenario.arms) / 8, len(scenario.models) / 6, requests / scenario.traffic.block / 200]
    for model in scenario.models.values():
        sizes += [
            model.hidden / 256,
            model.dims / 256,
            model.epochs / 5,
            100 / model.batch,
            model.chunks / 50,
        ]
    if market is not None:
        seconds = market.days * 86_400
        sizes += [seconds * market.requests_per_second / 3000, seconds / market.window / 200]
        sizes += [seconds / market.update / 200, seconds / market.checkpoint / 50]
        sizes.append(2.0 if market.designs or market.training or market.compute else 0.0)
    return max(sizes) <= 1.0 and scenario.off_policy is None and not scenario.what_if


def places(data: Any, path: tuple[Any, ...] = ()) -> Any:
    """The path of every value inside."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def mutate(data: Any, rng: Random) -> str:
    """Change one place of the data; what was done."""
    found = list(places(data))
    if not found:
        return "nothing left to change"
    path = rng.choice(found)
    parent = data
    for step in path[:-1]:
        parent = parent[step]
    key, where = path[-1], ".".join(map(str, path))
    draw = rng.random()
    if draw < 0.12:
        del parent[key]
        return f"without {where}"
    if draw < 0.24 and isinstance(parent, dict):
        new = misspelt(str(key), rng)
        parent[new] = parent.pop(key)
        return f"{where} written {new[:40]!r}"
    if draw < 0.3 and isinstance(parent[key], (dict, list)):
        parent[key] = [parent[key]] if rng.random() < 0.5 else {"inside": parent[key]}
        return f"{where} wrapped"
    if draw < 0.36:
        other = rng.choice(found)
        value = data
        for step in other:
            value = value[step]
        parent[key] = copy.deepcopy(value)
        return f"{where} as {'.'.join(map(str, other))}"
    if draw < 0.6 and isinstance(parent[key], (int, float)) and not isinstance(parent[key], bool):
        parent[key] = _nearby(parent[key], rng)
        return f"{where}={parent[key]}"
    parent[key] = hostile(rng)
    return f"{where}={_short_text(parent[key])[:60]}"


def _nearby(value: float, rng: Random) -> float:
    """A number that may well be allowed."""
    new = rng.choice((value + 1, value - 1, value * 2, value * 0.5, value * 10, -value, value + 0.25))
    return round(new) if isinstance(value, int) and rng.random() < 0.8 else new


def hostile(rng: Random) -> Any:
    """A copy: a second change may go into it."""
    return copy.deepcopy(rng.choice(rng.choice((NUMBERS, WORDS, OTHERS))))


def misspelt(word: str, rng: Random) -> str:
    """A letter lost, doubled or in capitals; or another word."""
    at = rng.randrange(len(word)) if word else 0
    forms = (word[:at] + word[at + 1 :], word[:at] + word[at : at + 1] + word[at:], word.upper(), word + " ")
    return rng.choice((*forms, str(rng.choice(WORDS))))


def torn(text: str, rng: Random) -> tuple[bytes, str]:
    """The text with a line or a piece lost, doubled or put in."""
    lines = text.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    draw = rng.random()
    if draw < 0.15:
        return "".join(lines[:at] + lines[at + 1 :]).encode(), f"without line {at + 1}"
    if draw < 0.3:
        return "".join(lines[: at + 1] + lines[at:]).encode(), f"line {at + 1} twice"
    if draw < 0.4:
        lines[at] = " " * rng.randrange(1, 4) + lines[at]
        return "".join(lines).encode(), f"line {at + 1} moved in"
    raw = text.encode()
    place = rng.randrange(len(raw))
    if draw < 0.5:
        return raw[:place], f"cut at byte {place}"
    if draw < 0.65:
        byte = rng.randrange(256)
        return raw[:place] + bytes([byte]) + raw[place + 1 :], f"byte {byte} at {place}"
    snippet = rng.choice(SNIPPETS)
    return raw[:place] + snippet.encode() + raw[place:], f"{snippet[:20]!r} at byte {place}"


def _text(data: Any) -> str:
    """JSON is YAML; numbers that JSON does not know are written as YAML has them."""
    text = json.dumps(data, ensure_ascii=False, indent=1, default=str)
    return text.replace(": NaN", ": .nan").replace(": Infinity", ": .inf").replace(": -Infinity", ": -.inf")


def _short_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
