"""LLVM alias scopes of a kernel's buffers: a stored buffer aliases no other."""

import re

from burnish.codegen.llvm.print_kernel_module import alias_scopes


def lists(buffers, stored):
    """By buffer: the scopes an access is in, and those it shares nothing with."""
    found = {
        int(n): set(map(int, re.findall(r"\d+", inner)))
        for n, inner in re.findall(r"^!(\d+) = !\{(.*)\}$", "\n".join(alias_scopes(buffers, stored)), re.M)
    }
    return [(found[2 * n + 1], found[2 * n + 2]) for n in range(buffers)]


def test_a_stored_buffer_aliases_no_other():
    for stored in ({0}, {1, 3}, {0, 1, 2, 3, 4}):
        seen = lists(5, stored)
        for a in range(5):
            for b in stored - {a}:
                assert seen[a][0] <= seen[b][1] and seen[b][0] <= seen[a][1]
                assert not seen[b][0] & seen[b][1]


def test_of_many_buffers_that_are_only_read_there_is_little_to_say():
    assert sum(map(len, alias_scopes(400, [0]))) < 3 * sum(map(len, alias_scopes(200, [0])))
