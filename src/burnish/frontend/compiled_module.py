"""Compiled ``nn.Module``: a wrapper module with the original's attributes, hooks and signature.

    compiled = burnish.compile(model)
    compiled.layers[0] is model.layers[0]      # attributes that it does not have are read from the original
    compiled.state_dict()                      # keys begin with `_orig_mod.`, as those of torch.compile do

Only calls differ. Writes to attributes of the wrapper go to the original.

Frameworks use `isinstance(model, torch._dynamo.OptimizedModule)` to see whether a model is compiled. If Dynamo is
loaded (any caller of that has loaded it) the result is True, through `__class__`; nothing here loads Dynamo.

`compile_(model)` compiles in place instead: the module keeps its class, its keys and its signature, and its calls
run compiled.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any, TypeVar

import torch

from ..capture.engine.engine import Program
from ..capture.engine.program_options import Options
from ..capture.python.builtin_functions import PYTHON_FUNCTIONS
from ..capture.python.polyfills.object_polyfills import call_entry
from ..errors import Unsupported, UserError, hide_own_frames
from ..integrations.torch_compile import know_burnish, torch_arguments
from . import late_bound_api, marks, stance
from .compile_options import options_of
from .live_programs import as_html, keep_track, state_of

Module = TypeVar("Module", bound=torch.nn.Module)

# Hooks around a call. Both modules share the same tables, so a hook on either is run once, by the original.
HOOK_TABLES = """
    _forward_hooks _forward_hooks_with_kwargs _forward_hooks_always_called _forward_pre_hooks
    _forward_pre_hooks_with_kwargs _backward_hooks _backward_pre_hooks
