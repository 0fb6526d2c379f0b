"""Principal components: features brought to fewer dimensions before nearest neighbours are sought among them.

    z = W (x - mean),  W [dims, D]: the directions in which the bank varies most, orthonormal

The paper's kNN has 128 dimensions. It is scikit-learn's PCA; where that draws random numbers (large problems are
solved approximately), the seed makes them the same every time.
"""

import numpy as np
from sklearn import decomposition

DIMENSIONS = 128


def fit(bank, dims=DIMENSIONS, *, seed=0) -> decomposition.PCA:
    """PCA of `bank` [N, D] to `dims` dimensions; its `transform` takes the bank itself and queries alike."""
    bank = np.asarray(bank)
    if bank.ndim != 2:
        raise ValueError(f"The bank has shape {bank.shape}, expected [rows, features]. Flatten images first.")
    check_dims(dims, *bank.shape)
    if not np.isfinite(bank).all():
        raise ValueError("The bank has NaN or infinite values. Has the network diverged?")
    return decomposition.PCA(dims, random_state=seed).fit(bank)


def check_dims(dims, num_rows, num_features):
    """Refuses more dimensions than `num_rows` rows of `num_features` features span."""
    most = min(num_rows, num_features)
    if not 1 <= dims <= most:
        raise ValueError(
            f"PCA to {dims} dimensions of {num_rows} rows with {num_features} features. "
            f"Choose from 1 to {most}, or leave PCA out."
        )
