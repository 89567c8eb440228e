"""Torch functions other than tensor operations: switches, queries of switches, factories.

Queries are constants under the global-state guard. Switches that a graph can express (grad mode, autocast) are recorded
as nodes and run at once. The rest breaks the graph.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch.autograd import forward_ad

from ...foundation.torch_private import (
    C,
    InferenceMode,
    is_fwd_grad_enabled,
    pop_saved_tensors_default_hooks,
    push_saved_tensors_default_hooks,
    saved_tensors_hooks_disable,
    saved_tensors_hooks_enable,
    saved_tensors_hooks_get_disabled_error_message,
    top_saved_tensors_default_hooks,
)
from ...runtime.eager import setting_change_nodes
from .. import breaks
from ..interpreter.frames import PUSHED
from ..numbers.live_scalars import Expression, settled
from ..python.calls import torch_operation_calls
from ..python.operators import guard_before_native_read
from ..segments.effects import Effect
from . import function_modes

# Queries guarded by ``tensor_metadata.global_state``, or fixed for the life of the process.
QUESTIONS = frozenset(
    """
    is_grad_enabled is_inference_mode_enabled get_default_dtype is_autocast_enabled get_autocast_dtype
    get_autocast_gpu_dtype get_autocast_cpu_dtype is_autocast_cpu_enabled is_autocast_cache_enabled
    _is_torch_function_enabled _len_torch_function_stack _len_torch_dispatch_stack
    are_deterministic_algorithms_enabled _get_tracing_state _get_privateuse1_backend_name _has_cuda
    _is_autocast_available _get_deterministic_algorithms _cuda_isCurrentStreamCapturing _accelerator_getAccelerator
    has_lapack _has_mkldnn _get_default_device _is_alias_of is_vulkan_available _log_api_usage_once
    _has_torch_function has_torch_function_unary _are_functorch_transforms_active _is_functorch_wrapped_tensor
    is_tensor maybe_current_level _cuda_getDeviceCount can_cast promote_types result_type
    _is_torch_function_mode_enabled _functorch_is_batched is_storage _is_torch_function_all_disabled _is_tracing
    _has_torch_function_unary _has_torch_function_variadic has_torch_function has_torch_function_variadic
    _should_allow_numbers_as_tensors _is_key_in_tls _dispatch_tls_is_dispatch_key_excluded _is_any_autocast_enabled
""".split()
)

# Queries of settings that a program may change and ``global_state`` leaves out: each result has its own guard.
SETTINGS = frozenset(
    """
    _get_flash_sdp_enabled _get_math_sdp_enabled _get_mem_efficient_sdp_enabled _get_cudnn_sdp_enabled
    _get_sdp_priority_order _get_cudnn_depthwise_kernel
    _get_overrideable_sdp_enabled _get_fa3_sdp_enabled _get_math_sdp_allow_fp16_bf16_reduction
    _get_cudnn_enabled _get_cudnn_benchmark _get_cudnn_deterministic _get_cudnn_allow_tf32 _get_cublas_allow_tf32
    _get_cublas_allow_fp16_reduced_precision_reduction _get_cublas_allow_bf16_reduced_precision_reduction
    _get_mkldnn_enabled _get_mkldnn_deterministic _get_onednn_allow_tf32 _get_nnpack_enabled _get_qengine
    _get_float32_matmul_precision _get_deterministic_algorithms_warn_only _get_deterministic_fill_uninitialized_memory
    _get_warnAlways _get_overlap_comm is_deterministic_algorithms_warn_only_enabled
    is_anomaly_enabled is_anomaly_check_nan_enabled is_autocast_xla_enabled
    _is_multithreading_enabled _is_view_replay_enabled get_num_threads get_num_interop_threads
    _debug_only_are_vmap_fallback_warnings_enabled _functionalization_reapply_views_tls_
    _check_sparse_tensor_invariants _jit_llga_enabled