""".split()

# Wrappers that communicate with other processes. The module inside is what can be compiled.
WRAPPERS = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)


class CompiledModule(torch.nn.Module):
    """Calls run compiled; everything else is delegated to the original module."""

    _orig_mod: torch.nn.Module

    def __init__(self, module: torch.nn.Module, options: Options, kwargs: dict[str, Any]):
        super().__init__()
        self._start(module._orig_mod if isinstance(module, CompiledModule) else module, options, kwargs)

    def _start(self, original: torch.nn.Module, options: Options, kwargs: dict[str, Any]) -> None:
        inside = original.module if isinstance(original, WRAPPERS) else None
        from .forward_between_hooks import ForwardBetweenHooks  # here: not before something is compiled

        program = Program(call_entry, options, original) if inside is None else Program(call_block, options, inside)
        keep_track(program)

        self._modules["_orig_mod"] = original
        self.__dict__.pop("_is_full_backward_hook", None)  # belongs to the tables, so the original's is used
        self.__dict__.update({name: original.__dict__[name] for name in HOOK_TABLES if name in original.__dict__})
        self.__dict__.update(
            __burnish_program__=program,
            _kwargs=kwargs,
            _options=options,
            _inside=None if inside is None else _runs_within(program, inside),
            _between_hooks=ForwardBetweenHooks(kwargs),
        )

    @property
    def __burnish_original__(self) -> torch.nn.Module:
        return self._modules["_orig_mod"]  # type: ignore[return-value]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__
        original = own["_modules"]["_orig_mod"]
        try:
            if stance.forces_eager() and (own["_inside"] is None or stance.in_force().backend is None):
                entry = [original, args, kwargs]
                return stance.run_plainly(own["__burnish_program__"], original, args, kwargs, entry)
            if own["_inside"] is not None:
                return own["_inside"](original, args, kwargs)
            if own["_forward_pre_hooks"] and own["_between_hooks"].is_needed(original):
                return own["_between_hooks"].run(original, args, kwargs)
            return own["__burnish_program__"].run([original, args, kwargs])
        except Unsupported as error:
            hide_own_frames(error)
            raise

    @property
    def forward(self) -> Forward:  # type: ignore[override]
        return Forward(self, self._orig_mod.forward)

    @property
    def __class__(self) -> type:  # type: ignore[override]
        """The class that `isinstance` sees besides the type; transformers reads the signature of `forward` from it."""
        if "_shown_class" in self.__dict__:
            return self.__dict__["_shown_class"]
        original = self.__dict__.get("_modules", {}).get("_orig_mod")
        return CompiledModule if original is None else _shown_class(type(original))

    def _get_name(self) -> str:
        return "CompiledModule"

    def extra_repr(self) -> str:
        program = self.__dict__.get("__burnish_program__")
        return "" if program is None else state_of(program)  # not made yet, and shown by a debugger

    @property
    def _repr_html_(self) -> Callable[[], str]:
        own = getattr(self._orig_mod, "_repr_html_", None)
        return (lambda: as_html(repr(self))) if own is None else own

    @property
    def _compile_kwargs(self) -> dict[str, Any]:
        """The arguments to compile with again: those of `torch.compile`, if that was called. Its reader (Lightning's
        Fabric) passes them to `torch.compile`, so from here on that has to know the backend "burnish"."""
        if "_asked" not in self.__dict__:
            know_burnish()
            return torch_arguments(self._kwargs)
        if self.__dict__["_asked"] is None:
            raise AttributeError("_compile_kwargs was deleted")
        know_burnish()
        return self.__dict__["_asked"]

    @property
    def dynamo_ctx(self) -> Callable[[Any], Any]:
        """Compiles further functions like this module: Lightning's Trainer uses it for its steps."""
        return functools.partial(_compile_like, self._kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._orig_mod.forward)

    # ---- attributes

    def __getattr__(self, name: str) -> Any:
        original = self.__dict__.get("_modules", {}).get("_orig_mod")
        if original is None:
            raise AttributeError(f"{name} of a compiled module that is still being made")
        if name == "_orig_mod":
            return original
        added = self._added_member(name) if "_shown_class" in self.__dict__ else None
        return getattr(original, name) if added is None else added

    def _added_member(self, name: str) -> Any:
        """A member of a class that was derived from the wrapper's and assigned to it, as ``fully_shard`` does."""
        shown, base = self.__dict__["_shown_class"], self.__dict__["_shown_base"]
        added = shown.__mro__[: shown.__mro__.index(base)]
        found = next((kind.__dict__[name] for kind in added if name in kind.__dict__), None)
        return found.__get__(self, shown) if hasattr(found, "__get__") else found

    def _show_class(self, value: type) -> None:
        base = self.__dict__.get("_shown_base", self.__class__)
        self.__dict__.update(_shown_class=value, _shown_base=base)
        if value is base:
            del self.__dict__["_shown_class"], self.__dict__["_shown_base"]

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        added = self._added_member("_apply") if "_shown_class" in self.__dict__ else None
        return (added or super()._apply)(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if "_orig_mod" not in self.__dict__.get("_modules", ()):
            super().__setattr__(name, value)  # nn.Module.__init__ is running
        elif name == "_orig_mod":
            if value is not self._orig_mod:
                self._start(value, self._options, self._kwargs)
        elif name == "forward":
            self._orig_mod.forward = self._unwrapped(value)
        elif name == "_compile_kwargs":
            self.__dict__["_asked"] = value
        elif name == "__class__" and issubclass(value, self.__dict__.get("_shown_base", self.__class__)):
            self._show_class(value)
        else:
            setattr(self._orig_mod, name, value)

    def _unwrapped(self, forward: Any) -> Any:
        """A new ``forward`` as one of the original module."""
        if isinstance(forward, Forward) and forward.module is self:
            return forward.inside
        if isinstance(forward, MethodType) and forward.__self__ is self:
            return MethodType(forward.__func__, self._orig_mod)
        return forward

    def __delattr__(self, name: str) -> None:
        if name == "_compile_kwargs":
            self.__dict__["_asked"] = None
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    @property
    def training(self) -> bool:  # type: ignore[override]
        """The original's: wrapper and original share the state."""
        return self._orig_mod.training

    @training.setter
    def training(self, value: bool) -> None:
        if "_orig_mod" in self.__dict__.get("_modules", ()):
            self._orig_mod.training = value

    def register_parameter(self, name: str, param: Any) -> None:
        self._orig_mod.register_parameter(name, param)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        self._orig_mod.register_buffer(name, tensor, persistent)

    def add_module(self, name: str, module: Any) -> None:
        self._orig_mod.add_module(name, module)

    def register_module(self, name: str, module: Any) -> None:
        self._orig_mod.register_module(name, module)

    def train(self, mode: bool = True) -> CompiledModule:
        self._orig_mod.train(mode)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Also accepts the original's own keys: what was saved from it can be loaded here."""
        inside = f"{prefix}_orig_mod."
        for key in [key for key in state_dict if key.startswith(prefix) and not key.startswith(inside)]:
            state_dict[inside + key[len(prefix) :]] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *args)

    # ---- copies

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _blank, (), {"module": self._orig_mod, "kwargs": self._kwargs}

    def __setstate__(self, state: dict[str, Any]) -> None:
        torch.nn.Module.__init__(self)
        self._start(state["module"], options_of(**state["kwargs"]), state["kwargs"])

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        copied = memo[id(self)] = _blank()
        torch.nn.Module.__init__(copied)
        copied._start(copy.deepcopy(self._orig_mod, memo), self._options, self._kwargs)
        return copied

    # ---- what only some modules have: delegated to the original, which may raise

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]  # type: ignore[index]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._orig_mod[key] = value  # type: ignore[index]

    def __delitem__(self, key: Any) -> None:
        del self._orig_mod[key]  # type: ignore[attr-defined]

    def __iter__(self) -> Any:
        return iter(self._orig_mod)  # type: ignore[call-overload]

    def __contains__(self, key: Any) -> bool:
        return key in self._orig_mod  # type: ignore[operator]


