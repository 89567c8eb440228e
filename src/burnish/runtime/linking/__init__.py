"""Load machine code into memory and resolve the addresses of the functions it calls."""
