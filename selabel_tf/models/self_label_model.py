"""SelfLabelModel: a backbone and its heads, trained by cross-entropy on labels that nobody gave.

    loss = sum over the batch of (sum over objectives of the loss of an image) / global number of examples

where the objective "labels" is the mean (or sum) over heads of -log p_h(label_h), and models.objectives has others.

An ordinary keras.Model that is fed (image, index) pairs, or ((image, small crops), index): the index leads to the
labels in the label store, which `SelfLabelCallback` renews while `fit` runs. `evaluate` and `validation_data` too mean
the current labels of those rows of the training set: held-out images have none, so judge them by their features.
"""

import keras
import numpy as np
import tensorflow as tf

from . import objectives as objective_list
from .heads import MultiHead, checked_num_clusters
from .label_store import LabelStore
from .loss_scale import with_overflow_of_all
from .projection import Projection


@keras.saving.register_keras_serializable(package="selabel_tf")
class SelfLabelModel(keras.Model):
    """Images -> features -> logits per head, with the labels of its training set inside.

    Args:
        backbone: any keras.Model that maps images [B, h, w, c] to vectors [B, D].
        num_clusters: clusters per head, e.g. [128] * 10.
        num_examples: size N of the training set whose rows the labels are.
        seed: of the first, random labels.
        image_shape: (h, w, c), needed only for a backbone that has not been built.
        objectives: what is learnt, names of models.objectives: "labels", "rotation" or both. Without "labels" the
            heads stay as they were drawn.
        projection: a keras layer [B, D] -> [B, P] between features and heads, e.g. models.Projection((256, 128)); None
            puts the heads on the features.
        over_heads: "mean" of the heads' losses, as the paper, or their "sum": each head then learns as fast as it would
            alone, and the backbone that much faster.
        spread: 1 for hard labels, as the paper; m to learn each image's m likeliest clusters with their shares of the
            transport plan.
    """

    def __init__(
        self,
        backbone,
        num_clusters,
        num_examples,
        seed=0,
        image_shape=None,
        objectives=("labels",),
        projection=None,
        over_heads="mean",
        spread=1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        num_clusters = checked_num_clusters(num_clusters)
        names = objective_list.checked_objectives(objectives)
        if over_heads not in objective_list.OVER_HEADS:
            raise ValueError(f"Unknown over_heads {over_heads!r}. Available: {', '.join(objective_list.OVER_HEADS)}.")
        if num_examples < max(num_clusters):
            raise ValueError(
                f"num_examples={num_examples} is fewer than the {max(num_clusters)} clusters of a head: no "
                "labelling can fill them. Use fewer clusters or more examples."
            )
        self.num_examples = num_examples
        self.seed = seed
        self.over_heads = over_heads
        self.backbone = backbone
        self.image_shape = _image_shape(backbone, image_shape)
        outputs = backbone(keras.KerasTensor((None, *self.image_shape)))  # also builds a backbone that is not built
        features = getattr(outputs, "shape", None)
        if features is None or len(features) != 2 or features[-1] is None:
            raise ValueError(
                f"The backbone maps images to {features or outputs}; vectors [batch, D] are expected. "
                "Add a pooling or flattening layer, e.g. include_top=False, pooling='avg' in keras.applications."
            )
        self.feature_size = features[-1]
        own = {"dtype": self.dtype_policy}  # of a loaded model that of its file, whatever the process has
        self.heads = MultiHead(num_clusters, name="heads", **own)
        self.projection = Projection(name="projection", **own) if projection is None else projection
        if not self.projection.built:
            self.projection.build((None, self.feature_size))
        self.heads.build(self.projection.compute_output_shape((None, self.feature_size)))
        if "labels" not in names:
            self.heads.trainable = self.projection.trainable = False
        self.label_store = LabelStore(num_examples, num_clusters, seed, spread, name="label_store")
        made = [objective_list.OBJECTIVES[name](self) for name in names]
        self.objective_heads = [objective.head for objective in made if hasattr(objective, "head")]
        self.objectives = {objective.name: objective for objective in made}
        self.trackers = objective_list.trackers(made)
        self.built = True

    def call(self, images, training=False):
        """The logits of all heads; of images with small crops those of the images."""
        images = images[0] if isinstance(images, tuple) else images
        return self.heads(self.project(images, training=training))

    def export(self, filepath, format="tf_saved_model", *, input_signature=None, **options):
        """Like keras.Model.export, of `call`: prepared images -> logits of all heads. For serving features and
        clusters, or images as files, see selabel_tf.export.

        Keras knows what a model takes by what it was called with first, and this one is built without any.
        """
        if input_signature is None:
            input_signature = [keras.InputSpec(shape=(None, *self.image_shape), dtype="float32")]
        super().export(filepath, format, input_signature=input_signature, **options)

    def project(self, images, training=False):
        """What the heads see of images: features [B, D], or [B, P] where there is a projection."""
        return self.projection(self.backbone(images, training=training), training=training)

    def compile(self, optimizer="sgd", *, steps_per_execution=1, run_eagerly=False, jit_compile=False, **other):
        """Like keras.Model.compile; the loss is the model's own.

        Args:
            optimizer: a Keras optimizer or its name.
            steps_per_execution: training steps per call of the compiled function.
            run_eagerly: for debugging.
            jit_compile: XLA. Off by default: it refuses op determinism, which runs on CPU rely on.
        """
        given = sorted(name for name, value in other.items() if value is not None)
        if given:
            raise ValueError(
                f"compile() got {', '.join(given)}, but SelfLabelModel has its own loss, the cross-entropy "
                "against its labels. Give the optimizer only; measure features and clusters with "
                "selabel_tf.evaluation."
            )
        super().compile(
            optimizer=optimizer,
            steps_per_execution=steps_per_execution,
            run_eagerly=run_eagerly,
            jit_compile=jit_compile,
        )

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    @property
    def metrics(self):
        # Keras' own loss tracker is never updated by a custom train_step and would print 0.0000
        return list(self.trackers.values())

    def train_step(self, data):
        images, index = _pair(data)
        replica = tf.distribute.get_replica_context()
        global_batch = replica.all_reduce("sum", tf.cast(tf.shape(index)[0], tf.float32))
        with tf.GradientTape() as tape:
            values = self.judge(images, index, training=True)
            loss = tf.reduce_sum(values["loss"]) / global_batch  # gradients are summed over replicas
            if self.losses:  # the regularisers of a backbone brought along
                loss += tf.add_n(self.losses) / replica.num_replicas_in_sync
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            gradients = with_overflow_of_all(gradients)
        self.optimizer.apply(gradients, self.trainable_variables)
        return self._track(values)

    def test_step(self, data):
        return self._track(self.judge(*_pair(data), training=False))

    def judge(self, images, index, training=False):
        """Measure -> value per example [B] of all objectives, by one pass of the backbone: "loss", and more.

        images: [B, h, w, c], or a pair of them and small crops [B, n, s, s, c], by another pass: the loss of the labels
        is then the mean over all 1 + n crops of an image.
        """
        images, small = images if isinstance(images, tuple) else (images, None)
        made = list(self.objectives.values())
        shown = objective_list.turned(images, max(objective.turns for objective in made))
        values = objective_list.judge(made, self.backbone(shown, training=training), index, training)
        if small is None:
            return values
        if "labels" not in self.objectives:
            raise ValueError(
                f"Small crops learn the labels, and objectives={tuple(self.objectives)!r} has none. Train on a source "
                "without small crops, or add the objective."
            )
        count = small.shape[1]
        together = tf.reshape(small, [-1, *small.shape[2:]])
        z = self.small_features(together, training=training)
        losses = self.objectives["labels"].judge(z, tf.repeat(index, count), training)["loss"]
        of_small = tf.reduce_mean(tf.reshape(losses, [-1, count]), axis=1)
        change = (of_small - values["labels_loss"]) * count / (1 + count)
        return values | {name: values[name] + change for name in ("loss", "labels_loss")}

    def small_features(self, images, training=False):
        """Features [B, D] of images of another size than the backbone was made for; refuses where it has none."""
        z, cause = None, None
        try:
            z = self.backbone.call(images, training=training)  # not backbone(...), which insists on its own size
        except ValueError as error:
            cause = error
        if z is None or z.shape[-1] != self.feature_size:
            size = "x".join(map(str, images.shape[1:3]))
            raise ValueError(
                f"The backbone {self.backbone.name} has no features of small crops, {size}: it must average over all "
                "places of an image, as a ResNet does. Take such a backbone, or no small crops."
            ) from cause
        return z

    def _track(self, values):
        """Takes values per example [B] into the metrics, and returns those so far over all replicas. Each replica has
        trackers of its own, and a mean of their means would be wrong after an uneven batch."""
        for name, tracker in self.trackers.items():
            tracker.update_state(values[name])  # undivided: what a reader expects to see
        sums = [tf.convert_to_tensor(v) for tracker in self.metrics for v in (tracker.total, tracker.count)]
        totals = tf.distribute.get_replica_context().all_reduce("sum", tf.stack(sums))
        total, count = tf.unstack(tf.reshape(totals, [-1, 2]), axis=1)
        means = tf.unstack(tf.math.divide_no_nan(total, count), num=len(self.trackers))
        return dict(zip(self.trackers, means, strict=True))

    @property
    def num_clusters(self):
        return self.heads.num_clusters

    @property
    def _own_heads(self):
        return (self.heads, *self.objective_heads)

    @property
    def labels(self):
        """The transport labels of the training set, int32 [N, H]."""
        return self.label_store.labels()

    def embed(self, images):
        """Features [n, D] of one batch of images, prepared as the source's `plain_batches` prepares them."""
        return np.asarray(self.backbone(images, training=False), np.float32)

    def assign(self, images):
        """The heads' own prediction [n, H] int32 for one batch of images, seen before or not."""
        logits = self(images, training=False)
        return np.stack([np.argmax(scores, axis=-1) for scores in logits], axis=1).astype(np.int32)

    def get_config(self):
        return {
            **super().get_config(),
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "num_clusters": list(self.num_clusters),
            "num_examples": self.num_examples,
            "seed": self.seed,
            "image_shape": list(self.image_shape),
            "objectives": list(self.objectives),
            "projection": keras.saving.serialize_keras_object(self.projection),
            "over_heads": self.over_heads,
            "spread": self.label_store.spread,
            "frozen": [head.name for head in self._own_heads if not head.trainable],
        }

    @classmethod
    def from_config(cls, config):
        parts = {name: config[name] for name in ("backbone", "projection") if name in config}
        made = {name: keras.saving.deserialize_keras_object(part) for name, part in parts.items()}
        frozen = config.get("frozen", ())  # files of earlier versions do not say
        model = cls(**{**{name: value for name, value in config.items() if name != "frozen"}, **made})
        for head in model._own_heads:
            head.trainable = head.trainable and head.name not in frozen
        return model


def _image_shape(backbone, image_shape):
    """(h, w, c) of a backbone's images: as given, or the backbone's own."""
    if image_shape is None:
        if not backbone.built or not getattr(backbone, "inputs", None):
            raise ValueError(
                "The backbone has no input shape of its own yet. Give SelfLabelModel(..., image_shape=(h, w, c))."
            )
        image_shape = backbone.inputs[0].shape[1:]
    return tuple(image_shape)


def _pair(data):
    images, index, weights = keras.utils.unpack_x_y_sample_weight(data)
    if index is None:
        raise ValueError(
            "SelfLabelModel trains and evaluates on (image, index) pairs, index being the row of the training set. "
            "Feed it source.train_batches(batch_size), or your own dataset of such pairs."
        )
    if weights is not None:
        raise ValueError("SelfLabelModel takes no sample_weight or class_weight: all images count alike. Leave it out.")
    vector = tf.is_tensor(index) and (index.shape.rank in (None, 1) or index.shape[1:] == [1])
    if not vector or not index.dtype.is_integer:
        what = f"{index.dtype.name} {list(index.shape)}" if tf.is_tensor(index) else f"a {type(index).__name__}"
        raise ValueError(f"The index of the examples is {what}; one whole number for each image, [batch], is expected.")
    return images, tf.reshape(tf.cast(index, tf.int64), [-1])
