"""When labels are optimised, and which heads: counted in optimizer steps and in label passes, nothing else.

M label passes over T optimizer steps, i = 0 .. M-1:

    quadratic   floor((i / M)^2 T)      dense at first, when the features change most
    linear      floor( i / M    T)

The first pass comes before the first step, and the end of training is excluded, since nothing would be
trained on those labels. Where the quadratic crowds several passes onto one step, later ones move on to the
next free step, so M is really the number of passes.

The paper has (i / (M-1))^2 T for i = 1 .. M, at most one pass per epoch; its last falls past the end. The
authors' code has these fractions for i = 0 .. M-1, with several passes in the first epoch; its last is never
reached. Their code for CIFAR passes once per epoch, linearly, over one head in turn.
"""

SCHEDULES = {  # the wanted step of pass i; in whole numbers, so that every machine gets the same steps
    "quadratic": lambda i, num_relabels, total_steps: i * i * total_steps // (num_relabels * num_relabels),
    "linear": lambda i, num_relabels, total_steps: i * total_steps // num_relabels,
}

HEADS = {  # the heads that a label pass optimises
    "all": lambda pass_number, num_heads: list(range(num_heads)),
    "in_turn": lambda pass_number, num_heads: [pass_number % num_heads],
}


def steps(kind: str, num_relabels: int, total_steps: int) -> list[int]:
    """The `num_relabels` distinct steps in [0, total_steps), ascending, before which labels are optimised.

    A training with fewer steps than passes (a recipe shortened for a trial) has one before every step.
    `num_relabels=0` gives no step: the labels stay random (the control of the paper's ablation).
    """
    wanted = _choose(kind, SCHEDULES, "schedule")
    if num_relabels < 0:
        raise ValueError(f"num_relabels={num_relabels} is negative. Use 0 (labels stay random) or more.")
    num_relabels = min(num_relabels, total_steps)
    # Moving on never runs past the end: pass i lands on the largest wanted(j) + i - j over j <= i. That is
    # convex in j, so it is i itself or wanted(i), and both are below T.
    chosen = []
    for i in range(num_relabels):
        earliest = chosen[-1] + 1 if chosen else 0
        chosen.append(max(wanted(i, num_relabels, total_steps), earliest))
    return chosen


def heads_for_pass(kind: str, pass_number: int, num_heads: int) -> list[int]:
    """The heads whose labels pass `pass_number` (0, 1, ...) optimises: all of them, or one in turn."""
    heads = _choose(kind, HEADS, "choice of heads")
    if pass_number < 0 or num_heads < 1:
        raise ValueError(
            f"Expected pass_number of 0 or more and num_heads of 1 or more, "
            f"got pass_number={pass_number}, num_heads={num_heads}."
        )
    return heads(pass_number, num_heads)


def _choose(kind, choices, what):
    if kind not in choices:
        raise ValueError(f"Unknown {what} {kind!r}. Available: {', '.join(sorted(choices))}.")
    return choices[kind]
