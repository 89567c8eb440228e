"""The grammar of generated programs, as data: the language of rules, and expressions by kind (more: ``statements``).

A rule is Python text with holes:

    <mat>       an expression of that kind          <@mat>   a variable that may be assigned or mutated
                                                     <$mat>   any variable that may be read
    <=mat>      a new variable, visible afterwards  <~mat>   a new variable, visible in this rule's blocks only
    <!mats>     a variable that the rule loops over      <+mats>  a variable that the rule makes longer
    <~int:i>    the same, with a name by which the rule refers to it again: <.i>
    <block>     a few statements                    <loop>   the same, where break and continue are allowed
    <body>      a function's statements, which end in a return of a mat; <nonlocal> may let it assign outer names
    <raise>     a statement that raises             <return> a return that fits where it stands

Kinds: ``mat`` is (rows, 4), ``vec`` is (4,), ``scalar`` is 0-d, ``ivec`` int64 (4,), ``mask`` bool (rows, 4); ``mats``
is a list of mat, ``table`` a dict of vec, ``nums`` a list of small ints; ``fn`` maps mat to mat; ``opt`` is a vec or
None; ``counter`` is an int no statement assigns, which bounds a loop; ``box`` is an object with state. Rules keep
shapes fixed and ints small, and none lets a list grow while it is looped over: every program ends, most do not raise.
"""

from __future__ import annotations


def rules(text: str) -> list[str]:
    """One rule a line, or, separated by blank lines, one a paragraph."""
    text = text.strip("\n")
    return text.split("\n\n") if "\n\n" in text else text.splitlines()


# What needs no further expansion, used when nesting is deep enough and no variable is at hand.
LEAVES = {
    "mat": ["WEIGHT[:1] + 0", "torch.ones(1, 4)"],
    "vec": ["WEIGHT[0] + 0", "torch.zeros(4)", "torch.arange(4.0)"],
    "scalar": ["torch.tensor(0.5)", "WEIGHT.sum()"],
    "ivec": ["torch.arange(4)", "torch.tensor([3, 0, 2, 1])"],
    "mask": ["torch.ones(1, 4, dtype=torch.bool)"],
    "int": ["0", "1", "2", "3", "-1", "TOTAL"],
    "small": ["1", "2", "3"],
    "float": ["0.5", "1.5", "-1.0", "2.0", "SETTINGS['scale']"],
    "bool": ["True", "False"],
    "str": ["'a'", "'fast'", "'missing'", "'slow'"],
    "mats": ["[WEIGHT[:1] + 1]"],
    "table": ["{'a': torch.zeros(4)}"],
    "nums": ["[2, 0, 1]"],
    "fn": ["torch.relu", "torch.tanh", "counted(torch.sin)"],
    "opt": ["None"],
    "box": ["BOX"],
}

