"""``threading.local``: each thread's own values are read, written and guarded."""

import threading

import torch

import burnish

from .harness import program


@program(breaks=0)
def test_values_of_a_thread_local_are_not_constants():
    here = threading.local()
    here.factor, here.shift = 1, torch.ones(2)

    def fn(x, factor):
        y = x * here.factor + here.shift
        here.factor = factor
        here.last = y
        del here.last
        return y

    return fn, [(torch.ones(2), 2), (torch.ones(2), 3), (torch.ones(2), 3), (torch.ones(2), 1)], here.__dict__


def test_a_thread_meets_its_own_values():
    class Numbers(threading.local):
        def __init__(self):
            self.count = 0

    numbers = Numbers()

    def fn(x):
        numbers.count += 1
        return x + numbers.count

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    x = torch.zeros(1)
    assert [compiled(x).item() for _ in range(3)] == [1, 2, 3]
    found = []
    thread = threading.Thread(target=lambda: found.extend([compiled(x).item() for _ in range(2)]))
    thread.start()
    thread.join()
    assert found == [1, 2]
    assert numbers.count == 3
