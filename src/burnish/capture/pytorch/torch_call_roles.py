"""Classification of torch calls: recorded, a constant fact about metadata, or a graph break.

The result decides: tensors (or nothing, for in-place calls) are recorded; facts about metadata are constants under the
guards; any other result carries tensor data into Python. The tables below are the exceptions.
"""

from __future__ import annotations

import operator
import re
import types
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...concurrency.outside_errors import reraise_from_outside
from ...foundation.torch_private import tree_leaves, tree_map
from ...tensors.tensor_types import is_leaf
from .. import breaks
from ..guards.tensor_metadata import WithoutRules
from ..guards.value_or_identity import PLAIN_VALUES
from .number_arguments import OPERATORS as OF_LIBRARIES
from .number_arguments import takes_live_numbers

RECORD = "record"
FACT = "fact"

# Argument types that a graph contains unchanged.
IMMEDIATE = PLAIN_VALUES | {types.BuiltinFunctionType}

# Tensor properties and methods that read metadata only: constants while the input guards hold.
FACTS = frozenset(
    """
    shape dtype device layout ndim requires_grad is_leaf itemsize nbytes is_cuda is_cpu is_meta is_sparse is_quantized
    is_mkldnn is_xpu is_mps is_sparse_csr is_nested names is_vulkan is_ipu is_maia is_xla is_hpu is_mtia output_nr
    size dim stride numel nelement is_contiguous is_floating_point is_complex is_signed element_size get_device
    is_conj is_neg is_inference storage_offset ndimension is_same_size dense_dim sparse_dim type __len__ has_names
    is_coalesced is_pinned is_shared is_distributed retains_grad q_scale qscheme _is_view _is_zerotensor
    result_type can_cast promote_types broadcast_shapes is_tensor is_storage get_default_dtype finfo iinfo
    is_grad_enabled is_inference_mode_enabled _debug_has_internal_overlap __contains_tensor_subclass__
    __dir__ __class__ _dimI _dimV __hash__ _parse_to _has_compatible_shallow_copy_type
""".split()
)

NOT_IN_GUARDS = {name: getattr(Tensor, name) for name in "storage_offset is_shared is_pinned".split()} | {
    name: operator.attrgetter(name)
    for name in "output_nr retains_grad _backward_hooks _post_accumulate_grad_hooks".split()
}
"""Facts that the guards of tensors leave open, and how to ask for them."""

# The facts that do not depend on sizes (from 2 on).
SIZELESS = FACTS - frozenset(
    """
    shape nbytes size stride numel nelement storage_offset is_same_size __len__ broadcast_shapes
    _debug_has_internal_overlap __dir__
""".split()
)

# Functions with a number of results that depends on the size of one dimension, and the argument position of ``dim``.
SIZE_DEPENDENT_SPLITS = {"split": 2, "unsafe_split": 2, "chunk": 2, "unsafe_chunk": 2, "tensor_split": 2, "unbind": 1}

# ... or on several dimensions, or in another way.
OTHER_SIZE_DEPENDENT_SPLITS = frozenset("hsplit vsplit dsplit __iter__ unravel_index".split())

# Calls that return tensor data as Python values.
READS = frozenset(
    """
    item tolist numpy __bool__ __int__ __float__ __complex__ __index__ __array__ equal allclose is_nonzero __contains__
    __format__ __repr__ __str__ data_ptr storage untyped_storage _typed_storage __dlpack__ __reduce_ex__ __deepcopy__
    is_set_to _version grad_fn _base cdata grad_dtype
""".split()
)

# Output sizes that depend on data. Recording them would make this run's size a constant of later code.
DATA_SHAPED = frozenset(
    """
    nonzero nonzero_static masked_select unique unique_consecutive _unique2 _unique argwhere bincount
    repeat_interleave histogramdd to_sparse coalesce segment_reduce nested_tensor to_padded_tensor
    combinations _pack_padded_sequence _pad_packed_sequence unique_dim to_sparse_csr to_sparse_coo to_sparse_bsr
    to_dense_backward pad_packed_sequence pack_padded_sequence
""".split()
) - {"combinations", "nonzero_static"}

