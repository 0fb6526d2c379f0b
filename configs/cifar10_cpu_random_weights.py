"""The lower end of cifar10_cpu: the network as it was drawn, no training at all. Another seed is another network.

    python -m tools.train --config=configs/cifar10_cpu_random_weights.py --workdir=runs/cifar10_cpu_random_weights

Runs of ours, seeds 0 and 1, without the projection, which changes nothing here
(configs/results/cifar10_trials.json): kNN 32.0 and 31.1 %, linear probe 35.2 and 33.7 %.
"""

from dataclasses import replace

from configs import cifar10_cpu


def get_config():
    return replace(cifar10_cpu.get_config(), name="cifar10_cpu_random_weights", epochs=0)
