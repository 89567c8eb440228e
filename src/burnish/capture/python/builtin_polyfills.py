"""Python versions of what C code would do with user objects.

C functions that call back into Python (``sorted(key=)``, ``a + b`` with ``__radd__``, ``type.__call__``) would run user
code out of the interpreter's sight. Where an operand has Python methods the call goes to one of these instead, which
the interpreter runs like any user function. They use only what the interpreter handles natively.
"""

from __future__ import annotations

from array import array
from collections import deque
from operator import index

SYMBOLS = {
    "__add__": "+",
    "__sub__": "-",
    "__mul__": "*",
    "__matmul__": "@",
    "__truediv__": "/",
    "__floordiv__": "//",
    "__mod__": "%",
    "__pow__": "** or pow()",
    "__lshift__": "<<",
    "__rshift__": ">>",
    "__and__": "&",
    "__or__": "|",
    "__xor__": "^",
    "__lt__": "<",
    "__le__": "<=",
    "__gt__": ">",
    "__ge__": ">=",
}
MISSING = object()
SEQUENCES = (str, bytes, list, tuple)


def _binary_error(left, right, method, suffix):
    if method == "__mul__":
        for one, other in ((left, right), (right, left)):
            if isinstance(one, SEQUENCES):
                return TypeError(f"can't multiply sequence by non-int of type '{type(other).__name__}'")
    symbol = SYMBOLS[method]
    if suffix:
        symbol = symbol.split(" ")[0] + suffix
    return TypeError(f"unsupported operand type(s) for {symbol}: '{type(left).__name__}' and '{type(right).__name__}'")


def has_method(kind, name):
    """Not by ``hasattr``: a class has its metaclass's ``__or__``, its objects have not."""
    return any(name in base.__dict__ for base in kind.__mro__)


has_method._burnish_constant = True


def is_concatenation(kind, method):
    """Whether the ``+`` or ``*`` of a class is that of sequences, which Python asks last, after the other operand's."""
    if method not in ("__add__", "__mul__", "__iadd__", "__imul__"):
        return False
    return next((base for base in kind.__mro__ if method in base.__dict__), None) in CONCATENATED


CONCATENATED = (str, bytes, bytearray, list, tuple, deque, array)
is_concatenation._burnish_constant = True


def binary(left, right, method, reflected):
    value = _try_binary(left, right, method, reflected)
    if value is NotImplemented:
        raise _binary_error(left, right, method, "")
    return value


def _try_binary(left, right, method, reflected):
    left_kind, right_kind = type(left), type(right)
    mine = getattr(left_kind, method, None) if has_method(left_kind, method) else None
    theirs = (
        getattr(right_kind, reflected, None)
        if left_kind is not right_kind and has_method(right_kind, reflected)
        else None
    )
    if theirs is not None and issubclass(right_kind, left_kind) and theirs is not getattr(left_kind, reflected, None):
        value = theirs(right, left)
        if value is not NotImplemented:
            return value
        theirs = None
    if theirs is not None and is_concatenation(left_kind, method):
        value = theirs(right, left)
        if value is not NotImplemented:
            return value
        theirs = None
    if mine is not None:
        value = mine(left, right)
        if value is not NotImplemented:
            return value
    if theirs is not None and not (method == "__mul__" and isinstance(right, SEQUENCES)):
        return theirs(right, left)
    return NotImplemented


def in_place(left, right, method, reflected, in_place_method):
    kind = type(left)
    is_last = is_concatenation(kind, in_place_method)
    if is_last and has_method(type(right), reflected):
        value = getattr(type(right), reflected)(right, left)
        if value is not NotImplemented:
            return value
    if has_method(kind, in_place_method):
        own = getattr(kind, in_place_method)
        value = own(left, right)
        if value is not NotImplemented:
            return value
    value = _try_binary(left, right, method, reflected)
    if value is NotImplemented:
        raise _binary_error(left, right, method, "=")
    return value