# Changes of a tensor object that a graph cannot express for its inputs. addbmm_ enlarges a tensor that is broadcast.
STATE = frozenset(
    """
    requires_grad_ set_ resize_ resize_as_ t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ rename_
    retain_grad register_hook register_post_accumulate_grad_hook share_memory_ _make_subclass detach_ apply_ map_ map2_
    addbmm_ put_hook_ swap_tensors copy_from_ resize_as_sparse_ sparse_resize_ sparse_resize_and_clear_ pin_memory
    real_storage_ moveaxis_ set_data
""".split()
)

# ... but can express for the tensors it makes.
STATE_IN_GRAPH = frozenset("t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_".split())

# The result depends on the type of the numbers: a NumPy float differs from a Python float.
BY_ELEMENT_TYPE = frozenset(
    """
    tensor as_tensor asarray new_tensor from_numpy result_type can_cast scalar_tensor apply Tensor Parameter Buffer
""".split()
)

# Legacy constructors for which a torch.Size is the size, and any other sequence the content. With their number of
# arguments in that form: ``x.new(indices, values, size)``, for a sparse tensor, has another number.
OF_SIZE_OR_DATA = {"new": 2, Tensor: 1}

GETTER = "__get__"
SETTER = "__set__"
DELETER = "__delete__"


def name_of(func: Any) -> str:
    name = getattr(func, "__name__", None) or str(func)
    if name in (GETTER, SETTER, DELETER):
        return getattr(getattr(func, "__self__", None), "__name__", name)
    return name


GPU_CALLS = ("_cuda_", "_accelerator_")
"""Name prefixes of torch's functions that control a GPU."""


def break_of_hidden_call(name: str, on_tensor: bool) -> tuple[Any, str]:
    """The kind of break, and the call in words, for a torch call that no torch function mode receives."""
    if name.startswith(GPU_CALLS):
        return breaks.GPU_CALL, f"torch's {name}()"
    return (breaks.TENSOR_STATE, f"{name}() on a tensor") if on_tensor else (breaks.GLOBAL_SWITCH, f"torch's {name}()")


def role_of(func: Any, args: tuple, kwargs: dict, result: Any) -> tuple[Any, str]:
    """(RECORD | FACT | the kind of break, the call in words)."""
    name = name_of(func)
    accessor = getattr(func, "__name__", None)
    if accessor == SETTER or accessor == "__delete__":
        return breaks.TENSOR_STATE, f"assignment to .{name} of a tensor"
    if name in FACTS and not isinstance(result, Tensor):
        return FACT, name
    if accessor == GETTER:
        if name == "grad":
            return (FACT, name) if result is None else (RECORD, name)
        if isinstance(result, Tensor) and name != "_base":
            return RECORD, name
        if result is None and (name in ("grad_fn", "_base") or name in NOT_IN_GUARDS):
            return FACT, name
        return breaks.DATA_READ, f".{name} of a tensor"  # the guards of tensors do not hold it
    if name in READS:
        kind = (
            breaks.DATA_BRANCH
            if name in ("__bool__", "is_nonzero", "equal", "allclose", "__contains__")
            else breaks.DATA_READ
        )
        return kind, f"{name}()" if not name.startswith("__") else READ_WORDS.get(name, name)
    if name in STATE:
        return breaks.TENSOR_STATE, f"{name}() on a tensor"
    if (
        isinstance(func, OF_LIBRARIES)
        and not is_sized_without_data(func, args, kwargs, result)
        or is_data_shaped(name, args, kwargs)
    ):
        return breaks.DATA_SHAPE, f"{name}: the size of its result depends on the data"
    if only_tensors(result):
        return RECORD, name
    return breaks.DATA_READ, f"{name}() returns Python values"


class Known(NamedTuple):
    """Facts that are the same for every call of a function."""

    target: Any
    takes_live_numbers: bool
    is_plain: bool  # recorded whenever it returns a tensor


_known: dict[Any, Known] = {}


