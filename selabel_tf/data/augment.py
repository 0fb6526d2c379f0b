"""Named augmentation policies: which pixels an image shows, and in which colours.

A policy is a list of steps, and each step spends named random numbers: `crop` four (area, aspect, top, left),
`flip` one, and so on. `Augmentation.num_factors` is how many that makes. Whoever calls hands in a table
[B, num_factors] of uniform numbers in [0, 1), row i for image i, and gets a pure function of images and
table. No step draws for itself, so an epoch can be replayed from whatever keyed the table, and an image looks
the same in any batch.

    augmentation = make("crop_jitter", (None, None, 3), size=224, mean=IMAGENET_MEAN, std=IMAGENET_STD)
    batch = augmentation(images, factors)           # training
    batch = augmentation.plain(images)              # evaluation: no randomness

`more="one_of"` puts one of equalize, autocontrast and sharpening, at random, on top of what the policy does.

`crop` (geometry, may change sizes) and `finish` (colour, noise, normalisation) are apart because images of
differing sizes can be cropped only one by one but finished together. Values are in [0, 1] throughout; mean
and std come last.
"""

import difflib
import math
import numbers
from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf

from selabel_tf.data import colour, enhance, geometry

# The random numbers of each step, in the order of their columns.
STEPS = {
    "crop": ("area", "aspect", "top", "left"),
    "window": ("top", "left"),
    "flip": ("flip",),
    "warp": ("angle", "zoom", "shear", "down", "right"),
    "grayscale": ("gray",),
    "jitter": ("brightness", "contrast", "saturation", "hue", "order"),
    "linear_jitter": ("hue", "saturation", "gray", "brightness", "contrast"),
    "noise": ("noise_key", "noise_counter"),
    "one_of": ("which", "sharpening"),
}
MORE = ("none", "one_of")  # on top of any policy
COLOUR_STEPS = {"grayscale", "jitter", "linear_jitter"}

JITTER = 0.4  # factors in 1 -+ 0.4, hue within -+ 0.4 turns
LINEAR_HUE = 0.1  # turns, of the CPU protocol
GRAY_PROBABILITY = 0.2
NOISE_DEVIATION = 0.05  # the paper names noise and no amount: this one is ours
WARP_ANGLE, WARP_ZOOM, WARP_SHEAR = math.radians(8), 0.1, 0.05
WARP_SHIFT = 1 / 16  # of the side


@dataclass(frozen=True)
class Policy:
    """Steps in their order, the area range of `crop`, and what plain images show: the "whole" or the
    "centre"."""

    summary: str
    steps: tuple[str, ...] = ()
    area: tuple[float, float] = (0.08, 1.0)
    plain: str = "whole"

    @property
    def columns(self):
        return tuple(column for step in self.steps for column in STEPS[step])

    @property
    def needs_colour(self):
        return not COLOUR_STEPS.isdisjoint(self.steps)


# The CIFAR recipe resizes to 256 before it crops 20-100% of the area to 224. A crop of that share taken from
# the small image and resized to 224 at once is the same picture without the detour, so `crop_jitter_cifar`
# serves 224 and 32.
POLICIES = {
    "none": Policy("the whole image, resized"),
    "centre_crop": Policy("shorter side to 256/224 of the size, then the centre", plain="centre"),
    "flip": Policy("the whole image, mirrored half of the time", ("flip",)),
    "random_resized_crop": Policy("8-100% of the area", ("crop",), plain="centre"),
    "crop_flip": Policy("8-100% of the area, flip", ("crop", "flip"), plain="centre"),
    "window_flip": Policy(
        "the paper's linear probes: shorter side to 256/224 of the size, a window of that size anywhere, flip",
        ("window", "flip"),
        plain="centre",
    ),
    "crop_flip_noise": Policy(
        "the paper's text: 8-100% of the area, flip, Gaussian noise",
        ("crop", "flip", "noise"),
        plain="centre",
    ),
    "crop_jitter": Policy(
        "the authors' ImageNet code: 8-100% of the area, flip, grayscale, colour jitter",
        ("crop", "flip", "grayscale", "jitter"),
        plain="centre",
    ),
    "crop_jitter_cifar": Policy(
        "the authors' CIFAR code: 20-100% of the area, flip, colour jitter, grayscale",
        ("crop", "flip", "jitter", "grayscale"),
        area=(0.2, 1.0),
        plain="centre",
    ),
    "cifar_cpu": Policy(
        "the CPU protocol: 20-100% of the area, flip, colour jitter that is linear in RGB",
        ("crop", "flip", "linear_jitter"),
        area=(0.2, 1.0),
    ),
    "digits": Policy("small turn, zoom, shear and shift on black, no flip", ("warp",)),
}


