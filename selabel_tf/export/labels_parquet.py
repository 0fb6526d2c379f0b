"""A table with facts as Parquet: typed columns `index`, `id` and the rest, title and facts in the schema's metadata.

Pages carry checksums. Ids are a text column; only where one of them is a file name that is no UTF-8 are all of them
bytes. pyarrow comes with tensorflow-datasets, which this package needs anyway; it is imported when a file is
written or read.
"""

import contextlib

import numpy as np

from selabel_tf.atomic_file import atomic_file

MAGIC = b"PAR1"
CHUNK = 65536  # rows in a group
TITLE = "title"


def write(path, title, facts, ids, columns):
    """facts: name -> text; ids: N strings; columns: name -> int32 or float32 [N]."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        names = pa.array(ids, pa.string())
    except UnicodeEncodeError:
        names = pa.array([name.encode("utf-8", "surrogateescape") for name in ids], pa.binary())
    arrays = {
        "index": pa.array(np.arange(len(ids), dtype=np.int64)),
        "id": names,
        **{name: pa.array(column) for name, column in columns.items()},
    }
    table = pa.table(arrays).replace_schema_metadata({TITLE: title, **facts})
    with atomic_file(path, "wb") as file:
        parquet.write_table(table, file, row_group_size=CHUNK, write_page_checksum=True)


def read_head(path):
    """(title, facts, names of the columns). What they must be is for the caller to say."""
    with _opened(path) as file:
        metadata = {key.decode(): text.decode() for key, text in (file.schema_arrow.metadata or {}).items()}
        return metadata.pop(TITLE, ""), metadata, list(file.schema_arrow.names)


def read_rows(path, types):
    """(index int64 [N], ids, name -> column [N]) for columns of these types: name -> NumPy type."""
    import pyarrow as pa

    with _opened(path) as file:
        schema = file.schema_arrow
        wanted = {name: pa.from_numpy_dtype(kind) for name, kind in {"index": np.int64, **types}.items()}
        wrong = [name for name, kind in wanted.items() if schema.field(name).type != kind]
        if wrong or schema.field("id").type not in (pa.string(), pa.binary()):
            name = (wrong or ["id"])[0]
            raise ValueError(
                f"{path} is damaged: its column {name} holds {schema.field(name).type}, expected "
                f"{wanted.get(name, 'string')}. Write the file again."
            )
        table = file.read()
        for name in table.column_names:
            if table[name].null_count:
                raise ValueError(f"{path} is damaged: its column {name} has empty cells. Write the file again.")
        ids = table["id"].to_pylist()
    if schema.field("id").type == pa.binary():
        ids = [name.decode("utf-8", "surrogateescape") for name in ids]
    index, *columns = (table[name].to_numpy() for name in ("index", *types))
    return index, tuple(ids), dict(zip(types, columns, strict=True))


@contextlib.contextmanager
def _opened(path):
    """A ParquetFile; what goes wrong inside it is said in our words."""
    import pyarrow as pa
    from pyarrow import parquet

    with open(path, "rb") as file:
        try:
            yield parquet.ParquetFile(file, page_checksum_verification=True)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(f"{path} is damaged or cut off: {reason}. Copy or write it again.") from error
