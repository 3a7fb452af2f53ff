"""Vectors in, discrete codes out: the heart of the package."""