class Forward:
    """``compiled.forward``: runs compiled, and looks like the original's bound method.

    Frameworks wrap a ``forward`` and write it back (Accelerate does, for mixed precision). The write goes to the
    original module, so the wrapper is compiled with it. Inside it, this object calls the original ``forward``.
    """

    def __init__(self, module: CompiledModule, inside: Any):
        functools.update_wrapper(self, inside, updated=())
        del self.__wrapped__
        self.module, self.inside = module, inside

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.module._orig_mod.forward == self.inside:
            return self.module(*args, **kwargs)
        return self.inside(*args, **kwargs)

    def aot_compile(self, example_inputs: Any) -> Any:
        """One graph that takes the module as its first argument, as ``torch.compile(model).forward.aot_compile``."""
        from ..integrations.torch_aot_compile import of_module

        return of_module(self.module._orig_mod, self.module._options.fullgraph, example_inputs)

    def __getattr__(self, name: str) -> Any:
        if name == "inside":  # a copy that is not initialized yet
            raise AttributeError(name)
        return getattr(self.inside, name)  # `__func__` and `__self__`, if it is a method

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.inside)


class CompiledRegion:
    """Runs a module inside another one compiled: ``nn.Module`` calls this instead of its own call."""

    def __init__(self, program: Program, block: torch.nn.Module):
        self.__burnish_program__ = program
        self.block = block

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if stance.forces_eager():
            entry = [self.block, args, kwargs]
            return stance.run_plainly(self.__burnish_program__, self.block._call_impl, args, kwargs, entry)
        return self.__burnish_program__.run([self.block, args, kwargs])

    def run_within(self, wrapper: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call ``wrapper``, which calls the module; the module runs compiled during this call."""
        before = self.block.__dict__.get("_compiled_call_impl")
        self.block._compiled_call_impl = self
        try:
            return wrapper(*args, **kwargs)
        finally:
            self.block._compiled_call_impl = before


def _runs_within(program: Program, inside: torch.nn.Module) -> Callable[..., Any]:
    """How to call a wrapper of a module so that the module runs compiled."""
    return call_entry if isinstance(inside, CompiledModule) else CompiledRegion(program, inside).run_within


def call_block(block: Any, args: Any, kwargs: Any) -> Any:
    return block._call_impl(*args, **kwargs)


# ---- a call of a wrapper in compiled code: a graph break, in which the inner module runs compiled


def _forward_as_a_break(forward: Callable[..., Any]) -> Callable[..., Any]:
    @marks.disable(reason="it talks to other processes; the module inside it runs compiled")
    def run_wrapper(region: CompiledRegion, wrapper: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inside = wrapper.module
        if isinstance(inside, CompiledModule) or inside._compiled_call_impl is not None or region.block is not inside:
            return forward(wrapper, *args, **kwargs)
        return region.run_within(functools.partial(forward, wrapper), args, kwargs)

    run_wrapper.__qualname__ = forward.__qualname__  # shown in the break

    def call_wrapper(region: CompiledRegion, wrapper: Any, *args: Any, **kwargs: Any) -> Any:
        return run_wrapper(region, wrapper, args, kwargs)

    def handle(tracer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        program = Program(call_block, tracer.options, args[0].module)
        keep_track(program)
        region = CompiledRegion(program, args[0].module)
        tracer.heap.admit(region, tracer.heap.sources.pin(region))  # the segment keeps it alive
        return tracer.call(call_wrapper, (region, *args), kwargs)

    return handle


for _wrapper in WRAPPERS:
    PYTHON_FUNCTIONS[_wrapper.forward] = _forward_as_a_break(_wrapper.forward)


_shown: weakref.WeakKeyDictionary[type, dict[type, type]] = weakref.WeakKeyDictionary()


def _shown_class(kind: type) -> type:
    """The class that a compiled module of this class reports. It has no instances."""
    loaded = sys.modules.get("torch._dynamo.eval_frame")
    base = getattr(loaded, "OptimizedModule", CompiledModule)
    made = _shown.setdefault(kind, {})
    if base not in made:
        # transformers' Trainer lets a model write its own files only if it is an instance of the class that does.
        saves_itself = type(kind) is type and callable(getattr(kind, "save_pretrained", None))
        bases = (Unannounced, base, kind) if saves_itself else (base,)
        made[base] = type(
            kind.__name__,
            bases,
            {
                "forward": kind.forward,
                "__module__": kind.__module__,
                "__qualname__": kind.__qualname__,
                "__doc__": kind.__doc__,
            },
        )
    return made[base]


class Unannounced:
    """A base that hides a subclass from the other bases' ``__init_subclass__``: the class is only used in
    ``isinstance``."""

    def __init_subclass__(cls) -> None:
        pass


def _blank() -> CompiledModule:
    """An uninitialized wrapper. Its state is set later, so the original may contain its own wrapper."""
    return CompiledModule.__new__(CompiledModule)


def _compile_like(kwargs: dict[str, Any], function: Any) -> Any:
    return late_bound_api.compile(function, **kwargs)


def compile_(module: Module, **kwargs: Any) -> Module:
    """Compile a module in place: it keeps its class, its keys and its signature, and its calls run compiled.

    The arguments are those of ``burnish.compile``. Copies of the module, and what is loaded from it, are not
    compiled, as with torch's ``nn.Module.compile``.
    """
    if not isinstance(module, torch.nn.Module):
        raise UserError(
            f"burnish.compile_ compiles a module in place, not {module!r:.80}. "
            f"For a function, use what burnish.compile(fn) returns."
        )
    if isinstance(module, CompiledModule):
        module.__dict__.pop("_asked", None)
        module._start(module._orig_mod, options_of(**_all_arguments(kwargs)), _all_arguments(kwargs))
        return module
    if isinstance(module, WRAPPERS):
        compile_(module.module, **kwargs)
        return module
    disable = kwargs.pop("disable", False)
    module._compiled_call_impl = (
        late_bound_api.compile(module._call_impl, disable=disable, **kwargs) if not disable else None
    )
    return module


def _all_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"fullgraph": False, "dynamic": None, "backend": "burnish", "mode": None, "options": None, **kwargs}


def was_compiled(model: Any) -> bool:
    """Whether the last call of a compiled function or module, or of one inside it, ran compiled code.

    False before the first call; if compiling was given up; and if a stance or a torch function mode of the user
    requires plain Python. It also detects a framework that bypasses a model's compiled form.
    """
    return any(program.ran_compiled for program in _programs_of(model))


def _programs_of(model: Any) -> Iterator[Program]:
    """The programs of a callable; for a module, those of its submodules and methods too."""
    modules = model.modules() if isinstance(model, torch.nn.Module) else (model,)
    for each in modules:
        members = getattr(each, "__dict__", {})
        for value in (each, *members.values()):
            own = getattr(value, "__dict__", {})
            between = own.get("_between_hooks")  # with a program of its own, for `forward`
            for holder in (own, getattr(getattr(between, "compiled", None), "__dict__", {})):
                if isinstance(program := holder.get("__burnish_program__"), Program):
                    yield program
