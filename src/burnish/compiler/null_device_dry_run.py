"""Dry run of the GPU compiler for a GPU that is not present.

    BURNISH_NULL_DEVICE=sm_90 BURNISH_SHOW=loops,kernels python model.py

The graph is lowered and scheduled, and its kernels are printed and compiled to machine code, all as for a GPU. Then the
graph runs eagerly. Library calls remain those of the device that the graph's tensors are on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule

from .. import events
from ..codegen.triton.compilation.cubin_cache import compile_cubin
from ..codegen.triton.kernel_function import print_kernel
from ..ir.untraceable_graph import Untraceable
from ..lower.pipeline import lower
from ..ops import target_record
from ..schedule.pipeline import make_plan
from ..settings import current
from ..targets.cuda import TRITON
from ..tensors.device_facts import CPU
from .compile_graph import launches_of
from .describe_for_autograd import graphs_of


def dry_run(gm: GraphModule, example_inputs: Sequence[Any], gradients: bool) -> int:
    """How many kernels there would be."""
    architecture = int((current().null_device or "sm_90").removeprefix("sm_"))
    try:
        with target_record.substitute_target(CPU.type, TRITON):
            lowered = lower(gm, example_inputs, gradients)
            if lowered.gradients is not None and lowered.gradients.flows:
                graphs = graphs_of(lowered.graph, lowered.gradients, len(lowered.constants))
                plans = list(map(make_plan, graphs))
            else:
                plans = [make_plan(lowered.graph)]
            launches = [launch for plan in plans for launch in launches_of(plan)]
    except Untraceable as why:
        events.emit("lower.refused", text=f"would run eagerly: {why}", graph_module=gm)
        return 0
    for launch in launches:
        printed = print_kernel(launch.kernel, launch.numbers)
        cubin = compile_cubin(printed, architecture)
        events.emit("kernels", name=printed.name, text=printed.text)
        events.emit(
            "kernels",
            name=printed.name,
            text=f"# {printed.name}: {printed.grid} programs of {cubin.threads} "
            f"threads, {cubin.shared} bytes shared, {len(cubin.code)} bytes of machine code",
        )
    return len(launches)
