"""The candidates of a recurrent layer without gradients: eager's kernel for each direction, and our own kernels.

    mkldnn   eager: `mkldnn_rnn_layer` for each direction, which packs the weights in every call
    own      the product of the inputs of all positions and directions, then the steps, see `Recurrence`

    >>> [c.name for c in recurrent_candidates(RecurrentSpec(x, 128, (False, True), has_biases=True))]
    ['mkldnn', 'own']

The second half of our own is one native function. A task is one direction and some rows of the batch. Tasks are
independent: a thread takes one through all positions, so no thread waits between two steps. A step adds the product of
the last state and the weights to that of the inputs, in place, and computes the next state from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from ....tensors.tensor_types import TensorType
from ....tensors.weight_packing import LayerPanels
from ..call_specs import LinearSpec, RecurrentSpec
from ..candidate import SCRATCH, Candidate, from_steps
from ..own_kernels import matmul_tiling_and_packing
from ..own_kernels.matmul_tiling_and_packing import (
    NativeCall,
    Product,
    Shape,
    Sum,
    TablePlace,
    places_of_row,
    runs_of,
    split_evenly,
)
from ..own_kernels.own_matmul_and_convolution import own_linear

NAME = "own"

MOST_SCRATCH = 64 << 20
"""Most bytes for the products of all inputs."""

LSTM = 2
"""The number of this kind of layer in oneDNN."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The steps of a layer, after the product of its inputs."""

    spec: RecurrentSpec
    hidden: Product
    """The product of the last states of one direction and its weights, added to that of the inputs. A chunk of it is
    the rows of one task."""

    @property
    def parts(self) -> int:
        """The number of tasks for each direction."""
        return len(self.hidden.chunks)


def recurrent_candidates(spec: RecurrentSpec) -> Iterator[Candidate]:
    """All ways to compute the spec, eager's first."""
    output = TensorType.contiguous(spec.output_shape, spec.x.dtype, spec.x.device)
    yield Candidate("mkldnn", spec, tuple(spec.inputs), partial(_mkldnn, spec), output)
    mine = own_recurrent(spec)
    if mine is not None:
        yield mine


def own_recurrent(spec: RecurrentSpec) -> Candidate | None:
    if why_not_recurrent(spec) is not None:
        return None
    shape = matmul_tiling_and_packing.shape_here()
    inputs = own_linear(_product_of_inputs(spec))
    assert shape is not None and inputs is not None and inputs.steps is not None
    product_of_inputs, recurrence = inputs.steps, recurrence_of(spec, shape, torch.get_num_threads())

    def steps() -> list[NativeCall]:
        product = [step.moved(out=(SCRATCH, 0), residual=(SCRATCH, 0)) for step in product_of_inputs()]
        return [*product, matmul_tiling_and_packing.maker().recurrence(recurrence)]

    positions, batch, columns = spec.output_shape
    states = TensorType.contiguous((len(spec.is_reversed), batch, spec.size), spec.x.dtype, spec.x.device)
    prepared = (*inputs.prepared, "hidden_packed")
    assert isinstance(inputs.prepare, matmul_tiling_and_packing.Panels)
    pack = LayerPanels(inputs.prepare, matmul_tiling_and_packing.panels([recurrence.hidden], has_bias=False))
    return from_steps(
        NAME,
        spec,
        ("x", *prepared, *spec.states),
        TensorType.contiguous(spec.output_shape, spec.x.dtype, spec.x.device),
        steps,
        scratch=4 * positions * batch * columns * spec.gates,
        further=(("hidden", states), ("cell", states)),
        prepare=pack,
        prepared=prepared,
        prepares=tuple(spec.weights),
    )


def why_not_recurrent(spec: RecurrentSpec) -> str | None:
    if matmul_tiling_and_packing.shape_here() is None:
        return "there are no kernels for this machine"
    if spec.x.dtype is not torch.float32 or not spec.x.is_on_host:
        return f"x is {spec.x}: the kernels compute in float32 on the CPU"
    if spec.x.numel == 0 or spec.size == 0:
        return "something is empty"
    if not spec.x.is_contiguous:
        return "x has gaps between its numbers"
    positions, batch, columns = spec.output_shape
    if 4 * positions * batch * columns * spec.gates > MOST_SCRATCH:
        return "the products of all inputs take too much memory"
    return None


def _product_of_inputs(spec: RecurrentSpec) -> LinearSpec:
    """The product of the inputs of all positions and directions with their weights."""
    positions, batch, columns = spec.x.shape
    outputs = len(spec.is_reversed) * spec.gates * spec.size
    x, weight, bias = (
        TensorType.contiguous(shape, spec.x.dtype, spec.x.device)
        for shape in ((positions * batch, columns), (outputs, columns), (outputs,))
    )
    return LinearSpec(x, weight, bias if spec.has_biases else None, is_frozen=True)


def recurrence_of(spec: RecurrentSpec, shape: Shape, threads: int) -> Recurrence:
    """`threads` is the number of threads that may run at once."""
    batch, size, directions = spec.x.shape[1], spec.size, len(spec.is_reversed)
    outputs = spec.gates * size
    to_next = directions * outputs
    chunks: list[tuple[TablePlace, ...]] = []
    first = 0
    for rows in split_evenly(batch, -(-batch // min(batch, -(-threads // directions)))):
        chunks.append(tuple(places_of_row(rows, first * size, first * to_next, size, to_next, shape.half)))
        first += rows
    sums = (Sum(size, to_next, runs_of([0], size)),)
    hidden = Product(outputs, size, sums, tuple(chunks), shape, has_residual=True)
    return Recurrence(spec, hidden)


def _mkldnn(spec: RecurrentSpec, x: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()  # as the caller of the kernel does in eager
    weights, states = tensors[: -2 * len(spec.is_reversed)], tensors[-2 * len(spec.is_reversed) :]
    each, made = 4 if spec.has_biases else 2, []
    for direction, is_reversed in enumerate(spec.is_reversed):
        own_weights = (weights[each * direction : each * (direction + 1)] * 2)[:4]
        made.append(
            torch.ops.aten.mkldnn_rnn_layer.default(
                x,
                *own_weights,
                *states[2 * direction : 2 * direction + 2],
                is_reversed,
                [],
                LSTM,
                spec.size,
                1,
                spec.has_biases,
                len(spec.is_reversed) > 1,
                False,
                False,
            )[0]
        )
    return made[0] if len(made) == 1 else torch.cat(made, -1)
