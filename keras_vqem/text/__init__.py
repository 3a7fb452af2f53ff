"""Corpora and text processing for translation."""
