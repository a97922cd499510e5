"""Batches: a batch plan, a collator, and the resumable iterator over both.

A plan says which rows form a batch (buckets, lm_batches, next_sentence, packing), a collator makes tensors of them
(collate, masking, packing), and Batches iterates (plan), with a position that can be saved and restored.
"""
