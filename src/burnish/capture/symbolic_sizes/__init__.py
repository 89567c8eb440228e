"""Symbolic sizes (dynamic shapes): dimensions that may differ in the next call. Others are specialized to constants."""
