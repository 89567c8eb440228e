"""nn.Module and optimizers: what a trace knows about them besides their Python code."""
