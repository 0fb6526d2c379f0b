"""Stochastic gradient descent as the recipes mean it.

    v <- momentum * v + (g + l2 * w)
    w <- w - learning_rate * v

This is PyTorch's rule. Keras's own SGD differs twice: its `weight_decay` is decoupled, about ten times
weaker at momentum 0.9; and its velocity holds the learning rate, so that after a drop the old, larger steps
roll on for a while, where here the whole step shrinks at once.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="selabel_tf")
class CoupledSGD(keras.optimizers.SGD):
    """SGD with momentum and coupled L2 on all trainable variables, BatchNorm scales and biases included.

    `options` are the remaining ones of `keras.optimizers.SGD`: clipping, averaging, gradient accumulation.
    """

    def __init__(self, learning_rate=0.01, momentum=0.9, l2=0.0, name="coupled_sgd", **options):
        if options.get("weight_decay") is not None:
            raise ValueError(
                f"CoupledSGD got weight_decay={options['weight_decay']}, Keras's decoupled decay. "
                "Use l2= for the coupled one of the recipes."
            )
        if options.get("nesterov"):
            raise ValueError("CoupledSGD has no Nesterov momentum. Use keras.optimizers.SGD for it.")
        if not l2 >= 0:
            raise ValueError(f"CoupledSGD got l2={l2}. It must be 0 or more.")
        super().__init__(learning_rate, momentum=float(momentum), name=name, **options)
        self.l2 = float(l2)

    def update_step(self, gradient, variable, learning_rate):
        gradient = ops.cast(gradient, variable.dtype)
        step = gradient + ops.cast(self.l2, variable.dtype) * variable
        if self.momentum:
            velocity = self.momentums[self._get_variable_index(variable)]  # the lookup of Keras's own optimizers
            step = ops.cast(self.momentum, variable.dtype) * ops.convert_to_tensor(velocity) + step
            self.assign(velocity, step)
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * step)

    def get_config(self):
        return {**super().get_config(), "l2": self.l2}
