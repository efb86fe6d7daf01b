"""The public names: light to import, documented, not hidden by a module, and typed."""

import inspect
import subprocess
import sys

import pytest

import cascade_sim
from answers.told import refused
from places import ROOT

NAMES = [name for name in cascade_sim.__all__ if name not in ("SEMANTICS", "__version__")]


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, cascade_sim\n"
        "heavy = ('numpy', 'torch', 'pandas', 'pydantic', 'ruamel.yaml', 'cascade_sim.api')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "[]\n"


def test_no_module_hides_a_public_name():
    files = {path.stem for path in (ROOT / "cascade_sim").iterdir()} | {path.stem for path in ROOT.iterdir()}
    assert not files & set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_there_and_says_what_it_does(name):
    public = getattr(cascade_sim, name)
    assert (inspect.getdoc(public) or "").strip()
    if inspect.getmodule(public).__name__.startswith("cascade_sim.api."):
        assert f">>> {name}(" in inspect.getdoc(public), "an example"


def test_a_name_that_is_none_is_refused():
    with refused("'rum'", kind=AttributeError):
        _ = cascade_sim.rum


USER_FILE = """
from typing import assert_type

import pandas as pd

from cascade_sim import Scenario, baseline, check, compare, load_scenario, off_policy, open_run, run
from cascade_sim import check_bidder, check_model, landscape, run_auction, sweep, trace, whatif
from cascade_sim import audit_logs, export_logs, fit_world, import_logs, realism
from cascade_sim.api import RunResult, SweepResult, WhatIfResult

study = run("quick", set=["cascade.slots=3"])
assert_type(study, RunResult)
assert_type(open_run("runs/quick").log("evaluate-ltr"), pd.DataFrame)
assert_type(sweep("quick", {"cascade.slots": [2, 3]}), SweepResult)
assert_type(check(study, "revenue.json").passed, bool)
assert_type(load_scenario("ads"), Scenario)
for answer in (whatif(study, reserve_cpc=0.2), compare(study, study), trace(study, 0), landscape(study, 4),
               baseline(study, "revenue.json"), off_policy(study), audit_logs("market"),
               import_logs(export_logs(study, "logs"), "market"), realism("market", "world.yaml")):
    assert_type(answer.frame(), pd.DataFrame)
assert_type(whatif(import_logs("mapping.yaml", "market"), slots=2), WhatIfResult)
assert_type(run(fit_world("market", "world.yaml").path), RunResult)
winners = run_auction([1.0, 2.0], [0.1, 0.2], slots=1).winners
checkers = (check_model, check_bidder)

run(3)  # no scenario
run("quick", sets=["cascade.slots=3"])  # no such option
from cascade_sim import rum  # no such name
winners.no_such_method()
"""


# What the package is built on is not read, but for numpy: it would take longer than all the rest.
CHECKER = """
[mypy]
strict = true
follow_imports = silent
ignore_missing_imports = true
[mypy-torch.*,scipy.*,numba.*,llvmlite.*,matplotlib.*,seaborn.*,pyarrow.*,sklearn.*,rich.*,jinja2.*]
follow_imports = skip
"""


@pytest.mark.drill
def test_a_strict_type_checker_sees_types_and_refuses_misuse(tmp_path):
    subprocess.run([sys.executable, ROOT / "tests" / "house" / "one_tree.py", tmp_path], check=True)
    (tmp_path / "mine.py").write_text(USER_FILE)
    (tmp_path / "mypy.ini").write_text(CHECKER)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=mypy.ini", "--cache-dir=cache", "mine.py"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    lines = USER_FILE.splitlines()
    wrong = [i for i, line in enumerate(lines, 1) if "# no " in line or "no_such_method" in line]
    said = sorted({int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line})
    assert said == wrong, done.stdout + done.stderr
