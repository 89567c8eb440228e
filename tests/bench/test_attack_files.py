"""The attack on `burnish.load` detects violations of its rules."""

import zipfile

import pytest
from bench.attack import files

import burnish
from burnish.errors import UserError


@pytest.fixture
def attack(tmp_path, monkeypatch):
    monkeypatch.setattr(files.os, "_exit", lambda status: pytest.fail(f"status {status}"))
    return files.Attack(tmp_path, tmp_path, 300, seed=5)


def test_three_hundred_files_run_nothing(attack, capsys):
    files.plainly(attack)
    assert attack.count == 300 and set(attack.outcomes) >= {"loaded", "refused with the part that is wrong"}
    assert "no code run" in capsys.readouterr().out


def test_one_seed_makes_one_sequence_of_files(attack):
    data = bytes(range(64))
    assert files.changed(files.Choices(data), attack.sound) == files.changed(files.Choices(data), attack.sound)


@pytest.mark.parametrize(
    "load, found",
    [
        (lambda path, trust: eval("1"), "Python reported"),
        (lambda path, trust: open(path, "a").close(), "Python reported"),
        (lambda path, trust: {}["x"], "KeyError in place of a UserError"),
    ],
    ids=["code", "a file that is written", "another error"],
)
def test_a_reader_that_breaks_a_rule_is_found(load, found, attack, monkeypatch):
    monkeypatch.setattr(burnish, "load", load)
    with pytest.raises(files.Broken, match=found):
        attack.loaded()


def test_a_refusal_is_no_finding(attack, monkeypatch):
    def refuse(path, trust):
        raise UserError("it is damaged")

    monkeypatch.setattr(burnish, "load", refuse)
    assert attack.loaded() == "refused as damaged"


def test_the_archives_it_writes_are_sound(attack, tmp_path):
    for entries in attack.sound:
        path = tmp_path / "one.zip"
        path.write_bytes(files.archive_of(list(entries.items())))
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            assert {name: archive.read(name) for name in archive.namelist()} == entries
        burnish.load(path, trust=False)
