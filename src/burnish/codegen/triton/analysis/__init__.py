"""Facts about the expressions of a loop that decide how they are printed."""
