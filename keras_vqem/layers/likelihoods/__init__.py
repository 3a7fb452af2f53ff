"""Numbers per pixel in, distributions over pixel values out."""
