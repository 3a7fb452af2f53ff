"""Trains the autoregressive translator: the baseline, and the teacher of LatentNMT.

    python recipes/prepare_translation.py ... --output data/multi30k
    python recipes/train_transformer.py --data data/multi30k --run runs/teacher --jit

The run folder holds config.json, log.txt, metrics.jsonl, TensorBoard events,
checkpoints, and at the end model.keras, the mean of the last checkpoints. A run that
was stopped goes on with the same command and --resume. Then measure it:

    python recipes/evaluate_translation.py --model runs/teacher --data data/multi30k
"""

import argparse


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    from keras_vqem.training import translation_run

    translation_run.add_arguments(parser)
    arguments = parser.parse_args(arguments)

    from keras_vqem.models import Transformer

    def make_model(data, steps):
        return Transformer(
            data.tokenizer,
            width=arguments.width,
            encoder_layers=arguments.encoder_layers,
            decoder_layers=arguments.decoder_layers,
            heads=arguments.heads,
            filter_width=arguments.filter_width,
            dropout=arguments.dropout,
        )

    path = translation_run.train(arguments, make_model)
    print(f"saved {path}")


if __name__ == "__main__":
    main()
