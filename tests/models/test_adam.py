"""Our Adam takes torch's steps, to the last bit, and leaves torch's compiler alone."""

import subprocess
import sys

import pytest
import torch

from cascade_sim.models import adam_rows
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


def _sparse(rows, values, size):
    return torch.sparse_coo_tensor(torch.tensor([rows]), torch.tensor(values), size, check_invariants=True)


def _stepped(batches, weight_decay=0.0):
    """A table of three rows after steps by these sparse gradients: (rows, values) each."""
    table = torch.nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    optimiser = Adam([table], 0.1, weight_decay)
    for rows, values in batches:
        table.grad = _sparse(rows, values, (3, 2))
        optimiser.step()
    return table.detach()


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_a_row_of_a_table_is_stepped_as_a_parameter_of_its_own(weight_decay):
    """Row 0 is in every batch, once by two samples; row 1 in the second and third alone, row 2 in none."""
    batches = [
        ([0], [[1.0, -2.0]]),
        ([0, 1, 0], [[0.5, 0.0], [3.0, 3.0], [0.25, 1.0]]),
        ([1, 0], [[-1.0, 2.0], [2.0, 2.0]]),
    ]
    alone = [torch.nn.Parameter(torch.tensor([1.0, 2.0])), torch.nn.Parameter(torch.tensor([3.0, 4.0]))]
    slopes = [[[1.0, -2.0], [0.75, 1.0], [2.0, 2.0]], [[3.0, 3.0], [-1.0, 2.0]]]
    for weight, own in zip(alone, slopes, strict=True):
        optimiser = Adam([weight], 0.1, weight_decay)
        for slope in own:
            weight.grad = torch.tensor(slope)
            optimiser.step()
    table = _stepped(batches, weight_decay)
    assert torch.allclose(table[:2], torch.stack([w.detach() for w in alone]), atol=1e-5)
    assert table[2].tolist() == [5.0, 6.0]


def test_a_row_that_did_not_count_stays_and_the_order_of_rows_does_not_matter():
    once = _stepped([([0, 1], [[1.0, 1.0], [2.0, 2.0]])] * 2)
    assert torch.equal(once, _stepped([([1, 0], [[2.0, 2.0], [1.0, 1.0]])] * 2))
    looked_up = ([0, 1, 2], [[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]])
    assert torch.equal(once, _stepped([looked_up, looked_up]))


def test_the_loop_and_torch_step_rows_alike():
    generator = torch.Generator().manual_seed(2)
    first = torch.randn(50, 4, generator=generator)
    tables = [first.clone(), first.clone()]
    states = [adam_rows.RowState.of(table) for table in tables]
    for number in range(1, 30):
        rows = torch.randint(0, 50, (1, 40), generator=generator)
        values = torch.randn(40, 4, generator=generator)
        gradient = torch.sparse_coo_tensor(rows, values, (50, 4), check_invariants=True)
        adam_rows.step_rows(tables[0], gradient, states[0], number, 0.05, 0.1)
        adam_rows.step_by_torch(tables[1], gradient.to_dense(), states[1], 0.05, 0.1)
    assert torch.allclose(*tables, atol=1e-5) and not torch.allclose(tables[0], first, atol=0.1)


def test_a_table_of_a_dense_gradient_is_stepped_by_rows_too():
    first = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    by_rows, plain = first.clone().requires_grad_(), first.clone().requires_grad_()
    optimisers = Adam([by_rows], 0.1, 0.5, tables=[by_rows]), Adam([plain], 0.1, 0.5)
    for rows in ([0], [0, 1], [1]):
        slope = torch.zeros(3, 2)
        slope[rows] = 1.0
        for table, optimiser in zip((by_rows, plain), optimisers, strict=True):
            table.grad = slope.clone()
            optimiser.step()
    assert by_rows[2].tolist() == [5.0, 6.0]
    once = [1.0, 1.0]
    sparse = _stepped([([0], [once]), ([0, 1], [once, once]), ([1], [once])], 0.5)
    assert torch.allclose(by_rows, sparse, atol=1e-6)
    assert not torch.allclose(by_rows, plain)
