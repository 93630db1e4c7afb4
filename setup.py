"""Builds the compiled kernels where there is a compiler; the rest of the package needs none."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

try:
    from pybind11.setup_helpers import Pybind11Extension
except ImportError:  # installed without build isolation and without pybind11
    Pybind11Extension = None


class OptionalBuild(build_ext):
    """A failure to compile leaves an installation on the NumPy kernels and says so once."""

    def run(self):
        try:
            super().run()
        except Exception as error:
            self.extensions = []
            print(
                f"minidecode: the kernels were not compiled ({error}); "
                "the NumPy kernels will be used, which are slower",
                file=sys.stderr,
            )


# Never -march=native: each isa_*.cpp names its instruction set, one is chosen at run time.
# Products and sums are contracted to one rounding wherever the processor can.
FLAGS = ["-O3", "-ffp-contract=fast", "-Wno-psabi"]

extensions = []
if Pybind11Extension is not None:
    sources = sorted(str(path) for path in Path("csrc").glob("*.cpp"))
    extensions = [
        Pybind11Extension(
            "minidecode.kernels._native",
            sources,
            depends=[str(path) for path in Path("csrc").glob("*.h")],
            cxx_std=20,
            extra_compile_args=[] if sys.platform == "win32" else FLAGS,
        )
    ]

setup(ext_modules=extensions, cmdclass={"build_ext": OptionalBuild})
