"""The plan of recipes/reproduce.py: which commands make the tables of the paper.

Only recipes import this module.
"""

import sys
from pathlib import Path

from paper_scales import SCALES
from paper_tables import MODELS, TABLES

from keras_vqem.models.loading import model_file
from keras_vqem.training.jobs import Job

RECIPES = Path(__file__).resolve().parent
MULTI30K = {"train": "train", "val": "val", "test": "test_2016_flickr"}
SIDES = {"source": "en", "target": "de"}


def words(flags):
    """Returns the words of a command line for a dict of flags."""
    found = []
    for name, value in flags.items():
        if value is None or value is False:
            continue
        found.append(f"--{name.replace('_', '-')}")
        if value is not True:
            several = value if isinstance(value, list | tuple) else [value]
            found += map(str, several)
    return found


def command(recipe, flags):
    return [sys.executable, str(RECIPES / f"{recipe}.py"), *words(flags)]


class Plan:
    """The jobs of some tables at a scale.

    Attributes:
        jobs: Dict from names to `Job`s: to prepare, to train and to measure images.
        left_out: Dict from names of models to the reason why they are not trained.

    Args:
        tables: Names of tables.
        scale: Name of the scale.
        work: Folder for data, runs and results.
        data: Folder of the data, or None.
        teacher: Run or preset to use as teacher, or None for that of the scale.
        only: Names of models to which the rows are limited, or None for all.
        seed: Seed of all runs.
    """

    def __init__(self, tables, scale, work, data=None, teacher=None, only=None, seed=1):
        self.scale, self.scale_name, self.seed = SCALES[scale], scale, seed
        self.work, self.data = Path(work), data and Path(data)
        self.teacher = teacher or self.scale.teacher
        self.jobs, self.left_out, self.pairs = {}, {}, None
        self.tables = {name: self._rows(TABLES[name], only) for name in tables}
        for name, table in self.tables.items():
            for row in table.rows:
                self._add_row(name, table, row)

    def _rows(self, table, only):
        known = {row.model for row in table.rows}
        rows = [r for r in table.rows if not only or r.model in {*only, "teacher"}]
        for model in known:
            recipe = MODELS[model].recipe
            if not (RECIPES / f"{recipe}.py").is_file():
                self.left_out[model] = f"left out: recipes/{recipe}.py is missing"
        return table._replace(rows=rows)

    def _add_row(self, name, table, row):
        if row.model in self.left_out:
            return
        self._model(row.model)
        if table.kind == "images":
            self._bits(row.model)
        elif table.kind == "pictures":
            output = self.work / "results" / f"pictures_{self.name(row.model)}"
            flags = {"model": self.folder(row.model), "output": output}
            self._add(
                f"pictures {self.name(row.model)}",
                "sample_images",
                {**flags, **self._image_data()},
                output / "reconstructions.png",
                [self.name(row.model)],
                again=True,
            )

    def _add(self, name, recipe, flags, output, needs=(), **more):
        if name not in self.jobs:
            minutes = self.scale.minutes
            usual = minutes.get("train_") if recipe.startswith("train_") else None
            flags = {**flags, **self._common(recipe, flags)}
            self.jobs[name] = Job(
                name,
                command(recipe, flags),
                Path(output),
                [need for need in needs if need in self.jobs],
                minutes.get(recipe, usual),
                **more,
            )
        return name

    def _common(self, recipe, flags):
        common = self.scale.flags.get(recipe, {})
        return {name: value for name, value in common.items() if name not in flags}

    # Data.

    def _image_data(self):
        found = dict(self.scale.images)
        if found["dataset"] != "shapes":
            found["data"] = self._needs_data("CIFAR-10 (cifar-10-batches-bin)")
        return found

    def _needs_data(self, what):
        if self.data is None:
            raise ValueError(
                f"--scale {self.scale_name} needs {what}: pass the folder as --data."
            )
        return self.data

    def _gold(self):
        """Returns the name of the job that prepares sentence pairs."""
        if self.pairs:
            return "data"
        self.pairs = self.work / "data" / "gold"
        flags = {"output": self.pairs}
        if self.scale_name == "paper":
            flags["data"] = self._needs_data("WMT14 as tfds has prepared it")
        elif self.scale_name == "small":
            folder = self._needs_data("the files of Multi30k") / "multi30k"
            if (folder / "data.json").is_file():
                self.pairs = folder  # Prepared before, with the teacher's vocabulary.
                return "data"
            flags |= self._multi30k(folder)
        return self._add("data", "prepare_translation", flags, self.pairs / "data.json")

    def _multi30k(self, folder):
        files = {
            f"{split}_{side}": folder / f"{stem}.{language}"
            for split, stem in MULTI30K.items()
            for side, language in SIDES.items()
        }
        if missing := [str(f) for f in files.values() if not f.is_file()]:
            raise ValueError(
                f"There is no {', '.join(missing)}. Pass the folder that has multi30k "
                f"(and cifar-10-batches-bin, for images) as --data. multi30k may also "
                f"be a folder that prepare_translation.py made."
            )
        tokenizer = model_file(self.teacher).parent / "tokenizer.model"
        if not tokenizer.is_file():
            raise ValueError(
                f"{self.teacher} has no tokenizer.model to prepare {folder} with. Pass "
                f"a preset as --teacher, or as {folder} the folder that the teacher "
                f"was trained on."
            )
        return {**files, "tokenizer": tokenizer}

    # Models.

    def name(self, model):
        """Returns the name of a model's job, or of a table's results."""
        shared = self.seed == 1 or model == "teacher"
        return model if shared else f"{model}_seed{self.seed}"

    def folder(self, model):
        """Returns the folder of a model's run, or the teacher that was given."""
        if model == "teacher" and self.teacher:
            return self.teacher
        return self.work / "runs" / self.name(model)

    def flags(self, model):
        """Returns the flags by which a model differs from others, at this scale."""
        return {
            name: self.scale.scaled[name].get(value, value)
            if name in self.scale.scaled
            else value
            for name, value in MODELS[model].flags.items()
        }

    def _distilled(self):
        needs = [self._gold(), self._model("teacher")]
        output = self.work / "data" / "distilled"
        flags = {"data": self.pairs, "model": self.folder("teacher"), "output": output}
        return self._add("distilled", "distill", flags, output / "data.json", needs)

    def _model(self, model):
        """Adds the job that trains a model, after those it needs; returns its name."""
        name, kind = self.name(model), MODELS[model]
        flags, needs = {"run": self.folder(model), "resume": True}, []
        if model == "teacher" and self.teacher:
            return name
        if model != "teacher":
            flags["seed"] = self.seed
        if kind.data == "images":
            flags |= self._image_data()
        else:
            needs.append(self._gold())
            flags["data"] = self.pairs
            if model != "teacher":
                needs.append(self._model("teacher"))
            if kind.data == "distilled":
                needs.append(self._distilled())
                flags["data"] = self.work / "data" / "distilled"
            if kind.start and self.scale.starts:
                flags["teacher"] = self.folder("teacher")
        if kind.autoencoder:
            needs.append(self._model(kind.autoencoder))
            flags["autoencoder"] = self.folder(kind.autoencoder)
        flags |= self.flags(model)
        epochs = {**self.scale.flags[kind.recipe], **flags}["epochs"]
        output = self.folder(model)
        return self._add(name, kind.recipe, flags, output, needs, epochs=epochs)

    # Measurements.

    def bits_file(self, model):
        """Returns the JSON file of evaluate_images.py."""
        return self.work / "results" / f"bits_{self.name(model)}.json"

    def _bits(self, model):
        needs = [self._model(model)]
        flags = {"model": self.folder(model), **self._image_data()}
        if f"{model}_prior" in MODELS:
            needs.append(self._model(f"{model}_prior"))
            flags["prior"] = self.folder(f"{model}_prior")
        flags["json"] = self.bits_file(model)
        name = f"bits {self.name(model)}"
        self._add(name, "evaluate_images", flags, flags["json"], needs, again=True)

    def compared(self, table, trained):
        """Returns the models of a table that are trained, the teacher first."""
        models = [row.model for row in self.tables[table].rows]
        return list(
            dict.fromkeys(
                m for m in models if m not in self.left_out and self.name(m) in trained
            )
        )

    def comparison(self, table, trained):
        """Returns the `Job` that measures all trained models of a table side by side.

        Args:
            table: Name of a table.
            trained: Names of the jobs that are done.

        Returns:
            The job, or None if the table needs none.
        """
        chosen = self.tables[table]
        trained = {*trained, "teacher"} if self.teacher else trained
        models = self.compared(table, trained)
        if chosen.kind != "translation" or models[:1] != ["teacher"]:
            return None
        decoding = {}
        for row in chosen.rows:
            for option, value in row.decoding.items() if row.model in models else ():
                decoding.setdefault(option, set()).add(value)
        flags = {"data": self.pairs, "split": "test"}
        flags |= {option: sorted(values) for option, values in decoding.items()}
        if "num_samples" in decoding:  # Noisy parallel decoding: the teacher chooses.
            flags["rescorer"] = self.folder("teacher")
        output = self.work / "results" / f"{self.name(table)}.json"
        flags = {**flags, **self._common("evaluate_translation", flags), "json": output}
        each = [word for m in models for word in words({"model": self.folder(m)})]
        return Job(
            f"compare {self.name(table)}",
            [*command("evaluate_translation", flags), *each],
            output,
            [self.name(m) for m in models if self.name(m) in self.jobs],
            self.scale.minutes.get("evaluate_translation"),
            again=True,
        )
