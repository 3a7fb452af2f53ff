"""Composable Keras models, each with defaults to compile, fit and use."""

from keras_vqem.models.causal_output import CausalOutput
from keras_vqem.models.ctc_translator import CTCTranslator
from keras_vqem.models.fertility_nat import FertilityNAT
from keras_vqem.models.grid_transformer import GridTransformer
from keras_vqem.models.image_classifier import ImageClassifier
from keras_vqem.models.image_transformer import ImageTransformer
from keras_vqem.models.image_vae import ImageVAE
from keras_vqem.models.image_vqvae import ImageVQVAE
from keras_vqem.models.latent_nmt import LatentNMT
from keras_vqem.models.latent_predictor import LatentPredictor
from keras_vqem.models.refinement_nat import RefinementNAT
from keras_vqem.models.refinements import Denoising, MaskPredict
from keras_vqem.models.transformer import Transformer
from keras_vqem.models.word_outputs import CTCOutput, PositionwiseOutput

__all__ = [
    "CTCOutput",
    "CTCTranslator",
    "CausalOutput",
    "Denoising",
    "FertilityNAT",
    "GridTransformer",
    "ImageClassifier",
    "ImageTransformer",
    "ImageVAE",
    "ImageVQVAE",
    "LatentNMT",
    "LatentPredictor",
    "MaskPredict",
    "PositionwiseOutput",
    "RefinementNAT",
    "Transformer",
]
