"""The statements of generated programs, by topic and with how often each is chosen; ``grammar.py`` explains holes."""

from __future__ import annotations

from .grammar import rules

ASSIGN = rules("""
<=mat> = <mat>

<=vec> = <vec>

<=scalar> = <scalar>

<=ivec> = <ivec>

<=mask> = <mask>

<=int> = <int>

<=float> = <float>

<=bool> = <bool>

<=str> = <str>

<=mats> = <mats>

<=table> = <table>

<=nums> = <nums>

<=fn> = <fn>

<@mat> = <mat>

<@vec> = <vec>

<@int> = <int>

<@float> = <float>

<@str> = <str>

<=mat>, <=vec> = <mat>, <vec>

<=mat>, *<=mats> = [<mat>, <mat>, *<mats>]

(<=vec>, <=int>), <=float> = (<vec>, <int>), <float>

<@mat:a>, <@mat:b> = <.b>, <.a>

<=vec:a> = <=vec:b> = <vec>

<=mat:a> = <mat> if (<=int:k> := <int>) > 0 else <mat> + <.k>

if (<=float:s> := <scalar>.item()) > 0:
    <block>
""")

MUTATE = rules("""
<@mat> += <mat>

<@mat> *= <float>

<@vec> -= <vec>

<@mat>.add_(<vec>)

<@mat>.mul_(<float>).sub_(<small>)

<@mat>[0] = <vec>

<@mat>[<int> % 2:].zero_()

<@mat>[:, 1] += <float>

<@mat:a>[<.a> > <float>] = <float>

<=vec:v> = <@mat>[0]
<.v> += <float>

<=mat:v> = <@mat>.view(-1, 4)
<.v>.mul_(<float>)

<=vec:v> = <@mat>[-1]
<@mat>.add_(1.0)
<=vec> = <.v> * 2

<@vec>.copy_(<vec>)

<@vec>.fill_(<scalar>)

<@mat>.clamp_(min=<float>)

<@vec>.index_add_(0, <ivec>, <vec>)

torch.mul(<vec>, <vec>, out=<@vec>)

<@ivec> += <small>

with torch.no_grad():
    <@mat>.add_(<mat>.mean(0))

<@vec>[1:3], <@vec>[0] = <vec>[:2], <float>
""")

BRANCH = rules("""
if <bool>:
    <block>

if <bool>:
    <block>
else:
    <block>

if <bool>:
    <block>
elif <bool>:
    <block>
else:
    <block>

if <bool>:
    <return>

if <bool>:
    <block>
    <return>

match <str>:
    case 'fast':
        <block>
    case 'slow' | 'a':
        <block>
    case _:
        <block>

match <nums>:
    case [0, *<~nums:r>]:
        <block>
    case [<~int>, <~int>]:
        <block>
    case _:
        pass

match dict(<table>, n=<int>):
    case {'c': <~vec>}:
        <block>
    case {'n': 0, **<~table>}:
        <block>
    case {'n': int(<~int>), 'a': <~vec>}:
        <block>

match Point(<mat>, <int>):
    case Point(a=<~mat>, b=0 | 1):
        <block>
    case Point(b=<~int:k>) if <.k> > 2:
        <block>

assert <bool> or <int> < 9, 'never'
""")

LOOP = rules("""
for <~counter> in range(<small>):
    <loop>

for <~counter>, <~mat> in enumerate(<!mats>):
    <loop>

for <~mat> in <!mats>:
    <loop>
else:
    <block>

for <~str>, <~vec> in <!table>.items():
    <loop>

for <~str> in sorted(<table>):
    <loop>

for <~vec> in <mat>:
    <loop>

for <~vec> in rows(<mat>, <int> % 2):
    <loop>

for <~mat>, <~vec> in zip(<!mats>, <mat>):
    <loop>

for <~mat:a>, <~mat:b> in zip(<!mats:l>, <.l>[1:]):
    <loop>

for <~counter>, <~vec> in itertools.zip_longest(<nums>[:2], <mat>[:2], fillvalue=torch.zeros(4)):
    <block>

for <~int> in <!nums>:
    <loop>

for <~counter>, <~bool> in itertools.product(range(2), (False, True)):
    <loop>

<~counter:i> = 0
while <.i> < <small>:
    <.i> += 1
    <loop>

<~counter:i> = 0
while <.i> < <small> and <bool>:
    <.i> += 1
    <loop>
else:
    <block>

<~work:w> = list(<nums>)
while <.w>:
    <~int> = <.w>.pop()
    <loop>

<~work:w> = list(<nums>)[:3]
while (<~int:v> := <.w>.pop() if <.w> else None) is not None:
    <loop>

<~counter:i> = 0
while True:
    <.i> += 1
    if <.i> > 3 or <bool>:
        break
    <loop>
""")

# Offered inside loops only.
INTERRUPT = rules("""
if <bool>:
    break

if <bool>:
    continue

if <bool>:
    <block>
    continue
""")

