"""What a call of the API becomes: modules, explain, marks, stances, modes and options."""
