"""The control of cifar10_cpu: zero label optimisations, so the network learns random labels. "#opt 0" of the paper.

    python -m tools.train --config=configs/cifar10_cpu_opt0.py --workdir=runs/cifar10_cpu_opt0

The authors' recipe with random labels, seed 0 (configs/results/cifar10_trials.json): kNN 27.0 %, linear probe 26.0 %.
This very config: not run by us.
"""

from dataclasses import replace

from configs import cifar10_cpu


def get_config():
    base = cifar10_cpu.get_config()
    return replace(base, name="cifar10_cpu_opt0", label=replace(base.label, num_relabels=0))
