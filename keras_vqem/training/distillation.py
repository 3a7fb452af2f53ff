"""Distillation and back-translation: training sets that a model wrote one side of.

The lines are divided into shards, which different processes can translate. Each
shard appends its lines to its own file, so that a killed process loses at most one
chunk. When all shards are complete, they are joined.
"""

import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from keras_vqem.files import read_json
from keras_vqem.text import ParallelCorpus, TranslationData, clean
from keras_vqem.text.kept_lines import KeptLines


class Distilled(NamedTuple):
    """Result of `distill` and `back_translate`.

    Attributes:
        data: The new `TranslationData`.
        lines: Number of training pairs.
        kept: Number of training pairs that kept their own target.
    """

    data: TranslationData
    lines: int
    kept: int


class Shard:
    """One of `count` parts of the lines to translate, with a file of translations.

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
            BlockingIOError: If another process works on the shard.
            ValueError: If the shard was started with other settings or sources.
        """
        sources = self.part(sources)
        with KeptLines(self.path, self.settings_path, settings) as kept:
            first = kept.count
            if first > len(sources):
                raise ValueError(
                    f"{self.path} has {first} lines for {len(sources)} sources. Remove "
                    f"it to start the shard again."
                )
            begin = shown = time.monotonic()
            while kept.count < len(sources):
                chunk = sources[kept.count : kept.count + chunk_lines]
                texts = translate(chunk)
                if len(texts) != len(chunk):
                    raise ValueError(
                        f"`translate` returned {len(texts)} lines for {len(chunk)}."
                    )
                kept.append(texts)
                done, now = kept.count, time.monotonic()
                if now - shown >= 10 or done == len(sources):
                    shown = now
                    left = (now - begin) / (done - first) * (len(sources) - done)
                    log(
                        f"shard {self.number}/{self.count}: {done} of {len(sources)} "
                        f"lines, {(done - first) / (now - begin):.1f} per second, "
                        f"{left / 60:.1f} minutes left"
                    )

    def settings(self) -> dict[str, Any] | None:
        """Returns the settings of the shard, or None if it was not started."""
        if not self.settings_path.exists():
            return None
        return read_json(self.settings_path)


def join(
    lines: Sequence[str], output: str | os.PathLike, count: int = 1
) -> list[str] | None:
    """Returns the translations of all lines, once all shards are complete.

    Args:
        lines: All lines that the shards translate.
        output: Folder of the shards.
        count: Number of shards.

    Returns:
        List of strings, or None if a shard is not complete yet.

    Raises:
        ValueError: If a shard does not fit the lines, if the settings of shards
            differ, or if all translations are empty.
    """
    shards = [Shard(output, number, count) for number in range(1, count + 1)]
    parts = [shard.outputs() for shard in shards]
    for shard, part in zip(shards, parts, strict=True):
        asked = len(shard.part(lines))
        if len(part) < asked:
            return None
        if len(part) > asked:
            raise ValueError(
                f"{shard.path} has {len(part)} lines for {asked} sources, so it was "
                f"made from other data. Remove it, or pass its data."
            )
        if shard.settings() != shards[0].settings():
            raise ValueError(
                f"{shard.path} and {shards[0].path} were made with different settings. "
                f"Compare the .json files beside them, and remove one."
            )
    outputs = [text for part in parts for text in part]
    if not any(map(str.strip, outputs)):
        raise ValueError(
            f"The model wrote nothing for any of the {len(outputs)} lines. Train it "
            f"until its translations have words (see its val_bleu), remove "
            f"{shards[0].path.parent}, and start again."
        )
    return outputs


def distill(
    data: TranslationData,
    output: str | os.PathLike,
    translations: Sequence[str],
    sources: Sequence[str] = (),
) -> Distilled:
    """Makes a data folder whose training targets are a teacher's translations.

    A training pair with an empty translation keeps its own target. The other splits
    and the tokenizer are those of `data`.

    Args:
        data: `TranslationData` whose training sources were translated.
        output: Folder of the new data.
        translations: Translations of the training sources, then of `sources`.
        sources: More lines in the source language. Their pairs are cleaned with
            `keras_vqem.text.clean` before they are added.

    Returns:
        A `Distilled`.
    """
    train = data.corpus("train")
    own, more = translations[: len(train)], translations[len(train) :]
    targets = [
        text if text.strip() else target
        for text, target in zip(own, train.targets, strict=True)
    ]
    added, _ = clean(ParallelCorpus(sources, more))
    made = _create(data, output, ParallelCorpus(train.sources, targets) + added)
    return Distilled(made, len(train) + len(added), sum(not t.strip() for t in own))


def back_translate(
    data: TranslationData,
    output: str | os.PathLike,
    translations: Sequence[str],
    targets: Sequence[str],
    weight: float = 1.0,
    tag: str = "",
) -> Distilled:
    """Makes a data folder with the training pairs of `data` and back-translated ones.

    The new pairs have a human's sentence as target and a model's translation of it as
    source. They are cleaned with `keras_vqem.text.clean`. The other splits and the
    tokenizer are those of `data`.

    Args:
        data: `TranslationData` with the human translations.
        output: Folder of the new data.
        translations: Translations of `targets` into the source language.
        targets: Lines in the target language.
        weight: Number of times that the training pairs of `data` come up per epoch.
        tag: Text to put before each back-translated source, such as `"#"`, that no
            sentence begins with. The model then learns that these pairs are of another
            kind, for example shorter, and does not write like that without the tag
            (Caswell et al. 2019, arXiv:1906.06442). Empty for no tag.

    Returns:
        A `Distilled`; `kept` is the number of pairs of `data` in it.
    """
    train = data.corpus("train").repeated(weight)
    added, _ = clean(ParallelCorpus(translations, targets))
    if tag:
        added = ParallelCorpus([f"{tag} {s}" for s in added.sources], added.targets)
    made = _create(data, output, train + added)
    return Distilled(made, len(train) + len(added), len(train))


def _create(data, output, train):
    splits = {name: data.corpus(name) for name in data.splits if name != "train"}
    splits["train"] = train
    try:
        return TranslationData.create(
            output, data.source, data.target, data.tokenizer, splits
        )
    except FileExistsError:
        # The process of another shard has joined them already.
        made = TranslationData(output)
        if made.corpus("train").targets != train.targets:
            raise
        return made
