"""Multi-crop: small crops of a training image beside the one that it always shows (Caron et al., 2020).

    (large [B, h, w, c], small [B, count, s, s, c])     all of one image, each with random numbers of its own

The small ones cost little more than (s / h)^2 of a large one each, and learn the same label. Label passes and
evaluation see none.
"""

from dataclasses import dataclass, replace

import tensorflow as tf

from selabel_tf.data.augment import POLICIES, Augmentation


@dataclass(frozen=True)
class MultiCrop:
    """To the pipeline an Augmentation, but for its results, which are pairs. Stateless."""

    large: Augmentation
    small: Augmentation
    count: int

    @property
    def num_factors(self) -> int:
        return self.large.num_factors + self.count * self.small.num_factors

    def crop(self, images, factors):
        """images [B, h, w, c] of equal size, factors [B, num_factors] -> the pair, in [0, 1]."""
        large, *small = self._split(factors)
        return self.large.crop(images, large), tf.stack([self.small.crop(images, table) for table in small], 1)

    def finish(self, crops, factors):
        """All but geometry: the pair that `crop` gave -> the pair, normalised."""
        large, *small = self._split(factors)
        parts = zip(tf.unstack(crops[1], self.count, axis=1), small, strict=True)
        return self.large.finish(crops[0], large), tf.stack([self.small.finish(*part) for part in parts], 1)

    def _split(self, factors):
        return tf.split(factors, [self.large.num_factors] + [self.small.num_factors] * self.count, axis=1)


def small_version(augmentation: Augmentation, size, area) -> Augmentation:
    """The same policy for crops of size x size pixels that show a share of the image in the range `area`."""
    if "crop" not in augmentation.policy.steps:
        raise ValueError(
            f"Small crops need an augmentation policy that crops, and {augmentation.name!r} does not. "
            f"Such do: {', '.join(name for name, policy in POLICIES.items() if 'crop' in policy.steps)}."
        )
    low, high = area
    if not 0 < low <= high <= 1:
        raise ValueError(f"area={tuple(area)}: expected (smallest, largest) share of the image, e.g. (0.08, 0.4).")
    shape = (size, size, augmentation.image_shape[2])
    return replace(augmentation, image_shape=shape, area=(float(low), float(high)))
