"""Where torch's own Python decides whether a graph ends, and releases differ: each name says what this torch does."""

import inspect

from torch._functorch import eager_transforms
from torch._higher_order_ops import while_loop

JACOBIANS_READ_DATA = "torch.tensor(" in inspect.getsource(eager_transforms._chunked_standard_basis_for_)
"""`jacrev`, `jacfwd` and `hessian` read from a tensor where rows begin (torch 2.11): graphs of operators end there."""
COMPILES_OPERATORS = "torch.compile(" in inspect.getsource(while_loop)
"""`cond` and `while_loop` compile a function that calls their operator, as in torch 2.11. Later they call one that
`scan` calls, too, and that we know."""
