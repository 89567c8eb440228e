"""Custom ``torch.autograd.Function``s: nodes of the graph, and what their code reads and writes."""
