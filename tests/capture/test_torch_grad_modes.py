"""Grad modes as context managers, decorators and functions: nested, left by exceptions, with breaks inside."""

import gc
import threading

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import burnish

from .call_sequences import Before
from .caller_programs import program_with_caller
from .harness import program


@program(breaks=0)
def test_no_grad_block_between_two_recorded_parts():
    def fn(x):
        a = x * 2
        with torch.no_grad():
            b = a * 3
        return a * b, b.requires_grad, torch.is_grad_enabled()

    return fn, lambda i: (torch.randn(3, requires_grad=True),)


@program(breaks=0)
def test_enable_grad_inside_no_grad():
    def fn(x):
        with torch.no_grad():
            a = x * 2
            with torch.enable_grad():
                b = x * 3
            c = b * 2
        return a, b, c, [t.requires_grad for t in (a, b, c)]

    return fn, lambda i: (torch.randn(3, requires_grad=True),)


@program(breaks=0)
def test_no_grad_as_decorator_of_a_helper():
    @torch.no_grad()
    def target(x):
        return x.sigmoid() + torch.is_grad_enabled()

    def fn(x):
        return x * target(x), torch.is_grad_enabled()

    return fn, lambda i: (torch.randn(3, requires_grad=True),)


@program
def test_no_grad_as_decorator_of_the_compiled_function():
    @torch.no_grad()
    def fn(x):
        return x * 2, torch.is_grad_enabled()

    return fn, lambda i: (torch.randn(3, requires_grad=True),)


@program(breaks=0)
def test_decorator_without_parentheses():
    @torch.no_grad
    def target(x):
        return x + 1

    def fn(x):
        return target(x).requires_grad, x * target(x)

    return fn, lambda i: (torch.randn(3, requires_grad=True),)


@program(breaks=0)
def test_set_grad_enabled_follows_a_flag():
    def fn(x, train):
        with torch.set_grad_enabled(train):
            y = x * 2
        return y, y.requires_grad

    return fn, [(torch.randn(3, requires_grad=True), flag) for flag in (True, False, True, False)]


@program_with_caller
def test_set_grad_enabled_as_a_function_outlives_the_call():
    def fn(x, flag):
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(flag)
        return x * 2, before

    def caller(fn, x, flag):
        try:
            return fn(x, flag), torch.is_grad_enabled()
        finally:
            torch.set_grad_enabled(True)

    return fn, caller, [(torch.randn(3, requires_grad=True), flag) for flag in (False, True, False, False)]


@program_with_caller
def test_caller_calls_under_no_grad_every_other_time():
    def fn(x):
        y = x * 2
        if torch.is_grad_enabled():
            y = y + 100
        return y

    def caller(fn, x, enabled):
        with torch.set_grad_enabled(enabled):
            y = fn(x)
        return y, y.requires_grad

    return fn, caller, [(torch.randn(3, requires_grad=True), flag) for flag in (True, False, True, False, False)]


@program
def test_inference_mode_marks_its_tensors():
    def fn(x):
        with torch.inference_mode():
            y = x * 2
            inside = torch.is_inference_mode_enabled()
        return inside, y.is_inference(), y.requires_grad, torch.is_inference_mode_enabled(), x * 3

    return fn, lambda i: (torch.randn(3, requires_grad=True),)


def test_examples_for_a_backend_leave_no_dispatch_keys():
    """The segment ends in inference mode, so the example of an output is the mode's guard."""

    def fn(x):
        with torch.inference_mode():
            y = x * 2
            burnish.graph_break()
            return y + 1

    def run():
        for _ in range(2):
            burnish.compile(fn, backend=lambda gm, inputs: gm.forward)(torch.ones(3))
            burnish.reset()
            gc.collect()
            keys.append(str(torch._C._dispatch_tls_local_include_set()))

    keys = [str(torch._C._dispatch_tls_local_include_set())]
    thread = threading.Thread(target=run)  # the keys are a thread's own
    thread.start()
    thread.join()
    assert len(keys) == 3 and len(set(keys)) == 1


@program_with_caller
def test_caller_in_inference_mode_every_other_time():
    def fn(x):
        y = x * 2
        return y.add_(1), y.is_inference()

    def caller(fn, x, mode):
        with torch.inference_mode(mode):
            y, flag = fn(x)
        return y.sum().item(), flag, y.is_inference()

    return fn, caller, [(torch.randn(3), mode) for mode in (False, True, False, True)]


