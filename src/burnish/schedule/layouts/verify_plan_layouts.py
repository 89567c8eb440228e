"""The layout verifier: checks that the operands of each step of the finished plan have layouts that it accepts.

    verify_layouts(plan)

    InternalError: ... stage 'plan': the call bmm takes a as f32[2, 3, 4], and is given f32[2, 3, 4]{12, 1, 3}
        > y = run <bmm>, (e, b)                            : f32[2, 3, 5]

A chosen call takes the layouts of `Candidate.takes` and makes those of `gives`. An eager kernel takes the strides that
eager passed to it, unless `ops.layouts_eager_accepts` says that it takes any. A view has the strides that its maps
give. A value in an input's memory has that input's strides; in an intermediate value's memory, it may have others
without gaps. The check takes 2 microseconds a step and always runs; views are checked only with the setting `check`.
Our own kernels read any strides.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import InternalError
from ...ir.alias_analysis import is_memory_view
from ...ir.graph import Node
from ...ir.verifier import surroundings
from ...ops.burnish_primitives import RUN, VIEW
from ...ops.layouts_eager_accepts import eager_stride_or_none, why_not_taken
from ...settings import current
from ...tensors.eager_strides import is_dense
from ...tensors.tensor_types import NumberType, has_stride
from ..plan_steps import Call, MakeView, Plan


def verify_layouts(plan: Plan) -> None:
    """Raises InternalError, naming the node, where a step gets an operand in a layout it does not take."""
    for node, why in faults(plan):
        raise InternalError("plan", why if node is None else f"{why}\n{surroundings(plan.graph, node)}")


def faults(plan: Plan) -> Iterator[tuple[Node | None, str]]:
    for step in plan.steps:
        match step:
            case Call(node):
                yield from ((node, why) for why in faults_of_call(node))
            case MakeView(value, _, type, _) if current().check:
                node = value.node
                if node is not None and node.op is VIEW and not (type == value.type and is_memory_view(value)):
                    yield node, f"{value} is shown as {type}, which its maps do not give"
    for places in (plan.placed, plan.in_place):
        for value, below in places.items():
            takes_all = places is plan.in_place and is_dense(value.type) and is_dense(below.type)
            if (
                value.dtype is not below.dtype
                or value.shape == below.shape
                and not (takes_all or has_stride(value.type, below.type.stride))
            ):
                yield value.node, f"{value}: {value.type} is put into the memory of {below}: {below.type}"


def faults_of_call(node: Node) -> Iterator[str]:
    if node.op is RUN:
        candidate, operands = node.args
        why = candidate.takes([value.type for value in operands])
        if why is not None:
            yield why
        for value, type in zip(node.results, candidate.gives(), strict=True):
            if value is not None and not (value.shape == type.shape and has_stride(value.type, type.stride)):
                yield f"the call makes {type}, and {value} is {value.type}"
        return
    for value, stride in zip(node.operands, node.eager_strides or (), strict=False):
        if not isinstance(value.type, NumberType) and eager_stride_or_none(value.type, stride) is not None:
            yield f"{node.op} takes {value} with the strides {stride} alone, and it is {value.type}"
    why = why_not_taken(node.op, [value.type for value in node.operands])
    if why is not None:
        yield why
