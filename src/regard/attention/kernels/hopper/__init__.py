"""The dot family again for Hopper GPUs alone, in Gluon: a forward pass and a statistics pass."""
