"""The four commands and their checks, the most instructive first."""

from __future__ import annotations

import functools

import torch

from . import kernels, orders, speed
from .check_runner import Check

MINUTES = {"contact": 4.0, "speed": 5.0, "models": 5.0, "rest": 5.0}
"""The duration of each command without `--minutes`."""

INTERPRETED = (
    kernels.elementwise,
    kernels.reductions,
    kernels.softmax,
    kernels.norms,
    kernels.cross_entropy,
    kernels.index_add,
    kernels.transposes,
    kernels.attention,
    kernels.dropout,
    kernels.mlp,
)
FURTHER = (
    kernels.functions,
    kernels.convolutions,
    kernels.optimizer_step,
    kernels.sizes_that_change,
    kernels.recurrent,
    kernels.large_tensor,
    kernels.own_products,
)
ORDERS = (
    orders.forwards_first,
    orders.backward_in_a_thread,
    orders.first_call_in_a_thread,
    orders.launch_in_a_bare_thread,
    orders.many_threads,
    orders.two_streams,
    orders.capture_by_the_user,
    orders.capture_that_fails,
    orders.graph_of_inference,
    orders.graph_of_training,
    orders.two_forwards_of_a_graph,
    orders.as_users_run_it,
    orders.autocast_with_a_scaler,
)
SANITIZED = (
    kernels.elementwise,
    kernels.softmax,
    kernels.norms,
    kernels.index_add,
    kernels.transposes,
    kernels.cross_entropy,
)
SWEEP = "-m bench.sweep --device cuda --dtype float32,bfloat16 --minutes {minutes} --json {json}"
GENERATION = "-m bench.static_cache --device cuda --dtype bf16 --model llama_1b --modes reduce-overhead"
STRICT = "compute-sanitizer --tool memcheck --error-exitcode 86 --target-processes all"


def name_of(fn) -> str:
    return fn.__name__.replace("_", " ")


def check_of(fn, **options) -> Check:
    return Check(name_of(fn), fn, **options)


def contact() -> list[Check]:
    return [
        check_of(speed.versions, alone=True, seconds=60),
        check_of(kernels.first_kernel, alone=True, interpreted=True),
        *(check_of(fn, interpreted=True) for fn in INTERPRETED),
        *(check_of(fn) for fn in ORDERS),
        *(check_of(fn) for fn in FURTHER),
        check_of(kernels.wrong_index),
        check_of(speed.ceilings, alone=True),
        check_of(speed.launching, alone=True),
        Check(
            "tests on hardware",
            command="-m pytest tests/gpu/test_cuda_graphs_on_gpu.py -q -p no:cacheprovider",
            rehearsal="-m pytest tests/gpu/test_cuda_graphs_on_gpu.py -q -p no:cacheprovider --collect-only",
            seconds=60,
        ),
        Check("sweep", command=f"{SWEEP} --samples 2", seconds=600, alone=True),
    ]


def speeds() -> list[Check]:
    timed = functools.partial(Check, alone=True)
    return [
        timed("ceilings", speed.ceilings),
        timed("bandwidth f32", functools.partial(speed.kernel_bandwidth, dtype=torch.float32)),
        timed("training bandwidth", speed.training_bandwidth),
        *(timed(name, functools.partial(speed.model_times, model=name), seconds=75) for name in ("bert", "resnet50")),
        timed("gpt2", functools.partial(speed.model_times, model="gpt2"), seconds=75),
        timed("bandwidth bf16", functools.partial(speed.kernel_bandwidth, dtype=torch.bfloat16)),
        timed("launching", speed.launching),
    ]


def models() -> list[Check]:
    timed = functools.partial(Check, alone=True)
    llama = functools.partial(speed.model_times, model="llama_1b", dtype="bfloat16")
    gpt2 = functools.partial(speed.model_times, model="gpt2_1024", mode="train-step", dtype="bfloat16", times=4)
    bert = functools.partial(speed.model_times, model="bert_512", mode="train", dtype="bfloat16", times=8)
    return [
        timed("llama_1b bf16", llama, seconds=90),
        timed("gpt2_1024 training step bf16", gpt2, seconds=120),
        timed(
            "llama_1b generating",
            command=f"{GENERATION} --limit 60 --json {{json}}",
            rehearsal="-m bench.static_cache --model tiny --tokens 2 --against eager --json {json}",
            seconds=150,
        ),
        timed("bert_512 training bf16", bert, seconds=90),
    ]


def rest() -> list[Check]:
    timed = functools.partial(Check, alone=True)
    return [
        *(Check(f"sanitized {name_of(fn)}", fn, tool=STRICT, seconds=60) for fn in SANITIZED),
        Check(
            "profiled norms",
            kernels.norms,
            tool="ncu --set detailed --clock-control none --launch-count 40 --kernel-name regex:^(?!void|at) --csv",
            seconds=60,
            alone=True,
        ),
        timed(
            "tutorials",
            command="-m bench.tutorials --device cuda --limit 60 --json {json}",
            rehearsal="-m bench.tutorials --small --only inference --against eager --between 0 --json {json}",
            seconds=240,
        ),
        timed(
            "max-autotune",
            command="-m bench gpt2 resnet50 --device cuda --steady-only --rounds 6 --modes max-autotune --json {json}",
            rehearsal="-m bench mlp --against eager --rounds 1 --seconds 0.01 --steady-only --json {json}",
            seconds=90,
        ),
        timed(
            "sweep",
            command=f"{SWEEP} --samples 3",
            rehearsal="-m bench.sweep --dtype float32 --only softmax --samples 1 --processes 1 --json {json}",
            seconds=600,
        ),
    ]


COMMANDS = {"contact": contact, "speed": speeds, "models": models, "rest": rest}
