"""What runs after compilation: segments, continuations and compiled programs. Imports nothing from the compiler."""
