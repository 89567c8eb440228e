"""Blocks of the program around a break that is an error: they are left as by an exception, and nothing behind runs."""

import contextlib
import gc
import time
import weakref

import pytest
import torch

import burnish


def test_blocks_are_left_when_a_break_is_an_error():
    left = []

    class Block:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, traceback):
            left.append("with")
            return issubclass(kind, Exception)

    def generate():
        try:
            yield 1
            time.time()
        finally:
            left.append("generator")

    def fn(x):
        try:
            with Block(), torch.no_grad():
                try:
                    for _ in generate():
                        left.append(torch.is_grad_enabled())
                except Exception:
                    left.append("except")
        finally:
            left.append(torch.is_grad_enabled())
        return x

    compiled = burnish.compile(fn, backend="eager", fullgraph=True)
    for _ in range(3):
        left.clear()
        with pytest.raises(burnish.errors.Unsupported, match="B201"):
            compiled(torch.ones(2))
        assert left == [False, "generator", "with", True]
        assert torch.is_grad_enabled()


def test_a_block_that_fails_after_a_break_that_is_an_error():
    def fn(x):
        while True:
            try:
                time.time()
            except BaseException:
                return x.no_such_attribute

    with pytest.raises(burnish.errors.Unsupported, match="B201") as caught:
        burnish.compile(fn, backend="eager", fullgraph=True)(torch.ones(2))
    assert isinstance(caught.value.__context__, AttributeError)


def test_blocks_that_stop_every_exception_end_with_a_break_that_is_an_error():
    log, alive = [], []

    def swallow(x):
        held = x * 2
        alive.append(weakref.ref(held))
        for i in range(5):
            with contextlib.suppress(ValueError), torch.no_grad():
                try:
                    time.time()
                except BaseException as error:
                    log.append((i, torch.is_grad_enabled()))
                    raise ValueError from error
                finally:
                    try:
                        int("x")
                    except ValueError:
                        log.append("inner")
                    log.append("finally")
            log.append("behind")
        return held

    def call_again(x):
        try:
            time.time()
        except BaseException:
            return compiled(x)
        return x + 1

    gc.disable()
    try:
        for fn in (swallow, call_again):
            compiled = burnish.compile(fn, backend="eager", fullgraph=True)
            for _ in range(3):
                log.clear(), alive.clear()
                with pytest.raises(burnish.errors.Unsupported, match="B201"):
                    compiled(torch.ones(2))
                assert log == ([(0, False), "inner", "finally"] if fn is swallow else [])
                assert not any(ref() is not None for ref in alive)
    finally:
        gc.enable()
