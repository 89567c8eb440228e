"""Prints a function from inside out with loop-invariant code motion: invariant values go before the loop.

    code = Code("loop0")
    code.loop("0", "1024", 16, [("<16 x float>", "zeroinitializer")], body, variable=1)

A `Scope` is the body of one loop; the open scopes form a stack. Every value is printed into the outermost scope that
binds all the variables it depends on, which moves invariant work out of loops. A scope's memo holds the values printed
there, so that an expression is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

Carried = list[tuple[str, str]]
"""Values carried from one iteration of a loop to the next: (LLVM type, operand)."""


@dataclass(slots=True, eq=False)
class Scope:
    label: str
    """The label of the current block."""
    variables: dict[int, str] = field(default_factory=dict)
    """The loop variables bound here, and their values (i64; for the lane variable: its first lane)."""
    lines: list[str] = field(default_factory=list)
    memo: dict[Hashable, str] = field(default_factory=dict)

    def put(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def begin(self, label: str) -> None:
        """Starts a block, to which the following lines belong."""
        self.lines.append(f"{label}:")
        self.label = label


class FunctionCode:
    def __init__(self, has_scaling: bool = False) -> None:
        """`has_scaling`: see `Host`."""
        self.has_scaling = has_scaling
        self.scopes: list[Scope] = [Scope("entry")]
        self.declarations: set[str] = set()
        self._names = 0

    @property
    def here(self) -> Scope:
        return self.scopes[-1]

    def name(self) -> str:
        self._names += 1
        return f"%v{self._names}"

    def emit(self, scope: Scope, instruction: str) -> str:
        name = self.name()
        scope.put(f"{name} = {instruction}")
        return name

    def call(self, scope: Scope, result: str, function: str, *args: tuple[str, str], flags: str = "") -> str:
        """Calls an intrinsic. `args` are pairs of type and operand."""
        self.declare(result, function, *(type for type, _ in args))
        return self.emit(scope, f"call {flags}{result} @{function}({', '.join(f'{t} {a}' for t, a in args)})")

    def declare(self, result: str, function: str, *types: str) -> None:
        self.declarations.add(f"declare {result} @{function}({', '.join(types)})")

    def level_of(self, variables: int) -> int:
        """The level of the innermost scope that binds one of these variables (a bit set). All are known there."""
        for level in range(len(self.scopes) - 1, 0, -1):
            if any(variables >> variable & 1 for variable in self.scopes[level].variables):
                return level
        return 0

    def loop(
        self,
        start: str,
        stop: str,
        step: int,
        carried: Carried,
        body: Callable[[str, list[str]], list[str]],
        *,
        variable: int | None = None,
        may_be_empty: bool = False,
    ) -> list[str]:
        """for (i = start; i < stop; i += step). `body` gets i and the carried values, and returns their next values."""
        outer, number = self.here, self._names
        self._names += 1
        before, head, exit = outer.label, f"head{number}", f"exit{number}"
        counter, names = self.name(), [self.name() for _ in carried]
        scope = Scope(head, {} if variable is None else {variable: counter})
        self.scopes.append(scope)
        after = body(counter, names)
        following = self.emit(scope, f"add nuw nsw i64 {counter}, {step}")
        again = self.emit(scope, f"icmp ult i64 {following}, {stop}")
        self.scopes.pop()
        scope.put(f"br i1 {again}, label %{head}, label %{exit}")

        # Values that the body hoisted are in the outer scope by now, and its loop comes after them.
        if may_be_empty:
            some = self.emit(outer, f"icmp ult i64 {start}, {stop}")
            outer.put(f"br i1 {some}, label %{head}, label %{exit}")
        else:
            outer.put(f"br label %{head}")
        outer.lines.append(f"{head}:")
        outer.put(f"{counter} = phi i64 [{start}, %{before}], [{following}, %{scope.label}]")
        for (type, initial), name, new in zip(carried, names, after, strict=True):
            outer.put(f"{name} = phi {type} [{initial}, %{before}], [{new}, %{scope.label}]")
        outer.lines += scope.lines
        outer.lines.append(f"{exit}:")
        outer.label = exit
        if not may_be_empty:
            return after
        results = [self.name() for _ in carried]
        for (type, initial), new, result in zip(carried, after, results, strict=True):
            outer.put(f"{result} = phi {type} [{initial}, %{before}], [{new}, %{scope.label}]")
        return results
