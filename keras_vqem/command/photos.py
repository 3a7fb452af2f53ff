"""A few photographs of 32 x 32 pixels, free to use, to demonstrate image models.

They are parts of sample images of scikit-image, which names their origin: the cat
"Chelsea" (Stefan van der Walt, CC0), a cup of coffee (Rachel Michetti, CC0), the
astronaut Eileen Collins and a Space Shuttle (NASA, public domain), a rocket on its
launch pad (SpaceX, public domain) and a part of the Hubble eXtreme Deep Field (NASA,
public domain).
"""

import pathlib

import numpy as np
import tensorflow as tf

FILE = pathlib.Path(__file__).with_name("photos.png")


def photos() -> np.ndarray:
    """Loads the photographs.

    Returns:
        uint8 `[8, 32, 32, 3]`.

    Example:

    >>> from keras_vqem.command.photos import photos
    >>> photos().shape
    (8, 32, 32, 3)
    """
    row = tf.io.decode_png(FILE.read_bytes(), channels=3).numpy()
    return np.stack(np.split(row, row.shape[1] // row.shape[0], axis=1))
