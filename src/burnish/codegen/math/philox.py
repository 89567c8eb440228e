"""Philox4x32-10, a counter-based random number generator: random bits for any element in any order.

    random_bits(seed, counter)    64 bits in i64, practically independent for any two pairs of seed and counter

There is no state. Every element draws for itself, in any lane and thread, and rematerialization draws the same bits
again. (J. K. Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011.)

Words of 32 bits are held in i64, because of their products. Their upper halves are arbitrary: operands of a product are
cut to 32 bits first, which costs nothing on machines that multiply halves.
"""

from __future__ import annotations

from ...ops.scalar_ir import Scalar, binary, const
from .float_bits import shift_left, shift_right

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
"""Added to the two words of the key in each round: the golden ratio, and sqrt(3) - 1."""

WORD = 0xFFFFFFFF


def random_bits(seed: Scalar, counter: Scalar) -> Scalar:
    """The first two words of a block whose counter has a zero upper half. The first word is the low half."""
    keys = (seed, shift_right(seed, 32))
    words = [counter, shift_right(counter, 32), const(0, "i64"), const(0, "i64")]
    for turn in range(ROUNDS):
        first, second = (key + const(turn * step & WORD, "i64") for key, step in zip(keys, WEYL, strict=True))
        low = low_word(words[0]) * const(MULTIPLIERS[0], "i64")
        high = low_word(words[2]) * const(MULTIPLIERS[1], "i64")
        words = [
            mixed(shift_right(high, 32), words[1], first),
            high,
            mixed(shift_right(low, 32), words[3], second),
            low,
        ]
    return low_word(words[0]) | shift_left(words[1], 32)


def low_word(x: Scalar) -> Scalar:
    return x & const(WORD, "i64")


def mixed(x: Scalar, y: Scalar, z: Scalar) -> Scalar:
    return binary("xor", binary("xor", x, z), y)
