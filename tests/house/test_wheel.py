"""Installed means usable: the wheel beside a project with `models`, `agents` and `analysis` of its own."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

from places import ROOT

SOURCES = ("cascade_sim", "agents", "models", "analysis", "scenarios")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
NET = """
import torch


class MyNet(torch.nn.Module):
    def __init__(self, request_width, ad_width, pair_width):
        super().__init__()
        self.ad = torch.nn.Linear(ad_width, 1)

    def forward(self, request, ads, pair):
        return self.ad(ads).squeeze(-1)
"""
SCENARIO = """
name: tiny
world: {users: 40, ads: 60, advertisers: 10, slot_effects: [1.0, 0.5]}
cascade: {retrieval: {size: 30}, pre_ranking: {model: mine, size: 8}, ranking: {model: truth}, slots: 2}
traffic: {block: 64}
models:
  mine: {kind: "models.net:MyNet", features: [quality, tier], data: [log], epochs: 1}
phases: {cold_start: 200, log: 200, shadow: 0, evaluate: 128}
arms: {production: {}}
report: {baseline: production, resamples: 20, detail_requests: 8}
"""
TEST = """
import pytest

from models.net import MyNet


@pytest.mark.auction_revenue(scenario="tiny.yaml", against="revenue.json")
def test_revenue(auction_revenue):
    assert MyNet.__module__ == "models.net"
    auction_revenue()
"""
NO_PAGE = """
import sys
import cascade_sim.study.run
from cascade_sim.cli import main

cascade_sim.study.run.write_report = lambda *_: None
sys.exit(main(["run", "tiny.yaml", "--quiet", "--workers", "1"]))
"""
PYTHON = """
import agents, analysis, models, pathlib
import cascade_sim, cascade_sim.agents.users, cascade_sim.models.training, cascade_sim.study.run
from cascade_sim import baseline, load_scenario, open_run, run

here = pathlib.Path.cwd()
assert here not in pathlib.Path(cascade_sim.__file__).parents
assert all(str(here) in str(list(module.__path__)) for module in (agents, analysis, models))
assert load_scenario("market_day").market.profile.endswith("avito_week.csv")
assert load_scenario("scenarios/market_day.yaml") == load_scenario("market_day")
cascade_sim.study.run.write_report = lambda *_: None  # the command has drawn its page
assert run("tiny.yaml", out="runs/python").metrics == open_run("runs/tiny").metrics
baseline("runs/tiny", "revenue.json")
print(cascade_sim.__file__)
"""


LIBS = ("purelib", "platlib")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The python of a fresh environment with the wheel, and this environment's other packages behind it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "pictures"))
    for name in FILES:
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    subprocess.run([*pip, *build], check=True, env=clean())
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    purelib = folder / "venv" / "lib" / version / "site-packages"
    zipfile.ZipFile(wheel).extractall(purelib)  # of pure Python: to install it is to unpack it
    # Behind the wheel's own folder, and as plain folders: a .pth file in them, as of a checkout, is not read.
    (purelib / "others.pth").write_text("\n".join(dict.fromkeys(sysconfig.get_path(key) for key in LIBS)))
    return python


def clean() -> dict[str, str]:
    """The environment without what leads back to the checkout."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST"))}


@pytest.mark.drill
@pytest.mark.parametrize("has_init", [True, False])
def test_a_project_with_folders_of_the_same_names_uses_the_wheel(installed, tmp_path, has_init):
    for name in ("models", "agents", "analysis"):
        (tmp_path / name).mkdir()
        if has_init:
            (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "models" / "net.py").write_text(NET)
    (tmp_path / "tiny.yaml").write_text(SCENARIO)
    (tmp_path / "test_revenue.py").write_text(TEST)
    (tmp_path / "use.py").write_text(PYTHON)

    def python(*words):
        done = subprocess.run(
            [installed, *words], capture_output=True, text=True, cwd=tmp_path,
            env={**clean(), "CASCADE_SIM_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    if not has_init:  # that the model is found is trial enough
        python("-c", NO_PAGE)
        assert (tmp_path / "runs" / "tiny" / "metrics.json").is_file()
        return
    python("-m", "cascade_sim", "run", "tiny.yaml", "--quiet", "--workers", "1")
    assert (tmp_path / "runs" / "tiny" / "report.html").is_file()
    assert str(installed.parent.parent) in python("use.py")
    assert "1 passed" in python("-m", "pytest", "-p", "no:cacheprovider")
