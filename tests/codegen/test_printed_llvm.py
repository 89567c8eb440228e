"""The printed LLVM text: readable, for the requested target, and of a length proportional to the kernel."""

import re

import llvmlite.binding as llvm
import pytest

from burnish.codegen.llvm.print_kernel_module import print_ir
from burnish.codegen.llvm.target_cpu import PRESETS, host, preset
from burnish.ops.scalar_ir import Access, load

from . import example_kernels as examples

KERNELS = [
    examples.add(1003),
    examples.softmax(7, 500),
    examples.layer_norm(4, 96, "bf16"),
    examples.column_sum(100, 70),
    examples.transposed_copy(40, 50),
    examples.embedding(9, 33),
    examples.padded(4, 30, 2),
    examples.reduction("argmax", (4, 70), 1, (70, 1)),
]


def test_the_loops_are_a_comment_above_the_text():
    text = print_ir(examples.softmax(64, 512))
    assert text.startswith(
        "; kernel softmax(b0: f32, b1: f32 out)\n"
        "; loop i0 < 64 rows, i1 < 512\n"
        ";   stage\n"
        ";     r0 = max.f32 b0[512*i0 + i1]\n"
    )


@pytest.mark.parametrize("cpu", PRESETS)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_llvm_accepts_the_text_for_every_machine(kernel, cpu):
    module = llvm.parse_assembly(print_ir(kernel, preset(cpu)), llvm.create_context())
    module.verify()


@pytest.mark.parametrize(
    ("cpu", "vector"),
    [
        ("x86-64-v4", "<16 x float>"),
        ("x86-64-v3", "<8 x float>"),
        ("x86-64-v2", "<4 x float>"),
        ("neoverse-n1", "<4 x float>"),
    ],
)
def test_vectors_are_as_wide_as_the_machine(cpu, vector):
    text = print_ir(examples.add(4096), preset(cpu))
    assert f"fadd {vector}" in text
    assert set(re.findall(r"fadd (<\d+ x float>)", text)) == {vector}


def test_this_machine_is_described_fully():
    assert host().vector_bits in (128, 256, 512)
    assert f'"target-cpu"="{host().cpu}"' in print_ir(examples.add(10))


def test_a_broadcast_load_is_hoisted_out_of_the_loop():
    value = load("f32", Access(0, 0, (1,))) * load("f32", Access(1, 0, (0,)))
    text = print_ir(examples.elementwise("scale", value, (4096,), ("f32", "f32")), preset("x86-64-v3"))
    before, _, loop = text.partition("head0:")
    assert "load float, ptr %b1" in before and "%b1" not in loop


def test_powers_of_a_softmax_are_computed_once_for_both_stages():
    text = print_ir(examples.softmax(64, 512), preset("x86-64-v4"))
    assert "%b2 = alloca [512 x float]" in text
    single = print_ir(
        examples.elementwise("exp", load("f32", Access(0, 0, (1,))).exp(), (512,), ("f32",)), preset("x86-64-v4")
    )
    vectors = text.count("fdiv <16 x float>")
    assert vectors and text.count("@llvm.fma.v16f32(<16 x float> %") == vectors * _fmas_of_one_vector(single)


def _fmas_of_one_vector(text):
    return text.count("@llvm.fma.v16f32(<16 x float> %") // text.count("store <16 x float>")


def test_a_value_that_is_used_often_is_printed_once():
    x = load("f32", Access(0, 0, (1,)))
    for _ in range(40):
        x = x * x + x
    text = print_ir(examples.elementwise("shared", x, (16,), ("f32",)), preset("x86-64-v4"))
    assert text.count("fmul") == 40
    assert len(text) < 40_000


def test_nothing_is_left_to_fast_math():
    for kernel in KERNELS:
        text = print_ir(kernel, preset("x86-64-v4"))
        for flag in ("fast", "contract", "reassoc", "nnan", "ninf", "nsz", "arcp", "afn"):
            assert not re.search(rf"\b{flag}\b", text)
