"""Attackers: programs from outside, made at random or taken from elsewhere, compiled beside eager.

    python -m bench.attack.programs --seed 7 --count 1000       the language corpus with changed texts
    python -m bench.attack.errors --seed 7 --count 1000         operators that fail on their data
    python -m bench.attack.state --seed 7 --count 1000          calls with state changed between them
    python -m bench.attack.layouts --seed 7 --count 1000        every candidate, operands of every layout
    python -m bench.attack.sizes --seed 7 --count 1000          operators at changing sizes, also where eager raises
    python -m bench.attack.borders --seed 7 --count 100         joined and sliced values whose borders cross
    python -m bench.attack.rules                                shape rules beside eager's kernels
    python -m bench.attack.models --seed 7 --count 100          NNSmith's models
    python -m bench.attack.databases                            torch's databases of modules and functions
    python -m bench.attack.subclasses --seed 7 --count 1000     containers whose methods are overridden
    python -m bench.attack.files --inputs 1000000               exported files, changed at random
    python -m bench.attack.threads --minutes 10                 threads, cold caches, resets
    python -m bench.attack.interrupts --minutes 10              signals at any line of a first call
    python -m bench.attack.campaign --count 20000 --seed 7      those that compare with eager, all together

Each prints its seed, what differs from eager, and how many programs ran compiled.
"""
