"""Trust in the disk cache: entries must match their keys and must not be writable by other users."""

import hashlib
import json
import os
import warnings
import zipfile

import pytest
import torch

import burnish
from burnish.cli import cache_archive, command_line
from burnish.compiler import program_serialization
from burnish.errors import UserError
from burnish.export import precompile
from burnish.runtime.disk import disk_cache, file_trust
from burnish.runtime.disk.disk_cache import MAGIC, DiskCache, read_entry, written_entry

from .recorded_events import recorded

X = torch.arange(1.0, 13.0).reshape(3, 4)
FUNCTIONS = [lambda x: x.sin() * 2, lambda x: x.cos() * 2, lambda x: x.exp() + 1, lambda x: x.log() - 1]


@pytest.fixture
def shelf(tmp_path):
    made = DiskCache(tmp_path / "cache")
    with burnish.settings.patch(
        cache=True, cache_dir=made.folder, check=False, never_slower=False, on_error="fallback"
    ):
        disk_cache._opened.cache_clear()
        yield made
    disk_cache._opened.cache_clear()


def run(function, happened):
    """Its result, compiled as in a new process, and the events."""
    burnish.reset()
    happened.clear()
    compiled = burnish.compile(function)
    compiled(X)  # which runs eagerly, and is watched
    torch.testing.assert_close(compiled(X), function(X))
    return list(happened)


def programs_of(shelf):
    return [
        shelf.path_of(entry.name)
        for _, entry in cache_archive.read_all(shelf)
        if entry.kind == program_serialization.KIND
    ]


# ---- under their own keys


def test_entries_that_were_exchanged_are_compiled_again(shelf, happened):
    places = []
    for function in FUNCTIONS:
        run(function, happened)
        places.append(next(path for path in programs_of(shelf) if path not in places))
    contents = [path.read_bytes() for path in places]
    for function in FUNCTIONS:
        assert "cache.program" in run(function, happened)
    for path, content in zip(places, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)
    for function in FUNCTIONS:
        assert "cache.program" not in run(function, happened)
        assert "cache.program" in run(function, happened), "it was written again"


def test_entries_of_each_kind_are_bound_to_kind_and_key(shelf):
    shelf.put("a", "key\n1", b"1")
    shelf.put("a", "key\n2", b"2")
    shelf.put("b", "key\n1", b"3")
    one, two, three = (shelf.path(*place) for place in (("a", "key\n1"), ("a", "key\n2"), ("b", "key\n1")))
    content = one.read_bytes()
    for other in (two, three):
        other.write_bytes(content)
    assert (shelf.get("a", "key\n1"), shelf.get("a", "key\n2"), shelf.get("b", "key\n1")) == (b"1", None, None)
    assert one.exists() and not two.exists()


@pytest.mark.falls_back("internal")
def test_a_program_in_a_file_is_bound_to_its_graph(shelf, happened, tmp_path):
    """Even in one that is trusted: an exchange may be a mistake."""
    path = tmp_path / "saved.burnish"
    with torch.no_grad():
        for fn in FUNCTIONS[:2]:
            burnish.save(fn, path, (X,))
            with zipfile.ZipFile(path) as archive:
                entries = {name: archive.read(name) for name in archive.namelist()}
            if fn is FUNCTIONS[0]:
                theirs = next(content for name, content in entries.items() if name.startswith("program/"))
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in entries.items():
                archive.writestr(name, theirs if name.startswith("program/") else content)
        shelf.clear()
        happened.clear()
        torch.testing.assert_close(burnish.load(path, trust=True)(X), FUNCTIONS[1](X))
    assert "cache.unreadable" in happened and "lower" in happened


@pytest.mark.parametrize(
    "head",
    [b"", b"[]", b"7", b"null", b'["a", "b"]', b'["a", "b", 3]', b'{"a": 1}', b"[" * 100_000, b"\xff"],
    ids=range(9),
)
def test_an_entry_with_a_malformed_head_is_ignored(head, shelf):
    shelf.put("kind", "key", b"1")
    body = head + b"\ndata"
    shelf.path("kind", "key").write_bytes(MAGIC + hashlib.sha256(body).digest() + body)
    assert shelf.get("kind", "key") is None and not shelf.path("kind", "key").exists()


# ---- that no other user can have written

