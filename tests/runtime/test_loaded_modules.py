"""A module that another thread has begun to import is not taken from `sys.modules`."""

import ast
import importlib
import sys
import threading
from pathlib import Path

from burnish.compiler import background_imports, provide_guard_watch
from burnish.concurrency import loaded_modules as module
from burnish.concurrency.loaded_modules import loaded

SOURCE = Path(module.__file__).parent


def importing(folder, monkeypatch, name):
    """Another thread, in the middle of importing a module of this name; how to let it go on."""
    (folder / f"{name}.py").write_text("import test_loaded_gate\ntest_loaded_gate.wait()\ndone = True\n")
    monkeypatch.syspath_prepend(str(folder))
    begun, may_end = threading.Event(), threading.Event()
    gate = type(sys)("test_loaded_gate")
    gate.wait = lambda: (begun.set(), may_end.wait(60))
    monkeypatch.setitem(sys.modules, "test_loaded_gate", gate)
    thread = threading.Thread(target=importlib.import_module, args=(name,))
    thread.start()
    assert begun.wait(60)

    def go_on():
        may_end.set()
        thread.join(60)

    return go_on


def test_module_is_loaded_when_its_import_has_ended(tmp_path, monkeypatch):
    name = "burnish_test_slow_module"
    assert loaded(name) is None
    go_on = importing(tmp_path, monkeypatch, name)
    try:
        assert name in sys.modules and loaded(name) is None
    finally:
        go_on()
    assert loaded(name).done
    del sys.modules[name]


def test_watches_wait_for_the_key_of_graphs_to_be_imported(tmp_path, monkeypatch):
    """It has no attribute `compiler_identity` yet."""
    name = "burnish_test_graph_key"
    go_on = importing(tmp_path, monkeypatch, name)
    monkeypatch.setitem(sys.modules, "burnish.compiler.graph_cache_key", sys.modules[name])
    monkeypatch.setenv("BURNISH_CACHE_DIR", str(tmp_path))
    try:
        assert provide_guard_watch.place() is None
        provide_guard_watch.is_at_hand()
    finally:
        go_on()
        sys.modules.pop(name)


def test_imports_ahead_begin_in_one_thread(monkeypatch):
    started = []
    monkeypatch.setattr(background_imports, "TO_COMPILE", ("burnish_test_not_loaded",))
    monkeypatch.setattr(background_imports, "_begun", {})
    monkeypatch.setattr(background_imports.threading.Thread, "start", lambda thread: started.append(thread))
    monkeypatch.setattr(background_imports.os, "register_at_fork", lambda **functions: None)
    for _ in range(3):
        background_imports.begin.cache_clear()
        background_imports.begin()
    assert len(started) == 1


def test_attributes_are_not_read_straight_from_sys_modules():
    """A module found there may be only partly imported: ask `loaded`, or read it with a default."""
    found, from_there = [], ("sys.modules[", "sys.modules.get(")
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).startswith(from_there):
                found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert found == []
