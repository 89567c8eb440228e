"""Guards: what must still hold for a segment to run again, where it is looked up, and how that is asked in no time."""
