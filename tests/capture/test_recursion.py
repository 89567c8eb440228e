"""Recursion: over numbers, trees and data; mutual, through methods, closures and generators."""

import inspect
import subprocess
import sys
import threading

import pytest
import torch

import burnish
from burnish.capture.segments.concretize_scalars import deep_recursion

from .call_sequences import Before, ordinary, swing
from .harness import program


def halve(x, n):
    return x if n == 0 else halve(x / 2, n - 1) + n


def is_even(x, n):
    return x if n == 0 else is_odd(x * 2, n - 1)


def is_odd(x, n):
    return x - 1 if n == 0 else is_even(x + 1, n - 1)


@program(breaks=0)
def test_function_calls_itself_with_a_counter():
    def fn(x, n):
        return halve(x, n)

    return fn, [(torch.randn(2), n) for n in (3, 5, 0, 3)]


@program(breaks=0)
def test_two_functions_call_each_other():
    def fn(x, n):
        return is_even(x, n)

    return fn, [(torch.randn(2), n) for n in (4, 3, 4)]


@program
def test_compiled_function_calls_itself():
    def fn(x, n):
        if n <= 1:
            return x
        return fn(x + 1, n - 1) * n

    return fn, [(torch.randn(2), n) for n in (3, 1, 4, 3)]