def compare(left, right, method, reflected):
    left_kind, right_kind = type(left), type(right)
    tried = False
    if left_kind is not right_kind and issubclass(right_kind, left_kind):
        tried = True
        value = getattr(right_kind, reflected)(right, left)
        if value is not NotImplemented:
            return value
    value = getattr(left_kind, method)(left, right)
    if value is not NotImplemented:
        return value
    if not tried:
        value = getattr(right_kind, reflected)(right, left)
        if value is not NotImplemented:
            return value
    if method == "__eq__":
        return left is right
    if method == "__ne__":
        return left is not right
    raise TypeError(
        f"'{SYMBOLS[method]}' not supported between instances of '{left_kind.__name__}' and '{right_kind.__name__}'"
    )


def not_equal(left, right):
    """``object.__ne__``."""
    value = type(left).__eq__(left, right)
    return value if value is NotImplemented else not value


def truth_by_bool(method):
    value = method()
    if value is not True and value is not False:
        raise TypeError(f"__bool__ should return bool, returned {type(value).__name__}")
    return value


def truth_by_len(method):
    return length(method) != 0


def length(method):
    value = method()
    if type(value) is not int:
        value = int(index(value))
    if value < 0:
        raise ValueError("__len__() should return >= 0")
    return value


def of_kind(method, kinds, refusal, *args):
    """What a special method answers, refused as C code does when it is of another type."""
    value = method(*args)
    if not isinstance(value, kinds):
        raise TypeError(refusal.format(type(value).__name__))
    return value


def hash_of(method):
    value = method()
    if not isinstance(value, int):
        raise TypeError("__hash__ method should return an integer")
    if -1 << 63 <= value < 1 << 63:
        return -2 if value == -1 else int(value)
    return hash(value)


def iterator_of(method):
    value = method()
    if getattr(type(value), "__next__", None) is None:
        raise TypeError(f"iter() returned non-iterator of type '{type(value).__name__}'")
    return value


def contains(container, item):
    method = getattr(type(container), "__contains__", None)
    if method is not None:
        return bool(method(container, item))
    for value in container:  # noqa: SIM110  # any() would make a generator for each call
        if value is item or value == item:
            return True
    return False


def not_contains(container, item):
    return not contains(container, item)


def sequence_contains(container, item):
    for value in container:  # noqa: SIM110
        if value is item or value == item:
            return True
    return False


def sequence_not_contains(container, item):
    return not sequence_contains(container, item)


def raise_error(error, context):
    """Raise ``error`` as it is: what is being handled does not become its context."""
    try:
        raise error
    finally:
        error.__context__ = context


def throw_made(generator, kind, value=None, traceback=None):
    error = value if isinstance(value, kind) else kind() if value is None else kind(value)
    return generator.throw(error if traceback is None else error.with_traceback(traceback))


def bisect_right(a, x, lo=0, hi=None, *, key=None):
    return _bisect(a, x, lo, hi, key, False)


def bisect_left(a, x, lo=0, hi=None, *, key=None):
    return _bisect(a, x, lo, hi, key, True)


def _bisect(items, x, low, high, key, is_left):
    if low < 0:
        raise ValueError("lo must be non-negative")
    if high is None:
        high = len(items)
    while low < high:
        middle = (low + high) // 2
        item = items[middle] if key is None else key(items[middle])
        goes_right = item < x if is_left else not x < item
        if goes_right:
            low = middle + 1
        else:
            high = middle
    return low


def default_item(table, key, factory):
    value = table[key] = factory()
    return value


def get_attribute(obj, name):
    try:
        return type(obj).__getattribute__(obj, name)
    except AttributeError:
        fallback = getattr(type(obj), "__getattr__", None)
        if fallback is None:
            raise
    return fallback(obj, name)


def getattr_or(obj, name, default):
    try:
        return getattr(obj, name)
    except AttributeError:
        return default


