"""Every private name of torch that Burnish uses outside ``backends`` and ``integrations``, and what it is for.

    from ..foundation.torch_private import len_torch_dispatch_stack

A release of torch may drop any of them. Without one, nothing is compiled, and a warning names it (``why_not_usable``);
one with an ``otherwise`` is replaced by that, and its purpose says what is lost. Names are bound once, so a call of one
costs no lookup in torch. ``LIVE`` has those that torch itself assigns to.
``tests/test_torch_private.py`` calls each, and ``tests/test_architecture.py`` keeps them out of other modules.
"""

from __future__ import annotations

import importlib
import re
import sys
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch

OLDEST, NEWEST = (2, 11), (2, 15)
"""The releases of torch that the tests have passed with. A newer one needs the setting ``untested_torch``."""

_numbers = re.match(r"v?(\d+)\.(\d+)", torch.__version__)
RELEASE = (int(_numbers[1]), int(_numbers[2])) if _numbers else (sys.maxsize, 0)
"""The one that runs. A version without numbers, of somebody's own build, counts as a newer one."""

REQUIRED, UNCALLED = object(), object()
"""What happens without a name: nothing is compiled; or there is no rule for it, since no program can call it.
``UNCALLED`` is also for classes that only rare code asks for: no object is of the class in its place."""
PURPOSES: dict[str, str] = {}
MISSING: list[str] = []