@program(breaks=0)
def test_closure_recurs_through_its_own_cell():
    def fn(x, n):
        def power(k):
            if k == 0:
                return torch.ones_like(x)
            half = power(k // 2)
            return half * half * (x if k % 2 else 1)

        return power(n)

    return fn, [(torch.randn(2), n) for n in (5, 2, 0, 5)]


@program
def test_tree_of_lists_and_dicts_is_mapped():
    def mapped(tree, f):
        if isinstance(tree, dict):
            return {k: mapped(v, f) for k, v in tree.items()}
        if isinstance(tree, (list, tuple)):
            return type(tree)(mapped(v, f) for v in tree)
        return f(tree)

    def fn(tree):
        return mapped(tree, lambda x: x * 2)

    return fn, [
        ({"a": torch.randn(2), "b": [torch.randn(1), (torch.randn(1),)]},),
        ([torch.randn(2)],),
        ({"a": torch.randn(2), "b": [torch.randn(1), (torch.randn(1),)]},),
    ]


@program
def test_recursion_stops_on_data():
    def shrink(x, depth):
        if x.abs().max() < 1:
            return x, depth
        return shrink(x / 2, depth + 1)

    def fn(x):
        y, depth = shrink(x.abs(), 0)
        return y + depth

    return fn, [(torch.full((2,), v),) for v in (5.0, 0.5, 20.0, 5.0)]


@program
def test_recursion_with_a_break_before_and_after_the_inner_call():
    def walk(x, n):
        if n == 0:
            return x
        x = x + 1 if x.sum() > 0 else x - 1
        y = walk(x * 2, n - 1)
        return y + (n if y.sum() > 0 else -n)

    def fn(x, n):
        return walk(x, n)

    return fn, lambda i: (swing(i), [2, 3, 2][i])


@program
def test_recursive_method_over_linked_objects():
    class Node:
        def __init__(self, scale, children=()):
            self.scale, self.children = scale, list(children)

        def forward(self, x):
            x = x * self.scale
            return sum((child.forward(x) for child in self.children), x)

    leaf = Node(3.0)
    tree = Node(1.0, [leaf, Node(2.0, [leaf])])

    def fn(x):
        return tree.forward(x)

    x = torch.randn(2)
    return fn, [
        (x,),
        (x, Before(lambda: setattr(leaf, "scale", 5.0))),
        (x, Before(lambda: tree.children.append(Node(1.5)))),
        (x, Before(lambda: setattr(leaf, "scale", 3.0))),
    ]


@program
def test_memoized_recursion_with_a_dict():
    def fn(x, n):
        memo = {0: x, 1: x * 2}

        def fib(k):
            if k not in memo:
                memo[k] = fib(k - 1) + fib(k - 2)
            return memo[k]

        return fib(n), len(memo)

    return fn, [(torch.randn(2), n) for n in (6, 3, 1, 6)]


@program
def test_recursion_without_an_end():
    def endless(x):
        return endless(x + 1)

    def fn(x):
        try:
            return endless(x)
        except RecursionError as error:
            return x * 2, type(error).__name__

    return fn, ordinary


@program
def test_deep_recursion_that_ends():
    def count(x, n):
        return x if n == 0 else count(x, n - 1) + 1

    def fn(x):
        return count(x, 150)

    return fn, ordinary


@program
def test_fixed_point_combinator():
    def fn(x, n):
        fix = lambda f: (lambda g: g(g))(lambda g: f(lambda *a: g(g)(*a)))  # noqa: E731
        power = fix(lambda self: lambda k: x if k == 0 else self(k - 1) * 2)
        return power(n)

    return fn, [(torch.randn(2), n) for n in (3, 1, 3)]


@program
def test_recursive_generator_of_permutations():
    def arrange(items):
        if not items:
            yield ()
        for i, item in enumerate(items):
            for rest in arrange(items[:i] + items[i + 1 :]):
                yield (item, *rest)

    def fn(x):
        return sum(x[list(order)] * n for n, order in enumerate(arrange(tuple(range(x.shape[0])))))

    return fn, [(torch.randn(3),), (torch.randn(2),), (torch.randn(3),)]


@program
def test_divide_and_conquer_on_slices():
    def total(x):
        n = x.shape[0]
        if n == 1:
            return x[0]
        return total(x[: n // 2]) + total(x[n // 2 :]) * 2

    def fn(x):
        return total(x)

    return fn, [(torch.randn(n),) for n in (5, 4, 1, 5)]


@program
def test_quicksort_on_data():
    def ordered(xs):
        if len(xs) < 2:
            return xs
        pivot, *rest = xs
        return ordered([x for x in rest if x < pivot]) + [pivot] + ordered([x for x in rest if not x < pivot])

    def fn(x):
        return torch.stack(ordered(list(x.unbind())))

    return fn, ordinary


@program
def test_exception_unwinds_many_levels():
    def dive(x, n, log):
        try:
            if n == 0:
                raise ValueError(x.shape[0])
            return dive(x + 1, n - 1, log)
        finally:
            log.append(n)

    def fn(x, n):
        log = []
        try:
            dive(x, n, log)
        except ValueError as error:
            return x * error.args[0], log

    return fn, [(torch.randn(2), n) for n in (3, 1, 3)]


@pytest.mark.parametrize("limit, depth", [(3000, 2500), (500, 450), (500, 600)])
def test_recursion_as_deep_as_the_program_allows(limit, depth):
    def count(x, n):
        return x if n == 0 else count(x, n - 1)

    def fn(x):
        try:
            return count(x, depth) + 1
        except RecursionError:
            return x - 1

    compiled, before = burnish.compile(fn, backend="eager"), sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        for _ in range(3):
            assert compiled(torch.ones(2)).tolist() == fn(torch.ones(2)).tolist()
    finally:
        sys.setrecursionlimit(before)


class Node:
    def __init__(self, value, after):
        self.value, self.after = value, after


@pytest.mark.parametrize("join", [Node, lambda value, after: (value, after), lambda value, after: [value, after]])
def test_structures_nested_deeper_than_calls(join):
    def fn(x):
        chain = None
        for i in range(1200):
            chain = join(i, chain)
        if x.sum() > 0:  # the whole chain is a slot of the next segment
            x = x + 1
        return x, chain

    def length(chain):
        found = 0
        while chain is not None:
            chain, found = chain.after if join is Node else chain[1], found + 1
        return found

    compiled = burnish.compile(fn, backend="eager")
    for i in range(3):
        x, chain = compiled(swing(i))
        assert length(chain) == 1200


def test_long_sums_of_a_changing_number():
    def fn(x, rate):
        total = 0.0
        for _ in range(1500):
            total += rate
        return x * (total / 3)

    compiled = burnish.compile(fn, backend="eager")
    for rate in (0.5, 0.25, 0.75):
        assert compiled(torch.ones(2), rate).tolist() == fn(torch.ones(2), rate).tolist()


def test_first_call_at_great_depth_decides_nothing_for_later_calls():
    def fn(x, n):
        try:
            return (x + length_of(n)).tolist()
        except RecursionError as error:
            return str(error)

    def length_of(n):
        return 0 if n == 0 else 1 + length_of(n - 1)

    def at(depth, function, *args):
        return function(*args) if depth == 0 else at(depth - 1, function, *args)

    room, frame = sys.getrecursionlimit(), sys._getframe()
    while frame is not None:
        room, frame = room - 1, frame.f_back
    for left in range(40, 120, 10):
        compiled = burnish.compile(fn, backend="eager")
        for depth in (room - left, 0, 0, 100):
            for n in (5, 6, 20):
                assert at(depth, compiled, torch.ones(2), n) == [n + 1.0, n + 1.0]


def test_deep_walks_are_of_one_thread():
    def nested(n):
        return n and nested(n - 1)

    def other():
        with pytest.raises(RecursionError):
            nested(before)
        seen.append(sys.getrecursionlimit())

    before, seen = sys.getrecursionlimit(), []
    with deep_recursion():
        assert nested(20 * before) == 0
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert seen == [before] == [sys.getrecursionlimit()]
        sys.setrecursionlimit(before + 100)
    try:
        assert sys.getrecursionlimit() == before + 100
        with pytest.raises(RecursionError):
            nested(before + 100)
    finally:
        sys.setrecursionlimit(before)


def nested_sets(count):
    made = frozenset()
    for _ in range(count):
        made = frozenset([made])
    return made


def nested_generators(count):
    made = iter([1])
    for _ in range(count):
        made = (value for value in made)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("make", [nested_sets, nested_generators])
def test_objects_nested_deeper_than_the_stack_of_c_code(make):
    """In another process: the stack of C code does not raise an error, it ends the process."""
    program = f"""
import torch, burnish
{inspect.getsource(make)}
taking = burnish.compile(lambda x, given: (x + 1, given), backend="eager")
making = burnish.compile(lambda x: (x + 1, {make.__name__}(20_000)), backend="eager")
for _ in range(3):
    result, _ = taking(torch.ones(2), {make.__name__}(20_000))
    assert torch.equal(result, torch.full((2,), 2.0))
for _ in range(2):
    making(torch.ones(2))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
