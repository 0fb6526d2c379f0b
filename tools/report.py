"""See what a run has learned: one HTML page with its clusters, curves, neighbours and a map, for any browser.

    python -m tools.report runs/digits                  writes runs/digits/report.html
    python -m tools.report runs/a runs/b                both side by side: runs/a/compared-with-b.html
    python -m tools.report runs/digits --projector      and files for TensorBoard's projector

tools.train writes the page at the end of a run; here it is made again, with what the evaluation tools have measured
since, for a run that is not finished yet, or for two runs. The page holds everything: it needs no network and can be
mailed. Charts as PNG files and all numbers as CSV files are written to report/ in the run folder.

What a run does not have (true classes, held-out images, its images at all) is left out, and the page says so.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import time
from pathlib import Path

from absl import flags

from selabel_tf.evaluation import projector, report_files, report_page
from selabel_tf.training import report_data
from tools import console

OUTPUT = flags.DEFINE_string("output", None, "Where to write the page; by default into the (first) run folder.")
FIGURES = flags.DEFINE_bool("figures", True, "Charts as PNG and numbers as CSV, too, in report/ of each run folder.")
PROJECTOR = flags.DEFINE_bool("projector", False, "Features, labels and pictures for TensorBoard's projector, too.")


def main(argv):
    folders = argv[1:]
    if len(folders) not in (1, 2):
        raise ValueError(
            f"There are {len(folders)} run folders, expected one, or two to compare: "
            "python -m tools.report runs/a [runs/b]"
        )
    begun = time.monotonic()
    runs = []
    for folder in folders:
        print(f"Reading {folder}", flush=True)
        runs.append(report_data.of_folder(folder, console.Progress))
    path = Path(OUTPUT.value or default_path(folders))
    report_page.write(path, runs, title=report_page.title_of(*(contents.name for contents in runs)))
    size, taken = path.stat().st_size / 1e6, console.duration(time.monotonic() - begun)
    print(f"Report: {path} ({size:.1f} MB) in {taken}", flush=True)  # it is there, whatever becomes of the rest
    for folder, contents in zip(folders, runs, strict=True):
        for sentence in contents.lacking:
            print(f"Note: {sentence}")
        if FIGURES.value:
            print(f"Charts and numbers: {report_files.write(Path(folder) / 'report', contents)}")
        if PROJECTOR.value:
            logs = projector.write(Path(folder) / "projector", contents)
            print(f"Projector: tensorboard --logdir {logs}")
    print(f"Open {path} in a browser by double click.")


def default_path(folders):
    """report.html in the run folder; of two runs, compared-with-<second>.html in the first one's."""
    first, *others = map(Path, folders)
    return first / ("report.html" if not others else f"compared-with-{others[0].resolve().name}.html")


if __name__ == "__main__":
    console.run(main, words=True)
