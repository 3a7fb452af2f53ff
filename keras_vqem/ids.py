"""Ids with a meaning of their own, which tokenizers, batches and models agree on."""

PAD_ID, EOS_ID, UNKNOWN_ID = 0, 1, 2
