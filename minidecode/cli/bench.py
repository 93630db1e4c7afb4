"""`minidecode bench`: how fast it is here, against memory and against other engines."""

import json
import sys
import tempfile

from .shared import print_table


def add(subparsers):
    parser = subparsers.add_parser(
        "bench", help="measure speed", description="Measure speed on this machine."
    )
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="WHAT")
    model = kinds.add_parser(
        "model",
        help="forward pass and kernels on a GPT-2 shape",
        description="Measure the forward pass and the kernels on a GPT-2 shape, random weights.",
    )
    model.set_defaults(run=run_model)
    model.add_argument("--shape", default="gpt2", help="gpt2 (default), gpt2-medium, gpt2-large")
    model.add_argument("--repeats", type=int, default=9, help="times each thing is measured")
    add_output(model)
    return kinds


def add_output(parser):
    parser.add_argument("--peers", action="store_true", help="other engines too, where installed")
    parser.add_argument("--json", action="store_true")


def run_model(args):
    from ..errors import InputError
    from ..measure import speed
    from ..models.loading import load

    if args.repeats < 1:
        raise InputError(f"--repeats: got {args.repeats}, at least 1 was wanted")
    config = speed.shape_config(args.shape)
    print(f"building {args.shape} with random weights ...", file=sys.stderr)
    if args.peers:
        from ..measure import peers

        with tempfile.TemporaryDirectory() as directory:
            peers.write_random(directory, config, speed.RandomTensors(config))
            model, _ = load(directory)
            ours = speed.Ours(model)
            others = peers.start(directory, speed.kernels.num_threads() or 1, ours.tokens)
            measured = speed.measure_model(model, others, args.repeats)
    else:
        measured = speed.measure_model(speed.random_model(args.shape), (), args.repeats)
    measured = {"shape": args.shape, **measured}
    if args.json:
        print(json.dumps(measured))
    else:
        print_results(measured)


def print_results(measured):
    results = measured["results"]
    print(f"{measured['shape']}, {measured['backend']}, {measured['threads']} threads, medians")
    names = sorted({name for figures in results.values() for name in figures}, key=_order(results))
    rows = [("", *results)]
    for name in names:
        values = (figures.get(name) for figures in results.values())
        rows.append((name, *("-" if v is None else f"{v:.3g}" for v in values)))
    print_table(rows)


def _order(results):
    ours = list(next(iter(results.values())))
    return lambda name: ours.index(name)
