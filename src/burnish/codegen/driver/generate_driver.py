"""Generates the driver of a plan: Python text that calls kernels and operators in order.

    def run(frame, x, w):
        mm = call_0(x, w)
        relu = empty_cpu((64, 64), (64, 1), float32)
        t = frame.table_0
        t[0] = mm.data_ptr()
        t[1] = relu.data_ptr()
        launch_0(t)
        return (relu,)

Intermediates are in an arena that the frame holds; their pointers are in the tables from the start. Some are in the
memory of an output that is written later; that output is allocated early. Consecutive native functions become one call
(see `runtime.program.native_call_sequence`).

Some inputs are the same tensors in many calls: weights that were packed once. A separate function writes their
addresses into the tables, and the driver has no parameters that it does not read:

    def bind(frame, packed_p):
        frame.table_0[2] = packed_p

    def run(frame, x): …
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ... import events
from ...foundation.torch_private import increment_version
from ...ir.graph import Alias, Node, Value
from ...ops.burnish_primitives import ORDER_AFTER, PREPARE, RUN
from ...ops.elementwise.python_number_operators import ITEM, NUMBER
from ...runtime.eager.eager_primitives import FUNCTIONS
from ...runtime.linking import cuda_module_loader
from ...runtime.linking.cuda_module_loader import CudaKernel
from ...runtime.program.call_origins import CallOrigins
from ...runtime.program.native_call_sequence import Entry, Fixed, Moving, NativeCalls
from ...runtime.program.native_kernels import NativeKernel
from ...runtime.program.unbound_driver import FunctionOf, UnboundDriver
from ...schedule.library.candidate import OUT, SCRATCH
from ...schedule.library.own_kernels.matmul_tiling_and_packing import Stream
from ...schedule.loops.build_kernel import Launch
from ...schedule.memory.liveness import INTO, is_native, writes_into
from ...schedule.plan_steps import Call, MakeView, Plan, line_of, name_of
from ...tensors.device_facts import is_host
from ...tensors.tensor_types import NumberType
from ...tensors.views.view_maps import view_offset
from ...tensors.weight_packing import LAYOUTS
from .last_uses_by_step import first_write, last_uses
from .number_expressions import number_expression
from .value_storage import ValueStorage


def write_driver(
    plan: Plan,
    kernels: Sequence[NativeKernel | CudaKernel],
    constants: Mapping[int, torch.Tensor],
    takes_list: bool = False,
    bound: Sequence[int] = (),
) -> UnboundDriver:
    """`kernels`: the plan's, in order. `constants`: the graph inputs that no caller passes, by position. `takes_list`:
    the driver takes a list of the inputs, empties it, and releases each input after its last use. `bound`: graph inputs
    that are bound once for many calls."""
    draft = DriverWriter(plan, kernels, constants, takes_list, bound).draft()
    if events.is_watched("kernels.driver"):
        events.emit("kernels.driver", text=draft.source, draft=draft)
    return draft


PYTHON_CALLS = ("call", "prepare", "run", "run_into")
"""Names under which functions are bound that do the work of a step."""


class DriverWriter(ValueStorage):
    def __init__(
        self,
        plan: Plan,
        kernels: Sequence[NativeKernel | CudaKernel],
        constants: Mapping[int, torch.Tensor],
        takes_list: bool,
        bound: Sequence[int] = (),
    ):
        super().__init__(plan, bound)
        self.kernels, self.constants, self.takes_list = kernels, constants, takes_list
        self.binding: list[str] = []
        self.binds: tuple[int, ...] = ()
        self.takes: tuple[int, ...] | None = None
        self.open = NativeCalls()
        self.let_go: list[str] = []
        self.launched = 0
        self.launches: dict[str, NativeCalls] = {}
        self.returned: set[Value] = set()
        self.step, self.open_steps = 0, []
        self.steps: dict[str, list[int]] = {}
        """Of each called function, the steps that it runs."""
        self.devices = sorted(
            {kernel.device for kernel in kernels if isinstance(kernel, CudaKernel)}
            | {stream.device for stream in streams_of(plan)}
        )
        self.open_on: int | None = None
        """The GPU of the pending launches."""

    def draft(self) -> UnboundDriver:
        source, steps = self.text(), self.plan.steps
        return UnboundDriver(
            source,
            self.things,
            self.launches,
            self.plan.arena,
            self.arena_views,
            self.number_slots,
            self.read_elements,
            self.takes,
            self.binds,
            CallOrigins(self.steps, list(map(name_of, steps)), list(map(line_of, steps))),
        )

    def bind(self, name: str, thing: Any) -> str:
        made = super().bind(name, thing)
        if name in PYTHON_CALLS:
            self.steps[made] = [self.step]
        return made

    def add_native(self, kernel: NativeKernel, entries: list[Entry]) -> None:
        self.open.add(kernel, entries)
        self.open_steps.append(self.step)

    def text(self) -> str:
        graph = self.plan.graph
        parameters = [value for k, value in enumerate(graph.inputs) if k not in self.constants]
        for value in parameters:
            self.names[value] = self.identifier(value.name)
        for k, tensor in self.constants.items():
            self.names[graph.inputs[k]] = self.bind("constant", tensor)
        last = last_uses(self.plan, parameters if self.takes_list else (), self.bases)
        written, commits = first_write(self.plan), 0
        for number, step in enumerate(self.plan.steps):
            self.step = number
            if number == written:
                self.check_numbers(number)
                commits = len(self.lines)
            match step:
                case Launch():
                    self.launch(step)
                case Call(node, None):
                    self.call(node)
                case Call(node, in_place):
                    self.call_in_place(node, in_place)
                case MakeView():
                    self.show(step)
            self.release(last.get(number, ()))
        self.flush()
        self.write_inputs()
        self.line(f"return ({''.join(f'{self.output(out)}, ' for out in graph.outputs)})")
        if written is not None:
            self.lines[commits:] = [
                "try:",
                *(f"    {line}" for line in self.lines[commits:]),
                "except BaseException as error: half_done(error); raise",
            ]
        names = [self.names[value] for value in parameters]
        if self.takes_list and names:
            self.lines.insert(0, f"{''.join(f'{name}, ' for name in names)} = inputs; inputs.clear()")
        first = self.bind_text(parameters, names)
        if self.takes is not None:
            names = [names[k] for k in self.takes]
        arguments = ", ".join(["frame", *(["inputs"] if self.takes_list else names)])
        self.lines[:0] = self.on_device(arguments)
        return "\n".join([*first, f"def run({arguments}):", *(f"    {line}" for line in self.lines), ""])

    def bind_text(self, parameters: Sequence[Value], names: Sequence[str]) -> list[str]:
        """The function that writes bound inputs into the tables. `run` takes only what it reads."""
        if not self.bound_pointers:
            return []
        bound = set(self.bound_pointers.values())
        self.binds = tuple(k for k, value in enumerate(parameters) if value in bound)
        read = set(re.findall(r"\w+", "\n".join(self.lines)))
        self.takes = tuple(k for k, name in enumerate(names) if name in read)
        arguments = ", ".join(["frame", *(f"{names[k]}_p" for k in self.binds)])
        return [f"def bind({arguments}):", *(f"    {line}" for line in self.binding), ""]

    def check_numbers(self, first: int) -> None:
        """Check the numbers that kernels read from this step on: one too large raises before the first write."""
        for step in self.plan.steps[first:]:
            for value in step.buffers if isinstance(step, Launch) else ():
                if isinstance(value.type, NumberType) and value in self.names:
                    self.pointer(value)

    def launch(self, step: Launch) -> None:
        kernel = self.kernels[self.launched]
        self.launched += 1
        if isinstance(kernel, CudaKernel):
            self.begin_on(kernel.device)
        for at in sorted(step.kernel.stored):
            self.make(step.buffers[at])
        entries = [self.entry(value) for value in step.buffers]
        if isinstance(kernel, CudaKernel):
            # The launcher takes the kernel and the stream.
            self.add_native(kernel.launcher, [Fixed(kernel.words), Moving(f"stream_{kernel.device}"), *entries])
        else:
            self.add_native(kernel, entries)

    def begin_on(self, device: int) -> None:
        """Further launches are for this GPU."""
        if self.open_on not in (None, device):
            self.flush()
        self.open_on = device

    def on_device(self, arguments: str) -> list[str]:
        """A kernel is launched by a thread whose current device is its GPU, in the current stream there. With several
        GPUs, each call of native functions sets the device."""
        if not self.devices:
            return []
        stream = self.bind("current_stream", cuda_module_loader.current_stream)
        streams = [f"stream_{index} = {stream}({index})" for index in self.devices]
        if len(self.devices) > 1:
            return streams
        (index,) = self.devices
        current, elsewhere = (
            self.bind("current_device", cuda_module_loader.current_device),
            self.bind("elsewhere", cuda_module_loader.run_on_other_gpu),
        )
        return [f"if {current}() != {index}: return {elsewhere}({index}, run, {arguments})", *streams]

    def flush(self) -> None:
        """Call the pending native functions, before any other step runs."""
        if self.open.calls:
            calls, self.open = self.open, NativeCalls()
            number = len(self.launches)
            name = self.bind_name("launch_0")
            self.launches[name] = calls
            self.steps[name], self.open_steps = self.open_steps, []
            moving = [
                (at, f"{entry.text} + {entry.offset}" if entry.offset else entry.text)
                for at, entry in enumerate(self.table_of(calls))
                if isinstance(entry, Moving)
            ]
            self.binding += [
                f"frame.table_{number}[{at}] = {text}" for at, text in moving if text in self.bound_pointers
            ]
            moving = [(at, text) for at, text in moving if text not in self.bound_pointers]
            if moving:
                self.line(f"t = frame.table_{number}")
            for at, text in moving:
                self.line(f"t[{at}] = {text}")
            given = "t" if moving else f"frame.table_{number}"
            if len(self.devices) > 1 and self.open_on is not None:
                self.line(f"{self.bind('on', cuda_module_loader.run_on_gpu)}({self.open_on}, {name}, {given})")
            else:
                self.line(f"{name}({given})")
            self.open_on = None
            self.look_for_failure()
        if self.let_go:
            self.line(f"del {', '.join(self.let_go)}")
            self.let_go = []

    def table_of(self, calls: NativeCalls) -> list[Entry]:
        return calls.table()

    def look_for_failure(self) -> None:
        """Check whether a launch has failed; only Python code can raise the error."""
        if self.devices:
            self.things["failure"] = cuda_module_loader.failure
            self.line(f"if failure.value: {self.bind('complain', cuda_module_loader.raise_launch_error)}()")

    def call(self, node: Node) -> None:
        if is_native(node):
            self.run_natively(node)
            return
        self.flush()
        if node.op is RUN:
            self.run_library(node)
            return
        if node.op is PREPARE:
            pack = node.args[0].prepare
            is_data = isinstance(pack, LAYOUTS)
            name = self.bind("prepare", pack if is_data else FunctionOf(node.args[0], "prepare"))
            left = "".join(f"{self.result(value)}, " for value in node.results)
            self.line(f"{left} = {name}({', '.join(self.argument(arg) for arg in node.args[1:])})")
            return
        if node.op is NUMBER:
            function, *operands = node.args
            written = number_expression(self, function, list(map(self.argument, operands)))
            self.line(f"{self.result(node.results[0])} = {written}")
            return
        if node.op.name == ITEM and not self.devices and is_host(node.args[0].type.device):
            read = self.element(node.args[0])
            self.line(f"{self.result(node.results[0])} = {read}")
            return
        if node.op is ORDER_AFTER:  # its other operand only orders it, and may have no memory
            self.line(f"{self.result(node.results[0])} = {self.tensor(node.args[0])}")
            return
        target = FUNCTIONS[node.op.name] if node.op.target is None else node.kernel
        args = [self.argument(arg) for arg in node.args]
        args += [f"{key}={self.argument(arg)}" for key, arg in node.kwargs.items()]
        results = [value for value in node.results if value is not None]
        if node.op.name in INTO and self.has_memory(results[0]):
            into = self.bind("call", INTO[node.op.name])
            self.line(f"{into}({', '.join([*args, f'out={self.tensor(results[0])}'])})")
            return
        name = self.bind("call", target)
        if len(node.results) == 1 and not _returns_sequence(node):
            left = self.result(node.results[0])
        else:
            left = "".join(f"{self.result(value)}, " for value in node.results)
        self.line(f"{left} = {name}({', '.join(args)})" if left else f"{name}({', '.join(args)})")
        for value in results:
            self.check_stride(value)

    def call_in_place(self, node: Node, target: Any) -> None:
        """An operator that writes into its first argument."""
        self.flush()
        value = node.results[0]
        assert value is not None
        args = [*map(self.argument, node.args), *(f"{key}={self.argument(arg)}" for key, arg in node.kwargs.items())]
        called = f"{self.bind('call', target)}({', '.join(args)})"
        is_ours = value in self.plan.offsets or value in self.in_output_buffer
        self.line(called if is_ours else f"{self.result(value)} = {called}")

    def run_natively(self, node: Node) -> None:
        """A library call that runs our own native functions."""
        candidate, operands = node.args
        made = [value for value in node.results if value is not None]
        for value in made:
            self.make(value)
        names = (*candidate.operands, OUT, *(name for name, _ in candidate.further))
        values = dict(zip(names, (*operands, *made), strict=True))

        def entry(spot: Any) -> Entry:
            if isinstance(spot, Stream):
                return Moving(f"stream_{spot.device}")
            if not isinstance(spot, tuple):
                return Fixed(spot)
            name, further = spot
            return self.scratch(node, further) if name == SCRATCH else self.entry(values[name], further)

        for step in candidate.steps():
            stream = next((spot for spot in step.table if isinstance(spot, Stream)), None)
            if stream is not None:
                self.begin_on(stream.device)
            self.add_native(step.kernel, [entry(spot) for spot in step.table])

    def run_library(self, node: Node) -> None:
        """A chosen library call, with an output of ours if it accepts one."""
        candidate, operands = node.args
        value = node.results[0]
        assert value is not None
        tensors = [self.tensor(operand) for operand in operands]
        if writes_into(node):
            self.make(value)
            self.line(self.library_call(candidate, tensors, self.tensor(value)))
            return
        text = self.library_call(candidate, tensors)
        self.line(f"{self.result(value)} = {text}")
        self.check_stride(value)

    def check_stride(self, value: Value) -> None:
        """Restore the planned strides, which kernels rely on."""
        if isinstance(value.type, NumberType):
            return
        name, type = self.names[value], value.type
        self.line(f"if {name}.stride() != {type.stride}: {name} = restrided({name}, {type.shape}, {type.stride})")

    def release(self, values: Sequence[Value]) -> None:
        """Release values that no later step reads, so that peak memory is not above eager's."""
        names = [
            name
            for value in values
            if (name := self.names.get(value)) is not None
            and "." not in name
            and value not in self.as_shown
            and not isinstance(value.type, NumberType)
        ]
        if names:
            self.let_go += names
            if self.takes_list or not self.open.calls:
                self.flush()

    def write_inputs(self) -> None:
        written = {write.input for write in self.plan.graph.writes}
        values = []
        writes = [write for write in self.plan.graph.writes if write.value not in self.plan.placed]
        placed = [
            self.names[self.plan.graph.inputs[write.input]]
            for write in self.plan.graph.writes
            if write.value in self.plan.placed and not write.is_silent
        ]
        if placed:
            self.line(f"{self.bind('increment_version', increment_version)}([{', '.join(placed)}])")
        for write in writes:
            name = self.tensor(write.value)
            if len(written) > 1 and write.value in self.plan.graph.inputs:
                # Two inputs may be exchanged: read each before any is written.
                kept = self.identifier("kept")
                self.line(f"{kept} = {name}.clone()")
                name = kept
            values.append(name)
        for write, name in zip(writes, values, strict=True):
            data = ".data" * write.is_silent  # .data has its own version counter
            self.line(f"{self.names[self.plan.graph.inputs[write.input]]}{data}.copy_({name})")

    def output(self, out: Any) -> str:
        if isinstance(out, Alias):
            value = self.plan.graph.inputs[out.input]
            name = self.names[value]
            if out.type is None:
                return name
            shown = self.strided(name, out.type, view_offset(out.maps, value.type))
            return f"{shown}.detach()" if out.is_detached else shown
        if isinstance(out, Value):
            # A gradient shared by two inputs is returned as one tensor, as in eager: autograd copies it because there
            # are two references. It would not copy two tensors that share memory.
            if out not in self.returned or isinstance(out.type, NumberType) or self.takes_list:
                self.returned.add(out)
                return self.tensor(out)
            # Two tensors that share memory, as x and x.transpose(0, 0): an in-place reshape of one leaves the other.
            return self.strided(self.tensor(out), out.type, 0)
        if isinstance(out, (list, tuple)):
            inside = "".join(f"{self.output(part)}, " for part in out)
            return f"[{inside}]" if isinstance(out, list) else f"({inside})"
        return self.argument(out)


def streams_of(plan: Plan) -> list[Stream]:
    """The streams of library calls that are our own GPU kernels."""
    steps = [
        made
        for step in plan.steps
        if isinstance(step, Call) and is_native(step.node)
        for made in step.node.args[0].steps()
    ]
    return [entry for made in steps for entry in made.table if isinstance(entry, Stream)]


def _returns_sequence(node: Node) -> bool:
    target = node.op.target
    return target is not None and (
        len(target._schema.returns) != 1 or str(target._schema.returns[0].type) == "List[Tensor]"
    )
