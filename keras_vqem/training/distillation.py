"""Distillation: a training set whose targets a teacher has written.

The sources are cut into shards, which may be translated by different processes. Each
shard appends its lines to a file of its own, so that a killed process loses no more
than a chunk; when all are complete they are joined.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import time
from typing import NamedTuple

from keras_vqem.files import write_json
from keras_vqem.text import ParallelCorpus, TranslationData
from keras_vqem.text.lines import one_line


class Distilled(NamedTuple):
    """What `join` made: the folder's data, and how many lines kept their target."""

    data: TranslationData
    lines: int
    kept: int


class Shard:
    """One of `count` parts of the training sources, and the file of its outputs.

    Args:
        output: Folder of the distilled data; shards lie in `shards/` within.
        number: From 1 to `count`.
        count: The number of shards.
    """

    def __init__(self, output, number=1, count=1):
        if not 1 <= number <= count:
            raise ValueError(
                f"Shard {number}/{count} does not exist. They are 1/{count} to "
                f"{count}/{count}."
            )
        self.number, self.count = number, count
        folder = pathlib.Path(output) / "shards"
        self.path = folder / f"{number}-of-{count}.txt"
        self.settings_path = folder / f"{number}-of-{count}.json"

    def part(self, lines):
        """The lines that belong to this shard."""
        start = len(lines) * (self.number - 1) // self.count
        return lines[start : len(lines) * self.number // self.count]

    def outputs(self):
        """The complete lines written so far, a list of strings."""
        if not self.path.exists():
            return []
        # What follows the last line end is nothing, or a line that was torn.
        return self.path.read_bytes().decode("utf-8", "replace").split("\n")[:-1]

    def translate(self, translate, sources, settings, chunk_lines=1024, log=print):
        """Translates what is not translated yet.

        Args:
            translate: Function from a list of strings to a list of as many.
            sources: All training sources.
            settings: Dict of what the outputs depend on, such as the hash of the
                model; a shard that was begun with others is not continued.
            chunk_lines: How many lines are translated and written at a time.
            log: Function that takes a line of progress, each ten seconds or so.
        """
        sources = self.part(sources)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab") as file, self._alone(file):
            self._check(settings)
            done = first = len(self.outputs())
            if done > len(sources):
                raise ValueError(
                    f"{self.path} has {done} lines for {len(sources)} sources. Remove "
                    f"it to begin the shard anew."
                )
            content = self.path.read_bytes()
            file.truncate(content.rfind(b"\n") + 1)
            begin = shown = time.monotonic()
            while done < len(sources):
                chunk = sources[done : done + chunk_lines]
                texts = translate(chunk)
                if len(texts) != len(chunk):
                    raise ValueError(
                        f"The translator gave {len(texts)} lines for {len(chunk)}."
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
        """Keeps a second process out of the file; the system ends it with ours."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RuntimeError(
                f"Another process works on {self.path}. Wait for it, or choose "
                f"another shard."
            ) from error
        yield

    def _check(self, settings):
        settings = json.loads(json.dumps(settings))
        if not self.settings_path.exists():
            if self.path.stat().st_size:
                raise ValueError(
                    f"{self.path} has lines, but {self.settings_path.name}, which says "
                    f"what wrote them, is missing. Remove it to begin the shard anew."
                )
            write_json(self.settings_path, settings)
        before = self.settings()
        differing = [
            f"  {key}: begun with {before.get(key)!r}, received {settings.get(key)!r}"
            for key in sorted({*before, *settings})
            if before.get(key) != settings.get(key)
        ]
        if differing:
            raise ValueError(
                f"{self.path} was begun with other settings:\n"
                + "\n".join(differing)
                + "\nGo on with those, or choose another output folder."
            )

    def settings(self):
        """The settings the shard was begun with; None if it was not begun."""
        if not self.settings_path.exists():
            return None
        return json.loads(self.settings_path.read_text())


def join(data, output, count=1):
    """Makes a data folder of complete shards; the rest is copied from `data`.

    A source for which the teacher wrote nothing keeps its own target; if it wrote
    nothing at all, there is nothing to join.

    Args:
        data: `TranslationData` whose training sources were translated.
        output: Folder of the shards, and of the new data.
        count: The number of shards.

    Returns:
        A `Distilled`, or None if shards are not complete yet.

    Raises:
        ValueError: If the shards are not of this data or differ in their settings, or
            if all translations are empty.
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
                f"{len(shard.part(train.sources))} sources: it is not of this data."
            )
        if shard.settings() != shards[0].settings():
            raise ValueError(
                f"{shard.path} and {shards[0].path} were made with different settings: "
                f"compare the .json files beside them, and remove one."
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
        # The process of another shard was first.
        made = TranslationData(output)
        if made.corpus("train").targets != targets:
            raise
    return Distilled(made, len(targets), kept)
