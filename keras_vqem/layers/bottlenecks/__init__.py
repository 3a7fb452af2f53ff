"""Bottlenecks: layers that turn vectors into discrete codes."""
