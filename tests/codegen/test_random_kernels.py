"""Kernels by chance compute what the reference computes, to the last bit."""

import pytest
from hypothesis import HealthCheck, given, settings

from .random_kernels import elementwise, reducing
from .running import MACHINES, check

EXAMPLES = settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("machine", MACHINES)
@EXAMPLES
@given(drawn=elementwise())
def test_an_elementwise_kernel_equals_the_reference(machine, drawn):
    check(*drawn, machine)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_reducing_kernel_equals_the_reference(machine):
    @settings(EXAMPLES, max_examples=12 if machine == "triton" else 60)  # its interpreter takes half a second for one
    @given(drawn=reducing())
    def is_equal(drawn):
        check(*drawn, machine)

    is_equal()
