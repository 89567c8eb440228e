"""Kernels that store into their inputs: only if every element is read before it is overwritten."""

import pytest
import torch

from burnish.ir.graph import Value
from burnish.schedule.loops.build_kernel import Launch
from burnish.schedule.loops.loop_ir import print_kernel
from burnish.schedule.memory import store_inputs_in_place
from burnish.schedule.memory.store_inputs_in_place import with_one_buffer_each
from burnish.tensors.tensor_types import TensorType

from .parse_loops import parse_kernel

ALLOWED = {
    "the element itself": """
        kernel k(b0: f32, b1: f32 out)
          loop i0 < 8
            stage
              b1[i0] = mul(b0[i0], 2.0.f32)
    """,
    "a row that was summed before": """
        kernel k(b0: f32, b1: f32 out)
          loop i0 < 4 rows, i1 < 8
            stage
              r0 = sum.f32 b0[8*i0 + i1]
            stage
              b1[8*i0 + i1] = div(b0[8*i0 + i1], r0)
    """,
    "once a row": """
        kernel k(b0: f32, b1: f32 out)
          loop i0 < 4 rows, i1 < 8
            stage
              r0 = sum.f32 1.0.f32
              row b1[i0] = add(b0[i0], r0)
    """,
}
REFUSED = {
    "another element": """
        kernel k(b0: f32, b1: f32 out)
          loop i0 < 8
            stage
              b1[i0] = add(b0[i0], b0[7])
    """,
    "turned around": """
        kernel k(b0: f32, b1: f32 out)
          loop i0 < 8
            stage
              b1[i0] = mul(b0[-1*i0 + 7], 2.0.f32)
    """,
    "read again after it was stored": """
        kernel k(b0: f32, b1: f32 out, b2: f32 out)
          loop i0 < 4 rows, i1 < 8
            stage
              b1[8*i0 + i1] = mul(b0[8*i0 + i1], 2.0.f32)
            stage
              b2[8*i0 + i1] = add(b0[8*i0 + i1], 1.0.f32)
    """,
    "read by another loop": """
        kernel k(b0: f32, b1: f32 out, b2: f32 out)
          loop i0 < 8
            stage
              b1[i0] = mul(b0[i0], 2.0.f32)
          loop i0 < 8
            stage
              b2[i0] = add(b0[i0], 1.0.f32)
    """,
}


def launched(text):
    kernel = parse_kernel(text)
    values = tuple(Value(TensorType.contiguous((8,), torch.float32), f"v{k}") for k in range(len(kernel.dtypes)))
    return Launch(kernel, values)


@pytest.mark.parametrize("name", ALLOWED)
def test_two_buffers_become_one(name):
    launch = launched(ALLOWED[name])
    made, stored = with_one_buffer_each(launch, [launch.buffers[:2]])
    assert stored and launch.buffers[0] not in made.buffers
    assert "b1[" not in print_kernel(made.kernel) and made.kernel.stored == {0}


@pytest.mark.parametrize("name", REFUSED)
def test_two_buffers_stay_two(name):
    launch = launched(REFUSED[name])
    assert with_one_buffer_each(launch, [launch.buffers[:2]]) == (launch, [])


SEVERAL = """
    kernel k(b0: f32, b1: f32 out, b2: f32, b3: f32 out, b4: f32, b5: f32 out)
      loop i0 < 8
        stage
          b1[i0] = mul(b0[i0], b2[i0])
          b3[i0] = add(b2[i0], b0[i0])
      loop i0 < 8
        stage
          b5[i0] = mul(b4[-1*i0 + 7], 2.0.f32)
"""


def test_several_at_once_and_one_of_them_refused(monkeypatch):
    launch = launched(SEVERAL)
    walked = []
    seen = store_inputs_in_place.renumbered
    monkeypatch.setattr(store_inputs_in_place, "renumbered", lambda *args: walked.append(args) or seen(*args))
    b = launch.buffers
    made, stored = with_one_buffer_each(launch, [(b[0], b[1]), (b[2], b[3]), (b[4], b[5])])
    assert stored == [(b[0], b[1]), (b[2], b[3])], "elements read backwards would be overwritten before they are read"
    assert made.buffers == (b[1], b[3], b[4], b[5]) and made.kernel.stored == {0, 1, 3}
    assert len(walked) == len(launch.kernel.loops), "each loop is rewritten once, however many buffers there are"
    assert print_kernel(made.kernel) == print_kernel(
        parse_kernel("""
        kernel k(b0: f32 out, b1: f32 out, b2: f32, b3: f32 out)
          loop i0 < 8
            stage
              b0[i0] = mul(b0[i0], b1[i0])
              b1[i0] = add(b1[i0], b0[i0])
          loop i0 < 8
            stage
              b3[i0] = mul(b2[-1*i0 + 7], 2.0.f32)
    """)
    )
