"""Attention kernels in Triton, for any GPU, with their launchers; dispatch chooses among them."""
