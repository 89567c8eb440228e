"""Shape propagation: the shapes of a graph's tensors for inputs of another size.

    shapes = Shapes()
    x = shapes.input(example, (65, 768), (1, 0))
    y = shapes.call("view", (x, 65, 12, 64), {})
    y.shape                                          (65, 12, 64)

Calls run on tensors without data, as in the compiler's trace. Only shapes matter, so equal calls with tensors of the
same types, as in equal layers, run once.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ..captured_graph.warnings_already_given import call_quietly
from ..concurrency.first_value_cache import once
from ..concurrency.outside_errors import reraise_from_outside
from ..ir.untraceable_graph import Untraceable
from ..tensors.eager_strides import packed_stride
from ..tensors.torch_state import TorchState


@contextlib.contextmanager
def switches_kept() -> Iterator[None]:
    """Restores torch's modes: repeated calls may switch them, and a failure skips the calls that switch back. The
    default dtype is one of the whole process, and calls that set it are not repeated."""
    before = TorchState.now()._replace(default_dtype=None)
    try:
        yield
    finally:
        before.restore()


def like_inputs(outputs: Any, inputs: Any, **options: Any) -> tuple:
    """Tensors of the shapes of gradients: the calls are repeated without a history."""
    return tuple(map(torch.empty_like, inputs if isinstance(inputs, (tuple, list)) else (inputs,)))


class Silence:
    """In place of the module `warnings`."""

    @staticmethod
    def warn(*_: Any, **__: Any) -> None:
        pass


@once
def silent_functions() -> dict[str, Any]:
    """The functions of `torch.nn.functional`, warning of no sizes: the program has not called them with these."""
    names = {**vars(F), "warnings": Silence}
    for name, function in vars(F).items():
        if type(function) is types.FunctionType and function.__globals__ is vars(F):
            code, defaults, closure = function.__code__, function.__defaults__, function.__closure__
            names[name] = types.FunctionType(code, names, function.__name__, defaults, closure)
            names[name].__kwdefaults__ = function.__kwdefaults__
    return names


def call_without_data(target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A call of the program's on tensors without data, in the modes that there are."""
    from ..lower.trace.traceability import why_not_called

    why = None if isinstance(target, str) or target is like_inputs else why_not_called(target)
    if why is not None:
        raise Untraceable(why)  # user code must not run a second time
    if isinstance(target, str):
        return call_quietly(getattr(args[0], target), args[1:], kwargs)
    if type(target) is types.FunctionType and vars(F).get(target.__name__) is target:
        target = silent_functions()[target.__name__]
    return call_quietly(target, args, kwargs)


class Shapes:
    """The propagation for one choice of input sizes."""

    def __init__(self, confirms: bool = False) -> None:
        """With `confirms`, eager's kernels are asked whether they accept a call."""
        # The compiler is imported at first use, not by `import burnish`.
        from ..lower.trace.aten_tracer import AtenTracer

        self.tracer = AtenTracer()
        self.tracer.confirms = confirms
        self.known: dict[Any, Any] = {}
        """The results of calls that do not write to tensors."""

    def input(self, example: torch.Tensor, shape: Sequence[int] | None = None, order: Sequence[int] = ()) -> Any:
        """A tensor like the example, or of another shape and dense in `order` (fastest dimension first)."""
        if shape is not None:
            shape = tuple(shape)
            example = torch.empty_strided(
                shape, packed_stride(shape, order), dtype=example.dtype, device=example.device
            )
        return self.tracer.input(example.detach(), "input", False)

    def call(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The result of a call. Raises Untraceable if it cannot be determined."""
        key = self.key_of(target, args, kwargs)
        if key is None:
            return self.called(target, args, kwargs)
        if key not in self.known:
            self.known[key] = self.called(target, args, kwargs)
        return self.known[key]

    def key_of(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The cache key of a call. None if it may write to a tensor, because that may change the shape."""
        name = target if isinstance(target, str) else getattr(target, "__name__", "_")
        if name.endswith("_") or name in ("setitem", "setattr") or "out" in kwargs:
            return None
        seen: dict[int, int] = {}
        try:
            key = target, self.part_of_key(args, seen), self.part_of_key(tuple(kwargs.items()), seen)
            hash(key)
        except TypeError:
            return None
        return key

    def part_of_key(self, arg: Any, seen: dict[int, int]) -> Any:
        if isinstance(arg, torch.Tensor):
            value = getattr(arg, "value", None)  # set on tensors without data
            if value is None:
                raise TypeError("a tensor with data")
            return seen.setdefault(id(arg), len(seen)), value.type, arg.storage_offset()
        if type(arg) in (tuple, list):
            return type(arg), tuple([self.part_of_key(part, seen) for part in arg])
        # 1, 1.0 and True are equal but different, and so are 0.0 and -0.0.
        return type(arg), repr(arg) if type(arg) is float else arg

    def called(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        from ..lower.trace.call_rewrites.scalar_tensor_index import at_first_places, has_scalar_index
        from ..lower.trace.inference_mode_and_dispatch_keys import plain_tensors, tracing

        if has_scalar_index(target, args):
            args = at_first_places(args)
        if target is torch.autograd.grad:
            target = like_inputs
        with tracing, plain_tensors(), torch.no_grad():
            modes = torch._C._len_torch_dispatch_stack()
            try:
                torch._C._push_on_torch_dispatch_stack(self.tracer)  # inside try: an interrupt may follow immediately
                return call_without_data(target, args, kwargs)
            except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
                reraise_from_outside(error)
                raise Untraceable(f"{target} cannot be traced: {error}") from error
            finally:
                if torch._C._len_torch_dispatch_stack() > modes:
                    torch._C._pop_torch_dispatch_stack(None)
