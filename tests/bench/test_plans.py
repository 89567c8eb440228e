"""Golden plans: equal in every run; a changed plan is reported at the stage where it differs."""

import re

import pytest
import torch
from bench.plan_text import written
from bench.plans import OPEN, RULES, differences, main, measured, pinned, programs, text_of_model, write
from torch import nn

import burnish
from burnish.runtime.program.native_kernels import Words
from burnish.schedule import pipeline as planning
from burnish.schedule.library.autotune_library_calls import candidates, memory
from burnish.schedule.library.call_specs import LinearSpec
from burnish.tensors.tensor_types import TensorType

MODEL = "mlp"


def recorded(folder, mode="inference", rule="packed"):
    write(folder, "program", text_of_model(MODEL, mode, rule))
    return (folder / "program.txt").read_text()


@pytest.mark.parametrize("mode,rule", [("inference", "packed"), ("inference", "last"), ("train", "last")])
def test_record_is_the_same_again(tmp_path, mode, rule):
    first, second = (recorded(tmp_path / name, mode, rule) for name in ("first", "second"))
    assert first == second and list(differences(tmp_path / "first", tmp_path / "second", "program")) == []
    titles = re.findall("^## (.*)$", first, re.MULTILINE)
    halves = 1 + (mode == "train")
    assert titles.count("plan") == titles.count("kernels") == titles.count("memory") == halves
    assert titles.count("graph") == 14 + 3 + 5 * halves, "those of lowering, the schedule's and the plans'"
    assert titles[-2:] == ["segment", "fallbacks"] and first.endswith("## fallbacks\n\n")


def test_record_names_neither_files_nor_addresses_nor_passes(tmp_path):
    text = recorded(tmp_path, rule="last")
    assert not re.search("0x[0-9a-f]{6,}", text)
    for code in (tmp_path / "code").iterdir():
        text += code.read_text()
    assert not re.search(r"/\w+/\w+|\.py\b|burnish\.", text)
    assert "functionalize" not in text and "choose_calls" not in text


def test_rules_take_different_candidates(tmp_path):
    found = {rule: set(re.findall(r"run <(.*?)>", recorded(tmp_path / rule, rule=rule))) for rule in RULES}
    assert found["last"] == {"own packed"} and found["packed"] and found["packed"] != found["last"]
    assert not any("packed" in name for name in found["first"])


def test_changed_plan_is_reported_at_its_stage(tmp_path, monkeypatch):
    before, after = tmp_path / "before", tmp_path / "after"
    recorded(before)
    place = planning.place_in_arena

    def further(plan, gives_back):
        place(plan, gives_back)
        plan.arena += 64

    monkeypatch.setattr(planning, "place_in_arena", further)
    recorded(after)
    (text,) = differences(before, after, "program")
    assert re.match(r"program, stage \d+ \(memory\)", text)
    assert "\n-arena of " in text and "\n+arena of " in text


def test_changed_kernel_is_reported_with_its_code(tmp_path, monkeypatch):
    from burnish.codegen.llvm import print_kernel_module as printing

    before, after = tmp_path / "before", tmp_path / "after"
    recorded(before)
    monkeypatch.setattr(printing.plans, "GRAIN", printing.plans.GRAIN // 1000)
    recorded(after)
    found = list(differences(before, after, "program"))
    assert any("LLVM" in text.partition("\n")[0] and "\n-" in text for text in found)
    assert all("graph" not in text.partition("\n")[0] for text in found)


def test_renamed_pass_changes_nothing(tmp_path, monkeypatch):
    before, after = tmp_path / "before", tmp_path / "after"
    recorded(before)

    def other_name(graph):
        return planning.hoist_error_checks(graph)

    monkeypatch.setattr(planning, "STEPS", (other_name, *planning.STEPS[1:]))
    recorded(after)
    assert list(differences(before, after, "program")) == []


def test_missing_record_is_a_difference(tmp_path):
    recorded(tmp_path / "after")
    assert list(differences(tmp_path / "before", tmp_path / "after", "program")) == ["program: not in the record"]


def test_command_compares_with_its_records(tmp_path, capfd):
    assert main(["record", str(tmp_path), "--only", "pointwise", "--processes", "1"]) == 0
    assert {path.stem for path in tmp_path.glob("*.txt")} == {f"pointwise-{a}-{b}" for a, b in programs("pointwise")}
    path = tmp_path / f"pointwise-{OPEN}-first.txt"
    path.write_text(path.read_text().replace("sigmoid", "tanh", 1))
    assert main(["compare", str(tmp_path), "--only", "pointwise", "--processes", "1"]) == 1
    out = capfd.readouterr().out
    assert f"pointwise-{OPEN}-first, stage 1 (graph)" in out and "tanh" in out
    count = len(list(programs("pointwise")))
    assert f"{count - 1} of {count} programs are compiled as recorded" in out


def test_nothing_is_measured_or_remembered_inside():
    x, weight = (TensorType.contiguous((64, 512), torch.float32, torch.device("cpu")) for _ in range(2))
    seen = dict(memory._seen)
    with pinned("first"), torch.no_grad():
        burnish.compile(nn.Linear(512, 512))(torch.randn(64, 512))
    assert memory._seen == seen and memory.pinned is None
    offered = candidates(LinearSpec(x, weight, is_frozen=True))
    assert list(measured(offered, "first").least) == [offered[0].name]


def test_candidate_that_does_not_work_is_passed_over():
    x, weight = (TensorType.contiguous((64, 512), torch.float32, torch.device("cpu")) for _ in range(2))
    offered = candidates(LinearSpec(x, weight, is_frozen=True))

    def fails(*operands):
        raise RuntimeError

    from dataclasses import replace

    broken = [*offered[:-1], replace(offered[-1], run=fails, run_into=None, steps=None)]
    assert list(measured(broken, "last").least) == [offered[-2].name]


def test_tables_are_distinguished_by_their_numbers():
    from bench.plan_text import in_words

    long = [in_words(Words([*range(100), last])) for last in (1, 1, 2)]
    assert long[0] == long[1] != long[2] and in_words(Words([1, 2])) == "[1 2]"


@pytest.mark.falls_back("sizes")
def test_fallback_is_written_down():
    with written() as found:
        burnish.events.emit("guards.sizes", text="for each size by itself", fallback="sizes")
    assert found.stages[-1].body == "sizes (guards.sizes)"
