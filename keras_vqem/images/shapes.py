"""shapes: a generated set of small colour images that needs no download.

Each image shows one or two anti-aliased shapes over a smooth gradient, with a
faint wave texture and pixel noise. The set is endless and deterministic, and
needs only NumPy.
"""

import operator

import numpy as np

CLASSES = tuple("circle square triangle ring cross star stripes crescent".split())
SPLITS = ("train", "validation", "test")

# Random words per scene; a multiple of 4, because Philox makes four at a time.
_SCENE_WORDS = 40

# Every machine paints the same bits. Painting uses only + - * / sqrt floor abs
# min max, one ufunc each, whose results IEEE 754 fixes. Sines, powers, `hypot`
# and sums over an axis may differ in the last bit between CPUs, so rotations are
# rational and waves polynomial.


def images(
    count: int, seed: int = 0, split: str = "train", size: int = 32, start: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Returns `count` images of the set, from number `start` on, with labels.

    Image `i` depends only on `(seed, split, i)` and `size`. A smaller `count`
    therefore gives a prefix of a larger one, and `start` allows streaming a set
    that does not fit into memory. `size` changes the resolution and the noise,
    but not the scene.

    Args:
        count: Number of images, 0 or more.
        seed: Integer from 0 to `2**64 - 1`. Each seed gives a different set.
        split: Name of the split, `"train"`, `"validation"` or `"test"`. Splits
            are independent random streams.
        size: Height and width of the images in pixels, at least 8.
        start: Index of the first image, 0 or more.

    Returns:
        A tuple `(images, labels)`: `uint8` of shape `[count, size, size, 3]`
        and `int32` of shape `[count]`. A label is an index into `CLASSES`, for
        the shape in front if there are two.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> from keras_vqem.images import shapes
    >>> x, y = shapes.images(6)
    >>> x.shape, str(x.dtype), y.shape
    ((6, 32, 32, 3), 'uint8', (6,))
    >>> tail, _ = shapes.images(2, start=4)
    >>> bool((tail == x[4:]).all())
    True
    """
    count, size = operator.index(count), operator.index(size)
    seed, start = operator.index(seed), operator.index(start)
    if split not in SPLITS:
        raise ValueError(f"Unknown split {split!r}: use one of {', '.join(SPLITS)}.")
    if count < 0 or start < 0:
        raise ValueError(f"count={count} and start={start} must be 0 or more.")
    if size < 8:
        raise ValueError(f"size={size} is too small: use 8 or more.")
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed={seed} is out of range: use 0 to 2**64 - 1.")

    pixels = np.empty((count, size, size, 3), np.uint8)
    labels = np.empty(count, np.int32)
    # Scene and noise have separate streams, so the scene is the same at any size.
    stream = 2 * SPLITS.index(split)
    values = 3 * size * size
    # Two bytes of noise per value, rounded up to Philox steps of 32 bytes.
    noise_words = -(-2 * values // 32) * 4
    # A few images at a time: the float64 temporaries then stay in the cache.
    step = max(1, 2**15 // size**2)
    for low in range(0, count, step):
        high = min(low + step, count)
        n, first = high - low, start + low
        raw = _words(seed, stream, first, n, _SCENE_WORDS)
        uniform = (raw >> np.uint64(11)) * 2.0**-53
        raw = _words(seed, stream + 1, first, n, noise_words)
        raw = raw.astype("<u8", copy=False).view(np.uint8)
        # The sum of two bytes: a triangular distribution, in whole numbers.
        noise = raw[:, :values].astype(np.int16) + raw[:, values : 2 * values] - 255
        painted, labels[low:high] = _paint(uniform, noise.reshape(n, 3, -1), size)
        pixels[low:high] = painted.transpose(0, 2, 1).reshape(n, size, size, 3)
    return pixels, labels


def _words(seed, stream, first, n, words):
    """Returns the random words `[n, words]` of images `first` to `first + n`."""
    # NumPy keeps the raw words of a bit generator fixed between releases, but not
    # the numbers that `Generator` makes of them. `advance` jumps in constant time.
    bits = np.random.Philox(key=np.array([seed, stream], np.uint64))
    bits.advance(first * words // 4)
    return bits.random_raw(n * words).reshape(n, words)


def _paint(uniform, noise, size):
    """Returns the scenes, uint8 `[n, 3, pixels]`, and the labels of front shapes."""
    columns = iter(uniform.T[:, :, None])

    def draw(low=0.0, high=1.0):
        return low + (high - low) * next(columns)

    # Channels come before pixels, which keeps numpy's inner loops long.
    axis = (np.arange(size) + 0.5) / size
    y, x = (v.reshape(1, -1) for v in np.meshgrid(axis, axis, indexing="ij"))
    # Background: a bilinear blend of four corner colours of related hue.
    hue = draw()
    a, b, c, d = (
        _rgb(hue + draw(-0.12, 0.12), draw(0.15, 0.75), draw(0.1, 0.95))
        for _ in range(4)
    )
    canvas = a + (b - a) * x[:, None] + (c - a) * y[:, None]
    canvas += (a - b - c + d) * (x * y)[:, None]
    across, down, phase = draw(-5, 5), draw(-5, 5), draw()
    wave = across * x + down * y + phase
    wave -= np.floor(wave)
    # One squared parabola per period is close to a sine and has no kink.
    wave *= 4 * (1 - wave)
    canvas += (draw(0.0, 0.08) * (wave * wave - 0.5))[:, None]
    # In about 60% of the images a shape behind, in all one in front. Background and
    # shapes have three different hues.
    turn = draw(0.28, 0.4)
    _draw_shape(canvas, x, y, hue - turn, draw, size, draw() < 0.6)
    labels = _draw_shape(canvas, x, y, hue + turn, draw, size, True)
    canvas *= 255
    canvas += noise * draw(0.01, 0.035)[:, None]
    return np.clip(np.floor(canvas + 0.5), 0, 255).astype(np.uint8), labels


def _draw_shape(canvas, x, y, hue, draw, size, visible):
    """Blends one shape per image into `canvas` and returns the classes."""
    label = np.floor(draw(0, len(CLASSES))).astype(np.int32)[:, 0]
    radius = draw(0.17, 0.4)
    # Small shapes may lie farther from the centre; the border may cut any a little.
    room = 0.55 - radius
    u, v = x - 0.5 - room * draw(-1, 1), y - 0.5 - room * draw(-1, 1)
    t, flip = draw(-1, 1), np.where(draw() < 0.5, -1.0, 1.0)
    # The tangent of half the rotation, adjusted so that all angles are about equally
    # likely.
    t = t * (0.785 + 0.215 * t * t)
    scale = flip / ((1 + t * t) * radius)
    cos, sin = scale * (1 - t * t), scale * 2 * t
    u, v = cos * u + sin * v, cos * v - sin * u
    distance = np.empty_like(u)
    for k, outline in enumerate(_OUTLINES):
        distance[label == k] = outline(u[label == k], v[label == k])
    cover = np.clip(0.5 - distance * (radius * size), 0, 1) * visible
    colour = _rgb(hue + draw(-0.08, 0.08), draw(0.35, 1.0), draw(0.45, 1.0))
    colour = colour * (1 + draw(-0.25, 0.25) * v)[:, None]  # lit from one side
    canvas += (colour - canvas) * cover[:, None]
    return label


def _rgb(hue, saturation, value):
    """Converts HSV (hue in turns) to RGB `[n, 3, 1]`, exact as piecewise linear."""
    k = (np.array([5.0, 3.0, 1.0]) + 6 * hue) / 6
    k = 6 * (k - np.floor(k))
    ramp = np.clip(np.minimum(k, 4 - k), 0, 1)
    return (value * (1 - saturation * ramp))[:, :, None]


def _box(x, y):
    return np.maximum(np.abs(x), np.abs(y))


def _length(x, y):
    return np.sqrt(x * x + y * y)


def _star(x, y):
    # Mirrors along (cos 36°, sin 36°) fold the star onto half of one point.
    c, s = 0.8090169943749475, 0.5877852522924731
    x = np.abs(x)
    fold = 2 * np.maximum(c * x - s * y, 0)
    x, y = x - c * fold, y + s * fold
    fold = 2 * np.maximum(-c * x - s * y, 0)
    x, y = np.abs(x + c * fold), y + s * fold - 1.08
    # The edge leaves the tip at atan(5/12), a little fatter than a pentagram.
    return (12 * x + 5 * y) / 13


def _stripes(x, y):
    band = y / 0.6 + 0.5
    band = np.abs(band - np.floor(band) - 0.5) * 0.6 - 0.16
    return np.maximum(_box(x, y) - 0.88, band)


# Distance to the outline in radii, negative inside, in the order of CLASSES.
_OUTLINES = (
    lambda x, y: _length(x, y) - 0.9,
    lambda x, y: _box(x, y) - 0.8,
    lambda x, y: np.maximum(0.8660254037844386 * np.abs(x) + 0.5 * y, -y) - 0.58,
    lambda x, y: np.abs(_length(x, y) - 0.72) - 0.22,
    lambda x, y: np.maximum(_box(x, y) - 1, np.minimum(np.abs(x), np.abs(y)) - 0.32),
    _star,
    _stripes,
    lambda x, y: np.maximum(_length(x, y) - 1, 0.8 - _length(x - 0.5, y)),
)
