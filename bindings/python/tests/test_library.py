"""How the native library is found, and how the wheel brings it along."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Play
from service import run_python

import libexperiment
from libexperiment import _library

BINDING = Path(__file__).parents[1]
IMPORT = "import libexperiment; print(libexperiment.__file__)"


ASYNCIO = """
    import sys, typing
    import libexperiment

    assert "asyncio" not in sys.modules
    libexperiment.Experiment.initialize_remote("key").close()
    assert "asyncio" not in sys.modules
    assert {"AsyncRemoteEvaluationClient", "aio", *libexperiment.__all__} <= set(dir(libexperiment))
    assert "asyncio" not in sys.modules

    %s
    assert "asyncio" in sys.modules
    found = libexperiment.AsyncRemoteEvaluationClient
    assert found is libexperiment.aio.AsyncRemoteEvaluationClient
    assert {"AsyncRemoteEvaluationClient", "aio"} <= set(vars(libexperiment))
"""


@pytest.mark.parametrize(
    "use",
    [
        "libexperiment.AsyncRemoteEvaluationClient",
        "libexperiment.aio",
        "import libexperiment.aio",
        "from libexperiment import aio",
        "from libexperiment import *; AsyncRemoteEvaluationClient",
        "libexperiment.Experiment.initialize_remote_async('key')",
        pytest.param(
            "typing.get_type_hints(libexperiment.Experiment.initialize_remote_async)",
            marks=pytest.mark.skipif(sys.version_info < (3, 10), reason="X | None is no type yet"),
        ),
    ],
)
def test_asyncio_is_imported_by_those_who_use_it(use: str) -> None:
    run_python(ASYNCIO % use)


def test_what_the_package_does_not_have_is_said_so() -> None:
    with pytest.raises(AttributeError, match="'libexperiment' has no attribute 'nothing'"):
        libexperiment.nothing  # noqa: B018


def run(
    code: str, *args: str, python: str = sys.executable, **environment: str
) -> subprocess.CompletedProcess[str]:
    """In an environment in which nothing but these variables names a library or a path."""
    kept = {k: v for k, v in os.environ.items() if k not in ("EXPERIMENT_LIBRARY", "PYTHONPATH")}
    return subprocess.run(
        [python, "-c", code, *args],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_version_is_that_of_the_project_and_of_the_library() -> None:
    project = (BINDING / "pyproject.toml").read_text()
    assert re.search(r'^version = "(.*)"$', project, re.M)[1] == libexperiment.__version__  # type: ignore[index]
    assert _library.lib.exp_version().decode() == libexperiment.__version__


def test_a_library_of_another_minor_version_is_refused_with_both() -> None:
    _library._check_version("0.1.7", "/lib/libexperiment.so")
    for found in ("0.2.0", "1.1.0"):
        with pytest.raises(ImportError, match=rf"0\.1\.0 .* needs .* 0\.1, but .* is {found}"):
            _library._check_version(found, "/lib/libexperiment.so")


def test_a_named_library_is_the_only_one_that_is_tried() -> None:
    done = run(IMPORT, EXPERIMENT_LIBRARY="/nowhere.so", PYTHONPATH=str(BINDING / "src"))
    assert "ImportError: cannot load the native library /nowhere.so" in done.stderr
    done = run(IMPORT, EXPERIMENT_LIBRARY="libm.so.6", PYTHONPATH=str(BINDING / "src"))
    assert "ImportError: cannot load the native library libm.so.6" in done.stderr


def test_without_any_the_systems_is_loaded() -> None:
    build = str(BINDING.parents[1] / "build")
    done = run(IMPORT, LD_LIBRARY_PATH=build, PYTHONPATH=str(BINDING / "src"))
    assert done.stdout == f"{BINDING}/src/libexperiment/__init__.py\n", done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [str(BINDING / "build-wheel"), str(folder)]
    subprocess.run(build, env={**os.environ, "PYTHON": sys.executable}, check=True)
    (wheel,) = folder.iterdir()
    return wheel


def test_the_wheel_is_for_any_python_3_on_a_platform(wheel: Path) -> None:
    name = rf"libexperiment-{libexperiment.__version__}-py3-none-manylinux_2_\d+_\w+\.whl"
    assert re.fullmatch(name, wheel.name)


def test_the_wheel_fetches_in_an_empty_environment(wheel: Path, play: Play, tmp_path: Path) -> None:
    python = str(tmp_path / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", str(wheel)], check=True)
    fetch = """
import sys, libexperiment
from libexperiment import *
client = RemoteEvaluationClient("key", RemoteEvaluationConfig(server_url=sys.argv[1]))
print(libexperiment.__file__, libexperiment._library.speedups is not None)
print(len(client.fetch_v2(User(user_id="u"))))
"""
    url = play({}).url

    def fetched_with_speedups(**environment: str) -> str:
        done = run(fetch, url, python=python, **environment)
        assert done.stderr == ""
        path, speedups, count = done.stdout.split()
        assert Path(path).is_relative_to(tmp_path)
        assert count == "4"
        return speedups

    assert fetched_with_speedups(EXPERIMENT_NO_SPEEDUPS="") == "True"
    assert fetched_with_speedups(EXPERIMENT_NO_SPEEDUPS="1") == "False"
    # Beside a library that is not found by the same name, they find another: its own pointers only.
    build, other = BINDING.parents[1] / "build", tmp_path / "other.so"
    soname = _library.SONAME.encode() + b"\0"
    library = (build / _library.SONAME).read_bytes()
    other.write_bytes(library.replace(soname, soname.swapcase()))
    beside = {"EXPERIMENT_LIBRARY": str(other), "LD_LIBRARY_PATH": str(build)}
    assert fetched_with_speedups(EXPERIMENT_NO_SPEEDUPS="", **beside) == "False"
    (speedups,) = tmp_path.glob("lib/*/site-packages/libexperiment/_speedups.*.so")
    speedups.write_text("what this Python cannot load")
    assert fetched_with_speedups(EXPERIMENT_NO_SPEEDUPS="") == "False"


def test_the_program_of_the_readme_runs(play: Play) -> None:
    program = re.findall(r"```python\n(.*?)```", (BINDING / "README.md").read_text(), re.S)[0]
    program = program.replace("Config(\n", f"Config(\n    server_url={play({}).url!r},\n")
    assert run_python(program).startswith("on {'lines': [")
