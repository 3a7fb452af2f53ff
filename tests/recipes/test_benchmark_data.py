def test_every_stage_has_its_line(recipe, tiny, capsys):
    data = tiny.data
    command = ["--data", str(data.folder), "--max-shapes", "1"]
    recipe("benchmark_data").main([*command, "--tokens-per-batch", "512"])
    batches = data.batches("train", 512, max_shapes=1)
    printed = capsys.readouterr().out
    assert printed.endswith(batches.summary() + "\n")
    lines = printed.removesuffix(batches.summary() + "\n").splitlines()
    assert "peak MB" in lines[0] and lines[1].startswith("imports")
    assert lines[-1].startswith(f"{batches.steps_per_epoch} batches")
    for line in lines[1:]:
        *_, anonymous, files, peak = (float(number) for number in line.split()[-5:])
        # Each number is rounded, and the peak is measured a moment earlier.
        assert 0 < anonymous + files <= peak + 16
