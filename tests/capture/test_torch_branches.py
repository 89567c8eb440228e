"""PYTEST_DONT_REWRITE: bytecode and messages of asserts are the subject.

Python control flow decided by data, shapes, types and flags: both ways, and back again."""

import torch
from torch import nn

from .caller_programs import program_with_caller
from .harness import program


@program
def test_branch_on_the_sign_of_a_sum():
    def fn(x):
        if x.sum() > 0:
            return x * 2
        return x - 1

    return fn, [(torch.full((2,), v),) for v in (1.0, -1.0, 2.0, -3.0, 0.0)]


@program
def test_branch_on_data_after_mutation():
    def fn(x, y):
        x.add_(y)
        if (x > 0).all():
            y.zero_()
            return "positive"
        x.neg_()
        return "negative"

    return fn, [(torch.zeros(2), torch.full((2,), v)) for v in (1.0, -1.0, 2.0, -3.0)]


@program
def test_nested_branches_on_data():
    def fn(x):
        if x[0] > 0:
            y = x * 2
            if x[1] > 0:
                return y + 1
            y = y - 1
        elif x[1] > 0:
            y = x * 3
        else:
            y = -x
        return y * y

    signs = ([1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [2.0, -2.0], [3.0, 3.0])
    return fn, [(torch.tensor(v),) for v in signs]


@program
def test_loop_until_converged():
    def fn(x):
        steps = 0
        while x.abs().max() > 1:
            x = x / 2
            steps += 1
        return x, steps

    return fn, [(torch.tensor(v),) for v in ([3.0, 1.0], [0.5, 0.5], [100.0, -20.0], [5.0, 0.0])]


@program
def test_newton_iteration_with_a_limit():
    def fn(a):
        x = torch.ones(())
        for i in range(20):
            new = 0.5 * (x + a / x)
            if torch.allclose(new, x, atol=1e-6):
                break
            x = new
        else:
            i = -1
        return x, i

    return fn, [(torch.tensor(v),) for v in (2.0, 1.0, 900.0, 4.0)]


@program
def test_early_return_from_nested_loops():
    def fn(x):
        for i, row in enumerate(x):
            for j, v in enumerate(row):
                if v < 0:
                    return i, j, v * 10
        return None, None, x.sum()

    return fn, [
        (torch.tensor(v).view(2, 2),)
        for v in ([1.0, 2.0, -3.0, 4.0], [1.0, 2.0, 3.0, 4.0], [-1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, -4.0])
    ]


@program
def test_boolean_operators_on_tensors():
    def fn(x, y):
        a = (x > 0) and (y > 0)
        b = (x > 0) or (y > 0)
        return a, b, not (x > 0), x if y > 0 else y, 0 < y < 2

    signs = ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, 3.0))
    return fn, [(torch.tensor(a), torch.tensor(b)) for a, b in signs]


@program
def test_any_all_and_equal_decide():
    def fn(x, y):
        if torch.equal(x, y):
            return "equal", x
        if torch.allclose(x, y, atol=0.1):
            return "close", x + y
        if torch.isnan(y).any():
            return "nan", x
        return "different", x - y

    return fn, [
        (torch.ones(2), torch.tensor(v))
        for v in ([1.0, 1.0], [1.01, 1.0], [float("nan"), 1.0], [3.0, 4.0], [1.0, 1.0], [1.0, 1.0, 1.0])
    ]


@program
def test_assertion_on_data():
    def fn(x):
        assert (x >= 0).all(), f"negative: {x.min().item()}"
        return x.sqrt()

    return fn, [(torch.tensor(v),) for v in ([1.0, 4.0], [1.0, -4.0], [9.0, 4.0], [-2.0, -1.0])]


@program
def test_raise_chosen_by_data_and_caught_outside():
    def check(x):
        if x.isinf().any():
            raise OverflowError("infinite")
        return x

    def fn(x):
        try:
            y = check(x.exp())
        except OverflowError as error:
            return str(error), x.clamp(max=1.0)
        else:
            return "fine", y

    return fn, [(torch.tensor(v),) for v in ([1.0], [1000.0], [2.0], [2000.0])]


@program
def test_branch_inside_a_submodule():
    class Gate(nn.Module):
        def forward(self, x):
            if x.mean() > 0:
                return x
            return x * 0.1

    model = nn.Sequential(nn.Linear(2, 2, bias=False), Gate(), nn.Linear(2, 2, bias=False), Gate())
    return model, [(torch.randn(1, 2) * k,) for k in (1, -1, 2, -3, 1)]


