"""A backbone with a new linear classifier on it: which layers train, and which stay as they are.

    scores = W z + b,  z = backbone(image) [B, D]           W ~ N(0, 0.01^2), b = 0

A backbone is a row of blocks: conv1 ... conv5, fc6, fc7 of AlexNet; conv1, stage1_block1 ... of a ResNet. `layers` says
where training begins; everything behind it trains, the classifier always:

    all           every block
    classifier    no block: a linear probe that sees augmented images
    2             the last two blocks
    fc6           this block and those behind it; of AlexNet the paper's "fc6-8"

Frozen blocks run as in inference: their BatchNorm normalises by the moving statistics and does not change them, and
their dropout is off. So what they compute of an image is fixed, and is what every other tool saw of the network.
In blocks that train, BatchNorm normalises by the batch and keeps its statistics up to date; batch_norm="inference"
leaves all BatchNorm layers as they are, scale and offset included, which is steadier in small batches.
"""

import difflib
import re

import keras

BATCH_NORM = ("training", "inference")
_BLOCK = re.compile(r"(stage\d+_block\d+|[a-z]+\d+)(?=_|$)")


def blocks(backbone) -> list[str]:
    """The names of the blocks that hold weights, from the image on."""
    return list(dict.fromkeys(_block(layer) for layer in backbone.layers if layer.weights))


def with_classifier(backbone, num_classes, *, layers="all", batch_norm="training", seed=0) -> keras.Model:
    """images [B, h, w, c] -> scores float32 [B, num_classes]: a copy of a functional `backbone`, and the classifier.

    layers, batch_norm: as above. seed: of the classifier's weights and of dropout.
    """
    if batch_norm not in BATCH_NORM:
        raise ValueError(f"batch_norm={batch_norm!r} is unknown. Use {' or '.join(BATCH_NORM)}.")
    frozen = _frozen(backbone, layers)

    def clone(layer):
        config = layer.get_config()
        if layer.name in frozen and isinstance(layer, keras.layers.Dropout):
            config["rate"] = 0.0
        return type(layer).from_config(config)

    keras.utils.set_random_seed(seed)
    usual = keras.config.dtype_policy()
    keras.config.set_dtype_policy(backbone.dtype_policy)  # under mixed precision the model scales its loss
    try:
        copy = keras.models.clone_model(backbone, clone_function=clone)
        classifier = keras.layers.Dense(
            num_classes,
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.01, seed=seed),
            dtype="float32",
            name="classifier",
        )
        model = keras.Model(copy.input, classifier(copy.output), name=f"{backbone.name}_classifier")
    finally:
        keras.config.set_dtype_policy(usual)
    copy.set_weights(backbone.get_weights())
    for layer in copy.layers:
        still = batch_norm == "inference" and isinstance(layer, keras.layers.BatchNormalization)
        layer.trainable = not (layer.name in frozen or still)
    return model


def _block(layer):
    found = _BLOCK.match(layer.name)
    return found[0] if found else layer.name


def _frozen(backbone, layers):
    """The names of the layers that do not train."""
    known = blocks(backbone)
    order = list(dict.fromkeys(_block(layer) for layer in backbone.layers))
    if layers == "all":
        return set()
    if layers == "classifier":
        first = len(order)
    elif re.fullmatch(r"\d+", layers):
        if not 1 <= int(layers) <= len(known):
            raise ValueError(
                f"layers={layers}: {backbone.name} has {len(known)} blocks ({', '.join(known)}). Give 1 to "
                f"{len(known)}, or classifier for none of them."
            )
        first = order.index(known[-int(layers)])
    elif layers in known:
        first = order.index(layers)
    else:
        close = difflib.get_close_matches(layers, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"{backbone.name} has no block {layers!r}.{hint} Use all, classifier, a number of last blocks, or the "
            f"block to begin with: {', '.join(known)}."
        )
    return {layer.name for layer in backbone.layers if order.index(_block(layer)) < first}
