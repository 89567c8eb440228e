"""From torch calls to ATen calls: the trace, and autograd on the tensors of the trace."""
