"""Code that is left to Python because compiling it cannot pay: functions (B502), programs, variants of a place."""

import collections
import contextlib
import heapq
import warnings

import pytest
import torch

import burnish
from burnish import events
from burnish.capture.segments import leave_to_python

from ..recorded_events import recorded


def describe(x):
    """Nine breaks, and a torch call before each."""
    text = f"{x.sort().values.tolist()} {x.cumsum(0).tolist()} {x.diff().tolist()} {x.abs().tolist()}"
    text += f"{x.sign().tolist()} {x.round().tolist()} {x.floor().tolist()}"
    return text + f"{x.ceil().tolist()} {x.frac().tolist()}"


def layers(x):
    for _ in range(6):
        x = torch.tanh(x * 1.5 + 0.1).cos()
    return x


def given(n):
    return torch.linspace(0.1, 1.0, 8) * (1 + n / 10)


def compiled_like(fn, *calls):
    """Compare with eager call by call; returns for each what was captured: break codes, and torch calls of graphs."""
    compiled, found = burnish.compile(fn, backend="eager"), []
    for arguments in calls:
        with recorded("breaks", "traced") as seen:
            torch.testing.assert_close(compiled(*arguments), fn(*arguments))
        codes = collections.Counter(each.data["break_"].kind.code for each in seen if each.kind == "breaks")
        found.append((codes, [each.data["calls"] for each in seen if each.kind == "traced"]))
    return compiled, found


def codes_of(found):
    return [dict(codes) for codes, _ in found]


def test_a_function_with_many_breaks_and_few_torch_calls_becomes_one_break():
    def fn(x):
        y = layers(x)
        return y * len(describe(y)), layers(y)

    _, found = compiled_like(fn, *[(given(n),) for n in range(5)])
    codes = codes_of(found)
    assert codes[0] == {"B102": 8}, "the ninth has run in Python already"
    assert codes[1] == {"B502": 1}, "calls of it end the graph"
    assert found[1][1][0] >= 24, "and what comes before is one graph"
    assert codes[2:] == [{}, {}, {}], "nothing is captured again"


def test_explain_and_the_report_say_what_was_left():
    def fn(x):
        return x * len(describe(x))

    with recorded("breaks.left", datum="text") as texts:
        output = burnish.explain(fn)(given(0))
    (text,) = texts
    assert "calls of describe, whose 8 breaks were between 8 torch calls, are left to Python" in text
    assert "B502" in str(output) and "describe, whose 8 breaks" in str(output)


def test_a_function_with_torch_calls_between_its_breaks_is_captured():
    def helper(x):
        found = []
        x = layers(x)
        found += x.tolist()
        x = layers(x)
        found += x.tolist()
        x = layers(x)
        found += x.tolist()
        x = layers(x)
        found += x.tolist()
        x = layers(x)
        found += x.tolist()
        x = layers(x)
        found += x.tolist()
        x = layers(x)
        found += x.tolist()
        x = layers(x)
        found += x.tolist()
        x = layers(x)
        found += x.tolist()
        return x, found

    def fn(x):
        return helper(x)

    _, found = compiled_like(fn, *[(given(n),) for n in range(4)])
    assert all("B502" not in codes for codes in codes_of(found))


@pytest.mark.parametrize("rows", (4, leave_to_python.ELEMENTS_OF_A_CALL))
def test_torch_calls_on_large_tensors_count_more(rows):
    def statistics(x):
        found = [x.amin(0).tolist(), x.amax(0).tolist(), x.mean(0).tolist(), x.sum(0).tolist(), x.prod(0).tolist()]
        return found + [x.norm(2, 0).tolist(), x.std(0).tolist(), x.var(0).tolist(), x.median(0).values.tolist()]

    def fn(x):
        return x * len(statistics(x))

    x = torch.rand(rows, 8)
    _, found = compiled_like(fn, (x,), (x + 1,))
    assert any("B502" in codes for codes in codes_of(found)) == (rows == 4)


def test_a_function_that_mostly_stays_within_a_graph_is_captured():
    def helper(x, talks):
        return x * len(describe(x)) if talks else x + 1

    def fn(x):
        for k in range(40):
            x = helper(x, False)
        return helper(x, True)

    compiled, _ = compiled_like(fn, *[(given(n),) for n in range(3)])
    left = compiled.__burnish_program__.balance.left
    assert [code.co_name for code in left] == ["describe"]