@program_with_caller
def test_gradients_follow_the_path_taken():
    def fn(x):
        if x.sum() > 0:
            y = x * 2
        else:
            y = x**2
        return y.sum() if y.max() > 1 else y.mean()

    def caller(fn, x):
        fn(x).backward()
        return x.grad

    values = ([1.0, 2.0], [-1.0, -2.0], [0.1, 0.2], [-0.1, 0.0])
    return fn, caller, [(torch.tensor(v, requires_grad=True),) for v in values]


@program(breaks=0)
def test_branches_on_shape_dtype_and_dimension():
    def fn(x):
        if x.dim() == 1:
            x = x[None]
        if x.shape[0] % 2:
            x = torch.cat([x, x])
        if x.is_floating_point() and x.size(-1) > 2:
            return x.mean(-1)
        return x.sum(-1) * x.ndim

    return fn, [(torch.randn(2),), (torch.randn(3, 4),), (torch.arange(4),), (torch.randn(2, 2),), (torch.randn(2),)]


@program(breaks=0)
def test_branch_on_the_type_of_the_argument():
    def fn(x):
        match x:
            case torch.Tensor() if x.dim() == 0:
                return x + 1
            case torch.Tensor():
                return x * 2
            case [first, *rest]:
                return first * len(rest)
            case {"x": value}:
                return -value
            case int() | float():
                return torch.tensor(float(x))
        return None

    return fn, [
        (torch.ones(2),),
        ([torch.ones(2), 1],),
        ({"x": torch.ones(1)},),
        (torch.ones(()),),
        (3,),
        ("text",),
        (torch.zeros(2),),
    ]


@program(breaks=0)
def test_flags_and_strings_choose_the_operator():
    table = {"sum": torch.sum, "mean": torch.mean, "square": lambda x: (x * x).sum()}

    def fn(x, name, *, keep=False):
        y = table[name](x) if name in table else getattr(x, name)()
        return y[None] if keep else y

    return fn, [(torch.randn(3), n) for n in ("sum", "square", "max", "mean", "sum")]


@program
def test_continue_and_break_on_data():
    def fn(x):
        total, used = torch.zeros(()), []
        for i, v in enumerate(x.unbind()):
            if v < 0:
                continue
            if v > 10:
                break
            total = total + v * i
            used.append(i)
        return total, used

    return fn, [(torch.tensor(v),) for v in ([1.0, -1.0, 2.0], [1.0, 20.0, 2.0], [-1.0, -1.0, 3.0], [1.0, 2.0, 3.0])]


@program
def test_sort_key_and_maximum_of_tensors():
    def fn(tensors):
        best = max(tensors, key=lambda t: t.sum())
        ordered = sorted(tensors, key=lambda t: t[0].item())
        return best * 2, ordered, min(t.max() for t in tensors)

    return fn, lambda i: ([torch.randn(2) for _ in range(3)],)


@program
def test_filter_by_data_in_a_comprehension():
    def fn(tensors, limit):
        kept = [t * 2 for t in tensors if t.norm() > limit]
        return kept, {i: t.sum() for i, t in enumerate(tensors) if (t > 0).any()}, sum(1 for t in tensors if t[0] > 0)

    return fn, [([torch.randn(2) for _ in range(3)], limit) for limit in (0.0, 1.0, 9.0, 0.5)]


@program
def test_beam_of_hypotheses():
    def fn(scores, width):
        beams = [((), 0.0)]
        for step in scores:
            grown = [(path + (i,), total + v.item()) for path, total in beams for i, v in enumerate(step)]
            beams = sorted(grown, key=lambda b: -b[1])[:width]
        return [path for path, _ in beams], torch.tensor([total for _, total in beams])

    return fn, [(torch.randn(3, 3), w) for w in (1, 2, 1, 3)]


@program
def test_greedy_decoding_until_the_end_token():
    step = nn.Linear(4, 4)

    def fn(x, end):
        tokens = []
        while len(tokens) < 6:
            x = step(x).tanh()
            token = int(x.argmax())
            tokens.append(token)
            if token == end:
                break
        return tokens, x

    return fn, [(torch.randn(4), end) for end in (0, 1, 2, 3, 0)]
