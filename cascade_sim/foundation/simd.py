"""Eight float32 numbers side by side, for numba kernels.

numba compiles a loop over floats one number at a time. A value of this type is one register of eight (or
two of four, where the processor has no wider ones): the bits of the results are the same, because every
lane does what the loop would have done, in the same order.

    load8(matrix, row, column)   eight neighbours of a row of a C-ordered float32 matrix [.., .., ..]
    splat8(x)                    eight times x
    a + b, a * b                 lane by lane
    store8(matrix, place, a)     into eight neighbours
    relu8(a)                     max(a, 0) lane by lane; a NaN stays
    max8(a, b)                   the larger of two, lane by lane; a NaN of either stays
    is_any_least8(a, b)          whether a >= b in any lane; a NaN is not
    lane8(a, i)                  lane i, a constant
    sum8(a)                      ((a0 + a4) + (a1 + a5)) + ((a2 + a6) + (a3 + a7))
"""

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from cascade_sim.foundation.limits import LANES

CACHE_LINE = 64
FLOAT = ir.FloatType()
VECTOR = ir.VectorType(FLOAT, LANES)
INDEX = ir.IntType(32)


class Float8(types.Type):
    """The type of such a value in compiled code."""

    def __init__(self) -> None:
        super().__init__(name="float32x8")


FLOAT8 = Float8()


@register_model(Float8)
class _Float8Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, type_: Any) -> None:
        super().__init__(manager, type_, VECTOR)