has_users = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="another system of rights")


def another_user(monkeypatch, shelf, path):
    """The files stay, and the current user becomes another one."""
    monkeypatch.setattr(os, "geteuid", lambda owner=path.stat().st_uid: owner + 1)
    monkeypatch.setattr(file_trust, "ROOT", -1)


RULES = {
    "every user can write to it": lambda monkeypatch, shelf, path: path.chmod(0o602),
    "its group can write to it": lambda monkeypatch, shelf, path: path.chmod(0o620),
    "its folder can be written to": lambda monkeypatch, shelf, path: path.parent.chmod(0o777),
    "the cache can be written to": lambda monkeypatch, shelf, path: shelf.folder.chmod(0o770),
    "it is a link": lambda monkeypatch, shelf, path: (
        path.rename(shelf.folder / "elsewhere"),
        path.symlink_to(shelf.folder / "elsewhere"),
    ),
    "it is a pipe": lambda monkeypatch, shelf, path: (path.unlink(), os.mkfifo(path)),
    "it is another user's": another_user,
}


@has_users
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_entries_writable_by_another_user_are_compiled_again(rule, shelf, happened, monkeypatch):
    run(FUNCTIONS[0], happened)
    assert "cache.program" in run(FUNCTIONS[0], happened)
    (path,) = programs_of(shelf)
    disk_cache.disk_cache().why_not  # it is open already: each entry is looked at by itself
    rule(monkeypatch, shelf, path)
    with recorded("cache.refused", datum="text") as said:
        with pytest.warns(UserWarning, match="code is only loaded from files that no other user") as caught:
            assert "lower" in run(FUNCTIONS[0], happened) and "cache.program" not in happened
            run(FUNCTIONS[1], happened)
    assert len(said) == 1 and len([w for w in caught if "no other user" in str(w.message)]) == 1, "it is said once"
    assert str(shelf.folder) in said[0] and "burnish cache clear" in said[0]


@has_users
def test_a_folder_of_another_user_is_not_used_and_says_so(shelf, happened, monkeypatch):
    run(FUNCTIONS[0], happened)
    another_user(monkeypatch, shelf, shelf.folder)
    disk_cache._opened.cache_clear()
    with pytest.warns(UserWarning, match="belongs to another user.*chmod 700.*BURNISH_CACHE_DIR"):
        assert "lower" in run(FUNCTIONS[0], happened) and "cache.off" in happened
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(FUNCTIONS[1], happened)


@has_users
def test_entries_written_by_root_are_loaded(shelf, happened, monkeypatch):
    """Root can do everything anyway: a cache that came with a container is used."""
    run(FUNCTIONS[0], happened)
    owner = shelf.folder.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr(file_trust, "ROOT", owner)
    disk_cache._opened.cache_clear()
    assert "cache.program" in run(FUNCTIONS[0], happened)


def test_where_there_are_no_user_numbers_entries_are_loaded(shelf, happened, monkeypatch):
    run(FUNCTIONS[0], happened)
    monkeypatch.delattr(os, "geteuid", raising=False)
    assert "cache.program" in run(FUNCTIONS[0], happened)


@has_users
@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_a_secret_that_others_know_signs_nothing(mode, shelf):
    secret = precompile.own_secret()
    assert secret is not None and (shelf.folder / "secret").stat().st_mode & 0o777 == 0o600
    (shelf.folder / "secret").chmod(mode)
    with pytest.warns(UserWarning, match="secret can be"):
        assert precompile.own_secret() is None and precompile.signature(b"", {}) is None


@has_users
def test_entries_of_another_user_are_not_archived(shelf, happened, tmp_path):
    run(FUNCTIONS[0], happened)
    (path,) = programs_of(shelf)
    path.chmod(0o666)
    with pytest.warns(UserWarning, match="can be written to by others"):
        cache_archive.export_cache(shelf, tmp_path / "cache.zip")
    with zipfile.ZipFile(tmp_path / "cache.zip") as archive:
        assert f"{path.parent.name}/{path.name}" not in archive.namelist()


# ---- import


