"""Never slower than eager: compiled code is timed against eager, and the faster one runs."""
