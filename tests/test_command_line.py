"""The command `burnish`: what it prints and the status it exits with."""

import io
import os
import platform
import runpy
import subprocess
import sys

import pytest
import torch

import burnish
from burnish.cli import command_line, doctor
from burnish.cli.doctor import Finding, Missing


def test_doctor_tries_what_works_here_and_says_so(capsys, monkeypatch):
    for name in [name for name in os.environ if name.startswith("BURNISH_")]:
        monkeypatch.delenv(name)
    assert command_line.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = {line[:20].rstrip(): line[20:].lstrip() for line in lines}
    assert {"python", "torch", "llvmlite", "triton", "cores", "LLVM", "GPU", "C++ compiler"} <= set(found)
    assert found["python"].startswith(sys.version.split()[0])
    assert found["LLVM"].startswith("ok ") and found["backend eager"].startswith("ok ")
    assert found["settings"] == "all at their defaults"
    assert "doctor --all" in found["backend inductor"]


def test_version_names_what_a_bug_report_needs(capsys):
    with pytest.raises(SystemExit) as exit:
        command_line.main(["--version"])
    assert exit.value.code == 0
    assert (
        capsys.readouterr().out
        == f"burnish {burnish.__version__}, torch {torch.__version__}, Python {platform.python_version()}\n"
    )


def test_the_package_runs_as_the_command(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["burnish", "inspect", "no such file"])
    with pytest.raises(SystemExit) as exit:
        runpy.run_module("burnish", run_name="__main__")
    assert exit.value.code == 2
    assert capsys.readouterr().err.startswith("burnish: ")


def test_doctor_fails_where_something_is_broken(capsys, monkeypatch):
    def broken():
        raise OSError("no such library")

    monkeypatch.setattr(doctor, "check_llvm", broken)
    assert command_line.main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert "FAILS  OSError: no such library" in captured.out and "backend eager" in captured.out
    assert "1 of these does not work" in captured.err


def test_absent_parts_are_not_a_failure():
    def absent():
        raise Missing("none here")

    assert doctor.run_check("GPU", absent) == Finding("GPU", None, "none here")


def test_doctor_uses_rich_on_a_terminal_and_wraps_long_texts(monkeypatch):
    pytest.importorskip("rich")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stdout", Terminal())
    findings = [Finding("GPU", None, "[bold] words " * 9), Finding("LLVM", False, "gone")]
    assert doctor.show(findings) == 1
    shown = sys.stdout.getvalue()
    assert shown.count("[bold]") == 9 and "\x1b[1;31mFAILS" in shown and len(shown.splitlines()) > 4


def test_doctor_finds_a_misspelt_variable_and_a_bad_value(monkeypatch):
    monkeypatch.setenv("BURNISH_CHEK", "1")
    works, text = doctor.check_settings()
    assert works is False and "BURNISH_CHEK" in text
    monkeypatch.delenv("BURNISH_CHEK")
    monkeypatch.setenv("BURNISH_CHECK", "maybe")
    works, text = doctor.check_settings()
    assert works is False and "'maybe'" in text


def test_doctor_reports_what_the_environment_sets(monkeypatch):
    monkeypatch.setenv("BURNISH_SEGMENT_LIMIT", "3")
    works, text = doctor.check_settings()
    assert works is None and "segment_limit=3" in text


def test_doctor_finds_a_backend_that_computes_something_else(monkeypatch):
    monkeypatch.setattr(doctor, "lookup", lambda name: lambda gm, inputs: lambda x, y: (x - y,))
    finding = doctor.run_check("backend wrong", lambda: doctor.check_backend("wrong"))
    assert finding.works is False and "AssertionError" in finding.text


def test_breaks_prints_the_page_of_a_code_in_either_case(capsys):
    assert command_line.main(["breaks", "B101"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("B101 ") and "What to do" in page
    assert command_line.main(["breaks", "b101"]) == 0
    assert capsys.readouterr().out == page


def test_breaks_without_a_code_prints_every_page(capsys):
    from burnish.capture.breaks import CATALOG

    assert command_line.main(["breaks"]) == 0
    printed = capsys.readouterr().out
    assert all(f"{code} {kind.name}: " in printed for code, kind in CATALOG.items())


def test_unknown_break_is_refused_with_near_codes(capsys):
    assert command_line.main(["breaks", "B110"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and 'no break with the code "B110". Did you mean "B10' in captured.err


@pytest.mark.parametrize("arguments", [[], ["polish"], ["doctor", "--everything"]])
def test_command_that_does_not_exist_is_refused_with_the_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        command_line.main(arguments)
    assert caught.value.code == 2 and "usage: burnish" in capsys.readouterr().err


def test_reader_that_stops_early_is_not_an_error():
    read, write = os.pipe()
    os.close(read)
    code = "import sys; from burnish.cli.command_line import main; sys.exit(main(['breaks']))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, env=environment, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert ran.stderr == "" and ran.returncode == 0
