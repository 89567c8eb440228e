"""Attackers: programs that others wrote or that are made at random, compiled and run beside eager.

    python -m bench.attack.databases --seed 0 --count 100
    python -m bench.attack.models --seed 0 --count 100
"""
