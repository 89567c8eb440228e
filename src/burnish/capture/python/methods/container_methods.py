"""Methods of builtin containers and of strings while tracing.

Reading methods guard the values they read. Writing methods guard the previous content of the container, so that the
change can be replayed from a comparison at the end of the segment. Both then run natively on the real object.
"""

from __future__ import annotations

import collections
import encodings.aliases
from collections.abc import Callable
from typing import Any

import torch

from ... import breaks
from ...engine.container_changes import table_read_at_once
from ...engine.interpreted_or_native import is_trusted_type
from ...engine.object_lifetimes import leaving_sequence
from ...guards.container_reads_past_overrides import elements_of, has_key
from ...interpreter.frames import Raised
from ...numbers import live_scalars
from ...numbers.live_scalars import Live, settled
from ..attributes.attribute_writes import without_result
from ..calls import native_call_rules
from ..messages import print_and_format
from ..operators import guard_before_native_read, guard_identity_comparisons, iteration, subscripts, value_kinds
from ..polyfills import container_polyfills, reduction_polyfills, sort_polyfills
from ..sequence_builtins import holds_objects, is_object

LIST_WRITES = frozenset(
    "insert pop remove reverse clear sort extendleft appendleft popleft rotate __setitem__ __delitem__ "
    "__iadd__ __imul__".split()
)
DICT_VIEWS = frozenset(("keys", "values", "items"))
DICT_WRITES = frozenset("popitem clear move_to_end __ior__ subtract".split())
SET_WRITES = frozenset(
    "add discard remove pop clear difference_update intersection_update symmetric_difference_update "
    "update __ior__ __iand__ __isub__ __ixor__".split()
)

SEARCHES = frozenset("index count remove sort __contains__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__".split())
WRITES = LIST_WRITES | DICT_WRITES | SET_WRITES | {"append", "extend", "setdefault", "__init__"}


# The argument counts of methods whose arguments are inspected before Python's own method gets them.
TAKE = {
    **dict.fromkeys("append extend extendleft add remove discard count".split(), (1, 1)),
    **dict.fromkeys("__iadd__ __ior__ __getitem__ __delitem__ __contains__".split(), (1, 1)),
    **dict.fromkeys(("__setitem__", "insert"), (2, 2)),
    "index": (1, 3),
}


def dict_of_keys(m: Any, kind: type, args: tuple, kwargs: dict, bound: Any) -> Any:
    """``dict.fromkeys``: C code must not iterate or hash by the user's rules."""
    if kwargs or not 0 < len(args) < 3:
        return m.made(m.perform(bound, *args, **kwargs))
    keys = args[0]
    if type(keys) not in (list, tuple, dict, set, frozenset, str, bytes, range) or not is_trusted_type(kind):
        return m.call(container_polyfills.dict_of_keys, (kind, *args), {})
    if type(keys) in (list, tuple):  # the keys of the others are already hashed
        for key in keys:
            guard_before_native_read.check_key(m, key, dict)
    m.heap.expose(args)
    return m.made(m.perform(bound, *args))


# ---- dictionaries


def merged_items(m: Any, args: tuple, kwargs: dict) -> dict:
    try:
        return m.plainly(dict, *args, **kwargs)  # type: ignore[no-any-return]
    except Raised:
        if args and issubclass(type(args[0]), (list, tuple)) and len(list(elements_of(args[0]))) > 1:
            m.stop(breaks.OPAQUE_CALL, "dict.update that has stored items before it raises")
        raise


def check_key_for(m: Any, table: dict, name: str, key: Any) -> None:
    if name == "pop" and not dict.__len__(table):
        guard_before_native_read.refuse_unhashed_key(m, key, "pop() of an empty dictionary")
    guard_before_native_read.check_key(m, key, subscripts.table_kind(table) if name == "pop" else dict)