def archive_of(path, entries, packing=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return path


def named(content):
    entry = read_entry(content)
    return f"{entry.name[:2]}/{entry.name[2:]}"


def imported(path, capsys):
    """The exit status, and the output."""
    status = command_line.main(["cache", "import", str(path)])
    printed = capsys.readouterr()
    return status, printed.err or printed.out


def test_a_file_that_unpacks_to_much_more_is_refused(shelf, tmp_path, capsys):
    def bomb(count, size):
        return archive_of(tmp_path / "bomb.zip", ((f"{n:02x}/{n:062x}", bytes(size)) for n in range(count)))

    path = bomb(3, cache_archive.LARGEST + 1)
    assert path.stat().st_size < 1 << 20
    status, said = imported(path, capsys)
    assert status == 2 and "unpacks to 67.1 MB, and at most 67.1 MB are taken" in said
    path = bomb(20, 1 << 25)
    status, said = imported(path, capsys)
    assert status == 2 and "it unpacks to 671.1 MB, and at most 536.9 MB are taken" in said
    assert not list(shelf.entries())


def test_an_entry_that_claims_less_than_it_unpacks_to_is_refused(shelf, tmp_path, capsys):
    path = archive_of(tmp_path / "false.zip", [("00/" + "0" * 62, bytes(1 << 22))])
    content = path.read_bytes()
    path.write_bytes(content.replace((1 << 22).to_bytes(4, "little"), (100).to_bytes(4, "little")))
    status, said = imported(path, capsys)
    assert status == 2 and "cannot be read" in said


@pytest.mark.parametrize("head", [b"", b"[]", b'["a", "b", 3]', b"{", b"[" * 100_000, b"\xff"], ids=range(6))
def test_a_malformed_head_is_a_mistake_of_the_file(head, shelf, tmp_path, capsys):
    body = head + b"\ndata"
    path = archive_of(tmp_path / "cache.zip", [("00/" + "0" * 62, MAGIC + hashlib.sha256(body).digest() + body)])
    status, said = imported(path, capsys)
    assert status == 2 and "is not a file that `burnish cache export` wrote: of its entry 00/000" in said


def test_an_entry_under_the_name_of_another_is_refused_and_nothing_is_taken_over(shelf, tmp_path, capsys, happened):
    run(FUNCTIONS[0], happened)
    run(FUNCTIONS[1], happened)
    contents = [content for content, _ in cache_archive.read_all(shelf)]
    shelf.clear()
    pairs = [(named(content), content) for content in contents]
    pairs[0], pairs[1] = (pairs[0][0], pairs[1][1]), (pairs[1][0], pairs[0][1])
    status, said = imported(archive_of(tmp_path / "cache.zip", pairs), capsys)
    assert status == 2 and "holds what belongs under another name" in said and not list(shelf.entries())


def test_an_archive_that_is_damaged_is_refused(shelf, tmp_path, capsys):
    good = archive_of(tmp_path / "cache.zip", [(named(entry := written_entry("kind", "key", bytes(5000))), entry)])
    content = good.read_bytes()
    at = content.index(b"/") + 80
    turned = content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :]
    for spoilt in (turned, content[:50], b"", b"PK\5\6" + bytes(17)):
        good.write_bytes(spoilt)
        status, said = imported(good, capsys)
        assert status == 2 and "cannot be read" in said, said


def test_duplicate_names_and_another_compression_are_refused(shelf, tmp_path, capsys):
    name = "00/" + "0" * 62
    with pytest.warns(UserWarning, match="Duplicate"):
        path = archive_of(tmp_path / "cache.zip", [(name, b"1"), (name, b"2")])
    assert "twice" in imported(path, capsys)[1]
    path = archive_of(tmp_path / "other.zip", [(name, b"1")], zipfile.ZIP_BZIP2)
    assert "packed in another way" in imported(path, capsys)[1]


def test_printed_file_contents_contain_no_terminal_control_codes(shelf, tmp_path, capsys):
    contents = [written_entry(f"kind\x1b[2J{n}", f"made\x1b[2J{n} {'x' * 1000}", b"") for n in range(40)]
    status, said = imported(archive_of(tmp_path / "cache.zip", [(named(c), c) for c in contents]), capsys)
    assert status == 0 and "\x1b" not in said and len(said.splitlines()) < 12 and "others do not fit either" in said
    assert json.dumps(said)


def test_refusals_are_user_errors(shelf, tmp_path):
    with pytest.raises(UserError):
        cache_archive.import_cache(shelf, tmp_path / "nowhere.zip")