def known(func: Any) -> Known:
    found = _known.get(func)
    if found is None:
        target, name = target_of(func), name_of(func)
        is_plain = (
            getattr(func, "__name__", None) not in (GETTER, SETTER, "__delete__")
            and not any(name in table for table in (FACTS, READS, STATE, DATA_SHAPED, INDEXING))
            and not isinstance(func, OF_LIBRARIES)
        )
        found = Known(target, takes_live_numbers(target), is_plain)
        if isinstance(func, STATIC) or type(func) is FunctionType and func.__module__ == "torch.nn.functional":
            _known[func] = found
    return found


STATIC = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
INDEXING = ("where", "__getitem__", "index", "one_hot", "tensor_split")
READ_WORDS = {
    "__bool__": "bool() of a tensor",
    "__int__": "int() of a tensor",
    "__float__": "float() of a tensor",
    "__index__": "a tensor used as an index",
    "__contains__": "`in` on a tensor",
    "__format__": "formatting a tensor",
    "__repr__": "printing a tensor",
    "__array__": "numpy() of a tensor",
    "__complex__": "complex() of a tensor",
    "__str__": "str() of a tensor",
}


def is_sized_without_data(operator: Any, args: tuple, kwargs: dict, result: Any) -> bool:
    """Whether a registered operator computes its result sizes from tensors without data. If it does not
    (``torchvision.ops.nms``, or one without ``register_fake``), another call may return other sizes."""
    overload = getattr(operator, "default", operator)
    if result is None or getattr(overload, "namespace", None) in ("aten", "prims"):
        return True
    try:
        expected = operator(*tree_map(without_data, args), **tree_map(without_data, kwargs))
    except Exception as error:
        reraise_from_outside(error)
        return False
    return [x.shape for x in tree_leaves(expected) if isinstance(x, Tensor)] == [
        x.shape for x in tree_leaves(result) if isinstance(x, Tensor)
    ]


def without_data(x: Any) -> Any:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") if type(x) in TENSORS else x


TENSORS = (Tensor, torch.nn.Parameter)


def is_data_shaped(name: str, args: tuple, kwargs: dict) -> bool:
    if name in DATA_SHAPED:
        if name == "repeat_interleave":
            repeats = args[1] if len(args) > 1 else kwargs.get("repeats", args[0] if len(args) == 1 else None)
            size = kwargs.get("output_size")
            return isinstance(repeats, Tensor) and size is None
        return True
    if name == "where":
        return len(args) + len(kwargs) == 1
    if name == "one_hot":
        return kwargs.get("num_classes", args[1] if len(args) > 1 else -1) == -1
    if name == "tensor_split":
        return any(isinstance(part, Tensor) for part in (*args[1:], *kwargs.values()))
    if name in INDEXING:
        return len(args) > 1 and _has_mask(args[1])
    return False


# Calls that read a number from a tensor, where it changes values but no size.
VALUES_BY_NUMBER = frozenset(
    """
    select select_scatter roll fill fill_ full_like fill_diagonal_ masked_fill masked_fill_ index_fill index_fill_ add
    add_ sub sub_ mul mul_ div div_ pow pow_ rsub lerp clamp clamp_ tril tril_ triu triu_ cumsum cumprod softmax
    log_softmax sort argsort flip __setitem__ kthvalue renorm threshold
""".split()
)


def why_sized_by_data(func: Any, args: tuple, kwargs: dict) -> tuple[breaks.BreakKind, str] | None:
    """The break of a call that has read numbers from a tensor, if they are sizes."""
    return (
        (breaks.DATA_SHAPE, f"{name_of(func)}: a size is read from a tensor")
        if sizes_by_tensor(func, args, kwargs)
        else None
    )


def sizes_by_tensor(func: Any, args: tuple, kwargs: dict) -> bool:
    """Whether a call that reads a number from a tensor may return another size for another number."""
    name = name_of(func)
    if name == "__getitem__":
        return _has_tensor_in_slice(args[1])
    if name == "one_hot":  # it checks the number of classes against the data
        count = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
        return isinstance(count, Tensor) or count == -1
    if name in ("full", "new_full"):
        size = kwargs.get("size", args[name == "new_full"] if len(args) > (name == "new_full") else None)
        return isinstance(size, (tuple, list)) and any(isinstance(part, Tensor) for part in size)
    return not any(name in table for table in (VALUES_BY_NUMBER, FACTS, READS))