CONTAINER = rules("""
<+mats>.append(<mat>)

<@mats>[0] = <mat>

<+mats>.insert(0, <mat>)

<@mats>.reverse()

<+mats:l>.pop()
<.l>.append(<mat>)

<@mats:l>[:] = [m * 2 for m in <.l>][:3]

<@mats:l>[0], <.l>[-1] = <.l>[-1], <.l>[0]

<+mats> += [<mat>]

<@mats>[0].add_(<float>)

<@mats>.sort(key=lambda m: float(m.sum()))

<@table>['a'] = <vec>

<@table>['c'] = <table>.get('c', 0) + <vec>

<@table>.setdefault('d', <vec>)

<@table>.update(a=<vec>, b=<vec>)

<=vec> = <@table>.pop('b', <vec>)

if 'c' in <@table:t>:
    del <.t>['c']

for k in list(<@table:t>):
    <.t>[k] = <.t>[k] * <float>

<@table>['a'] += <float>

<+nums>.append(<int>)

<@nums>[0] = <int>

<+nums>[1:1] = [<int>]

LOG.append(<int>)

LOG.append(f'{<$str>} {<$int>}')

SETTINGS['scale'] = 0.25 if <bool> else 0.5

queue = collections.deque(<nums>, maxlen=2)
queue.appendleft(<int>)
<=nums> = list(queue) + [1]

groups = collections.defaultdict(list)
for <~mat:m> in <!mats>:
    groups[<.m>.shape[0] > 2].append(<.m>)
<=mats> = groups[True] + [<mat>]

<=int> = collections.Counter(<str>).most_common(1)[0][1] if <int> else 0
""")

OBJECT = rules("""
<@box>.value = <vec>

<@box>.count += 1

<@box>.level = <int>

<@box>.history.append(<int>)

<@box>.extra = <float>

if hasattr(<@box:b>, 'extra'):
    del <.b>.extra

setattr(<@box>, 'extra', <float>)

<=vec> = <@box>.step(<vec>)

class Local(Box):
    shift = <float>
    limit = <int>
    def shifted(self, v):
        return self.step(v) + self.shift + <vec>
<=box:b> = Local(<vec>)
<=vec> = <.b>.shifted(<vec>)

<=vec> = <@box>.step(<vec>, scale=<float>)

<=vec> = <@box>(<vec>)

<=box> = Deep(<vec>)

<=box> = Box(<vec>)

<=box:b> = Deep(<vec>)
<=vec> = <.b>(<vec>)

with torch.no_grad():
    <@box>.value.mul_(<float>)

<=scalar> = <@box>[<int> % 4]

pair = Pair(<mat>, <vec>)
pair.left = pair.total()
<=mat> = dataclasses.replace(pair, right=<vec>).total()

Box.limit = <small>
""")

FUNCTION = rules("""
def <~fn:f>(<~mat>, <~float>=<float>):
    <body>
<=fn> = <.f>

def <=fn>(<~mat>):
    <nonlocal>
    <body>

def <~fn:f>(<~mat>, *, <~vec:k>=None):
    <.k> = <vec> if <.k> is None else <.k>
    <body>
<=mat> = <.f>(<mat>, **({} if <bool> else {'<.k>': <vec>}))

@counted
def <=fn>(<~mat>):
    <body>

def <~fn:f>(<~mat:m>, depth):
    if depth <= 0:
        return <.m>
    return <.f>(<.m> * <float> + <vec>, depth - 1)
<=mat> = <.f>(<mat>, <small>)

def <~fn:f>(<~float:s>):
    def <~fn:g>(<~mat>):
        <body>
    return <.g>
<=fn> = <.f>(<float>)

def <~fn:f>():
    return held + <vec>
held = <vec>
<=vec> = <.f>()
del held
try:
    <.f>()
except NameError as error:
    print(error)

from math import floor
<=int> = floor(<float>) % 5

adders = [lambda m, i=i: m + i for i in range(<small>)]
<=mat> = adders[-1](<mat>) + adders[0](<mat>)

late = [lambda m: m + i for i in range(<small>)]
<=mat> = late[0](<mat>)

<=mat:r> = <mat>
def <~fn:f>(<~vec:v>):
    nonlocal <.r>
    <.r> = <.r> + <.v>
<.f>(<vec>)
<.f>(<vec>)
""")

GENERATOR = rules("""
def gen(<~mat:m>):
    for row in <.m>:
        print('row')
        yield row * <float>
<=mat> = torch.stack(list(gen(<mat>)))

def gen():
    try:
        yield <mat>
        yield <mat>
    finally:
        LOG.append('closed')
<=mat> = next(gen())

def gen():
    <~float:s> = <float>
    while True:
        got = yield <vec> * <.s>
        if got is None:
            return
        <.s> = got
g = gen()
<=vec:a> = next(g)
<=vec> = g.send(<float>) + <.a>

def gen():
    end = yield from rows(<mat>, <int> % 2)
    LOG.append(end)
for <~vec> in gen():
    <loop>

<=scalar> = sum(m.sum() for m in <mats>)

stream = (m * i for i, m in enumerate(<mats>))
<=mat> = next(stream)
<=int> = len(list(stream))

it = iter(<mats>)
<=mat> = next(it)
<=int> = sum(1 for _ in it)

<=mat> = max(<mats>, key=lambda m: m.sum().item())

def gen():
    try:
        yield <vec>
    except Trouble as error:
        yield <vec> + len(str(error))
g = gen()
next(g)
<=vec> = g.throw(Trouble(<str>))
""")

