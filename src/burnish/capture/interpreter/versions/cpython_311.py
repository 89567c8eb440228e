"""CPython 3.11: the family files are written in its terms; nothing differs."""
