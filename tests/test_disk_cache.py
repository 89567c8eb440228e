"""The disk cache: read back by later processes; damaged files and full disks cause no errors."""

import contextlib
import errno
import os
import signal
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import burnish
from burnish import settings
from burnish.cli import cache_archive, command_line
from burnish.codegen.llvm import compile_to_machine_code
from burnish.compiler import compile_graph
from burnish.runtime.disk import disk_cache
from burnish.runtime.disk.compiler_identity import source_digest
from burnish.runtime.disk.disk_cache import MAGIC, DiskCache
from burnish.schedule.library.autotune_library_calls import Measurements, choose, key_of, memory
from burnish.schedule.library.call_specs import LinearSpec
from burnish.targets import cpu
from burnish.tensors.tensor_types import TensorType

from .forked_programs import run_program


@pytest.fixture
def shelf(tmp_path):
    return DiskCache(tmp_path / "cache")


def test_entries_are_read_back_by_kind_and_key(shelf):
    shelf.put("a", "key", b"1")
    shelf.put("b", "key", b"")
    assert (shelf.get("a", "key"), shelf.get("b", "key"), shelf.get("a", "other")) == (b"1", b"", None)
    assert DiskCache(shelf.folder).get("a", "key") == b"1"
    shelf.put("a", "key", b"2")
    assert shelf.get("a", "key") == b"2" and shelf.clear() == 2 and shelf.get("a", "key") is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[:20],
        lambda content: content + b"x",
        lambda content: b"something else",
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: content.replace(MAGIC, b"burnish cache 9\n"),
    ],
    ids=["empty", "cut by one byte", "cut in the head", "longer", "foreign", "one bit turned", "another version"],
)
def test_a_corrupt_file_is_ignored_and_written_again(shelf, spoil):
    shelf.put("kind", "key", b"content")
    path = shelf.path("kind", "key")
    path.write_bytes(spoil(path.read_bytes()))
    assert shelf.get("kind", "key") is None and not path.exists()
    shelf.put("kind", "key", b"content")
    assert shelf.get("kind", "key") == b"content"


def test_least_recently_used_entries_are_evicted_first(shelf):
    shelf.limit = 10_000
    for number in range(20):
        shelf.put("kind", str(number), bytes(1000))
        os.utime(shelf.path("kind", str(number)), (number, number))
    assert shelf.get("kind", "0") is not None, "used just now"
    shelf.trim()
    left = [number for number in range(20) if shelf.path("kind", str(number)).exists()]
    assert sum(size for _, size, _ in shelf.entries()) <= shelf.limit
    assert left == [0, *range(20 - len(left) + 1, 20)]


def test_how_much_there_is_is_looked_at_once_in_a_while_not_by_each_process(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(DiskCache, "trim", lambda self: looks.append(self))

    def process(entries):
        looks.clear()
        shelf = DiskCache(tmp_path / "cache")
        for number in range(entries):
            shelf.put("kind", str(number), b"1")
        return len(looks)

    assert [process(3), process(3)] == [1, 0]
    assert process(2 * disk_cache.LOOK_EVERY) == 2
    long_ago = os.stat(tmp_path / "cache" / disk_cache.LOOKED).st_mtime - disk_cache.LOOK_AGAIN - 1
    os.utime(tmp_path / "cache" / disk_cache.LOOKED, (long_ago, long_ago))
    assert [process(3), process(3)] == [1, 0]
    assert DiskCache(tmp_path / "cache").clear() == 2 * disk_cache.LOOK_EVERY


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="another system of rights")
def test_code_is_not_taken_from_where_others_can_write(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    shelf = DiskCache(tmp_path / "open")
    shelf.put("kind", "key", b"1")
    assert shelf.get("kind", "key") is None and not list(shelf.entries())
    assert "chmod 700" in shelf.why_not


def test_a_folder_that_cannot_be_created_is_not_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    shelf = DiskCache(tmp_path / "file" / "cache")
    shelf.put("kind", "key", b"1")
    assert shelf.get("kind", "key") is None and "cannot be used" in shelf.why_not


def test_a_full_disk_ends_the_writing_and_not_the_reading_of_other_processes(shelf, monkeypatch):
    shelf.put("kind", "before", b"1")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(UserWarning, match="No space left.*BURNISH_CACHE_DIR") as said, contextlib.ExitStack() as ends:
        ends.callback(shelf.put, "kind", "key", b"2")
        ends.close()
    assert "No space left" in shelf.why_not and said[0].filename == __file__
    shelf.why_not = None
    with warnings.catch_warnings(action="error"):
        shelf.put("kind", "key", b"2")
    assert "No space left" in shelf.why_not
    monkeypatch.undo()
    assert [path for _, _, path in shelf.entries()] == [shelf.path("kind", "before")], "nothing half written is left"
    assert DiskCache(shelf.folder).get("kind", "before") == b"1"


def test_many_write_and_read_one_entry_at_once(shelf):
    contents = [bytes([number]) * 50_000 for number in range(8)]

    def turn(number):
        for _ in range(30):
            shelf.put("kind", "key", contents[number])
            assert shelf.get("kind", "key") in contents

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(turn, range(8)))


