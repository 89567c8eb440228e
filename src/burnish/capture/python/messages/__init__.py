"""Text that a program writes: print, format, logging, warnings."""
