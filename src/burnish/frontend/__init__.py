"""Implementation of the API functions: modules, explain, marks, stances, modes and options."""
