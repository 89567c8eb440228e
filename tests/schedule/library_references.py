"""Expected results of library calls: the float64 result, and the allowed error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

import burnish.targets.cpu  # noqa: F401  (registers our own kernels)
from burnish.schedule.library.autotune_library_calls import candidates
from burnish.schedule.library.call_specs import Activation, AttentionSpec, ConvSpec, LinearSpec, MatmulSpec, Spec
from burnish.schedule.library.candidate import Candidate, Operand, bound
from burnish.schedule.library.measure_candidates import bind, random_tensor, why_not_as_said
from burnish.tensors.tensor_types import TensorType

from ..seeding import seed


def f32(*shape: int) -> TensorType:
    return TensorType.contiguous(shape, torch.float32)


def bf16(*shape: int) -> TensorType:
    return TensorType.contiguous(shape, torch.bfloat16)


def strided(shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype = torch.float32) -> TensorType:
    return TensorType(shape, stride, dtype)


ACTIVATIONS = [
    Activation("relu"),
    Activation("gelu", algorithm="none"),
    Activation("gelu", algorithm="tanh"),
    Activation("silu"),
    Activation("sigmoid"),
    Activation("tanh"),
    Activation("hardswish"),
    Activation("hardsigmoid"),
    Activation("hardtanh", (-1.0, 1.0)),
    Activation("hardtanh", (0.0, 6.0)),
    Activation("leaky_relu", (0.1,)),
]


def reference(spec: Spec, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The exact result, near enough: the spec's own formula in float64."""
    values = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in inputs.items()}
    match spec:
        case LinearSpec():
            y = values["x"] @ values["weight"].T
            if spec.bias:
                y = y + values["bias"]
        case ConvSpec():
            y = torch.ops.aten.convolution(
                values["x"],
                values["weight"],
                values.get("bias"),
                spec.stride,
                spec.padding,
                spec.dilation,
                spec.transposed,
                spec.output_padding,
                spec.groups,
            )
        case MatmulSpec():
            return values["a"] @ values["b"]
        case AttentionSpec():
            return _attention(spec, **values)
    if spec.residual:
        y = y + values["residual"]
    return y if spec.activation is None else spec.activation(y)


def _attention(
    spec: AttentionSpec, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    scores = q @ k.transpose(-1, -2) * (spec.scale if spec.scale is not None else q.shape[-1] ** -0.5)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype is torch.bool else scores + mask
    if spec.is_causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
    return torch.nan_to_num(torch.softmax(scores, -1)) @ v


def make_inputs(spec: Spec) -> dict[str, torch.Tensor]:
    seed(0)
    return {name: random_tensor(type) for name, type in spec.inputs.items()}


def check_all(spec: Spec, inputs: Mapping[str, torch.Tensor] | None = None) -> list[str]:
    """All candidates of a spec, in each way they run: right, of the type they say, and without writing into inputs.
    Their names."""
    inputs = make_inputs(spec) if inputs is None else inputs
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    exact = reference(spec, inputs)
    offered = candidates(spec)
    with torch.no_grad():
        eager = error(offered[0].run(*given(offered[0], inputs)), exact)
        for candidate in offered:
            for way, result in results(candidate, inputs):
                where = f"{spec}: {candidate.name}, {way}"
                assert why_not_as_said(candidate, result) is None, f"{where} {why_not_as_said(candidate, result)}"
                assert error(result, exact) <= 2 * max(eager, typical(spec, exact, result.dtype)), where
    for name, tensor in inputs.items():
        assert torch.equal(tensor, before[name]), f"{spec}: {name} was written to"
    names = [candidate.name for candidate in offered]
    assert len(set(names)) == len(names)
    return names


def given(candidate: Candidate, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """The operands as a plan gives them: rows that the caller must copy are contiguous."""
    return bind(candidate, {name: x.contiguous() if name in candidate.rows else x for name, x in inputs.items()})


def typical(spec: Spec, exact: torch.Tensor, dtype: torch.dtype) -> float:
    """The error to expect of n terms that are added one after the other: the partial sums grow as sqrt(k), so that the
    roundings add up to sqrt(n / 2) of the last one. In a result of few elements eager's may be smaller by luck."""
    terms = max(spec.flops // max(2 * exact.numel(), 1), 1)
    return rounding(exact, dtype) * max(1.0, (terms / 2) ** 0.5)


def results(candidate: Candidate, inputs: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """A candidate's results when it is run, run into a tensor, and called from its description."""
    yield "run", candidate.run(*given(candidate, inputs))
    if candidate.run_into is not None:
        out = unset(candidate.output)
        assert candidate.run_into(out, *given(candidate, inputs)) is out
        yield "run_into", out
    if candidate.steps is not None and not candidate.further:
        out = unset(candidate.output)
        bound(candidate, [out], given(candidate, inputs))()
        yield "natively", out
    if candidate.call is not None:
        operands = given(candidate, inputs)
        yield "call", perform(candidate, dict(zip(candidate.operands, operands, strict=True)))


def unset(type: TensorType) -> torch.Tensor:
    """Memory whose old contents would be seen."""
    return torch.empty_strided(type.shape, type.stride, dtype=type.dtype).fill_(float("nan"))


def perform(candidate: Candidate, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """Do what a candidate's description says, as generated code would."""
    call, output = candidate.call, candidate.output
    assert call is not None

    def see(value: object) -> object:
        if not isinstance(value, Operand):
            return value
        tensor = tensors[value.name]
        return tensor if value.shape is None else tensor.as_strided(value.shape, value.stride)

    result = call.operator(*map(see, call.arguments), **{name: see(value) for name, value in call.keywords})
    result = result if call.which is None else result[call.which]
    return result if call.result is None else result.as_strided(output.shape, output.stride)


def error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """Root of the mean squared difference."""
    return (result.double() - exact).square().mean().sqrt().item() if exact.numel() else 0.0


def rounding(exact: torch.Tensor, dtype: torch.dtype) -> float:
    """The error of an exact result that is rounded once: no result can be required to be better, and eager may be by
    luck. The result taken for exact is itself a float64 rounded in this way."""
    if dtype is torch.float64:
        return torch.finfo(dtype).eps / 2 * error(exact, torch.zeros_like(exact))
    return error(exact.to(dtype), exact)