EXPRESSIONS = {
    "mat": rules("""
<mat> + <mat>
<mat> - <vec>
<mat> * <float>
<mat> / <small>
<mat> * <int>
-<mat>
<mat> @ WEIGHT
torch.relu(<mat>)
torch.sigmoid(<mat>)
<mat>.clamp(-1.0, <float>)
torch.add(<mat>, <vec>, alpha=<small>)
torch.where(<mask>, <mat>, <vec>)
<mat>.masked_fill(<mask>, <float>)
<mat>.flip(0)
<mat>.t().contiguous().t()
<mat>.view(-1).view(-1, 4)
<mat>.reshape(4, -1).t()
<mat>.clone()
<mat>.softmax(dim=-1)
<mat>.cumsum(0)
<mat>[:, torch.tensor([1, 0, 3, 2])]
<mat>.to(torch.float64).to(torch.float32)
torch.stack([<vec>, <vec>, <vec>])[:1] + <mat>
torch.cat([<mat>[:1], <mat>[1:]])
LAYER(<mat>)
torch.nn.functional.linear(<mat>, WEIGHT, <vec>)
torch.nn.functional.layer_norm(<mat>, (4,))
torch.nn.functional.dropout(<mat>, 0.5)
<fn>(<mat>)
mixed(<mat>)
mixed(<mat>, <vec>, <float>, scale=<float>)
mixed(<mat>, *[<vec>, <small>], **{'scale': <float>, 'extra': 1})
(lambda m, k=<float>: m * k)(<mat>)
<mat> if <bool> else <mat>
<mats>[0]
<mats>[-1] + <mat>
sum(<mats>)
functools.reduce(lambda a, b: a + b, <mats>)
opaque(<mat>)
<mat> + torch.rand(4)
Pair(<mat>, <vec>).total()
Point(<mat>, <int>).a
"""),
    "vec": rules("""
<vec> + <vec>
<vec> * <float>
<mat>.sum(0)
<mat>.mean(dim=0)
<mat>.max(dim=0).values
<mat>[0]
<mat>[-1]
<vec> * <scalar>
<vec> @ WEIGHT
torch.maximum(<vec>, <vec>)
<vec>[<ivec>]
<ivec> * 0.5
<vec>.exp().log1p()
<vec>.sort().values
<table>['a']
<table>.get('b', <vec>)
next(iter(<table>.values()))
<box>.value
<box>.doubled
<box> + <vec>
sum(<table>.values())
torch.stack([v for v in rows(<mat>)]).sum(0)
next(rows(<mat>, skip=1), <vec>)
torch.as_tensor(np.clip(<vec>.detach().numpy(), -1, 1))
torch.full((4,), <float>)
torch.zeros_like(<vec>)
<vec> if <$opt:o> is None else <.o>
<vec> if <bool> else <vec>
"""),
    "scalar": rules("""
<mat>.sum()
<vec>.mean()
<vec>[0]
<vec> @ <vec>
<scalar> + <scalar>
<scalar> * <float>
<mat>.norm()
torch.tensor(<float>)
max(<vec>.sum(), <vec>.mean())
"""),
    "ivec": rules("""
<vec>.argsort()
(<ivec> + <small>) % 4
<vec>.long().remainder(4)
(<vec> > 0).long()
"""),
    "mask": rules("""
<mat> > <float>
<mat> <= <vec>
~<mask>
<mask> & <mask>
<mask> | (<mat> == 0)
torch.isnan(<mat>)
"""),
    "int": rules("""
(<int> + <int>) % 7
(<int> * <small>) % 11
<int> - 1
-<int> // 2
abs(<int>)
<mat>.shape[0]
<mat>.size(1)
<vec>.numel()
<mat>.dim()
len(<mats>)
len(<table>)
len(<str>)
len(<box>)
min(<int>, <small>)
sum(<nums>) % 9
<nums>[0]
int(<bool>)
int(<vec>.argmax())
int(<scalar> > 0)
(<vec> > 0).sum().item()
<box>.count
<box>.level
<$nums:l>.index(0) if 0 in <.l> else <int>
round(<float>)
divmod(<int>, 3)[1]
+<bool>
<int> if <bool> else <int>
<int> or <int>
ord(<str>[0]) % 5
"""),
    "small": rules("""
<int> % 3 + 1
min(len(<mats>), 3)
max(1, <mat>.shape[0] - 1)
"""),
    "float": rules("""
<float> + 1.0
<float> * 0.5
float(<int>)
<int> / 4
<scalar>.item()
float(<vec>.mean())
<vec>.tolist()[0]
max(<float>, <int>)
float(np.max(<vec>.detach().numpy()))
<float> if <bool> else <float>
getattr(<box>, 'extra', <float>)
"""),
    "bool": rules("""
<int> > <int>
<int> < <int> <= 3
<int> == <small>
<int> % 2 == 0
not <bool>
<bool> and <bool>
<bool> or <bool>
<str> == <str>
<str> in <table>
<str>.startswith('f')
<int> in <box>
<int> in (0, 1, 2)
<opt> is None
<mats>
<mat> is <mat>
isinstance(<mat>, torch.Tensor)
isinstance(<box>, (Deep, list))
hasattr(<box>, 'extra')
<mat>.requires_grad
<mat>.is_contiguous()
<mat>.shape == <mat>.shape
<mat>.shape[0] > 2
<mat>.dtype == torch.float32
torch.is_grad_enabled()
<float> > 0
<scalar> > 0
<vec>.sum() > <float>
bool((<mat> > 0).any())
<mask>.all()
torch.equal(<vec>, <vec>)
any(v.sum() > 0 for v in <mats>)
all(k != 'c' for k in <table>)
<scalar>.item() < <float>
"""),
    "str": rules("""
<str> + 'b'
f'{<$str>}-{<$int>}'
<str>.upper()
<str>[:2]
'fast' if <bool> else <str>
'|'.join(sorted(<table>))
str(<int>)
'%s=%d' % (<str>, <int>)
'{}:{:.2f}'.format(<str>, <float>)
str(<mat>.dtype)
type(<mat>).__name__
repr(tuple(<mat>.shape))
"""),
    "mats": rules("""
[<mat>, <mat>]
[m * <float> for m in <mats>]
[m for m in <mats> if m.sum() > 0] or [<mat>]
[m + i for i, m in enumerate(<mats>)]
<mats>[:2] + [<mat>]
list(map(torch.relu, <mats>))
list(map(lambda m: m * <float>, <mats>))
list(reversed(<mats>))
sorted(<mats>, key=lambda m: m.sum().item())
[a + b for a, b in zip(<mats>, <mats>)] + [<mat>]
list(<mat>.split(1)) + [<mat>]
[m for pair in [<mats>, <mats>] for m in pair][:3]
list(itertools.chain(<mats>, [<mat>]))[:4]
[*<mats>, <mat>][-3:]
"""),
    "table": rules("""
{'a': <vec>, 'b': <vec>}
{k: v * <float> for k, v in <table>.items()}
{**<table>, 'a': <vec>}
dict(<table>, a=<vec>)
dict(zip(['a', 'b', 'c'], [<vec>, <vec>]))
{k: <table>[k] for k in sorted(<table>)}
"""),
    "nums": rules("""
[<int>, <small>, 0]
[i * 2 for i in range(<small>)]
list(range(<small>))
[i for i in <nums> if i != 1] + [<int>]
sorted(<nums>, reverse=True)
sorted({*<nums>, <int>})
<nums> + [<int>]
<nums>[::-1]
list(itertools.accumulate(<nums>))[:3]
"""),
    "fn": rules("""
lambda m: m * <float>
lambda m: m + <vec>
functools.partial(mixed, scale=<float>)
functools.partial(torch.add, alpha=<small>, other=<vec>)
counted(<fn>)
torch.relu if <bool> else torch.sin
"""),
}
