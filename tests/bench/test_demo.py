"""The demo that a newcomer runs first."""

from bench import demo


def test_every_program_of_the_demo_gives_eager_s_results(monkeypatch, capsys):
    monkeypatch.setattr(demo, "SECONDS_EACH", 0.0)
    monkeypatch.setattr(demo, "RUNS", (1, 1))
    status = demo.main()
    printed = capsys.readouterr().out
    assert status == 0, printed
    assert "not run" not in printed
    assert len(demo.TITLES) + 3 == sum("×" in line for line in printed.splitlines()) - 1, printed


def test_a_wrong_result_is_reported_and_ends_the_demo_with_an_error(monkeypatch, capsys):
    monkeypatch.setattr(demo, "SECONDS_EACH", 0.0)
    monkeypatch.setattr(demo, "RUNS", (1, 1))
    monkeypatch.setattr(demo, "examples", lambda: iter([("off by one", off_by_one)]))
    assert demo.main() == 1
    assert "Wrong: off by one" in capsys.readouterr().out


def off_by_one():
    import torch

    return demo.Example(lambda: torch.zeros(2), lambda: torch.ones(2))
