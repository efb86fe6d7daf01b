"""Training where CUDA or MPS would be: on a device that is not there and, if there is one, on a real one."""

import json
import subprocess
import sys
from functools import cache

import pytest
import torch

from cascade_sim.models.calibrators import CALIBRATORS
from cascade_sim.models.joint import JOINT_OBJECTIVES
from cascade_sim.models.objectives import OBJECTIVES
from cascade_sim.models.recipes import RECIPES
from cascade_sim.scenario.plugins import INNER_PRODUCTS, MODEL_KINDS
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


@pytest.mark.drill
def test_every_recipe_net_objective_and_calibrator_trains_on_a_device_as_on_the_cpu():
    rows = trained_on("pretend")
    assert [row for row in rows if not row["is_sound"]] == []
    with_ids = sum(row["what"].startswith("ids") for row in rows) // len(MODEL_KINDS.built_in)
    assert with_ids == 5
    crossing = sum(recipe.crosses for recipe in RECIPES.values())  # for nets with an inner product
    trainings = len(MODEL_KINDS.built_in) * (len(OBJECTIVES) + len(RECIPES) - crossing + 3 + with_ids)
    assert len(rows) == trainings + crossing * len(INNER_PRODUCTS) + len(JOINT_OBJECTIVES) + len(CALIBRATORS)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_cuda_trains_as_the_cpu_does():
    assert [row for row in trained_on("cuda") if not row["is_sound"]] == []


SAID = f"""
import sys; sys.path.insert(0, {str(ROOT / "tests")!r})
import torch
from worlds.pretend_device import PretendDevice
pretend = PretendDevice()

def said(do):
    try:
        do()
        return "nothing"
    except Exception as error:
        return type(error).__name__

with pretend:
    there = torch.arange(3.0).to(pretend.device)
    print(said(lambda: there + torch.arange(3.0)))
    print(said(lambda: there.double()))
    print(said(lambda: torch.zeros(3, dtype=torch.float64, device=there.device)))
    print(said(lambda: there + 1))
    print(pretend.waits)
    float(there.sum()), there.cpu()
    print(pretend.waits)
"""


@pytest.mark.drill
def test_the_pretend_device_refuses_what_devices_refuse_and_counts_who_waits_for_it():
    run = subprocess.run(
        [sys.executable, "-c", SAID], cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=True
    )
    assert run.stdout.split() == ["MixedDevices", "NoFloat64", "NoFloat64", "nothing", "0", "2"]
