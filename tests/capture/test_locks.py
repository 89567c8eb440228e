"""Locks that the program makes, and those it is given."""

import threading
import time

import torch

from .harness import program


@program(breaks=0)
def test_a_lock_made_here_is_taken_and_released():
    def fn(x):
        lock, again = threading.Lock(), threading.RLock()
        with lock:
            held = lock.locked(), lock.acquire(False)
            y = x * 2
        with again, again:
            y = y + 1
        event = threading.Event()
        event.set()
        return y, held, lock.locked(), event.is_set()

    return fn, lambda i: (torch.ones(2),)


@program(breaks=0)
def test_a_lock_that_is_held_leaves_the_graph():
    def fn(x):
        lock = threading.Lock()
        lock.acquire()
        return x * 2, lock

    def read(x):
        y, lock = fn(x)
        return y, lock.locked()

    return read, lambda i: (torch.ones(2),)


@program
def test_a_lock_from_outside():
    lock = threading.Lock()

    def fn(x):
        with lock:
            y = x * 2
        return y + 1, lock.locked()

    return fn, lambda i: (torch.ones(2),)


@program
def test_a_lock_that_is_held_across_a_break():
    def fn(x):
        lock, again = threading.Lock(), threading.RLock()
        with lock, again, again:
            y = x + 1 if x.sum() > 0 else x - 1
            held = lock.locked(), lock.acquire(False)
        return y, held, lock.locked()

    return fn, lambda i: (torch.ones(2),)


@program
def test_waiting_for_an_event_takes_its_time():
    def fn(x):
        start = time.monotonic()
        event = threading.Event()
        return x * 2, event.wait(0.02), time.monotonic() - start >= 0.02

    return fn, lambda i: (torch.ones(2),)
