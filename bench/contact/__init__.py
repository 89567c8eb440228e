"""The first minutes on a machine with a GPU: many small checks, the most instructive first, and no result is lost.

    python -m bench.contact contact               right or wrong: kernels, call orders, graphs; 4 minutes
    python -m bench.contact speed                 bandwidth, first calls and steady times beside torch.compile
    python -m bench.contact models                large models: time, memory, generation
    python -m bench.contact rest                  tutorials, autotuning, sanitizer, profiler, all operators
    python -m bench.contact contact --rehearse    the same with small sizes, on a CPU

Each check has a process and a time limit of its own (`check_runner`). A line of JSON is printed when it ends, and
appended to `COMMAND.jsonl` in $OUT or the folder given by `--out`. A failing check writes everything needed to fix it
to `COMMAND.details.txt`: traceback, inputs, events, the text of its Triton kernels, its output. Both files are complete
after each check, so nothing is lost if the command is killed.
"""
