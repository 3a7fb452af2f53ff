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
            hidden_dim=arguments.hidden_dim,
            num_encoder_layers=arguments.num_encoder_layers,
            num_decoder_layers=arguments.num_decoder_layers,
            num_heads=arguments.num_heads,
            intermediate_dim=arguments.intermediate_dim,
            dropout=arguments.dropout,
        )

    path = translation_run.train(arguments, make_model)
    print(f"saved {path}")


if __name__ == "__main__":
    main()
