"""A failure of our own code during a trace is reported as one, wherever native code or a region is around it.

Each test plants an ordinary exception in a place of ours that the program's call reaches.
"""

import cProfile
import signal

import pytest
import torch
from torch.nn.attention import flex_attention as torch_flex

import burnish
from burnish.capture.engine.graph_recorder import Recorder
from burnish.capture.pytorch import lambda_lifting, recorder_fast_path, torch_call_roles
from burnish.capture.pytorch.higher_order import loop_operators
from burnish.capture.pytorch.higher_order.function_transforms import Transform
from burnish.capture.pytorch.higher_order.lowered_calls import LoweredCalls
from burnish.capture.subclasses import interpret_rules
from burnish.capture.subclasses.subclass_tensors import Subclasses

from ..recorded_events import recorded
from .operator_backend import operators
from .tensor_subclasses import Quantized

scan = torch._higher_order_ops.scan


def planted(*args, **kwargs):
    raise TypeError("planted by the test")


def misses(*args, **kwargs):
    raise KeyError("planted by the test")


def is_internal(fn, *args, backend="eager"):
    with pytest.raises(burnish.InternalError, match="planted by the test"):
        burnish.compile(fn, backend=backend)(*args)
    assert torch._C._is_torch_function_enabled() and torch._C._len_torch_dispatch_stack() == 0


def transformed(x):
    return torch.func.grad(lambda t: (t.sin() * t).sum())(x)


@pytest.mark.parametrize("failure", [planted, misses])
@pytest.mark.parametrize(
    "place",
    [
        (LoweredCalls, "note"),
        (LoweredCalls, "argument"),
        (Transform, "meet"),
        (Transform, "end"),
        (Recorder, "try_record_plain_call"),
    ],
    ids=lambda place: f"{place[0].__name__}.{place[1]}",
)
def test_below_a_transform(place, failure, monkeypatch):
    monkeypatch.setattr(*place, failure)
    is_internal(transformed, torch.randn(3), backend=operators)


def test_rebuilding_a_transformed_function(monkeypatch):
    monkeypatch.setattr(lambda_lifting, "made_of", planted)
    is_internal(transformed, torch.randn(3))


def test_recording_a_call_that_native_code_makes(monkeypatch):
    """The sum of a list calls torch from C code."""
    monkeypatch.setattr(torch_call_roles, "known", planted)
    is_internal(lambda x: sum([x, x]), torch.randn(3))


def test_learning_the_form_of_a_call(monkeypatch):
    monkeypatch.setattr(recorder_fast_path, "_learned", {})
    monkeypatch.setattr(recorder_fast_path, "learn", planted)
    is_internal(lambda x: torch.nn.functional.relu(x), torch.randn(3))


@pytest.mark.parametrize("name", ["elements", "carried", "check_carried", "example"])
def test_in_a_loop(name, monkeypatch):
    monkeypatch.setattr(loop_operators, name, planted)

    def fn(x):
        return scan(lambda carry, y: (carry + y, carry * y), x[0], x)

    is_internal(fn, torch.randn(4, 3))


@pytest.mark.parametrize("name", ["dispatched", "call_below_torch_function"])
def test_in_the_rules_of_a_subclass(name, monkeypatch):
    monkeypatch.setattr(interpret_rules, name, planted)
    is_internal(lambda x: torch.sin(x) * 2, Quantized.of(torch.randn(3, 4)))


def test_in_the_interpreted_rule(monkeypatch):
    monkeypatch.setattr(Subclasses, "note_view", planted)
    is_internal(lambda x: x.t(), Quantized.of(torch.randn(3, 4)))


def test_an_interrupt_inside_a_rule_stays_what_it_is(monkeypatch):
    def handler(number, frame):
        raise TimeoutError("in time")

    before = signal.signal(signal.SIGALRM, handler)
    record = Recorder.try_record_plain_call

    def recorded_late(self, *args):
        signal.raise_signal(signal.SIGALRM)
        return record(self, *args)

    monkeypatch.setattr(Recorder, "try_record_plain_call", recorded_late)
    try:
        with pytest.raises(TimeoutError, match="in time"):
            burnish.compile(lambda x: x.t(), backend="eager")(Quantized.of(torch.randn(3, 4)))
    finally:
        signal.signal(signal.SIGALRM, before)


def test_torch_functions_that_we_call_wrongly(monkeypatch):
    """Torch's own Python, asked for the program: an error inside is the program's, another signature is our defect."""
    q = torch.randn(1, 1, 128, 8)
    monkeypatch.setattr(torch_flex, "_apply_kernel_options", lambda: None)
    with pytest.raises(burnish.InternalError, match="takes 0 positional arguments"):
        burnish.compile(lambda q: torch_flex.flex_attention(q, q, q), backend="eager")(q)
    monkeypatch.setattr(torch_flex, "_get_mod_type", lambda: None)
    with pytest.raises(burnish.InternalError, match="takes 0 positional arguments"):
        burnish.compile(
            lambda: torch_flex.create_mask(lambda b, h, q, k: q >= k, 1, 1, 8, 8, device="cpu"), backend="eager"
        )()


def breaks_of(fn, *args, backend="eager"):
    with recorded("breaks", datum="text") as found, pytest.raises(Exception, match="the program's own"):
        burnish.compile(fn, backend=backend)(*args)
    return found


def test_errors_of_the_program_stay_its_own():
    def fails(x):
        raise TypeError("the program's own")

    assert breaks_of(lambda x: torch.func.vmap(fails)(x), torch.randn(3), backend=operators)
    assert breaks_of(lambda x: scan(lambda c, y: fails(c), x[0], x), torch.randn(3, 2))

    class Refusing(Quantized):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise KeyError("the program's own")

    breaks_of(lambda x: x * 2, Refusing.of(torch.randn(3, 4)))


def test_torch_errors_below_a_transform_are_handled_by_the_program():
    def fn(x):
        try:
            return torch.vmap(lambda t: t @ torch.ones(7))(x)
        except RuntimeError:
            return x.sum()

    x = torch.randn(3, 4)
    for backend in ("eager", operators):
        assert torch.equal(burnish.compile(fn, backend=backend)(x), fn(x))


def test_a_profiled_program_is_compiled_and_profiled_on():
    def after():
        return 1

    profile = cProfile.Profile()
    profile.enable()
    try:
        got = burnish.compile(lambda x: x // x.new_tensor([2]))(torch.full((2,), 5))
        after()
    finally:
        profile.disable()
    assert got.tolist() == [2, 2]
    assert after.__code__ in [entry.code for entry in profile.getstats()]
