"""The training step of resnet18_cifar in PyTorch, for `tools.benchmark_training`: the same network, heads and SGD.

    python -m tools.torch_step '{"width": 16, "size": 32, "batch_size": 128, "heads": 10, "clusters": 128, "turn": 8,
                                 "threads": 1, "channels_last": true}'

relu(bn(conv)) -> four stages of two basic blocks -> mean -> one linear layer for all heads -> cross-entropy

A process of its own, because two frameworks in one slow each other down: for every line on its standard input it trains
`turn` steps on one batch of random pixels and prints the seconds they took, of the clock and of the processor.
"""

import json
import sys
import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, before, filters, stride):
        super().__init__()
        self.first = normalized(before, filters, 3, stride)
        self.second = normalized(filters, filters, 3, 1)
        same = stride == 1 and before == filters
        self.shortcut = nn.Identity() if same else normalized(before, filters, 1, stride)

    def forward(self, x):
        return torch.relu(self.shortcut(x) + self.second(torch.relu(self.first(x))))


def normalized(before, filters, size, stride):
    convolution = nn.Conv2d(before, filters, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(filters))


def backbone(width):
    """Images [B, 3, h, w] -> features [B, 8 * width]."""
    layers, before = [normalized(3, width, 3, 1), nn.ReLU()], width
    for stage in range(4):
        for block in range(2):
            filters = width * 2**stage
            layers.append(Block(before, filters, 2 if stage and not block else 1))
            before = filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def make_step(*, width, size, batch_size, heads, clusters, channels_last):
    """A function that trains one step on one batch."""
    torch.manual_seed(0)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    network = nn.Sequential(backbone(width), nn.Linear(8 * width, heads * clusters)).to(memory_format=layout)
    images = torch.randn(batch_size, 3, size, size).contiguous(memory_format=layout)
    labels = torch.randint(clusters, (batch_size * heads,))
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9, weight_decay=5e-4)

    def step():
        loss = nn.functional.cross_entropy(network(images).view(-1, clusters), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def main():
    options = json.loads(sys.argv[1])
    turn = options.pop("turn")
    torch.set_num_threads(options.pop("threads"))
    step = make_step(**options)
    for _ in sys.stdin:
        start = time.perf_counter(), time.process_time()
        for _ in range(turn):
            step()
        print(json.dumps([time.perf_counter() - start[0], time.process_time() - start[1]]), flush=True)


if __name__ == "__main__":
    main()
