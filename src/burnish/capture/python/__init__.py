"""What Python does, under a trace: attributes, operators, calls, builtins, containers, text."""
