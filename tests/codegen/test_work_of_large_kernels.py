"""The work for a kernel grows with its text: an expression that many stores share is visited once."""

import pytest

from burnish.codegen.llvm.print_kernel_module import print_module
from burnish.codegen.llvm.target_cpu import preset
from burnish.codegen.loops.kernel_listing import listing
from burnish.ops.scalar_ir import Access, load, walk
from burnish.schedule.loops.loop_ir import Kernel, Loop, Stage, Store, print_kernel

from ..count_instructions import instructions


def chain(length: int) -> Kernel:
    """Every value of a chain is stored, as the gradients of a chain of layers are."""
    x, stores = load("f32", Access(0, 0, (1,))), []
    for k in range(length):
        x = x * x + 1.0
        stores.append(Store(Access(1, 64 * k, (1,)), x))
    loop = Loop((64,), 1, (Stage(stores=tuple(stores)),))
    return Kernel("chain", ("f32", "f32"), frozenset({1}), (loop,))


@pytest.mark.parametrize("work", [listing, print_kernel, lambda kernel: print_module(kernel, preset("x86-64-v3"))])
def test_work_grows_with_the_number_of_stores_of_a_chain(work):
    work(chain(32))  # fills caches
    assert instructions(lambda: work(chain(240))) < 10 * instructions(lambda: work(chain(30)))


def test_a_walk_leaves_out_what_is_known_and_what_only_that_needs():
    x = load("f32", Access(0, 0, (1,)))
    known = x * x
    root = known + x
    assert list(walk(root)) == [x, known, root]
    assert list(walk(root, known={known})) == [x, root]
    assert list(walk(root, known={known, x})) == [root]
    assert list(walk(root, known={root})) == []
