"""What a compilation reports while a benchmark runs: breaks, and how much was traced.

Listens to `burnish.events`. What the compiler does not report stays `None`, so that a benchmark can say "unknown"
instead of a zero that was not measured.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

CODE = re.compile(r"\b[A-Z]\d{3}\b")


class Observed:
    """Collects events while it is entered: `with Observed() as seen: ...; seen.break_codes`."""

    def __init__(self):
        self.breaks: list[str] = []
        self.instructions: int | None = None
        self.seconds: float | None = None
        self.torch_seconds = 0.0
        self.listening = False
        self._stop = None

    def __enter__(self) -> Observed:
        try:
            events = importlib.import_module("burnish.events")
        except ImportError:
            return self
        self._stop = events.subscribe(self.note)
        self.listening = True
        return self

    def __exit__(self, *_) -> None:
        if self._stop is not None:
            self._stop()

    def note(self, event: Any) -> None:
        data = event.data
        if event.kind.partition(".")[0] == "breaks":
            self.breaks.append(describe_break(data))
        elif event.kind.rpartition(".")[2] == "traced":
            if data.get("instructions") is not None:
                self.instructions = (self.instructions or 0) + data["instructions"]
            if data.get("seconds") is not None:
                self.seconds = (self.seconds or 0.0) + data["seconds"]
                self.torch_seconds += data.get("torch_seconds", 0.0)

    @property
    def break_codes(self) -> list[str]:
        """The code of each break, `B000` if the event has none."""
        found = (CODE.search(text) for text in self.breaks)
        return [match.group() if match else "B000" for match in found]

    def microseconds_per_instruction(self) -> float | None:
        """The time of tracing, without torch's own calls, which eager makes as well."""
        if not self.instructions or self.seconds is None:
            return None
        return (self.seconds - self.torch_seconds) / self.instructions * 1e6


def describe_break(data: dict[str, Any]) -> str:
    """The headline of the break object that an event carries, else its text."""
    for value in data.values():
        if hasattr(value, "headline"):
            return str(value.headline)
    return str(data.get("text", data))


class GraphCounter:
    """A backend that runs graphs as they are and remembers them."""

    def __init__(self):
        self.graphs: list[Any] = []

    def __call__(self, graph: Any, example_inputs: Any) -> Any:
        self.graphs.append(graph)
        return graph.forward
