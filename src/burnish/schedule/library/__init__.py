"""Library calls: what is asked for (specs), the ways to compute it (candidates), and which is the fastest (choose).

    spec = LinearSpec(x, weight, bias, activation=Activation("gelu", algorithm="none"), is_frozen=True)
    chosen = choose(spec, seconds=0.005).candidate
    prepared = chosen.prepare(weight, bias) if chosen.prepare else ()     # once
    chosen.run(x, *prepared)               # every call: the tensors that `chosen.operands` names, in that order

`why_not` says why a plain call plus a kernel of our own has to do the epilogue.
"""

from .candidate import Call, Candidate, Operand
from .choose import Choice, Memory, candidates, choose, choose_thoroughly, is_read_once, memory, tuned
from .convolution import in_channels_last
from .convolution_backward import ConvBackwardSpec
from .convolution_backward import seconds_of as gradient_seconds
from .onednn import why_not_fused as why_not
from .own_attention import NAME as OWN_ATTENTION
from .own_attention import own_attention
from .own_calls import NAME as OWN
from .own_calls import own_candidate
from .recurrent import NAME as OWN_RECURRENT
from .specs import Activation, AttentionSpec, ConvSpec, LinearSpec, MatmulSpec, RecurrentSpec, Spec

__all__ = [
    "OWN", "OWN_ATTENTION", "OWN_RECURRENT", "Activation", "AttentionSpec", "Call", "Candidate", "Choice",
    "ConvBackwardSpec", "ConvSpec", "LinearSpec", "MatmulSpec", "Memory", "Operand", "RecurrentSpec", "Spec",
    "candidates", "choose", "choose_thoroughly", "gradient_seconds", "in_channels_last", "is_read_once", "memory",
    "own_attention", "own_candidate", "tuned", "why_not",
]
