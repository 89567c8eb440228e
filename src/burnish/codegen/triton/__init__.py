"""Triton code generation: loop nests to Triton, and from there to machine code for NVIDIA GPUs.

Box (a simplified loop) -> Tile (the part of it that one program computes) -> text -> cubin -> launched.
"""
