"""The command line: exit codes, hints, and how little `--help` imports."""

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from answers.told import tells
from cascade_sim import __version__
from cascade_sim.cli import COMMANDS, main
from cascade_sim.engines.local import Local
from cascade_sim.foundation.errors import UserError, lacks_memory
from cascade_sim.scenario.file import load_scenario
from places import HANG, ROOT

ADS = str(ROOT / "scenarios" / "ads.yaml")


def command_line(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "cascade_sim", *words], capture_output=True, text=True, cwd=ROOT, **options
    )


@pytest.fixture
def study(monkeypatch):
    """Stands in for the study; remembers what it was asked to run."""
    calls = []
    module = ModuleType("cascade_sim.study.run")
    module.run_study = lambda scenario, context, **options: calls.append((scenario, context, options))
    monkeypatch.setitem(sys.modules, "cascade_sim.study.run", module)
    return calls


def test_help_lists_every_command_and_imports_none_of_the_heavy_libraries():
    code = (
        "import sys; from cascade_sim.cli import main; main(['--help']);"
        "heavy = ('numpy', 'torch', 'pandas', 'matplotlib', 'numba', 'pydantic', 'ruamel.yaml', 'rich');"
        "print([m for m in heavy if m in sys.modules], [m for m in sys.modules if '.commands' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.endswith("[] []\n")
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_list_is_the_first_line_of_the_commands_own_help(name):
    module, text = COMMANDS[name]
    first, _, _ = importlib.import_module(module).command.help.partition("\n\n")
    assert " ".join(first.split()) == text


def test_the_version_is_the_packages(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cascade_sim, version {__version__}\n"


def test_an_unknown_command_gets_a_hint(capsys):
    assert main(["vaildate", ADS]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ") and tells(told, "'vaildate'", "'validate'?", "run")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run"], "error: 'SCENARIO'"),
        (["run", ADS, "--device", "gpu"], "error: '--device'"),
        (["run", ADS, "--seeds", "0"], "error: '--seeds'"),
        (["run", ADS, "--workers", "two"], "error: '--workers'"),
        (["validate", ADS, "--sed", "3"], "error: '--sed'"),
    ],
)
def test_a_wrong_option_is_named_on_stderr(words, message, capsys):
    assert main(words) == 2
    shown = capsys.readouterr()
    assert tells(shown.err, *message.split())
    assert shown.out == ""


def test_a_mistake_of_the_user_is_one_line_without_a_traceback(capsys, study, monkeypatch):
    # Wording: the error's own words come through as they are.
    def refuse(scenario, context, **options):
        raise UserError("runs/ads belongs to another run")

    monkeypatch.setattr(sys.modules["cascade_sim.study.run"], "run_study", refuse)
    assert main(["run", ADS]) == 2
    assert capsys.readouterr().err == "error: runs/ads belongs to another run\n"


