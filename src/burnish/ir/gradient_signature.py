"""What of a graph's inputs and outputs is there for gradients.

    graph(x, w, y_tangent)          Gradients(outputs=1, flows=(0,), tangents=2, inputs=(1,))
      return y, w_gradient

The graph computes a program and its gradients: `lower.trace.differentiate` adds them,
`schedule.partition.partition_joint_graph` takes forward and backward apart.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShownGradient:
    """A gradient that is a view of what the graph returns for it."""

    first: int
    """The first position with the same gradient: one tensor for all of them."""
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """Of elements, from where the other one begins."""


@dataclass(frozen=True, slots=True)
class TangentView:
    """A gradient that is a tangent, or a view of one."""

    at: int
    """Its position among the gradients."""
    flow: int
    """The position of the tangent among `flows`."""
    steps: tuple[tuple[str, tuple, int], ...]
    """Of each view on the way: torch's operator, its further arguments, and which of its results."""


@dataclass(frozen=True, slots=True)
class Gradients:
    """What `add_gradients` added to a graph."""

    outputs: int
    """How many of the graph's outputs, the first ones, are the program's own."""
    flows: tuple[int, ...]
    """The positions of those that require gradients: there is one tangent for each."""
    tangents: int
    """The position of the first tangent among the graph's inputs."""
    inputs: tuple[int, ...]
    """The positions of the inputs whose gradients are the graph's further outputs, in this order."""
    shown: tuple[int, ...] = ()
    """The positions of outputs that require gradients, and are inputs or show a part of one."""
    closed: tuple[tuple[int, str], ...] = ()
    """Of `flows` those by which backward cannot come in, and what torch says there: the program has run it itself, or
    an operator has no derivative."""
    views: tuple[tuple[int, int], ...] = ()
    """Outputs that gradients flow into by another one, whose memory they show: their positions, and that one's."""
    hidden: int = 0
    """How many of the outputs, the last ones, are there for that alone."""
    again: tuple[int, ...] = ()
    """The positions of the inputs that backward is given as they are when it runs: after the tangents the graph has an
    input for each, which it may write to."""
    reached: tuple[int, ...] = ()
    """Of each of those inputs: from which of `flows` gradients come to it, a bit for each; empty where there is one
    output. To an input that nothing comes to, eager gives no gradient, rather than zeros."""
    gradient_views: tuple[tuple[int, ShownGradient], ...] = ()
    """Of the gradients those that are views of another one: their positions among the gradients, and how."""
    edges: tuple[int, ...] = ()
    """The positions of the inputs that require gradients, in the order in which autograd's node has to list them."""
    held: tuple[int, ...] = ()
    """The positions of inputs whose gradient something else holds in eager when it arrives."""
    of_tangents: tuple[TangentView, ...] = ()
    """The gradients that are tangents, or views of them."""