class Absent(type):
    """A class in the place of a name that this torch lacks. What modules make of names at their import can be made of
    it as well, so that the warning comes and not an error; nothing else uses it, as nothing is compiled."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(name, (), {})

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return cls

    def __invert__(cls) -> Any:
        return cls

    def __int__(cls) -> int:
        return 0


def private(path: str, purpose: str, otherwise: Any = REQUIRED) -> Any:
    """The object with that path. Where there is none: ``otherwise``, or a class in its place."""
    PURPOSES[path] = purpose
    module = path
    while module not in sys.modules:
        module = module.rpartition(".")[0]
    try:
        return reduce(getattr, path[len(module) + 1 :].split(".") if module != path else (), sys.modules[module])
    except AttributeError:
        if otherwise is REQUIRED and path not in MISSING:
            MISSING.append(path)
        return Absent(path.rpartition(".")[2], (), {}) if otherwise in (REQUIRED, UNCALLED) else otherwise


def why_not_usable(untested: bool) -> str | None:
    """A sentence if this torch is too old, newer than what was tested (unless that is allowed), or lacks a name."""
    oldest, newest = (".".join(map(str, version)) for version in (OLDEST, NEWEST))
    if RELEASE < OLDEST or RELEASE > NEWEST and not untested:
        hint = "" if RELEASE < OLDEST else "; BURNISH_UNTESTED_TORCH=1 compiles all the same"
        return f"this is PyTorch {torch.__version__}, and Burnish was tested with {oldest} to {newest}{hint}."
    more = f" and {len(MISSING) - 3} more names" if len(MISSING) > 3 else ""
    return f"this is PyTorch {torch.__version__}, which has no {', '.join(MISSING[:3])}{more}." if MISSING else None


LIVE = {
    "torch.autograd.forward_ad._current_level": "tells whether a level of forward-mode gradients is open",
    "torch.nn.modules.module._global_backward_hooks": "has the hooks of all modules",
    "torch.nn.modules.module._global_is_full_backward_hook": "tells which kind of hooks all modules have",
    "torch.utils.checkpoint._checkpoint_debug_enabled": "says what torch's checkpoint does with its `debug`",
    "torch.utils.checkpoint._enable_checkpoint_early_stop": "says where torch's checkpoint stops to recompute",
}
"""Variables that change: they are read from their modules, which are public, each time."""

LATER = {
    "DeviceContext": "torch.utils._device.DeviceContext",
    "default_device_module": "torch.utils._device",
    "functional_collectives": "torch.distributed._functional_collectives",
}
"""In modules that ``import torch`` leaves out, and so imported when they are first needed: the mode of
``with torch.device(...)``, the module whose variables hold the default device, and collectives for graphs. As they are
not looked for before, a torch without one gets no warning: an error says it where it is needed."""


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = LATER[name].rpartition(".")
    return getattr(importlib.import_module(module), attribute, None) or importlib.import_module(LATER[name])


ATTRIBUTES = {
    "Tensor": """
        _base _cdata _is_view _is_zerotensor _nested_tensor_size _nested_tensor_storage_offsets _nested_tensor_strides
        _use_count _version
    """,
    "nn.Module": """
        _apply _backward_hooks _call_impl _compiled_call_impl _forward_hooks _forward_pre_hooks _get_backward_hooks
        _get_backward_pre_hooks _is_full_backward_hook _load_from_state_dict _modules
    """,
    "optim.Optimizer": "_optimizer_step_post_hooks _optimizer_step_pre_hooks _warned_capturable_if_run_uncaptured",
    "fx.Graph": "_codegen",
    "autograd.graph.Node": "_input_metadata _saved_ord",
    "OpOverload": "_opname _overloadpacket _schema",
    "OpOverloadPacket": "_qualified_op_name",
    "CustomOpDef": "_abstract_fn _backend_fns _backward_fn _init_fn _opoverload _setup_context_fn",
}
"""Private attributes of torch's objects, by class, which are read where the object is: what a tensor shares memory with
and how often it was written to, which hooks run, what an operator is made of. Those of tensors and modules are looked
for here; of the other classes there is no object yet."""

for _class, _example in (("Tensor", torch.Tensor), ("nn.Module", torch.nn.Module())):
    MISSING += [f"torch.{_class}.{name}" for name in ATTRIBUTES[_class].split() if not hasattr(_example, name)]

if TYPE_CHECKING:
    from torch._C import Graph as ScriptGraph
    from torch._C import TensorType, TupleType
    from torch._library.custom_ops import CustomOpDef
    from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
    from torch.fx._lazy_graph_module import _LazyGraphModule as LazyGraphModule
    from torch.utils._python_dispatch import TorchDispatchMode
else:
    CustomOpDef = private("torch._library.custom_ops.CustomOpDef", "is what `torch.library.custom_op` makes")
    HigherOrderOperator = private("torch._ops.HigherOrderOperator", "is an operator that takes functions")
    OpOverload = private("torch._ops.OpOverload", "is an operator")
    OpOverloadPacket = private("torch._ops.OpOverloadPacket", "is the operators of one name")
    TorchDispatchMode = private(
        "torch.utils._python_dispatch.TorchDispatchMode", "is what our modes that see operators inherit from"
    )
    LazyGraphModule = private(
        "torch.fx._lazy_graph_module._LazyGraphModule", "is a graph whose code is written when it is first called"
    )
    ScriptGraph = private("torch._C.Graph", "is the graph of a scripted function, in annotations", UNCALLED)
    TensorType = private("torch._C.TensorType", "is the type of a tensor in one; without it the graph ends", UNCALLED)
    TupleType = private("torch._C.TupleType", "is the type of a tuple in one; the same", UNCALLED)

# Modes: what intercepts calls.
len_torch_function_stack = private(
    "torch._C._len_torch_function_stack", "counts the function modes of this thread, for guards"
)
len_torch_dispatch_stack = private(
    "torch._C._len_torch_dispatch_stack", "counts the dispatch modes of this thread, for guards"
)
get_function_stack_at = private("torch._C._get_function_stack_at", "finds the default device among the function modes")
pop_torch_function_stack = private("torch._C._pop_torch_function_stack", "removes modes that an interrupt left")
push_on_torch_dispatch_stack = private(
    "torch._C._push_on_torch_dispatch_stack", "enters a dispatch mode such that an interrupt can undo it"
)
pop_torch_dispatch_stack = private("torch._C._pop_torch_dispatch_stack", "leaves it")
get_torch_function_state = private(
    "torch._C._get_torch_function_state", "reads whether overrides are on, to put it back after a trace"
)
set_torch_function_state = private("torch._C._set_torch_function_state", "puts it back")
is_torch_function_enabled = private("torch._C._is_torch_function_enabled", "reads whether overrides are on, for guards")
DisableTorchFunction = private(
    "torch._C.DisableTorchFunction", "lets our own reads of tensors run no code of modes and subclasses"
)
DisableTorchFunctionSubclass = private("torch._C.DisableTorchFunctionSubclass", "lets them run no code of subclasses")
DisableTorchDispatch = private(
    "torch._C._DisableTorchDispatch", "runs a gradient function on tensors of the tracer without it"
)
disabled_torch_function_impl = private(
    "torch._C._disabled_torch_function_impl", "marks subclasses without overrides of functions"
)
disabled_torch_dispatch_impl = private(
    "torch._C._disabled_torch_dispatch_impl", "marks subclasses without overrides of operators"
)
push_mode = private("torch.overrides._push_mode", "enters a function mode of the program again, where a segment starts")
pop_mode = private("torch.overrides._pop_mode", "leaves it")
get_current_function_mode = private(
    "torch.overrides._get_current_function_mode", "is answered from the emulated stack of modes", UNCALLED
)
get_current_function_mode_stack = private(
    "torch.overrides._get_current_function_mode_stack", "is answered from the same stack", UNCALLED
)
disable_current_modes = private(
    "torch.utils._python_dispatch._disable_current_modes", "runs our own computations outside all modes"
)
get_current_dispatch_mode = private(
    "torch.utils._python_dispatch._get_current_dispatch_mode", "finds the tracer that records forward-mode gradients"
)
python_dispatch = private("torch.utils._python_dispatch", "corrects aliases of wrapper subclasses as their rules do")

# Dispatch: which kernel an operator takes.
DispatchKey = private("torch._C.DispatchKey", "names the keys that make a tensor special")
DispatchKeySet = private("torch._C.DispatchKeySet", "compares the keys of tangents and inputs")
AutoDispatchBelowAutograd = private(
    "torch._C._AutoDispatchBelowAutograd", "asks for the sizes of a recurrent layer's result without a graph"
)
ExcludeDispatchKeyGuard = private(
    "torch._C._ExcludeDispatchKeyGuard", "decomposes an operator without calling the tracer again"
)
ForceDispatchKeyGuard = private("torch._C._ForceDispatchKeyGuard", "puts the keys of a thread back after a trace")
dispatch_tls_local_include_set = private("torch._C._dispatch_tls_local_include_set", "reads those keys")
dispatch_tls_local_exclude_set = private("torch._C._dispatch_tls_local_exclude_set", "reads those keys")
dispatch_dump = private("torch._C._dispatch_dump", "tells whether a kernel of an operator is written in Python")
dispatch_get_all_op_names = private(
    "torch._C._dispatch_get_all_op_names", "lists the operators whose errors are checked"
)
dispatch_has_kernel_for_dispatch_key = private(
    "torch._C._dispatch_has_kernel_for_dispatch_key", "tells whether an operator can be run on meta tensors"
)
dispatch_key_parse = private("torch._C._dispatch_key_parse", "finds the bit of TorchScript's tracer, for native guards")
dispatch_keys = private(
    "torch._C._dispatch_keys", "finds the keys of a tensor, for guards of tangents and for native guards"
)
jit_get_schemas_for_operator = private(
    "torch._C._jit_get_schemas_for_operator", "finds the schemas of an operator before torch makes its overloads"
)
get_tracing_state = private("torch._C._get_tracing_state", "tells whether TorchScript traces: then eager runs")

# Autograd.
execution_engine = private(
    "torch.autograd.Variable._execution_engine", "runs backward inside a backward, and calls back at its end"
)
set_grad_enabled = private("torch._C._set_grad_enabled", "switches gradients in graphs, without a context manager")
InferenceMode = private(
    "torch._C._InferenceMode", "switches inference mode in graphs, and is what `torch.inference_mode` makes"
)
is_fwd_grad_enabled = private("torch._C._is_fwd_grad_enabled", "reads the switch of forward-mode gradients, for guards")
set_fwd_grad_enabled = private("torch._C._set_fwd_grad_enabled", "puts it back")
current_graph_task_id = private("torch._C._current_graph_task_id", "tells one backward pass from another")
get_current_graph_task_keep_graph = private(
    "torch._C._autograd._get_current_graph_task_keep_graph", "tells whether saved tensors may be freed"
)
will_engine_execute_node = private(
    "torch._C._will_engine_execute_node", "tells whether this backward pass computes a leaf's gradient"
)
push_saved_tensors_default_hooks = private(
    "torch._C._autograd._push_saved_tensors_default_hooks", "enters hooks of saved tensors, for checkpoints"
)
pop_saved_tensors_default_hooks = private("torch._C._autograd._pop_saved_tensors_default_hooks", "leaves them")
top_saved_tensors_default_hooks = private(
    "torch._C._autograd._top_saved_tensors_default_hooks",
    "tells whether a program has such hooks: then they must be called",
)
saved_tensors_hooks_disable = private(
    "torch._C._autograd._saved_tensors_hooks_disable", "is put into graphs where programs call it"
)
saved_tensors_hooks_enable = private("torch._C._autograd._saved_tensors_hooks_enable", "the same")
saved_tensors_hooks_get_disabled_error_message = private(
    "torch._C._autograd._saved_tensors_hooks_get_disabled_error_message", "guards whether such hooks are forbidden"
)
make_saved_tensor = private(
    "torch._C._autograd._make_saved_tensor",
    "saves one tensor with hooks; without it (torch 2.11) a node of autograd is made for it",
    None,
)
SavedTensor = private("torch._C._autograd.SavedTensor", "is what that makes")
increment_version = private(
    "torch._C._increment_version", "counts writes of kernels, so that autograd finds writes to what it saved"
)
unsafe_set_version_counter = private(
    "torch._C._autograd._unsafe_set_version_counter", "takes back the count of a write that was undone after an error"
)
SingleLevelFunction = private(
    "torch.autograd.function._SingleLevelFunction", "tells whether a custom function defines `setup_context`"
)

# Tensors and storages.
make_subclass = private("torch.Tensor._make_subclass", "makes the program's subclasses in graphs")
make_wrapper_subclass = private(
    "torch.Tensor._make_wrapper_subclass", "makes wrapper subclasses, of programs and of the tracer"
)
is_view = private("torch.Tensor._is_view", "reads whether a tensor is a view, for guards")
is_alias_of = private("torch._C._is_alias_of", "tells whether a result shares an input's memory")
has_storage = private("torch._C._has_storage", "tells whether a tensor has memory that identifies it")
construct_storage_from_data_pointer = private(
    "torch._C._construct_storage_from_data_pointer", "makes example inputs of huge sizes without memory"
)
debug_has_internal_overlap = private(
    "torch._debug_has_internal_overlap",
    "tells whether elements of a tensor share memory; without it they may, and no optimizer's step is skipped",
    lambda tensor: 1,
)
functionalize_unsafe_set = private(
    "torch._functionalize_unsafe_set", "gives a rebuilt wrapper subclass the memory of its owner"
)
CreationMeta = private("torch._C._autograd.CreationMeta", "is how a view came about")
get_creation_meta = private("torch._C._autograd._get_creation_meta", "tells whether a view may be written to")
set_creation_meta = private("torch._C._autograd._set_creation_meta", "marks a rebuilt view that may not")
set_conj = private("torch._C._set_conj", "marks a traced tensor as conjugated without computing")
set_neg = private("torch._C._set_neg", "marks a traced tensor as negated without computing")
mkldnn_layout = private("torch._mkldnn", "is the layout of oneDNN's tensors, which graphs refuse")
check_sparse_tensor_invariants = private(
    "torch._C._check_sparse_tensor_invariants", "lets errors about sparse tensors occur while tracing"
)

# Functions that graphs contain or that are answered while tracing.
VariableFunctions = private("torch._C._VariableFunctions", "owns the functions that take positional arguments fastest")
VF = private("torch._VF", "owns the recurrent layers")
nn_functions = private("torch._C._nn", "owns the functions behind `torch.nn.functional`")
assert_true = private("torch._assert", "is answered where its condition is a bool", UNCALLED)
assert_async = private("torch._assert_async", "checks a condition in a graph without waiting for a GPU")
check = private("torch._check", "tells a range of a size")
check_is_size = private("torch._check_is_size", "tells that a number is a size", UNCALLED)
check_tensor_all = private("torch._check_tensor_all", "becomes an assertion in the graph", UNCALLED)
is_all_true = private("torch._is_all_true", "computes the condition of such an assertion")
foreach_add_ = private("torch._foreach_add_", "advances counters of optimizers, recognized in graphs")
foreach_copy_ = private("torch._foreach_copy_", "copies inputs to a CUDA graph's memory in one launch")
int_mm = private("torch._int_mm", "multiplies matrices of int8")
safe_softmax = private("torch._safe_softmax", "is the softmax of attention, where a row may have no element left")
fused_sdp_choice = private("torch._fused_sdp_choice", "tells which kernel attention takes")
get_mkldnn_enabled = private("torch._C._get_mkldnn_enabled", "tells whether convolutions are oneDNN's")
select_conv_backend = private("torch._C._select_conv_backend", "tells which library computes a convolution")
conv_determine_backend_memory_format = private(
    "torch._C._conv_determine_backend_memory_format", "tells the layout of its result"
)
group_tensors_by_device_and_dtype = private(
    "torch._C._group_tensors_by_device_and_dtype", "is answered while an optimizer's step is traced", UNCALLED
)
log_api_usage_once = private("torch._C._log_api_usage_once", "is left out of graphs", UNCALLED)
disable_dynamo = private(
    "torch._compile._disable_dynamo", "wraps functions of optimizers, which are traced through it", UNCALLED
)
use_grad_for_differentiable = private(
    "torch.optim.optimizer._use_grad_for_differentiable",
    "wraps the step of optimizers, which is traced through it",
    UNCALLED,
)
sparse_adam = private("torch.optim._functional.sparse_adam", "is one node of a graph", UNCALLED)
global_optimizer_pre_hooks = private(
    "torch.optim.optimizer._global_optimizer_pre_hooks", "has hooks of all optimizers: with one, no step is skipped"
)
global_optimizer_post_hooks = private("torch.optim.optimizer._global_optimizer_post_hooks", "the same")
maybe_opt_step = private(
    "torch.amp.GradScaler._maybe_opt_step", "skips a step with infinite gradients, in the graph", UNCALLED
)
graph_capture_health_check = private(
    "torch.optim.Optimizer._accelerator_graph_capture_health_check",
    "warns about CUDA graphs, before the graph and not in it",
    getattr(torch.optim.Optimizer, "_cuda_graph_capture_health_check", None),
)
all_true_or_runtime_assert = private(
    "torch.distributions.distribution._all_true_or_runtime_assert", "becomes an assertion in the graph", UNCALLED
)
CachingTorchDispatchMode = private(
    "torch.utils.checkpoint._CachingTorchDispatchMode",
    "marks a selective checkpoint; without it the graph ends there",
    None,
)
CachedTorchDispatchMode = private("torch.utils.checkpoint._CachedTorchDispatchMode", "the same", None)
legacy_get_string = private("torch.nn._reduction.legacy_get_string", "is called, not interpreted", UNCALLED)
utils_is_compiling = private("torch._utils.is_compiling", "is true in a trace", UNCALLED)
set_stack_frame_name = private(
    "torch.utils._contextlib._set_stack_frame_name", "renames code for profilers, which a trace leaves out", UNCALLED
)
get_backward_hooks = private("torch.nn.Module._get_backward_hooks", "finds the hooks of a module that a graph calls")
get_backward_pre_hooks = private("torch.nn.Module._get_backward_pre_hooks", "the same")
checkpoint_impl = private(
    "torch.utils.checkpoint._checkpoint_impl", "is the function behind the decorated checkpoint", UNCALLED
)
tag_activation_checkpoint = private(
    "torch._higher_order_ops.wrap.tag_activation_checkpoint", "marks a checkpoint for backends of others"
)
associative_scan_module = private(
    "torch._higher_order_ops.associative_scan", "is traced as a loop; without it the graph ends there", None
)
sleep_on_gpu = private(
    "torch.cuda._sleep",
    "lets a GPU wait until measured kernels are queued; without it they are measured as they come",
    lambda cycles: None,
)
cuda_end_allocate_to_pool = private(
    "torch._C._cuda_endAllocateToPool", "ends the memory pool of a CUDA graph; without GPUs there is none", None
)
cuda_get_device = private(
    "torch._C._cuda_getDevice", "reads the current GPU before a launch; without GPUs there is one", lambda: 0
)
cuda_get_current_raw_stream = private("torch._C._cuda_getCurrentRawStream", "reads its stream", lambda index: 0)
RecordFunctionFast = private(
    "torch._C._profiler._RecordFunctionFast",
    "marks ranges for the profiler; without it a slower one does",
    torch.profiler.record_function,
)
compiler_guards = private(
    "torch._C._dynamo.guards", "compares tensors and allocates them in C++; without it Python does", None
)
reinterpret_tensor = private(
    "torch._C._dynamo.guards._reinterpret_tensor",
    "makes views faster than `as_strided`, which does it without it",
    None,
)
get_flash_sdp_enabled = private("torch._C._get_flash_sdp_enabled", "reads a setting of attention, for cache keys")
get_math_sdp_enabled = private("torch._C._get_math_sdp_enabled", "the same")
get_mem_efficient_sdp_enabled = private("torch._C._get_mem_efficient_sdp_enabled", "the same")
get_deterministic_algorithms = private("torch._C._get_deterministic_algorithms", "reads a setting that a graph changes")
get_deterministic_algorithms_warn_only = private("torch._C._get_deterministic_algorithms_warn_only", "the same")
set_deterministic_algorithms = private("torch._C._set_deterministic_algorithms", "puts it back after an error")
get_fp32_precision_getter = private("torch._C._get_fp32_precision_getter", "reads the precision of float32")
set_fp32_precision_setter = private("torch._C._set_fp32_precision_setter", "puts it back after an error")
C = private("torch._C", "is where tables of names are looked up: torch's global settings and their readers")

# functorch: vmap, grad and the like.
are_functorch_transforms_active = private(
    "torch._C._are_functorch_transforms_active", "tells whether a call is inside one: then eager runs"
)
get_dynamic_layer_stack_depth = private(
    "torch._C._functorch.get_dynamic_layer_stack_depth",
    "counts the levels, to leave those of an interpreted vmap that failed",
)
peek_interpreter_stack = private(
    "torch._C._functorch.peek_interpreter_stack", "finds the level that a double backward runs in"
)
pop_dynamic_layer_stack = private(
    "torch._C._functorch.pop_dynamic_layer_stack", "leaves it for the time of a compiled backward"
)
push_dynamic_layer_stack = private("torch._C._functorch.push_dynamic_layer_stack", "enters it again")
add_batch_dim = private("torch._C._functorch._add_batch_dim", "is called while a vmap is traced")
remove_batch_dim = private("torch._C._functorch._remove_batch_dim", "the same")
is_batchedtensor = private("torch._C._functorch.is_batchedtensor", "tells tensors of a vmap from others")
unwrap_if_dead = private("torch._C._functorch.unwrap_if_dead", "reads a tensor that has left its transform")
is_functorch_wrapped_tensor = private(
    "torch._C._functorch.is_functorch_wrapped_tensor", "tells tensors of any transform from others"
)

# Operators.
OPDEFS = private(
    "torch._library.custom_ops.OPDEFS", "has the custom operators by name: what they are made of is guarded"
)
set_ctx_getter = private(
    "torch._library.fake_impl.set_ctx_getter",
    "gives custom operators a size from data; without it such sizes are unknown",
    None,
)
operator_entries = private(
    "torch._library.simple_registry.singleton._data", "has the implementations of an operator for example tensors"
)
find_torch_dispatch_rule = private(
    "torch._library.simple_registry.find_torch_dispatch_rule", "finds the rule of an operator for a subclass"
)
triton_ops_to_kernels = private(
    "torch._library.triton.triton_ops_to_kernels",
    "has the kernels of operators written in Triton; without it any custom operator may have some",
    None,
)
graph_code_loader = private(
    "torch.fx.graph_module._loader", "has the code of graphs, which is dropped with them; without it that is kept", None
)
get_qualified_name = private("torch.fx.node._get_qualified_name", "spells the target of a node as printed code does")
tree_leaves = private("torch.utils._pytree.tree_leaves", "lists the leaves of nested containers")
tree_map = private("torch.utils._pytree.tree_map", "maps them")
pytree = private(
    "torch.utils._pytree", "takes nested containers apart as torch does, those that programs registered included"
)

# TorchScript.
jit_pass_constant_propagation = private(
    "torch._C._jit_pass_constant_propagation",
    "simplifies a scripted function before it is read; without it the graph ends there",
    None,
)
create_function_from_graph = private(
    "torch._C._create_function_from_graph", "makes a function of the rest of one; without it the same", None
)
