"""Our Adam takes torch's steps, to the last bit, and leaves torch's compiler alone."""

import subprocess
import sys

import pytest
import torch

from cascade_sim.models.adam import Adam

STEPS = 40


def _path(make, schedule):
    """Both weights after each step; the second has a gradient only now and then."""
    generator = torch.Generator().manual_seed(5)
    weights = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((7, 3), (5,))]
    step, zero_grad = make(weights, schedule)
    seen = []
    for number in range(STEPS):
        x = torch.randn(4, 7, generator=generator)
        zero_grad()
        loss = ((x @ weights[0]) ** 2).mean()
        if number % 3 == 1:
            loss = loss + (weights[1] * x[0, :5]).exp().sum()
        loss.backward()
        step(number)
        seen.append([weight.detach().clone() for weight in weights])
    return seen


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adam_takes_the_steps_of_torch(weight_decay):
    def share(number):
        return 1.0 - number / STEPS

    def ours(weights, schedule):
        optimiser = Adam(weights, 0.03, weight_decay)
        return lambda number: optimiser.step(schedule(number)), optimiser.zero_grad

    def torchs(weights, schedule):
        optimiser = torch.optim.AdamW(weights, lr=0.03, weight_decay=weight_decay)
        falling = torch.optim.lr_scheduler.LambdaLR(optimiser, schedule)

        def step(_number):
            optimiser.step()
            falling.step()

        return step, optimiser.zero_grad

    for mine, its in zip(_path(ours, share), _path(torchs, share), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, its, strict=True))


@pytest.mark.drill
def test_training_does_not_import_the_compiler_of_torch():
    code = """
import sys, torch
from cascade_sim.models.adam import Adam
weight = torch.nn.Parameter(torch.ones(2))
optimiser = Adam([weight], 0.1)
weight.sum().backward()
optimiser.step()
print("torch._dynamo" in sys.modules)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
