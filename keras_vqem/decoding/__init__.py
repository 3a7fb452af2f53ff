"""In-graph loops that write sequences id by id, for tokens and codes alike."""

from keras_vqem.decoding.beam_search import beam_search
from keras_vqem.decoding.greedy_search import greedy_search
from keras_vqem.decoding.sample_search import sample_search

__all__ = ["beam_search", "greedy_search", "sample_search"]
