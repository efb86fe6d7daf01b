"""A device that is not there: tensors on it refuse the CPU's, have no float64, and are computed by the CPU.

    with PretendDevice() as pretend:
        train(net, …, TrainingPlan(…, device=pretend.device))

    pretend.waits     # how often the host asked for a number, and would have waited for a real device

It finds what breaks on CUDA (a tensor left on the CPU) and on MPS (a float64) where there is neither, with
the values of the CPU. It says nothing of speed, of memory, or of how an accelerator rounds.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NAME = "pretend"
aten = torch.ops.aten


class _Module(backend_registration._DummyBackendModule):  # type: ignore[misc]
    """What torch asks of a backend beside its operations: here, a generator that nobody draws from."""

    def get_rng_state(self, device: object = None) -> torch.Tensor:
        return torch.zeros(1, dtype=torch.uint8)

    def set_rng_state(self, state: torch.Tensor, device: object = None) -> None: ...

    def manual_seed_all(self, seed: int) -> None: ...


@cache
def _register() -> torch.device:
    """Once in a process: torch has one place for a backend of one's own."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    return torch.device(NAME, 0)


class MixedDevices(RuntimeError):
    """A tensor of the CPU met one of the device, as CUDA and MPS refuse it too."""


class NoFloat64(TypeError):
    """The device was asked for a float64, which MPS does not have."""


class _There(torch.Tensor):
    """A tensor on the device; `held` is where its numbers are."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> _There:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(),
            dtype=held.dtype, device=_register(), requires_grad=held.requires_grad,
        )  # fmt: skip

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"{NAME}({self.held!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})[0]


def _held(value: Any) -> Any:
    return value.held if isinstance(value, _There) else value


def _compute(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, bool]:
    """What the operation gives, and whether the host waits for it."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    there = [tensor for tensor in tensors if isinstance(tensor, _There)]
    wanted = kwargs.get("device")
    goes_there = wanted is not None and torch.device(wanted).type == NAME
    is_copy = func in (aten._to_copy.default, aten.copy_.default)
    if there and not is_copy and any(not isinstance(t, _There) and t.dim() > 0 for t in tensors):
        raise MixedDevices(f"{func}: tensors on {NAME} and on the CPU")
    kwargs = tree_map(_held, kwargs)
    if wanted is not None:
        kwargs["device"] = "cpu"
    result = func(*tree_map(_held, args), **kwargs)
    comes_back = bool(there) and wanted is not None and not goes_there
    is_written_here = func is aten.copy_.default and not isinstance(args[0], _There)
    waits = comes_back or (is_written_here and bool(there)) or func is aten._local_scalar_dense.default
    waits = waits or func in (aten.nonzero.default, aten.equal.default)
    if not (goes_there or (there and wanted is None and not is_written_here)):
        return result, waits and bool(there)
    owners = {id(_held(tensor)): tensor for tensor in tensors}

    def put(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.dtype == torch.float64:
            raise NoFloat64(f"{func} makes a float64")
        return owners[id(value)] if id(value) in owners else _There(value)

    return tree_map(put, result), waits and bool(there)


class PretendDevice(TorchDispatchMode):
    """The device, while the block lasts; `waits` counts the times that the host would have waited for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, waits = _compute(func, args, kwargs or {})
        self.waits += waits
        return result

    @property
    def device(self) -> torch.device:
        return _register()
