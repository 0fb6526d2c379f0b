"""Measures the Sinkhorn solver beside others on the same problems, each in a process of its own.

    python -m tools.benchmark_sinkhorn --sizes=50000x1000 --lambdas=10,25 --output=sinkhorn.json
    python -m tools.benchmark_sinkhorn --sizes= --scores=log_p.npy --lambdas=25
    python -m tools.benchmark_sinkhorn --sizes= --bandwidth=200000x1000,66667x3000 --scaling=50000,100000,200000,400000
    python -m tools.benchmark_sinkhorn --sizes= --rounding=1000000x3000

Solvers: `ours`; `two_updates`, the iteration of the paper in float64 NumPy; `pot_log` and `pot_stabilized`, POT's, when
it is installed (pip install pot). All stop at the same L1 marginal error. Synthetic scores are heavy-tailed:
Student-t(3) features times a random head. Seconds are of the solver alone, compiled before; memory is the peak of its
whole process. A solve of ours that takes at most 3 s is made 5 times, and the median given.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import importlib.util
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
from absl import flags

from selabel_tf.atomic_file import write_atomically
from selabel_tf.evaluation.report import Table, format_table
from selabel_tf.labelling import storage
from selabel_tf.labelling.kernel import Kernel
from selabel_tf.labelling.reading import Reader
from selabel_tf.labelling.rounding import balanced_labels
from selabel_tf.labelling.scores import RowBlocks
from selabel_tf.labelling.sinkhorn import solve
from tools import console

SOLVERS = {"ours": 0, "two_updates": 3, "pot_log": 6, "pot_stabilized": 6}  # name -> float64 N x K matrices it needs
FEATURES = 64
TURNS, SHORT = 5, 3.0  # a solve of at most some seconds is made several times: the median counts

SIZES = flags.DEFINE_list(
    "sizes", ["50000x1000"], "Synthetic problems, examples x clusters, e.g. 50000x1000,200000x1000."
)
SCORES = flags.DEFINE_list("scores", [], "Files of real log-probabilities, .npy [N, K].")
LAMBDAS = flags.DEFINE_list("lambdas", ["10", "25"], "The sharpnesses to solve at.")
CHOSEN = flags.DEFINE_list("solvers", list(SOLVERS), f"Which to run, of {', '.join(SOLVERS)}.")
TOLERANCE = flags.DEFINE_float("tolerance", 1e-4, "L1 marginal error to reach.")
MAX_PASSES = flags.DEFINE_integer("max_passes", 2000, "Passes after which a solver gives up.")
MEMORY = flags.DEFINE_float("memory_gib", 0, "Memory that a solver may plan with; 0: what is available.")
BANDWIDTH = flags.DEFINE_list("bandwidth", [], "Sizes at which a pass is timed against tf.reduce_sum of equal bytes.")
SCALING = flags.DEFINE_list("scaling", [], "Numbers of examples over which to fit the exponent of our seconds.")
SCALING_CLUSTERS = flags.DEFINE_integer("scaling_clusters", 1000, "Clusters of the --scaling problems.")
ROUNDING = flags.DEFINE_list("rounding", [], "Sizes at which balanced rounding is timed after a solve at lambda 25.")
OUTPUT = flags.DEFINE_string("output", None, "File for all results as JSON.")
JOB = flags.DEFINE_string("job", None, "One solver on one problem, as JSON; used by this program itself.")


class Problem:
    """Scores by row ranges, made when asked for. job: "rows" and "clusters" of synthetic ones, or the file "scores"."""

    def __init__(self, job):
        if job["scores"]:
            self._matrix = np.load(job["scores"], mmap_mode="r", allow_pickle=False)
            self.rows, self.clusters = self._matrix.shape
        else:
            self._matrix, self.rows, self.clusters = None, job["rows"], job["clusters"]
            random = np.random.default_rng(0)
            self._head = tf.constant(random.normal(size=(FEATURES, self.clusters)) / FEATURES**0.5, tf.float32)
            self._features = random.standard_t(3, size=(self.rows, FEATURES)).astype(np.float32)

    def block(self, start, stop):
        """log_p [stop - start, K], float32 tensor."""
        if self._matrix is not None:
            return tf.constant(self._matrix[start:stop], tf.float32)
        return tf.nn.log_softmax(tf.constant(self._features[start:stop]) @ self._head)

    def blocks(self, kind):
        return storage.HeadScores(self.block, self.rows, kind)

    def float64(self):
        """log_p as one float64 matrix."""
        matrix, row = np.empty([self.rows, self.clusters]), 0
        for block in self.blocks("recompute"):
            matrix[row : row + len(block)] = block
            row += len(block)
        return matrix


def prepared(problem, job):
    """The scores as the library would store them. They are there before the clock starts, for the others too."""
    features = 0 if job["scores"] else FEATURES
    plan = storage.plan_storage(problem.rows, problem.clusters, features, job["memory"], 0)
    # TensorFlow compiles once, for all sizes; threads and libraries come up
    solve(problem.block(0, min(problem.rows, 10_000))[:, :300], lambda_=job["lambda"])
    return problem.blocks(plan.kind)


def ours(problem, job):
    """(log_alpha [K], passes, seconds)"""
    blocks = prepared(problem, job)
    options = {"lambda_": job["lambda"], "tolerance": job["tolerance"], "max_passes": job["max_passes"]}
    seconds = []
    while not seconds or (len(seconds) < TURNS and sum(seconds) < TURNS * SHORT):
        start = time.perf_counter()
        result = solve(blocks, **options)
        seconds.append(time.perf_counter() - start)
    return result.log_alpha, result.num_passes, float(np.median(seconds))


def two_updates(problem, job):
    """The paper's iteration in float64: beta_i = 1 / (P alpha)_i, alpha_k = (1 / K) / (beta P)_k, P = p^lambda."""
    plan = problem.float64()
    start = time.perf_counter()
    plan *= job["lambda"]
    plan -= plan.max(axis=1, keepdims=True)
    np.exp(plan, out=plan)
    plan[plan < 1e-290] = 0.0  # denormal numbers would slow NumPy down many times
    alpha, wanted = np.ones(problem.clusters), 1 / problem.clusters
    for passes in range(1, job["max_passes"] + 1):  # noqa: B007  used after the loop
        beta = 1 / (problem.rows * (plan @ alpha))
        masses = beta @ plan
        if np.abs(alpha * masses - wanted).sum() <= job["tolerance"]:
            break
        alpha = wanted / masses
    return np.log(alpha), passes, time.perf_counter() - start


