"""Write the rule that a log follows into its market, without importing again."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.auction import MICROS
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.audit.inference import infer
from cascade_sim.logs.audit.reasons import context_of
from cascade_sim.logs.audit.reproduction import FOUND, Reproduction, reproduced
from cascade_sim.logs.audit.rule import Rounding, Rule, declared_rule
from cascade_sim.logs.audit.study import settled
from cascade_sim.logs.importing.market import SCENARIO, yaml_text
from cascade_sim.logs.store.format import Rule as DeclaredRule
from cascade_sim.logs.store.scenario import logged_scenario
from cascade_sim.logs.store.store import (
    LOG_FILE,
    STORE,
    declare,
    is_log_store,
    open_store,
    read_log_store,
)
from cascade_sim.storage import checksums
from cascade_sim.storage.checksums import MANIFEST
from cascade_sim.storage.files import below, write_file
from cascade_sim.storage.folder import json_text, read_manifest
from cascade_sim.storage.lock import Lock


def adopt(market: str | Path) -> dict[str, Any]:
    """Find the rule of a market and declare it there: {"rule", "mapping", "left_out", "reproduced"}.

    UserError, with nothing written, if the declared rule reproduces the log already, none that can be
    declared does, or a user changed what is to be written.
    """
    folder = Path(market)
    _require_untouched(folder)
    lock = Lock.take(folder, waits=False)
    try:
        store = open_store(folder)
        if store.n_requests == 0:
            raise UserError(f"{folder} has no requests")
        before, context = store.about.rule, context_of(store)
        said = declared_rule(before, store.about.charging)
        own = None if said is None else settled(store, said)
        if own is not None and (now := reproduced(store, own)).is_enough:
            raise UserError(f"{folder}: there is nothing to adopt: {now.words}")
        found = infer(store, context, own).best.rule
        rule, left_out = declarable(found, store.about.charging)
        told = declared_rule(rule, store.about.charging)
        assert told is not None
        made = reproduced(store, told.rule, whose=FOUND)
        if not made.is_enough:
            raise UserError(_no_rule(folder, found, made, left_out))
        _write(folder, rule, logged_scenario(store.about.changed(rule=rule), store))
    finally:
        lock.release()
    return {
        "rule": told.rule.text(),
        "before": None if own is None else own.text(),
        "mapping": yaml_text({"rule": _plain(rule)}),
        "left_out": left_out,
        "reproduced": made.as_json(),
    }


def _require_untouched(folder: Path) -> dict[str, Any]:
    """The manifest; UserError where this is no imported log, or its manifest or scenario was edited."""
    store, _, _ = read_log_store(folder)
    if not is_log_store(folder):
        raise UserError(f"{folder} is the store of a log; give the folder of the log, {store.parent}")
    manifest = read_manifest(folder)
    checksums.check_file(folder, SCENARIO, manifest.get(checksums.SEALS) or {})
    return manifest


def declarable(found: Rule, charging: str) -> tuple[DeclaredRule, list[str]]:
    """A found rule as a mapping declares it, and what of it cannot be declared."""
    reserve, left_out = found.reserve_cpc, []
    if found.least is not None:
        if len(set(np.asarray(found.least).tolist())) == 1:
            reserve = max(reserve, float(found.least[0]))
        else:
            left_out.append("reserves by placement")
    left_out += ["factors of advertisers"] if found.boosts is not None else []
    left_out += [f"a least pCTR of {found.min_pctr:.6g}"] if found.min_pctr else []
    left_out += [f"prices times {found.factor:.6g}"] if found.factor != 1 else []
    left_out += ["logged reserves that are not used"] if found.ignores_logged_reserve else []
    is_rounded = found.rounding != Rounding()
    return DeclaredRule(
        pricing=found.pricing,
        squashing=found.squashing,
        reserve_cpc=reserve,
        score_floor=found.score_floor,
        rounding=found.rounding.unit / MICROS if is_rounded else None,
        rounding_how=found.rounding.how if is_rounded else None,
        increment=found.increment or None,
        soft_floor=found.soft_floor if found.pricing == "soft_floor" else None,
        slot_effects=tuple(found.slot_effects) if found.pricing == "vcg" else None,
        pcvr=found.pcvr or None,
    ), left_out


def adopted_words(done: dict[str, Any]) -> list[str]:
    """What was adopted, in lines."""
    lines = [f"Adopted: {done['rule']}" + (f" (before: {done['before']})" if done["before"] else "") + "."]
    lines += [f"Left out, as no scenario can have it: {part}." for part in done["left_out"]]
    return [*lines, "To import again with it, add to the mapping:", done["mapping"].rstrip()]


def _plain(rule: DeclaredRule) -> dict[str, Any]:
    given = {key: value for key, value in asdict(rule).items() if value is not None}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}


def _no_rule(folder: Path, found: Rule, made: Reproduction, left_out: list[str]) -> str:
    beside = f" (without {', '.join(left_out)}, which no scenario can have)" if left_out else ""
    return (
        f"{folder}: nothing is adopted, because no rule was found that reproduces enough of the log. The "
        f"best one{beside}: {made.words}. `audit-logs --infer` says where pages differ from "
        f"it ({found.text()})"
    )


def _write(folder: Path, rule: DeclaredRule, scenario: dict[str, Any]) -> None:
    """The rule into the store, the scenario that replays the log by it, and a manifest that knows both.

    A market that is cut off in between has no digests of the two, and opens.
    """
    renewed = (SCENARIO, f"{STORE}/{LOG_FILE}")
    manifest = _require_untouched(folder)
    known = manifest.get(checksums.SEALS) or {}
    seals = {name: digest for name, digest in known.items() if name not in renewed}
    _seal(folder, manifest, seals)
    declare(folder, rule)
    write_file(below(folder, SCENARIO), yaml_text(scenario).encode())
    digests = {name: checksums.file_digest(below(folder, *name.split("/"))) for name in renewed}
    _seal(folder, manifest, {**seals, **digests})


def _seal(folder: Path, manifest: dict[str, Any], seals: dict[str, str]) -> None:
    content = checksums.with_checksum({**manifest, checksums.SEALS: seals})
    write_file(below(folder, MANIFEST), json_text(content).encode())
