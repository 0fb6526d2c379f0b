"""SavedModel: the network as a graph that TF Serving serves and that other programs load, call and fine-tune.

    signature              takes                              gives
    serving_default        images float32 [n, h, w, c]        features [n, D]
    features_from_bytes    images string [n], encoded files   features [n, D]
    clusters               images float32 [n, h, w, c]        cluster int32 [n, H], probability [n, H]

    network = tf.saved_model.load("export/1")
    network(images, training=True), network.trainable_variables, network.variables
    keras.layers.TFSMLayer("export/1", "features", call_training_endpoint="features_in_training")

`images` of serving_default and clusters are prepared ones; how is told by assets/model.json, and features_from_bytes
does it itself.
"""

import tempfile
from pathlib import Path

import tensorflow as tf

from .model_facts import describe
from .preprocessing import Preprocessing
from .version_folder import FACTS, publish, write_facts

FILE = "saved_model.pb"


class ServedNetwork(tf.Module):
    """The root of the SavedModel. It holds variables and functions, and no Keras object, so nothing else is saved."""

    variables = trainable_variables = ()  # plain attributes in place of properties, because only those are saved

    def __init__(self, model, preprocessing):
        super().__init__(name="selabel_tf")
        parts = (model.backbone, model.projection, model.heads)
        self.variables = [v.value for part in parts for v in part.variables]
        self.trainable_variables = [v.value for v in model.backbone.trainable_variables]
        images = tf.TensorSpec([None, *model.image_shape], tf.float32, name="images")

        def features(images, training=False):
            return tf.cast(model.backbone(images, training=training), tf.float32)

        def clusters(images):
            probabilities = [
                tf.nn.softmax(tf.cast(logits, tf.float32)) for logits in model(checked(images), training=False)
            ]
            return {
                "cluster": tf.stack([tf.argmax(p, axis=-1, output_type=tf.int32) for p in probabilities], axis=1),
                "probability": tf.stack([tf.reduce_max(p, axis=-1) for p in probabilities], axis=1),
            }

        def checked(images):
            # A signature does not compare shapes when it is called, and a network that pools takes images of any size.
            # A placeholder hides the promised shape, without which the check would be optimised away.
            hidden = tf.compat.v1.placeholder_with_default(images, [None] * 4)
            return tf.ensure_shape(hidden, [None, *model.image_shape])

        def compiled(function, spec=images):
            return tf.function(function, input_signature=[spec], autograph=False)

        self.features = compiled(lambda images: features(images))
        self.features_in_training = compiled(lambda images: features(images, training=True))
        self.features_from_images = compiled(lambda images: {"features": features(checked(images))})
        self.features_from_bytes = compiled(
            lambda images: {"features": features(preprocessing.of_bytes(images))},
            tf.TensorSpec([None], tf.string, name="images"),
        )
        self.clusters = compiled(clusters)
        self.__call__ = tf.function(features, autograph=False)
        for training in (False, True):
            self.__call__.get_concrete_function(images, training=training)

    def signatures(self):
        return {
            "serving_default": self.features_from_images,
            "features_from_bytes": self.features_from_bytes,
            "clusters": self.clusters,
        }


def export(model, path, *, preprocessing=None, facts=None, check=None) -> Path:
    """Writes a SelfLabelModel as the next version folder under `path`, and returns that folder.

    Args:
        preprocessing: how images were prepared in training; by default the whole image, scaled to 0..1.
        facts: more to tell in assets/model.json.
        check: called with the written folder before it gets its number; its error gives the export up.
    """
    preprocessing = preprocessing or Preprocessing(model.image_shape)
    described = describe(model, preprocessing, facts)

    def write(folder):
        with tempfile.TemporaryDirectory() as scratch:
            write_facts(scratch, described)
            network = ServedNetwork(model, preprocessing)
            network.facts = tf.saved_model.Asset(str(Path(scratch) / FACTS))
            tf.saved_model.save(network, str(folder), signatures=network.signatures())

    return publish(path, FILE, write, check)
