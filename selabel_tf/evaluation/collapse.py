"""The collapse doctor: does a run look ill, by which numbers, and what could be tried?

It reads the records of a run's log, nothing else. Early training looks like illness: in a healthy run nine labels of
ten change at a time, the network prefers a few clusters, and the loss has hardly left ln K. So a sign counts only when

    loss        the last two epochs both lie within 2% of ln K, after 100 steps at least; or of what the untrained
                network had on the labels it made itself, which is a little less
    labels      the last three label passes of a head all show it; its first pass, which meets random labels, does not
                count, and from the first to the last of the three it must be an epoch at least
    frozen      and a quarter of the label passes is still to come: at the end labels may come to rest
    predicted   and half of the label passes were over before the three, and at the head's accuracy even the smallest
                cluster would have been predicted ten times: with many small clusters some are missed by bad luck
"""

import math
from dataclasses import dataclass

PATIENCE = 3  # label passes of a head in a row
FIRST_STEPS = 100
STUCK = 0.98  # of the loss of an untrained network
FROZEN = 0.001  # share of labels that change; 1 - NMI where clusters are numbered anew
CHANCE = 1.5  # agreement with the labels before, as a multiple of that of unrelated labels: tells with many clusters,
KAPPA = 0.1  # agreement beyond chance as a share of what there could be: and this with few
MISSED = 10  # times that a cluster would have been predicted right
COPIED = 0.95  # NMI of two heads' labels


@dataclass(frozen=True)
class Finding:
    """problem: "stuck loss", "frozen labels", "unstable labels", "unpredicted clusters" or "copied head".

    head: which one, None for all. seen: the numbers, in a sentence. advice: what to try, in a sentence.
    """

    problem: str
    head: int | None
    seen: str
    advice: str

    def __str__(self):
        return f"{self.seen} {self.advice}"


def findings(records) -> tuple[Finding, ...]:
    """What looks wrong in the records of a metrics.jsonl as they stand, i.e. after the last label pass in them."""
    epochs = [record for record in records if record["kind"] == "epoch"]
    passes = [record for record in records if record["kind"] == "labels"]
    if not epochs or not passes:
        return ()
    found = [_stuck_loss(epochs, passes)]
    steps_per_epoch = epochs[0]["step"] / epochs[0]["epoch"]
    for head in sorted({record["head"] for record in passes}):
        own = [record for record in passes if record["head"] == head][1:][-PATIENCE:]
        if len(own) == PATIENCE and own[-1]["step"] - own[0]["step"] >= steps_per_epoch:
            found += [rule(own) for rule in (_frozen, _unstable, _unpredicted, _copied)]
    return tuple(finding for finding in found if finding is not None)


def new_findings(records) -> tuple[Finding, ...]:
    """`findings` without those whose like was there after the label pass before the last one."""
    steps = sorted({record["step"] for record in records if record["kind"] == "labels"})
    if len(steps) < 2:
        return findings(records)
    last = max(i for i, record in enumerate(records) if record["kind"] == "labels" and record["step"] == steps[-2])
    before = {(finding.problem, finding.head) for finding in findings(records[: last + 1])}
    return tuple(finding for finding in findings(records) if (finding.problem, finding.head) not in before)


def _stuck_loss(epochs, passes):
    first = {record["head"]: record for record in reversed(passes)}.values()  # of each head
    uniform = sum(math.log(record["clusters"]) for record in first) / len(first)
    untrained = [record["objective_after"] for record in first if record["step"] == 0]
    start = uniform if not untrained or None in untrained else min(uniform, sum(untrained) / len(untrained))
    last = [record["loss"] for record in epochs[-2:]]
    if len(last) < 2 or epochs[-1]["step"] < FIRST_STEPS or min(last) < STUCK * start:
        return None
    return Finding(
        "stuck loss",
        None,
        f"After {epochs[-1]['step']} steps the loss is {last[1]:.3f}; an untrained network had {start:.3f} "
        f"(ln K = {uniform:.3f}).",
        f"Try another optimizer.learning_rate (now {epochs[-1]['learning_rate']:g}), gentler augmentation, or fewer "
        "clusters.",
    )


def _frozen(own):
    changes = [1 - r["nmi_previous"] if r["changed"] is None else r["changed"] for r in own]
    if max(changes) >= FROZEN or own[-1]["label_pass"] >= 0.75 * own[-1]["label_passes"]:
        return None
    what = "1 - NMI to the labels before" if own[-1]["changed"] is None else "share of labels changed"
    return Finding(
        "frozen labels",
        own[0]["head"],
        f"Head {own[0]['head']}: labels have not moved at {PATIENCE} passes in a row ({what}: at most "
        f"{max(changes):.2g}), with {own[-1]['label_passes'] - own[-1]['label_pass'] - 1} passes still to come.",
        "The network only learns its own labels by heart. Try stronger augmentation or more of it in label passes "
        '(label.batch_norm="training"), a higher optimizer.learning_rate, or more heads.',
    )


def _unstable(own):
    if any(r["changed"] is None for r in own):
        return None
    for record in own:
        agreement, chance = 1 - record["changed"], 1 - record["changed_by_chance"]
        if agreement > CHANCE * chance or agreement - chance > KAPPA * (1 - chance):
            return None
    last = own[-1]
    return Finding(
        "unstable labels",
        last["head"],
        f"Head {last['head']}: labels change completely at every pass ({100 * last['changed']:.1f}% of them at the "
        f"last, {100 * last['changed_by_chance']:.1f}% would by chance).",
        "Nothing is carried from one pass to the next. Try a lower optimizer.learning_rate, gentler augmentation, more "
        "label.views, or passes further apart (label.num_relabels).",
    )


def _unpredicted(own):
    never = sorted(set.intersection(*(set(r["unpredicted"]) for r in own)))
    last = own[-1]
    expected = sum(r["accuracy"] * r["smallest"] for r in own)
    if not never or expected < MISSED or own[0]["label_pass"] < 0.5 * last["label_passes"]:
        return None
    shown = ", ".join(map(str, never[:5])) + (f" and {len(never) - 5} more" if len(never) > 5 else "")
    return Finding(
        "unpredicted clusters",
        last["head"],
        f"Head {last['head']}: {len(never)} of {last['clusters']} clusters ({shown}) predicted for no image at "
        f"{PATIENCE} label passes in a row.",
        "Their images are learnt as something else. Try fewer clusters (model.num_clusters), a lower "
        "optimizer.learning_rate, or exactly equal clusters (label.rounding=balanced).",
    )


def _copied(own):
    if any(r["nmi_closest"] is None or r["nmi_closest"] < COPIED for r in own):
        return None
    last = own[-1]
    return Finding(
        "copied head",
        last["head"],
        f"Head {last['head']} has the labels of head {last['closest_head']} (NMI {last['nmi_closest']:.3f}).",
        "It teaches nothing new and costs its share. Try fewer heads, or heads of different sizes "
        "(model.num_clusters=100,128,150).",
    )
