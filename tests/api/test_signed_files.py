"""Files that a publisher signs: machine code runs where the reader names the key, and no byte can be changed."""

import os
import shutil
import stat
import zipfile

import pytest
import torch

import burnish
from burnish import settings
from burnish.cli import command_line
from burnish.errors import UserError
from burnish.export import publisher_signature
from burnish.export.publisher_signature import write_keys

X = torch.randn(3, 4)


@pytest.fixture
def keys(tmp_path):
    return write_keys(tmp_path / "release.key")


@pytest.fixture
def signed(keys, tmp_path, monkeypatch):
    monkeypatch.setenv("BURNISH_CACHE", "1")
    monkeypatch.setenv("BURNISH_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "model.burnish"
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4).eval()
    with torch.no_grad():
        burnish.save(model, path, (X,), sign=keys[0])
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)  # the reader is another user
    return path


def test_code_of_a_signed_file_runs_where_its_key_is_trusted(signed, keys):
    with torch.no_grad():
        loaded = burnish.load(signed, trust=keys[1])
        assert loaded.is_trusted and loaded.native.programs
        torch.manual_seed(0)
        torch.testing.assert_close(loaded(X), torch.nn.Linear(4, 4)(X))
    assert burnish.load(signed, trust=[keys[1]]).is_trusted
    with pytest.warns(UserWarning, match="nothing shows that this user's Burnish wrote it"):
        assert not burnish.load(signed).is_trusted


@pytest.mark.parametrize("has_cache", [True, False])
def test_warning_names_a_cache_that_is_off(signed, tmp_path, has_cache):
    with settings.patch(cache=has_cache, cache_dir=tmp_path / "other"), pytest.warns(UserWarning) as told:
        burnish.load(signed)
    assert ("which is off or cannot be used" in str(told[0].message)) is not has_cache


def test_file_that_changes_after_it_was_checked_changes_nothing(signed, keys):
    with torch.no_grad():
        loaded = burnish.load(signed, trust=keys[1])
        want = loaded(X).clone()
        with open(signed, "r+b") as file:
            file.write(bytes(signed.stat().st_size))
        torch.testing.assert_close(loaded(X), want)


@pytest.mark.parametrize("trust", [[], [True], b"release.key.pub"])
def test_keys_of_the_wrong_kind_are_named(trust, signed):
    with pytest.raises(UserError, match="give True, False, or the file of a public key"):
        burnish.load(signed, trust=trust)


def test_another_key_or_none_is_refused(signed, keys, tmp_path):
    _, other = write_keys(tmp_path / "other.key")
    with pytest.raises(UserError, match=r"no key that was given to trust has signed it.*Nothing of it has run"):
        burnish.load(signed, trust=other)
    assert burnish.load(signed, trust=[other, keys[1]]).is_trusted
    unsigned = tmp_path / "unsigned.burnish"
    burnish.save(torch.nn.Linear(4, 4), unsigned, (X,))
    with pytest.raises(UserError, match="no publisher has signed it"):
        burnish.load(unsigned, trust=keys[1])


def changed_entries(path):
    with zipfile.ZipFile(path) as archive:
        return {item.filename: archive.read(item) for item in archive.infolist()}


def rewritten(path, entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def test_every_entry_is_covered(signed, keys):
    sound = changed_entries(signed)
    assert {name.partition("/")[0] for name in sound} >= {"burnish.json", "program", "storage", "publisher"}
    rewritten(signed, sound)
    assert burnish.load(signed, trust=keys[1]).is_trusted
    for name in sound:
        if name == "signature":  # of the user who wrote it, which another has no use for
            continue
        at = len(sound[name]) // 2
        bad = bytes([sound[name][at] ^ 1])
        rewritten(signed, {**sound, name: sound[name][:at] + bad + sound[name][at + 1 :]})
        with pytest.raises(UserError):
            burnish.load(signed, trust=keys[1])
    first = next(name for name in sound if name.startswith("program/"))
    for others in (
        {name: content for name, content in sound.items() if name != first},
        {**sound, f"program/{'0' * 64}": sound[first]},
        {**sound, "storage/7": b"more"},
    ):
        rewritten(signed, others)
        with pytest.raises(UserError, match="it was changed since it was signed"):
            burnish.load(signed, trust=keys[1])


def test_a_signature_of_another_key_under_the_name_of_a_trusted_one_is_refused(signed, keys, tmp_path):
    other, _ = write_keys(tmp_path / "other.key")
    digests = {}
    entries = changed_entries(signed)
    for name, content in entries.items():
        if name not in ("signature", "publisher"):
            digests[name] = publisher_signature.hashlib.sha256(content).digest()
    forged = entries["publisher"][:32] + publisher_signature.sign(other, digests)[32:]
    rewritten(signed, {**entries, "publisher": forged})
    with pytest.raises(UserError, match="it was changed since it was signed"):
        burnish.load(signed, trust=keys[1])


def test_keys_are_not_overwritten_and_the_private_one_is_private(keys, tmp_path, capsys):
    assert stat.S_IMODE(os.stat(keys[0]).st_mode) == 0o600
    assert command_line.main(["keygen", str(keys[0])]) == 2
    assert "is there already" in capsys.readouterr().err
    assert command_line.main(["keygen", str(tmp_path / "new.key")]) == 0
    assert "new.key.pub" in capsys.readouterr().out and (tmp_path / "new.key.pub").is_file()


def test_what_is_no_key_is_named(signed, keys, tmp_path):
    with pytest.raises(UserError, match="is not a public key"):
        burnish.load(signed, trust=keys[0])
    with pytest.raises(UserError, match="cannot be read"):
        burnish.load(signed, trust=tmp_path / "missing.pub")
    with pytest.raises(UserError, match="is not a private key"):
        burnish.save(torch.nn.Linear(4, 4), tmp_path / "x.burnish", (X,), sign=keys[1])
    assert not (tmp_path / "x.burnish").exists()


def test_inspect_names_the_key_without_believing_it(signed, capsys):
    assert command_line.main(["inspect", str(signed)]) == 0
    printed = capsys.readouterr().out
    assert "publisher" in printed and "not checked" in printed
