"""Questions about the clock and the time zone, which have another answer in each call."""

import datetime
import os
import time

import pytest
import torch

import burnish


class Stamp(datetime.datetime):
    """A date of the program's own."""


CLOCKS = {
    "now": datetime.datetime.now,
    "now in a zone": lambda: datetime.datetime.now(datetime.timezone.utc),
    "today": lambda: datetime.datetime.today(),
    "now of a subclass": lambda: Stamp.now(),
    "time": lambda: time.time(),
    "perf_counter": lambda: time.perf_counter(),
}


@pytest.mark.parametrize("clock", CLOCKS.values(), ids=CLOCKS)
def test_each_call_reads_the_clock(clock):
    compiled = burnish.compile(lambda x: (x + 1, clock()))
    seen = []
    for _ in range(4):
        seen.append(compiled(torch.ones(2))[1])
        time.sleep(0.001)
    assert len(set(seen)) == 4 and seen == sorted(seen)


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone cannot be changed here")
def test_local_time_follows_the_zone(monkeypatch):
    compiled = burnish.compile(lambda x: (x + 1, datetime.datetime.fromtimestamp(3600 * 24 * 365).hour))
    try:
        hours = []
        for zone in ("UTC", "UTC", "UTC-5", "UTC+3", "UTC"):
            monkeypatch.setitem(os.environ, "TZ", zone)
            time.tzset()
            hours.append(compiled(torch.ones(2))[1])
        assert hours == [0, 0, 5, 21, 0]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_class_methods_that_only_compute_are_constants():
    def fn(x):
        day = datetime.date.fromordinal(735000) - datetime.timedelta(days=2)
        return x + int.from_bytes(b"\x02\x01", "little") + day.day + float.fromhex("0x1p-1")

    report = burnish.explain(fn)(torch.ones(2))
    assert report.graph_break_count == 0
    torch.testing.assert_close(burnish.compile(fn)(torch.ones(2)), fn(torch.ones(2)))
