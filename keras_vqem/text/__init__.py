"""Parallel corpora, tokenizer and batches for translation."""

from keras_vqem.text.batches import TokenBatches
from keras_vqem.text.cleaning import CleaningSummary, clean
from keras_vqem.text.parallel_corpus import ParallelCorpus
from keras_vqem.text.sentencepiece_tokenizer import SentencePieceTokenizer
from keras_vqem.text.sentences import split_sentences
from keras_vqem.text.split_text import SplitText
from keras_vqem.text.token_ids import TokenIds
from keras_vqem.text.translation_data import TranslationData
from keras_vqem.text.word_aligner import WordAligner

__all__ = [
    "CleaningSummary",
    "ParallelCorpus",
    "SentencePieceTokenizer",
    "SplitText",
    "TokenBatches",
    "TokenIds",
    "TranslationData",
    "WordAligner",
    "clean",
    "split_sentences",
]
