"""A backbone rebuilt from layers that plain Keras knows: the same weights, the same outputs, none of our classes.

FusedBatchNormalization  ->  keras.layers.BatchNormalization     ours is faster in training, the same in inference
mixed_float16            ->  float32                             what is exported computes in full precision
"""

import keras

# registered name of a class of ours -> the stock class that computes the same
STOCK = {"selabel_tf>FusedBatchNormalization": keras.layers.BatchNormalization}


def rebuilt(backbone, replace=lambda layer: None) -> keras.Model:
    """`backbone` with its own weights in stock layers. `replace`: layer -> another in its place, or None to keep it."""
    if not getattr(backbone, "inputs", None):
        raise ValueError(
            f"The backbone {backbone.name} is a {type(backbone).__name__} and not a functional keras.Model, so it "
            "cannot be rebuilt from stock layers. Export it as saved_model."
        )

    def stock(layer):
        other = replace(layer)
        if other is not None:
            return other
        cls = STOCK.get(keras.saving.get_registered_name(type(layer)), type(layer))
        if not cls.__module__.startswith("keras."):
            raise ValueError(
                f"Layer {layer.name} of {backbone.name} is a {cls.__module__}.{cls.__name__}, which plain Keras does "
                "not know. Export this network as saved_model, which holds no Python classes."
            )
        return cls.from_config({**layer.get_config(), "dtype": "float32"})

    copy = keras.models.clone_model(backbone, clone_function=stock)
    copy.set_weights(backbone.get_weights())
    return copy
