"""How images are prepared for the network in evaluation, as a value that travels with every export.

    region    (top, left, height, width) of the picture: all of it, or its centre,
                  extent = size * min(picture / size) * CENTRE_SHARE,  top-left = (picture - extent) / 2
    resize    region -> size by the triangle kernel of half-width max(1, extent / size): bilinear where it enlarges,
              antialiased where it shrinks (PIL's resize(size, BILINEAR, box=region))
    scale     0..255 -> 0..1
    normalise (value - mean) / std, per channel

The serving graph is made from this value alone, so what a client reads in model.json is what the graph does. That it
is also what `Source.plain_batches` does is held by tests.
"""

from dataclasses import dataclass

import tensorflow as tf

CENTRE_SHARE = 224 / 256  # "shorter side to 256, centre crop of 224", at any size
REGIONS = ("whole", "centre")
BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"RIFF")  # JPEG, PNG, GIF, BMP, WebP
NOT_AN_IMAGE = (
    "features_from_bytes takes the bytes of whole JPEG, PNG, GIF, BMP or WebP files, and an image of this request does "
    'not begin like one. Send the file itself (over REST as {"b64": "..."}), not a path or pixels. Its place in the '
    "request, counted from 0:"
)


@dataclass(frozen=True)
class Preprocessing:
    """image_shape: (h, w, c) that the network takes; region: "whole" or "centre"; mean, std: one per channel."""

    image_shape: tuple[int, int, int]
    region: str = "whole"
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self):
        channels = self.image_shape[2]
        object.__setattr__(self, "image_shape", tuple(self.image_shape))
        object.__setattr__(self, "mean", tuple(self.mean) or (0.0,) * channels)
        object.__setattr__(self, "std", tuple(self.std) or (1.0,) * channels)
        if self.region not in REGIONS:
            raise ValueError(f"region={self.region!r} is unknown. Available: {', '.join(REGIONS)}.")
        if {len(self.mean), len(self.std)} != {channels}:
            raise ValueError(
                f"mean has {len(self.mean)} values and std {len(self.std)}, the images have {channels} channels. "
                "Give one of each per channel, or neither."
            )

    def facts(self) -> dict:
        """Plain values, for JSON; all that a client needs to prepare images itself."""
        return {
            "image_shape": list(self.image_shape),
            "region": self.region,
            "centre_share": CENTRE_SHARE if self.region == "centre" else None,
            "resize": "bilinear, antialiased where it shrinks",
            "scale": 1 / 255,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    @classmethod
    def from_facts(cls, facts):
        return cls(tuple(facts["image_shape"]), facts["region"], tuple(facts["mean"]), tuple(facts["std"]))

    def of_bytes(self, encoded):
        """Encoded images, string [n] -> float32 [n, *image_shape]. Traceable; bytes of no image are an error."""
        starts = [tf.strings.substr(encoded, 0, len(start)) == start for start in BEGINNINGS]
        known = tf.reduce_any(starts, axis=0)  # [n]
        check = tf.debugging.Assert(tf.reduce_all(known), [NOT_AN_IMAGE, tf.where(~known)[:, 0]], summarize=100)
        with tf.control_dependencies([check]):
            encoded = tf.identity(encoded)

        def one(data):
            image = tf.io.decode_image(data, channels=self.image_shape[2], expand_animations=False)
            return self.of_pixels(tf.ensure_shape(image, [None, None, self.image_shape[2]])[None])[0]

        return tf.map_fn(one, encoded, fn_output_signature=tf.TensorSpec(self.image_shape, tf.float32))

    def of_pixels(self, images):
        """uint8 [n, any, any, c] -> float32 [n, *image_shape]."""
        size = self.image_shape[:2]
        picture, output = tf.cast(tf.shape(images)[1:3], tf.float32), tf.constant(size, tf.float32)
        extent = picture
        if self.region == "centre":
            extent = output * tf.reduce_min(picture / output) * CENTRE_SHARE
        scale = output / extent
        resized = tf.raw_ops.ScaleAndTranslate(
            images=images,
            size=size,
            scale=scale,
            translation=-(picture - extent) / 2 * scale,
            kernel_type="triangle",
            antialias=True,
        )
        return (resized / 255.0 - tf.constant(self.mean)) / tf.constant(self.std)
