"""The target processor of generated code: this one, or the level that the setting `cpu` names."""

import inspect

import llvmlite.binding as llvm
import pytest

from burnish.codegen.llvm.target_cpu import REQUIRED, host, preset, why_not_runnable
from burnish.errors import UserError
from burnish.runtime.disk.compiler_identity import compiler_identity
from burnish.settings import CpuLevel, patch

host_read_again, identity_read_again = inspect.unwrap(host), inspect.unwrap(compiler_identity)


def let_processor_have(monkeypatch, *levels):
    found = {name: True for level in levels for name in REQUIRED[level]}
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: llvm.FeatureMap(found))


def test_every_level_of_the_setting_has_its_preset():
    assert set(REQUIRED) == set(CpuLevel.__args__)
    assert [preset(cpu).vector_bits for cpu in REQUIRED] == [128, 256, 512]
    assert [preset(cpu).has_fma for cpu in REQUIRED] == [False, True, True]


def test_setting_replaces_the_processor_by_one_of_its_levels(monkeypatch):
    let_processor_have(monkeypatch, "x86-64-v2", "x86-64-v3")
    with patch(cpu="x86-64-v3"):
        assert host_read_again() == preset("x86-64-v3")
        in_setting = identity_read_again()
    with patch(cpu=None):
        assert identity_read_again() != in_setting, "programs on disk are found by it"
        assert host_read_again().cpu == llvm.get_host_cpu_name()


def test_level_that_the_processor_lacks_is_refused_with_what_is_missing(monkeypatch):
    let_processor_have(monkeypatch, "x86-64-v2", "x86-64-v3")
    with patch(cpu="x86-64-v4"), pytest.raises(UserError, match="BURNISH_CPU.*has no avx512bw, avx512cd"):
        host_read_again()


def test_level_includes_the_features_of_lower_levels(monkeypatch):
    let_processor_have(monkeypatch, "x86-64-v3")
    assert why_not_runnable("x86-64-v3") == "this processor has no popcnt, sse4.2"
    assert why_not_runnable("neoverse-n1") == "no level of x86-64"
