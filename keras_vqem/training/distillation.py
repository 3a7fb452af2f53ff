"""Distillation: a training set with targets written by a teacher.

The sources are divided into shards, which different processes can translate. Each
shard appends its lines to its own file, so that a killed process loses at most one
chunk. When all shards are complete, they are joined.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from keras_vqem.files import write_json
from keras_vqem.text import ParallelCorpus, TranslationData
from keras_vqem.text.lines import one_line


class Distilled(NamedTuple):
    """Result of `join`.

    Attributes:
        data: The new `TranslationData`.
        lines: Number of training pairs.
        kept: Number of training pairs that kept their own target.
    """

    data: TranslationData
    lines: int
    kept: int


class Shard:
    """One of `count` parts of the training sources, with a file of translations.

    Args:
        output: Folder of the distilled data. Shards are in its folder `shards`.
        number: Number of the shard, from 1 to `count`.
        count: Number of shards.
    """

    def __init__(self, output: str | os.PathLike, number: int = 1, count: int = 1):
        if not 1 <= number <= count:
            raise ValueError(
                f"Shard {number}/{count} does not exist. Choose one of 1/{count} to "
                f"{count}/{count}."
            )
        self.number, self.count = number, count
        folder = pathlib.Path(output) / "shards"
        self.path = folder / f"{number}-of-{count}.txt"
        self.settings_path = folder / f"{number}-of-{count}.json"

    def part(self, lines: Sequence[str]) -> Sequence[str]:
        """Returns the lines that belong to this shard, given those of all shards."""
        start = len(lines) * (self.number - 1) // self.count
        return lines[start : len(lines) * self.number // self.count]

    def outputs(self) -> list[str]:
        """Returns the complete lines written so far."""
        if not self.path.exists():
            return []
        # After the last line end there is nothing, or an incomplete line.
        return self.path.read_bytes().decode("utf-8", "replace").split("\n")[:-1]

    def translate(
        self,
        translate: Callable[[Sequence[str]], Sequence[str]],
        sources: Sequence[str],
        settings: Mapping[str, Any],
        chunk_lines: int = 1024,
        log: Callable[[str], object] = print,
    ) -> None:
        """Translates the lines of the shard that are not translated yet.

        Args:
            translate: Function from a list of strings to a list of the same length.
            sources: All training sources.
            settings: Dict of everything that the translations depend on, such as the
                hash of the model. A shard is continued only with the same settings.
            chunk_lines: Number of lines translated and written at a time.
            log: Function that takes a line of progress about every ten seconds.

        Raises:
            RuntimeError: If another process works on the shard.
            ValueError: If the shard was started with other settings or sources.
        """
        sources = self.part(sources)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab") as file, self._alone(file):
            self._check(settings)
            done = first = len(self.outputs())
            if done > len(sources):
                raise ValueError(
                    f"{self.path} has {done} lines for {len(sources)} sources. Remove "
                    f"it to start the shard again."
                )
            content = self.path.read_bytes()
            file.truncate(content.rfind(b"\n") + 1)
            begin = shown = time.monotonic()
            while done < len(sources):
                chunk = sources[done : done + chunk_lines]
                texts = translate(chunk)
                if len(texts) != len(chunk):
                    raise ValueError(
                        f"`translate` returned {len(texts)} lines for {len(chunk)}."
                    )
                lines = "".join(one_line(text) + "\n" for text in texts)
                file.write(lines.encode("utf-8", "replace"))
                file.flush()
                os.fsync(file.fileno())
                done += len(chunk)
                now = time.monotonic()
                if now - shown >= 10 or done == len(sources):
                    shown = now
                    left = (now - begin) / (done - first) * (len(sources) - done)
                    log(
                        f"shard {self.number}/{self.count}: {done} of {len(sources)} "
                        f"lines, {(done - first) / (now - begin):.1f} per second, "
                        f"{left / 60:.1f} minutes left"
                    )

    @contextlib.contextmanager
    def _alone(self, file):
        """Locks the file against other processes, until it is closed."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RuntimeError(
                f"Another process is writing {self.path}. Wait for it to end, or "
                f"choose another shard."
            ) from error
        yield

    def _check(self, settings):
        settings = json.loads(json.dumps(settings))
        if not self.settings_path.exists():
            if self.path.stat().st_size:
                raise ValueError(
                    f"{self.path} has lines, but {self.settings_path.name}, which has "
                    f"their settings, is missing. Remove the lines to start the shard "
                    f"again."
                )
            write_json(self.settings_path, settings)
        before = self.settings()
        differing = [
            f"  {key}: started with {before.get(key)!r}, received {settings.get(key)!r}"
            for key in sorted({*before, *settings})
            if before.get(key) != settings.get(key)
        ]
        if differing:
            raise ValueError(
                f"{self.path} was started with other settings:\n"
                + "\n".join(differing)
                + "\nContinue with those settings, or choose another output folder."
            )

    def settings(self) -> dict[str, Any] | None:
        """Returns the settings of the shard, or None if it was not started."""
        if not self.settings_path.exists():
            return None
        return json.loads(self.settings_path.read_text())


def join(
    data: TranslationData, output: str | os.PathLike, count: int = 1
) -> Distilled | None:
    """Makes a data folder of complete shards, with the other splits of `data`.

    A source with an empty translation keeps its own target.

    Args:
        data: `TranslationData` whose training sources were translated.
        output: Folder of the shards, and of the new data.
        count: Number of shards.

    Returns:
        A `Distilled`, or None if a shard is not complete yet.

    Raises:
        ValueError: If a shard does not fit the data, if the settings of shards
            differ, or if all translations are empty.
    """
    train = data.corpus("train")
    shards = [Shard(output, number, count) for number in range(1, count + 1)]
    parts = [shard.outputs() for shard in shards]
    for shard, part in zip(shards, parts, strict=True):
        if len(part) < len(shard.part(train.sources)):
            return None
        if len(part) > len(shard.part(train.sources)):
            raise ValueError(
                f"{shard.path} has {len(part)} lines for "
                f"{len(shard.part(train.sources))} sources, so it was made from other "
                f"data. Remove it, or pass its data."
            )
        if shard.settings() != shards[0].settings():
            raise ValueError(
                f"{shard.path} and {shards[0].path} were made with different settings. "
                f"Compare the .json files beside them, and remove one."
            )
    outputs = [text for part in parts for text in part]
    targets = [
        text if text.strip() else target
        for text, target in zip(outputs, train.targets, strict=True)
    ]
    kept = sum(not text.strip() for text in outputs)
    if kept == len(outputs):
        raise ValueError(
            f"The teacher wrote nothing for any of the {kept} training sources. Train "
            f"it until its translations have words (see its val_bleu), remove "
            f"{shards[0].path.parent}, and distill again."
        )
    splits = {name: data.corpus(name) for name in data.splits if name != "train"}
    splits["train"] = ParallelCorpus(train.sources, targets)
    try:
        made = TranslationData.create(
            output, data.source, data.target, data.tokenizer, splits
        )
    except FileExistsError:
        # The process of another shard has joined them already.
        made = TranslationData(output)
        if made.corpus("train").targets != targets:
            raise
    return Distilled(made, len(targets), kept)