class _Pairwise(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        return signature(FLOAT8, FLOAT8, FLOAT8) if args == (FLOAT8, FLOAT8) else None


for _operation in (operator.add, operator.mul, operator.iadd):
    infer_global(_operation)(type(f"_{_operation.__name__}8", (_Pairwise,), {}))


@lower_builtin(operator.add, FLOAT8, FLOAT8)
@lower_builtin(operator.iadd, FLOAT8, FLOAT8)
def _add(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.fadd(*args)


@lower_builtin(operator.mul, FLOAT8, FLOAT8)
def _multiply(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.fmul(*args)


@intrinsic
def load8(typing_context: Any, matrix: Any, place: Any) -> Any:
    """Eight neighbours from this place on, along the last axis. Nothing is checked."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        at = cgutils.unpack_tuple(builder, args[1])
        pointer = cgutils.get_item_pointer(
            context, builder, signature.args[0], array, at, wraparound=False, boundscheck=False
        )
        return builder.load(builder.bitcast(pointer, VECTOR.as_pointer()), align=4)

    return FLOAT8(matrix, place), code


@intrinsic
def store8(typing_context: Any, matrix: Any, place: Any, value: Any) -> Any:
    """Into eight neighbours from this place on, along the last axis. Nothing is checked."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        at = cgutils.unpack_tuple(builder, args[1])
        pointer = cgutils.get_item_pointer(
            context, builder, signature.args[0], array, at, wraparound=False, boundscheck=False
        )
        builder.store(args[2], builder.bitcast(pointer, VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(matrix, place, FLOAT8), code


@intrinsic
def is_any_least8(typing_context: Any, value: Any, bound: Any) -> Any:
    """value >= bound in any lane"""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        above = builder.bitcast(builder.fcmp_ordered(">=", *args), ir.IntType(LANES))
        return builder.icmp_unsigned("!=", above, ir.Constant(ir.IntType(LANES), 0))

    return types.boolean(FLOAT8, FLOAT8), code


@intrinsic
def splat8(typing_context: Any, value: Any) -> Any:
    """Eight times the same."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _splat(builder, args[0])

    return FLOAT8(types.float32), code


@intrinsic
def relu8(typing_context: Any, value: Any) -> Any:
    """max(value, 0)"""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero = ir.Constant(VECTOR, [0.0] * LANES)
        return builder.select(builder.fcmp_ordered(">", zero, args[0]), zero, args[0])

    return FLOAT8(FLOAT8), code


@intrinsic
def max8(typing_context: Any, value: Any, other: Any) -> Any:
    """max(value, other)"""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first, second = args
        larger = builder.select(builder.fcmp_unordered(">", second, first), second, first)
        return builder.select(builder.fcmp_unordered("uno", first, first), first, larger)

    return FLOAT8(FLOAT8, FLOAT8), code


@intrinsic(prefer_literal=True)
def lane8(typing_context: Any, value: Any, lane: Any) -> Any:
    """One of the eight."""
    place = ir.Constant(INDEX, lane.literal_value)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.extract_element(args[0], place)

    return types.float32(FLOAT8, lane), code


@intrinsic(prefer_literal=True)
def spread8(typing_context: Any, value: Any, lane: Any) -> Any:
    """Eight times one of the eight."""
    places = ir.Constant(ir.VectorType(INDEX, LANES), [lane.literal_value] * LANES)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.shuffle_vector(args[0], ir.Constant(VECTOR, ir.Undefined), places)

    return FLOAT8(FLOAT8, lane), code


@intrinsic
def sum8(typing_context: Any, value: Any) -> Any:
    """All eight, in a fixed order."""

    def half(builder: Any, vector: Any, places: list[int]) -> Any:
        mask = ir.Constant(ir.VectorType(INDEX, len(places)), places)
        return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (v,) = args
        four = builder.fadd(half(builder, v, [0, 1, 2, 3]), half(builder, v, [4, 5, 6, 7]))
        two = builder.fadd(half(builder, four, [0, 2]), half(builder, four, [1, 3]))
        return builder.fadd(*(builder.extract_element(two, ir.Constant(INDEX, i)) for i in range(2)))

    return types.float32(FLOAT8), code


@intrinsic
def prefetch_row(typing_context: Any, table: Any, row: Any) -> Any:
    """Asks for all cache lines of table[row] ahead of their use. No bits depend on it."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        strides = cgutils.unpack_tuple(builder, array.strides)
        size = strides[0]  # bytes of a row
        at = builder.sext(args[1], size.type) if args[1].type.width < size.type.width else args[1]
        byte = ir.IntType(8).as_pointer()
        first = builder.gep(builder.bitcast(array.data, byte), [builder.mul(at, size)])
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, INDEX, INDEX, INDEX]), "llvm.prefetch.p0"
        )
        read, near, data = (ir.Constant(INDEX, value) for value in (0, 3, 1))
        zero, line = (ir.Constant(size.type, value) for value in (0, CACHE_LINE))
        with cgutils.for_range_slice(builder, zero, size, line) as (offset, _):
            builder.call(function, [builder.gep(first, [offset]), read, near, data])
        return context.get_dummy_value()

    return types.void(table, row), code


def _splat(builder: Any, value: Any) -> Any:
    one = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), value, ir.Constant(INDEX, 0))
    zeros = ir.Constant(ir.VectorType(INDEX, LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(VECTOR, ir.Undefined), zeros)


class _Plain:
    """The same, number by number: for kernels that run as plain Python, in a debugger for instance."""

    @staticmethod
    def load8(matrix: Any, place: Any) -> Any:
        *rows, first = map(int, place)
        return matrix[(*rows, slice(first, first + LANES))]

    @staticmethod
    def store8(matrix: Any, place: Any, value: Any) -> None:
        *rows, first = map(int, place)
        matrix[(*rows, slice(first, first + LANES))] = value

    @staticmethod
    def is_any_least8(value: Any, bound: Any) -> bool:
        return bool(np.any(value >= bound))

    @staticmethod
    def splat8(value: Any) -> Any:
        return np.full(LANES, value, np.float32)

    @staticmethod
    def relu8(value: Any) -> Any:
        return np.where(np.float32(0) > value, np.float32(0), value)

    @staticmethod
    def max8(value: Any, other: Any) -> Any:
        return np.maximum(value, other)

    @staticmethod
    def lane8(value: Any, lane: int) -> Any:
        return value[lane]

    @staticmethod
    def spread8(value: Any, lane: int) -> Any:
        return np.full(LANES, value[lane], np.float32)

    @staticmethod
    def sum8(value: Any) -> Any:
        four = value[:4] + value[4:]
        return (four[0] + four[1]) + (four[2] + four[3])

    @staticmethod
    def prefetch_row(table: Any, row: Any) -> None:
        pass


if config.DISABLE_JIT:  # type: ignore[attr-defined]
    globals().update({name: vars(_Plain)[name].__func__ for name in vars(_Plain) if not name.startswith("_")})
