"""``threading.get_ident()``: the answer holds for one thread, and the question breaks no graph."""

import threading

import torch

import burnish
from burnish import events

from .harness import program


@program(breaks=0)
def test_a_stack_for_each_thread():
    stacks = {}

    def fn(x):
        stacks.setdefault(threading.get_ident(), []).append(x.shape[0])
        return x * len(stacks[threading.get_ident()])

    return fn, [(torch.ones(2),)] * 4, stacks


def answers(fn, count):
    """Of threads that are alive at the same time."""
    found, barrier = [], threading.Barrier(count)

    def run():
        barrier.wait(60)
        for _ in range(3):
            value, identity = fn(torch.ones(2))
            found.append((value.tolist(), identity == threading.get_ident()))
        barrier.wait(60)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_each_thread_gets_its_own():
    compiled = burnish.compile(lambda x: (x + 1, threading.get_ident()), backend="eager")
    assert answers(compiled, 12) == [([2.0, 2.0], True)] * 36


def test_many_threads_do_not_make_a_program_run_eagerly():
    told = []
    stop = events.subscribe(lambda event: told.append(event.data.get("fallback")))
    answers(burnish.compile(lambda x: (x + 1, threading.get_ident()), backend="eager"), 12)
    stop()
    assert "limit" not in told
