"""Memory held by compiled functions: constant after many calls, none after they are deleted."""

import gc
import linecache
import weakref

import torch
import torch.utils.checkpoint

import burnish


def count_objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def test_ten_thousand_calls_leave_nothing_behind():
    layer = torch.nn.Linear(4, 4)

    def fn(x, scale):
        if x.sum() > 0:
            return layer(x) * scale, [x]
        return x - scale, []

    compiled = burnish.compile(fn, backend="eager")
    x, scale = torch.ones(2, 4), 2.0
    with torch.no_grad():
        for i in range(20):
            compiled(x if i % 2 else -x, scale)
        before = count_objects()
        for i in range(10_000):
            compiled(x if i % 2 else -x, scale)
        assert count_objects() - before < 50


def test_dropped_compiled_functions_are_freed():
    programs = []

    def one() -> None:
        state = {"scale": torch.ones(3)}

        def fn(x):
            y = x * state["scale"]
            return y if y.sum() > 0 else -y

        compiled = burnish.compile(fn, backend="eager")
        compiled(torch.ones(3))
        compiled(-torch.ones(3))
        programs.append(weakref.ref(compiled.__burnish_program__))

    for _ in range(10):
        one()
    before = count_objects()
    for _ in range(1_000):
        one()
    after = count_objects()
    alive = sum(ref() is not None for ref in programs)
    assert alive == 0
    # A thousand functions made a thousand weak references in our list, and the decoder may keep some code objects.
    assert after - before < 1_000 + 2_000


def test_inputs_and_results_are_not_kept_alive():
    def fn(x):
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        return y

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        x = torch.ones(3)
        y = compiled(x)
        refs = weakref.ref(x), weakref.ref(y)
        del x, y
        gc.collect()
        assert [r() for r in refs] == [None, None]


def test_a_module_passed_as_argument_is_not_kept_alive():
    def fn(module, x):
        return module(x).relu()

    compiled = burnish.compile(fn, backend="eager")
    for _ in range(3):
        module = torch.nn.Linear(3, 3)
        compiled(module, torch.ones(3))
        ref = weakref.ref(module)
        del module
        gc.collect()
        assert ref() is None


def test_code_that_torch_writes_for_graphs_goes_with_them():
    """torch.fx keeps the text of each for ever: where functions are compiled again and again, a process would grow."""

    def one() -> None:
        module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
        compiled = burnish.compile(module)
        for rows in (2, 3, 5):
            torch.utils.checkpoint.checkpoint(compiled, torch.ones(rows, 4), use_reentrant=False).sum().backward()
            compiled(torch.ones(rows, 4)).sum().backward()
        burnish.compile(lambda x, n: x * n, backend="eager")(torch.ones(3), 2)

    def texts() -> int:
        gc.collect()
        return len(torch.fx.graph_module._loader.eval_cache) + sum(
            key.startswith("<eval_with_key>") for key in linecache.cache
        )

    one()
    before = texts()
    for _ in range(4):
        one()
    assert texts() == before