def _has_tensor_in_slice(index: Any) -> bool:
    if isinstance(index, slice):
        return any(isinstance(part, Tensor) for part in (index.start, index.stop, index.step))
    return isinstance(index, tuple) and any(_has_tensor_in_slice(part) for part in index)


def _has_mask(index: Any) -> bool:
    if isinstance(index, Tensor):
        return index.dtype in (torch.bool, torch.uint8) and index.dim() > 0 or index.dtype is torch.bool
    if isinstance(index, (tuple, list)):
        return any(_has_mask(i) for i in index)
    return False


def is_unchanged_by_layout(func: Any, args: tuple, kwargs: dict, result: Any) -> bool:
    """Whether a call has returned its argument because that has the wanted layout already. Another one is copied."""
    return (
        type(result) is Tensor
        and any(value is result for value in args)
        and (name_of(func) == "contiguous" or kwargs.get("memory_format") is not None)
    )


def only_tensors(result: Any) -> bool:
    """Tensors, None, and containers of them; at least one tensor unless the result is empty."""
    if result is None or isinstance(result, Tensor):
        return True
    if isinstance(result, (tuple, list)):
        return (
            all(only_tensors(r) for r in result) and len(result) > 0 or isinstance(result, (tuple, list)) and not result
        )
    if isinstance(result, dict):
        return all(only_tensors(r) for r in result.values())
    return False


# Tensor methods written in Python; some have another name than their function (__pow__ is named pow).
PYTHON_METHODS = {value: name for name, value in vars(Tensor).items() if isinstance(value, FunctionType)}


def _method_name(func: Any) -> str | None:
    owner = getattr(func, "__objclass__", None)
    if owner is not None:
        return func.__name__ if issubclass(Tensor, owner) else None
    return PYTHON_METHODS.get(func) if isinstance(func, FunctionType) else None


def target_of(func: Any) -> Any:
    """The target of an fx node: the method's name for tensor methods, else the function."""
    accessor = getattr(func, "__name__", None)
    if accessor == GETTER:
        return Getter(name_of(func))
    return _method_name(func) or func


class Getter:
    """``tensor.T`` as a function with a name a graph can print."""

    _made: dict[str, Getter] = {}

    def __new__(cls, name: str) -> Getter:
        found = cls._made.get(name)
        if found is None:
            found = cls._made[name] = super().__new__(cls)
            found.__name__ = found.__qualname__ = f"get_{name}"
            found.__module__ = __name__
            found.torch_attribute = name
        return found

    def __call__(self, value: Any) -> Any:
        return getattr(value, self.torch_attribute)

    def __reduce__(self) -> Any:
        return (Getter, (self.torch_attribute,))

    def __repr__(self) -> str:
        return f"get_{self.torch_attribute}"


def identifier(text: str, at: int) -> str:
    cleaned = re.sub(r"\W+", "_", text).strip("_").lower()
    return f"{cleaned or 'input'}" if cleaned and not cleaned[0].isdigit() else f"input_{at}_{cleaned}"


def why_not_leaf(m: Any, made: Any) -> tuple[breaks.BreakKind, str] | None:
    """The break after a call that makes a leaf. Graphs of other compilers would give it no gradient."""
    if m.options.runs_python or not isinstance(made, Tensor):
        return None
    with WithoutRules():
        if not made.requires_grad or m.knows(made) or is_view_without_gradient(made) or not is_leaf(made):
            return None
    return breaks.TENSOR_STATE, "a leaf is made for another compiler"


def is_view_without_gradient(made: Tensor) -> bool:
    """Whether it is a view of a parameter, made without gradients: torch calls it a leaf, but gives it none. It may not
    be asked whether it is one after it was written to."""
    if torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        return False
    return made._is_view() and made._base.requires_grad  # type: ignore[union-attr]
