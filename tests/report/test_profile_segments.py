"""The profiler: its counts and distinctions, and that it leaves nothing behind."""

import re

import pytest
import torch
from torch import nn

import burnish
from burnish.report import profile_segments
from burnish.runtime.program.program import LinkedProgram

from ..runtime.concurrent_threads import at_once


def chain(x):
    return torch.sin(x) * 2 + torch.cos(x)


def broken(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    return torch.tanh(y)


def warmed(fn, *inputs):
    compiled = burnish.compile(fn)
    for _ in range(3):
        compiled(*inputs)
    return compiled


def test_calls_and_times_of_a_segment():
    x = torch.randn(64, 64)
    compiled = warmed(chain, x)
    with burnish.profile() as p:
        for _ in range(5):
            compiled(x)
    (record,) = p.segments
    assert record.calls == 5 and record.misses == 0 and record.name.endswith("in chain")
    assert record.kernels > 0 and record.guards > 0 and record.python > 0
    assert record.library == record.backward == 0
    assert record.seconds == record.guards + record.kernels + record.library + record.python
    assert record.bytes == 5 * 2 * x.nbytes


def test_results_are_the_same_under_the_profiler():
    x = torch.randn(8)
    compiled = warmed(broken, x)
    with burnish.profile():
        torch.testing.assert_close(compiled(x), broken(x))
        torch.testing.assert_close(compiled(-x), broken(-x))


def test_library_calls_are_distinguished_from_kernels():
    x = torch.randn(5, 5)
    compiled = warmed(lambda x: torch.sort(torch.sin(x) + 1, -1)[0] * 2, x)
    with burnish.profile() as p:
        compiled(x)
    (record,) = p.segments
    assert record.library > 0 and record.kernels > 0


def test_a_graph_that_runs_eagerly_is_all_library():
    x = torch.randn(5)
    compiled = burnish.compile(chain, backend="eager")
    compiled(x)
    with burnish.profile() as p:
        compiled(x)
    (record,) = p.segments
    assert record.library > 0 and record.kernels == 0


def test_each_segment_after_a_break_is_counted_separately():
    x = torch.ones(4)
    compiled = warmed(broken, x)
    compiled(-x)
    with burnish.profile() as p:
        for k in range(6):
            compiled(x if k % 3 else -x)
    assert sorted(record.calls for record in p.segments) == [2, 4, 6]
    assert len({record.name for record in p.segments}) == 3


def test_segments_made_while_it_is_on_are_counted_from_their_second_call():
    compiled = burnish.compile(chain)
    x = torch.randn(8)
    with burnish.profile() as p:
        for _ in range(4):
            compiled(x)
    (record,) = p.segments
    assert record.calls == 3 and record.kernels > 0


def test_guards_that_do_not_hold_are_counted():
    def fn(x, flag):
        return x + 1 if flag else x - 1

    x = torch.randn(8)
    compiled = burnish.compile(fn)
    for flag in (True, False, True, False):
        compiled(x, flag)
    with burnish.profile() as p:
        for _ in range(3):
            compiled(x, True)
    met = {record.calls: record.misses for record in p.segments}
    assert met == {3: 0, 0: 2}  # the one for False, which never ran: it came after the one for True at first
    assert "guards did not hold 2 times" in str(p).splitlines()[0]


def test_backward_is_counted_with_the_segment_that_made_it():
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2))
    x = torch.randn(4, 8)
    compiled = burnish.compile(model)
    for _ in range(3):
        compiled(x).sum().backward()
    with burnish.profile() as p:
        for _ in range(2):
            compiled(x).sum().backward()
    (record,) = p.segments
    assert record.calls == 2 and record.backward > 0
    assert record.seconds > record.backward


def test_nothing_is_left_behind():
    x = torch.randn(8)
    compiled = warmed(chain, x)
    (segment,) = compiled.__burnish_program__.entry.segments
    programs = [program for program, _ in profile_segments.programs_in(segment.graph)]
    assert programs and all(isinstance(program, LinkedProgram) for program in programs)
    before = segment.check, segment.graph, segment.finish, *(program.run for program in programs)
    with burnish.profile():
        compiled(x)
        assert segment.check is not before[0]
    assert (segment.check, segment.graph, segment.finish, *(program.run for program in programs)) == before


def test_profiles_inside_one_another():
    x = torch.randn(8)
    compiled = warmed(chain, x)
    with burnish.profile() as outer:
        compiled(x)
        with burnish.profile() as inner:
            compiled(x)
        compiled(x)
    assert outer.segments[0].calls == 3 and inner.segments[0].calls == 1


def test_an_error_inside_ends_it():
    x = torch.randn(8)
    compiled = warmed(chain, x)
    (segment,) = compiled.__burnish_program__.entry.segments
    check = segment.check
    with pytest.raises(KeyError), burnish.profile():
        raise KeyError
    assert segment.check is check


def test_threads_are_counted_together():
    x = torch.randn(8, 8)
    compiled = warmed(chain, x)

    def work():
        for _ in range(25):
            compiled(x)

    with burnish.profile() as p:
        at_once(*[work] * 4)
    assert p.segments[0].calls == 100 and p.segments[0].bytes == 100 * 2 * x.nbytes


def test_the_table_names_places_and_shares():
    x = torch.randn(64, 64)
    compiled = warmed(broken, x)
    with burnish.profile() as p:
        compiled(x)
    head, titles, *rows = str(p).splitlines()
    assert head.startswith("2 calls of 2 segments, ")
    assert titles.split() == "segment calls each guards kernels library Python in and out of copying".split()
    for row in rows:
        assert "in broken" in row
        assert sum(map(float, re.findall(r"([\d.]+)%", row))) == pytest.approx(100, abs=0.3)


def test_a_profile_of_nothing_says_so():
    with burnish.profile() as p:
        chain(torch.ones(2))
    assert p.segments == [] and str(p) == "No compiled code ran. A first call compiles, and is not counted."


def test_bytes_of_one_tensor_are_counted_once():
    x = torch.zeros(10)
    assert profile_segments.bytes_of((x, [x, x[:5]], 3)) == 40 + 20


def test_profiles_that_overlap_leave_nothing_behind():
    x = torch.randn(8)
    compiled = warmed(chain, x)
    (segment,) = compiled.__burnish_program__.entry.segments
    (program,) = [program for program, _ in profile_segments.programs_in(segment.graph)]
    before = segment.check, segment.graph, segment.finish, program.run
    first, second = burnish.profile(), burnish.profile()
    first.__enter__()
    compiled(x)
    second.__enter__()
    compiled(x)
    first.__exit__(None, None, None)  # before the one that began after it
    compiled(x)
    second.__exit__(None, None, None)
    assert [(len(p.segments), p.segments[0].calls) for p in (first, second)] == [(1, 2), (1, 2)]
    assert (segment.check, segment.graph, segment.finish, program.run) == before
