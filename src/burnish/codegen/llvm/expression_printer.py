"""Prints expressions: each value once, in the outermost scope that binds its variables.

    values = Values(code, box, plan, buffers)
    values.of(expression, copy)       the operand that holds it: a vector if it depends on the lane variable

`copy` counts the vectors that are computed side by side: copy 1 is one vector further along the lane variable.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.scalar_ir import Access, Scalar, walk
from ..loops.coalesce_loops import LoopNest
from .llvm_types import literal, memory, register, size, suffix, vector
from .loop_invariant_scopes import FunctionCode, Scope
from .scalar_operations import LlvmOperations


class ExpressionPrinter:
    def __init__(
        self,
        code: FunctionCode,
        box: LoopNest,
        lane: int | None,
        width: int,
        stored: frozenset[int],
        dtypes: tuple[str, ...],
    ):
        self.code, self.box, self.lane, self.dtypes = code, box, lane, dtypes
        self.width = width
        """Of values that depend on the lane variable. 1 in the tail loop over the last elements of a row."""
        self.stored = stored
        self.masks: list[str] | None = None
        """For each copy, the mask of the valid lanes. None if all are valid."""
        self.reduced: dict[int, list[str]] = {}
        """The finished reductions: one operand for each copy, or one for all."""
        self._running = {n for n, reduction in enumerate(box.reductions) if reduction.is_running}
        """The running reductions: their values change with every element."""
        self.transposed: dict[Access, str] = {}
        """Loads that are available in a transposed tile: the tile's address."""
        self._variables: dict[Scalar, int] = {}
        self._volatile: dict[Scalar, bool] = {}
        """Expressions that load from a stored-to buffer: not to be reused in a later stage."""
        self._belongs_to_item: dict[Scalar, bool] = {}

    # Dependences of expressions.

    def _learn(self, root: Scalar) -> None:
        for x in walk(root, known=self._variables):
            if x.op == "load":
                used = sum(1 << k for k, stride in enumerate(x.payload.strides) if stride)
            elif x.op == "index":
                used = 1 << x.payload
            elif x.op == "reduced":
                used = (1 << (len(self.box.extents) if x.payload in self._running else self.box.rows)) - 1
            else:
                used = 0
            volatile = x.op == "load" and x.payload.buffer in self.stored
            in_item = volatile or x.op == "reduced"
            for arg in x.args:
                used |= self._variables[arg]
                volatile = volatile or self._volatile[arg]
                in_item = in_item or self._belongs_to_item[arg]
            self._variables[x], self._volatile[x], self._belongs_to_item[x] = used, volatile, in_item

    def variables(self, x: Scalar) -> int:
        if x not in self._variables:
            self._learn(x)
        return self._variables[x]

    def is_in_lanes(self, x: Scalar) -> bool:
        return self.lane is not None and bool(self.variables(x) >> self.lane & 1)

    def width_of(self, x: Scalar) -> int:
        return self.width if self.is_in_lanes(x) else 1

    def _scope(self, x: Scalar) -> Scope:
        level = self.code.level_of(self.variables(x))
        # Values that are stored or reduced in an item are unknown before it.
        return self.code.scopes[max(level, 1) if self._belongs_to_item[x] else level]

    def forget_stored(self) -> None:
        """Ends a stage: its stores may change values that are loaded later."""
        for scope in self.code.scopes:
            for key in [k for k in scope.memo if isinstance(k[0], Scalar) and self._volatile[k[0]]]:
                del scope.memo[key]

    # Values.

    def of(self, root: Scalar, copy: int = 0) -> str:
        """The operand, at its own width."""
        if root.op == "const":
            return literal(root.payload, root.dtype)
        if root not in self._variables:
            self._learn(root)
        key = self._key(root, copy)
        found = self._scope(root).memo.get(key)
        if found is not None:
            return found
        stack = [root]
        while stack:
            x = stack[-1]
            memo, key = self._scope(x).memo, self._key(x, copy)
            if key in memo:
                stack.pop()
                continue
            missing = [a for a in self._needed(x) if a.op != "const" and self._key(a, copy) not in self._scope(a).memo]
            if missing:
                stack.extend(reversed(missing))
            else:
                memo[key] = self._print(x, copy)
                stack.pop()
        return self._scope(root).memo[self._key(root, copy)]

    def _is_jump(self, x: Scalar) -> bool:
        """A select whose first value is computed only if a lane needs it. Only the innermost scope can get new blocks:
        the loops inside another scope begin where it ended."""
        return x.op == "select" and x.payload == "rare" and self.is_in_lanes(x) and self._scope(x) is self.code.here

    def _needed(self, x: Scalar) -> tuple[Scalar, ...]:
        """The operands that must be printed before it."""
        return (x.args[0], x.args[2]) if self._is_jump(x) else x.args

    def _jump(self, x: Scalar, copy: int) -> str:
        scope, width = self._scope(x), self.width_of(x)
        number, type = self.code.name()[1:], register(x.dtype, width)
        condition, usual = self.wide(x.args[0], copy, width), self.wide(x.args[2], copy, width)
        lanes = register("b8", width)
        some = (
            condition
            if width == 1
            else self.code.call(scope, "i1", f"llvm.vector.reduce.or.{suffix('i1', width)}", (lanes, condition))
        )
        scope.put(f"br i1 {some}, label %rare_{number}, label %usual_{number}")
        before, known = scope.label, dict(scope.memo)
        scope.begin(f"rare_{number}")
        value = LlvmOperations(self.code, scope, width).select(
            condition, x.dtype, self.wide(x.args[1], copy, width), usual
        )
        scope.put(f"br label %usual_{number}")
        after = scope.label
        scope.begin(f"usual_{number}")
        # Values computed in the rare branch are undefined where it is skipped.
        scope.memo.clear()
        scope.memo.update(known)
        return self.code.emit(scope, f"phi {type} [{usual}, %{before}], [{value}, %{after}]")

    def _key(self, x: Scalar, copy: int) -> tuple:
        return (x, copy, self.width) if self.is_in_lanes(x) else (x, 0, 1)

    def wide(self, x: Scalar, copy: int, width: int | None = None) -> str:
        """At full width; broadcast to every lane if it does not depend on the lane."""
        width = self.width if width is None else width
        if x.op == "const":
            return literal(x.payload, x.dtype, width)
        value = self.of(x, copy)
        if width == 1 or self.is_in_lanes(x):
            return value
        scope = self._scope(x)
        key = (x, "splat", width)
        if key not in scope.memo:
            scope.memo[key] = self.splat(scope, register(x.dtype), value, width)
        return scope.memo[key]

    def splat(self, scope: Scope, scalar: str, value: str, width: int) -> str:
        if width == 1:
            return value
        type = vector(scalar, width)
        single = self.code.emit(scope, f"insertelement {type} poison, {scalar} {value}, i64 0")
        zeros = f"<{width} x i32> zeroinitializer"
        return self.code.emit(scope, f"shufflevector {type} {single}, {type} poison, {zeros}")

    def _print(self, x: Scalar, copy: int) -> str:
        scope, width = self._scope(x), self.width_of(x)
        if self._is_jump(x):
            return self._jump(x, copy)
        match x.op:
            case "load":
                return self._load(x, copy)
            case "index":
                return self._index(x.payload, copy)
            case "size":
                return str(x.payload)
            case "reduced":
                values = self.reduced[x.payload]
                return values[copy] if len(values) > 1 else values[0]
        operations = LlvmOperations(self.code, scope, width)
        args = [self.wide(a, copy, width) for a in x.args]
        source = x.args[0].dtype if x.args else x.dtype
        if x.op == "cast":
            return operations.cast(args[0], source, x.dtype)
        if x.op == "bitcast":
            return operations.bitcast(args[0], source, x.dtype)
        return operations.apply(x.op, x.dtype if x.op == "select" else source, args)

    def _bound(self, variable: int) -> tuple[int, str]:
        """The level that binds a variable, and its value there."""
        level = self.code.level_of(1 << variable)
        return level, self.code.scopes[level].variables[variable]

    def _index(self, variable: int, copy: int) -> str:
        level, value = self._bound(variable)
        if variable != self.lane:
            return value
        scope = self.code.scopes[level]
        return self.lane_positions(scope, value, copy, 1)

    def lane_positions(self, scope: Scope, first: str, copy: int, step: int) -> str:
        """first + step * lane, for the lanes of one copy."""
        width = self.width
        key = ("positions", first, copy, step, width)
        if key not in scope.memo:
            start = copy * width * step
            if width == 1:
                scope.memo[key] = self.code.emit(scope, f"add i64 {first}, {start}") if start else first
            else:
                base = self.splat(scope, "i64", first, width)
                offsets = ", ".join(f"i64 {start + step * lane}" for lane in range(width))
                scope.memo[key] = self.code.emit(scope, f"add {vector('i64', width)} {base}, <{offsets}>")
        return scope.memo[key]

    # Memory.

    def _pointer(self, access: Access, args: Sequence[Scalar], copy: int) -> str:
        """The address of the first lane, built from scope to scope: each adds only what changes there."""
        type = memory(self.dtypes[access.buffer])
        terms: dict[int, list[tuple[str, int]]] = {}
        for k, stride in enumerate(access.strides):
            if stride:
                level, value = self._bound(k)
                terms.setdefault(level, []).append((value, stride))
        for stride, arg in zip(access.indirect, args, strict=False):
            if stride and self.width_of(arg) == 1:
                self.variables(arg)
                value = self.of(arg, copy)  # lanes of width 1 are copies, each with its own index
                level = self.code.scopes.index(self._scope(arg))
                terms.setdefault(level, []).append((value, stride))
        pointer, key = f"%b{access.buffer}", (access.buffer, access.offset)
        if access.offset:
            pointer = self._advance(self.code.scopes[0], type, pointer, str(access.offset), ("pointer", key))
        for level in sorted(terms):
            scope = self.code.scopes[level]
            key = (*key, *terms[level])
            if ("pointer", key) not in scope.memo:
                distance = None
                for value, stride in terms[level]:
                    term = value if stride == 1 else self.code.emit(scope, f"mul nsw i64 {value}, {stride}")
                    distance = term if distance is None else self.code.emit(scope, f"add nsw i64 {distance}, {term}")
                self._advance(scope, type, pointer, distance or "0", ("pointer", key))
            pointer = scope.memo["pointer", key]
        if self.lane is not None and copy and access.strides[self.lane]:
            scope = self.code.scopes[max(terms)]
            ahead = copy * self.width * access.strides[self.lane]
            pointer = self._advance(scope, type, pointer, str(ahead), ("ahead", key, copy, self.width))
        return pointer

    def _advance(self, scope: Scope, type: str, pointer: str, distance: str, key: tuple) -> str:
        if key not in scope.memo:
            scope.memo[key] = self.code.emit(scope, f"getelementptr {type}, ptr {pointer}, i64 {distance}")
        return scope.memo[key]

    def _pointers(self, scope: Scope, access: Access, args: Sequence[Scalar], copy: int) -> str:
        """A vector of addresses, one for each lane."""
        type, width = memory(self.dtypes[access.buffer]), self.width
        pointer = self._pointer(access, args, copy)
        stride = access.strides[self.lane] if self.lane is not None else 0
        integers = vector("i64", width)
        offsets = "<" + ", ".join(f"i64 {stride * lane}" for lane in range(width)) + ">"
        for step, arg in zip(access.indirect, args, strict=False):
            if step and self.is_in_lanes(arg):
                term = self.of(arg, copy)
                if step != 1:
                    factor = (
                        literal(step, "i64", width)
                        if isinstance(step, int)
                        else self.splat(self.code.scopes[0], "i64", str(step), width)
                    )
                    term = self.code.emit(scope, f"mul {integers} {term}, {factor}")
                offsets = self.code.emit(scope, f"add {integers} {offsets}, {term}")
        return self.code.emit(scope, f"getelementptr {type}, ptr {pointer}, {integers} {offsets}")

    def _mask(self, scope: Scope, access: Access, args: Sequence[Scalar], copy: int, width: int) -> str | None:
        """The mask of an access: the valid lanes, and of those the ones that the access wants. None: all lanes."""
        lanes = self.masks[copy] if self.masks is not None and width > 1 else None
        if not access.masked:
            return lanes
        wanted = self.wide(args[-1], copy, width)
        if lanes is None:
            return wanted
        return self.code.emit(scope, f"and {vector('i1', width)} {lanes}, {wanted}")

    def _alias(self, buffer: int) -> str:
        """Metadata that says that a stored-to buffer overlaps no other."""
        return f", !alias.scope !{2 * buffer + 1}, !noalias !{2 * buffer + 2}" if self.stored else ""

    def _load(self, x: Scalar, copy: int) -> str:
        access, scope, width, dtype = x.payload, self._scope(x), self.width_of(x), x.dtype
        align, type = size(dtype), memory(dtype, width)
        stride = access.strides[self.lane] if self.lane is not None else 0
        scattered = [a for a, step in zip(x.args, access.indirect, strict=False) if step and self.is_in_lanes(a)]
        mask = self._mask(scope, access, x.args, copy, width)
        masks = vector("i1", width)
        zero = "zeroinitializer" if width > 1 else "0"
        emit = self.code.emit
        if access in self.transposed and width > 1:
            value = emit(scope, f"load {type}, ptr {self.transposed[access]}, align {align}")
        elif width == 1:
            value = self._load_one(scope, access, x.args, copy, dtype, mask)
        elif not scattered and stride in (1, -1):
            pointer = self._pointer(access, x.args, copy)
            if stride == -1:
                pointer = emit(scope, f"getelementptr {memory(dtype)}, ptr {pointer}, i64 {1 - width}")
                mask = mask and self._reversed(scope, "i1", mask, width)
            if mask is None:
                value = emit(scope, f"load {type}, ptr {pointer}, align {align}{self._alias(access.buffer)}")
            else:
                function = f"llvm.masked.load.{suffix(memory(dtype), width)}.p0"
                self.code.declare(type, function, "ptr", masks, type)
                value = emit(
                    scope,
                    f"call {type} @{function}(ptr align {align} {pointer}, {masks} {mask}, "
                    f"{type} {zero}){self._alias(access.buffer)}",
                )
            if stride == -1:
                value = self._reversed(scope, memory(dtype), value, width)
        else:
            pointers = self._pointers(scope, access, x.args, copy)
            function = f"llvm.masked.gather.{suffix(memory(dtype), width)}.v{width}p0"
            self.code.declare(type, function, f"<{width} x ptr>", masks, type)
            value = emit(
                scope,
                f"call {type} @{function}(<{width} x ptr> align {align} {pointers}, "
                f"{masks} {mask or 'splat (i1 true)'}, {type} {zero}){self._alias(access.buffer)}",
            )
        if dtype == "b8":
            return emit(scope, f"icmp ne {type} {value}, {zero}")
        return value

    def transpose_tile(self, access: Access, dtype: str, tile: str) -> None:
        """Loads a square of elements that are contiguous along another variable than the lanes', and stores it in
        `tile`, transposed, with the lanes contiguous."""
        scope, width, scalar = self.code.here, self.width, memory(dtype)
        type = vector(scalar, width)
        first = self._pointer(access, (), 0)
        rows = []
        for lane in range(width):
            place = self._advance(scope, scalar, first, str(lane * access.strides[self.lane]), ("row", access, lane))
            rows.append(
                self.code.emit(scope, f"load {type}, ptr {place}, align {size(dtype)}{self._alias(access.buffer)}")
            )
        # Rows that are `distance` apart exchange every other run of `distance` elements, for each power of two.
        distance = width // 2
        while distance:
            for upper in range(width):
                if upper & distance:
                    continue
                lower = upper + distance
                pair = rows[upper], rows[lower]
                for row, start in ((upper, 0), (lower, distance)):
                    order = ", ".join(
                        f"i32 {start + (k & ~distance) + (width if k & distance else 0)}" for k in range(width)
                    )
                    rows[row] = self.code.emit(
                        scope, f"shufflevector {type} {pair[0]}, {type} {pair[1]}, <{width} x i32> <{order}>"
                    )
            distance //= 2
        for number, row in enumerate(rows):
            place = self._advance(scope, scalar, tile, str(number * width), ("tile", tile, number))
            scope.put(f"store {type} {row}, ptr {place}, align {size(dtype)}")

    def _load_one(
        self, scope: Scope, access: Access, args: Sequence[Scalar], copy: int, dtype: str, mask: str | None
    ) -> str:
        """Loads a single element. If it is masked out, a zero on the stack is read instead."""
        pointer, type = self._pointer(access, args, copy), memory(dtype)
        if mask is not None:
            pointer = self.code.emit(scope, f"select i1 {mask}, ptr {pointer}, ptr %nothing")
        alias = self._alias(access.buffer) if mask is None else ""
        return self.code.emit(scope, f"load {type}, ptr {pointer}, align {size(dtype)}{alias}")

    def _reversed(self, scope: Scope, scalar: str, value: str, width: int) -> str:
        type = vector(scalar, width)
        order = ", ".join(f"i32 {lane}" for lane in reversed(range(width)))
        return self.code.emit(scope, f"shufflevector {type} {value}, {type} poison, <{width} x i32> <{order}>")

    def store(self, access: Access, args: Sequence[Scalar], value: str, dtype: str, copy: int, is_wide: bool) -> None:
        """Stores `value`, which has the width of the lanes, or of one element for a row store."""
        scope, width = self.code.here, self.width if is_wide else 1
        stride = access.strides[self.lane] if self.lane is not None else 0
        mask = self._mask(scope, access, args, copy, width)
        align, type, masks = size(dtype), memory(dtype, width), vector("i1", width)
        if dtype == "b8":
            value = self.code.emit(scope, f"zext {register(dtype, width)} {value} to {type}")
        alias = self._alias(access.buffer)
        if width == 1:
            pointer = self._pointer(access, args, copy)
            if mask is not None:
                pointer = self.code.emit(scope, f"select i1 {mask}, ptr {pointer}, ptr %anything")
            scope.put(f"store {type} {value}, ptr {pointer}, align {align}{alias if mask is None else ''}")
            return
        scattered = [a for a, step in zip(args, access.indirect, strict=False) if step and self.is_in_lanes(a)]
        if not scattered and stride in (1, -1):
            pointer = self._pointer(access, args, copy)
            if stride == -1:
                pointer = self.code.emit(scope, f"getelementptr {memory(dtype)}, ptr {pointer}, i64 {1 - width}")
                mask = mask and self._reversed(scope, "i1", mask, width)
                value = self._reversed(scope, memory(dtype), value, width)
            if mask is None:
                scope.put(f"store {type} {value}, ptr {pointer}, align {align}{alias}")
                return
            function = f"llvm.masked.store.{suffix(memory(dtype), width)}.p0"
            self.code.declare("void", function, type, "ptr", masks)
            scope.put(f"call void @{function}({type} {value}, ptr align {align} {pointer}, {masks} {mask}){alias}")
            return
        pointers = self._pointers(scope, access, args, copy)
        function = f"llvm.masked.scatter.{suffix(memory(dtype), width)}.v{width}p0"
        self.code.declare("void", function, type, f"<{width} x ptr>", masks)
        scope.put(
            f"call void @{function}({type} {value}, <{width} x ptr> align {align} {pointers}, "
            f"{masks} {mask or 'splat (i1 true)'}){alias}"
        )
