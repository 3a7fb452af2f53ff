"""Searches for sequences, inside the graph.

Greedy search, beam search and sampling write one id at a time, tokens and codes alike.
The CTC decoders read sequences off positions that a model wrote all at once."""

from keras_vqem.decoding.beam_search import beam_search
from keras_vqem.decoding.ctc_best_path import ctc_best_path
from keras_vqem.decoding.ctc_prefix_beam_search import ctc_prefix_beam_search
from keras_vqem.decoding.greedy_search import greedy_search
from keras_vqem.decoding.sample_search import sample_search

__all__ = [
    "beam_search",
    "ctc_best_path",
    "ctc_prefix_beam_search",
    "greedy_search",
    "sample_search",
]
