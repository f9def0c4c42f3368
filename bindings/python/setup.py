"""What pyproject.toml cannot say: the wheel is for a platform, and has the native library."""

import os
import shutil
import sys
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
PACKAGE = HERE / "src" / "libexperiment"
LIBRARY = PACKAGE / "libexperiment.so.0"
URL = "https://github.com/amplitude/libexperiment"


class Platform(Distribution):
    """A wheel with native code, also when that is built already."""

    def has_ext_modules(self) -> bool:
        return True


class WithLibrary(build_py):
    """Brings the library, which is not made here."""

    def run(self) -> None:
        given = os.environ.get("EXPERIMENT_LIBRARY")
        if not LIBRARY.exists() and given:
            shutil.copy(given, LIBRARY)
        if not LIBRARY.exists():
            sys.exit(
                "libexperiment: the sources of the Python package lack the native library: "
                f"install a wheel, or build the library ({URL}) and name it in EXPERIMENT_LIBRARY"
            )
        super().run()


class Speedups(build_ext):
    """After the library, with which it is linked."""

    def run(self) -> None:
        self.run_command("build_py")
        super().run()


speedups = Extension(
    "libexperiment._speedups",
    ["src/libexperiment/_speedups.c"],
    include_dirs=["include"],
    extra_objects=[str(LIBRARY)],
    extra_link_args=["-Wl,-rpath,$ORIGIN,-z,now,-z,relro,-s"],
    py_limited_api=True,
    optional=True,  # without it all is the same, but slower
)
is_built = (PACKAGE / "_speedups.abi3.so").exists()
setup(
    distclass=Platform,
    cmdclass={"build_py": WithLibrary, "build_ext": Speedups},
    ext_modules=[] if is_built else [speedups],
)
