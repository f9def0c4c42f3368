"""The programs that are measured: how each is built, started and ended, and those of incident/."""

import asyncio
import contextlib
import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
INCIDENT = HERE / "incident"
BUILD = ROOT / "build"
PEERS = ROOT / "target" / "peers"
OUT = ROOT / "target" / "incident"
GO = {
    "PKG_CONFIG_PATH": str(BUILD),
    "GOMODCACHE": str(PEERS / "go"),
    "GOFLAGS": "-mod=readonly -modcacherw -buildvcs=false",
}
C_FLAGS = ["-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", f"-I{ROOT}/bindings/cpp"]
# Longer than any program takes to be ready, or one that only measures to end, under valgrind too.
PATIENCE_SECONDS = 300

# Where Debian's package has another name than the tool.
PACKAGES = {
    "c++": "g++",
    "cc": "gcc",
    "go": "golang",
    "java": "default-jre-headless",
    "javac": "default-jdk-headless",
    "mvn": "maven",
    "nm": "binutils",
    "node": "nodejs",
    "objdump": "binutils",
    "strip": "binutils",
}
# The programs that cannot be started as they lie here.
BUILT = {}


def built(program):
    """Marks what builds a program."""

    def mark(build):
        BUILT[program] = build
        return build

    return mark


def demand(tool):
    if not shutil.which(tool):
        package = PACKAGES.get(tool, tool)
        sys.exit(f"{tool} is missing: Debian has it in {package}")


def run(*command, **environment):
    demand(command[0])
    subprocess.run(command, check=True, env={**os.environ, **environment}, stdout=sys.stderr)


def capture(*command, **environment):
    """Runs a program to its end; what it has printed, on either stream."""
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True,
                          timeout=PATIENCE_SECONDS, env={**os.environ, **environment})  # fmt: skip


def compile_c(source, program, *more, compiler="cc", standard="gnu11"):
    """Builds a program that finds the library in build/ when it runs."""
    run(compiler, f"-std={standard}", *C_FLAGS, source, "-o", program,
        f"-L{BUILD}", "-lexperiment", f"-Wl,-rpath,{BUILD}", *more)  # fmt: skip
    return program


@built("c")
def c():
    compile_c(INCIDENT / "load.c", OUT / "load-c", "-pthread")


@built("go")
def go():
    run("go", "-C", INCIDENT / "go", "build", "-o", OUT / "load-go", ".", **GO)


@built("go-sdk")
def go_sdk():
    run("go", "-C", INCIDENT / "go", "build", "-tags", "sdk", "-o", OUT / "load-go-sdk", ".", **GO)


@built("python")
def python():
    run(ROOT / "bindings/python/build-speedups", PYTHON=sys.executable)


@built("python-sdk")
def python_sdk():
    if not (PEERS / "python/bin/pip").exists():
        run(sys.executable, "-m", "venv", PEERS / "python")
    wanted = INCIDENT / "peers/python/requirements.txt"
    run(PEERS / "python/bin/pip", "install", "--quiet", "--requirement", wanted)


@built("node-sdk")
def node_sdk():
    (PEERS / "node").mkdir(exist_ok=True)
    for file in ("package.json", "package-lock.json"):
        shutil.copy(INCIDENT / "peers/node" / file, PEERS / "node")
    run("npm", "ci", "--silent", "--prefix", PEERS / "node")


@built("jvm-sdk")
def jvm_sdk():
    copy = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies"
    run("mvn", "--quiet", "--file", INCIDENT / "peers/jvm/pom.xml", copy,
        f"-Dmaven.repo.local={PEERS}/maven", f"-DoutputDirectory={PEERS}/jvm")  # fmt: skip
    run("javac", "-cp", f"{PEERS}/jvm/*", "-d", OUT, INCIDENT / "peers/jvm/Load.java")


def script(name):
    """A script of benches/, which has no suffix, as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(HERE / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def build(names):
    for folder in (OUT, PEERS):
        folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(names & BUILT.keys()):
        BUILT[name]()
    for name in names:
        demand(command(name)[0][0])


def command(name):
    """The command of a program, but for its arguments, and what it needs in the environment."""
    library = {"EXPERIMENT_LIBRARY": str(BUILD / "libexperiment.so")}
    path = {"PYTHONPATH": str(ROOT / "bindings/python/src")}
    sdk_python = PEERS / "python/bin/python"
    return {
        "c": ([OUT / "load-c"], {}),
        "go": ([OUT / "load-go"], {"LD_LIBRARY_PATH": str(BUILD)}),
        "python": ([sys.executable, INCIDENT / "load.py", "libexperiment"], library | path),
        "ruby": (["ruby", f"-I{ROOT}/bindings/ruby/lib", INCIDENT / "load.rb"], library),
        "python-sdk": ([sdk_python, INCIDENT / "load.py", "amplitude_experiment"], {}),
        "node-sdk": (["node", INCIDENT / "peers/node/load.mjs", PEERS / "node"], {}),
        "go-sdk": ([OUT / "load-go-sdk"], {}),
        "jvm-sdk": (["java", "-cp", f"{PEERS}/jvm/*:{OUT}", "Load"], {}),
    }[name]


@contextlib.asynccontextmanager
async def started(name, *words, through=lambda command: command, stderr=None):
    """A process of a program that begins when it is sent a line, and is gone after the block."""
    command_of, environment = command(name)
    process = await asyncio.create_subprocess_exec(
        *through(command_of), *words, env={**os.environ, **environment}, limit=1 << 20,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=stderr)  # fmt: skip
    try:
        if await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS) != b"ready\n":
            sys.exit(f"{name} did not start")
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
