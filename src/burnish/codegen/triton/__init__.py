"""The GPU printer: loop nests to Triton's language, and from there to machine code for NVIDIA GPUs.

Box (a loop made simple) -> Tile (the part of it that one program computes) -> text -> cubin -> launched.
"""
