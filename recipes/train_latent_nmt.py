"""Trains LatentNMT, the paper's translator through discrete codes.

    python recipes/train_latent_nmt.py --data data/multi30k_distilled \\
        --run runs/soft_em --num-samples 10 --jit

Each row of the paper's tables is one more option: --num-samples 0 for hard EM; --data
with the undistilled folder; --num-compress-steps 4; --bottleneck vq, gumbel or semhash;
--num-codes; --hidden-dim; --attend-source. The run folder is that of
train_transformer.py; metrics also hold the codebook's perplexity, the BLEU
of translations written from the codes of the true ones (teacher_forced_bleu: the most that codes and decoder allow) and from random
codes (random_codes_bleu: what the decoder reads off the source alone).
"""

import argparse


def make_bottleneck(arguments, steps):
    from keras_vqem import layers
    from keras_vqem.training.em_arguments import em_bottleneck

    if arguments.bottleneck == "em":
        return em_bottleneck(arguments, arguments.num_codes, steps)
    if arguments.bottleneck == "vq":
        return layers.VQBottleneck(
            arguments.num_codes, commitment_weight=arguments.commitment_weight
        )
    if arguments.bottleneck == "gumbel":
        return layers.GumbelSoftmaxBottleneck(arguments.num_codes, seed=arguments.seed)
    bits = (arguments.num_codes - 1).bit_length()
    return layers.SemanticHashingBottleneck(bits, seed=arguments.seed)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    from keras_vqem.training import translation_run
    from keras_vqem.training.em_arguments import add_em_arguments

    translation_run.add_arguments(parser)
    # Codes change their meaning from epoch to epoch: the mean of many is of no use.
    parser.set_defaults(average=2)
    latent = parser.add_argument_group("codes")
    add = latent.add_argument
    add("--teacher", metavar="RUN", help="start from what this Transformer has learned")
    add(
        "--bottleneck",
        choices=["em", "vq", "gumbel", "semhash"],
        default="em",
        help="(%(default)s)",
    )
    add("--num-codes", type=int, default=512, help="size of the codebook (%(default)s)")
    add_em_arguments(latent, num_samples=10, temperature=5.0, dead_code_threshold=0.05)
    add("--num-compress-steps", type=int, default=3, help="n_c (%(default)s)")
    add("--num-predictor-layers", type=int, default=2, help="(%(default)s)")
    add("--attend-source", action="store_true", help="in the compressor")
    add(
        "--bypass-steps",
        type=int,
        default=1500,
        metavar="STEPS",
        help="in which fewer and fewer sentences skip the bottleneck (%(default)s)",
    )
    add(
        "--predicted-share",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="of sentences decoded from predicted codes after that (%(default)s)",
    )
    arguments = parser.parse_args(arguments)

    from keras_vqem.evaluation import codes
    from keras_vqem.models import LatentNMT
    from keras_vqem.models.loading import load_translator

    def make_model(data, steps):
        model = LatentNMT(
            data.tokenizer,
            make_bottleneck(arguments, steps),
            num_compress_steps=arguments.num_compress_steps,
            attend_source=arguments.attend_source,
            hidden_dim=arguments.hidden_dim,
            num_encoder_layers=arguments.num_encoder_layers,
            num_decoder_layers=arguments.num_decoder_layers,
            num_predictor_layers=arguments.num_predictor_layers,
            num_heads=arguments.num_heads,
            intermediate_dim=arguments.intermediate_dim,
            dropout=arguments.dropout,
            bypass_steps=arguments.bypass_steps,
            predicted_share=arguments.predicted_share,
        )
        if arguments.teacher:
            model.warm_start(load_translator(arguments.teacher))
        return model

    def from_codes(kind):
        def translate(model, corpus):
            return codes.reconstruct(model, corpus.sources, corpus.targets, codes=kind)

        return translate

    path = translation_run.train(
        arguments,
        make_model,
        length_multiple=2**arguments.num_compress_steps,
        translators={
            "teacher_forced_bleu": from_codes("own"),
            "random_codes_bleu": from_codes("random"),
        },
    )
    print(f"saved {path}")


if __name__ == "__main__":
    main()
