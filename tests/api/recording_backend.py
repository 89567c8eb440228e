"""A custom backend for tests: it stores the graphs that it is given and runs them as they are."""


class Recording:
    """``burnish.compile(fn, backend=recording)``; then ``recording.graphs`` and ``recording.runs``."""

    __name__ = "recording"

    def __init__(self):
        self.graphs = []
        self.runs = 0

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)

        def run(*inputs):
            self.runs += 1
            return gm.forward(*inputs)

        return run


def operations(graph):
    """The operations of a graph, by name."""
    return [
        getattr(node.target, "__name__", node.target)
        for node in graph.graph.nodes
        if node.op in ("call_function", "call_method")
    ]
