"""Attention kernels for Hopper GPUs, in Gluon: a forward pass and a statistics pass of the dot family."""
