"""Prints a matmul as a Triton program: one tile of the result, summed step by step in tensor cores.

    kernel linear_relu(b0: bf16 out, b1: bf16, b2: bf16, b3: bf16)
      loop i0 < 1, i1 < 512, i2 < 768 rows, i3 < 3072
        stage
          r0 = sum.f32 mul(cast.f32(b1[3072*i1 + i3]), cast.f32(b2[3072*i2 + i3]))
          row b0[768*i1 + i2] = max(cast.bf16(add(r0, cast.f32(b3[i2]))), 0.0.bf16)

    =>  r0 = tl.full((128, 64), 0.0, tl.float32)
        for start in range(0, 3072, 32):
            ...
            r0 = tl.dot(v0, v1, r0)
        v2 = tl.load(b3 + (i2))
        ...
        tl.store(b0 + (768 * i1 + i2), ...)

The loop has four variables: the number of the product, rows, columns, and the summed dimension. The prologue of an
operand is computed as it is loaded, and the epilogue while the sum is in registers. Both use the operations of printed
loops, with the same roundings. Programs that run at the same time are neighbours: they read the same rows and columns,
which are then in the cache.
"""

from __future__ import annotations

from collections import Counter

from ...errors import InternalError
from ...ops.scalar_ir import Access, Scalar, walk
from ...schedule.library.gpu_matmul_spec import MatmulTiles
from ...schedule.loops.loop_ir import Kernel, Loop
from ...tensors.dtypes import FLOATS, WIDE
from ..loops.kernel_listing import listing
from .kernel_function import PrintedKernel
from .print_math_expansions import function_text, operation_text
from .triton_types import FAR, LONG_LINE, literal

COUNT, ROW, COLUMN, DEPTH = range(4)

TOGETHER = 8
"""Rows of tiles that are walked together, column by column."""


def print_matrix(kernel: Kernel, tiles: MatmulTiles, precision: str) -> PrintedKernel:
    """`precision` is that of f32 operands in the product, "tf32" or "ieee"."""
    name = "".join(c if c.isalnum() else "_" for c in f"matrix_{kernel.name}")
    head, *loops = listing(kernel)
    comments = ["\n".join(kernel.origin), f"kernel {kernel.name}{head}", *loops, f"in tiles {tiles}"]
    lines = [f"# {line}" for line in "\n".join(comments).splitlines() if line]
    lines.append(f"def {name}({', '.join(f'b{n}' for n in range(len(kernel.dtypes)))}):")
    printer = MatrixPrinter(kernel.loops[0], tiles, precision)
    lines += [f"    {line}" for line in printer.body()]
    texts = [function_text(*function) for function in sorted(printer.functions)]
    text = "\n\n\n".join([*texts, "\n".join(lines)]) + "\n"
    return PrintedKernel(name, text, printer.programs, tiles.warps, kernel.dtypes, frozenset(), stages=tiles.stages)


