"""CPython 3.11: the family files implement this version; nothing differs."""
