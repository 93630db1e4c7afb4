"""`minidecode info`: the kernels in use, and what a model directory holds."""

import json

import numpy as np

from .. import kernels
from ..models.checkpoint import Checkpoint
from ..models.config import Config
from ..models.loading import find
from ..models.packed_file import PACKED, PackedFile
from ..models.tokenizer import Tokenizer
from .shared import DEFAULT_MODEL, print_table


def add(subparsers):
    parser = subparsers.add_parser(
        "info",
        help="kernels in use and what a model holds",
        description="Show the kernels in use and what a model's directory holds.",
    )
    parser.set_defaults(run=run)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--json", action="store_true")


def run(args):
    facts = {"kernels": kernel_facts(), "model": model_facts(args.model)}
    if args.json:
        print(json.dumps(facts))
        return
    for title, table in facts.items():
        print(title)
        rows = ((f"  {name}", value) for name, value in table.items())
        print_table((name, "none" if value is None else value) for name, value in rows)


def kernel_facts():
    import importlib.metadata  # slow, and rarely wanted

    try:
        version = importlib.metadata.version("minidecode")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        version = None
    return {
        "minidecode": version,
        "backend": kernels.backend,
        "instruction set": kernels.instruction_set(),
        "threads": kernels.num_threads(),
        "numpy": np.__version__,
    }


def model_facts(name):
    directory = find(name)
    config = Config.read(directory)
    tokenizer = Tokenizer.read(directory)
    if (directory / PACKED).exists():
        held = PackedFile(directory, config).facts(config)
    else:
        checkpoint = Checkpoint(directory)
        checkpoint.check(config)
        held = checkpoint.facts(config)
    return {
        "name": name,
        "directory": str(directory),
        "layers": config.n_layer,
        "width": config.n_embd,
        "heads": config.n_head,
        "head width": config.head_dim,
        "inner width": config.n_inner,
        "positions": config.n_positions,
        "vocabulary": config.vocab_size,
        "tokenizer's vocabulary": tokenizer.vocab_size,
        "end ids": " ".join(map(str, config.eos_token_ids)) or None,
        **held,
    }
