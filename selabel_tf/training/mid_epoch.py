"""`fit` from any step on, the middle of an epoch included.

Keras begins at batch 0 of an epoch, and takes the length of its epochs from the first. So the rest of a cut epoch is a
`fit` of its own, and the whole epochs after it are another one. To the callbacks the two are one `fit` that begins at
the given step: they see the true epochs and batches, `params` of the whole training, one beginning and one end.
"""

import contextlib

import keras


def fit_from(step, model, source, *, batch_size, seed, epochs, callbacks):
    """Trains a SelfLabelModel on source.train_batches from `step` (epoch * steps per epoch + batch) to the end.

    In the middle of an epoch, the model's metrics go on from the values that they have now.
    """
    steps = -(-source.num_examples // batch_size)
    epoch, batch = divmod(step, steps)
    callbacks = _OneFit(callbacks, model, epochs=epochs, steps=steps)
    options = {"shuffle": False, "verbose": 0, "callbacks": callbacks}  # the order is the source's
    if batch:
        rest = source.train_batches(batch_size, seed=seed, first_batch=batch)
        with callbacks.rest_of_epoch(batch):
            model.fit(rest, initial_epoch=epoch, epochs=epoch + 1, **options)
        epoch += 1
        if model.stop_training:
            epochs = epoch
    model.fit(source.train_batches(batch_size, seed=seed), initial_epoch=epoch, epochs=epochs, **options)


class _OneFit(keras.callbacks.CallbackList):
    """Callbacks that see the rest of an epoch, which is to be announced, and what follows it as one."""

    def __init__(self, callbacks, model, **params):
        super().__init__(callbacks, add_history=True, model=model, **params)
        self.first_batch = 0
        self.begun = False
        self.running_metrics = None

    @contextlib.contextmanager
    def rest_of_epoch(self, first_batch):
        self.first_batch = first_batch
        self.running_metrics = [variable.numpy() for variable in self.model.metrics_variables]
        yield
        self.first_batch = 0

    def on_train_begin(self, logs=None):
        if not self.begun:
            super().on_train_begin(logs)
        self.begun = True

    def on_epoch_begin(self, epoch, logs=None):
        if self.first_batch:  # `fit` has just reset them
            for variable, value in zip(self.model.metrics_variables, self.running_metrics, strict=True):
                variable.assign(value)
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch, logs=None):
        super().on_train_batch_begin(self.first_batch + batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(self.first_batch + batch, logs)

    def on_train_end(self, logs=None):
        if not self.first_batch:
            super().on_train_end(logs)
