"""Models that cannot be used are refused when they are loaded."""

import numpy as np
import pytest

from keras_vqem.models.loading import load_translator
from tests.models import small


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_diverged_model_is_not_loaded(tmp_path, value):
    model = small.transformer()
    path = tmp_path / "model.keras"
    model.save(path)
    assert load_translator(tmp_path).built
    kernel = model.decoder.weights[0]
    kernel.assign(np.full(kernel.shape, value))
    model.save(path)
    with pytest.raises(ValueError, match="NaN or infinite.*training diverged"):
        load_translator(tmp_path)
