"""Random kernels give exactly the results of the NumPy reference."""

import re

import pytest
from hypothesis import HealthCheck, assume, given, settings

from burnish.codegen.triton.print_math_expansions import why_not_printable

from .random_kernels import elementwise, reducing
from .run_kernel import MACHINES, check

EXAMPLES = settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("machine", MACHINES)
@EXAMPLES
@given(drawn=elementwise())
def test_an_elementwise_kernel_equals_the_reference(machine, drawn):
    check_drawn(*drawn, machine)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_reducing_kernel_equals_the_reference(machine):
    @settings(EXAMPLES, max_examples=12 if machine == "triton" else 60)  # its interpreter takes half a second for one
    @given(drawn=reducing())
    def is_equal(drawn):
        check_drawn(*drawn, machine)

    is_equal()


def check_drawn(kernel, buffers, machine):
    # Without F16C LLVM converts halves by functions of a library that is not in every process.
    assume(machine != "x86-64-v2" or "f16" not in re.split(r"\W", kernel.key))
    assume(machine != "triton" or not any(map(why_not_printable, expressions(kernel))))
    check(kernel, buffers, machine)


def expressions(kernel):
    return [
        x
        for loop in kernel.loops
        for stage in loop.stages
        for part in (*stage.reductions, *stage.stores, *stage.row_stores)
        for x in (part.value, *getattr(part, "args", ()))
    ]
