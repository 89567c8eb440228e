"""Programs with gradients that run without a break, by the backend that runs Python and by the one that compiles.

@in_one_graph
def test_a_hook_changes_the_gradient():
    def fn(x): ...
    return fn, caller, calls, *state            caller(fn, *calls(i)) is what is compared, and the state
"""

import burnish

from .caller_programs import program_with_caller
from .harness import Same, snapshot


def backends(make):
    """Run a program with gradients by both of our backends: ``make`` returns ``fn, caller, calls, *state``."""
    program_with_caller(make, breaks=0)()
    fn, caller, calls, *state = make()
    burnish.reset()
    plain_fn, plain_caller, plain_calls, *plain_state = make()
    compiled = burnish.compile(fn, fullgraph=True)
    for i in range(4):
        want, got = plain_caller(plain_fn, *plain_calls(i)), caller(compiled, *calls(i))
        Same(exact=False, same_text=True)(snapshot((want, plain_state)), snapshot((got, state)), f"call {i}")


def in_one_graph(make):
    """A test that runs ``make`` in both backends without a break."""

    def test():
        backends(make)

    test.__name__, test.__doc__ = make.__name__, make.__doc__
    return test