def rounded(problem, job):
    """What balanced rounding takes and how good it is, beside the solve before it."""
    blocks = prepared(problem, job)
    start = time.perf_counter()
    solution = solve(blocks, lambda_=job["lambda"], tolerance=job["tolerance"], max_passes=job["max_passes"])
    solved = time.perf_counter()
    labels = balanced_labels(blocks, solution.log_alpha, lambda_=job["lambda"])
    done = time.perf_counter()
    sizes = np.bincount(labels, minlength=problem.clusters)
    total, row = 0.0, 0
    for block in problem.blocks("recompute"):
        chosen = labels[row : row + len(block), None]
        total -= float(np.take_along_axis(np.asarray(block), chosen, axis=1).sum(dtype=np.float64))
        row += len(block)
    return {
        "solve_seconds": solved - start,
        "passes": solution.num_passes,
        "rounding_seconds": done - solved,
        "rounding_over_one_pass": (done - solved) / ((solved - start) / solution.num_passes),
        "smallest": int(sizes.min()),
        "largest": int(sizes.max()),
        "cost": total / problem.rows,
        "bound": solution.bound,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def pot(problem, job, method):
    """POT's sinkhorn_log or sinkhorn_stabilized. Its threshold is on the L2 error: L1 / sqrt(K) surely is enough."""
    import ot

    cost = -problem.float64()
    start = time.perf_counter()
    uniform = np.full(problem.rows, 1 / problem.rows), np.full(problem.clusters, 1 / problem.clusters)
    options = {"numItermax": job["max_passes"], "stopThr": job["tolerance"] / problem.clusters**0.5, "log": True}
    _, log = getattr(ot.bregman, method)(*uniform, cost, 1 / job["lambda"], warn=False, **options)
    seconds = time.perf_counter() - start
    scalings, count = {"sinkhorn_log": ("log_v", "niter"), "sinkhorn_stabilized": ("logv", "n_iter")}[method]
    return log[scalings], int(log[count]) + 1, seconds


def work(job):
    """Runs one job in this process; a dictionary of what was measured."""
    problem = Problem(job)
    if job["solver"] == "rounding":
        return rounded(problem, job)
    if job["solver"] in ("ours", "two_updates"):
        log_alpha, passes, seconds = {"ours": ours, "two_updates": two_updates}[job["solver"]](problem, job)
    else:
        log_alpha, passes, seconds = pot(problem, job, job["solver"].replace("pot_", "sinkhorn_"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # before the judge needs memory of its own
    # One judge for all: an exact float64 reading at the scalings found.
    log_alpha = np.asarray(log_alpha, np.float64)
    finite = bool(np.isfinite(log_alpha).all())
    weights = np.full(problem.clusters, 1 / problem.clusters)
    result = {"seconds": seconds, "passes": passes, "peak_bytes": peak, "marginal_error": None, "cost": None}
    if finite:
        reading = Reader(RowBlocks(problem.blocks("recompute")), wide=True).read(
            job["lambda"], log_alpha - log_alpha.mean()
        )
        result |= {"marginal_error": reading.error(weights), "cost": reading.cost()}
    return result


def measure(solver, lambda_, *, rows=0, clusters=0, scores=""):
    """One job in a process of its own; its result, with what it was, or with why there is none."""
    if scores:
        rows, clusters = np.load(scores, mmap_mode="r", allow_pickle=False).shape
    memory = MEMORY.value * 2**30 or storage.available_memory()
    job = {"solver": solver, "lambda": lambda_, "rows": rows, "clusters": clusters, "scores": scores}
    what = dict(job)
    job |= {"memory": memory, "tolerance": TOLERANCE.value, "max_passes": MAX_PASSES.value}
    needed = SOLVERS.get(solver, 0) * 8 * rows * clusters
    if solver.startswith("pot") and importlib.util.find_spec("ot") is None:
        return what | {"left_out": "POT is not installed: pip install pot"}
    if needed > memory:
        return what | {"left_out": f"needs about {needed / 2**30:.1f} GiB of {memory / 2**30:.1f}"}
    command = [sys.executable, "-m", "tools.benchmark_sinkhorn", f"--job={json.dumps(job)}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).resolve().parents[1])
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return what | {"left_out": f"ended with code {done.returncode}: {last}"}
    return what | json.loads(done.stdout.splitlines()[-1])


def bandwidth(rows, clusters, repetitions=9):
    """Seconds of one kernel pass and of tf.reduce_sum over as many bytes, in turns: least and median of each."""
    matrix = tf.random.stateless_uniform([rows, clusters], [0, 1], 0.1, 1.0)
    total = tf.function(tf.reduce_sum)
    kernel = Kernel()
    kernel.begin(1.0, np.zeros(clusters))
    for start in range(0, rows, 8192):
        kernel.keep(np.asarray(matrix[start : start + 8192]))
    steps = {"pass": lambda: kernel.masses(np.zeros(clusters)), "reduce_sum": lambda: total(matrix).numpy()}
    seconds = {name: [] for name in steps}
    for _ in range(repetitions + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    result = {"rows": rows, "clusters": clusters, "gigabytes": 4e-9 * rows * clusters}
    for name, times in seconds.items():
        result |= {f"{name}_least": min(times[1:]), f"{name}_median": float(np.median(times[1:]))}
    return result | {
        "ratio_least": result["pass_least"] / result["reduce_sum_least"],
        "ratio_median": result["pass_median"] / result["reduce_sum_median"],
    }


def exponent(results):
    """Slope of log seconds over log examples."""
    return float(np.polyfit(*np.log([[r["rows"], r["seconds"]] for r in results]).T, 1)[0])


def size(text):
    """'50000x1000' -> (50000, 1000)"""
    rows, _, clusters = text.partition("x")
    if not (rows.isdigit() and clusters.isdigit()):
        raise ValueError(f"{text!r} is not a size. Give examples x clusters, e.g. 50000x1000.")
    return int(rows), int(clusters)


def show(title, columns, rows, note=""):
    print(f"\n{format_table(Table(title, tuple(columns), tuple(rows), note))}", flush=True)


def row_of(result):
    name = f"{Path(result['scores']).name} " if result["scores"] else ""
    start = [f"{name}{result['rows']}x{result['clusters']}", f"{result['lambda']:g}", result["solver"]]
    if "left_out" in result:
        return [*start, None, None, None, None, None, result["left_out"]]
    error, cost = result["marginal_error"], result["cost"]
    told = [None, None] if error is None else [f"{error:.1e}", f"{cost:.5f}"]
    note = "no finite scalings" if error is None else "" if error <= 1.2 * TOLERANCE.value else "not converged"
    return [*start, f"{result['seconds']:.2f}", result["passes"], *told, f"{result['peak_bytes'] / 2**30:.2f}", note]


def main(_):
    if JOB.value:
        print(json.dumps(work(json.loads(JOB.value))))
        return
    unknown = set(CHOSEN.value) - set(SOLVERS)
    if unknown:
        raise ValueError(f"Unknown solver {sorted(unknown)[0]!r}. Available: {', '.join(SOLVERS)}.")
    problems = [dict(zip(("rows", "clusters"), size(text), strict=True)) for text in SIZES.value]
    problems += [{"scores": path} for path in SCORES.value]
    everything = {"tolerance": TOLERANCE.value, "solvers": [], "bandwidth": [], "scaling": [], "rounding": []}
    for problem in problems:
        for lambda_ in map(float, LAMBDAS.value):
            for solver in CHOSEN.value:
                everything["solvers"].append(measure(solver, lambda_, **problem))
                print(
                    "  ".join(str(cell) for cell in row_of(everything["solvers"][-1]) if cell is not None), flush=True
                )
    if everything["solvers"]:
        columns = ("problem", "lambda", "solver", "seconds", "passes", "error", "cost", "GiB", "")
        note = f"Stopped at an L1 marginal error of {TOLERANCE.value:g}; error and cost judged by one float64 reading."
        show("Sinkhorn solvers", columns, [row_of(result) for result in everything["solvers"]], note)
    for text in BANDWIDTH.value:
        everything["bandwidth"].append(bandwidth(*size(text)))
    if everything["bandwidth"]:
        names = ("gigabytes", "pass_least", "reduce_sum_least", "ratio_least", "ratio_median")
        rows = [[f"{r['rows']}x{r['clusters']}", *(r[name] for name in names)] for r in everything["bandwidth"]]
        show("One pass beside tf.reduce_sum of as many bytes, seconds", ("size", *names), rows)
    for rows in SCALING.value:
        everything["scaling"].append(measure("ours", 25.0, rows=int(rows), clusters=SCALING_CLUSTERS.value))
    if len(everything["scaling"]) > 1:
        everything["exponent"] = exponent(everything["scaling"])
        rows = [[r["rows"], r["seconds"], r["passes"], r["seconds"] / r["passes"]] for r in everything["scaling"]]
        note = f"Seconds grow with examples to the power {everything['exponent']:.2f}."
        show("Our solver at lambda 25", ("examples", "seconds", "passes", "seconds per pass"), rows, note)
    for text in ROUNDING.value:
        rows, clusters = size(text)
        everything["rounding"].append(measure("rounding", 25.0, rows=rows, clusters=clusters))
    if everything["rounding"]:
        names = ("solve_seconds", "passes", "rounding_seconds", "rounding_over_one_pass", "smallest", "largest")
        names += ("cost", "bound", "left_out")
        rows = [[f"{r['rows']}x{r['clusters']}", *map(r.get, names)] for r in everything["rounding"]]
        show("Balanced rounding after a solve at lambda 25", ("size", *names), rows)
    if OUTPUT.value:
        write_atomically(OUTPUT.value, json.dumps(everything, indent=2) + "\n")
        print(f"\nAll numbers: {OUTPUT.value}")


if __name__ == "__main__":
    console.run(main)
