"""Matrix products: every candidate equals eager on free strides, batched and not."""

import pytest
import torch

from burnish.schedule.library.autotune_library_calls import candidates
from burnish.schedule.library.call_specs import MatmulSpec
from burnish.schedule.library.own_kernels import matmul_tiling_and_packing

from .library_references import bf16, check_all, f32, strided


@pytest.mark.parametrize(
    "a",
    [strided((20, 12), (12, 1)), strided((20, 12), (1, 20)), strided((20, 12), (30, 2)), strided((20, 12), (0, 1))],
    ids=repr,
)
@pytest.mark.parametrize(
    "b",
    [strided((12, 16), (16, 1)), strided((12, 16), (1, 12)), strided((12, 16), (1, 15)), strided((12, 16), (1, 0))],
    ids=repr,
)
def test_strides_of_matrices_are_free(a, b):
    check_all(MatmulSpec(a, b))


@pytest.mark.parametrize("batch", [1, 6])
@pytest.mark.parametrize("a", [(0, 12, 1), (2, 1, 0), (1, 0, 2), (2, 0, 1)])
@pytest.mark.parametrize("b", [(0, 12, 1), (2, 1, 0), (1, 0, 2)])
def test_order_of_batches_in_memory_is_free(batch, a, b):
    """Each triple orders the dimensions in memory; the one with 12 is one matrix, repeated."""
    check_all(MatmulSpec(_ordered((batch, 10, 12), a), _ordered((batch, 12, 14), b)))


def _ordered(shape, order):
    if 12 in order:
        return strided(shape, (0, shape[2], 1))
    strides = [0, 0, 0]
    step = 1
    for axis in sorted(range(3), key=lambda axis: order[axis]):
        strides[axis], step = step, step * shape[axis]
    return strided(shape, tuple(strides))


@pytest.mark.parametrize(
    "a,b",
    [
        (f32(0, 4), f32(4, 5)),
        (f32(3, 0), f32(0, 5)),
        (f32(0, 3, 4), f32(0, 4, 5)),
        (f32(2, 0, 4), f32(2, 4, 5)),
        (f32(2, 3, 0), f32(2, 0, 5)),
    ],
    ids=repr,
)
def test_empty_sizes_are_right(a, b):
    check_all(MatmulSpec(a, b))


def test_other_dtypes_are_right():
    check_all(MatmulSpec(bf16(8, 16), bf16(16, 12)))
    check_all(
        MatmulSpec(strided((3, 8, 16), (128, 16, 1), torch.float64), strided((3, 16, 4), (64, 1, 16), torch.float64))
    )


def test_gaps_between_rows_of_bf16_are_not_given_to_a_product_of_one_matrix():
    """`bmm` copies them, `mm` does not."""
    gaps, none = (strided((1, 33, 65), (33 * step, step, 1), torch.bfloat16) for step in (68, 65))
    assert [c.name for c in candidates(MatmulSpec(gaps, bf16(1, 65, 40)))][:2] == ["bmm", "bmm of copies"]
    assert [c.name for c in candidates(MatmulSpec(none, bf16(1, 65, 40)))][:2] == ["bmm", "mm"]
    plain = MatmulSpec(strided((33, 65), (68, 1), torch.bfloat16), bf16(65, 40))
    assert candidates(plain)[0].rows == ("a",)
    check_all(plain)


def test_transposed_batch_may_be_copied_first():
    ours = ["own"] if matmul_tiling_and_packing.shape_here() else []
    transposed = MatmulSpec(f32(4, 8, 16), strided((4, 16, 12), (192, 1, 16)))
    assert check_all(transposed) == ["bmm", "bmm of copies", *ours]
    assert check_all(MatmulSpec(f32(4, 8, 16), f32(4, 16, 12))) == ["bmm", *ours]


@pytest.mark.parametrize("m,k,n", [(1, 1, 1), (49, 32, 49), (13, 300, 40), (30, 17, 100)])
def test_batches_of_every_size_are_right(m, k, n):
    check_all(MatmulSpec(f32(5, m, k), f32(5, k, n)))
    check_all(MatmulSpec(strided((5, m, k), (k, 5 * k, 1)), strided((5, k, n), (k, 1, 5 * k))))


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="do not go together"):
        MatmulSpec(f32(2, 3), f32(4, 5))
    with pytest.raises(ValueError, match="two matrices"):
        MatmulSpec(f32(2, 3), f32(1, 3, 5))