@program
def test_inference_mode_decorator_and_switch_off_inside():
    @torch.inference_mode()
    def predict(x):
        with torch.inference_mode(False):
            trained = torch.ones(2) * 2
        return x.clone(), trained.is_inference()

    def fn(x):
        y, flag = predict(x)
        return y.is_inference(), flag, y.sum().item()

    return fn, lambda i: (torch.randn(2),)


@program
def test_exception_leaves_no_grad_restored():
    def fn(x, y):
        try:
            with torch.no_grad():
                x = x * 2
                x = x @ y
        except RuntimeError:
            x = x - 1
        return x, torch.is_grad_enabled(), (x * 2).requires_grad, y * x.sum()

    return fn, [(torch.randn(3), torch.randn(n, requires_grad=True)) for n in (3, 2, 3, 2)]


@program
def test_exception_leaves_the_function_through_nested_modes():
    def fn(x, y):
        with torch.no_grad():
            with torch.enable_grad():
                with torch.no_grad():
                    return x @ y

    return fn, [(torch.randn(3), torch.randn(n)) for n in (3, 2, 3, 2)]


@program
def test_break_inside_no_grad_stays_without_gradients():
    def fn(x):
        with torch.no_grad():
            a = x * 2
            n = a.sum().item()
            b = x * n
        c = x * n
        return b.requires_grad, c, torch.is_grad_enabled()

    return fn, lambda i: (torch.randn(3, requires_grad=True),)


@program
def test_breaks_inside_nested_modes():
    def fn(x):
        seen = []
        with torch.no_grad():
            seen.append((x * x.sum().item()).requires_grad)
            with torch.enable_grad():
                seen.append((x * x.sum().item()).requires_grad)
                with torch.inference_mode():
                    seen.append((x * x.sum().item()).requires_grad)
                seen.append((x * x.sum().item()).requires_grad)
            seen.append(torch.is_grad_enabled())
        return seen, x * 2

    return fn, lambda i: (torch.randn(3, requires_grad=True),)


@program
def test_return_from_inside_the_block():
    def fn(x, early):
        with torch.no_grad():
            if early:
                return x * 2
            y = x * 3
        return x * y

    return fn, [(torch.randn(3, requires_grad=True), flag) for flag in (False, True, False, True)]


@program
def test_generator_under_no_grad_switches_the_mode_only_inside():
    @torch.no_grad()
    def batches(x):
        for i in range(3):
            yield x * i, torch.is_grad_enabled()

    def fn(x):
        return [(b + x, inner, torch.is_grad_enabled()) for b, inner in batches(x)]

    return fn, lambda i: (torch.randn(2, requires_grad=True),)


@program
def test_mode_object_is_made_outside_and_entered_twice():
    guard = torch.no_grad()

    def fn(x):
        with guard:
            a = x * 2
        b = x * 3
        with guard:
            c = b * a
        return a.requires_grad, b.requires_grad, c.requires_grad, c.sum()

    return fn, lambda i: (torch.randn(3, requires_grad=True),)


@program
def test_conditional_context_manager():
    import contextlib

    def fn(x, frozen):
        with torch.no_grad() if frozen else contextlib.nullcontext():
            y = x.sin()
        return y, y.requires_grad

    return fn, [(torch.randn(3, requires_grad=True), flag) for flag in (True, False, True, False)]


@program
def test_exit_stack_of_modes():
    import contextlib

    def fn(x, n):
        with contextlib.ExitStack() as stack:
            for i in range(n):
                stack.enter_context(torch.no_grad() if i % 2 == 0 else torch.enable_grad())
            y = x * 2
        return y.requires_grad, torch.is_grad_enabled(), y

    return fn, [(torch.randn(3, requires_grad=True), n) for n in (0, 1, 2, 3, 1)]


@program
def test_decorated_method_of_a_module():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(3, 3)
            self.teacher = torch.nn.Linear(3, 3)

        @torch.no_grad()
        def target(self, x):
            return self.teacher(x)

        def forward(self, x):
            return (self.inner(x) - self.target(x)).pow(2).sum()

    return Model(), lambda i: (torch.randn(2, 3),)


