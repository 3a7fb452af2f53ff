"""The pages of recipes/reproduce.py: the paper's numbers and ours, side by side.

Only recipes import this module.
"""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import plot_runs
from paper_plan import RECIPES
from paper_tables import MODELS

from keras_vqem.evaluation.environment import environment
from keras_vqem.evaluation.markdown import markdown_table
from keras_vqem.evaluation.model_card import training_seconds
from keras_vqem.files import read_json, read_json_lines, replacing, write_json

HEADERS = {
    "num_compress_steps": "n_c",
    "num_samples": "n_s",
    "num_codes": "codes",
    "hidden_dim": "width",
    "bottleneck": "bottleneck",
    "groups": "codes per position",
    "attend_source": "attention",
    "learning_rate": "learning rate",
}
# By kind: the columns of the paper's numbers and of ours, with their formats.
COLUMNS = {
    "translation": (
        {"bleu": ("BLEU", "{:.1f}"), "ms": ("ms", "{:.0f}")}
        | {"speedup": ("speedup over beam 4", "{:.2f}x")},
        {"bleu": ("BLEU", "{:.2f}"), "ms": ("ms", "{:.1f}")}
        | {"speedup": ("speedup over beam 4", "{:.2f}x")}
        | {"own_codes_bleu": ("BLEU, codes of references", "{:.2f}")}
        | {"perplexity": ("perplexity", "{:.0f}"), "minutes": ("minutes", "{:.0f}")},
    ),
    "stability": (
        {},
        {"best": ("best BLEU", "{:.2f}"), "last": ("last BLEU", "{:.2f}")}
        | {"random": ("last BLEU, random codes", "{:.2f}")}
        | {"perplexity": ("last perplexity", "{:.0f}")}
        | {"minutes": ("minutes", "{:.0f}")},
    ),
    "images": (
        {"bits": ("bits/dim", "{:.2f}")},
        {"bits": ("bits/dim", "{:.3f}")}
        | {"reconstruction": ("pixels", "{:.3f}"), "codes": ("codes", "{:.3f}")}
        | {"minutes": ("minutes", "{:.0f}")},
    ),
    "pictures": ({}, {}),
}


# What was measured.


def minutes(run):
    seconds = training_seconds(run)
    return {} if seconds is None else {"minutes": seconds / 60}


def translation_results(plan, table, comparison, trained):
    """Returns a dict from places of rows to our numbers, and facts of the measurement.

    Args:
        plan: The `Plan`.
        table: Name of the table.
        comparison: JSON file of evaluate_translation.py.
        trained: Names of the jobs that are done.
    """
    rows, report = plan.tables[table].rows, read_json(comparison)
    entries = report.pop("entries")
    names = dict.fromkeys(entry["translator"] for entry in entries)
    # Models are in the order in which they were given.
    translators = dict(zip(plan.compared(table, trained), names, strict=True))
    varied = {option for row in rows for option in row.decoding}
    teacher = f"{translators['teacher']}, 4 beams"
    found = {}
    for place, row in enumerate(rows):
        fitting = [
            entry
            for entry in entries
            if entry["translator"] == translators.get(row.model)
            and row.decoding.items() <= entry.items()
        ]
        if not fitting:
            continue
        # A row that says nothing of an option is of a model that was not given it.
        entry = min(fitting, key=lambda e: len(varied & e.keys()))
        time = entry["latency"]["1"]
        ours = {"bleu": entry["bleu"], "ms": time["median_ms"]}
        if teacher in time["speedup"]:
            ours["speedup"] = time["speedup"][teacher]
        if "codes" in entry:
            codes = entry["codes"]
            ours["perplexity"] = codes["perplexity"]
            ours["own_codes_bleu"] = codes["bleu_from_own_codes"]
        found[place] = {**ours, **minutes(plan.folder(row.model))}
    report["bleu_signature"] = entries[0]["bleu_signature"]
    return found, report


