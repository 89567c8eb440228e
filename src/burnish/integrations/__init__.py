"""Integrations with frameworks. Only this package may import their classes."""
