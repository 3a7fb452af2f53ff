"""Measures of trained models: quality, codebooks, latency."""
