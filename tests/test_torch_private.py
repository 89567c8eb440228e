"""Every private name of torch that Burnish uses: it is there, and it does what Burnish needs of it.

A release of torch without one of them, or with another one of that name, fails here before anything else does.
"""

import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

from burnish.foundation import torch_private as private
from burnish.runtime.eager.setting_change_nodes import PAIRS
from burnish.settings import current


class Mode(private.TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class FunctionMode(torch.overrides.TorchFunctionMode):
    pass


def absent(name: Any) -> bool:
    return isinstance(name, private.Absent)


def dispatch_stack() -> bool:
    before = private.len_torch_dispatch_stack()
    mode = Mode()
    private.push_on_torch_dispatch_stack(mode)
    during = private.len_torch_dispatch_stack(), private.get_current_dispatch_mode()
    with private.disable_current_modes():
        within = private.len_torch_dispatch_stack()
    private.pop_torch_dispatch_stack(None)
    return during == (before + 1, mode) and within == 0 and private.len_torch_dispatch_stack() == before


def function_stack() -> bool:
    before = private.len_torch_function_stack()
    mode = FunctionMode()
    private.push_mode(mode)
    during = private.len_torch_function_stack(), private.get_function_stack_at(before)
    seen = private.get_current_function_mode(), private.get_current_function_mode_stack()[-1]
    left = private.pop_mode()
    private.push_mode(mode)
    private.pop_torch_function_stack()
    return (
        during == (before + 1, mode)
        and seen == (mode, mode)
        and left is mode
        and private.len_torch_function_stack() == before
    )


def function_state() -> bool:
    state = private.get_torch_function_state()
    with private.DisableTorchFunctionSubclass():
        without_subclasses = private.get_torch_function_state()
    with private.DisableTorchFunction():
        without = private.is_torch_function_enabled()
    private.set_torch_function_state(without_subclasses)
    changed = private.get_torch_function_state() == without_subclasses != state
    private.set_torch_function_state(state)
    return changed and not without and private.is_torch_function_enabled()


class NoFunction(torch.Tensor):
    __torch_function__ = private.disabled_torch_function_impl


def no_overrides() -> bool:
    made = private.make_subclass(NoFunction, torch.ones(2))
    plain = torch.Tensor.__torch_dispatch__ is private.disabled_torch_dispatch_impl
    return plain and type(made) is NoFunction and type(made + 1) is torch.Tensor


def wrapper() -> bool:
    class Wrapper(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            return torch.zeros(1)

    made = private.make_wrapper_subclass(Wrapper, (2, 3), dtype=torch.float64)
    with private.DisableTorchDispatch():
        alone = made.detach()
    owner = torch.ones(2, 3, dtype=torch.float64)
    private.functionalize_unsafe_set(made, owner)
    return (made + 1).shape == (1,) and alone.shape == made.shape == (2, 3)


def dispatch_keys() -> bool:
    keys = private.dispatch_keys(torch.ones(2).conj()).raw_repr()
    conjugate = private.DispatchKeySet(private.DispatchKey.Conjugate).raw_repr()
    lazy = private.dispatch_keys(torch.ones(2, dtype=torch.complex64).conj()).raw_repr()
    return lazy & conjugate and not keys & conjugate and int(private.dispatch_key_parse("Tracer")) > 0


def dispatch_guards() -> bool:
    include, exclude = private.dispatch_tls_local_include_set(), private.dispatch_tls_local_exclude_set()
    python = private.DispatchKeySet(private.DispatchKey.Python)
    with private.ExcludeDispatchKeyGuard(python):
        inside = private.dispatch_tls_local_exclude_set()
        with private.ForceDispatchKeyGuard(include, exclude):
            forced = private.dispatch_tls_local_exclude_set()
    with torch.enable_grad(), private.AutoDispatchBelowAutograd():
        below = (torch.ones(2, requires_grad=True) * 2).requires_grad
    return inside.raw_repr() & python.raw_repr() and forced.raw_repr() == exclude.raw_repr() and not below


def schemas() -> bool:
    names = private.dispatch_get_all_op_names()
    overloads = [schema.overload_name for schema in private.jit_get_schemas_for_operator("aten::add")]
    kernel = private.dispatch_has_kernel_for_dispatch_key("aten::add.Tensor", "Meta")
    return (
        "aten::add.Tensor" in names
        and "Tensor" in overloads
        and kernel
        and "CPU: " in private.dispatch_dump("aten::add.Tensor")
    )


def modes_of_autograd() -> bool:
    was = torch.is_grad_enabled()
    private.set_grad_enabled(not was)
    switched = torch.is_grad_enabled() is not was
    private.set_grad_enabled(was)
    with private.InferenceMode(True):
        inference = torch.is_inference_mode_enabled()
    forward = private.is_fwd_grad_enabled()
    private.set_fwd_grad_enabled(not forward)
    other = private.is_fwd_grad_enabled()
    private.set_fwd_grad_enabled(forward)
    return switched and inference and other is not forward and private.get_tracing_state() is None


def in_backward() -> bool:
    """What can be asked only while backward runs."""
    seen: dict[str, Any] = {}
    x = torch.ones(2, requires_grad=True)

    class Asking(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            seen["task"] = private.current_graph_task_id()
            seen["keeps"] = private.get_current_graph_task_keep_graph()
            seen["executes"] = private.will_engine_execute_node(torch.autograd.graph.get_gradient_edge(x).node)
            private.execution_engine.queue_callback(lambda: seen.update(ended=True))
            with torch.enable_grad():
                y = x.detach().requires_grad_()
                z = (y * 3).sum()
            seen["inner"] = private.execution_engine.run_backward(
                (z,), (torch.ones(()),), False, False, (y,), allow_unreachable=True, accumulate_grad=False
            )
            return gradient

    Asking.apply(x).sum().backward()
    inner = seen.pop("inner")[0]
    assert private.current_graph_task_id() == -1 and torch.equal(inner, torch.full((2,), 3.0))
    return seen == {"task": seen["task"], "keeps": False, "executes": True, "ended": True} and seen["task"] >= 0


def saved_tensor_hooks() -> bool:
    packed: list[torch.Tensor] = []
    private.push_saved_tensors_default_hooks(lambda x: packed.append(x) or x, lambda x: x)
    top = private.top_saved_tensors_default_hooks(True)
    made = torch.ones(2, requires_grad=True).sin()
    private.pop_saved_tensors_default_hooks()
    private.saved_tensors_hooks_disable("because")
    why = private.saved_tensors_hooks_get_disabled_error_message()
    private.saved_tensors_hooks_enable()
    free = private.saved_tensors_hooks_get_disabled_error_message()
    return made.requires_grad and top is not None and len(packed) == 1 and (why, free) == ("because", None)


def saved_alone() -> bool:
    if private.make_saved_tensor is None:
        return private.SavedTensor is not None
    made = private.make_saved_tensor(torch.ones(2), is_output=False)
    return isinstance(made, private.SavedTensor) and torch.equal(made.unpack(), torch.ones(2))


def versions() -> bool:
    x = torch.ones(2)
    private.increment_version([x])
    after = x._version
    private.unsafe_set_version_counter((x,), (0,))
    return (after, x._version) == (1, 0)


def tensors() -> bool:
    x = torch.ones(4)
    overlapping = torch.ones(1).expand(3)
    conjugate, negative = torch.ones(2, dtype=torch.complex64), torch.ones(2)
    private.set_conj(conjugate, True)
    private.set_neg(negative, True)
    storage = private.construct_storage_from_data_pointer(x.data_ptr(), torch.device("cpu"), 16)
    return (
        private.is_view(x[1:])
        and private.is_alias_of(x, x[1:])
        and private.has_storage(x)
        and private.debug_has_internal_overlap(overlapping) == 1
        and conjugate.is_conj()
        and negative.is_neg()
        and storage.data_ptr() == x.data_ptr()
    )


def assertions() -> bool:
    private.assert_true(True, "")
    private.assert_async(torch.tensor(True))
    private.check(True)
    private.check_is_size(2)
    private.check_tensor_all(torch.tensor([True, True]))
    if not absent(private.all_true_or_runtime_assert):
        private.all_true_or_runtime_assert(torch.tensor([True]), "")
    for call in (private.assert_true, private.check):
        with pytest.raises((AssertionError, RuntimeError)):
            call(False, lambda: "no") if call is private.check else call(False, "no")
    return bool(private.is_all_true(torch.tensor([True])))


def foreach() -> bool:
    xs, ys = [torch.zeros(2)], [torch.ones(2)]
    private.foreach_copy_(xs, ys)
    private.foreach_add_(xs, 1)
    groups = private.group_tensors_by_device_and_dtype([xs], True)
    return torch.equal(xs[0], torch.full((2,), 2.0)) and len(groups) == 1


def products() -> bool:
    x = torch.ones(17, 16, dtype=torch.int8)
    made = private.int_mm(x, x.t())
    rows = private.safe_softmax(torch.full((1, 2), -torch.inf), -1)
    kernel = private.fused_sdp_choice(*[torch.ones(1, 1, 2, 2)] * 3, None, 0.0, False)
    return made.dtype == torch.int32 and int(made[0, 0]) == 16 and torch.equal(rows, torch.zeros(1, 2)) and kernel >= 0


def convolutions() -> bool:
    x, w = torch.ones(1, 2, 4, 4), torch.ones(2, 2, 1, 1)
    backend = private.select_conv_backend(x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, None)
    format = private.conv_determine_backend_memory_format(x, w, backend)
    return isinstance(format, torch.memory_format) and private.get_mkldnn_enabled() is torch.backends.mkldnn.enabled


def optimizers() -> bool:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    private.graph_capture_health_check(optimizer)
    step = private.use_grad_for_differentiable(lambda self: torch.is_grad_enabled())
    average, square = torch.zeros(2), torch.zeros(2)
    gradient = torch.sparse_coo_tensor([[0]], [1.0], (2,), check_invariants=False).coalesce()
    steps = [1]
    options = dict(eps=1e-8, beta1=0.9, beta2=0.99, lr=1.0, maximize=False)
    with torch.no_grad():
        private.sparse_adam([parameter], [gradient], [average], [square], steps, **options)
    scaled = torch.amp.GradScaler("cpu", enabled=True)
    found = private.maybe_opt_step(scaled, optimizer, {"found_inf_per_device": {"cpu": torch.ones(1)}})
    hooks = private.global_optimizer_pre_hooks, private.global_optimizer_post_hooks
    return step(optimizer) is False and parameter[0] != 1 and found is None and hooks == ({}, {})


def functions_of_torch() -> bool:
    private.log_api_usage_once("burnish.test")
    private.check_sparse_tensor_invariants()
    names = private.legacy_get_string(True, True, False), private.utils_is_compiling()
    owners = (
        private.VariableFunctions.mm is torch.mm,
        private.VF.lstm is not None,
        private.nn_functions.linear is not None,
    )
    if not absent(private.set_stack_frame_name):
        assert callable(private.set_stack_frame_name)
    return names == ("mean", False) and all(owners) and private.disable_dynamo(lambda x: x + 1)(1) == 2


def modules() -> bool:
    module = torch.nn.Linear(2, 2)
    module.register_full_backward_hook(lambda module, above, below: None)
    full, others = private.get_backward_hooks(module)
    return len(full) == 1 and others == [] and private.get_backward_pre_hooks(module) == []


def checkpoints() -> bool:
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(2)
    tagged = torch.equal(private.tag_activation_checkpoint(torch.fx.symbolic_trace(lambda x: x.sin()), x), x.sin())
    inside = private.checkpoint_impl
    return tagged and (
        absent(inside) or inspect.signature(inside).parameters.keys() == inspect.signature(checkpoint).parameters.keys()
    )


def of_gpus() -> bool:
    """Without a GPU they can only be found."""
    return all(map(callable, (private.sleep_on_gpu, private.cuda_get_device, private.cuda_get_current_raw_stream)))


def of_profiler() -> bool:
    with private.RecordFunctionFast("name"):
        return True


def comparisons() -> bool:
    x = torch.ones(2)
    guards = private.compiler_guards.TensorGuards(x, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    made = private.compiler_guards._empty_strided_cpu((2,), (1,), torch.float32)
    shown = private.reinterpret_tensor(x, (1, 2), (2, 1), 0)
    state = private.compiler_guards.GlobalStateGuard()
    return (
        guards.check(torch.ones(2))
        and not guards.check(torch.ones(3))
        and state.check()
        and made.shape == shown[0].shape
    )


def settings() -> bool:
    """Setters are called with what their readers return."""
    for setter, reader in PAIRS.items():
        if hasattr(private.C, setter):
            value = getattr(private.C, reader)()
            if value is not None:  # a setting that has no value of its own
                getattr(private.C, setter)(value)
    private.set_deterministic_algorithms(
        private.get_deterministic_algorithms(), warn_only=private.get_deterministic_algorithms_warn_only()
    )
    precision = private.get_fp32_precision_getter("mkldnn", "matmul")
    private.set_fp32_precision_setter("mkldnn", "matmul", precision)
    kernels = private.get_flash_sdp_enabled(), private.get_math_sdp_enabled(), private.get_mem_efficient_sdp_enabled()
    return precision == private.get_fp32_precision_getter("mkldnn", "matmul") and all(type(k) is bool for k in kernels)


def transforms() -> bool:
    seen = []

    def ask(x: torch.Tensor) -> torch.Tensor:
        depth = private.get_dynamic_layer_stack_depth()
        level = private.peek_interpreter_stack()
        popped = private.pop_dynamic_layer_stack()
        below = private.get_dynamic_layer_stack_depth()
        private.push_dynamic_layer_stack(popped)
        batched = private.add_batch_dim(torch.ones(3, 2), 0, level.level())
        seen.append((depth, below, private.are_functorch_transforms_active(), private.is_batchedtensor(batched)))
        seen.append(private.remove_batch_dim(batched, level.level(), 3, 0).shape)
        return x + private.is_functorch_wrapped_tensor(x)

    made, left = torch.vmap(ask)(torch.ones(3)), []
    torch.func.grad(lambda x: left.append(x) or x.sum())(torch.ones(3))
    is_plain = not private.is_functorch_wrapped_tensor(private.unwrap_if_dead(left[0]))
    return is_plain and seen == [(1, 0, True, True), (3, 2)] and torch.equal(made, torch.full((3,), 2.0))


def operators() -> bool:
    @torch.library.custom_op("burnish_private::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    class Context:
        def new_dynamic_size(self) -> int:
            return 7

    name, operator = "burnish_private::twice", torch.ops.burnish_private.twice
    with private.set_ctx_getter(lambda: Context()):
        size = len(private.operator_entries[name].fake_impl.kernel(torch.ones(2)))
    return (
        private.OPDEFS[name] is twice
        and type(twice) is private.CustomOpDef
        and type(operator) is private.OpOverloadPacket
        and type(operator.default) is private.OpOverload
        and isinstance(torch.ops.higher_order.cond, private.HigherOrderOperator)
        and private.find_torch_dispatch_rule(operator.default, NoFunction) is None
        and name not in private.triton_ops_to_kernels
        and private.get_qualified_name(torch.sin) == "torch.sin"
        and size == 7
    )


def containers() -> bool:
    nested = {"a": [1, 2], "b": (3,)}
    leaves, spec = private.pytree.tree_flatten(nested)
    again = private.pytree.tree_unflatten(private.tree_leaves(private.tree_map(lambda n: n + 1, nested)), spec)
    return leaves == [1, 2, 3] and again == {"a": [2, 3], "b": (4,)}


def scripts() -> bool:
    scripted = torch.jit.script(one_and_two)
    graph = scripted.inlined_graph.copy()
    private.jit_pass_constant_propagation(graph)
    made = private.create_function_from_graph("made", graph)
    kinds = [type(value.type()) for value in graph.inputs()]
    pair = torch.jit.script(pair_of).inlined_graph
    assert type(next(pair.outputs()).type()) is private.TupleType
    return (
        torch.equal(made(torch.ones(2)), torch.full((2,), 4.0))
        and kinds == [private.TensorType]
        and type(graph) is private.ScriptGraph
    )


def one_and_two(x: torch.Tensor) -> torch.Tensor:
    return x + (1 + 2)


def pair_of(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x, x


def custom_functions() -> bool:
    class WithContext(torch.autograd.Function):
        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

    inherited = torch.autograd.Function.setup_context is private.SingleLevelFunction.setup_context
    return inherited and WithContext.setup_context is not private.SingleLevelFunction.setup_context


def graphs() -> bool:
    made = private.LazyGraphModule({}, torch.fx.Graph())
    return isinstance(made, torch.fx.GraphModule) and isinstance(private.graph_code_loader.eval_cache, dict)


def selective_checkpoints() -> bool:
    contexts = torch.utils.checkpoint.create_selective_checkpoint_contexts([])
    return tuple(map(type, contexts)) == (private.CachingTorchDispatchMode, private.CachedTorchDispatchMode)


def views() -> bool:
    view, _ = torch.ones(2, requires_grad=True).chunk(2)
    found = private.get_creation_meta(view)
    private.set_creation_meta(view, private.CreationMeta.DEFAULT)
    return found == private.CreationMeta.MULTI_OUTPUT_NODE != private.get_creation_meta(view)


def layouts() -> bool:
    return torch.ones(2).layout is not private.mkldnn_layout and str(private.mkldnn_layout) == "torch._mkldnn"


def wrappers() -> bool:
    info = private.python_dispatch.get_alias_info(torch.ops.aten.view.default)
    return info.outs_schema_types is not None if hasattr(info, "outs_schema_types") else info is not None


def associative_scan() -> bool:
    return private.associative_scan_module is None or "scan" in private.associative_scan_module.__name__


CALLS: dict[Callable[[], Any], str] = {
    associative_scan: "associative_scan_module",
    assertions: "all_true_or_runtime_assert assert_true assert_async check check_is_size check_tensor_all is_all_true",
    checkpoints: "tag_activation_checkpoint checkpoint_impl",
    comparisons: "compiler_guards reinterpret_tensor",
    containers: "pytree tree_leaves tree_map",
    convolutions: "select_conv_backend conv_determine_backend_memory_format get_mkldnn_enabled",
    custom_functions: "SingleLevelFunction",
    dispatch_guards: "ExcludeDispatchKeyGuard ForceDispatchKeyGuard AutoDispatchBelowAutograd "
    "dispatch_tls_local_include_set dispatch_tls_local_exclude_set",
    dispatch_keys: "DispatchKey DispatchKeySet dispatch_keys dispatch_key_parse",
    dispatch_stack: "TorchDispatchMode len_torch_dispatch_stack push_on_torch_dispatch_stack pop_torch_dispatch_stack "
    "get_current_dispatch_mode disable_current_modes",
    foreach: "foreach_add_ foreach_copy_ group_tensors_by_device_and_dtype",
    function_stack: "len_torch_function_stack get_function_stack_at pop_torch_function_stack push_mode pop_mode "
    "get_current_function_mode get_current_function_mode_stack",
    function_state: "get_torch_function_state set_torch_function_state is_torch_function_enabled DisableTorchFunction "
    "DisableTorchFunctionSubclass",
    functions_of_torch: "log_api_usage_once check_sparse_tensor_invariants legacy_get_string utils_is_compiling "
    "VariableFunctions VF nn_functions set_stack_frame_name disable_dynamo",
    graphs: "LazyGraphModule graph_code_loader",
    in_backward: "current_graph_task_id get_current_graph_task_keep_graph will_engine_execute_node execution_engine",
    layouts: "mkldnn_layout",
    views: "CreationMeta get_creation_meta set_creation_meta",
    selective_checkpoints: "CachingTorchDispatchMode CachedTorchDispatchMode",
    modes_of_autograd: "set_grad_enabled InferenceMode is_fwd_grad_enabled set_fwd_grad_enabled get_tracing_state",
    modules: "get_backward_hooks get_backward_pre_hooks",
    no_overrides: "disabled_torch_function_impl disabled_torch_dispatch_impl make_subclass",
    of_gpus: "sleep_on_gpu cuda_get_device cuda_get_current_raw_stream cuda_end_allocate_to_pool",
    of_profiler: "RecordFunctionFast",
    operators: "OPDEFS CustomOpDef OpOverload OpOverloadPacket HigherOrderOperator set_ctx_getter operator_entries "
    "find_torch_dispatch_rule triton_ops_to_kernels get_qualified_name",
    optimizers: "graph_capture_health_check use_grad_for_differentiable sparse_adam maybe_opt_step "
    "global_optimizer_pre_hooks global_optimizer_post_hooks",
    products: "int_mm safe_softmax fused_sdp_choice",
    saved_alone: "make_saved_tensor SavedTensor",
    saved_tensor_hooks: "push_saved_tensors_default_hooks pop_saved_tensors_default_hooks "
    "top_saved_tensors_default_hooks saved_tensors_hooks_disable saved_tensors_hooks_enable "
    "saved_tensors_hooks_get_disabled_error_message",
    schemas: "dispatch_get_all_op_names jit_get_schemas_for_operator dispatch_has_kernel_for_dispatch_key "
    "dispatch_dump",
    scripts: "jit_pass_constant_propagation create_function_from_graph ScriptGraph TensorType TupleType",
    settings: "C get_deterministic_algorithms get_deterministic_algorithms_warn_only set_deterministic_algorithms "
    "get_fp32_precision_getter set_fp32_precision_setter get_flash_sdp_enabled get_math_sdp_enabled "
    "get_mem_efficient_sdp_enabled",
    tensors: "is_view is_alias_of has_storage construct_storage_from_data_pointer debug_has_internal_overlap set_conj "
    "set_neg",
    transforms: "are_functorch_transforms_active peek_interpreter_stack pop_dynamic_layer_stack "
    "push_dynamic_layer_stack add_batch_dim remove_batch_dim is_batchedtensor is_functorch_wrapped_tensor "
    "get_dynamic_layer_stack_depth unwrap_if_dead",
    versions: "increment_version unsafe_set_version_counter",
    wrapper: "make_wrapper_subclass DisableTorchDispatch functionalize_unsafe_set",
    wrappers: "python_dispatch",
}
"""What calls each name."""


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_private_name_does_what_burnish_needs(call):
    assert call()


def test_every_private_name_is_called_here_and_has_a_purpose():
    source = inspect.getsource(private)
    defined = set(re.findall(r"^ *(\w+) = private\(", source, re.MULTILINE))
    called = [name for names in CALLS.values() for name in names.split()]
    assert sorted(called) == sorted(defined)
    assert all(private.PURPOSES.values()) and len(private.PURPOSES) == len(defined)


def test_no_name_is_missing_on_a_tested_torch():
    assert private.MISSING == [] and private.why_not_usable(current().untested_torch) is None


def test_the_package_wants_the_torch_that_was_tested():
    package = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert f"torch>={private.OLDEST[0]}.{private.OLDEST[1]}" in package["project"]["dependencies"]


def test_variables_that_change_are_where_they_are_read():
    assert forward_ad._current_level == -1
    for path in private.LIVE:
        module, _, name = path.rpartition(".")
        assert hasattr(sys.modules[module], name), path


def test_names_of_later_modules_are_found_when_they_are_needed():
    assert isinstance(private.DeviceContext(torch.device("meta")), torch.overrides.TorchFunctionMode)
    assert hasattr(private.default_device_module, "CURRENT_DEVICE")
    assert "sum" in private.functional_collectives.REDUCE_OP_TO_STR.values()
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        private.other


def objects() -> dict[str, list[object]]:
    """Some of each class that `ATTRIBUTES` names."""
    x, linear = torch.ones(2, requires_grad=True), torch.nn.Linear(2, 2)

    @torch.library.custom_op("burnish_private::thrice", mutates_args=())
    def thrice(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    return {
        "Tensor": [x],
        "nn.Module": [linear],
        "optim.Optimizer": [torch.optim.SGD([x])],
        "fx.Graph": [torch.fx.Graph()],
        "autograd.graph.Node": [torch.linalg.vector_norm(x).grad_fn],
        "OpOverload": [torch.ops.aten.add.Tensor],
        "OpOverloadPacket": [torch.ops.aten.add],
        "CustomOpDef": [thrice],
    }


def test_private_attributes_are_listed_and_there():
    read = set()
    for path in Path(private.__file__).parents[1].rglob("*.py"):
        if path.parent.name not in ("integrations", "backends") and path.name != "torch_private.py":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case (
                        ast.Attribute(value=ast.Name("self" | "cls")) | ast.Attribute(value=ast.Attribute(attr="aten"))
                    ):
                        pass
                    case ast.Attribute(attr=str(name)) if re.match("_[a-z]", name):
                        read.add(name)
    seen = objects()
    assert seen.keys() == private.ATTRIBUTES.keys()
    for kind, examples in seen.items():
        listed = set(private.ATTRIBUTES[kind].split())
        assert [name for name in listed if not any(hasattr(each, name) for each in examples)] == [], kind
        assert listed <= read, f"no longer read: {listed - read}"
    listed = {name for names in private.ATTRIBUTES.values() for name in names.split()}
    theirs = [each for examples in seen.values() for each in examples]
    assert [name for name in sorted(read - listed) if any(hasattr(each, name) for each in theirs)] == []
