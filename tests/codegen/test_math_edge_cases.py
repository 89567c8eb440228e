"""Expansions where functions have no ordinary value, division with any quotient, powers of integers; and that the
printer makes the same of expansions as the plain evaluation that the other tests use."""

import itertools

import numpy as np
import pytest
import torch

from burnish.codegen.llvm.compile_to_machine_code import compile_kernel, native
from burnish.codegen.llvm.print_kernel_module import print_module
from burnish.codegen.llvm.target_cpu import host, preset
from burnish.codegen.math.expand_operations import EXPANSIONS, INTEGER_DIVISION, expand, why_not_expandable
from burnish.ops.scalar_ir import Access, binary, const, load, unary, walk

from .exact_functions import EXACT, eager, last_places
from .example_kernels import elementwise
from .plain_llvm_evaluator import compiled

BINARY = ("pow", "atan2", "copysign", "fmod", "remainder", "floor_div")
FLOATS = {"f32": np.float32, "f64": np.float64}
INTEGERS = {"u8": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}

each_float = pytest.mark.parametrize("dtype", FLOATS)


def operand(dtype, number=0):
    return load(dtype, Access(number, 0, (1,)))


def node(op, dtype):
    x, y = operand(dtype), operand(dtype, 1)
    return binary(op, x, y) if op in BINARY else unary(op, x)


def edges(dtype):
    """Zeros, infinities, NaN, ones and their neighbours, whole and half numbers, the largest and smallest of all."""
    limits = np.finfo(FLOATS[dtype])
    one = FLOATS[dtype](1)
    sizes = [0, np.inf, np.nan, one, np.nextafter(one, 2), np.nextafter(one, 0), 0.5, 0.75, 1.5, 2, 2.5, 3, 4, 7, 25]
    sizes += [100.5, 1e10, 2.0**23, 2.0**23 + 1, 2.0**24, limits.max, limits.tiny, limits.smallest_subnormal]
    return np.array([*sizes, *(-size for size in sizes)], FLOATS[dtype])


def differ(found, right, dtype):
    """Where one is NaN alone, the signs differ, or the values by more than 2 units in the last place."""
    is_other = np.isnan(found) != np.isnan(right)
    signs = ~np.isnan(found) & (np.signbit(found) != np.signbit(right))
    return is_other | signs | (last_places(found, right.astype(np.float64), dtype) > 2)


def assert_same(op, found, right, dtype, *operands):
    wrong = np.flatnonzero(differ(found, right, dtype))
    lines = [f"{op}{tuple(x[k].item() for x in operands)}: {found[k]!r}, eager {right[k]!r}" for k in wrong]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("exponent", (0.5, -0.5))
def test_a_power_of_a_half_is_not_a_root(exponent):
    """pow(-inf, 0.5) is infinite and pow(-0.0, 0.5) is 0.0. Where eager takes a root, the operator's rule says so."""
    x = edges("f32")
    found = compiled(expand(binary("pow", operand("f32"), const(exponent, "f32"))))(x)
    right = torch.pow(torch.from_numpy(x), torch.full((len(x),), exponent)).numpy()
    assert_same("pow", found, right, "f32", x)


@each_float
@pytest.mark.parametrize("op", sorted(set(EXPANSIONS) - set(BINARY)))
def test_functions_agree_with_eager_at_the_edges(op, dtype):
    if why_not_expandable(op, dtype):
        pytest.skip("a library call")
    x = edges(dtype)
    if op == "log1p":
        # Eager's vectors give 0 for the smallest number below zero.
        x = x[np.abs(x) != np.finfo(x.dtype).smallest_subnormal]
    assert_same(op, compiled(expand(node(op, dtype)))(x), eager(op, x), dtype, x)


@each_float
@pytest.mark.parametrize("op", ["pow", "atan2", "copysign"])
def test_functions_of_two_numbers_agree_with_eager_at_the_edges(op, dtype):
    if why_not_expandable(op, dtype):
        pytest.skip("a library call")
    x, y = (grid.ravel() for grid in np.meshgrid(edges(dtype), edges(dtype)))
    assert_same(op, compiled(expand(node(op, dtype)))(x, y), eager(op, x, y), dtype, x, y)


