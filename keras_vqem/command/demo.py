"""Shows the trained models at work: translations side by side, images through codes."""

import pathlib
import time

SENTENCES = (
    "A man is riding a bicycle down the street.",
    "Two children are playing with a dog in the snow.",
    "A woman in a red jacket is standing in front of a large building.",
)
TEACHER, LATENT, IMAGES = (
    "multi30k_en_de_teacher",
    "multi30k_en_de_em",
    "cifar10_em",
)
NO_IMAGES = (
    f"The image half is not here: the preset {IMAGES} is not installed. "
    f"`keras-vqem zoo` lists the presets that are."
)


def add_arguments(parser):
    add = parser.add_argument
    default = pathlib.Path("out", "demo.png")
    add("--output", type=pathlib.Path, default=default, help=f"picture: {default}")
    add("--web", action="store_true", help="a page in the browser instead")
    add("--port", type=int, default=8000, help="of that page: 8000")


def run(parser, options):
    start = time.monotonic()
    try:
        if options.web:
            from keras_vqem.command import web

            web.serve(options.port)
            return
        show_translations()
        show_images(options.output)
    except (ImportError, OSError, ValueError) as error:
        parser.error(str(error))
    print(
        f"\n{time.monotonic() - start:.0f} s. What to try next:\n"
        '  keras-vqem translate "Your own sentence, about what is seen in a photo."\n'
        "  keras-vqem demo --web      # change a code and see the text change\n"
        "  keras-vqem zoo             # what the models are and how good\n"
        "  keras-vqem export multi30k_en_de_em models/en_de    # docs/serving.md\n"
        "  python recipes/numbers_demo.py    # train a latent translator yourself"
    )


def show_translations():
    from keras_vqem.evaluation import latency
    from keras_vqem.models import LatentNMT, Transformer

    models = {
        "teacher": Transformer.from_preset(TEACHER),
        "latent": LatentNMT.from_preset(LATENT),
    }
    latent = models["latent"]
    functions = {}
    for name, model in models.items():
        graph = model.translation_graph()
        source_ids = model.tokenizer.encode(SENTENCES[-1:]).to_tensor()
        functions[name] = lambda g=graph, s=source_ids: g(s).numpy()
    found = {name: model.translate(SENTENCES) for name, model in models.items()}
    for row, sentence in enumerate(SENTENCES):
        ids = latent.tokenizer.encode([sentence]).to_tensor()
        codes = [
            int(code)
            for code in latent.generate(ids)["codes"].numpy()[0]
            if code < latent.bottleneck.num_codes
        ]
        print(f"\n{sentence}")
        print(f"  teacher  {found['teacher'][row]}")
        print(f"  latent   {found['latent'][row]}")
        print(f"           by way of the codes {codes}")
    times = latency.measure(functions, rounds=20)
    ratio = times["teacher"].median_ms / times["latent"].median_ms
    print(
        f"\nThe last sentence takes the teacher, word by word, "
        f"{times['teacher'].median_ms:.1f} ms (median of 20), the latent translator, "
        f"all words at once, {times['latent'].median_ms:.1f} ms: {ratio:.1f} times as "
        f"fast."
    )


def show_images(path):
    """A picture: generated shapes, what is left of them, and samples of the prior."""
    import numpy as np

    from keras_vqem.evaluation.image_grids import save_grid
    from keras_vqem.images import shapes
    from keras_vqem.models import ImageVQVAE

    try:
        model = ImageVQVAE.from_preset(IMAGES)
    except FileNotFoundError:
        print(f"\n{NO_IMAGES}")
        return
    images = shapes.images(10, size=model.image_size[0])[0]
    codes = np.asarray(model.encode(images))
    rows = [images, model.decode(codes), model.sample(10, seed=(0, 1))]
    path.parent.mkdir(parents=True, exist_ok=True)
    save_grid(path, np.stack([np.asarray(row) for row in rows]))
    print(
        f"\n{path}: ten images, the same after they went through {codes[0].size} codes "
        f"each, and ten that the prior made up."
    )
