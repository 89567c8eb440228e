"""Opcodes for building, extending and unpacking containers; strings; pattern matching."""

from __future__ import annotations

from ..frames import PUSHED, Raised
from ..reads_past_overrides import may_have_keys
from ..versions.behavior import BEHAVIOR
from .calls import callable_text
from .handler_registry import op
from .stack import put_result

SEQUENCE, MAPPING = 1 << 5, 1 << 6  # type flags: what patterns take for a sequence, and for a mapping


@op("BUILD_TUPLE")
def build_tuple(m, f, arg):
    _replace(f.stack, arg, tuple(f.stack[len(f.stack) - arg :]))


@op("BUILD_LIST")
def build_list(m, f, arg):
    _replace(f.stack, arg, m.made(f.stack[len(f.stack) - arg :]))


@op("BUILD_SET")
def build_set(m, f, arg):
    _replace(f.stack, arg, m.made(set(m.check_keys(f.stack[len(f.stack) - arg :], set))))


@op("BUILD_MAP")
def build_map(m, f, arg):
    items = f.stack[len(f.stack) - 2 * arg :]
    m.check_keys(items[::2], dict)
    _replace(f.stack, 2 * arg, m.made(dict(zip(items[::2], items[1::2], strict=True))))


@op("BUILD_CONST_KEY_MAP")
def build_const_key_map(m, f, arg):
    keys = f.stack[-1]
    _replace(f.stack, arg + 1, m.made(dict(zip(keys, f.stack[len(f.stack) - arg - 1 : -1], strict=True))))


@op("BUILD_STRING")
def build_string(m, f, arg):
    _replace(f.stack, arg, m.join_strings(f.stack[len(f.stack) - arg :]))


@op("BUILD_SLICE")
def build_slice(m, f, arg):
    _replace(f.stack, arg, slice(*f.stack[-arg:]))


def _replace(stack: list, count: int, value) -> None:
    if count:
        del stack[-count:]
    stack.append(value)


@op("LIST_APPEND")
def list_append(m, f, arg):
    m.append(f.stack[-arg - 1], f.stack[-1])
    f.stack.pop()


@op("SET_ADD")
def set_add(m, f, arg):
    m.add(f.stack[-arg - 1], f.stack[-1])
    f.stack.pop()


@op("MAP_ADD")
def map_add(m, f, arg):
    key, value = f.stack[-2:]
    m.store_subscript(f.stack[-arg - 2], key, value)
    del f.stack[-2:]


def _extend(name: str, method: str):
    @op(name)
    def handler(m, f, arg):
        pushed = m.extend(method, f.stack[-arg - 1], f.stack[-1])
        f.stack.pop()
        return pushed is PUSHED

    return handler


_extend("LIST_EXTEND", "list_extend")
_extend("SET_UPDATE", "set_update")
_extend("DICT_UPDATE", "dict_update")


@op("DICT_MERGE")
def dict_merge(m, f, arg):
    """Keyword arguments of a call. 3.11 and 3.12: ``callable, args, target`` end below ``arg`` values."""
    return merge_keywords(m, f, arg, f.stack[-arg - 3])


def merge_keywords(m, f, arg: int, function):
    """A duplicate key is an error that names the function."""
    target, other = f.stack[-arg - 1], f.stack[-1]
    if type(other) is dict and target.keys().isdisjoint(other) and set(map(type, other)) <= {str}:
        m.extend("dict_update", target, other)
        f.stack.pop()
        return None
    if not may_have_keys(other):
        text = f"{callable_text(function)} argument after ** must be a mapping, not {type(other).__name__}"
        raise Raised(TypeError(text))
    other = m.to_dict(other)
    if other is PUSHED:
        return m.redo_with(f, -1)
    twice = [k for k in other if k in target]
    if twice:
        raise Raised(TypeError(f"{callable_text(function)} got multiple values for keyword argument '{twice[0]}'"))
    m.extend("dict_update", target, other)
    f.stack.pop()
    return None


@op("LIST_TO_TUPLE")
def list_to_tuple(m, f, arg):
    f.stack[-1] = m.to_tuple(f.stack[-1], None)


@op("UNPACK_SEQUENCE")
def unpack_sequence(m, f, arg):
    items = m.unpack(f.stack[-1], arg)
    if items is PUSHED:
        f.stack.pop()
        return True
    if len(items) != arg:
        if len(items) < arg:
            text = f"not enough values to unpack (expected {arg}, got {len(items)})"
        else:
            value = f.stack[-1]
            is_counted = BEHAVIOR.has_detailed_errors and type(value) in (tuple, list, dict)
            text = f"too many values to unpack (expected {arg}{f', got {len(value)}' if is_counted else ''})"
        raise Raised(ValueError(text))
    f.stack.pop()
    f.stack.extend(reversed(items))
    return None


@op("UNPACK_EX")
def unpack_ex(m, f, arg):
    before, after = arg & 0xFF, arg >> 8
    items = m.unpack(f.stack[-1], None)
    if items is PUSHED:
        f.stack.pop()
        return True
    items = list(items)
    if len(items) < before + after:
        raise Raised(ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(items)})"))
    cut = len(items) - after
    f.stack.pop()
    f.stack.extend(reversed(items[cut:]))
    f.stack.append(items[before:cut])
    f.stack.extend(reversed(items[:before]))
    return None


@op("FORMAT_VALUE")
def format_value(m, f, arg):
    spec = f.stack[-1] if arg & 4 else ""
    size = 2 if arg & 4 else 1
    return put_result(f, size, m.format(f.stack[-size], (None, str, repr, ascii)[arg & 3], spec))


@op("GET_LEN")
def get_len(m, f, arg):
    value = m.length(f.stack[-1])
    if value is PUSHED:
        return True
    f.stack.append(value)
    return None


@op("MATCH_MAPPING")
def match_mapping(m, f, arg):
    f.stack.append(bool(type(f.stack[-1]).__flags__ & MAPPING))


@op("MATCH_SEQUENCE")
def match_sequence(m, f, arg):
    f.stack.append(bool(type(f.stack[-1]).__flags__ & SEQUENCE))


@op("MATCH_KEYS")
def match_keys(m, f, arg):
    subject, keys = f.stack[-2:]
    f.stack.append(m.match_keys(subject, keys))


@op("MATCH_CLASS")
def match_class(m, f, arg):
    subject, cls, names = f.stack[-3:]
    return put_result(f, 3, m.match_class(subject, cls, arg, names))
