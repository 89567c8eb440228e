"""What torch does, under a trace: its calls and state, gradients, control flow, custom functions, optimizers."""