TRY = rules("""
try:
    <block>
    <raise>
except Exception as error:
    print(type(error).__name__)
    <block>

try:
    <block>
    if <bool>:
        <raise>
    <block>
except (ValueError, RuntimeError, TypeError, LookupError) as error:
    <~str> = str(error)
    <block>
else:
    <block>

try:
    <block>
finally:
    <block>

try:
    try:
        <raise>
    finally:
        <block>
except Exception:
    <block>

try:
    try:
        <raise>
    except Exception as error:
        raise Trouble(<str>) from error
except Trouble as error:
    <~str> = f'{error} {type(error.__cause__).__name__}'

try:
    <raise>
except KeyError:
    <block>
except ArithmeticError as error:
    print(error)
except Exception:
    <return>

for <~counter> in range(2):
    try:
        <block>
        if <bool>:
            continue
        if <bool>:
            break
    finally:
        <block>

with contextlib.suppress(Exception):
    <block>
    <raise>

with Watch(<str>, quiet=<bool>):
    if <bool>:
        raise Trouble(<str>)
    <block>

try:
    try:
        raise ValueError(<str>)
    except ValueError:
        <block>
        raise
except ValueError as error:
    print('again', error)

try:
    raise ExceptionGroup('both', [ValueError(<str>), Trouble(<str>)])
except* ValueError as group:
    print(len(group.exceptions))
except* Trouble:
    LOG.append('trouble')

if <bool>:
    <raise>
""")

CONTEXT = rules("""
with torch.no_grad():
    <block>

with torch.enable_grad():
    <block>

with noted(<int>) as <~int>:
    <block>

with Watch('w') as watch, noted(<int>):
    <block>
    print(watch.name)

with torch.set_grad_enabled(bool(<bool>)):
    <block>

with contextlib.ExitStack() as stack:
    stack.enter_context(noted(<int>))
    stack.callback(LOG.append, <int>)
    <block>

with torch.autocast('cpu', dtype=torch.bfloat16, enabled=<bool>):
    <=mat> = (<mat> @ WEIGHT).float()
""")

OUTPUT = rules("""
print('at', <int>, <str>)

print(f'{<$int>} {<$str>!r:>6} {<$float>:.3f}')

print(<mat>.shape, <mat>.dtype)

print(<vec>.detach())

print(f'{<$vec>.sum().item():.3f}')

print(*<nums>, sep='-')

print(sorted(<table>), end=';')

print(len(<mats>), [tuple(m.shape) for m in <mats>])

print(<@box>.count, <@box>.history)
""")

MODULE = rules("""
TOTAL = (TOTAL + <int>) % 100

TOTAL += 1

LOG.append(TOTAL)

LOG.clear()

print(TOTAL, len(LOG))

LAYER.scale = <float>

<@module>.steps += 1

<@module>.seen.add_(<vec>.detach())

<@module>.seen = <@module>.seen * <float>

<=mat> = <@module>.layer(<mat>)

<=mat> = <@module>.parts[<int> % 2](<mat>)

for part in <@module>.parts:
    <@mat:m> = part(<.m>)

print([name for name, _ in <@module>.named_parameters()])

<=float> = getattr(LAYER, 'scale', 1.0)

LAYER.train(<bool>)

<=mat> = torch.nn.functional.dropout(<mat>, 0.5, training=LAYER.training)
""")

RAISES = rules("""
raise ValueError(<str>)

raise Trouble(<str>, <int>)

raise RuntimeError(f'{<$str>} {<$int>}')

raise KeyError

torch.mm(<mat>, <vec>)

<mat>.view(7, 7)

<table>['missing']

<mats>[9]

<vec>[9]

1 // 0

int('z')

None.shape

torch.zeros(2) + <vec>

assert <vec>.sum() > 1000, <str>

next(iter([]))

<mat>.no_such_method()

mixed()

<vec>.item()

if <mat>:
    pass

raise TypeError('late') from Trouble(<str>)
""")

STATEMENTS = {
    "assign": (12, ASSIGN),
    "mutate": (8, MUTATE),
    "branch": (8, BRANCH),
    "loop": (6, LOOP),
    "container": (6, CONTAINER),
    "object": (5, OBJECT),
    "function": (5, FUNCTION),
    "generator": (3, GENERATOR),
    "try": (4, TRY),
    "context": (3, CONTEXT),
    "output": (3, OUTPUT),
    "module": (3, MODULE),
}

RESULTS = rules("""
<mat>
(<mat>, <int>)
{'a': <mat>, 'n': <int>, 's': <str>}
[<vec>, *<mats>]
<float>
None
(<@mats>, <@table>, <@box>.value)
<@mat>
<@mat>[0]
Point(<vec>, <str>)
""")
