"""Ids of the special tokens, the same in tokenizers, batches and models."""

PAD_ID, EOS_ID, UNKNOWN_ID = 0, 1, 2
