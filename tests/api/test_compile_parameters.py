"""The rarer parameters of compile: name, recompile_limit, isolate_recompiles and dynamic_shapes; dynamic sources."""

import pickle
import warnings

import pytest
import torch

import burnish
from burnish.errors import UserError

from ..recorded_events import recorded

dynamic_spec = pytest.importorskip("torch.fx.experimental.dynamic_spec", reason="not in this torch")
IntVar, ShapeVar, TensorSpec = dynamic_spec.IntVar, dynamic_spec.ShapeVar, dynamic_spec.TensorSpec


@pytest.fixture
def segments():
    """Where each variant was made."""
    with recorded("segment", datum="where") as seen:
        yield seen


def scaled(x, n=1):
    return (x * n).sum(-1)


def rows(n, width=3):
    return torch.arange(n * width, dtype=torch.float32).view(n, width)


def check_sizes(compiled, plain, sizes=(4, 7, 9, 64)):
    for n in sizes:
        torch.testing.assert_close(compiled(rows(n)), plain(rows(n)))


# ---- name


def test_reports_use_the_name_of_the_function(segments):
    burnish.compile(scaled, name="the head")(rows(2))
    assert [place.function for place in segments] == ["the head"]


def test_name_of_a_module_is_kept_by_copies(segments):
    compiled = burnish.compile(torch.nn.Linear(3, 2), name="the head")
    pickle.loads(pickle.dumps(compiled))(rows(2))
    assert [place.function for place in segments] == ["the head"]


# ---- recompile_limit


@pytest.mark.falls_back("limit")
def test_a_place_runs_eagerly_after_the_limit(segments):
    compiled = burnish.compile(scaled, recompile_limit=2, dynamic=False)
    with pytest.warns(UserWarning, match="2 variants of it exist already"):
        check_sizes(compiled, scaled)
    assert len(segments) == 2


def test_a_higher_limit_than_the_setting_counts(segments):
    with burnish.settings.patch(segment_limit=2), warnings.catch_warnings():
        warnings.simplefilter("error")
        check_sizes(burnish.compile(scaled, recompile_limit=4, dynamic=False), scaled)
    assert len(segments) == 4


def test_with_fullgraph_one_variant_too_many_is_an_error():
    compiled = burnish.compile(scaled, fullgraph=True, recompile_limit=1, dynamic=False)
    compiled(rows(4))
    with pytest.raises(burnish.Unsupported, match="1 variants of it exist already"):
        compiled(rows(5))
    with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        compiled(rows(5))
    compiled(rows(4))


def test_compiled_functions_have_their_own_variants(segments):
    first = burnish.compile(scaled, recompile_limit=1, isolate_recompiles=True, fullgraph=True)
    second = burnish.compile(scaled, recompile_limit=1, fullgraph=True)
    first(rows(4)), second(rows(5)), first(rows(4)), second(rows(5))
    assert len(segments) == 2


# ---- dynamic_shapes


@pytest.mark.falls_back("sizes")
def test_sizes_and_numbers_of_a_specification_vary_from_the_first_call_on(segments):
    spec = {"x": TensorSpec([ShapeVar("batch", max=64), None]), "n": IntVar("n")}
    compiled = burnish.compile(scaled, dynamic_shapes=spec)
    for n in (4, 7, 9, 64):
        torch.testing.assert_close(compiled(rows(n), n), scaled(rows(n), n))
    assert len(segments) == 1
    torch.testing.assert_close(compiled(rows(65), 2), scaled(rows(65), 2))
    assert len(segments) == 2, "the bound is guarded"


def test_sizes_missing_from_a_specification_are_static(segments):
    compiled = burnish.compile(scaled, dynamic_shapes={"x": TensorSpec([ShapeVar("batch"), None])})
    for width in (3, 4, 5):
        torch.testing.assert_close(compiled(rows(4, width)), scaled(rows(4, width)))
    assert len(segments) == 3


