"""BatchNorm absorbed into the layer before it: the same function of the image, with fewer layers.

    BatchNorm, moving statistics       y  = gamma * (W x + b - mean) / sqrt(variance + epsilon) + beta
    one layer that does the same       W' = W * s,  b' = (b - mean) * s + beta,  s = gamma / sqrt(variance + epsilon)

s, b and b' hold one number per output channel, the last axis of W. Zeros that pad x come before W and change nothing.
"""

import keras
import numpy as np
from keras import layers

CHANNELS_LAST_KERNELS = (layers.Conv1D, layers.Conv2D, layers.Conv3D, layers.Dense)  # W is [..., in, out]


def absorb(model: keras.Model) -> keras.Model:
    """A copy of a functional `model` with its own weights, in which every BatchNorm that can be absorbed has been.

    Can be: the only one to read a convolution or dense layer that has no activation and is no output of the model. In
    its place stands an Identity of the same name, so that all names of layers still mean something: the convolution's
    own is now that of the normalised map. Other BatchNorms (before a convolution, after a sum) stay as they are.
    """
    norms = _absorbable(model)
    convolutions = set(norms.values())
    made = {}  # name -> layer; a layer that is called twice is made once

    def clone(layer):
        if layer.name not in made:
            config = layer.get_config()
            if layer.name in norms:
                made[layer.name] = layers.Identity(name=layer.name, dtype=layer.dtype_policy)
            elif layer.name in convolutions:
                made[layer.name] = type(layer).from_config(config | {"use_bias": True})
            else:
                made[layer.name] = type(layer).from_config(config)
        return made[layer.name]

    def call(layer, *inputs, **options):
        return layer(*inputs) if layer.name in norms else layer(*inputs, **options)  # a mask is BatchNorm's only

    copy = keras.models.clone_model(model, clone_function=clone, call_function=call)
    weights = {layer.name: layer.get_weights() for layer in model.layers}
    for norm, convolution in norms.items():
        weights[convolution] = _absorbed(model.get_layer(convolution), model.get_layer(norm))
        weights[norm] = []
    for name, layer in made.items():
        if weights.get(name):  # not of the operations between layers, which have none
            layer.set_weights(weights[name])
    return copy


def _absorbed(layer, norm):
    """[W', b'] in float64: Keras casts them to the layer's own type."""
    mean, variance = np.float64(norm.moving_mean), np.float64(norm.moving_variance)
    scale = 1 / np.sqrt(variance + norm.epsilon)
    if norm.scale:
        scale = scale * np.float64(norm.gamma)
    bias = np.float64(layer.bias) if layer.use_bias else 0.0
    offset = np.float64(norm.beta) if norm.center else 0.0
    return [np.float64(layer.kernel) * scale, (bias - mean) * scale + offset]


def _absorbable(model):
    """BatchNorm's name -> the name of the layer that it can be absorbed into."""
    graph = model.get_config()
    if "output_layers" not in graph:
        raise ValueError(
            f"{model.name} is a {type(model).__name__}, not a functional model, so the order of its layers is not to "
            "be seen. Build it as keras.Model(inputs, outputs)."
        )
    # Who reads whom, from the graph as Keras itself writes it down.
    calls = {layer["name"]: layer["inbound_nodes"] for layer in graph["layers"]}
    sources = {name: _tensors(nodes) for name, nodes in calls.items()}
    readers = {name: [reader for reader in sources for source in sources[reader] if source == name] for name in calls}
    outputs = _names(graph["output_layers"])

    norms = {}
    for norm in model.layers:
        if not isinstance(norm, layers.BatchNormalization) or len(sources[norm.name]) != 1:
            continue
        (before,) = sources[norm.name]
        layer = model.get_layer(before)
        if (
            isinstance(layer, CHANNELS_LAST_KERNELS)
            and layer.activation is keras.activations.linear
            and getattr(layer, "data_format", "channels_last") == "channels_last"
            and norm.axis in (-1, len(norm.input.shape) - 1)
            and readers[before] == [norm.name]
            and len(calls[before]) == 1
            and before not in outputs
        ):
            norms[norm.name] = before
    return norms


def _tensors(node):
    """The names of the layers whose outputs a serialised call, or list of calls, takes."""
    if isinstance(node, dict):
        if node.get("class_name") == "__keras_tensor__":
            return [node["config"]["keras_history"][0]]
        node = list(node.values())
    return [name for part in node for name in _tensors(part)] if isinstance(node, list | tuple) else []


def _names(outputs):
    """The names in "output_layers", where each output is (name, call, tensor), one or nested."""
    if isinstance(outputs, dict):
        outputs = list(outputs.values())
    if len(outputs) == 3 and isinstance(outputs[0], str):
        return {outputs[0]}
    return set().union(*map(_names, outputs))