def stability_results(plan, table):
    found = {}
    for place, row in enumerate(plan.tables[table].rows):
        lines = read_json_lines(plan.folder(row.model) / "metrics.jsonl")
        measured = [line for line in lines if "val_teacher_forced_bleu" in line]
        if measured:
            bleu = [line["val_teacher_forced_bleu"] for line in measured]
            last = measured[-1]
            found[place] = {"best": max(bleu), "last": bleu[-1]}
            found[place] |= {"random": last["val_random_codes_bleu"]}
            found[place] |= {"curve": bleu, **minutes(plan.folder(row.model))}
            if "perplexity" in last:  # Semantic hashing has none.
                found[place]["perplexity"] = last["perplexity"]
    return found, environment()


def image_results(plan, table):
    found, notes = {}, []
    for place, row in enumerate(plan.tables[table].rows):
        if not plan.bits_file(row.model).exists():
            continue
        report = read_json(plan.bits_file(row.model))
        bits = report["rows"][row.prior]
        # A prior was trained after its autoencoder, if there is one.
        runs = [plan.folder(row.model), plan.folder(f"{row.model}_prior")]
        spent = [minutes(run).get("minutes") for run in runs]
        spent = [value for value in spent if value is not None]
        found[place] = {"bits": bits["total"], "minutes": sum(spent) if spent else None}
        if bits["prior"]:
            found[place] |= {"reconstruction": bits["reconstruction"]}
            found[place] |= {"codes": bits["prior"]}
        notes += [f"{row.label}: {note}" for note in report["notes"]]
    return found, {"notes": notes, **environment()}


# Pictures.


def stability_pictures(plan, table, name, output):
    """Draws one picture per learning rate and attention; returns their file names."""
    groups = {}
    for row in plan.tables[table].rows:
        flags = plan.flags(row.model)
        lines = read_json_lines(plan.folder(row.model) / "metrics.jsonl")
        if any("val_teacher_forced_bleu" in line for line in lines):
            samples = flags["num_samples"]
            label = f"{row.label}{f', {samples} samples' if samples else ''}"
            attends = "attention" if flags["attend_source"] else "no_attention"
            rate = f"rate_{flags['learning_rate']:g}"
            groups.setdefault(f"{name}_{attends}_{rate}.png", {})[label] = lines
    for file, runs in groups.items():
        metrics = ["val_teacher_forced_bleu", "perplexity"]
        with replacing(output / file) as part:
            plot_runs.plot(runs, metrics, "epoch", part)
    return list(groups)


def reconstructions(plan, table, name, output):
    found = []
    for row in plan.tables[table].rows:
        job = plan.jobs[f"pictures {plan.name(row.model)}"]
        if job.output.exists():
            file = f"{name}_{row.model}.png"
            with replacing(output / file) as part:
                shutil.copyfile(job.output, part)
            found.append(file)
    return found


# Pages.


def shown(flags, scaled, name):
    """Returns the cell of a flag: the paper's value, and ours if it differs."""
    if name not in flags:
        return {"bottleneck": "em", "groups": "1", "attend_source": "no"}.get(name, "")
    value, here = flags[name], scaled[name]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "num_samples" and (not value or flags.get("bottleneck", "em") != "em"):
        return "-"
    return f"{value}" if here == value else f"{value} (here {here})"


def cell(values, name, form):
    if values.get(name) is None:
        return ""
    mark = "*" if name == "speedup" and values.get("not_over_beam_4") else ""
    return form.format(values[name]) + mark


def printed(command):
    """Returns a command as it is typed in the folder above recipes."""
    start = ["python", f"recipes/{Path(command[1]).name}"]
    if [command[0], Path(command[1]).parent] != [sys.executable, RECIPES]:
        start = command[:2]
    return shlex.join(map(str, [*start, *command[2:]]))


