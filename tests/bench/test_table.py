"""Arithmetic of the tables: means over existing values, comparisons over models that both run."""

import math

import pytest
from bench.record import Cold, Overhead, Result, Row, Run
from bench.table import NONE, advantage, as_markdown, geomean, notes, report, speed, steady, tables, then_and_now, times

MACHINE = {"cpu": "some", "torch_threads": 2, "packages": {"torch": "2"}, "when": "now"}


def row(model, eager, **ratios):
    """A row of ratios; a contestant without one failed."""
    results = {"eager": Result(seconds=eager, ratio=1.0, first_call=eager * 2, error=1e-7, error_ratio=1.0)}
    for name, ratio in ratios.items():
        results[name] = (
            Result(why="cannot")
            if ratio is None
            else Result(seconds=eager / ratio, ratio=ratio, first_call=10.0 / ratio, error=2e-7, error_ratio=2.0)
        )
    return Row(model, "inference", results, breaks=0)


def run_of(*rows):
    return Run(MACHINE, {"mode": "inference"}, list(rows[0].results), list(rows))


def cells(table, first):
    return next(found for found in [*table.rows, *table.summary] if found[0] == first)


def test_geometric_mean_covers_the_known_ratios():
    assert geomean([2.0, None, 8.0]) == pytest.approx(4.0)
    assert geomean([None]) is None and geomean([]) is None


def test_summary_of_the_steady_state():
    run = run_of(row("a", 1.0, burnish=4.0, other=1.0), row("b", 2.0, burnish=1.0, other=None))
    table = steady(run, run.rows)
    assert table.headings == ["model", "eager", "burnish", "other", "breaks"]
    assert cells(table, "b")[2:] == ["1.00×", NONE, "0"]
    assert cells(table, "models")[2:] == ["2", "1", ""]
    assert cells(table, "geomean")[2:] == ["2.00×", "1.00×", ""]
    assert cells(table, "lowest")[2:] == ["1.00×", "1.00×", ""]
    # Over eager on both models, over the other only on the one it can do.
    assert cells(table, "burnish over it") == ["burnish over it", "2.00×", NONE, "4.00×", ""]


def test_advantage_counts_the_models_that_both_can_do():
    rows = [
        row("a", 1.0, burnish=4.0, other=2.0),
        row("b", 1.0, burnish=3.0, other=None),
        row("c", 1.0, burnish=None, other=3.0),
    ]
    assert advantage(rows, "other", speed) == [2.0]


def test_first_call_is_better_when_it_is_less():
    rows = [row("a", 1.0, burnish=5.0, other=1.0)]
    assert advantage(rows, "other", lambda result: result.first_call, better_is_less=True) == [5.0]


def test_speed_of_a_wrong_result_is_marked_and_counts_nowhere():
    run = run_of(row("a", 1.0, burnish=9.0), row("b", 1.0, burnish=2.0))
    run.rows[0].results["burnish"].error_ratio = math.inf
    table = steady(run, run.rows)
    assert cells(table, "a")[2] == "9.00×!" and cells(table, "geomean")[2] == "2.00×"
    assert any(text.startswith("! a, burnish") for text in notes(run))


def test_reasons_and_a_busy_machine_are_reported():
    run = run_of(row("a", 1.0, burnish=2.0, other=None))
    assert notes(run) == [f"{NONE} a, other: cannot"]
    run.rows[0].foreign_load = 0.4
    assert any("other work took up to 40%" in text for text in notes(run))


def test_memory_is_shown_as_multiples_of_eager():
    run = run_of(row("a", 1.0, burnish=2.0))
    for name, peak in (("eager", 100 << 20), ("burnish", 150 << 20)):
        run.rows[0].results[name].cold = Cold(1.0, 0.1, 0.1, 0.1, 0.1, 1, peak, peak)
    found = {table.title.partition(":")[0]: table for table in tables(run)}
    assert cells(found["Peak memory of that process"], "a") == ["a", "100 MB", "1.50×"]


def test_tables_of_memory_and_starts_are_left_out_when_not_measured():
    titles = [table.title for table in tables(run_of(row("a", 1.0, burnish=2.0)))]
    assert len(titles) == 3 and not any("memory" in title or "process" in title for title in titles)


def test_run_of_failures_alone_has_a_report():
    failed = Row("a", "inference", {"eager": Result(why="no library"), "burnish": Result(why="no library")})
    text = report(run_of(failed))
    assert "no library" in text and tables(run_of(failed)) == []


