"""Choosing library calls: which are measured, cached and dropped. The times themselves are not tested."""

import sys
from dataclasses import replace

import pytest
import torch

from burnish.codegen.llvm import target_cpu
from burnish.codegen.llvm.functions import matmul
from burnish.concurrency import waits_for_cores
from burnish.schedule.library.autotune_library_calls import (
    AGAIN_SECONDS,
    BUSY_SECONDS,
    FROM_MEMORY,
    LIKELY,
    MOST_ATTEMPTS,
    SMALL,
    WORTH,
    Measurements,
    candidates,
    choose,
    choose_thoroughly,
    first_likely,
    key_of,
)
from burnish.schedule.library.call_candidates import convolution_backward_times
from burnish.schedule.library.call_candidates.convolution import in_channels_last
from burnish.schedule.library.call_candidates.convolution_backward_times import ConvBackwardSpec
from burnish.schedule.library.call_specs import AttentionSpec, ConvSpec, LinearSpec, MatmulSpec
from burnish.schedule.library.measure_candidates import Measurement, bind, measure, random_tensor
from burnish.schedule.library.own_kernels import matmul_tiling_and_packing
from burnish.schedule.library.own_kernels.own_matmul_and_convolution import NAME as OWN
from burnish.schedule.library.shrink_benchmarks import FEWEST_ROWS, LARGE, resized, shrunk
from burnish.tensors.tensor_types import TensorType

from ..runtime.concurrent_threads import at_once
from .library_references import bf16, error, f32, make_inputs, reference, strided

SPEC = LinearSpec(f32(32, 64), f32(48, 64), f32(48), is_frozen=True)


def image_of_series(channels: int) -> ConvSpec:
    return ConvSpec(f32(2, channels, 16, 16), f32(128, channels, 1, 1), None, None, None, (1, 1), (0, 0), (1, 1))


def timed(seconds: dict[str, float], spec=SPEC) -> Measurements:
    """A memory that has seen these seconds."""
    memory = Measurements()
    memory.load({key_of(spec): "; ".join(f"{name}={time}" for name, time in seconds.items())})
    return memory


def test_choice_is_right_and_was_measured():
    inputs = make_inputs(SPEC)
    choice = choose(SPEC, seconds=0.002, memory=Measurements())
    assert error(choice.candidate.run(*bind(choice.candidate, inputs)), reference(SPEC, inputs)) < 1e-5
    assert choice.seconds == choice.measured[choice.candidate.name] > 0
    assert choice.measured.keys() == {candidate.name for candidate in candidates(SPEC)}


def test_fastest_is_chosen():
    assert (
        choose(SPEC, seconds=0, memory=timed({"addmm": 3e-4, "onednn": 1e-4, "onednn packed": 2e-4})).candidate.name
        == "onednn"
    )


def test_difference_within_noise_leaves_the_earlier_candidate():
    just, enough = WORTH + 0.01, WORTH - 0.01
    assert choose(SPEC, seconds=0, memory=timed({"addmm": 1.0, "onednn": just})).candidate.name == "addmm"
    assert choose(SPEC, seconds=0, memory=timed({"addmm": 1.0, "onednn": enough})).candidate.name == "onednn"


def test_only_accepted_candidates_are_chosen():
    memory = timed({"addmm": 3e-4, "onednn": 2e-4, "onednn packed": 1e-4})
    choice = choose(SPEC, seconds=0, memory=memory, accept=lambda c: c.prepare is None)
    assert choice.candidate.name == "onednn" and choice.seconds == 2e-4
    assert choose(SPEC, seconds=0, memory=memory, accept=lambda c: False).candidate.name == "addmm"


def test_measurement_is_remembered():
    memory = Measurements()
    first = choose(SPEC, seconds=0.001, memory=memory)
    second = choose(replace(SPEC), seconds=0.001, memory=memory)
    assert second.measured == first.measured