""".split()
)

# Switches that a graph can contain: executed at once, recorded, undone by the program's own code.
SWITCHES = frozenset(
    """
    _set_grad_enabled set_autocast_enabled set_autocast_dtype set_autocast_cache_enabled autocast_increment_nesting
    autocast_decrement_nesting clear_autocast_cache set_autocast_cpu_enabled set_autocast_gpu_dtype
    set_autocast_cpu_dtype _set_fwd_grad_enabled
""".split()
)

# Leaves written in Python that change torch's global state.
NOT_LEAVES: dict[FunctionType, str] = {
    function: f"torch.{function.__name__} changes a global switch"
    for function in map(
        vars(torch).get,
        """set_default_device set_default_tensor_type set_deterministic_debug_mode seed set_rng_state get_rng_state save
        load""".split(),
    )
}


def call(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """A builtin of torch: an operation, a query or a switch."""
    name = function.__name__
    if args and isinstance(args[0], InferenceMode):
        return call_on_object(m, args[0], name, args[1:])
    if name in SETTINGS and not args and not kwargs:
        answer = m.plainly(function)
        at_start = answer if m.settings_at_start is None else m.settings_at_start.get(name, answer)
        m.guard_outcome(Expression(operator.eq, (Expression(function, ()), at_start)), True)
        return answer
    if name == "_get_fp32_precision_getter":
        place = tuple(map(guard_before_native_read.settled, args))
        answer = m.plainly(function, *place)
        at_start = answer if m.settings_at_start is None else m.settings_at_start.get(" ".join(place), answer)
        m.guard_outcome(Expression(operator.eq, (Expression(function, place), at_start)), True)
        return answer
    if name in setting_change_nodes.SETTERS:
        return change_setting(m, function, args, kwargs)
    if name.startswith(ASKS) and name not in QUESTIONS and not kwargs and all(type(a) in PLAIN for a in args):
        return ask(m, function, args)
    if name == "is_grad_enabled" and getattr(m.region, "is_reentrant", False):
        m.region.asks_about_gradients("torch.is_grad_enabled()")
    if name in QUESTIONS:
        for value in args:
            guard_before_native_read.settle_all(m, value)
        if m.modes:
            with function_modes.entered_in_torch(m):
                return m.plainly(function, *args, **kwargs)
        return m.plainly(function, *args, **kwargs)  # without the recorder, which is a torch function mode itself
    if name == "_set_grad_enabled" and m.modes:
        return torch_operation_calls.perform(m, function, name, args, kwargs)  # which torch shows to modes
    if name in SWITCHES:
        args = tuple(map(settled, args))
        value = m.plainly(function, *args, **kwargs)
        m.recorder.calls.append(m.recorder.new_call(function, args, m.user_line()))
        return value
    if name in STACKS:
        return m.stop(breaks.GLOBAL_SWITCH, f"torch's {name}")
    if name in UNSEEN_FACTORIES:
        return m.stop(breaks.UNKNOWN_TENSOR, f"torch's {name}")
    seen = m.recorder.seen
    value = torch_operation_calls.call_torch(m, function, args, kwargs)
    if m.recorder.seen == seen and value is not PUSHED:
        # The recorder did not receive the call, so it can be neither recorded nor treated as a constant.
        m.late(breaks.GLOBAL_SWITCH if value is None else breaks.OPAQUE_CALL, f"torch's {name}", value)
    return value


ASKS = ("_get_", "_is_", "_has_")
"""How names of queries of ``torch._C`` begin."""

PLAIN = frozenset((bool, int, float, str, type(None)))


def ask(m: Any, function: Any, args: tuple) -> Any:
    """A query without tensors: its answer is guarded."""
    answer = m.plainly(function, *args)
    if type(answer) not in PLAIN:
        return m.late(breaks.OPAQUE_CALL, f"torch's {function.__name__}", answer)
    m.guard_outcome(Expression(operator.eq, (Expression(function, args), answer)), True)
    return answer


def change_setting(m: Any, function: Any, args: tuple, kwargs: dict) -> Any:
    """A change of a global setting: a node that runs at its place. Backends of others get the choice of kernels for
    attention. A compiler may run it only while it traces, so it is an effect, too: after the graph, the settings are
    those that the program has left."""
    is_shown = m.options.shows_operators and function.__name__.startswith("_set_sdp_")
    if m.region is not None or not (m.options.runs_python or is_shown):
        m.stop(breaks.GLOBAL_SWITCH, f"torch's {function.__name__} changes a global setting")
    for value in (*args, *kwargs.values()):
        guard_before_native_read.settle_all(m, value)
    if m.settings_at_start is None:
        m.settings_at_start = setting_change_nodes.values()
    args = tuple(map(guard_before_native_read.settled, args))
    kwargs = {name: guard_before_native_read.settled(value) for name, value in kwargs.items()}
    value = m.plainly(function, *args, **kwargs)
    target = function if is_shown else setting_change_nodes.ChangeSetting(function)
    if is_shown:  # the graph may begin with the setting at the segment's start
        name = setting_change_nodes.PAIRS[function.__name__]
        m.guard_outcome(Expression(operator.eq, (Expression(getattr(C, name), ()), m.settings_at_start[name])), True)
    call = m.recorder.new_call(target, args, m.user_line())
    call.kwargs.update(kwargs)
    m.recorder.calls.append(call)
    if is_shown:
        m.effects.append(Effect.of(m, function, args, kwargs))
    return value if value is None else m.heap.admit(value, m.heap.sources.pin(value))


HANDLERS: dict[Any, Callable] = {
    function: functools.partial(lambda function, m, args, kwargs: change_setting(m, function, args, kwargs), function)
    for function in setting_change_nodes.FUNCTIONS
}
"""How the functions of torch that change a setting are called."""


HANDLERS.update(function_modes.HANDLERS)


def of_dual_levels(name: str) -> Callable:
    """A handler in `forward_dual_levels`, which is loaded on first use."""

    def handler(m: Any, args: tuple, kwargs: dict) -> Any:
        from .higher_order import forward_dual_levels

        return getattr(forward_dual_levels, name)(m, args, kwargs)

    return handler


HANDLERS[forward_ad.enter_dual_level] = of_dual_levels("enter")
HANDLERS[forward_ad.exit_dual_level] = of_dual_levels("leave")
HANDLERS[forward_ad.make_dual] = of_dual_levels("make")
HANDLERS[forward_ad.unpack_dual] = of_dual_levels("unpack")


def handler_of(function: FunctionType) -> Callable | None:
    """The handler of a decorated function. Dynamo, once loaded, puts a wrapper around ``torch.manual_seed``."""
    while function.__globals__.get("__name__") == "torch._compile" and "__wrapped__" in function.__dict__:
        function = function.__dict__["__wrapped__"]
    return HANDLERS.get(function)


# ---- whether autograd's hooks for saved tensors may be used
#
#     with torch.autograd.graph.disable_saved_tensors_hooks("not inside of a transform"):
#         y = x.exp() * x                 # the graph reads no such switch: it is set after the graph, in the same order
#
# Entering such hooks is a break. What was set before has happened by then, so that it raises as in eager. Where hooks
# are entered already, switching them off raises, and the program's own ``finally`` runs: a break too.

ASK_HOOKS = saved_tensors_hooks_get_disabled_error_message
SWITCH_HOOKS = (saved_tensors_hooks_disable, saved_tensors_hooks_enable)
INNERMOST_HOOKS = top_saved_tensors_default_hooks


def ask_hooks(m: Any, args: tuple, kwargs: dict) -> Any:
    """The message given when the hooks were disabled, or None; guarded unless the program has set it itself."""
    message = m.plainly(ASK_HOOKS, *args, **kwargs)
    if not any(effect.function in SWITCH_HOOKS for effect in m.effects):
        m.guard_outcome(Expression(operator.eq, (Expression(ASK_HOOKS, ()), message)), True)
    return message


def switch_hooks(function: Any, m: Any, args: tuple, kwargs: dict) -> None:
    given = tuple(map(guard_before_native_read.settled, args))
    if function is SWITCH_HOOKS[0]:
        if m.plainly(INNERMOST_HOOKS, True) is not None:
            m.stop(breaks.GLOBAL_SWITCH, "hooks for saved tensors are in use, and torch refuses to switch them off")
        m.guard_outcome(Expression(operator.is_, (Expression(INNERMOST_HOOKS, (True,)), None)), True)
    m.plainly(function, *given, **kwargs)
    m.effects.append(Effect.of(m, function, given, kwargs))


def enter_or_leave_hooks(what: str, m: Any, args: tuple, kwargs: dict) -> Any:
    return m.stop(breaks.GLOBAL_SWITCH, f"hooks on saved tensors are {what}: `saved_tensors_hooks` or `save_on_cpu`")


BUILTINS: dict[Any, Callable] = {
    push_saved_tensors_default_hooks: functools.partial(enter_or_leave_hooks, "entered"),
    pop_saved_tensors_default_hooks: functools.partial(enter_or_leave_hooks, "left"),
    ASK_HOOKS: ask_hooks,
    is_fwd_grad_enabled: of_dual_levels("ask_for_tangents"),
    **{function: functools.partial(switch_hooks, function) for function in SWITCH_HOOKS},
}


# ---- which kernels of attention may be used
#
#     with sdpa_kernel(SDPBackend.MATH):
#         y = compiled(q)                 # the graph is compiled for kernels that were allowed then

ATTENTION = frozenset(
    """
    scaled_dot_product_attention multi_head_attention_forward _native_multi_head_attention
    _transformer_encoder_layer_fwd
