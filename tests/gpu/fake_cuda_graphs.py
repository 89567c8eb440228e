"""Fake CUDA graphs on a CPU: nothing is recorded. A replay runs the program again, into the same memory.

    engine = Engine()
    call = CudaGraphProgram(program, [], [], engine, "a graph")
    call(x); call(x)                    engine.captures == 1, engine.replays == 1

Before that it overwrites the program's results, as a GPU's work in progress would: code that kept memory of the graph
without copying it sees NaN or nonsense.
"""

import torch

from burnish.runtime.cuda_graphs.cuda_graph_recording import ExclusiveUse


class Engine:
    """Like a GPU's: recording does not change memory, and each replay writes its results to the first ones' memory."""

    device = torch.device("cpu")

    def __init__(self, fixed=()):
        self.alone = ExclusiveUse()
        self.fixed, self.captures, self.replays, self.at = list(fixed), 0, 0, 0
        self.records_already = False
        self.memories = []

    def stream(self):
        return self.at

    def is_recording(self):
        return self.records_already

    def new_memory(self):
        return object()

    def capture(self, run, memory=None):
        self.captures += 1
        self.memories.append(memory)
        kept, random = [x.detach().clone() for x in self.fixed], torch.get_rng_state()
        result = run()
        # Its results are elsewhere in another run; the rest belongs to its inputs.
        own = [
            x
            for x, y in zip(result, run(), strict=True)
            if isinstance(x, torch.Tensor) and x.data_ptr() != y.data_ptr()
        ]
        for x, old in zip(self.fixed, kept, strict=True):
            x.data.copy_(old)  # does not change the version counter
        torch.set_rng_state(random)
        spoil(own)

        def replay():
            self.replays += 1
            spoil(own)
            for place, made in zip(result, run(), strict=True):
                if isinstance(place, torch.Tensor) and place.data_ptr() != made.data_ptr():
                    place.untyped_storage().copy_(made.untyped_storage())

        return replay, result


def spoil(tensors):
    for x in tensors:
        x.untyped_storage().fill_(255)  # which is NaN for every type of floats
