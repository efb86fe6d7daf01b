"""Training where CUDA or MPS would be: on a device that is not there and, if there is one, on a real one."""

import json
import subprocess
import sys
from functools import cache

import pytest
import torch

from cascade_sim.models.calibrators import CALIBRATORS
from cascade_sim.models.objectives import OBJECTIVES
from cascade_sim.models.recipes import RECIPES
from cascade_sim.scenario.plugins import MODEL_KINDS
from places import HANG, ROOT

SCRIPT = ROOT / "tests" / "drills" / "on_a_device.py"


@cache
def trained_on(device: str) -> list[dict]:
    """The rows of the script, a process of its own: torch takes a backend before its first gradient."""
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "--device", device, "--json"],
        cwd=ROOT, capture_output=True, text=True, timeout=HANG,
    )  # fmt: skip
    assert run.stdout, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_every_recipe_net_objective_and_calibrator_trains_on_a_device_as_on_the_cpu():
    rows = trained_on("pretend")
    assert [row for row in rows if not row["is_sound"]] == []
    trainings = len(MODEL_KINDS.built_in) * (len(OBJECTIVES) + len(RECIPES))
    assert len(rows) == trainings + len(CALIBRATORS)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_cuda_trains_as_the_cpu_does():
    assert [row for row in trained_on("cuda") if not row["is_sound"]] == []


def refused(code: str) -> str:
    """The kind of error that a few lines on the pretend device end with."""
    script = f"""
import sys; sys.path.insert(0, {str(ROOT / "tests")!r})
import torch
from worlds.pretend_device import PretendDevice
pretend = PretendDevice()
with pretend:
    there = torch.arange(3.0).to(pretend.device)
    try:
        {code}
    except Exception as error:
        print(type(error).__name__)
"""
    return subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=True
    ).stdout.strip()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("there + torch.arange(3.0)", "MixedDevices"),
        ("there.double()", "NoFloat64"),
        ("torch.zeros(3, dtype=torch.float64, device=there.device)", "NoFloat64"),
        ("there + 1", ""),
    ],
)
def test_the_pretend_device_refuses_what_devices_refuse(code, error):
    assert refused(code) == error


def test_the_pretend_device_counts_who_waits_for_it():
    waits = "print(pretend.waits); float(there.sum()); there.cpu(); print(pretend.waits)"
    assert refused(waits).split() == ["0", "2"]