@dataclass(frozen=True)
class Augmentation:
    """One policy for images of one kind. Made by `make`; stateless; traceable in tf.data and tf.function."""

    name: str
    image_shape: tuple[int, int, int]  # of the output
    mean: tuple[float, ...]  # one per channel
    std: tuple[float, ...]
    more: str = "none"
    area: tuple[float, float] | None = None  # of crops; None: the policy's

    @property
    def policy(self) -> Policy:
        """The policy, with what is put on top of it as its last step."""
        policy = POLICIES[self.name]
        if self.area is not None:
            policy = replace(policy, area=self.area)
        return policy if self.more == "none" else replace(policy, steps=(*policy.steps, self.more))

    @property
    def num_factors(self) -> int:
        return len(self.policy.columns)

    def __call__(self, images, factors):
        """images [B, h, w, c], factors [B, F] -> float32 [B, *image_shape], normalised."""
        return self.finish(self.crop(images, factors), factors)

    def crop(self, images, factors):
        """Geometry alone. images [B, h, w, c] of equal size, uint8 or float32 in [0, 1], factors [B, F]
        -> float32 [B, *image_shape] in [0, 1]."""
        draw = self._draw(factors)
        steps = self.policy.steps
        if "warp" in steps:
            return geometry.warp(
                self._resized(images, "whole"),
                angle=_symmetric(draw["angle"], WARP_ANGLE),
                zoom=1 + _symmetric(draw["zoom"], WARP_ZOOM),
                shear=_symmetric(draw["shear"], WARP_SHEAR),
                shift=_symmetric(tf.stack([draw["down"], draw["right"]], 1), WARP_SHIFT),
            )
        if not {"crop", "window", "flip"} & set(steps):
            return self._resized(images, self.policy.plain)
        images = self._checked(images)
        image_size, count = _size_of(images), tf.shape(images)[0]
        if "crop" in steps:
            places = {name: draw[name] for name in STEPS["crop"]}
            boxes = geometry.random_boxes(image_size, **places, area_range=self.policy.area)
        elif "window" in steps:
            boxes = geometry.window_boxes(image_size, self.image_shape[:2], draw["top"], draw["left"])
        else:
            boxes = tf.repeat(geometry.whole_box(image_size)[None], count, axis=0)
        flips = draw["flip"] < 0.5 if "flip" in steps else tf.zeros([count], tf.bool)
        return _to_unit(geometry.resample_each(images, boxes, flips, self.image_shape[:2]), images.dtype)

    def finish(self, images, factors):
        """All but geometry. images float32 [B, *image_shape] in [0, 1], factors [B, F] -> the same shape,
        normalised."""
        draw = self._draw(factors)
        for step in self.policy.steps:
            if step in FINISH:
                images = FINISH[step](images, draw)
        return self._normalised(images)

    def plain(self, images):
        """What evaluation sees: images resized (crop policies: centre crop) and normalised, no randomness."""
        return self._normalised(self._resized(images, self.policy.plain))

    def ten_crops(self, images):
        """images [B, h, w, c] -> float32 [B, 10, *image_shape], normalised: the recipes' ten-crop evaluation.

        Shorter side to 256/224 of the size; windows at the four corners and the centre, then those mirrored.
        """
        images = self._checked(images)
        size = self.image_shape[:2]
        boxes = tf.unstack(geometry.corner_and_centre_boxes(_size_of(images), size))
        five = tf.stack([geometry.resample(images, box, size) for box in boxes], 1)
        ten = tf.concat([five, tf.reverse(five, [3])], 1)
        return self._normalised(_to_unit(ten, images.dtype))

    def _draw(self, factors):
        columns = self.policy.columns
        factors = tf.convert_to_tensor(factors, tf.float32)
        if factors.shape.rank != 2 or factors.shape[1] != len(columns):
            raise ValueError(
                f"Policy {self.name!r} takes factors of shape [B, {len(columns)}], "
                f"got {tuple(factors.shape)}. Draw num_factors uniform numbers for each image."
            )
        return dict(zip(columns, tf.unstack(factors, axis=1), strict=True))

    def _checked(self, images):
        images = tf.convert_to_tensor(images)
        if images.shape.rank != 4 or images.shape[-1] != self.image_shape[-1]:
            raise ValueError(
                f"Policy {self.name!r} was made for images [B, h, w, {self.image_shape[-1]}], "
                f"got shape {tuple(images.shape)}."
            )
        if images.dtype not in (tf.uint8, tf.float32):
            raise ValueError(
                f"Images must be uint8, or float32 in [0, 1], got {images.dtype.name}. Cast them before augmentation."
            )
        return images

    def _resized(self, images, region):
        images = self._checked(images)
        size = self.image_shape[:2]
        if region == "centre":
            resized = geometry.resample(images, geometry.centre_box(_size_of(images), size), size)
        elif tuple(images.shape[1:3]) == size:
            resized = tf.cast(images, tf.float32)  # the pixels themselves, bit for bit
        else:
            resized = geometry.resample(images, geometry.whole_box(_size_of(images)), size)
        return _to_unit(resized, images.dtype)

    def _normalised(self, images):
        # Whole rows of pixels at once: broadcasting over the three channels alone takes three times as long.
        width, channels = self.image_shape[1:]
        rows = tf.reshape(images, [-1, width * channels])
        rows = (rows - tf.constant(self.mean * width)) / tf.constant(self.std * width)
        return tf.ensure_shape(tf.reshape(rows, tf.shape(images)), images.shape)


