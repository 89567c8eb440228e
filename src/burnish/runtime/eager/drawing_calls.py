"""Calls of a graph that may draw random numbers by a rule of ours: compiled code draws others than eager does.

draws_nothing("dropout", (x, 0.1), {"training": False})        True
may_draw(node)                                                 whether a node of a torch graph is such a call
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import Node

from ...concurrency.first_value_cache import once

RULED_PARTS = tuple(
    "rand dropout bernoulli uniform normal attention lstm gru rnn lowrank fractional orthogonal".split()
)
"""Every torch function that may come down to an operator with a rule in `ops.random_numbers` has one in its name."""


@once
def has_name_of_drawing(name: str) -> bool:
    return any(part in name for part in RULED_PARTS)


def draws_nothing(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call that is common in models is switched off: then it runs unchanged. Intercepted, a recurrent layer
    without dropout takes several times as long, and compiled code would win its contest against that."""
    if name in NEVER_DRAW:
        return True
    if name == "scaled_dot_product_attention":
        return is_zero(args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0))
    if name in RECURRENT:  # lstm(…, has_biases, layers, dropout, train, …)
        found = next((k for k, x in enumerate(args) if isinstance(x, bool)), len(args))
        return len(args) > found + 3 and (is_zero(args[found + 2]) or args[found + 3] is False)
    at = DROPOUTS.get(name, (1, 2, "p") if "dropout" in name else None)
    if at is None:
        return False
    chance = args[at[0]] if len(args) > at[0] else kwargs.get(at[2])
    training = args[at[1]] if len(args) > at[1] else kwargs.get("training", kwargs.get("train", True))
    return training is False or is_zero(chance) and name not in DRAW_A_MASK


NEVER_DRAW = frozenset("flex_attention normalize lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell".split())
"""Names like those of functions that draw. A score function of `flex_attention` that draws is not captured."""

RECURRENT = frozenset(("lstm", "gru", "rnn_tanh", "rnn_relu"))

DROPOUTS = {"multi_head_attention_forward": (10, 13, "dropout_p")}
"""The positions of the chance and of the switch, and the name of the chance, where they differ from `dropout`'s."""

DRAW_A_MASK = frozenset(("native_dropout", "_fused_dropout"))
"""Draw whatever the chance."""


def is_zero(chance: Any) -> bool:
    return type(chance) in (int, float) and chance == 0


def may_draw(node: Node) -> bool:
    if node.op == "call_method":
        name = str(node.target)
    elif node.op == "call_function":
        name = getattr(node.target, "__name__", "")
    else:
        return False
    return has_name_of_drawing(name) and not draws_nothing(name, node.args, node.kwargs)