def test_a_wrapper_is_not_left_but_what_it_wraps():
    def logged(function):
        def wrapper(*args):
            return function(*args)

        return wrapper

    talkative, quiet = logged(describe), logged(layers)

    def fn(x):
        return quiet(x) * len(talkative(x))

    compiled, found = compiled_like(fn, *[(given(n),) for n in range(3)])
    assert [code.co_name for code in compiled.__burnish_program__.balance.left] == ["describe"]
    assert found[1][1][0] >= 24


def test_what_a_function_that_is_left_writes_and_raises_is_seen_in_order():
    class Refused(Exception):
        pass

    def helper(x, log):
        log.append(len(describe(x)))
        for limit in (1, 2, 3):
            log.append(limit)
            if float(x.sum()) > 5 * limit:
                raise Refused(limit, log)
        return x

    def fn(x, log):
        log.append("begin")
        try:
            x = helper(x, log)
        except Refused as error:
            log.append(str(error.args[0]))
        finally:
            log.append("end")
        return x.sin()

    compiled = burnish.compile(fn, backend="eager")
    for n in (0, 5, 0, 20, 60, 0, 5):
        ours, theirs = ["start"], ["start"]
        torch.testing.assert_close(compiled(given(n), ours), fn(given(n), theirs))
        assert ours == theirs
    assert compiled.__burnish_program__.balance.left


def test_a_generator_that_is_left_goes_on_where_it_was():
    def words(x):
        for k in range(4):
            yield k, describe(x + k)

    def fn(x):
        made = words(x)
        first = next(made)
        y = layers(x)
        return y * sum(len(word) + k for k, word in made), first[0]

    compiled_like(fn, *[(given(n),) for n in range(4)])


def test_a_method_a_property_and_a_constructor_are_left():
    class Statistics:
        def __init__(self, x):
            self.x, self.text = x, describe(x)

        @property
        def length(self):
            return len(self.text) + len(describe(self.x * 2))

        def __len__(self):
            return len(self.text) + len(describe(self.x * 3))

    def fn(x):
        made = Statistics(x)
        return layers(x) * made.length + len(made)

    with burnish.settings.patch(check=True):
        compiled, _ = compiled_like(fn, *[(given(n),) for n in range(4)])
    assert compiled.__burnish_program__.balance.left


@pytest.mark.falls_back("left")
def test_a_program_that_is_all_breaks_runs_as_plain_python():
    def fn(x):
        total = [x.sort().values.tolist(), x.cumsum(0).tolist(), x.diff().tolist(), x.abs().tolist()]
        total += [x.sign().tolist(), x.round().tolist(), x.floor().tolist(), x.ceil().tolist(), x.frac().tolist()]
        total += [x.sin().tolist(), x.cos().tolist(), x.tan().tolist(), x.exp().tolist(), x.log().tolist()]
        total += [x.sinh().tolist(), x.cosh().tolist(), x.tanh().tolist(), x.sqrt().tolist(), x.neg().tolist()]
        total += [x.relu().tolist(), x.erf().tolist(), x.expm1().tolist(), x.log1p().tolist(), x.atan().tolist()]
        total += [x.sigmoid().tolist(), x.square().tolist(), x.rsqrt().tolist(), x.trunc().tolist()]
        return total

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        compiled, found = compiled_like(fn, *[(given(n),) for n in range(3)])
    assert codes_of(found) == [{"B102": leave_to_python.LEAST_IN_PROGRAM}, {}, {}]
    assert not compiled.__burnish_program__.continuations
    (text,) = [str(each.message) for each in told]
    assert f"B502): its {leave_to_python.LEAST_IN_PROGRAM} breaks were between" in text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "cannot pay (B502)" in str(burnish.explain(fn)(given(0)))
    compiled.__burnish_program__.forget()
    assert compiled.__burnish_program__.balance.why_all_left is None


@pytest.mark.falls_back("left")
def test_recursion_with_breaks_does_not_capture_each_depth():
    def search(x, depth):
        if depth == 0 or float(x.sum()) < 0:
            return float(x.max())
        return max(search(x[::2], depth - 1) + float(x.mean()), search(x[1::2] + 0.1, depth - 1) - float(x.min()))

    def fn(x):
        return search(x, 5)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, found = compiled_like(fn, *[(torch.linspace(0.1, 1, 64) + n,) for n in range(3)])
    assert sum(len(traces) for _, traces in found) <= 40


