"""CUDA graphs: launches recorded once and replayed."""
