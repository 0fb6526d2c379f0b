"""Writes the network of a run as a file that other programs read, runs that file, and compares it with Keras.

    python -m tools.export --workdir=runs/digits --format=saved_model --output=export/digits
    python -m tools.export --workdir=runs/digits --format=tflite --quantize=int8 --output=export/digits_int8

    saved_model  for TF Serving and TensorFlow: features, features of encoded files, clusters; can be fine-tuned
    keras        backbone.keras, for keras.models.load_model
    tflite       for LiteRT; --quantize=none|float16|dynamic|int8, --batch for a fixed number of images
    onnx         for onnxruntime

Each export becomes the next number under --output; existing ones stay. It gets its number only when its features agree
with those of Keras on --num_images images of the evaluation set; otherwise nothing is kept and the exit code is 1.
"""

import tools.quiet  # isort: skip  first: TensorFlow is loud

import difflib
import json
import shlex
import urllib.parse

import numpy as np
from absl import flags

from selabel_tf.atomic_file import write_atomically
from selabel_tf.evaluation import knn
from selabel_tf.evaluation.report import Table, format_table
from selabel_tf.export import keras_file, onnx, parity, saved_model, tflite
from selabel_tf.training import card, serving
from tools import console, judged_run

flags.adopt_module_key_flags(judged_run)  # --help shows them, too
FORMAT = flags.DEFINE_string("format", None, "saved_model, keras, tflite or onnx.", required=True)
OUTPUT = flags.DEFINE_string("output", None, "Folder in which exports are numbered 1, 2, ...", required=True)
QUANTIZE = flags.DEFINE_string("quantize", "none", "Of tflite: none, float16, dynamic or int8.")
BATCH = flags.DEFINE_integer("batch", None, "Of tflite: a fixed number of images per call. By default any number.")
NUM_IMAGES = flags.DEFINE_integer("num_images", 2000, "Images of the evaluation set to compare on.", lower_bound=2)

FORMATS = {"saved_model": saved_model, "keras": keras_file, "tflite": tflite, "onnx": onnx}
CALIBRATION_IMAGES = 256
BLOCK = 100  # images at once in the comparison


class Disagreement(ValueError):
    """The exported file does not give the features of Keras."""


def main(_):
    check_flags()
    judged = judged_run.load(classes_needed=False)
    run = judged.run
    options = {
        "preprocessing": serving.preprocessing(run),
        "facts": serving.facts(run, judged.train),
        "check": lambda folder: compare(judged, folder),
    }
    if FORMAT.value == "tflite":
        options |= {"quantize": QUANTIZE.value, "batch": BATCH.value}
        if QUANTIZE.value == "int8":
            options["representative"] = prepared(spread(judged.train, max(CALIBRATION_IMAGES, BATCH.value or 1)))
    print(f"Writing {run.config.model.backbone} of {run.workdir} as {FORMAT.value}", flush=True)
    with tools.quiet.without_chatter():
        folder = FORMATS[FORMAT.value].export(run.model, OUTPUT.value, **options)
    kept = keep(judged, folder)
    card.write(run, folder / card.FILE)
    print(f"\nExport: {folder}    Comparison: {kept}    Card: {folder / card.FILE}")
    name = folder.parent.name
    words = {
        "mounted": f"{folder.parent.resolve()}:/models/{name}",
        "named": f"MODEL_NAME={name}",
        "address": f"localhost:8501/v1/models/{urllib.parse.quote(name)}:predict",
        "shown": folder,
    }
    quoted = {key: shlex.quote(str(word)) for key, word in words.items()}
    print(NEXT[FORMAT.value].format(folder=folder, **quoted))


def check_flags():
    """Refuses what cannot be meant, before anything is read."""
    if FORMAT.value not in FORMATS:
        close = difflib.get_close_matches(FORMAT.value, FORMATS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"Unknown format {FORMAT.value!r}.{hint} Available: {', '.join(FORMATS)}.")
    if QUANTIZE.value not in tflite.QUANTIZATIONS:
        raise ValueError(f"Unknown --quantize={QUANTIZE.value!r}. Available: {', '.join(tflite.QUANTIZATIONS)}.")
    if FORMAT.value != "tflite" and (QUANTIZE.value != "none" or BATCH.value is not None):
        raise ValueError(f"--quantize and --batch are options of tflite. Leave them out with --format={FORMAT.value}.")


