"""Guards: the conditions under which a segment may run again, the sources they read, and fast ways to check them."""
