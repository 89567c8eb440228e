"""Code generation: loop nests to machine code. No ATen operator is known here by name."""
