"""Fusion groups: loop values that are computed together in one loop nest.

A group has an iteration space (a box) of variables in row-major order. Its inner variables are those that its
reductions run over. Each of its `roots` has an index over the box. Roots are stored values, and reductions with the
index of their operand. All values between the roots are computed inline.

    s = sum x, (1,)           group over i0 < 64, i1 < 768 (inner)
    y = x / s                 roots: s at [i0, i1], y at [i0, i1]
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.graph import Value
from ...ops.burnish_primitives import REDUCTION_OF, RUN_ALONG
from ...tensors.tensor_types import TensorType
from ...tensors.views.affine_indices import Affine, Index, constant, cut
from ...tensors.views.view_maps import Shape


@dataclass(eq=False, slots=True)
class Group:
    """See the module. `inner` is None as long as nothing is reduced. `is_whole`: no root reads across the parts of a
    concatenated value, so the box need not be split (`schedule.fusion.split_concat_loops`)."""

    extents: tuple[int, ...]
    inner: frozenset[int] | None = None
    roots: dict[Value, Index] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    is_whole: bool = True
    operators: int = 0
    """Approximate number of operators for an element: what several roots share is counted for each."""

    @property
    def row_count(self) -> int:
        product = 1
        for k, n in enumerate(self.extents):
            if self.inner is None or k not in self.inner:
                product *= n
        return product

    def result_index(self, root: Value) -> Index:
        """The index of the root's own elements: a reduction has 0 in the reduced dimensions."""
        index = self.roots[root]
        if not is_reduction(root):
            return index
        none = constant(0, len(self.extents))
        return tuple(none if k in root.node.args[1] else x for k, x in enumerate(index))  # type: ignore[union-attr]

    def copy(self) -> Group:
        return Group(self.extents, self.inner, dict(self.roots), self.refusals, self.is_whole, self.operators)

    def become(self, other: Group) -> None:
        self.extents, self.inner, self.roots = other.extents, other.inner, other.roots
        self.is_whole, self.operators = other.is_whole, other.operators

    def cut(self, variable: int, inner: int) -> None:
        """Splits one variable in two, the second with extent `inner`."""
        n = self.extents[variable]
        self.extents = (*self.extents[:variable], n // inner, inner, *self.extents[variable + 1 :])
        self.roots = {value: cut(index, variable, inner) for value, index in self.roots.items()}
        if self.inner is not None:
            self.inner = frozenset(
                part
                for k in self.inner
                for part in ((k, k + 1) if k == variable else (k,) if k < variable else (k + 1,))
            )


def goes_along(reduction: Value) -> bool:
    """Whether the reduced elements are contiguous in memory."""
    x, dims = reduction.node.args[:2]  # type: ignore[union-attr]
    return any(x.type.stride[k] == 1 and x.shape[k] > 1 for k in dims)


def is_reduction(value: Value) -> bool:
    return value.node is not None and value.node.op.name in REDUCTION_OF


def is_running(value: Value) -> bool:
    """Whether it is a scan (a running reduction) along a dimension, whose variable is inner."""
    return value.node is not None and value.node.op.name in RUN_ALONG


def is_contiguous_scan(value: Value) -> bool:
    """Whether it is a scan along a contiguous dimension. Such a loop is not vectorized, so everything in it is computed
    one element at a time."""
    x = value.node.args[0] if is_running(value) else None  # type: ignore[union-attr]
    return x is not None and x.type.stride[value.node.args[1]] == 1  # type: ignore[union-attr]


MANY = 1 << 12
"""Elements. Transposing fewer costs nothing compared with a launch."""


def is_transpose(value: Value) -> bool:
    """Whether it transposes its operands: as a loop of its own it is tiled. In the order that a reduction needs, either
    its reads or its writes would be strided."""
    fast = fastest(value.type)
    if fast is None or value.type.numel < MANY or is_reduction(value) or is_running(value):
        return False
    alike = [x for x in value.node.operands if x.shape == value.shape]  # type: ignore[union-attr]
    return bool(alike) and all(fastest(x.type) not in (fast, None) for x in alike)


def fastest(type: TensorType) -> int | None:
    """The dimension with stride 1."""
    return next((d for d, size in enumerate(type.shape) if size > 1 and type.stride[d] == 1), None)


def space_of(root: Value) -> Shape:
    """The iteration space of a root: its own shape, or that of the operand it reduces."""
    return root.node.args[0].shape if is_reduction(root) else root.shape  # type: ignore[union-attr]


def group_of(root: Value) -> Group:
    """A new group with this root only."""
    shape = space_of(root)
    group = Group(tuple(n for n in shape if n != 1))
    index = align(group, shape, range(len(group.extents)))
    assert index is not None
    group.roots[root] = index
    if is_reduction(root) or is_running(root):
        group.inner = reduced_variables(root, index)
    return group


def align(group: Group, shape: Shape, variables: range | list[int]) -> Index | None:
    """The index of a tensor of `shape` that walks `variables` in row-major order; None where the sizes do not match.
    Splits variables where the shape has finer dimensions. That changes the group, but not what it computes."""
    positions = list(variables)
    found: list[Affine | None] = []
    parts: list[list[int]] = []
    at = len(positions) - 1
    # From the last dimension to the first: each takes whole variables, and splits one where it ends inside it.
    for size in reversed(shape):
        taken: list[int] = []
        left = size
        while left != 1:
            if at < 0:
                return None
            n = group.extents[positions[at]]
            if left % n == 0:
                taken.append(positions[at])
                left //= n
                at -= 1
            elif n % left == 0:
                k = positions[at]
                group.cut(k, left)
                # Earlier results stay valid: later variables moved up by one.
                parts = [[p + 1 if p > k else p for p in part] for part in parts]
                taken = [p + 1 if p > k else p for p in taken]
                taken.append(k + 1)
                left = 1
            else:
                return None
        parts.append(taken)
    if at >= 0:
        return None
    count = len(group.extents)
    for taken in reversed(parts):
        step, coefficients = 1, [0] * count
        for variable in taken:
            coefficients[variable] = step
            step *= group.extents[variable]
        found.append(Affine(0, tuple(coefficients)))
    return tuple(x for x in found if x is not None)


def reduced_variables(root: Value, index: Index) -> frozenset[int]:
    """The variables of the dimensions that a reduction runs over."""
    over: set[int] = set()
    dims = root.node.args[1]  # type: ignore[union-attr]
    for dim in (dims,) if is_running(root) else dims:
        if index:
            over.update(k for k, c in enumerate(index[dim].coefficients) if c)
    return frozenset(over)