def has_attribute(obj, name):
    try:
        getattr(obj, name)
    except AttributeError:
        return False
    return True


def construct(cls, args, kwargs):
    """``type.__call__``."""
    obj = cls.__new__(cls, *args, **kwargs)
    if isinstance(obj, cls):
        value = type(obj).__init__(obj, *args, **kwargs)
        if value is not None:
            raise TypeError(f"__init__() should return None, not '{type(value).__name__}'")
    return obj


def construct_without_init(cls, args, kwargs):
    obj = cls.__new__(cls, *args, **kwargs)
    if type(obj) is not cls and isinstance(obj, cls):
        type(obj).__init__(obj, *args, **kwargs)  # of a subclass, which may have one
    return obj


def construct_plainly(cls, args, kwargs):
    obj = object.__new__(cls)
    value = cls.__init__(obj, *args, **kwargs)
    if value is not None:
        raise TypeError(f"__init__() should return None, not '{type(value).__name__}'")
    return obj


# ---- iterables made of user code


def tuple_of_class(make, cls, items):
    return make(cls, [value for value in items])  # noqa: C416


def read_property(getter, obj, name):
    """A property of a class with ``__getattr__``: an AttributeError inside falls through to it."""
    try:
        return getter(obj)
    except AttributeError:
        return type(obj).__getattr__(obj, name)


def read_cached_property(descriptor, obj):
    """``functools.cached_property.__get__`` without the lock it takes on 3.11."""
    cache = obj.__dict__
    name = descriptor.attrname
    if name in cache:
        return cache[name]
    value = cache[name] = descriptor.func(obj)
    return value


def to_list(items):
    return [value for value in items]  # noqa: C416  # the loop is what gets interpreted


def take(items, count):
    """What unpacking reads: at most one element more than there are names."""
    taken = []
    for value in items:
        taken.append(value)
        if len(taken) == count:
            break
    return taken


def to_tuple(items=()):
    return tuple([value for value in items])  # noqa: C409,C416


def to_set(items=()):
    return {value for value in items}  # noqa: C416


def to_frozenset(items=()):
    return frozenset({value for value in items})  # noqa: C416


def to_dict(items=(), /, **kwargs):
    if hasattr(items, "keys"):  # noqa: SIM108  # reads as the protocol does
        made = {key: items[key] for key in items.keys()}  # noqa: SIM118  # the protocol asks for keys()
    else:
        made = {key: value for key, value in items}  # noqa: C416
    made.update(kwargs)
    return made


def dict_of_keys(kind, keys, value=None):
    made = kind()
    for key in keys:
        made[key] = value
    return made


def to_deque(kind, items, maxlen=None):
    return kind([value for value in items], maxlen)  # noqa: C416


def list_extend(target, items):
    for value in items:
        target.append(value)


def list_extended(target, items):
    """``target.__iadd__(items)``."""
    for value in items:
        target.append(value)
    return target


def deque_extendleft(target, items):
    for value in items:
        target.appendleft(value)


def set_update(target, *others):
    for items in others:
        for value in items:
            target.add(value)


def dict_update(target, items=(), /, **kwargs):
    if hasattr(items, "keys"):
        for key in items.keys():  # noqa: SIM118
            target[key] = items[key]
    else:
        for key, value in items:
            target[key] = value
    for key, value in kwargs.items():
        target[key] = value


def dict_init(update, target, items, /, **kwargs):
    update(target, to_dict(items), **kwargs)


def store_slice(target, at, items):
    list.__setitem__(target, at, [value for value in items])  # noqa: C416


def sum_(items, /, start=0):
    total = start
    for value in items:
        total = total + value
    return total


def any_(items):
    for value in items:  # noqa: SIM110
        if value:
            return True
    return False


def all_(items):
    for value in items:  # noqa: SIM110
        if not value:
            return False
    return True


