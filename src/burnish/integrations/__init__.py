"""Where a framework demands its own classes: the one place that may import them."""