def test_a_writer_that_is_killed_leaves_no_entry(shelf):
    program = """
import os, signal, sys
from pathlib import Path
from burnish.runtime.disk.disk_cache import DiskCache
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
DiskCache(Path(sys.argv[1])).put("kind", "key", b"content")
"""
    run_program(program, str(shelf.folder), ends=(-signal.SIGKILL,))
    assert shelf.get("kind", "key") is None
    assert shelf.clear() == 1, "what it left is cleared with the rest"


@pytest.fixture
def emitted(monkeypatch):
    """The modules that LLVM generates code for."""
    texts, emit = [], compile_to_machine_code.emitted
    monkeypatch.setattr(
        compile_to_machine_code, "emitted", lambda text, target: texts.append(text) or emit(text, target)
    )
    return texts


def test_code_is_generated_once_for_all_processes(tmp_path, emitted):
    def f(x):
        return (x * 3.25).sin() + 17.5

    x = torch.randn(33)
    with settings.patch(cache=True, cache_dir=tmp_path, never_slower=False):
        torch.testing.assert_close(burnish.compile(f)(x), f(x))
        first = len(emitted)
        assert first
        compile_to_machine_code._known.clear()  # as in another process
        burnish.reset()
        torch.testing.assert_close(burnish.compile(f)(x), f(x))
        assert len(emitted) == first
        for _, _, path in DiskCache(tmp_path).entries():
            path.write_bytes(b"spoilt")
        compile_to_machine_code._known.clear()
        burnish.reset()
        torch.testing.assert_close(burnish.compile(f)(x), f(x))
        assert len(emitted) > first


def test_with_the_setting_off_nothing_is_cached(tmp_path):
    with settings.patch(cache=False, cache_dir=tmp_path):
        compile_to_machine_code._known.clear()
        burnish.compile(lambda x: (x * 3.75).cos())(torch.randn(31))
        assert disk_cache.disk_cache() is None and not list(tmp_path.iterdir())


def test_measurements_are_read_back(tmp_path):
    spec = LinearSpec(*(TensorType.contiguous(shape, torch.float32) for shape in ((96, 64), (48, 64), (48,))))
    first, second = Measurements(), Measurements()
    first.shelf = second.shelf = memory.shelf
    with settings.patch(cache=True, cache_dir=tmp_path):
        first.shelf().put(key_of(spec), "addmm=2; onednn=1")
        assert choose(spec, seconds=0.001, memory=second).candidate.name == "onednn"
        first.shelf().put(key_of(spec), "no measurement")
        assert set(choose(spec, seconds=0.001, memory=first).measured) >= {"addmm", "onednn"}


def test_measurements_of_another_version_are_not_read(tmp_path, monkeypatch):
    """It may have had other candidates: a new one would never be measured beside remembered ones."""
    with settings.patch(cache=True, cache_dir=tmp_path):
        memory.shelf().put("a product", "addmm=1")
        assert memory.shelf().get("a product") == "addmm=1"
        monkeypatch.setattr(cpu, "compiler_identity", lambda: "burnish of another day")
        assert memory.shelf().get("a product") is None