@pytest.mark.parametrize("by_name", [False, True])
def test_a_specification_of_a_module_is_that_of_its_forward(segments, by_name):
    linear = torch.nn.Linear(3, 2)
    compiled = burnish.compile(linear, dynamic_shapes={"input": TensorSpec([ShapeVar(), None])})
    for n in (4, 7, 9):
        torch.testing.assert_close(compiled(input=rows(n)) if by_name else compiled(rows(n)), linear(rows(n)))
    assert len(segments) == 1


def test_a_specification_reaches_into_containers_objects_and_rest_arguments(segments):
    class Batch:
        def __init__(self, x):
            self.x = x

    def fn(batch, *more, **named):
        return batch["a"][0].x + more[0] + named["z"]

    tensor = TensorSpec([ShapeVar("n"), None])
    inside = dynamic_spec.DictSpec({"a": dynamic_spec.SeqSpec([dynamic_spec.ObjectSpec({"x": tensor})])})
    spec = dynamic_spec.ParamsSpec({"batch": inside, "*args": [tensor], "**kwargs": {"z": tensor}})
    compiled = burnish.compile(fn, dynamic_shapes=dynamic_spec.ShapesSpec(spec))
    for n in (4, 7, 9):
        x = rows(n)
        torch.testing.assert_close(compiled({"a": [Batch(x)]}, x, z=x), x * 3)
    assert len(segments) == 1


@pytest.mark.skipif(not hasattr(dynamic_spec, "dynamic_spec"), reason="not in this torch")
def test_a_specification_attached_to_the_function_counts(segments):
    @burnish.compile
    @dynamic_spec.dynamic_spec({"x": TensorSpec([ShapeVar(), None])})
    def fn(x):
        return x + 1

    check_sizes(fn, lambda x: x + 1)
    assert len(segments) == 1


# ---- torch.compiler.config and marks


@pytest.mark.parametrize("sources", ["L['x']:0", "L['x']", r"L\['x.*'\]:0", "G['y'], L['x']:0"])
@pytest.mark.parametrize("dynamic", [None, False])
def test_dynamic_sources_vary_from_the_first_call_on(segments, sources, dynamic):
    with torch.compiler.config.patch(dynamic_sources=sources):
        check_sizes(burnish.compile(scaled, dynamic=dynamic), scaled)
    assert len(segments) == 1


@pytest.mark.falls_back("sizes")
def test_dynamic_sources_reach_attributes_of_a_module(segments):
    class Holder(torch.nn.Module):
        def forward(self, scale):
            return self.cache.sum(0) * scale

    holder = Holder()
    with torch.compiler.config.patch(dynamic_sources="L['self'].cache:0, L['scale']"):
        compiled = burnish.compile(holder)
        for n in (4, 7, 9):
            holder.cache = rows(n)
            torch.testing.assert_close(compiled(n), holder(n))
    assert len(segments) == 1


def test_dynamic_values_are_found_wherever_they_are(segments):
    if not hasattr(torch.compiler.config, "dynamic_values"):
        pytest.skip("not in this torch")
    with torch.compiler.config.patch(dynamic_values="1111, 7"):
        check_sizes(burnish.compile(scaled), scaled, (1111, 7, 9))
    assert len(segments) == 1


@pytest.mark.parametrize("mark", ["mark_dynamic", "maybe_mark_dynamic", "mark_unbacked"])
def test_marks_on_arguments_of_modules_count(segments, mark):
    linear = torch.nn.Linear(3, 2)
    compiled = burnish.compile(linear)
    x = rows(4)
    getattr(torch._dynamo.decorators, mark)(x, 0)
    compiled(x)
    check_sizes(compiled, linear)
    assert len(segments) == 1


def test_bounds_of_dynamos_marks_are_guarded(segments):
    compiled = burnish.compile(scaled)
    x = rows(4)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=16)
    compiled(x)
    check_sizes(compiled, scaled, (5, 16))
    assert len(segments) == 1
    check_sizes(compiled, scaled, (17,))
    assert len(segments) == 2


# ---- Dynamo's settings


