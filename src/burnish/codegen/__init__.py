"""Printers: loop nests to machine code. No operator of ATen is known here by name."""
