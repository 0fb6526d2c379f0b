"""backbone.keras: the trained network without its heads, as one file that plain Keras loads in safe mode.

network = keras.models.load_model("backbone.keras")     needs Keras, and nothing of this package
"""

import secrets
import zipfile
from pathlib import Path

import keras

from .model_facts import describe
from .preprocessing import Preprocessing
from .stock_layers import rebuilt
from .version_folder import publish, write_facts

FILE = "backbone.keras"
PARTS = {"metadata.json", "config.json", "model.weights.h5"}
MOST_UNPACKED = 100  # times the size of the file


def save(backbone, path):
    """Writes `backbone`, made of stock layers, as the file `path`; an older file stays until this one is whole."""
    path = Path(path)
    aside = path.with_name(f".{secrets.token_hex(6)}.keras")  # Keras asks for its own ending
    try:
        rebuilt(backbone).save(aside)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def load(path):
    """The network in the file `path`, which anybody may have written: its layers are Keras's own, and run no code.

    Keras's safe mode refuses functions as code; beyond that nothing but the three parts of a file of ours may be in it,
    and they may not unpack to far more than they are.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {member.filename: member.file_size for member in archive.infolist()}
        if set(sizes) != PARTS:
            raise ValueError(f"it holds {', '.join(map(ascii, sorted(sizes)))[:200]}, expected {', '.join(PARTS)}")
        if sum(sizes.values()) > MOST_UNPACKED * Path(path).stat().st_size:
            raise ValueError(f"it unpacks to {sum(sizes.values())} bytes")
        return keras.models.load_model(path, compile=False, safe_mode=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # Keras has many words for what is wrong with a file
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"{path} is not a network that can be loaded safely ({type(error).__name__}: {reason}). "
            "Expected a .keras file of stock layers. If it is yours, write it again; if it is not, do not trust it."
        ) from error


def export(model, path, *, preprocessing=None, facts=None, check=None) -> Path:
    """The backbone of a SelfLabelModel as the next version folder under `path`: backbone.keras and model.json."""
    preprocessing = preprocessing or Preprocessing(model.image_shape)

    def write(folder):
        save(model.backbone, folder / FILE)
        write_facts(folder, describe(model, preprocessing, facts))

    return publish(path, FILE, write, check)
