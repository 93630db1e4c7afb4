"""A figure of matplotlib as a file; matplotlib is an extra (`plot`) and imported only here."""

import contextlib
import logging
import warnings
from pathlib import Path

from ..errors import InputError, MinidecodeError

STYLE = {
    "figure.constrained_layout.use": True,
    "savefig.dpi": 150,
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,  # grid lines behind the data
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "text.parse_math": False,  # tokens may hold a $
    "svg.hashsalt": "minidecode",  # else names in the file are random
}
# For each format what to leave out so that the same data make the same file: when it was written.
EXTENSIONS = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def check_out(path):
    """The file of a picture as a Path, if one can be written there. Errors: `InputError`."""
    path = Path(path)
    if path.suffix.lower() not in EXTENSIONS:
        wanted = ", ".join(EXTENSIONS)
        raise InputError(f"--out: got {path}, a file that ends in one of {wanted} was wanted")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InputError(f"--out: got {path}, a file in a directory that exists was wanted")
    return path


def require_matplotlib():
    """Errors: `MinidecodeError`, with what to do about it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MinidecodeError(
            "plot: matplotlib is missing, pip install matplotlib (extra `plot`) brings it"
        ) from None


def write_picture(path, draw, data):
    """Write what draw(figure, data) draws; the ending of `path` says in which format."""
    path = check_out(path)
    require_matplotlib()
    with own_style():
        from matplotlib.figure import Figure  # without pyplot no window system is looked for

        figure = Figure()
        draw(figure, data)
        figure.savefig(path, metadata=EXTENSIONS[path.suffix.lower()])


@contextlib.contextmanager
def own_style():
    """matplotlib's defaults and STYLE whatever the user's settings, and no advice on stderr."""
    import matplotlib

    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with matplotlib.rc_context(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of characters that its font does not have
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(STYLE)
            yield
    finally:
        logger.setLevel(level)
