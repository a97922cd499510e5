"""Attention in Triton, on any GPU: kernels with their launchers; dispatch says which one serves a request."""