def write(plan, table, comparison, states, output, typed):
    """Writes TABLE.md, TABLE.json and pictures, and returns the path of the page.

    Args:
        plan: The `Plan`.
        table: Name of the table.
        comparison: The `Job` that compared its translators, or None.
        states: Dict from names of jobs to how they ended.
        output: Folder to write to.
        typed: The command of the whole.
    """
    chosen, output, name = plan.tables[table], Path(output), plan.name(table)
    output.mkdir(parents=True, exist_ok=True)
    found, facts, pictures = {}, environment(), []
    done = {job for job, state in states.items() if state == "done"}
    if chosen.kind == "translation" and comparison and comparison.name in done:
        trained = {*done, "teacher"}
        found, facts = translation_results(plan, table, comparison.output, trained)
    elif chosen.kind == "stability":
        found, facts = stability_results(plan, table)
        pictures = stability_pictures(plan, table, name, output)
    elif chosen.kind == "images":
        found, facts = image_results(plan, table)
    elif chosen.kind == "pictures":
        pictures = reconstructions(plan, table, name, output)

    rows = []
    for place, row in enumerate(chosen.rows):
        state = plan.left_out.get(row.model) or states.get(plan.name(row.model), "done")
        if state == "done" and place not in found and chosen.kind != "pictures":
            state = "not measured"
        rows.append(
            {
                "label": row.label,
                "model": row.model,
                "state": state,
                "decoding": row.decoding if chosen.kind == "translation" else {},
                "flags": {**MODELS[row.model].flags},
                "flags_here": plan.flags(row.model),
                "paper": row.paper,
                "ours": found.get(place, {}),
            }
        )
    commands = [printed(job.command) for job in plan.jobs.values() if job.name in done]
    if comparison:
        commands.append(printed(comparison.command))
    result = {"table": table, "scale": plan.scale_name, "seed": plan.seed, "rows": rows}
    text = json.dumps({**result, **facts, "commands": commands})
    write_json(output / f"{name}.json", json.loads(_published(plan, text)))
    page = output / f"{name}.md"
    text = _page(plan, chosen, rows, facts, pictures, commands, typed)
    with replacing(page) as part:
        part.write_text(_published(plan, text))
    return page


def _published(plan, text):
    """Returns a text without the folders of this machine."""
    for folder, name in ((plan.work, "WORK"), (plan.data, "DATA")):
        for path in [folder.resolve(), folder] if folder else []:
            text = re.sub(rf"(?<![\w/.-]){re.escape(str(path))}(?![\w.-])", name, text)
    return text.replace(f"{RECIPES.parent}/", "")


def _page(plan, chosen, rows, facts, pictures, commands, typed):
    paper, ours = COLUMNS[chosen.kind]
    names = ["", *(HEADERS[name] for name in chosen.varies)]
    names += [f"paper: {header}" for header, _ in paper.values()]
    names += [f"here: {header}" for header, _ in ours.values()]
    lines = []
    for row in rows:
        line = [row["label"]]
        if row["state"] != "done":
            line = [f"{row['label']} ({row['state']})"]
        own = {} if row["model"] == "teacher" else row["flags"]
        for name in chosen.varies:
            line.append(shown(own, row["flags_here"], name) if own else "")
        line += [cell(row["paper"], key, form) for key, (_, form) in paper.items()]
        line += [cell(row["ours"], key, form) for key, (_, form) in ours.items()]
        lines.append(line)
    machine = facts["machine"]
    parts = [f"# {chosen.title}", markdown_table(names, lines)]
    if any(row["paper"].get("not_over_beam_4") for row in rows):
        parts.append(
            "\\* over the autoregressive Transformer of Gu et al. (2017), not over the "
            "331 ms of this table: the paper says 408 ms, but milliseconds times "
            "speedup are 607 in all three rows."
        )
    parts += [chosen.note] if chosen.note else []
    parts += [f"![{Path(file).stem}]({file})" for file in pictures]
    parts += facts.get("notes", [])
    if chosen.kind == "translation" and "sentences" in facts:
        parts.append(
            f"Split {facts['split']}, {facts['sentences']} sentences. BLEU: "
            f"`{facts['bleu_signature']}`; the paper does not say how its BLEU was "
            f"computed. Latencies are medians at batch 1, of all models in turns in "
            f"one process, after all training."
        )
    parts.append(
        f"Scale `{plan.scale_name}`, seed {plan.seed}, one run per row. Machine: "
        f"{machine['processor']}, {machine['cores']} cores, {machine['gpus']} GPUs."
    )
    block = "\n".join(["## Commands", "", "```bash", typed, "```", ""])
    block += "\nwhich ran:\n\n```bash\n" + "\n".join(commands) + "\n```"
    return "\n\n".join([*parts, block]) + "\n"
