"""A guard miss names the nearest segment, the value that differs, and what to do about it."""

import pytest
import torch

import burnish
from burnish.capture.breaks import Location
from burnish.report.guard_misses import ADVICE, GuardMiss, advice, categorize, render_miss

from ..recorded_events import recorded

TRAINING = GuardMiss(1, "self.training", "True", "False")
LENGTH = GuardMiss(1, "len(batch)", "4", "3")
SCALE = GuardMiss(2, "self.layers[3].scale", "0.5", "0.25")
SHAPE = GuardMiss(5, "x.shape[0]", "32", "7")


def test_the_nearest_segment_is_the_one_with_the_fewest_failures():
    text = render_miss("Model.forward", Location("model.py", 12, "forward"), [TRAINING, LENGTH, SCALE, SHAPE])
    lines = text.splitlines()
    assert lines[:9] == [
        "No compiled segment of Model.forward fits this call; it is compiled once more.",
        "  at model.py:12 in forward",
        "",
        "  self.layers[3].scale",
        "      expected  0.5",
        "      found     0.25",
        "  (segment 2, the nearest of 3; no other guard of it failed)",
        "",
        "  The other segments failed first at:",
    ]
    assert lines[9:11] == [
        "      segment 5: x.shape[0]: expected 32, found 7",
        "      segment 1: self.training: expected True, found False",
    ]
    assert "torch.tensor(value)" in text


def test_of_the_nearest_segment_the_first_failure_leads_and_the_rest_follow():
    text = render_miss("f", None, [TRAINING, LENGTH])
    assert text.index("self.training") < text.index("(segment 1, the only one; its first guard that failed)")
    assert "  Of the same segment, these guards failed too:\n      len(batch): expected 4, found 3\n" in text
    assert "other segments" not in text


def test_between_equally_near_segments_the_first_given_wins():
    assert "(segment 5," in render_miss("f", None, [SHAPE, SCALE])
    assert "(segment 2," in render_miss("f", None, [SCALE, SHAPE])


def test_the_source_line_is_shown_where_it_is_at_hand(tmp_path):
    file = tmp_path / "model.py"
    file.write_text("def forward(self, x):\n    return x\n")
    text = render_miss("forward", Location(str(file), 1, "forward"), [SCALE])
    assert f"  at {file}:1 in forward\n      def forward(self, x):\n" in text
    assert "  at model.py:3\n\n" in render_miss("forward", "model.py:3", [SCALE])


def test_without_a_segment_there_is_nothing_to_compare_with():
    assert render_miss("f", None, []).endswith("There is no segment yet that it could be compared with.")


def test_many_segments_and_long_values_stay_readable():
    failures = [GuardMiss(i, f"flags[{i}]", "'" + "a" * 500 + "'", "'b'") for i in range(30)]
    text = render_miss("f", None, failures)
    assert "      … and 25 more\n" in text
    assert len(text.splitlines()) < 20
    assert max(map(len, text.splitlines())) < 170


@pytest.mark.parametrize(
    ("source", "expected", "found", "category"),
    [
        ("self.layers[3].scale", "0.5", "0.25", "number"),
        ("step", "3", "4", "number"),
        ("step", "-1", "2", "number"),
        ("scale", "1", "True", "number"),
        ("self.use_cache", "True", "False", "flag"),
        ("mode", "'mean'", "'sum'", "text"),
        ("self.training", "True", "False", "training"),
        ("model.encoder.training", "False", "True", "training"),
        ("training_steps", "3", "4", "number"),
        ("grad mode", "True", "False", "grad mode"),
        ("torch.is_grad_enabled()", "True", "False", "grad mode"),
        ("torch.is_inference_mode_enabled()", "False", "True", "grad mode"),
        ("torch.is_autocast_enabled('cpu')", "False", "True", "autocast"),
        ("x.requires_grad", "True", "False", "requires grad"),
        ("x.shape", "(3, 4)", "(3, 5)", "shape"),
        ("x.shape[0]", "32", "7", "shape"),
        ("x.size()", "torch.Size([3])", "torch.Size([4])", "shape"),
        ("x", "shape (3, 4)", "shape (3, 5)", "shape"),
        ("x.stride()", "(4, 1)", "(1, 4)", "stride"),
        ("x", "strides (4, 1)", "strides (1, 4)", "stride"),
        ("x.dtype", "torch.float32", "torch.float64", "dtype"),
        ("x", "torch.float32", "torch.bfloat16", "dtype"),
        ("x.device", "cpu", "cuda:0", "device"),
        ("mask", "None", "tensor", "none"),
        ("self.activation", "object 0x7f10", "object 0x7f20", "identity"),
        ("self.activation", "<function relu at 0x7f10>", "<function gelu at 0x7f20>", "identity"),
        ("callback", "the same object", "another object", "identity"),
        ("type(x)", "Tensor", "Parameter", "type"),
        ("batch", "<class 'list'>", "<class 'tuple'>", "type"),
        ("batch", "a list", "a tuple", "type"),
        ("len(layers)", "3", "4", "length"),
        ("layers", "3 items", "4 items", "length"),
        ("self.cache", "missing", "present", "missing"),
        ("shapes", "(1, 2)", "(1, 3)", "value"),
        ("odd", "??", "!!", "value"),
    ],
)
def test_the_advice_fits_the_difference(source, expected, found, category):
    failure = GuardMiss(0, source, expected, found)
    assert categorize(failure) == category
    assert advice(failure) == ADVICE[category]


OTHERS = {
    "another size": ((torch.ones(3),), (torch.ones(4),), "shape", "burnish.mark_dynamic(x, dim)"),
    "another layout": ((torch.ones(3, 4),), (torch.ones(4, 3).t(),), "stride", "x.contiguous()"),
    "another dtype": ((torch.ones(3),), (torch.ones(3, dtype=torch.float64),), "dtype", "x.to(dtype)"),
    "a parameter": ((torch.ones(3),), (torch.nn.Parameter(torch.ones(3)),), "type", "the same type"),
    "another type": (([torch.ones(3)],), ((torch.ones(3),),), "type", "the same type"),
    "with gradients": ((torch.ones(3),), (torch.ones(3, requires_grad=True),), "requires grad", "x.detach()"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_advice_fits_the_guards(name):
    first, second, category, words = OTHERS[name]
    with recorded("guards.missed") as missed:
        compiled = burnish.compile(lambda x: x[0] * 2, backend="eager")
        compiled(*first)
        compiled(*second)
    failure = GuardMiss(*missed[0].data["failures"][0])
    assert categorize(failure) == category
    assert words in " ".join(advice(failure).split())


@pytest.mark.parametrize("other", [torch.ones(5), torch.ones(2, 5, 3)])
def test_fewer_or_more_dimensions_than_the_symbolic_ones(other):
    with recorded("guards.missed") as missed:
        compiled = burnish.compile(lambda x: x * 2, backend="eager")
        for x in (torch.ones(4, 3), torch.ones(5, 3), other):
            assert torch.equal(compiled(x), x * 2)
    found = [tuple(failure[1:4]) for failure in missed[-1].data["failures"]]
    assert ("x (shape)", "(None, 3)", str(tuple(other.shape))) in found


def test_a_category_given_with_the_failure_is_taken():
    assert advice(GuardMiss(0, "x", "1", "2", category="shape")) == ADVICE["shape"]


def test_every_advice_has_a_way_to_be_given():
    from burnish.report.guard_misses import RULES

    assert {category for category, _ in RULES} | {"value"} == set(ADVICE)
