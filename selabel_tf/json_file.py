"""JSON files that anybody may have written: read as data, or refused in words.

What a file holds is looked at only as numbers, text, lists and objects; whoever takes it apart does so within
`trusting`, so that a part that is missing or of another kind is told as the file's mistake, not as ours.
"""

import contextlib
import json
from pathlib import Path


def parse(text: str | bytes):
    """What `text` says; ValueError for all that is no JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_object(path, what: str, remedy: str) -> dict:
    """The object in the file `path`. what, remedy: "a result of ours", "Remove it, or measure again."."""
    try:
        content = parse(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not {what}: it is not JSON ({error}). {remedy}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not {what}: it holds a {type(content).__name__}, expected an object. {remedy}")
    return content


@contextlib.contextmanager
def trusting(path, what: str, remedy: str):
    """Around code that takes for granted what files in `path` hold."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise ValueError(f"{path} does not hold {what} as this version writes it ({reason}). {remedy}") from error
