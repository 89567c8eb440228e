"""The signature of a joint graph: which inputs and outputs belong to forward, tangents and gradients.

    graph(x, w, y_tangent)          Gradients(outputs=1, flows=(0,), tangents=2, inputs=(1,))
      return y, w_gradient

Where autograd gets several nodes, the gradients of one after the other are the last outputs: see `pieces`.

`lower.trace.build_joint_graph` adds the gradients to the graph. `schedule.partition.partition_joint_graph` splits it
into forward and backward.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..captured_graph.aliased_gradients import InputView, TangentGradient


@dataclass(frozen=True, slots=True)
class Gradients:
    """The positions of the inputs and outputs that `add_gradients` added to a graph."""

    outputs: int
    """The number of outputs of forward. They come first."""
    flows: tuple[int, ...]
    """The positions of the outputs that gradients flow into. There is one tangent for each."""
    tangents: int
    """The position of the first tangent among the graph's inputs."""
    inputs: tuple[int, ...]
    """The positions of the inputs whose gradients are the graph's last outputs, in this order."""
    input_aliases: tuple[int, ...] = ()
    """The positions of outputs that require gradients and are an input or a view of one."""
    no_backward: tuple[tuple[int, str], ...] = ()
    """Entries of `flows` that backward cannot start from, with torch's message: the program has already run that
    backward, or an operator has no derivative."""
    views: tuple[tuple[int, int], ...] = ()
    """Outputs that are views of another output and get gradients through it: (position, the base's position)."""
    hidden: int = 0
    """The number of forward outputs that exist only as such a base. They come last."""
    current_inputs: tuple[int, ...] = ()
    """The positions of the inputs whose current state backward reads. For each the graph has an input after the
    tangents, which it may write to."""
    reached: tuple[int, ...] = ()
    """For each of `inputs`, a bit mask over `flows`: the outputs that its gradient comes from. Empty for one output.
    Eager gives no gradient, rather than zeros, to an input that no used output reaches."""
    gradient_views: tuple[tuple[int, InputView], ...] = ()
    """The gradients that are views of the tensors that the graph returns in their place: (position among the gradients,
    the view). The input of a view is the first position with the same gradient: all of them share one tensor."""
    edges: tuple[int, ...] = ()
    """The positions of the inputs that require gradients, in the order in which autograd's node must list them."""
    shared_in_eager: tuple[int, ...] = ()
    """The positions of inputs whose gradient eager references elsewhere when it reaches the leaf."""
    tangent_views: tuple[TangentGradient, ...] = ()
    """The gradients that are tangents, or views of them."""
    frees: bool = True
    """Whether eager frees saved tensors after backward, so that it runs only once."""
    unused: tuple[int, ...] = ()
    """The positions of inputs that require gradients and get none from any output."""
    pieces: tuple[GradientPiece, ...] = ()
    """Where autograd gets several nodes: their backward, from outputs to inputs. There is a tangent for each port but
    the aliases: first those of `flows`. `inputs` and what describes them are then empty here."""
    inner: int = 0
    """The number of ports that are intermediate results and pass on only their gradients. They come after
    `flows`."""
    aliases: tuple[int, ...] = ()
    """The positions of the outputs that are the last ports: views of inputs or of other outputs."""
    overwritten: tuple[int, ...] = ()
    """The positions of inputs that the caller writes to between forward and backward."""
    of_several: tuple[int, ...] = ()
    """The positions of the outputs that are views from a function that returns several of them."""


@dataclass(frozen=True, slots=True)
class GradientPiece:
    """One of several nodes of autograd: see `captured_graph.graph_autograd_nodes`."""

    makes: tuple[int, ...]
    """The ports whose gradients it takes."""
    gradients: Gradients
    """Its `flows` are positions in `makes`. Positions of inputs from `tangents` on are ports."""
