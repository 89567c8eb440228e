"""Views as maps of indices: composed, simplified, and read from strides."""