@pytest.mark.parametrize("op", ["sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf"])
def test_odd_functions_are_odd_to_the_last_bit(op):
    x = np.random.default_rng(0).integers(0, 1 << 31, 100_000, dtype=np.uint32).view(np.float32)
    run = compiled(expand(node(op, "f32")))
    np.testing.assert_array_equal(run(-x), -run(x))


@pytest.mark.parametrize("op", sorted(EXPANSIONS))
def test_unexpandable_operations_are_left_and_reported(op):
    reason = why_not_expandable(op, "f64")
    left = expand(node(op, "f64"))
    assert (left is node(op, "f64")) == (reason is not None)
    assert reason is None or reason.startswith(f"{op} of f64 has no expansion into base operations: ")


def test_reasons_name_the_operation():
    assert why_not_expandable("add", "i32") is None
    assert why_not_expandable("remainder", "i32") is None
    assert why_not_expandable("sin", "i64") == "sin is an operation on floats, not on i64"


# Division.


def exact_remainders(x, y):
    """fmod, remainder and floor_div of f32: NumPy's fmod is exact, and the others follow from it as in eager."""
    with np.errstate(all="ignore"):
        rest = np.fmod(x, y)
        opposed = (rest != 0) & ((rest < 0) != (y < 0))
        moved = np.where(opposed, rest + y, rest)
        quotient = (x - rest) / y
        quotient = np.where(opposed, quotient - np.float32(1), quotient)
        down = np.floor(quotient)
        down = np.where(quotient - down > 0.5, down + np.float32(1), down)
        down = np.where(quotient == 0, np.copysign(np.float32(0), x / y), down)
        return {"fmod": rest, "remainder": moved, "floor_div": np.where(y == 0, x / y, down)}


def dividends(random, count):
    """Quotients of every size up to 2**277, whole ones and those next to them."""
    x = random.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    yield x, random.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        yield x, (x.astype(np.float64) * 2.0 ** random.uniform(-60, 5, count)).astype(np.float32)
    yield random.normal(0, 100, count).astype(np.float32), random.normal(0, 1, count).astype(np.float32)
    y = random.integers(1, 1000, count).astype(np.float32)
    near = y * random.integers(-(1 << 20), 1 << 20, count).astype(np.float32)
    yield np.nextafter(near, random.choice([-np.inf, np.inf, 0], count).astype(np.float32)), y
    yield tuple(grid.ravel() for grid in np.meshgrid(edges("f32"), edges("f32")))


@pytest.mark.parametrize("op", sorted(INTEGER_DIVISION))
def test_divisions_are_exact_for_every_quotient(op):
    run = compiled(expand(node(op, "f32")))
    for x, y in dividends(np.random.default_rng(0), 50_000):
        found, right = run(x, y), exact_remainders(x, y)[op]
        same = (found.view(np.int32) == right.view(np.int32)) | (np.isnan(found) & np.isnan(right))
        assert same.all(), (x[~same][0], y[~same][0], found[~same][0], right[~same][0])


@pytest.mark.parametrize("op", sorted(INTEGER_DIVISION))
def test_divisions_agree_with_eager_to_the_bit_where_the_quotient_is_finite(op):
    run = compiled(expand(node(op, "f32")))
    for x, y in dividends(np.random.default_rng(1), 50_000):
        with np.errstate(all="ignore"):
            plain = np.isfinite(x / y) | ~np.isfinite(x) | (y == 0)
        x, y = x[plain], y[plain]
        found, right = run(x, y), eager(op, x, y)
        same = (found.view(np.int32) == right.view(np.int32)) | (np.isnan(found) & np.isnan(right))
        assert same.all(), (x[~same][0], y[~same][0], found[~same][0], right[~same][0])


# Powers of integers, and by constants.