@program_with_caller
def test_gradient_flows_only_through_the_recorded_part():
    def fn(x):
        with torch.no_grad():
            scale = x.abs().max()
        return x / scale

    def caller(fn, x):
        fn(x).pow(2).sum().backward()
        return x.grad

    return fn, caller, lambda i: (torch.randn(4, requires_grad=True),)


@program
def test_saved_tensors_hooks_see_saved_tensors():
    packed = []

    def pack(t):
        packed.append(tuple(t.shape))
        return t * 2

    def fn(x):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t / 2):
            y = x.sin()
        (grad,) = torch.autograd.grad(y.sum(), x)
        return y, grad, len(packed)

    return fn, lambda i: (torch.randn(3, requires_grad=True),), packed


@program
def test_anomaly_mode_is_visible_and_restored():
    def fn(x):
        with torch.autograd.set_detect_anomaly(True):
            y = (x * 2).sum()
            inside = torch.is_anomaly_enabled()
        return y, inside, torch.is_anomaly_enabled()

    return fn, lambda i: (torch.randn(3, requires_grad=True),)


@program(breaks=0)
def test_modes_decorate_functions_inside():
    def fn(x):
        @torch.no_grad()
        def doubled(y):
            return y * 2

        @torch.set_grad_enabled(True)
        def tripled(y):
            return y * 3

        return doubled(x), tripled(x), doubled.__name__, torch.is_grad_enabled()

    return fn, [(torch.ones(2, requires_grad=True),), (torch.zeros(2, requires_grad=True),), (torch.ones(2),)]


def test_every_query_whether_code_is_compiled_returns_true():
    import torch._dynamo

    asked = [
        torch.compiler.is_compiling,
        torch.compiler.is_dynamo_compiling,
        torch._dynamo.is_compiling,
        torch._utils.is_compiling,
    ]
    for question in asked:
        compiled = burnish.compile(lambda x, question=question: x + 1 if question() else x, backend="eager")
        assert compiled(torch.zeros(1)).item() == compiled(torch.zeros(1)).item() == 1


SETTINGS = {  # how a program asks, how it sets, and two answers
    "module of flags": (
        lambda: torch.backends.cudnn.benchmark,
        lambda value: setattr(torch.backends.cudnn, "benchmark", value),
        (False, True),
    ),
    "function of flags": (
        lambda: torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.enable_flash_sdp,
        (True, False),
    ),
    "word": (lambda: torch.get_float32_matmul_precision(), torch.set_float32_matmul_precision, ("highest", "high")),
    "function of torch's": (lambda: torch.is_warn_always_enabled(), torch.set_warn_always, (False, True)),
    "property": (
        lambda: torch.utils.deterministic.fill_uninitialized_memory,
        lambda value: setattr(torch.utils.deterministic, "fill_uninitialized_memory", value),
        (True, False),
    ),
    "number": (lambda: torch.get_num_threads(), torch.set_num_threads, (1, 2)),
    "anomaly mode": (lambda: torch.is_anomaly_enabled(), torch.autograd.set_detect_anomaly, (False, True)),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_setting_that_changes_between_calls_is_read_again(setting, backends):
    ask, assign, (first, second) = SETTINGS[setting]

    @program(breaks=0)
    def settings():
        def fn(x):
            return x + 1 if ask() == first else x - 1

        return fn, lambda i: (torch.ones(2), Before(lambda: assign((first, second)[i % 2])))

    before = ask()
    try:
        settings()
    finally:
        assign(before)


class Operators(TorchDispatchMode):
    """Keeps the names of the operators it sees."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("backend", ["eager", "burnish"])
def test_dispatch_mode_around_compiled_code_or_inside_of_it_sees_every_operator(backend):
    inner = Operators()

    def fn(x):
        with inner:
            y = torch.sin(x) * 2
        return y + 1

    plain, compiled, x = Operators(), burnish.compile(fn, backend=backend), torch.ones(3)
    with plain:
        fn(x)
    expected, inner.seen = inner.seen, []
    for _ in range(3):
        compiled(x)
        assert inner.seen == expected
        inner.seen = []
    for _ in range(3):
        with Operators() as outer:
            compiled(x)
        assert outer.seen == plain.seen and inner.seen == expected
        inner.seen = []
