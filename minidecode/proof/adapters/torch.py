"""torch's random functions as choices of a chance.

`rand` and `rand_like` give tensors of uniform numbers that are only compared (`Uniforms`);
`multinomial` and `bernoulli` draw. The rest is refused.
"""

import math

import numpy as np

from .refuse import draw_several, refuse, unknown
from .uniform import Uniform, refusal, refuse_operators

REFUSED = "randn randn_like randint randint_like randperm normal poisson binomial manual_seed seed"
REFUSED_METHODS = "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ random_"
INITIAL = "uniform_ normal_"  # fill the weights of a layer that is made on the way


def state():
    """What moves whenever a number is drawn from torch's default generator."""
    import torch

    return torch.get_rng_state()


def same(a, b):
    import torch

    return torch.equal(a, b)


def places(chance, seeds):
    """(owner, name, replacement) of each call."""
    import torch

    draws = Draws(chance)
    for name in ("rand", "rand_like", "multinomial", "bernoulli"):
        yield torch, name, getattr(draws, name)
    for name in ("multinomial", "bernoulli"):
        yield torch.Tensor, name, _as_method(getattr(draws, name))
    for name in (*REFUSED.split(), "set_rng_state"):
        yield torch, name, refuse(f"torch.{name}")
    for name in ("manual_seed", "seed", "set_rng_state"):
        yield torch.random, name, refuse(f"torch.random.{name}")
    for name in REFUSED_METHODS.split():
        yield torch.Tensor, name, refuse(f"torch.Tensor.{name}")
    for name in INITIAL.split():
        yield torch.Tensor, name, _initial_only(name, getattr(torch.Tensor, name))
    yield torch, "Generator", Generator


class Draws:
    """The calls that can be enumerated."""

    def __init__(self, chance):
        self.chance = chance

    def rand(self, *size, out=None, **_):
        if out is not None:
            raise unknown("torch.rand(out=...)")
        size = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        return self._uniforms(tuple(size))

    def rand_like(self, input, **_):
        return self._uniforms(tuple(input.shape))

    def multinomial(self, input, num_samples, replacement=False, *, generator=None, out=None):
        import torch

        if out is not None:
            raise unknown("torch.multinomial(out=...)")
        rows = input.detach().double().cpu().numpy().reshape(-1, input.shape[-1])
        drawn = [draw_several(self.chance, row, num_samples, replacement) for row in rows]
        drawn = torch.tensor(drawn, dtype=torch.long, device=input.device)
        return drawn.reshape(*input.shape[:-1], num_samples)

    def bernoulli(self, input, p=None, *, generator=None, out=None):
        if p is not None or out is not None:
            raise unknown("torch.bernoulli with p= or out=")
        flags = [float(self.chance.accept(x)) for x in input.reshape(-1).tolist()]
        return input.new_tensor(flags).reshape(input.shape)

    def _uniforms(self, shape):
        cells = np.empty(shape, object)
        for index in np.ndindex(shape):
            cells[index] = Uniform(self.chance)
        return Uniforms(cells)


def _as_method(function):
    def method(self, *args, **kwargs):
        return function(self, *args, **kwargs)

    return method


def _initial_only(name, original):
    """Weights may be filled, on a generator that is put back; other tensors are refused."""

    def fill(tensor, *args, **kwargs):
        import torch

        if not tensor.requires_grad:
            raise unknown(f"torch.Tensor.{name}")
        before = torch.default_generator.get_state()
        try:
            return original(tensor, *args, **kwargs)
        finally:
            torch.default_generator.set_state(before)

    return fill


class Generator:
    """In place of `torch.Generator`, which the draws above take and leave alone."""

    def __init__(self, device="cpu"):
        self.device, self.seeded = device, False

    def manual_seed(self, seed):
        """Once is harmless; a second time the numbers of before would come again."""
        if self.seeded:
            raise unknown("torch.Generator.manual_seed, a second time")
        self.seeded = True
        return self

    get_state = set_state = refuse("torch.Generator.get_state or set_state")


class Uniforms:
    """A tensor of uniform numbers: compared, indexed, reshaped and moved, and nothing else."""

    def __init__(self, cells):
        self.cells = np.asarray(cells, object)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        """A function of torch met one of these: comparisons are known."""
        name = getattr(function, "__name__", str(function)).strip("_")
        if name in COMPARISONS and len(args) == 2:
            a, b = args
            return (
                a._compare(COMPARISONS[name], b)
                if isinstance(a, cls)
                else b._compare(MIRRORED[COMPARISONS[name]], a)
            )
        if name in VIEWS and isinstance(args[0], cls):
            return getattr(args[0], name)(*args[1:], **(kwargs or {}))
        raise refusal(f"torch.{name}")

    def _compare(self, operator, other):
        import torch

        if isinstance(other, Uniforms):
            raise refusal(f"torch.{operator} between two of them")
        other = torch.as_tensor(other)
        cells, numbers = np.broadcast_arrays(self.cells, other.detach().double().cpu().numpy())
        pairs = zip(cells.ravel(), numbers.ravel())
        flags = [u.below(x) if operator in ("lt", "le") else u.above(x) for u, x in pairs]
        flags = torch.tensor(flags, dtype=torch.bool, device=other.device)
        return flags.reshape(cells.shape)

    def __lt__(self, other):
        return self._compare("lt", other)

    def __gt__(self, other):
        return self._compare("gt", other)

    __le__ = lt = le = less = less_equal = __lt__
    __ge__ = gt = ge = greater = greater_equal = __gt__

    @property
    def shape(self):
        import torch

        return torch.Size(self.cells.shape)

    @property
    def ndim(self):
        return self.cells.ndim

    def dim(self):
        return self.cells.ndim

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def numel(self):
        return math.prod(self.cells.shape)

    def __len__(self):
        return len(self.cells)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index):
        return Uniforms(self.cells[index])

    def item(self):
        return self.cells.item()

    def tolist(self):
        return self.cells.tolist()

    def to(self, *args, **kwargs):
        return self

    float = double = cpu = clone = detach = contiguous = type_as = to

    def reshape(self, *shape):
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return Uniforms(self.cells.reshape(shape))

    view = reshape

    def flatten(self):
        return self.reshape(-1)

    def squeeze(self, dim=None):
        if dim is not None and self.shape[dim] != 1:
            return self
        return Uniforms(self.cells.squeeze(axis=dim))

    def unsqueeze(self, dim):
        return Uniforms(np.expand_dims(self.cells, dim))

    def expand(self, *shape):
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return Uniforms(np.broadcast_to(self.cells, shape))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise refusal(f"torch.Tensor.{name}")

    __hash__ = None  # type: ignore[assignment]  # Python's own way to say: not hashable


refuse_operators(Uniforms)

COMPARISONS = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "less": "lt", "less_equal": "le"}
COMPARISONS |= {"greater": "gt", "greater_equal": "ge"}
MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
VIEWS = {"squeeze", "unsqueeze", "reshape", "flatten"}
