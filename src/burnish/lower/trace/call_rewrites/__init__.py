"""Calls of a captured graph that are traced in another form: one rewrite a file."""