def compare(judged, folder):
    """The parity report of the export in `folder`, written into it; raises Disagreement where a bound is passed."""
    images = spread(judged.test or judged.train, NUM_IMAGES.value)
    run = judged.run
    with console.Progress(2 * images.num_examples, "comparing") as progress:
        found = parity.measure(
            folder,
            run.model.backbone,
            images.plain_batches(BLOCK),
            images.num_examples,
            knn=judge(images, run.config.evaluation),
            float_bytes=len(tflite.convert(run.model, batch=BATCH.value)) if QUANTIZE.value != "none" else None,
            on_batch=progress.update,
        )
    breaches = found.breaches(parity.bounds(QUANTIZE.value, run.config.model.precision))
    print(f"\n{format_table(table(found, images.name))}", flush=True)
    if breaches:
        raise Disagreement(
            f"The {FORMAT.value} file does not agree with Keras: {'; '.join(breaches)}. Nothing was kept in "
            f"{OUTPUT.value}. Choose a finer --quantize, or another format."
        )
    report = {"images": images.name, **found.facts()}
    write_atomically(folder / "parity.json", json.dumps(report, indent=1, allow_nan=False) + "\n")


def judge(images, settings):
    """features -> kNN accuracy among `images`, each judged by the others; None without true classes."""
    if images.classes is None:
        return None
    k = min(settings.knn_k, images.num_examples - 1)
    return lambda features: knn.leave_one_out_accuracy(features, images.classes, k=k, sigma=settings.knn_sigma)


def spread(source, count):
    """About `count` images of a source, evenly over all of it: a sorted folder gives of every class."""
    count = min(count, source.num_examples)
    return source.subset(np.linspace(0, source.num_examples - 1, count).round().astype(np.int64))


def prepared(source):
    """All images of a source as evaluation sees them, [n, h, w, c]."""
    return np.concatenate([images.numpy() for images, _ in source.plain_batches(BLOCK)])


def table(found, name):
    def milliseconds(seconds):
        return f"{1000 * seconds:.2f} ms"

    rows = [
        ("largest difference, relative", "", f"{found.largest_difference:.2g}"),
        ("smallest cosine", "", f"{found.smallest_cosine:.6f}"),
        ("mean cosine", "", f"{found.mean_cosine:.6f}"),
        ("kNN top-1", found.knn_keras, found.knn_file),
        ("size in bytes (Keras: the float file)", found.float_bytes, found.bytes),
        ("one image, one thread", "", milliseconds(found.seconds_one_thread)),
        ("one image, all cores", "", milliseconds(found.seconds_all_cores)),
    ]
    title = f"The {FORMAT.value} file against Keras on {found.num_images} images of {name}"
    return Table(title, ("measure", "Keras", "file"), tuple(rows))


def keep(judged, folder):
    """The comparison among the run's results; its path."""
    row = json.loads((folder / "parity.json").read_text())
    name = f"export-{FORMAT.value}" + (f"-{QUANTIZE.value}" if FORMAT.value == "tflite" else "")
    row = {"format": FORMAT.value, "quantize": QUANTIZE.value, "batch": BATCH.value, **row}
    return judged.save(name, {"num_images": row["num_images"]}, [row])


NEXT = {
    "saved_model": (
        "Next: serve it with\n"
        " docker run -p 8501:8501 -v {mounted} -e {named} tensorflow/serving\n"
        """ echo '{{"signature_name": "features_from_bytes", "instances": [{{"b64": "'$(base64 -w0 a.png)'"}}]}}' """
        "| curl -d @- {address}\n"
        "or look at it with  saved_model_cli show --dir {shown} --all"
    ),
    "keras": 'Next: keras.models.load_model("{folder}/backbone.keras")',
    "tflite": (
        'Next: ai_edge_litert.interpreter.Interpreter("{folder}/model.tflite").get_signature_runner()(images=...); '
        "{folder}/model.json says how images are prepared"
    ),
    "onnx": (
        'Next: onnxruntime.InferenceSession("{folder}/model.onnx").run(None, {{"images": ...}}); '
        "{folder}/model.json says how images are prepared"
    ),
}


if __name__ == "__main__":
    console.run(main)