def call_dict(m: Any, table: dict, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    takes = TAKE.get(name)
    if takes is not None and (kwargs or len(args) != takes[1]) or name == "update" and len(args) > 1:
        return m.plainly(method, *args, **kwargs)  # raises the error
    if (
        name in BY_ITS_OWN_RULES
        and (args or kwargs or name in ("copy", "popitem"))
        and value_kinds.has_own_rules(m, type(table))
    ):
        m.stop(breaks.OPAQUE_CALL, f"{name} of a {type(table).__qualname__} with its own items")
    if name in ("copy", "__copy__") and type(table) is not dict:
        asks = iteration.needs_interpreting(m, table)
        if iteration.is_made_by_calls(m, table) or asks and issubclass(type(table), iteration.MADE_BY_CALLS):
            m.stop(breaks.OPAQUE_CALL, f"copy of a {type(table).__qualname__}")
        if asks:
            return m.call(container_polyfills.dict_copy, (table,), {})
    if name == "copy" and type(table) is dict and not args and not kwargs:
        return m.plainly(dict, table_read_at_once(m.heap, table))
    if name in ("__or__", "__ror__") and args and issubclass(type(args[0]), dict):
        iteration.refuse_union(m, table, args[0])
    if name == "__init__" and any(iteration.merges_in_python(m, items, type(table)) for items in args):
        if issubclass(type(table), collections.defaultdict):
            m.stop(breaks.OPAQUE_CALL, "a defaultdict made of an iterable that runs Python code")
        return m.call(container_polyfills.dict_update, (table, *args), kwargs)
    origin = m.heap.origin_of(table)
    if name in OF_ONE_KEY and args:
        return _call_with_key(m, table, name, args, kwargs, method)
    if (
        name in ("update", "__ior__")
        and args
        and (iteration.merges_in_python(m, args[0], type(table)) or not issubclass(type(args[0]), (list, tuple, dict)))
    ):
        polyfill = container_polyfills.dict_update if name == "update" else container_polyfills.dict_updated
        return m.call(polyfill, (table, *args), kwargs)
    if name == "update":
        m.heap.expose(args)
        merged = merged_items(m, args, kwargs) if not isinstance(table, collections.Counter) else None
        if merged is not None:
            for key, value in merged.items():
                subscripts.store_key(m, table, key, value)
            return None
        m.heap.will_write(table)
    if origin is not None and (name in DICT_WRITES or name in ("__init__", "__delitem__")):
        m.heap.will_write(table)
    if name in DICT_VIEWS and not args:
        m.heap.expose(table)  # with all its content: native code reads through the view, out of the tracer's sight
        return m.plainly(method, **kwargs)
    m.heap.expose(table)
    m.heap.expose(args)
    answer = m.perform(method, *args, **kwargs)
    return m.made(answer) if isinstance(answer, dict) else answer


OF_ONE_KEY = frozenset("get __getitem__ __contains__ pop setdefault __setitem__ __delitem__".split())


def _call_with_key(m: Any, table: dict, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    origin = m.heap.origin_of(table)
    check_key_for(m, table, name, args[0])
    key = settled(args[0])
    if name == "__getitem__":
        return subscripts.subscript_dict(m, table, key, origin)
    if name == "__setitem__":
        return subscripts.store_key(m, table, key, args[1])
    found = _guard_key(m, origin, key, name) if origin is not None else None
    gives_live = issubclass(type(found), Live) and name in ("get", "pop", "setdefault")
    answer = m.plainly(method, key, *args[1:], **kwargs) if not gives_live or name == "pop" else None
    return found if gives_live else answer


BY_ITS_OWN_RULES = frozenset("__init__ __ior__ setdefault copy update pop popitem".split())
"""Methods of ordered dictionaries that read and write through the object's own ``__getitem__``, ``__setitem__``, ..."""


def _guard_key(m: Any, origin: Any, key: Any, name: str) -> Any:
    """Guard the entry that the method will find. Returns it if it is a number that changes."""
    if not m.heap.is_constant_key(key):
        m.heap.complete(origin)
        return None
    found = m.heap.read_key(origin, key)
    if name in ("pop", "__delitem__") and has_key(origin.obj, key):
        m.heap.will_write_key(origin, key, deletes=True)
    elif name == "setdefault" and not has_key(origin.obj, key):
        m.heap.will_write_key(origin, key)
    return found


# ---- lists and deques


DEQUE_COPIES = ("copy", "__copy__", "__add__", "__mul__", "__rmul__")


def call_list(m: Any, items: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    origin = m.heap.origin_of(items)
    if name in DEQUE_COPIES and issubclass(type(items), collections.deque):
        iteration.refuse_copied_deque(m, items, *args)
    if name == "append":
        if issubclass(type(items), list):
            with m.heap.appending(origin):
                return m.plainly(method, *args)
        m.heap.will_write(items, leaving=leaving_sequence(items, name, args))
        return m.plainly(method, *args)
    if name in ("extend", "__iadd__", "extendleft"):
        other = args[0]
        if iteration.needs_interpreting(m, other):
            if other is items:
                m.stop(breaks.OPAQUE_CALL, f"{name} of a {type(items).__qualname__} by itself")
            polyfill = {
                "extendleft": container_polyfills.deque_extendleft,
                "extend": container_polyfills.list_extend,
            }.get(name, container_polyfills.list_extended)
            return m.call(polyfill, (items, other), {})
        iteration.refuse_outside(m, other)
        m.heap.expose(other)
        m.check_readable(method, other)
        if issubclass(type(items), list) and other is not items:
            with m.heap.appending(origin):
                return m.perform(method, other)
        m.heap.will_write(items, leaving=leaving_sequence(items, name, args))
        return m.perform(method, other)
    if name == "sort":
        m.heap.will_write(items, leaving=())
        if kwargs.get("key") is not None or holds_objects(items):
            return m.call(sort_polyfills.sort_list, (items,), kwargs)
    if name == "__getitem__":
        return subscripts.subscript_natively(m, items, args[0])
    if name == "__setitem__":
        return without_result(m, subscripts.store_natively(m, items, *args))
    if name == "__delitem__":
        return without_result(m, subscripts.delete_natively(m, items, args[0]))
    if name in ("pop", "insert", "rotate", "__delitem__", "__imul__") and args:
        subscripts.check_place(m, args[0])
        subscripts.check_slice(m, args[0])
        guard_before_native_read.settle_all(m, args[0])
    if origin is not None and name in LIST_WRITES:
        m.heap.will_write(items, leaving=leaving_sequence(items, name, args))
    if name in ("index", "count", "remove", "__contains__") and holds_objects(items) or any(map(is_object, args)):
        polyfill = {
            "index": container_polyfills.index_of,
            "count": container_polyfills.count_of,
            "remove": container_polyfills.remove,
        }.get(name)
        if polyfill is not None and value_kinds.holds_user_equality(m, (items, args)):
            return m.call(polyfill, (items, *args), kwargs)
    m.heap.expose(items)
    return call_sequence(m, items, name, args, kwargs, method)


INDEXING = frozenset(("__getitem__", "__mul__", "__rmul__", "__imul__", "rotate"))
TUPLE_SEARCHES = {"index": container_polyfills.index_of, "count": container_polyfills.count_of}


def is_size_of_live_numbers(items: Any) -> bool:
    return issubclass(type(items), torch.Size) and any(issubclass(type(v), Live) for v in tuple.__iter__(items))


def call_sequence(m: Any, items: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    m.heap.expose(args)
    guard_before_native_read.check_numbers(m, args)
    if name == "numel" and is_size_of_live_numbers(items) and not args and not kwargs:
        return m.call(reduction_polyfills.number_of_elements, (items,), {})
    if name in SEARCHES:
        guard_before_native_read.check_numbers(m, items)
        guard_identity_comparisons.guard_comparison(m, items, args)
        guard_identity_comparisons.guard_elements(m, method, items, args)
    if name in INDEXING and issubclass(type(items), (tuple, list, collections.deque)):
        for value in args:
            guard_before_native_read.settle_all(m, value)
    if issubclass(type(items), tuple) and name in TUPLE_SEARCHES and value_kinds.holds_user_equality(m, (items, args)):
        return m.call(TUPLE_SEARCHES[name], (items, *args), kwargs)
    answer = m.perform(method, *map(native_call_rules.plain, args), **kwargs)
    return answer


# ---- sets

KEYED_SET_METHODS = frozenset(("add", "discard", "remove", "__contains__"))
OF_ONE_SET = frozenset(
    "symmetric_difference symmetric_difference_update issubset issuperset isdisjoint __init__".split()
)
SET_COMPARISONS = frozenset(
    "issubset issuperset isdisjoint __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __len__ __hash__".split()
)
SET_OPERATORS = frozenset(
    f"__{name}__" for name in "and or sub xor rand ror rsub rxor iand ior isub ixor eq ne lt le gt ge".split()
)


def runs_python(m: Any, other: Any) -> bool:
    """Methods of sets read the table of another set, without asking for its iterator."""
    return not issubclass(type(other), (set, frozenset)) and iteration.needs_interpreting(m, other)


def without_live_numbers(other: Any) -> Any:
    """They are guarded, as keys that are hashed. No steps may be known to replace them in the set afterwards."""
    if not issubclass(type(other), (list, tuple, dict)) or not any(
        [issubclass(type(part), Live) for part in elements_of(other)]
    ):
        return other
    parts = [guard_before_native_read.settled(part) for part in elements_of(other)]
    return dict.fromkeys(parts) if issubclass(type(other), dict) else parts


def call_set(m: Any, items: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    if name in SET_OPERATORS and not all(issubclass(type(other), (set, frozenset)) for other in args):
        return m.plainly(method, *args, **kwargs)  # which leaves it to the other operand
    reads = iteration.needs_interpreting if name == "isdisjoint" else runs_python  # which asks sets for an iterator
    steps = () if name in KEYED_SET_METHODS else tuple(reads(m, a) for a in args)
    if any(steps):
        if kwargs or len(args) != 1 and name in OF_ONE_SET:
            return m.plainly(method, *args, **kwargs)  # which refuses
        from ..polyfills import set_polyfills

        polyfill = getattr(set_polyfills, f"set_{name.strip('_')}")
        base = set if isinstance(items, set) else frozenset
        return m.call(polyfill, (base, items, args, steps), {})
    for value in args:
        if name not in KEYED_SET_METHODS:
            check_elements(m, name, value)
        elif name == "add" or not issubclass(type(value), set):  # a set is looked up as an equal frozenset
            guard_before_native_read.check_key(m, value, set)
    is_plain = name in KEYED_SET_METHODS or name in SET_COMPARISONS
    for value in (items, *args):
        m.heap.expose(value, reads_order=False)
        if not is_plain and issubclass(type(value), (set, frozenset)):
            m.heap.read_order(value, stops=name in ("pop", "__iter__", "__reduce__", "__repr__"))
    for other in args:
        guard_identity_comparisons.guard_comparison(m, items, other)
    if name in ("union", "symmetric_difference"):
        args = tuple(map(without_live_numbers, args))
    if name not in SET_WRITES and name != "__init__" or kwargs:
        return call_sequence(m, items, name, args, kwargs, method)
    args = tuple(map(native_call_rules.plain, args))
    args = tuple(map(guard_before_native_read.settled if name in KEYED_SET_METHODS else without_live_numbers, args))
    with m.heap.changing_set(items, name, args):
        return call_sequence(m, items, name, args, kwargs, method)


GRADUAL = frozenset(("__init__", "update", "difference_update", "intersection", "intersection_update"))
"""These have changed the set before they come to a wrong element, or have their answer."""


def check_elements(m: Any, name: str, items: Any) -> None:
    try:
        for part in elements_of(items) if issubclass(type(items), (list, tuple, set, frozenset, dict)) else ():
            guard_before_native_read.check_key(m, part, None if name == "issubset" else set)
    except Raised:
        if name in GRADUAL:
            m.stop(breaks.OPAQUE_CALL, f"{name} of a set and an element that cannot be hashed")
        raise


# ---- text


ERROR_HANDLERS = frozenset(
    "strict ignore replace xmlcharrefreplace backslashreplace namereplace surrogateescape surrogatepass".split()
)


def is_plain_codec(encoding: Any = "utf-8", errors: Any = "strict", *rest: Any) -> bool:
    """Whether Python's own codec and error handler do the work. Errors about the arguments are theirs, too."""
    if type(encoding) is not str or type(errors) is not str or rest:
        return not isinstance(encoding, str) or not isinstance(errors, str)
    name = encodings.normalize_encoding(encoding.lower())
    return errors in ERROR_HANDLERS and (
        name in encodings.aliases.aliases or name in encodings.aliases.aliases.values()
    )


def call_text(m: Any, text: Any, name: str, args: tuple, kwargs: dict, method: Callable) -> Any:
    if name == "join" and args and iteration.needs_interpreting(m, args[0]):
        return m.call(reduction_polyfills.join, (text, args[0]), {})
    if name in ("format", "__mod__", "format_map"):
        for value in (*args, *kwargs.values()):
            if not issubclass(type(value), torch.Tensor) and print_and_format.needs_python_text(m, value):
                return m.stop(breaks.OPAQUE_CALL, f"str.{name} of a {type(value).__qualname__}")
            if name != "format" and value_kinds.finds_items_by_methods(m, value):
                return m.stop(breaks.OPAQUE_CALL, f"str.{name} by the items of a {type(value).__qualname__}")
    if name == "format" and not kwargs and print_and_format.holds_live_alone(args):
        return m.plainly(live_scalars.apply, str.format, settled(text), *args)
    if name in ("encode", "decode") and not is_plain_codec(*args, **kwargs):
        return m.stop(breaks.OPAQUE_CALL, f"{name} by a codec or an error handler that may be registered")
    if not kwargs and all([type(a) in value_kinds.SIMPLE for a in args]):
        return m.plainly(method, *args)
    return native_call_rules.native(m, method, tuple(map(settled, args)), kwargs)