def test_number_of_threads_is_part_of_the_key():
    before, threads = key_of(SPEC), torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert key_of(SPEC) != before
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "change",
    [
        dict(x=strided((32, 64), (1, 32))),
        dict(weight=strided((48, 64), (1, 48))),
        dict(bias=None),
        dict(is_frozen=False),
        dict(residual=f32(32, 48)),
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_part_of_a_spec_is_part_of_the_key(change):
    assert key_of(replace(SPEC, **change)) != key_of(SPEC)


def test_window_is_part_of_the_key():
    spec = ConvSpec(f32(1, 4, 9, 9), f32(4, 4, 3, 3), None, None, None, (1, 1), (1, 1), (1, 1))
    others = [
        replace(spec, stride=(2, 2)),
        replace(spec, padding=(2, 2)),
        replace(spec, dilation=(2, 2)),
        replace(spec, transposed=True),
        in_channels_last(spec),
    ]
    assert len({key_of(s) for s in [spec, *others]}) == 6


def test_memory_goes_to_text_and_back():
    memory = timed({"addmm": 1.5e-4, "onednn packed": 1e-4})
    copy = Measurements()
    copy.load(memory.export())
    assert copy.export() == memory.export() == {key_of(SPEC): "addmm=0.00015; onednn packed=0.0001"}


def test_text_that_is_not_a_measurement_is_ignored():
    memory = Measurements()
    memory.load({key_of(SPEC): "addmm", "other": "x=y", "third": ""})
    assert memory.export() == {}
    memory.load({key_of(SPEC): "a candidate of another version=1"})
    assert choose(SPEC, seconds=0, memory=memory).candidate.name == "addmm"


@pytest.fixture
def measurements(monkeypatch):
    """What the next measurements give, first to last."""
    to_come = []
    # The package's attribute of that name is the function, not the module.
    module = sys.modules["burnish.schedule.library.autotune_library_calls"]
    monkeypatch.setattr(module, "measure", lambda candidates, seconds: to_come.pop(0))
    return to_come


def test_disturbed_measurement_is_not_exported_and_is_repeated(measurements):
    measurements += [
        Measurement({"addmm": 5.0, "onednn": 4.0}, is_steady=False),
        Measurement({"addmm": 1.0, "onednn": 2.0}),
    ]
    memory = Measurements()
    first = choose(SPEC, seconds=0, memory=memory)
    assert (first.candidate.name, first.is_steady, memory.export()) == ("onednn", False, {})
    second = choose(SPEC, seconds=0, memory=memory)
    assert (second.candidate.name, second.is_steady) == ("addmm", True)
    assert memory.export() == {key_of(SPEC): "addmm=1; onednn=2"}
    assert choose(SPEC, seconds=0, memory=memory).measured == second.measured


def test_shorter_times_of_disturbed_measurements_count_and_are_final_after_three(measurements):
    measurements += [Measurement({"addmm": first, "onednn": 10 - first}, is_steady=False) for first in (5.0, 7.0, 3.0)]
    memory = Measurements()
    for _ in range(5):
        last = choose(SPEC, seconds=0, memory=memory)
    assert not measurements and last.measured == {"addmm": 3.0, "onednn": 3.0} and not last.is_steady


def test_disturbed_measurement_overrides_the_prediction_only_by_a_wide_margin(measurements):
    """A wait for a core says nothing about the candidates."""
    times = {"addmm": 1.0, "onednn": 1.0, "onednn packed": 2.0}
    for is_steady, least, expected in ((False, 1.0, "onednn packed"), (True, 1.0, "addmm"), (False, 0.1, "addmm")):
        measurements.append(Measurement(times | {"addmm": least}, is_steady=is_steady))
        assert choose(SPEC, seconds=0, memory=Measurements()).candidate.name == expected


def test_on_a_busy_machine_measuring_waits_for_a_while(measurements, monkeypatch):
    """The probably fastest candidate is taken for now, and is not cached."""
    now = [0.0]
    monkeypatch.setattr(sys.modules["burnish.schedule.library.autotune_library_calls"], "perf_counter", lambda: now[0])
    others = [replace(SPEC, x=f32(rows, 64)) for rows in range(40, 60)]

    class Slow(list):
        def pop(self, at):
            now[0] += BUSY_SECONDS / 2 + 0.01
            return super().pop(at)

    monkeypatch.setattr(
        sys.modules["burnish.schedule.library.autotune_library_calls"], "measure", lambda *_: slow.pop(0)
    )
    slow = Slow([Measurement({"addmm": 1.0, "onednn": 2.0}, is_steady=False) for _ in range(3)])
    memory = Measurements()
    chosen = [choose(spec, seconds=0, memory=memory) for spec in others]
    assert len(slow) == 1, "two were measured, then it was seen that it leads nowhere"
    assert [c.candidate.name for c in chosen[:3]] == ["addmm", "addmm", chosen[-1].candidate.name]
    assert chosen[-1].candidate.name in LIKELY and chosen[-1].seconds and not chosen[-1].is_steady
    now[0] += AGAIN_SECONDS
    assert choose(others[-1], seconds=0, memory=memory).candidate.name == "addmm" and not slow
    assert memory.export() == {}


@pytest.mark.parametrize(
    "waits,steady,stretches",
    [([0, 0], True, 1), ([0, 9, 9, 9], True, 2), ([0, 9, 9, 99, 99, 999], False, 3), ([None], True, 1)],
)
def test_measuring_goes_on_while_others_have_the_cores(monkeypatch, waits, steady, stretches):
    """Seconds waited, before and after each stretch."""
    left, runs = list(waits), []
    monkeypatch.setattr("burnish.concurrency.waits_for_cores.seconds_waited", lambda: left.pop(0))
    eager = candidates(SPEC)[0]
    counted = replace(eager, run=lambda *tensors: runs.append(1) or eager.run(*tensors), run_into=None, steps=None)
    assert measure([counted], 0.0).is_steady is steady
    assert not left and len(runs) == 2 + stretches


def test_waiting_for_a_core_is_counted():
    waited = waits_for_cores.seconds_waited()
    assert waited is None or waits_for_cores.seconds_waited() >= waited >= 0


def test_candidate_that_raises_is_dropped():
    def fail(*tensors):
        raise RuntimeError("could not create a primitive\nwith details")

    eager, *others = candidates(SPEC)
    broken = replace(eager, name="broken", run=fail, run_into=None, steps=None)
    measured = measure([eager, broken, *others], 0.001)
    assert measured.dropped == {"broken": "could not create a primitive"}
    assert "broken" not in measured.least and eager.name in measured.least


def test_candidate_that_cannot_pack_is_dropped():
    eager, *others = candidates(SPEC)
    broken = replace(others[-1], prepare=lambda weight, bias: 1 / 0)
    assert measure([eager, broken], 0.001).dropped == {broken.name: "division by zero"}


def test_candidate_that_gives_another_type_than_it_said_is_dropped():
    eager, *_ = candidates(SPEC)
    liar = replace(
        eager, name="liar", run=lambda *tensors: eager.run(*tensors).t().contiguous().t(), run_into=None, steps=None
    )
    assert measure([eager, liar], 0.001).dropped == {"liar": "gives f32[32, 48]{1, 32} where it said f32[32, 48]"}


def test_error_of_eager_is_the_callers():
    spec = ConvSpec(f32(1, 4, 2, 2), f32(4, 4, 9, 9), None, None, None, (1, 1), (3, 3), (1, 1))
    with pytest.raises(RuntimeError, match="Kernel size"):
        measure(candidates(spec), 0.001)


def test_small_work_is_left_to_eager_unmeasured():
    spec = LinearSpec(f32(2, 8), f32(8, 8), is_frozen=True)
    assert spec.flops < SMALL
    choice = choose(spec, seconds=0.001, memory=Measurements())
    assert (choice.candidate.name, choice.seconds, choice.measured) == ("mm", None, {})


def test_one_row_of_a_large_weight_is_left_to_eager_unmeasured_where_no_kernel_of_ours_reads_it():
    memory = Measurements()
    rows, columns = FROM_MEMORY // 8 // 512, 512
    weight = TensorType.contiguous((rows, columns), torch.float64)
    spec = LinearSpec(TensorType.contiguous((1, columns), torch.float64), weight, is_frozen=True)
    choice = choose(spec, seconds=0.001, memory=memory)
    assert choice.candidate.name == "mm" and choice.seconds is None and memory.export() == {}
    for spec in (
        LinearSpec(f32(1, columns), f32(rows // 4, columns), is_frozen=True),
        LinearSpec(f32(2, columns), f32(2 * rows, columns), is_frozen=True),
    ):
        assert choose(spec, seconds=0.001, memory=memory).seconds is not None


def test_small_convolution_goes_to_our_own_kernel_unmeasured():
    pixel = TensorType.contiguous((1, 16, 1, 1), torch.float32)
    spec = ConvSpec(pixel, f32(8, 16, 1, 1), f32(8), None, None, (1, 1), (0, 0), (1, 1), is_frozen=True)
    memory = Measurements()
    choice = choose(spec, seconds=0.001, memory=memory)
    assert (
        choice.candidate.name == (OWN if matmul_tiling_and_packing.shape_here() else "convolution")
        and memory.export() == {}
    )


@pytest.mark.skipif(
    torch.bfloat16 not in matmul_tiling_and_packing.dtypes_of_tiles(), reason="does not multiply pairs of bf16"
)
@pytest.mark.parametrize("units", [False, True])
def test_libraries_with_matrix_instructions_come_before_our_own_kernels(monkeypatch, units):
    machine = target_cpu.host()
    features = [name for name in machine.features.split(",") if not name.endswith("amx-bf16")]
    machine = replace(machine, features=",".join([*features, f"{'+' if units else '-'}amx-bf16"]))
    monkeypatch.setattr(matmul, "host", lambda: machine)
    linear = LinearSpec(bf16(32, 64), bf16(48, 64), bf16(48), is_frozen=True)
    assert first_likely(candidates(linear)).name == ("onednn packed" if units else OWN)
    assert first_likely(candidates(SPEC)).name == OWN, "the unit does not multiply float32"
    image = ConvSpec(bf16(1, 16, 8, 8), bf16(8, 16, 3, 3), None, None, None, (1, 1), (1, 1), (1, 1), is_frozen=True)
    memory = Measurements()
    assert SMALL < image.flops
    choice = choose(in_channels_last(image), seconds=0.001, memory=memory)
    assert OWN in choice.measured and (len(choice.measured) > 1) == units


def test_single_candidate_is_not_measured():
    memory = Measurements()
    batch = TensorType.contiguous((8, 64, 64), torch.float64)
    choice = choose(MatmulSpec(batch, batch), seconds=0.001, memory=memory)
    assert choice.candidate.name == "bmm" and choice.seconds is None and memory.export() == {}


def test_large_work_is_measured_on_less_of_it():
    spec = LinearSpec(f32(65536, 768), f32(3072, 768), f32(3072), f32(65536, 3072), is_frozen=True)
    small = shrunk(spec)
    assert small == LinearSpec(f32(FEWEST_ROWS, 768), f32(3072, 768), f32(3072), f32(FEWEST_ROWS, 3072), is_frozen=True)
    memory = timed({"addmm": 2.0, "mkl packed": 1.0}, small)
    choice = choose(spec, seconds=0, memory=memory)
    assert choice.measured["addmm"] > 2.0 * 65536 / FEWEST_ROWS


@pytest.mark.parametrize(
    "spec",
    [
        LinearSpec(f32(4096, 512), f32(50000, 512)),
        LinearSpec(strided((4096, 512), (1, 4096)), strided((50000, 512), (1, 50000))),
        ConvSpec(f32(64, 64, 56, 56), f32(64, 64, 3, 3), None, None, None, (1, 1), (1, 1), (1, 1)),
        MatmulSpec(f32(4096, 512), f32(512, 50000)),
        LinearSpec(f32(256, 50000), strided((768, 50000), (1, 768))),
        MatmulSpec(f32(256, 50000), f32(50000, 768)),
        MatmulSpec(f32(960, 512, 64), f32(960, 64, 512)),
        AttentionSpec(f32(64, 12, 512, 64), f32(64, 12, 512, 64), f32(64, 12, 512, 64), f32(64, 1, 1, 512)),
        AttentionSpec(f32(64, 12, 512, 64), f32(64, 12, 512, 64), f32(64, 12, 512, 64), f32(1, 1, 512, 512)),
        image_of_series(608),
        in_channels_last(image_of_series(608)),
        LinearSpec(f32(512, 128), strided((608, 128), (1, 608))),
    ],
    ids=repr,
)
def test_shrunk_spec_is_a_spec_of_the_same_candidates(spec):
    small = shrunk(spec)
    assert small.flops < spec.flops and small.flops < 4 * LARGE
    assert [c.name for c in candidates(small)] == [c.name for c in candidates(spec)]


@pytest.mark.parametrize("of_series", [image_of_series, lambda channels: LinearSpec(f32(512, 128), f32(channels, 128))])
def test_neighbours_in_a_series_of_channels_share_a_measurement(of_series):
    assert {shrunk(of_series(channels)) for channels in range(512, 640, 32)} == {of_series(512), of_series(448)}
    for channels in (24, 32, 96, 160, 224, 320, 384, 768, 1000, 1024):
        assert shrunk(spec := of_series(channels)) is spec
    memory = timed({candidate.name: 1.0 for candidate in candidates(of_series(448))}, of_series(448))
    assert choose(of_series(608), seconds=0, memory=memory).seconds == pytest.approx(608 / 448)


def test_times_of_gradients_in_a_series_of_channels_share_a_measurement(monkeypatch):
    memory = timed({"convolution_backward": 1.0}, ConvBackwardSpec(image_of_series(448), (True, True, False)))
    monkeypatch.setattr(convolution_backward_times, "memory", memory)
    spec = ConvBackwardSpec(image_of_series(544), (True, True, False))
    assert convolution_backward_times.seconds_of(spec, 0) == pytest.approx(544 / 448)


def test_spec_that_is_not_large_stays():
    assert shrunk(SPEC) is SPEC


def test_resized_type_keeps_its_order_in_memory():
    assert resized(f32(64, 8, 5, 5), 0, 2) == f32(2, 8, 5, 5)
    assert resized(strided((64, 512), (1, 64)), 0, 4) == strided((4, 512), (1, 4))
    assert resized(strided((64, 8, 5, 5), (200, 1, 40, 8)), 0, 2) == strided((2, 8, 5, 5), (200, 1, 40, 8))
    assert resized(strided((64, 512), (1000, 1)), 0, 4) == strided((4, 512), (1000, 1))


def test_random_tensor_has_its_type():
    for type in (
        f32(3, 4),
        strided((3, 4), (0, 1)),
        strided((3, 0), (1, 1)),
        TensorType.contiguous((5,), torch.bool),
        strided((3, 4), (10, 2), torch.bfloat16),
    ):
        assert TensorType.of(random_tensor(type)) == type


def test_many_threads_may_choose_at_once():
    memory, choices = Measurements(), []
    at_once(*((lambda: choices.append(choose(SPEC, seconds=0.002, memory=memory))) for _ in range(6)))
    assert len(choices) == 6
    seen = {tuple(choice.measured.items()) for choice in choices} - {()}  # nothing, where the machine is too busy
    assert len(seen) <= (1 if all(choice.is_steady for choice in choices) else MOST_ATTEMPTS)


def test_gradients_are_not_recorded_while_measuring():
    with torch.enable_grad():
        assert choose(SPEC, seconds=0.001, memory=Measurements()).measured


def test_modes_of_the_caller_change_nothing():
    with torch.device("meta"), torch.autocast("cpu", dtype=torch.bfloat16):
        choice = choose(SPEC, seconds=0.001, memory=Measurements())
    assert choice.measured.keys() == {candidate.name for candidate in candidates(SPEC)}


@pytest.mark.parametrize(
    "spec",
    [
        LinearSpec(f32(4, 8), f32(8, 8), f32(8), is_frozen=True),
        in_channels_last(
            ConvSpec(f32(1, 8, 4, 4), f32(8, 8, 1, 1), None, None, None, (1, 1), (0, 0), (1, 1), is_frozen=True)
        ),
        ConvSpec(f32(1, 8, 4, 4), f32(8, 8, 1, 1), None, None, None, (1, 1), (0, 0), (1, 1), is_frozen=True),
    ],
    ids=repr,
)
def test_results_are_on_the_cpu_for_every_default_device(spec):
    inputs = make_inputs(spec)
    with torch.device("meta"):
        for candidate in candidates(spec):
            assert candidate.run(*bind(candidate, inputs)).device.type == "cpu"


def thoroughly(usual: dict[str, float], at_length: Measurement, measurements: list) -> str:
    """The name of the choice, given both measurements."""
    measurements += [Measurement(usual), at_length]
    return choose_thoroughly(SPEC, seconds=0, memory=Measurements()).candidate.name


def test_thorough_choice_takes_a_surely_faster_candidate(measurements):
    usual = {"addmm": 3.0, "onednn": 1.0, "onednn packed": 2.0}
    surely, hardly = (Measurement({"addmm": 3.0, "onednn": 1.0, "onednn packed": time}) for time in (0.9, 0.97))
    assert thoroughly(usual, surely, measurements) == "onednn packed"
    assert thoroughly(usual, hardly, measurements) == "onednn"


def test_thorough_choice_ignores_a_disturbed_measurement(measurements):
    usual = {"addmm": 3.0, "onednn": 1.0}
    assert thoroughly(usual, Measurement({"addmm": 0.1, "onednn": 1.0}, is_steady=False), measurements) == "onednn"


def test_thorough_choice_keeps_a_usual_choice_that_was_not_measured(measurements):
    assert thoroughly({"onednn": 1.0}, Measurement({"addmm": 0.1}), measurements) == "onednn"


def test_at_length_small_convolutions_are_measured_too(measurements):
    if matmul_tiling_and_packing.shape_here() is None:
        pytest.skip("no kernels of our own for this machine")
    pixel = TensorType.contiguous((1, 16, 1, 1), torch.float32)
    spec = ConvSpec(pixel, f32(8, 16, 1, 1), f32(8), None, None, (1, 1), (0, 0), (1, 1), is_frozen=True)
    other = candidates(spec)[0].name
    measurements.append(Measurement({OWN: 1.0, other: 0.5}))
    assert choose_thoroughly(spec, seconds=0, memory=Measurements()).candidate.name == other