def make(name, image_shape, *, size=None, mean=None, std=None, more="none") -> Augmentation:
    """The policy `name` for images of image_shape (h, w, c), brought to size x size (None: their own).

    h and w may be None for images of differing sizes; then `size` is required. mean and std (one number, or
    one per channel; None or empty: 0 and 1) normalise augmented and plain images alike. more: one of MORE.
    """
    if name not in POLICIES:
        close = difflib.get_close_matches(str(name), POLICIES, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"Unknown augmentation policy {name!r}.{hint} Available: {', '.join(POLICIES)}.")
    if more not in MORE:
        raise ValueError(f"Unknown augmentation more={more!r}. Available: {', '.join(MORE)}.")
    height, width, channels = image_shape
    if channels not in (1, 3):
        raise ValueError(f"Images must have 1 or 3 channels, got image_shape={tuple(image_shape)}.")
    if POLICIES[name].needs_colour and channels != 3:
        colourless = ", ".join(other for other, policy in POLICIES.items() if not policy.needs_colour)
        raise ValueError(
            f"Policy {name!r} changes colours and needs images with 3 channels, "
            f"got image_shape={tuple(image_shape)}. Policies for one channel: {colourless}."
        )
    if size is None:
        if height is None or width is None:
            raise ValueError(
                f"Images of differing sizes (image_shape={tuple(image_shape)}) need one to be brought to: "
                "give size, e.g. size=224."
            )
        output = (int(height), int(width))
    elif isinstance(size, numbers.Integral) and size > 0:
        output = (int(size), int(size))
    else:
        raise ValueError(
            f"size must be a positive whole number of pixels, or None to keep the images' own, got {size!r}."
        )
    mean = _per_channel("mean", mean, channels, default=0.0)
    std = _per_channel("std", std, channels, default=1.0)
    if min(std) <= 0:
        raise ValueError(f"std must be positive in every channel, got {std}.")
    return Augmentation(name=name, image_shape=(*output, channels), mean=mean, std=std, more=more)


def _per_channel(what, values, channels, default):
    values = np.atleast_1d(np.asarray(() if values is None else values, np.float64))
    if values.size == 0:
        values = np.array([default])
    if values.shape not in ((1,), (channels,)) or not np.isfinite(values).all():
        raise ValueError(
            f"{what} must be 1 or {channels} finite numbers for images with {channels} channels, got {values.tolist()}."
        )
    return tuple(np.broadcast_to(values, [channels]).tolist())


def _size_of(images):
    return tf.cast(tf.shape(images)[1:3], tf.float32)  # height, width


def _to_unit(values, dtype):
    return values / 255.0 if dtype == tf.uint8 else values


def _symmetric(share, most):
    return (2 * share - 1) * most  # [0, 1) -> [-most, most)


def _jitter(images, draw):
    factors = [1 + _symmetric(draw[name], JITTER) for name in ("brightness", "contrast", "saturation")]
    factors = tf.stack([*factors, _symmetric(draw["hue"], JITTER)], 1)
    return colour.jitter(images, factors, tf.cast(draw["order"] * len(colour.ORDERS), tf.int32))


def _linear_jitter(images, draw):
    return colour.linear_jitter(
        images,
        turn=_symmetric(draw["hue"], LINEAR_HUE),
        saturation=1 + _symmetric(draw["saturation"], JITTER),
        chosen_gray=draw["gray"] < GRAY_PROBABILITY,
        brightness=1 + _symmetric(draw["brightness"], JITTER),
        contrast=1 + _symmetric(draw["contrast"], JITTER),
    )


def _grayscale(images, draw):
    return colour.grayscale(images, draw["gray"] < GRAY_PROBABILITY)


def _noise(images, draw):
    # A float32 in [0, 1) carries up to 24 random bits: two of them seed one image's own stream. The generator
    # is named, because the default one differs between devices.
    seeds = tf.cast(tf.stack([draw["noise_key"], draw["noise_counter"]], 1) * 2.0**24, tf.int32)
    noise = tf.map_fn(
        lambda seed: tf.random.stateless_normal(images.shape[1:], seed, alg="philox"),
        seeds,
        fn_output_signature=tf.float32,
    )
    return tf.clip_by_value(images + NOISE_DEVIATION * noise, 0.0, 1.0)


def _one_of(images, draw):
    choice = tf.cast(draw["which"] * enhance.OPERATIONS, tf.int32)
    return enhance.one_of(images, choice, 1 + draw["sharpening"])  # the paper's word: never smoother


FINISH = {
    "grayscale": _grayscale,
    "jitter": _jitter,
    "linear_jitter": _linear_jitter,
    "noise": _noise,
    "one_of": _one_of,
}
