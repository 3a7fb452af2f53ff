"""The pictures of the page about collapse."""


def test_two_pictures_and_a_table(recipe, tmp_path, monkeypatch, capsys):
    module = recipe("plot_collapse")
    monkeypatch.setattr(
        module,
        "settings",
        lambda seed: {"hard EM": {"decay": 0.9}, "hot": {"num_samples": 2}},
    )
    folder = tmp_path / "new"
    module.main(["--output", str(folder), "--epochs", "2", "--images", "64"])
    assert {path.name for path in folder.iterdir()} == {
        "collapse_perplexity.png",
        "collapse_worth.png",
    }
    table = capsys.readouterr().out
    assert "| hard EM | " in table and "%" in table
