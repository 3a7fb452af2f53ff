"""Image data sets for vector-quantized image autoencoders."""