class MatrixPrinter:
    def __init__(self, loop: Loop, tiles: MatmulTiles, precision: str):
        self.functions: set[tuple[str, str]] = set()
        """The transcendental operations that are called, with their dtypes."""
        (stage,) = loop.stages
        (reduction,) = stage.reductions
        (self.store,) = stage.row_stores
        if len(loop.extents) != 4 or loop.rows != 3 or (reduction.op, reduction.value.op) != ("sum", "mul"):
            raise InternalError("codegen", f"no product of matrices: {loop}")
        self.operands = tuple(self.uncast(arg) for arg in reduction.value.args)
        self.extents, self.tiles, self.precision = loop.extents, tiles, precision
        self.lines: list[str] = []
        self.depth = 0
        self.count = 0
        roots = (*self.operands, self.store.value)
        self.uses = Counter([*roots, *(arg for x in walk(*roots) for arg in x.args)])
        accesses = [x.payload for x in walk(*roots) if x.op == "load"] + [self.store.access]
        self.far = any(reach(access, loop.extents) >= FAR for access in accesses)
        self.down, self.across = -(-self.extents[ROW] // tiles.rows), -(-self.extents[COLUMN] // tiles.columns)

    @property
    def programs(self) -> int:
        return self.extents[COUNT] * self.down * self.across

    def uncast(self, x: Scalar) -> Scalar:
        """An operand before its cast to f32, which tensor cores do themselves."""
        return x.args[0] if x.op == "cast" and x.args[0].dtype in WIDE else x

    def body(self) -> list[str]:
        self.variables()
        tiles = self.tiles
        self.line(f"r0 = tl.full(({tiles.rows}, {tiles.columns}), 0.0, tl.float32)")
        self.line(f"for start in range(0, {self.extents[DEPTH]}, {tiles.depth}):")
        self.depth += 1
        left = self.operand(0, "ka", "[None, :]", (tiles.rows, tiles.depth), ROW)
        right = self.operand(1, "kb", "[:, None]", (tiles.depth, tiles.columns), COLUMN)
        precision = f', input_precision="{self.precision}"' if self.operands[0].dtype == "f32" else ""
        self.line(f"r0 = tl.dot({left}, {right}, r0{precision})")
        self.depth -= 1
        self.names: dict[Scalar, str] = {}
        value = self.at_value(self.store.value, "")
        pointer, mask = self.place(self.store.access, "")
        self.line(f"tl.store({pointer}, {value}{f', {mask}' if mask else ''})")
        return self.lines

    def variables(self) -> None:
        """Computes the number of the tile, and its rows and columns."""
        self.line("pid = tl.program_id(0)")
        self.line(f"tile = pid % {self.down * self.across}")
        if self.down > TOGETHER:
            self.line(f"first = tile // {TOGETHER * self.across} * {TOGETHER}")
            self.line(f"some = tl.minimum({self.down} - first, {TOGETHER})")
            self.line(f"m = first + tile % {TOGETHER * self.across} % some")
            self.line(f"n = tile % {TOGETHER * self.across} // some")
        else:
            self.line(f"m = tile % {self.down}")
            self.line(f"n = tile // {self.down}")
        far = ".to(tl.int64)" if self.far else ""
        self.line(f"i0 = (pid // {self.down * self.across}){far}")
        self.line(f"i1 = (m * {self.tiles.rows} + tl.arange(0, {self.tiles.rows})){far}[:, None]")
        self.line(f"i2 = (n * {self.tiles.columns} + tl.arange(0, {self.tiles.columns})){far}[None, :]")
        self.masks = ["", "", "", ""]
        for variable, size in ((ROW, self.tiles.rows), (COLUMN, self.tiles.columns)):
            if self.extents[variable] % size:
                self.line(f"m{variable} = i{variable} < {self.extents[variable]}")
                self.masks[variable] = f"m{variable}"

    def operand(self, number: int, along: str, shape: str, size: tuple[int, int], other: int) -> str:
        """A tile of an operand, with zeros beyond the end of the summed dimension."""
        far = ".to(tl.int64)" if self.far else ""
        self.line(f"{along} = (start + tl.arange(0, {self.tiles.depth})){far}{shape}")
        self.masks[DEPTH] = ""
        if self.extents[DEPTH] % self.tiles.depth:
            self.line(f"m{along} = {along} < {self.extents[DEPTH]}")
            self.masks[DEPTH] = f"m{along}"
        self.names = {}
        root = self.operands[number]
        value = self.at_value(root, along)
        if {DEPTH, other} - self.depends(root):
            value = self.emit(f"tl.broadcast_to({value}, {size})")
        if self.masks[DEPTH] and (root.op != "load" or DEPTH not in self.depends(root)):
            # A value computed from zeros, or constant along the dimension, may not be zero.
            value = self.emit(f"tl.where({self.masks[DEPTH]}, {value}, {literal(0.0, root.dtype)})")
        return value

    # ---- expressions

    def at_value(self, root: Scalar, along: str) -> str:
        for x in walk(root, known=self.names):
            self.names[x] = self.written(x, along)
        return self.names[root]

    def written(self, x: Scalar, along: str) -> str:
        args = [self.names[arg] for arg in x.args]
        match x.op:
            case "const":
                return literal(x.payload, x.dtype)
            case "reduced":
                return "r0"
            case "load":
                pointer, mask = self.place(x.payload, along)
                zero = "0.0" if x.dtype in FLOATS else "0"
                return self.emit(f"tl.load({pointer}{f', {mask}, {zero}' if mask else ''})")
            case _:
                text = operation_text(x, args, self.emit, self.functions)
        return self.emit(text) if self.uses[x] > 1 or len(text) > LONG_LINE else text

    def place(self, access: Access, along: str) -> tuple[str, str]:
        """A pointer and a mask. `along` is the name of the summed variable."""
        if access.indirect or access.masked:
            raise InternalError("codegen", f"a product of matrices reads from {access}")
        terms = []
        for variable in self.walked(access):
            stride, name = access.strides[variable], along if variable == DEPTH else f"i{variable}"
            terms.append(name if stride == 1 else f"{stride} * {name}")
        if access.offset or not terms:
            terms.append(str(access.offset))
        mask = " & ".join(self.masks[variable] for variable in self.walked(access) if self.masks[variable])
        return f"b{access.buffer} + ({' + '.join(terms)})", mask

    def walked(self, access: Access) -> list[int]:
        return [k for k, stride in enumerate(access.strides) if stride and self.extents[k] != 1]

    def depends(self, root: Scalar) -> set[int]:
        """The variables that an expression depends on."""
        return {k for x in walk(root) if x.op == "load" for k in self.walked(x.payload)}

    # ---- lines

    def emit(self, text: str) -> str:
        if text.isidentifier():
            return text
        self.count += 1
        self.line(f"v{self.count - 1} = {text}")
        return f"v{self.count - 1}"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)


def reach(access: Access, extents: tuple[int, ...]) -> int:
    return abs(access.offset) + sum(abs(s) * n for s, n in zip(access.strides, extents, strict=True))