def test_every_problem_of_a_scenario_is_a_line_of_its_own(capsys, study):
    assert main(["run", ADS, "--set", "cascade.slots=-1", "--set", "sed=3"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("error: --set cascade.slots=-1: ") and tells(first, "1 to 1,000", -1)
    assert second.startswith("error: --set sed=3: ") and tells(second, "'sed'", "'seed'?")
    assert study == []


def test_a_defect_is_not_hidden(study, monkeypatch):
    def fail(scenario, context, **options):
        raise RuntimeError("a defect")

    monkeypatch.setattr(sys.modules["cascade_sim.study.run"], "run_study", fail)
    with pytest.raises(RuntimeError, match="a defect"):
        main(["run", ADS])


def test_run_hands_its_options_to_the_study(study):
    options = ["--seed", "5", "--seeds", "3", "--out", "here", "--workers", "2", "--device", "cpu", "--quiet"]
    assert main(["run", ADS, *options, "--set", "cascade.slots=4", "--set", "phases.evaluate=10"]) == 0
    ((scenario, context, given),) = study
    assert (scenario.seed, scenario.cascade.slots, scenario.phases.evaluate) == (5, 4, 10)
    assert (context.out, context.workers, context.device) == (Path("here"), 2, "cpu")
    assert context.progress.is_quiet and isinstance(context.engine, Local)
    assert given == {"seeds": 3, "resume": False, "overwrite": False}


def test_run_writes_below_runs_and_uses_the_cores_there_are(study):
    assert main(["run", ADS]) == 0
    ((_, context, given),) = study
    assert (context.out, context.device, given["seeds"]) == (Path("runs/ads"), "auto", 1)
    assert not context.progress.is_quiet
    assert 1 <= context.workers <= (os.cpu_count() or 1)


def test_validate_says_ok_and_sums_up_in_eight_lines(capsys):
    assert main(["validate", ADS, "--set", "world.ads=30000", "--set", "cascade.slots=3"]) == 0
    ok, *lines = capsys.readouterr().out.splitlines()
    assert ok == f"ok: {ADS}"
    titles = ["world", "traffic", "stages", "retrieve", "models", "arms", "phases", "memory"]
    assert [line.split()[0] for line in lines] == titles
    assert "30,000 ads" in lines[0]
    assert "30,000 -> 500 -> 64 -> 3 slots" in lines[2]
    assert "(baseline)" in lines[5]
    assert lines[5].endswith("automatic: random, bid_only, pctr_only, ranker")


def test_validate_has_a_line_for_the_market_of_a_scenario_that_has_one(capsys):
    bidders = "{fixed: {share: 1}, paced: {kind: pid, share: 3}}"
    market = f"market={{days: 2, requests_per_second: 0.5, profile: constant, bidders: {bidders}}}"
    assert main(["validate", ADS, "--set", market, "--set", "market.budgets.share=0.6"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    text = lines["market"]
    n_arms = len(load_scenario(ADS).arms)
    for part in ("2 days", "43,200 requests", f"{n_arms} arms", "fixed 25 %", "paced 75 %", "60 %"):
        assert part in text, part
    assert "experiments" not in text
    assert main(["validate", "interference"]) == 0
    assert "experiments" in capsys.readouterr().out.splitlines()[-2]


def test_schema_is_json_that_describes_every_key(capsys):
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["required"] == ["name", "arms"]
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert schema["$defs"]["Bids"]["properties"]["median"]["exclusiveMinimum"] == 0
    assert "Median init-bid" in schema["$defs"]["Bids"]["properties"]["median"]["description"]


def test_a_pipe_that_closes_early_is_no_error():
    code = f"{sys.executable} -m cascade_sim schema | head -c 1"
    done = subprocess.run(["sh", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("{", "")


INTERRUPTED = """
import signal, sys, time, types
from places import HANG
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been ignored on entry
study = types.ModuleType("cascade_sim.study.run")
def run_study(scenario, context, **options):
    print("running", flush=True)
    time.sleep(HANG)
study.run_study = run_study
sys.modules["cascade_sim.study.run"] = study
from cascade_sim.cli import main
sys.exit(main(["run", "scenarios/ads.yaml"]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_an_interrupt_ends_with_one_line_and_code_130():
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
    )
    assert child.stdout.readline() == "running\n"
    child.send_signal(signal.SIGINT)
    _, shown = child.communicate(timeout=HANG)
    how = "interrupted; resume with: python -m cascade_sim run scenarios/ads.yaml --resume"
    assert (child.returncode, shown.strip()) == (130, how)


def test_without_an_output_nobody_is_told_and_nothing_fails(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)  # as in `cascade_sim schema >&-`
    assert main(["schema"]) == 0


def test_a_tight_limit_of_memory_is_told_in_a_sentence(tmp_path):
    """Libraries have their own ways to say so, at their import as well."""
    limit = f"ulimit -v 300000; exec {sys.executable} -m cascade_sim run quick --quiet --out {tmp_path}/run"
    done = subprocess.run(["bash", "-c", limit], cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert tells(done.stderr, "error:", "memory")


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (ImportError("libx.so: failed to map segment from shared object"), True),
        (RuntimeError("can't start new thread"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (ImportError("No module named 'x'"), False),
        (ValueError(), False),
    ],
)
def test_a_want_of_memory_shows_by_its_words_and_by_what_it_came_of(error, is_memory):
    outer = ValueError("odd")
    outer.__cause__ = error
    assert lacks_memory(error) == lacks_memory(outer) == is_memory