def test_the_command_says_how_much_there_is_and_deletes_it(tmp_path, capsys):
    with settings.patch(cache=True, cache_dir=tmp_path / "cache"):
        disk_cache.disk_cache().put("kind", "key", bytes(1_000_000))
        assert command_line.main(["cache", "info"]) == 0
        assert "1 entries, 1.0 MB of at most" in capsys.readouterr().out
        source_digest.cache_clear()
        source_digest()
        assert command_line.main(["cache", "info"]) == 0
        assert "1 digests of Burnish's own files" in capsys.readouterr().out
        assert command_line.main(["cache", "clear"]) == 0 and "2 entries deleted" in capsys.readouterr().out
        assert not list(disk_cache.disk_cache().entries())
    with settings.patch(cache=False):
        assert command_line.main(["cache", "info"]) == 0 and "is off" in capsys.readouterr().out


@pytest.fixture
def filled(tmp_path):
    """A cache with the entries of one compiled function."""
    with settings.patch(cache=True, cache_dir=tmp_path / "first", check=False):
        burnish.compile(lambda x: x.sin() * 2)(torch.ones(5))
        yield tmp_path / "first"


def test_a_folder_that_cannot_be_used_is_said_once(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        settings.patch(cache=True, cache_dir=tmp_path / "file" / "cache", check=False),
        pytest.warns(UserWarning) as said,
    ):
        for factor in (2, 3):
            assert burnish.compile(lambda x, factor=factor: x.sin() * factor)(torch.zeros(5)).sum() == 0
    (warning,) = said
    assert "cannot be used: Not a directory. Set BURNISH_CACHE_DIR" in str(warning.message)
    disk_cache._opened.cache_clear()
    with settings.patch(cache=True, cache_dir=tmp_path / "file" / "cache"), warnings.catch_warnings(action="error"):
        assert command_line.main(["cache", "info"]) == 2


def test_a_cache_is_carried_to_another_machine(filled, tmp_path, capsys):
    assert command_line.main(["cache", "info"]) == 0 and "1 compiled graphs" in capsys.readouterr().out
    assert command_line.main(["cache", "export", str(tmp_path / "cache.zip")]) == 0
    assert "entries of" in capsys.readouterr().out
    with settings.patch(cache_dir=tmp_path / "second"):
        assert command_line.main(["cache", "import", str(tmp_path / "cache.zip")]) == 0
        report = capsys.readouterr().out
        assert "taken over" in report and "do not fit" not in report
        found = {
            path.relative_to(tmp_path / "second"): path.read_bytes() for _, _, path in disk_cache.disk_cache().entries()
        }
    assert found == {path.relative_to(filled): path.read_bytes() for _, _, path in DiskCache(filled).entries()}


def test_incompatible_entries_are_skipped_with_a_reason(filled, tmp_path, capsys, monkeypatch):
    command_line.main(["cache", "export", str(tmp_path / "cache.zip")])
    here = compile_graph.entry_versions()
    there = {**here, "program": here["program"].replace("torch", "tor")}
    monkeypatch.setattr(compile_graph, "entry_versions", lambda: there)
    capsys.readouterr()
    with settings.patch(cache_dir=tmp_path / "second"):
        assert command_line.main(["cache", "import", str(tmp_path / "cache.zip")]) == 0
        report = capsys.readouterr().out
        assert "1 of program do not fit: they were made with torch, and here it is tor" in report
        assert not [entry for _, entry in cache_archive.read_all(disk_cache.disk_cache()) if entry.kind == "program"]


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["export"], "takes the name of a file"),
        (["info", "x"], "takes no file"),
        (["import", "nowhere.zip"], "cannot be read"),
        (["export", "nowhere/cache.zip"], "there is no folder nowhere"),
    ],
    ids=["no name", "a name too many", "no such file", "no such folder"],
)
def test_mistakes_are_reported(filled, arguments, says, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert command_line.main(["cache", *arguments]) == 2 and says in capsys.readouterr().err


def test_a_file_of_something_else_is_refused(filled, tmp_path, capsys):
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("../outside", "x")
    (tmp_path / "text.zip").write_text("no archive")
    for name, says in (("other.zip", "is not a file that"), ("text.zip", "cannot be read")):
        assert command_line.main(["cache", "import", str(tmp_path / name)]) == 2 and says in capsys.readouterr().err
