"""Searches that write sequences one id at a time, as loops inside the graph.

They serve tokens and codes alike."""

from keras_vqem.decoding.beam_search import beam_search
from keras_vqem.decoding.greedy_search import greedy_search
from keras_vqem.decoding.sample_search import sample_search

__all__ = ["beam_search", "greedy_search", "sample_search"]
