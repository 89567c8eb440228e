"""What runs after compilation: segments and their continuations. Imports nothing of the compiler."""