""".split()
)
KERNELS_OF_CPUS = ("_get_flash_sdp_enabled", "_get_math_sdp_enabled")
KERNELS_OF_GPUS = ("_get_mem_efficient_sdp_enabled", "_get_cudnn_sdp_enabled", "_get_sdp_priority_order")


def guard_kernels_of_attention(m: Any, graph: torch.fx.GraphModule) -> None:
    """Guard the choice of kernels, if ``graph`` or one in it has a call of attention."""
    graphs = [part.graph for part in graph.modules() if isinstance(part, torch.fx.GraphModule)]
    names = {str(getattr(node.target, "__name__", "")) for each in graphs for node in each.nodes}
    if ATTENTION.isdisjoint(name.partition(".")[0] for name in names):
        return
    for name in (*KERNELS_OF_CPUS, *(KERNELS_OF_GPUS if torch.cuda.is_initialized() else ())):
        ask = getattr(C, name)
        at_start = ask() if m.settings_at_start is None else m.settings_at_start[name]
        m.guard_outcome(Expression(operator.eq, (Expression(ask, ()), at_start)), True)


# These change the stack of modes that contains the recorder: never allowed while it is active.
STACKS = frozenset(
    """
    _push_on_torch_function_stack _pop_torch_function_stack _push_on_torch_dispatch_stack _pop_torch_dispatch_stack
    _set_torch_function_mode _set_torch_dispatch_mode _unset_dispatch_mode _set_dispatch_mode
""".split()
)

# Functions that make tensors without calling torch function modes.
UNSEEN_FACTORIES = frozenset(("_make_subclass", "_nested_tensor_from_mask"))


def call_on_object(m: Any, owner: Any, name: str, args: tuple) -> Any:
    """``__enter__`` or ``__exit__`` of a mode object that lives in the graph."""
    handle = m.recorder.handle_of(owner)
    if handle is None or any(a is not None for a in args):
        m.stop(breaks.GLOBAL_SWITCH, f"{name} of a {type(owner).__qualname__}")
    value = m.plainly(getattr(owner, name), *args)
    m.recorder.calls.append(m.recorder.new_call(name, (handle, *args), m.user_line()))
    return value