def test_overhead_is_in_microseconds_with_its_sign():
    run = Run(
        MACHINE,
        {},
        ["eager", "burnish"],
        overheads=[Overhead("10 modules", 10, 5e-5, {"burnish": -2e-6}, {"other": "absent"})],
    )
    text = report(run)
    assert "-2.0" in text and "50.0" in text and "10 modules, other: absent" in text


def test_overhead_beyond_the_graph_has_a_line_for_each_parameter():
    overheads = [
        Overhead("one operator", 0, 5e-5, beyond={"burnish": 9e-6}),
        *(
            Overhead(f"{n} modules", n, 5e-5, beyond={"burnish": 3e-6 + n * 0.25e-6}, parameters=n)
            for n in (10, 50, 100)
        ),
        *(Overhead(f"{n} parameters", 1, 5e-5, beyond={"burnish": 3e-6 + n * 0.125e-6}, parameters=n) for n in (8, 16)),
    ]
    table = tables(Run(MACHINE, {}, ["eager", "burnish"], overheads=overheads))[-1]
    assert [line[1] for line in table.rows] == ["9.00", "5.50", "15.50", "28.00", "4.00", "5.00"]
    assert table.summary == [["each module with a parameter", "0.250"], ["each further parameter", "0.125"]]


def test_change_since_another_run():
    then, now = run_of(row("a", 1.0, burnish=2.0)), run_of(row("a", 1.0, burnish=3.0), row("b", 1.0, burnish=7.0))
    table = then_and_now(now, then)
    assert [found[0] for found in table.rows] == ["a"]
    assert cells(table, "a")[1:4] == ["2.00×", "3.00×", "1.50×"]


def test_columns_of_the_text_are_aligned_and_variants_have_a_line():
    one = row("a", 1.0, burnish=2.0)
    one.results["torch.compile:freezing"] = one.results["burnish"]
    text = report(run_of(one))
    assert "torch.compile:freezing" not in text
    head, variant = next(
        (line, text.splitlines()[i + 1]) for i, line in enumerate(text.splitlines()) if line.startswith("model")
    )
    assert variant.strip() == "freezing"
    assert head.index("torch.compile") + len("torch.compile") == variant.index("freezing") + len("freezing")


def test_markdown_has_as_many_cells_in_every_line():
    table = steady(run := run_of(row("a", 1.0, burnish=2.0)), run.rows)
    lines = [line for line in as_markdown(table).splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1 and len(lines) == 2 + 1 + 3


@pytest.mark.parametrize("value,text", [(None, NONE), (1.234, "1.23×"), (123.4, "123×"), (math.inf, "∞")])
def test_ratios_are_written_short(value, text):
    assert times(value) == text


def test_modes_are_compared_with_the_same_mode():
    names = ["burnish:reduce-overhead", "torch.compile", "torch.compile:reduce-overhead", "torch.compile:freezing"]
    ratios = {"a": (4.0, 1.0, 2.0, 9.0), "b": (1.0, 1.0, 4.0, 9.0)}
    rows = [row(name, 1.0, burnish=2.0, **dict(zip(names, found, strict=True))) for name, found in ratios.items()]
    run = run_of(*rows)
    table = next(found for found in tables(run) if found.title.startswith("Mode against mode"))
    # Over torch.compile: 4/2 and 1/4, so a half to the root, and a quarter at least. Over eager: 4 and 1.
    assert cells(table, "reduce-overhead") == [
        "reduce-overhead",
        "2",
        "0.71×",
        "0.25×",
        "2.00×",
        "1.00×",
        "2.83×",
        "0.71×",
    ]
    assert cells(table, "default")[1:4] == ["2", "2.00×", "2.00×"] and len(table.rows) == 2


def test_default_mode_alone_needs_no_table_of_modes():
    def has_modes(run):
        return any(table.title.startswith("Mode") for table in tables(run))

    assert not has_modes(run_of(row("a", 1.0, burnish=2.0, **{"torch.compile": 1.0})))
    assert has_modes(
        run_of(row("a", 1.0, burnish=2.0, **{"burnish:max-autotune": 2.0, "torch.compile:max-autotune": 1.0}))
    )


def test_gpu_is_named_where_it_was_measured():
    run = run_of(row("a", 1.0, burnish=2.0))
    run.machine["gpu"] = "a GPU"
    assert "a GPU" not in report(run)
    run.settings.update(device="cuda", dtype="bfloat16")
    assert report(run).startswith("a GPU (timed by its events), bfloat16, some")
