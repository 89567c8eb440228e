"""Machine code into memory, and the addresses of the functions it calls."""
