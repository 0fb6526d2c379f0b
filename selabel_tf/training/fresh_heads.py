"""A head that begins anew within training, because the numbers of its clusters have got a new meaning.

Its weights are drawn as at the start, N(0, 0.01) with biases 0, and what the optimizer remembers of them is forgotten.
Both are a function of (seed, step, head) alone: a resumed run and every replica get the same.
"""

import numpy as np

STREAM = 1 << 32  # of random numbers: far from the small keys that first labels and views have


def renew_head(model, head, *, seed, step):
    """Draws the weights of one head of a SelfLabelModel again and clears the optimizer's slots of them."""
    heads, span = model.heads, model.heads.span(head)
    shape = (heads.kernel.shape[0], heads.num_clusters[head])
    generator = np.random.Generator(np.random.Philox(key=[seed, STREAM], counter=[0, 0, head, step]))
    _put(heads.kernel, span, 0.01 * generator.standard_normal(shape))
    _put(heads.bias, span, 0.0)
    for variable in (heads.kernel, heads.bias):
        for slot in _slots(model.optimizer, variable):
            _put(slot, span, 0.0)


def _put(variable, span, values):
    """Columns `span` of a variable [..., K_1 + ... + K_H] become `values`."""
    whole = np.array(variable)
    whole[..., span] = values
    variable.assign(whole)


def _slots(optimizer, variable):
    """What a Keras optimizer keeps beside `variable`: momentum, second moments, gathered gradients. Not averages of the
    weights themselves, which are for whoever asked for them."""
    prefix = (
        variable.path.replace("/", "_") + "_"
    )  # as keras.optimizers.Optimizer.add_variable_from_reference names them
    named = [slot for slot in optimizer.variables if slot.name.startswith(prefix) and slot.shape == variable.shape]
    return [slot for slot in named if slot.name != prefix + "average"]
