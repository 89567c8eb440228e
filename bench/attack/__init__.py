"""Programs drawn at random that look for wrong results. Each command prints its seed."""
