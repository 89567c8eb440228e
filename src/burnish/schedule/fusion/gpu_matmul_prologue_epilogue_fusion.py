"""Prologue fusion and epilogue fusion for GPU matmuls: what one kernel can compute before and after a product.

    h = aten.gelu.default u                   before: gelu(b0[…]) makes h, if the product is its only reader
    y = linear h, w, b, None, None            call
    v = view y, reshape[8, 64, 768]
    z = aten.add.Tensor v, x                  after: add(product, b1[…]) makes z

    find_fused_work(node, readers)   FusedWork(work, values, last=the node of z, …), or None: no such kernels

Kernels have four variables: the batch index, row, column, and the summed index. A tensor with more dimensions, such as
v above, can be read if dimensions of the same variable collapse into one: 8 and 64 both belong to the row.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import prod

from ...ir.graph import Graph, Node, Value
from ...ops.burnish_primitives import LINEAR, VIEW
from ...ops.operator_record import Pointwise
from ...ops.scalar_ir import Access, Scalar, cast, load, reduced, walk
from ...ops.target_record import target_of
from ...tensors.device_facts import precision_of
from ...tensors.dtypes import NAMES, SINGLES
from ...tensors.tensor_types import NumberType
from ...tensors.views.affine_indices import Affine, Index, constant, identity
from ..library.autotune_gpu_matmul import PRODUCT, RESULT, FusedProduct
from ..library.call_specs import LinearSpec, MatmulSpec
from ..library.gpu_matmul_spec import KernelSpec
from ..loops.build_expressions import ExpressionWriter, NotAffine
from ..loops.loop_ir import Kernel, Loop, Reduction, Stage, Store
from ..partition.loop_or_library_call import why_not_loop
from .epilogue_fusion import is_reshape

BATCHED = "aten.bmm.default"

COUNT, ROW, COLUMN, DEPTH = range(4)


THINNEST = 16
"""Tensor cores multiply tiles of this many rows. With fewer, most of the tile is wasted."""

FEWEST_OPERATIONS = 1 << 24
"""A smaller product takes no longer than its launch, and would not repay compilation."""

LONGEST_AFTER, LONGEST_BEFORE = 400, 60
"""In scalar operations. The prologue of an operand is computed again for each tile that reads it."""


class FusionRefused(Exception):
    """The expression cannot be part of a matmul kernel."""


class ValueReaders:
    """The readers of each value of a graph, and the nodes that a kernel has already absorbed."""

    def __init__(self, graph: Graph):
        self.readers: dict[Value, list[Node]] = defaultdict(list)
        """A node is listed once for each time it reads the value."""
        self.leaving = set(graph.leaving_values())
        self.idle: set[Node] = set()
        """Views without readers: transposing a weight twice leaves one."""
        self.taken: set[Node] = set()
        for node in reversed(graph.nodes):
            if node.op is VIEW and not self.readers[node.results[0]] and node.results[0] not in self.leaving:  # type: ignore
                self.idle.add(node)
                continue
            for value in node.operands:
                self.readers[value].append(node)

    def only_reader(self, value: Value) -> Node | None:
        readers = self.readers[value]
        return None if len(readers) != 1 or value in self.leaving or readers[0] in self.taken else readers[0]

    def goes_on(self, value: Value) -> bool:
        """Whether a loop reads the value, so that it could be fused with a loop that makes it."""
        return any(
            self.goes_on(reader.results[0]) if reader.op is VIEW else why_not_loop(reader) is None  # type: ignore
            for reader in self.readers[value]
        )

    def is_inner(self, value: Value) -> bool:
        """Whether it is computed element by element for a single reader, or is a view of such a value."""
        node = value.node
        if node is None or node in self.taken or self.only_reader(value) is None or why_not_loop(node) is not None:
            return False
        return self.is_inner(node.args[0]) if node.op is VIEW else isinstance(node.op.rule, Pointwise)

    def lies_in_memory(self, value: Value) -> bool:
        """Whether no loop computes it."""
        node = value.node
        if node is not None and node.op is VIEW:
            return self.lies_in_memory(node.args[0])
        return node is None or why_not_loop(node) is not None


@dataclass(frozen=True, slots=True)
class FusedWork:
    work: FusedProduct
    values: dict[str, Value]
    """By their names in the kernels."""
    last: Node
    """The node whose result the kernels store: the product or a later one."""
    after: frozenset[Node]
    """The other nodes after the product that a kernel computes."""
    before: frozenset[Node]
    """The nodes before the product that the first variant computes."""


def find_fused_work(node: Node, around: ValueReaders) -> FusedWork | None:
    if why_not_matrix(node) is not None or node in around.taken:
        return None
    return PrologueEpilogueFinder(node, around).found()


def why_not_matrix(node: Node) -> str | None:
    if node.op is not LINEAR and node.op.name != BATCHED:
        return "it is not a product of matrices"
    if node.op is LINEAR and (node.args[3] is not None or node.args[4] is not None):
        return "it has an epilogue of its own"
    types = [value.type for value in node.operands]
    target = target_of(types[0].device)
    if target is None or target.matmul_compiler is None:
        return f"no target makes kernels that multiply matrices for {types[0].device}"
    if types[0].dtype not in SINGLES or any(type.dtype is not types[0].dtype for type in types):
        return f"there are no such kernels for {types[0].dtype}"
    extents = extents_of(node)
    if min(extents[1:]) < THINNEST:
        return "it is too thin for tensor cores"
    return "it is small" if 2 * prod(extents) < FEWEST_OPERATIONS else None


def extents_of(node: Node) -> tuple[int, int, int, int]:
    a, b = node.args[0].shape, node.args[1].shape
    return (1, a[0], b[0], a[1]) if node.op is LINEAR else (a[0], a[1], b[2], a[2])


class PrologueEpilogueFinder:
    def __init__(self, node: Node, around: ValueReaders):
        self.node, self.around = node, around
        self.extents = extents_of(node)
        self.names: dict[Value, str] = {}
        product = node.results[0]
        assert product is not None
        self.product, self.dtype = product, NAMES[product.dtype]
        self.bias: Value | None = node.args[2] if node.op is LINEAR else None
        is_linear = node.op is LINEAR
        self.dims = (ROW, COLUMN) if is_linear else (COUNT, ROW, COLUMN)
        """The kernel variable of each dimension of the product."""
        self.operands: tuple[Operand, Operand] = (
            (node.args[0], (ROW, DEPTH) if is_linear else (COUNT, ROW, DEPTH)),
            (node.args[1], (COLUMN, DEPTH) if is_linear else (COUNT, DEPTH, COLUMN)),
        )

    def found(self) -> FusedWork:
        (a, _), (b, _) = self.operands
        call = (
            LinearSpec(a.type, b.type, self.bias and self.bias.type)
            if self.node.op is LINEAR
            else MatmulSpec(a.type, b.type)
        )
        operands = tuple(self.name(value) for value in (a, b, self.bias) if value is not None)
        end, after_nodes = self.after()
        made = {operand[0]: made for operand in self.operands if (made := self.before(operand)) is not None}
        before_nodes = frozenset(each for _, nodes in made.values() for each in nodes)
        ways = tuple(dict.fromkeys([self.way(end, tuple(made)), self.way(end, ())]))
        after = None if end is self.product else self.apart(end)
        work = FusedProduct(
            call, operands, tuple(spec for spec, _ in made.values()), after, not self.around.goes_on(end), ways
        )
        assert end.node is not None
        values = {name: value for value, name in self.names.items()}
        return FusedWork(work, values, end.node, after_nodes - {end.node}, before_nodes)

    def name(self, value: Value) -> str:
        return self.names.setdefault(value, f"x{len(self.names)}")

    # ---- kernels

    def way(self, end: Value, computed: tuple[Value, ...]) -> KernelSpec:
        """One kernel for everything; the operands in `computed` are computed as they are loaded."""
        writer = EpilogueWriter(self, end)
        a, b = (
            cast(writer.walked(*operand) if operand[0] in computed else writer.loaded(*operand), "f32")
            for operand in self.operands
        )
        total = reduced(0, "f32")
        if self.bias is not None:
            total = total + cast(writer.loaded(self.bias, (COLUMN,)), "f32")
        value = writer.walked(end, self.dims, cast(total, self.dtype))
        stage = Stage((Reduction("sum", a * b),), (), (Store(writer.place, value),))
        return self.spec(writer, Loop(self.extents, 3, (stage,)), PRODUCT if end is self.product else RESULT)

    def apart(self, end: Value) -> KernelSpec:
        """The epilogue as a separate kernel."""
        writer = EpilogueWriter(self, end)
        value = writer.walked(end, self.dims, writer.loaded(self.product, self.dims))
        stage = Stage((), (Store(writer.place, value),))
        self.names[self.product] = PRODUCT
        return self.spec(writer, Loop((*self.extents[:DEPTH], 1), 4, (stage,)), RESULT)

    def spec(self, writer: EpilogueWriter, loop: Loop, name: str) -> KernelSpec:
        made, *read = writer.buffers
        types = tuple(value.type for value in writer.buffers)
        titles = [node.op.name.removeprefix("aten.").partition(".")[0] for node in (self.node, made.node) if node]
        kernel = Kernel(
            "_".join(dict.fromkeys(titles)), tuple(NAMES[type.dtype] for type in types), frozenset({0}), (loop,)
        )
        return KernelSpec(kernel, types, (name, *map(self.name, read)), precision_of(self.product.dtype))

    # ---- around the product

    def after(self) -> tuple[Value, frozenset[Node]]:
        """The last value that can be computed from the product before it is stored, and the nodes in between."""
        value, ends = self.product, []
        while (reader := self.around.only_reader(value)) is not None:
            result = reader.results[0] if len(reader.results) == 1 else None
            if result is None or not is_reshape(reader) and not follows(reader, value, result):
                break
            value = result
            if reader.op is not VIEW and value.dtype in SINGLES:
                ends.append(value)
        for end in reversed(ends):
            writer = EpilogueWriter(self, end)
            try:
                made = writer.walked(end, self.dims, reduced(0, self.dtype))
            except (FusionRefused, NotAffine, RecursionError):
                continue
            if any(x.op == "reduced" for x in walk(made)) and is_short(made, LONGEST_AFTER):
                return end, frozenset(writer.inside)
        return self.product, frozenset()

    def before(self, operand: Operand) -> tuple[KernelSpec, frozenset[Node]] | None:
        """The kernel that computes an operand from values in memory."""
        value, dims = operand
        if not self.around.is_inner(value):
            return None
        writer = EpilogueWriter(self, value)
        try:
            made = writer.walked(value, dims)
        except (FusionRefused, NotAffine, RecursionError):
            return None
        if not is_short(made, LONGEST_BEFORE) or not all(map(self.around.lies_in_memory, writer.buffers[1:])):
            return None
        extents = tuple(n if k in dims else 1 for k, n in enumerate(self.extents))
        stage = Stage((), (Store(access(value, dims), made),))
        return self.spec(writer, Loop(extents, 4, (stage,)), self.name(value)), frozenset(writer.inside)


Operand = tuple[Value, tuple[int, ...]]
"""A value, and the kernel variable of each of its dimensions."""


def follows(node: Node, value: Value, result: Value) -> bool:
    """Whether it is an element-wise function of a value of the same shape."""
    return (
        isinstance(node.op.rule, Pointwise)
        and why_not_loop(node) is None
        and result.shape == value.shape
        and result.type.device == value.type.device
    )


def is_short(made: Scalar, most: int) -> bool:
    return sum(1 for _ in walk(made)) <= most


def access(value: Value, dims: tuple[int, ...], buffer: int = 0) -> Access:
    strides = [0, 0, 0, 0]
    for dim, stride in zip(dims, value.type.stride, strict=True):
        strides[dim] = stride
    return Access(buffer, 0, tuple(strides))


class EpilogueWriter:
    """Builds the expressions of one kernel, which computes `made`."""

    def __init__(self, finder: PrologueEpilogueFinder, made: Value):
        self.finder = finder
        self.buffers: list[Value] = [made]
        self.inside: set[Node] = set()
        """The nodes that this kernel computes."""

    def buffer(self, value: Value) -> int:
        if isinstance(value.type, NumberType):
            raise FusionRefused(f"{value} is a number that is passed by value")
        if value not in self.buffers[1:]:
            self.buffers.append(value)
        return self.buffers.index(value, 1)

    def loaded(self, value: Value, dims: tuple[int, ...]) -> Scalar:
        return load(NAMES[value.dtype], access(value, dims, self.buffer(value)))

    def is_inner(self, value: Value) -> bool:
        """Whether a value is computed where it is read. A view of the product needs no memory of its own."""
        if value.node is not None and value.node.op is VIEW:
            source = value.node.args[0]
            return source is self.finder.product or self.is_inner(source)
        return self.finder.around.is_inner(value)

    def walked(self, value: Value, dims: tuple[int, ...], product: Scalar | None = None) -> Scalar:
        """One element of a value as an expression of the kernel's variables; sets `place` to its address. A reshaped
        value is indexed in the shape it was computed in."""
        finder = self.finder
        while value.node is not None and is_reshape(value.node):
            self.inside.add(value.node)
            value = value.node.args[0]
        shape = value.shape
        variables = grouped(shape, tuple(finder.extents[dim] for dim in dims), dims)
        if variables is None:
            raise FusionRefused(f"{value} has dimensions that are part of several")
        units = {dim: tuple(int(k == dim and finder.extents[k] != 1) for k in range(4)) for dim in dims}

        def place_of(asked: Value, index: Index) -> tuple[int, tuple[int, ...]]:
            total = constant(0, len(shape))
            for x, stride in zip(index, asked.type.stride, strict=True):
                total = total + x * stride
            return total.offset, strides_of_variables(total, shape, variables)

        def answer(asked: Value, index: Index) -> Scalar | None:
            if asked is finder.product and product is not None:
                if [strides_of_variables(x, shape, variables) for x in index] != [units[dim] for dim in dims]:
                    raise FusionRefused("elements are computed from others of the product")
                return product
            if asked is value or self.is_inner(asked):
                assert asked.node is not None
                self.inside.add(asked.node)
                return None
            buffer = self.buffer(asked)
            return load(NAMES[asked.dtype], Access(buffer, *place_of(asked, index)))

        made = ExpressionWriter(shape, answer, refuse).at(value, identity(shape))
        if any(x.op == "index" for x in walk(made)):
            raise FusionRefused("it depends on where an element stands")
        self.place = Access(0, *place_of(value, identity(shape)))
        return made


def refuse(value: Value, index: object) -> Scalar:
    raise FusionRefused(f"{value} is gathered by indices")


def grouped(shape: tuple[int, ...], sizes: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...] | None:
    """The kernel variable that each dimension of a shape belongs to: for (8, 64, 768), rows, rows, columns."""
    found: list[int] = []
    at, left = len(sizes) - 1, sizes[-1]
    for size in reversed(shape):
        while left == 1 and size != 1 and at > 0:
            at -= 1
            left = sizes[at]
        if left % size:
            return None
        left //= size
        found.append(dims[at])
    rest = left * prod(sizes[:at])
    return tuple(reversed(found)) if rest == 1 else None


def strides_of_variables(x: Affine, shape: tuple[int, ...], variables: tuple[int, ...]) -> tuple[int, ...]:
    """The stride of each kernel variable. The dimensions of one variable must collapse into one stride."""
    strides, inner = [0, 0, 0, 0], [1, 1, 1, 1]
    for size, step, variable in reversed(list(zip(shape, x.coefficients, variables, strict=True))):
        if size == 1:
            continue
        if inner[variable] == 1:
            strides[variable] = step
        elif step != strides[variable] * inner[variable]:
            raise FusionRefused("its dimensions do not lie one in another")
        inner[variable] *= size
    return tuple(strides)
