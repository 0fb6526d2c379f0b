"""Judges the features of a run by weighted nearest neighbours: nothing is trained on them.

    python -m tools.knn --workdir=runs/digits
    python -m tools.knn --workdir=RUN --k=20,50,200 --sigma=0.07,0.1 --baselines=random_weights,raw_pixels
    python -m tools.knn --workdir=RUN --layers=conv3_relu,conv5_relu,fc7_relu --pca=128
    python -m tools.knn --workdir=RUN --set data.name=cifar100          other images than the run's own

The bank is the training images; the test split is classified by it. Without a test split every training image is
classified by all others. Features are the output of the backbone, or of any of its --layers, all from one pass over
the images. Maps [h, w, c] are averaged over their pixels to c values; --pool=flat keeps all of them, which is many.
The table is also kept as JSON in <workdir>/evaluation/, that of --layers by their names; tools.compare shows the one of
the backbone's output.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import keras
from absl import flags

from selabel_tf.evaluation import knn, pca
from selabel_tf.evaluation.layer_features import POOLS, LayerFeatures
from selabel_tf.evaluation.report import Table, format_table
from selabel_tf.features import Extractor
from selabel_tf.labelling.storage import available_memory
from selabel_tf.training.assessment import BATCH_SIZE, as_stored
from tools import console, judged_run

BASELINES = ("random_weights", "raw_pixels")

flags.adopt_module_key_flags(judged_run)  # --help shows them, too
K = flags.DEFINE_list("k", ["50"], "Numbers of neighbours, e.g. 20,50,200.")
SIGMA = flags.DEFINE_list("sigma", ["0.1"], "Widths of the weight exp(similarity / sigma), e.g. 0.07,0.1.")
LAYERS = flags.DEFINE_list("layers", [], "Layers of the backbone, e.g. conv5_relu,fc7_relu; its output if none.")
POOL = flags.DEFINE_enum("pool", POOLS[0], POOLS, "What becomes of maps [h, w, c]: c averages, or all values.")
PCA = flags.DEFINE_integer(
    "pca", 0, "Dimensions to bring features to, by the principal components of the bank; 0: none.", lower_bound=0
)
CHOSEN = flags.DEFINE_list("baselines", [], f"What to judge beside the run, of {', '.join(BASELINES)}.")


def numbers(flag, texts, kind, example):
    """The values of a list flag, each once."""
    try:
        return list(dict.fromkeys(kind(text) for text in texts))
    except ValueError:
        given = ",".join(texts)
        raise ValueError(f"--{flag}={given} is not a list of numbers. Give e.g. --{flag}={example}.") from None


def contestants(judged):
    """Yields (name, what makes the features, the images as it wants them [train, test or None])."""
    run, sources = judged.run, [judged.train, judged.test]
    names = LAYERS.value or [run.model.backbone.layers[-1].name]
    yield "learned", LayerFeatures(run.model.backbone, names, POOL.value), sources
    if "random_weights" in CHOSEN.value:
        yield "random weights", LayerFeatures(run.untrained_model().backbone, names, POOL.value), sources
    if "raw_pixels" in CHOSEN.value:
        sources = [source and as_stored(source) for source in sources]
        pixels = keras.Input(sources[0].image_shape)
        flat = keras.Model(pixels, keras.layers.Flatten(name="pixels")(pixels))
        yield "raw pixels", LayerFeatures(flat, ["pixels"]), sources


def check(judged, ks, sigmas, everyone):
    """Refuses what could not be answered, before the long extraction."""
    train, test = judged.train, judged.test
    unknown = [name for name in CHOSEN.value if name not in BASELINES]
    if unknown:
        raise ValueError(f"Unknown baseline {unknown[0]!r}. Available: {', '.join(BASELINES)}.")
    knn.check_settings(ks, sigmas, train.num_examples - (test is None))
    if test is not None:
        knn.check_classes(train.classes, test.classes)
    images = train.num_examples + (test.num_examples if test else 0)
    for name, features, _ in everyone:
        for layer, size in features.sizes.items() if PCA.value else ():
            try:
                pca.check_dims(PCA.value, train.num_examples, size)
            except ValueError as error:
                raise ValueError(f"{name}, layer {layer}: {error}") from None
        needed, available = 4 * images * sum(features.sizes.values()), available_memory()
        if needed > available:
            raise ValueError(
                f"The features of {images} images at {', '.join(features.sizes)} take {needed / 2**30:.1f} GiB, and "
                f"{available / 2**30:.1f} are available. Choose fewer layers, --pool=average or fewer images."
            )


def extract(name, features, source, what):
    """Layer -> rows [N, D] of the images of `source`."""
    with console.Progress(source.num_examples, f"{name}: {what} images") as progress:
        rows = Extractor(features)(source.plain_batches(BATCH_SIZE), source.num_examples, progress.update)
    return features.split(rows)


def judge(name, features, sources, ks, sigmas):
    """The rows of one contestant: a dictionary for each layer, k and sigma."""
    train, test = sources
    banks = extract(name, features, train, "training")
    queries = {layer: None for layer in banks} if test is None else extract(name, features, test, "test")
    rows = []
    for layer, bank in banks.items():
        asked = queries[layer]
        if PCA.value:
            components = pca.fit(bank, PCA.value)
            bank, asked = components.transform(bank), None if asked is None else components.transform(asked)
        with console.Progress((test or train).num_examples, f"{name}: neighbours at {layer}") as progress:
            options = {"ks": ks, "sigmas": sigmas, "on_queries": progress.update}
            if test is None:
                found = knn.leave_one_out_table(bank, train.classes, **options)
            else:
                found = knn.knn_table(bank, train.classes, asked, test.classes, **options)
        rows += [{"features": name, "layer": layer, "size": bank.shape[1], **row._asdict()} for row in found]
    return rows


def table_of(judged, rows):
    columns = ("features", "layer", "size", "k", "sigma", "top-1", "top-5")
    cells = [(*list(row.values())[:4], f"{row['sigma']:g}", row["top1"], row["top5"]) for row in rows]
    train, test = judged.train, judged.test
    classes = len(set(train.classes.tolist()))
    by = f"{test.name}, {test.num_examples} images" if test else "each image by all others"
    note = f"Bank: {train.name}, {train.num_examples} images of {classes} classes. Classified: {by}."
    if classes < knn.TOP:
        note += f" With {classes} classes top-5 is every class that has a vote."
    return Table("Weighted nearest neighbours", columns, tuple(cells), note)


def main(_):
    ks = numbers("k", K.value, int, "20,50,200")
    sigmas = numbers("sigma", SIGMA.value, float, "0.07,0.1")
    judged = judged_run.load()
    everyone = list(contestants(judged))
    check(judged, ks, sigmas, everyone)
    rows = []
    for name, features, sources in everyone:
        rows += judge(name, features, sources, ks, sigmas)
    settings = {"k": ks, "sigma": sigmas, "layers": LAYERS.value, "pool": POOL.value, "pca": PCA.value}
    settings["classified"] = "training images, each by all others" if judged.test is None else "test images"
    print(f"\n{format_table(table_of(judged, rows))}", flush=True)  # first: a full disk may keep it from being kept
    path = judged.save("knn", settings, rows, judged_run.layers_variant(LAYERS.value))
    print(f"\nResults: {path}")
    if set(BASELINES) - set(CHOSEN.value):
        again = [*judged_run.words(K, SIGMA, LAYERS, POOL, PCA), f"--baselines={','.join(BASELINES)}"]
        print(f"Next: compare with  {console.command('knn', *again)}")
    else:
        print(f"Next: train classifiers on the features with  {console.command('linear_probe', *judged_run.words())}")


if __name__ == "__main__":
    console.run(main)
