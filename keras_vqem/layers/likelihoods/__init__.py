"""Distributions over the values of pixels, computed from the outputs of a network."""
