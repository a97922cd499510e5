"""What models are fed with.

A plan says which rows go together (buckets, lm_batches, pairs, packing), a collate makes tensors of them (collate,
masking, packing), and Batches hands them out (plan), with a position that can be kept and found again.
"""
