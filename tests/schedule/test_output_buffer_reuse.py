"""Intermediates in the buffers of outputs that are not written yet: no step reads another step's value there."""

import pytest

from burnish.schedule.loops.build_kernel import Launch
from burnish.schedule.memory import liveness
from burnish.schedule.memory.output_buffer_reuse import reuse_output_buffers
from burnish.schedule.memory.plan_arena import Span
from burnish.schedule.pipeline import make_plan

from ..ir.parse_graph import parse_graph
from .parse_loops import kernels_in

CHAIN = """
graph(x: f32[256, 256])
  s = sum x, (1,) : f32[256, 1]
  a = aten.div.Tensor x, s : f32[256, 256]
  a1 = view a, permute[1, 0] : f32[256, 256]{{1, 256}}
  t = sum a1, (1,) : f32[256, 1]
  b = aten.div.Tensor a1, t : f32[256, 256]
  b1 = view b, permute[1, 0] : f32[256, 256]{{1, 256}}
  u = sum b1, (1,) : f32[256, 1]
  c = aten.div.Tensor b1, u : f32[256, 256]
  c1 = view c, permute[1, 0] : f32[256, 256]{{1, 256}}
  v = sum c1, (1,) : f32[256, 1]
  d = aten.div.Tensor c1, v : f32[256, 256]
  return {result}
"""
WHOLE = 256 * 256 * 4


def plan_of(result="d", text=CHAIN):
    return make_plan(parse_graph(text.format(result=result)))


def lodgers(plan):
    return {value.name: (host.name, at) for value, (host, at) in plan.in_output_buffer.items()}


def clashes(plan):
    """Reads of a range of bytes that something else was written to since the value was, or is by the same kernel."""
    holds: dict[tuple[str, int], str] = {}
    found = []

    def cells(value):
        where, at = plan.in_output_buffer.get(value, (None, plan.offsets.get(value)))
        where, at = (value, 0) if at is None else (where, at)
        return [(str(where), cell) for cell in range(at // 64, -(-(at + value.type.bytes) // 64))]

    for step in plan.steps:
        assert isinstance(step, Launch)
        stored = {step.buffers[at] for at in step.kernel.stored}
        for value in stored:
            holds.update(dict.fromkeys(cells(value), value.name))
        read = [value for value in step.buffers if value not in stored and value not in plan.graph.inputs]
        found += [(step, value) for value in read for cell in cells(value) if holds.get(cell) != value.name]
    return found


def test_values_dead_before_an_output_is_written_use_its_buffer():
    plan = plan_of()
    assert lodgers(plan) == {"b": ("d", 0)}
    assert WHOLE <= plan.arena <= WHOLE + 256 * 4, "one of them, and what rows come to"
    assert not clashes(plan)


def test_operands_of_the_outputs_writer_do_not_use_its_buffer():
    plan = plan_of()
    c = next(value for value in plan.offsets if value.name == "c")
    plan.in_output_buffer = {c: (plan.graph.outputs[0], plan.offsets.pop(c))}
    assert clashes(plan)


@pytest.mark.parametrize("result", ["d, b", "b, d", "d, a, b, c"])
def test_outputs_written_early_are_not_reused_by_later_values(result):
    plan = plan_of(result)
    assert not clashes(plan) and "b" not in lodgers(plan)


def test_an_output_of_another_shape_holds_as_much_as_it_has_bytes():
    plan = plan_of("w", CHAIN.replace("  return", "  w = aten.add.Tensor v, v : f32[256, 1]\n  return"))
    assert not plan.in_output_buffer


def test_a_printed_plan_shows_reused_output_buffers_and_is_read_back():
    plan = plan_of()
    assert str(plan).splitlines()[-1] == "in d before it is written: b at 0"
    assert kernels_in(str(plan)) == [step.kernel for step in plan.steps]


def test_result_of_a_library_is_alive_until_the_following_kernels_have_run():
    """They are one call: when it begins, the memory of the output is there in any case, and may as well be used."""
    made = "graph(y: f32[256, 256])\n  x = aten.mm.default y, y : f32[256, 256]"
    b = "  b = aten.div.Tensor a1, t : f32[256, 256]"
    text = CHAIN.replace("graph(x: f32[256, 256])", made).replace(
        b, b.replace("b =", "b0 =") + "\n  b = aten.add.Tensor b0, x : f32[256, 256]"
    )
    plan = plan_of(text=text)
    assert "b" in lodgers(plan)


def test_buffers_of_one_call_are_used_in_turns():
    """The example in `output_buffer_reuse`; live values do not overlap."""
    a, b, c, out = "abco"
    needed = {a: Span(0, 2, 3), b: Span(2, 4, 4), c: Span(5, 6, 4)}
    assert reuse_output_buffers([needed], [{out: Span(7, 9, 4)}]) == {b: (out, 0), c: (out, 0)}
    assert reuse_output_buffers([needed], [{out: Span(7, 9, 3)}]) == {a: (out, 0), c: (b, 0)}
    assert reuse_output_buffers([needed], [{out: Span(6, 9, 4)}]) == {b: (out, 0), a: (c, 0)}
    assert reuse_output_buffers([{a: Span(0, 2, 3)}, {b: Span(3, 4, 3)}], [{}, {}]) == {}, "of two calls"


@pytest.mark.parametrize("result", ["d", "d, b", "s, d", "w"])
def test_memory_that_each_run_makes_is_shared_within_a_call(result, monkeypatch):
    monkeypatch.setattr(liveness, "GIVEN_BACK", 1 << 10)
    text = CHAIN.replace("  return", "  w = aten.add.Tensor v, v : f32[256, 1]\n  return")
    plan = make_plan(parse_graph(text.format(result=result)), frees_arena=True)
    assert not clashes(plan)
    assert lodgers(plan) and all(host not in plan.in_output_buffer for host, _ in plan.in_output_buffer.values())
