"""A prior with classes: trained, measured and drawn from, as a user does it."""

import json

import pytest
import tensorflow as tf

from keras_vqem import layers, models
from keras_vqem.images import image_data, shapes

PRIOR = "--hidden-dim 16 --num-layers 1 --num-heads 2 --intermediate-dim 16".split()
PRIOR += "--block-length 12 --epochs 1 --batch-size 8 --average 1".split()
DATA = ["--dataset", "shapes", "--size", 16]


@pytest.fixture(scope="module", autouse=True)
def few_shapes():
    with pytest.MonkeyPatch.context() as patch:
        few = {"train": 40, "validation": 16, "test": 16}
        patch.setattr(image_data._Shapes, "COUNTS", few)
        yield


@pytest.fixture(scope="module")
def run(recipe):
    def run(name, *arguments):
        recipe(name).main([str(argument) for argument in arguments])

    return run


@pytest.fixture(scope="module")
def autoencoder(tmp_path_factory):
    """An image model that has seen no more than patches."""
    model = models.ImageVQVAE(
        layers.PatchCompressor(code_dim=24, channels=8, num_blocks=1),
        layers.VQEMBottleneck(32, num_samples=2, groups=layers.Slices(3), seed=0),
        layers.PatchDecompressor(channels=8, num_blocks=1, pixel_channels=8),
        layers.LogisticMixture(num_mixtures=2),
        image_size=(16, 16),
    )
    model.init_from_patches(shapes.images(256, size=16)[0])
    path = tmp_path_factory.mktemp("classes") / "autoencoder.keras"
    model.save(path)
    return path


@pytest.fixture(scope="module")
def prior(run, autoencoder):
    path = autoencoder.parent / "prior"
    where = ["--autoencoder", autoencoder, "--run", path, "--class-conditional"]
    run("train_image_prior", *DATA, *where, *PRIOR)
    return path


def test_a_prior_learns_the_classes_of_the_data(prior):
    from keras_vqem.models.loading import load_model

    assert load_model(prior).num_classes == len(shapes.CLASSES)
    line = json.loads((prior / "metrics.jsonl").read_text().splitlines()[-1])
    assert 0 < line["val_bits_per_symbol"] < 6


def test_bits_are_conditional_and_say_so(run, autoencoder, prior, tmp_path, capsys):
    out = tmp_path / "bits.json"
    given = ["--model", autoencoder, "--prior", prior, "--json", out]
    run("evaluate_images", *DATA, *given, "--unigram-images", 0)
    assert "conditional on the class" in capsys.readouterr().out
    report = json.loads(out.read_text())
    # log2(8) bits over 16 x 16 x 3 numbers.
    assert "at most 0.0039 more" in report["notes"][0]
    assert set(report["rows"]) == {"uniform prior", "predictor"}


def test_a_row_per_class_is_drawn(run, autoencoder, prior, tmp_path, capsys):
    given = ["--model", autoencoder, "--prior", prior, "--output", tmp_path]
    given += ["--columns", 3, "--rows", 1, "--num-candidates", 2, "--temperature", 0.9]
    for labels, rows in (([], 8), (["--labels", "ring", 5], 2)):
        run("sample_images", *DATA, *given, *labels)
        picture = tf.io.decode_png((tmp_path / "samples.png").read_bytes())
        assert picture.shape == (rows * 50 + 2, 3 * 50 + 2, 3)
    with pytest.raises(SystemExit):
        run("sample_images", *DATA, *given, "--labels", "cat")
    assert "--labels 'cat' is no class. Choose from 0, " in capsys.readouterr().err


def test_samples_are_measured_by_a_classifier(
    run, autoencoder, prior, tmp_path, capsys
):
    path, out = tmp_path / "classifier", tmp_path / "samples.json"
    small = ["--channels", 4, "--num-stages", 2, "--batch-size", 8, "--average", 1]
    run("train_feature_classifier", *DATA, "--run", path, "--epochs", 1, *small)
    given = ["--classifier", path, "--model", autoencoder, "--prior", prior]
    counts = ["--num-samples", 12, "--reference-images", 20, "--batch-size", 5]
    run("evaluate_samples", *DATA, *given, *counts, "--json", out, "--top-p", 0.9)
    rows = json.loads(out.read_text())["rows"]
    assert list(rows) == ["test images", "their reconstructions", "samples"]
    for row in rows.values():
        assert row["frechet"] > 0
        shares = [row[name] for name in ("precision", "recall", "accuracy")]
        assert all(0 <= share <= 1 for share in shares)
    printed = capsys.readouterr().out
    assert "12 images per row, compared with 20 training" in printed
    assert "not the published FID" in printed
    with pytest.raises(SystemExit):
        run("evaluate_samples", *DATA, *given, "--num-samples", 17)
    assert "There are 16 test images" in capsys.readouterr().err


def test_pixels_are_measured_beside(run, autoencoder, tmp_path, capsys):
    classifier = models.ImageClassifier(8, 4, 2, image_size=(16, 16))
    pixels = models.ImageTransformer(16, 16, 8, 1, 2, 16, block_length=48)
    for name, model in {"classifier": classifier, "pixels": pixels}.items():
        model.build()
        model.save(tmp_path / f"{name}.keras")
    given = ["--classifier", tmp_path / "classifier.keras", "--model", autoencoder]
    given += ["--pixels", tmp_path / "pixels.keras", "--num-samples", 6]
    run("evaluate_samples", *DATA, *given, "--reference-images", 10)
    printed = capsys.readouterr().out
    assert "| samples of the ImageTransformer |" in printed
    assert "| samples |" not in printed  # The autoencoder has no prior.


def test_images_without_labels_are_refused(run, autoencoder, tmp_path, capsys):
    (tmp_path / "train").mkdir()
    for number, image in enumerate(shapes.images(20, size=16)[0]):
        png = tf.io.encode_png(image).numpy()
        (tmp_path / "train" / f"{number}.png").write_bytes(png)
    where = ["--autoencoder", autoencoder, "--run", tmp_path / "run"]
    data = ["--dataset", "folder", "--data", tmp_path, "--validation", 8]
    with pytest.raises(SystemExit):
        run("train_image_prior", *data, *where, "--class-conditional", *PRIOR)
    assert "has no labels" in capsys.readouterr().err
