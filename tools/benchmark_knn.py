"""Measures our weighted nearest neighbours beside scikit-learn's brute force, in turns, each in a process of its own.

    python -m tools.benchmark_knn --sizes=50000x10000x128 --turns=3 --output=knn.json

Contestants: `ours`; `scikit_learn`, KNeighborsClassifier(algorithm="brute", metric="cosine") with the same weights.
Both get the same float32 features, overlapping clouds of --classes classes, and both have run once, on a small problem,
before the clock starts. Seconds are of the whole prediction. `growth` is the memory that a prediction took beyond what
its process held before, features included; `peak` is that of the whole process. `differ`: predictions unlike ours.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from absl import flags
from sklearn.neighbors import KNeighborsClassifier

from selabel_tf.atomic_file import write_atomically
from selabel_tf.evaluation import knn
from selabel_tf.evaluation.report import Table, format_table
from tools import console

SIZES = flags.DEFINE_list("sizes", ["50000x10000x128"], "Problems, bank x queries x features.")
K = flags.DEFINE_integer("k", 50, "Neighbours.", lower_bound=1)
SIGMA = flags.DEFINE_float("sigma", 0.1, "Width of the weights.", lower_bound=1e-6)
CLASSES = flags.DEFINE_integer("classes", 10, "Classes of the problems.", lower_bound=2)
TURNS = flags.DEFINE_integer("turns", 3, "How often each contestant runs.", lower_bound=1)
OUTPUT = flags.DEFINE_string("output", None, "File for all results as JSON.")
JOB = flags.DEFINE_string("job", None, "One contestant on one problem, as JSON; used by this program itself.")


def problem(bank, queries, features, classes):
    """Features of the bank [N, D], its classes [N], features of the queries [M, D]: one noisy cloud for each class."""
    random = np.random.default_rng(0)
    drawn = random.integers(classes, size=bank + queries)
    rows = random.standard_normal((bank + queries, features), np.float32)
    for number in range(classes):
        rows[drawn == number] += random.standard_normal(features, np.float32) / 3
    return rows[:bank], drawn[:bank], rows[bank:]


def ours(bank, classes, queries, k, sigma):
    return knn.knn_predict(bank, classes, queries, k=k, sigma=sigma)


def scikit_learn(bank, classes, queries, k, sigma):
    def weights(distance):
        return np.exp((1 - distance) / sigma)

    classifier = KNeighborsClassifier(k, algorithm="brute", metric="cosine", weights=weights)
    return classifier.fit(bank, classes).predict(queries)


CONTESTANTS = {"ours": ours, "scikit_learn": scikit_learn}


def peak():
    """Most bytes that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def work(job):
    """Runs one job in this process, and leaves its predictions in the file job["predictions"]; what was measured."""
    predict = CONTESTANTS[job["contestant"]]
    predict(*problem(job["k"], 3, job["features"], job["classes"]), job["k"], job["sigma"])
    bank, classes, queries = problem(job["bank"], job["queries"], job["features"], job["classes"])
    before, start = peak(), time.perf_counter()
    predicted = predict(bank, classes, queries, job["k"], job["sigma"])
    seconds = time.perf_counter() - start
    np.save(job["predictions"], predicted)
    return {"seconds": seconds, "peak_bytes": peak(), "growth_bytes": peak() - before}


def measure(job):
    """One job in a process of its own."""
    command = [sys.executable, "-m", "tools.benchmark_knn", f"--job={json.dumps(job)}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).resolve().parents[1])
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{job['contestant']} ended with code {done.returncode}: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(bank, queries, features):
    """One result for each contestant: its seconds in every turn, memory, and predictions that are not ours."""
    found, predicted = {name: [] for name in CONTESTANTS}, {}
    what = {"bank": bank, "queries": queries, "features": features, "classes": CLASSES.value}
    what |= {"k": K.value, "sigma": SIGMA.value}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS.value):
            for name in CONTESTANTS:
                path = f"{folder}/{name}.npy"
                found[name].append(measure(what | {"contestant": name, "predictions": path}))
                predicted[name] = np.load(path, allow_pickle=False)
                print(f"turn {turn + 1} of {TURNS.value}  {name}  {found[name][-1]['seconds']:.2f} s", flush=True)
    return [
        what
        | {
            "contestant": name,
            "seconds": [turn["seconds"] for turn in turns],
            "median_seconds": float(np.median([turn["seconds"] for turn in turns])),
            "peak_bytes": max(turn["peak_bytes"] for turn in turns),
            "growth_bytes": max(turn["growth_bytes"] for turn in turns),
            "differ": int((predicted[name] != predicted["ours"]).sum()),
        }
        for name, turns in found.items()
    ]


def size(text):
    """'50000x10000x128' -> (50000, 10000, 128)"""
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isdigit() and int(part) for part in parts):
        raise ValueError(f"{text!r} is not a size. Give bank x queries x features, e.g. 50000x10000x128.")
    return tuple(map(int, parts))


def row_of(result):
    problem_size = "x".join(str(result[key]) for key in ("bank", "queries", "features"))
    seconds = (f"{result['median_seconds']:.2f}", f"{min(result['seconds']):.2f}", f"{max(result['seconds']):.2f}")
    memory = (f"{result[key] / 2**30:.2f}" for key in ("growth_bytes", "peak_bytes"))
    return (problem_size, result["contestant"], *seconds, *memory, result["differ"])


def main(_):
    if JOB.value:
        print(json.dumps(work(json.loads(JOB.value))))
        return
    sizes = [size(text) for text in SIZES.value]
    for bank, _, _ in sizes:
        knn.check_settings([K.value], [SIGMA.value], bank)
    results = [result for one in sizes for result in compare(*one)]
    columns = ("problem", "contestant", "seconds", "least", "most", "growth GiB", "peak GiB", "differ")
    note = f"k={K.value}, sigma={SIGMA.value:g}, {CLASSES.value} classes; seconds: median of {TURNS.value} turns."
    print(f"\n{format_table(Table('Weighted nearest neighbours', columns, tuple(map(row_of, results)), note))}")
    if OUTPUT.value:
        write_atomically(OUTPUT.value, json.dumps({"results": results}, indent=2) + "\n")
        print(f"\nAll numbers: {OUTPUT.value}")


if __name__ == "__main__":
    console.run(main)
