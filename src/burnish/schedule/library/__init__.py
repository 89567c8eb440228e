"""Library calls: the operation (spec), the ways to compute it (candidates), and the fastest of them (choice).

    spec = LinearSpec(x, weight, bias, activation=Activation("gelu", algorithm="none"), is_frozen=True)   # call_specs
    chosen = choose(spec, seconds=0.005).candidate                                              # autotune_library_calls
    prepared = chosen.prepare(weight, bias) if chosen.prepare else ()     # once
    chosen.run(x, *prepared)               # every call: the tensors that `chosen.operands` names, in that order

`call_candidates.onednn_limits.why_not_fused` says why the epilogue needs a kernel of our own after a plain call.
"""
