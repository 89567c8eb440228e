"""The disk cache shared between processes, and the check that only this user can write its files."""
