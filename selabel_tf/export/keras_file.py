"""backbone.keras: the trained network without its heads, as one file that plain Keras loads in safe mode.

network = keras.models.load_model("backbone.keras")     needs Keras, and nothing of this package
"""

import secrets
from pathlib import Path

from .model_facts import describe
from .preprocessing import Preprocessing
from .stock_layers import rebuilt
from .version_folder import publish, write_facts

FILE = "backbone.keras"


def save(backbone, path):
    """Writes `backbone`, made of stock layers, as the file `path`; an older file stays until this one is whole."""
    path = Path(path)
    aside = path.with_name(f".{secrets.token_hex(6)}.keras")  # Keras asks for its own ending
    try:
        rebuilt(backbone).save(aside)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def export(model, path, *, preprocessing=None, facts=None, check=None) -> Path:
    """The backbone of a SelfLabelModel as the next version folder under `path`: backbone.keras and model.json."""
    preprocessing = preprocessing or Preprocessing(model.image_shape)

    def write(folder):
        save(model.backbone, folder / FILE)
        write_facts(folder, describe(model, preprocessing, facts))

    return publish(path, FILE, write, check)