@pytest.mark.falls_back("limit")
def test_dynamos_recompile_limit_counts(segments):
    for name in ("recompile_limit", "cache_size_limit"):
        segments.clear()
        with torch._dynamo.config.patch({name: 3}), pytest.warns(UserWarning, match="3 variants"):
            check_sizes(burnish.compile(scaled, dynamic=False), scaled)
        assert len(segments) == 3


def test_a_limit_of_dynamos_is_an_error_with_fullgraph_or_where_it_asks_for_one():
    for fullgraph, others in ((True, {}), (False, {"fail_on_recompile_limit_hit": True})):
        with torch._dynamo.config.patch(recompile_limit=1, **others):
            compiled = burnish.compile(scaled, dynamic=False, fullgraph=fullgraph)
            compiled(rows(4))
            with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
                compiled(rows(5))


def test_error_on_recompile_of_dynamo_counts():
    compiled = burnish.compile(scaled)
    compiled(rows(4))
    with torch._dynamo.config.patch(error_on_recompile=True):
        compiled(rows(4))
        with pytest.raises(torch._dynamo.exc.RecompileError, match="error_on_recompile is set"):
            compiled(rows(5))


def test_dynamos_settings_of_dynamic_sizes_count(segments):
    with torch._dynamo.config.patch(assume_static_by_default=False):
        check_sizes(burnish.compile(scaled), scaled)
    assert len(segments) == 1
    segments.clear()
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        check_sizes(burnish.compile(scaled), scaled)
    assert len(segments) == 4


def test_switching_dynamo_off_switches_us_off(monkeypatch):
    with torch._dynamo.config.patch(disable=True):
        assert burnish.compile(scaled) is scaled
    assert burnish.compile(scaled) is not scaled


# ---- errors


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({"name": 3}, "name=3 is not a text"),
        ({"recompile_limit": 0}, "recompile_limit=0 is not a whole number"),
        ({"recompile_limit": True}, "recompile_limit=True"),
        ({"isolate_recompiles": 1}, "isolate_recompiles=1 is not True or False"),
        ({"dynamic_shapes": 3}, "neither a dictionary"),
        ({"dynamic_shapes": {}, "dynamic": True}, "leave out dynamic"),
    ],
)
def test_wrong_arguments_are_user_errors(arguments, said):
    with pytest.raises(UserError, match=said):
        burnish.compile(scaled, **arguments)


def product(x):
    return x @ torch.ones(5, 5)


def test_an_operators_own_error_is_raised_as_it_is_under_fullgraph():
    compiled = burnish.compile(product, fullgraph=True)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
            compiled(rows(4))
        assert type(caught.value) is RuntimeError and "B105" in caught.value.__notes__[0]
    with pytest.raises(IndexError):
        burnish.compile(lambda x: x[7], fullgraph=True)(rows(4))


def test_an_operators_error_that_the_program_may_handle_is_one_of_both_kinds_under_fullgraph():
    """An error about data, that is: one about shapes is handled in the graph."""

    def root(x):
        try:
            return torch.linalg.cholesky(x)
        except RuntimeError:
            return x

    for kind in (RuntimeError, burnish.Unsupported):
        with pytest.raises(kind, match="positive-definite"):
            burnish.compile(root, fullgraph=True)(-torch.eye(3))
    assert torch.equal(burnish.compile(root)(-torch.eye(3)), -torch.eye(3))


def test_an_error_about_shapes_is_handled_in_the_graph():
    def fn(x):
        try:
            return product(x)
        except RuntimeError:
            return x

    assert torch.equal(burnish.compile(fn, fullgraph=True)(rows(4)), rows(4))


def test_a_break_under_fullgraph_is_an_error_of_dynamos_class_too():
    with pytest.raises(torch._dynamo.exc.Unsupported, match="B101") as caught:
        burnish.compile(lambda x: x if x.sum() > 0 else -x, fullgraph=True)(rows(4))
    assert "B101" in caught.value.msg
    assert type(pickle.loads(pickle.dumps(caught.value))) is burnish.Unsupported