@pytest.mark.parametrize("dtype", INTEGERS)
def test_powers_of_integers_wrap_around_as_eager(dtype):
    limits = np.iinfo(INTEGERS[dtype])
    base = [0, 1, 2, 3, 5, 10, limits.max, limits.max - 1] + [-1, -2, -3, limits.min] * (limits.min < 0)
    power = [0, 1, 2, 3, 7, 13, 62, 63, 64, limits.max] + [-1, -2, -3] * (limits.min < 0)
    x, y = (grid.ravel().astype(INTEGERS[dtype]) for grid in np.meshgrid(base, [p for p in power if p <= limits.max]))
    found = compiled(expand(node("pow", dtype)))(x, y)
    np.testing.assert_array_equal(found, eager("pow", x, y))


@pytest.mark.parametrize("power", [0, 1, 2, 3, 10, 63])
def test_constant_powers_of_integers_are_multiplied_out(power):
    x = np.arange(-20, 20)
    expansion = expand(binary("pow", operand("i64"), const(power, "i64")))
    assert {x.op for x in walk(expansion)} <= {"const", "load", "mul"}
    if power:
        np.testing.assert_array_equal(compiled(expansion)(x), eager("pow", x, np.full_like(x, power)))


@each_float
@pytest.mark.parametrize("power", [0.0, 1.0, 2.0, 3.0, -1.0, -2.0])
def test_simple_constant_powers_are_products_as_in_eager(power, dtype):
    expansion = expand(binary("pow", operand(dtype), const(power, dtype)))
    assert {x.op for x in walk(expansion)} <= {"const", "load", "mul", "div"}
    if power:
        x = edges(dtype)
        assert_same("pow", compiled(expansion)(x), torch.from_numpy(x).pow(power).numpy(), dtype, x)


# Through the printer.


@pytest.mark.parametrize("op,dtype", list(itertools.product(sorted(EXPANSIONS), FLOATS)))
def test_the_printer_computes_the_same_bits(op, dtype):
    if why_not_expandable(op, dtype):
        pytest.skip("a library call")
    random = np.random.default_rng(0)
    count = 5000
    operands = []
    for number in range(2 if op in BINARY else 1):
        x = random.normal(0, 10.0 ** (2 - number), count).astype(FLOATS[dtype])
        x[: len(edges(dtype))] = random.permutation(edges(dtype))
        operands.append(x)
    expansion = expand(node(op, dtype))
    expected = compiled(expansion)(*operands)
    kernel = compile_kernel(elementwise(op, expansion, (count,), (dtype,) * len(operands)))
    found = np.empty_like(expected)
    kernel(*(array.ctypes.data for array in (*operands, found)))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[expected == 0]), np.signbit(expected[expected == 0]))


@pytest.mark.parametrize("op", ["exp", "exp2", "log"])
@each_float
def test_machines_without_the_instructions_for_exponents_compute_the_same_bits(op, dtype):
    if host().vector_bits < 256:
        pytest.skip("it cannot stand in for the other")
    random = np.random.default_rng(0)
    x = np.concatenate([edges(dtype), random.normal(0, 100, 5000), random.normal(0, 1e-39, 100)]).astype(FLOATS[dtype])
    kernel = elementwise(op, node(op, dtype), (len(x),), (dtype,))
    found = [np.empty_like(x) for _ in range(2)]
    for target, out in zip((host(), preset("x86-64-v3")), found, strict=True):
        native(kernel, target)(x.ctypes.data, out.ctypes.data)
    np.testing.assert_array_equal(*found)


def test_scaling_and_its_inverse_are_instructions_where_there_are_some():
    def text(op, target):
        return print_module(elementwise(op, node(op, "f32"), (4096,), ("f32",)), preset(target))[0]

    for op, name in (("exp", "scalef.ps.512"), ("log", "getmant.ps.512"), ("log", "getexp.ps.512")):
        assert name in text(op, "x86-64-v4")
        assert "avx512" not in text(op, "x86-64-v3")


def test_edges_are_covered_for_every_function():
    assert set(EXACT) | set(BINARY) == set(EXPANSIONS)
