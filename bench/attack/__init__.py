"""Attackers: programs that are made at random, compiled and run beside eager."""
