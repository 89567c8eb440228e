"""Library calls: what is computed (specs), the ways to compute it (candidates), and the fastest of them (choice).

    spec = LinearSpec(x, weight, bias, activation=Activation("gelu", algorithm="none"), is_frozen=True)
    chosen = choose(spec, seconds=0.005).candidate
    prepared = chosen.prepare(weight, bias) if chosen.prepare else ()     # once
    chosen.run(x, *prepared)               # every call: the tensors that `chosen.operands` names, in that order

`why_not` says why the epilogue needs a kernel of our own after a plain call.
"""

from .autotune_candidates import Choice, Memory, candidates, choose, choose_thoroughly, is_read_once, memory, tuned
from .call_candidates.convolution import in_channels_last
from .call_candidates.convolution_backward import ConvBackwardSpec
from .call_candidates.convolution_backward import seconds_of as gradient_seconds
from .call_candidates.onednn import why_not_fused as why_not
from .call_candidates.recurrent import NAME as OWN_RECURRENT
from .call_specs import Activation, AttentionSpec, ConvSpec, LinearSpec, MatmulSpec, RecurrentSpec, Spec
from .candidate import Call, Candidate, Operand
from .own_kernels.attention_tiling import NAME as OWN_ATTENTION
from .own_kernels.attention_tiling import own_attention
from .own_kernels.own_kernel_candidates import NAME as OWN
from .own_kernels.own_kernel_candidates import own_candidate

__all__ = [
    "OWN",
    "OWN_ATTENTION",
    "OWN_RECURRENT",
    "Activation",
    "AttentionSpec",
    "Call",
    "Candidate",
    "Choice",
    "ConvBackwardSpec",
    "ConvSpec",
    "LinearSpec",
    "MatmulSpec",
    "Memory",
    "Operand",
    "RecurrentSpec",
    "Spec",
    "candidates",
    "choose",
    "choose_thoroughly",
    "gradient_seconds",
    "in_channels_last",
    "is_read_once",
    "memory",
    "own_attention",
    "own_candidate",
    "tuned",
    "why_not",
]
