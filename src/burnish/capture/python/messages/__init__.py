"""Output messages under a trace: print, format, logging, warnings."""
