"""Methods, properties, ``super()``, class statements, functions with everything."""

from . import case


class Methods:
    scale = 2

    def __init__(self, value=1):
        self._value = value

    def plain(self, x, y=1):
        return self._value * x * self.scale + y

    @classmethod
    def of_class(cls, x):
        return cls.scale + x

    @staticmethod
    def of_nobody(x):
        return x

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, new):
        self._value = new

    @value.deleter
    def value(self):
        self._value = None

    @property
    def callback(self):
        return lambda x, y=0: (self._value, x, y)

    def __call__(self, *args, **kwargs):
        return args, kwargs


@case()
def methods_and_properties():
    m = Methods(5)
    found = [m.plain(1), m.plain(1, y=2), m.of_class(1), m.of_nobody(1), m(1, k=2)]
    found += [Methods.of_class(2), Methods.plain(m, 3)]
    bound = m.plain
    m.value = 7
    found += [m.value, bound(1), m.callback(3), m.callback(*(4,), y=5)]
    del m.value
    m.scale = 3
    m.scale += 1
    found += [m.value, m.scale, vars(m)]
    del m.scale
    return found, m.scale, getattr(m, "missing", "default")


@case()
def attributes_that_are_missing():
    m = Methods()
    found = []
    try:
        m.missing
    except AttributeError as error:
        found.append(str(error))
    try:
        del m.missing
    except AttributeError as error:
        found.append(str(error))
    try:
        m.missing()
    except AttributeError as error:
        return found, str(error)


class Base:
    kind = "base"

    def __init__(self, x):
        self.x = x

    def describe(self, times=1):
        return f"{self.kind} {self.x}" * times

    @property
    def doubled(self):
        return self.x * 2

    @classmethod
    def make(cls):
        return cls(0)


class Derived(Base):
    kind = "derived"

    def __init__(self, x):
        super().__init__(x + 1)
        self.y = super().doubled

    def describe(self, times=1):
        parent = super()
        found = [super().describe(), super().describe(times=times), super().kind]
        return found + [parent.kind, super(Derived, self).describe(2)]

    @classmethod
    def make(cls):
        made = super().make()
        return made, super().kind

    def bad(self):
        return super().nothing

    def through_a_cell(self):
        return (lambda: self.x)(), super().describe()


@case()
def super_in_every_form():
    d, (made, kind) = Derived(1), Derived.make()
    try:
        d.bad()
    except AttributeError as error:
        return d.x, d.y, d.describe(2), made.x, kind, str(error), d.through_a_cell()


@case((2,))
def super_after_the_first_argument_is_no_longer_named(n):
    class Child(Base):
        def describe(self, times=1):
            found = 0
            for i in range(times):
                found += i
            return super().describe(times), found

    return Child(n).describe(3)


@case()
def class_statement_with_everything():
    outer = "cell"

    def mark(cls):
        cls.marked = outer
        return cls

    class Meta(type):
        def __new__(meta, name, bases, body, **kwargs):
            made = super().__new__(meta, name, bases, body)
            made.given = kwargs
            return made

    @mark
    class Made(Base, metaclass=Meta, extra=1):
        field: int = 3
        other = [outer for _ in range(2)]
        twice = field * 2
        named = outer

        def get(self):
            return outer, __class__.__name__, self.field

        del twice

    found = Made.marked, Made.given, Made.other, Made.named, Made(1).get()
    return found, Made.__qualname__, Made.__annotations__, hasattr(Made, "twice")


@case()
def functions_made_with_everything():
    seen = []

    def decorate(*marks):
        def apply(function):
            seen.append((marks, function.__name__))
            return function

        return apply

    @decorate("outer")
    @decorate("inner", 1)
    def made(a: int, b: "str" = "b", *, c: list = seen, d=4) -> dict:
        """Its text."""
        return a, b, len(c), d

    plain = lambda x=1, *y, z=2, **w: (x, y, z, w)
    found = [made(1), made(1, "x", d=0), made.__annotations__, made.__defaults__, made.__kwdefaults__["c"] is seen]
    found += [made.__doc__, made.__qualname__, made.__module__, made.__name__, seen]
    cells = [c.cell_contents for c in decorate("z").__closure__]
    return found, cells, plain(), plain(5, 6, z=7, q=8), plain.__name__
