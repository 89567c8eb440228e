"""Tracing: from torch calls to ATen calls, and autograd on the tensors of the trace."""
