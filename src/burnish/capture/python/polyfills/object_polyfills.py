"""Object polyfills: Python versions of attribute access, object creation and type checks.

    Config(path)        # cls.__new__ and cls.__init__ are the user's: ``type.__call__``, in two steps

A few only pass a call on, so that it has a frame in the interpreter.
"""

from __future__ import annotations

import functools
import operator
import warnings
from types import TracebackType

from ...interpreter.frames import THROW_OF_CLASS_AND_VALUE, made_no_error, thrown
from .reduction_polyfills import any_

COPY_OF_ITERTOOLS = "Pickle, copy, and deepcopy support will be removed from itertools in Python 3.14."
with warnings.catch_warnings(record=True) as _given:
    warnings.simplefilter("always")
    operator.invert(True)
INVERSION_OF_BOOL = next((str(warning.message) for warning in _given), None)
"""The text differs between releases of Python."""


def raise_error(error, context):
    """Raise ``error`` as it is: the exception being handled does not become its context."""
    try:
        raise error
    finally:
        error.__context__ = context


def throw_made(generator, kind, value=None, traceback=None):
    if traceback is not None and not isinstance(traceback, TracebackType):
        raise TypeError("throw() third argument must be a traceback object")
    try:
        if isinstance(value, kind):
            error = value
        elif isinstance(value, tuple):
            error = kind(*value)
        else:
            error = kind() if value is None else kind(value)
        if not isinstance(error, BaseException):
            raise made_no_error(kind, type(error).__name__)
    except BaseException as raised:
        error = raised  # it is thrown in place of the other
    return generator.throw(error if traceback is None else error.with_traceback(traceback))


def throw_of_class_and_value(generator, kind, value=None, traceback=None):
    warnings.warn(THROW_OF_CLASS_AND_VALUE, DeprecationWarning)  # noqa: B028  # our frames are not counted
    if isinstance(kind, type):
        return throw_made(generator, kind, value, traceback)
    return generator.throw(thrown(kind, value, traceback))


def reduced_iterator(reduction):
    warnings.warn(COPY_OF_ITERTOOLS, DeprecationWarning)  # noqa: B028  # our frames are not counted
    return reduction


def inverted_bool(value):
    warnings.warn(INVERSION_OF_BOOL, DeprecationWarning)  # noqa: B028  # our frames are not counted
    return ~int(value)


def call_for_effect(function, arguments):
    function(**arguments)


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


def derives(kind, cls):
    """Whether a class is among the bases, whatever metaclasses say about it."""
    for base in kind.__mro__:  # noqa: SIM110  # a generator is interpreted step by step
        if base is cls:
            return True
    return False


def construct(cls, args, kwargs):
    """``type.__call__``."""
    obj = cls.__new__(cls, *args, **kwargs)
    if type(obj) is cls or derives(type(obj), cls):
        value = type(obj).__init__(obj, *args, **kwargs)
        if value is not None:
            raise TypeError(f"__init__() should return None, not '{type(value).__name__}'")
    return obj


def construct_without_init(cls, args, kwargs):
    obj = cls.__new__(cls, *args, **kwargs)
    if type(obj) is not cls and derives(type(obj), cls):
        type(obj).__init__(obj, *args, **kwargs)  # of a subclass, which may have one
    return obj


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


# ---- calls that only pass on


def call_entry(self, args, kwargs):  # messages name what they find by these: `self.layers[0].weight`
    return self(*args, **kwargs)


def call_forward(module, args, kwargs):
    return module.forward(*args, **kwargs)


def sorted_names(method):
    """``dir()`` of an object that says itself which names it has."""
    names = list(method())
    names.sort()
    return names


def instance_by_class(obj, kinds):
    """``isinstance`` of an object whose ``__class__`` is computed by Python code."""
    for kind in kinds:
        if issubclass(type(obj), kind):
            return True
        cls = getattr(obj, "__class__", None)
        if cls is not type(obj) and isinstance(cls, type) and issubclass(cls, kind):
            return True
    return False


def instance_check(obj, classes):
    return any_(isinstance(obj, c) for c in classes)


def subclass_check(cls, classes):
    return any_(issubclass(cls, c) for c in classes)


def instance_by_bases(obj, kind):
    """``isinstance`` with an object that is not a class, but has ``__bases__`` like one."""
    if bases_of(kind) is None:
        raise TypeError("isinstance() arg 2 must be a type, a tuple of types, or a union")
    cls = getattr(obj, "__class__", None)
    return cls is not None and has_base(cls, kind)


def subclass_by_bases(cls, kind):
    """The same for ``issubclass``."""
    if bases_of(cls) is None:
        raise TypeError("issubclass() arg 1 must be a class")
    if bases_of(kind) is None:
        raise TypeError("issubclass() arg 2 must be a class, a tuple of classes, or a union")
    return has_base(cls, kind)


def bases_of(cls):
    bases = getattr(cls, "__bases__", None)
    return bases if isinstance(bases, tuple) else None


def has_base(cls, kind):
    while cls is not kind:
        bases = bases_of(cls)
        if not bases:
            return False
        if len(bases) > 1:
            return any_(has_base(base, kind) for base in bases)
        cls = bases[0]
    return True


def construct_around(obj, args, kwargs):
    value = type(obj).__init__(obj, *args, **kwargs)
    if value is not None:
        raise TypeError(f"__init__() should return None, not '{type(value).__name__}'")
    return obj


def truth_of(function, *args):
    return bool(function(*args))


def dispatching_method(descriptor, obj, cls=None):
    dispatch = descriptor.dispatcher.dispatch

    def method(*args, **kwargs):
        if not args:
            name = getattr(descriptor.func, "__name__", "singledispatchmethod method")
            raise TypeError(f"{name} requires at least 1 positional argument")
        return dispatch(args[0].__class__).__get__(obj, cls)(*args, **kwargs)

    method.__isabstractmethod__ = descriptor.__isabstractmethod__
    method.register = descriptor.register
    functools.update_wrapper(method, descriptor.func)
    return method


def nonstrict(function):
    """``torch.compiler.nonstrict_trace(function)`` in compiled code."""

    def traced(*args, **kwargs):
        return call_marked(function, args, kwargs)

    return traced


def call_marked(function, args, kwargs):
    """While tracing, `marks_of_dynamo.call_nonstrict` takes its place."""
    return function(*args, **kwargs)


def variable(data, requires_grad=False):
    """``torch.autograd.Variable(data)``, from before tensors had gradients themselves."""
    made = data.detach()
    return made.requires_grad_() if requires_grad else made


def member_for_missing(cls, value):
    """``cls(value)`` of an enumeration without such a value, which asks its own ``_missing_``."""
    found = problem = None
    try:
        found = cls._missing_(value)
    except Exception as error:
        problem = error
    if isinstance(found, cls):
        return found
    unknown = ValueError(f"{value!r} is not a valid {cls.__qualname__}")
    if problem is None:
        if found is None:
            raise unknown
        problem = TypeError(f"error in {cls.__name__}._missing_: returned {found!r} instead of None or a valid member")
    if not isinstance(problem, ValueError):
        problem.__context__ = unknown
    raise problem  # outside of the handler, as enum does: what the caller handles becomes its context