def minimum(*args, key=None, default=MISSING):
    return _extreme("min", args, key, default, False)


def maximum(*args, key=None, default=MISSING):
    return _extreme("max", args, key, default, True)


def _extreme(name, args, key, default, largest):
    if len(args) > 1 and default is not MISSING:
        raise TypeError(f"Cannot specify a default for {name}() with multiple positional arguments")
    best = best_key = MISSING
    for value in args if len(args) > 1 else args[0]:
        value_key = value if key is None else key(value)
        if best is MISSING or (value_key > best_key if largest else value_key < best_key):
            best, best_key = value, value_key
    if best is MISSING:
        if default is MISSING:
            raise ValueError(
                f"{name}() iterable argument is empty" if EMPTY_SAYS_ITERABLE else f"{name}() arg is an empty sequence"
            )
        return default
    return best


try:
    max([])
except ValueError as _error:
    EMPTY_SAYS_ITERABLE = "iterable argument" in str(_error)


def reduce(function, items, initial=MISSING):
    iterator = iter(items)
    if initial is MISSING:
        try:
            total = next(iterator)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    else:
        total = initial
    for value in iterator:
        total = function(total, value)
    return total


def join(separator, items):
    return separator.join([value for value in items])  # noqa: C416


def next_or(iterator, default):
    try:
        return next(iterator)
    except StopIteration:
        return default


def index_of(sequence, item, start=0, stop=None):
    start, stop, _ = slice(start, stop).indices(len(sequence))
    for at in range(start, stop):
        if at >= len(sequence):
            break  # it shrinks while its elements are compared
        if sequence[at] is item or sequence[at] == item:
            return at
    raise ValueError(f"{item!r} is not in {'deque' if isinstance(sequence, deque) else 'list'}")


def count_of(sequence, item):
    return sum([1 for value in sequence if value is item or value == item])


def remove(target, item):
    for at, value in enumerate(target):
        if value is item or value == item:
            del target[at]
            return
    raise ValueError(f"{item!r} is not in deque" if isinstance(target, deque) else "list.remove(x): x not in list")


# ---- text


def text(value):
    method = type(value).__str__
    return method(value)


def representation(value):
    return type(value).__repr__(value)


def format_text(value, spec):
    return format(str(value), spec)


def convert_and_format(convert, value, spec):
    return format(convert(value), spec)


def list_text(items, opening, closing):
    parts = [repr(value) for value in items]
    return opening + ", ".join(parts) + closing


def tuple_text(items):
    parts = [repr(value) for value in items]
    return "(" + ", ".join(parts) + ("," if len(parts) == 1 else "") + ")"


def dict_text(table):
    return "{" + ", ".join([f"{key!r}: {value!r}" for key, value in table.items()]) + "}"


# ---- calls that only pass on


def call_entry(self, args, kwargs):  # messages name what they find by these: `self.layers[0].weight`
    return self(*args, **kwargs)


def call_forward(module, args, kwargs):
    return module.forward(*args, **kwargs)


def call_partial(function, args, kwargs, more, more_kwargs):
    return function(*args, *more, **{**kwargs, **more_kwargs})


def instance_check(obj, classes):
    return any_(isinstance(obj, c) for c in classes)


def construct_around(obj, args, kwargs):
    value = type(obj).__init__(obj, *args, **kwargs)
    if value is not None:
        raise TypeError(f"__init__() should return None, not '{type(value).__name__}'")
    return obj


def to_dict_like(cls, args, kwargs):
    """OrderedDict(items), defaultdict(factory, items) of user iterables."""
    plain = [to_dict(a) if hasattr(a, "__iter__") or hasattr(a, "keys") else a for a in args]
    return cls(*plain, **kwargs)


def truth_of(function, *args):
    return bool(function(*args))


def print_texts(args, options):
    """print() of objects whose text is computed by Python code."""
    print(*[str(value) for value in args], **options)