@pytest.mark.falls_back("left")
def test_variants_of_much_python_are_few():
    """Each call is another case to the guards on the text."""

    def fn(words, table):
        ids, seen = [], {}
        for _ in range(4):
            for word in words:
                for letter in word:
                    seen[letter] = seen.get(letter, 0) + 1
                    ids.append(seen[letter] % 7)
        return table[torch.tensor(ids)].sum(0)

    calls = [(["word" * (1 + n), "other", f"number{n}"] * 10, torch.rand(7, 3)) for n in range(8)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, found = compiled_like(fn, *calls)
    assert [len(traces) for _, traces in found] == [1] * leave_to_python.VARIANTS_OF_PYTHON + [0] * 5


def test_a_number_that_is_used_twice_in_each_round_does_not_make_an_endless_formula():
    def fn(x, a, b):
        for _ in range(40):
            a, b = a + b * 0.5, b - a * 0.25
            if a > 1e9:
                b = 0.0
        return x * a

    with recorded("segment") as segments:
        compiled_like(fn, *[(torch.ones(2), 1.0 + n / 8, 0.5 - n / 8) for n in range(4)])
    assert max(len(segment.data["segment"].check.__source__) for segment in segments) < 200_000


@pytest.mark.falls_back("left", "limit")
def test_an_event_queue_with_tensors_gives_the_same_events():
    class Simulation:
        def __init__(self, n):
            self.queue, self.now, self.log, self.state = [], 0.0, [], torch.zeros(n)
            for i in range(n):
                heapq.heappush(self.queue, (0.1 * i, i))

        def run(self):
            while self.queue:
                self.now, i = heapq.heappop(self.queue)
                self.state[i] += 1
                self.log.append((round(self.now, 3), i, self.state.sum().item()))
                if self.now < 0.5:
                    heapq.heappush(self.queue, (self.now + 0.3, (i + 1) % len(self.state)))
            return self.state, self.log

    def fn(n):
        return Simulation(n).run()

    compiled = burnish.compile(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (4, 5, 4, 6, 5):
            ours, theirs = compiled(n), fn(n)
            torch.testing.assert_close(ours[0], theirs[0])
            assert ours[1] == theirs[1]


def test_blocks_around_a_function_that_is_left_are_left_in_order():
    entered = []

    @contextlib.contextmanager
    def block(name):
        entered.append(name)
        try:
            yield
        finally:
            entered.append(f"not {name}")

    def helper(x):
        with block("inner"), torch.no_grad():
            return len(describe(x))

    def fn(x):
        with block("outer"):
            count = helper(x)
        return layers(x) * count

    compiled = burnish.compile(fn, backend="eager")
    for n in range(4):
        x = given(n).requires_grad_()
        y = compiled(x)
        assert y.requires_grad and torch.is_grad_enabled()
        ours, entered[:] = list(entered), []
        torch.testing.assert_close(y, fn(x))
        assert ours == entered
        entered.clear()
    assert not events.is_watched("nothing")


def test_a_program_with_a_large_graph_is_never_left():
    """Its results are small, and each line of the log is a break."""
    weights = [torch.eye(8) * n for n in range(1, 4)]

    @burnish.disable
    def logged(x):
        return float(x)

    def model(x):
        for weight in weights:
            h = x @ weight
            x = x + 0.5 * h * (1 + torch.tanh(0.8 * (h + 0.04 * h * h * h)))
        return x.mean(1)

    def score(x):
        s, r = model(x), []
        r.append(logged(s.mean()))
        r.append(logged(s.sum()))
        r.append(logged(s.amax()))
        r.append(logged(s.amin()))
        r.append(logged(s.std()))
        r.append(logged(s.norm()))
        r.append(logged(s.prod()))
        r.append(logged(s.var()))
        r.append(logged(s[0]))
        r.append(logged(s[1]))
        r.append(logged(s[2]))
        r.append(logged(s[3]))
        r.append(logged(s[4]))
        r.append(logged(s[5]))
        r.append(logged(s[6]))
        r.append(logged(s[7]))
        r.append(logged(s[0] + 1))
        r.append(logged(s[1] + 1))
        r.append(logged(s[2] + 1))
        r.append(logged(s[3] + 1))
        r.append(logged(s[4] + 1))
        r.append(logged(s[5] + 1))
        r.append(logged(s[6] + 1))
        r.append(logged(s[7] + 1))
        r.append(logged(s[0] + 2))
        r.append(logged(s[1] + 2))
        return r

    for fn in (score, lambda x: score(x)[::2]):
        burnish.reset()
        compiled = burnish.compile(fn, backend="eager")
        for n in range(3):
            x = torch.rand(8, 8) + n
            assert compiled(x) == fn(x)
        balance = compiled.__burnish_program__.balance
        assert not balance.left and balance.why_all_left is None
