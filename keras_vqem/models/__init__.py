"""Composable Keras models, each with defaults to compile, fit and use."""

from keras_vqem.models.latent_nmt import LatentNMT
from keras_vqem.models.latent_predictor import LatentPredictor
from keras_vqem.models.transformer import Transformer

__all__ = ["LatentNMT", "LatentPredictor", "Transformer"]
