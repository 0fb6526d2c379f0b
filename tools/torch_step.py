"""The training step of resnet18_cifar in PyTorch, for `tools.benchmark_training`: the same network, heads and SGD.

relu(bn(conv)) -> four stages of two basic blocks -> mean -> one linear layer for all heads -> cross-entropy
"""

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


def make_step(images, labels, *, width, clusters, threads, channels_last):
    """A function that trains one step on images float32 [B, h, w, 3] and labels int [B, H]."""
    torch.set_num_threads(threads)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    network = nn.Sequential(backbone(width), nn.Linear(8 * width, labels.shape[1] * clusters))
    network = network.to(memory_format=layout)
    shown = torch.tensor(images).permute(0, 3, 1, 2).contiguous(memory_format=layout)
    wanted = torch.tensor(labels).flatten().long()
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9, weight_decay=5e-4)

    def step():
        loss = nn.functional.cross_entropy(network(shown).view(-1, clusters), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step
