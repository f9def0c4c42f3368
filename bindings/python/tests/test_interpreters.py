"""Interpreters beside the main one, as mod_wsgi and uWSGI make them for applications."""

from __future__ import annotations

import sys

import pytest
from conftest import Play
from service import run_python

IMPORT = """
    import sys, textwrap
    try:
        import _interpreters as interpreters
        run = interpreters.exec
    except ImportError:
        import _xxsubinterpreters as interpreters
        run = interpreters.run_string

    IMPORT = '''
    try:
        import libexperiment{module}
        print("imported")
    except ImportError as error:
        print(error)
    '''

    def refused():
        interpreter = interpreters.create({how})
        sys.stdout.flush()
        run(interpreter, textwrap.dedent(IMPORT))
        interpreters.destroy(interpreter)
"""
HOW = "isolated=False" if sys.version_info < (3, 13) else "'legacy'"
MESSAGE = (
    "libexperiment works in the main interpreter alone, and this is another one: set "
    "WSGIApplicationGroup %{GLOBAL} for mod_wsgi, single-interpreter = true for uWSGI\n"
)


@pytest.mark.parametrize("module", ["", "._speedups", ".aio"])
def test_another_interpreter_is_refused_with_what_to_do_and_the_main_one_goes_on(
    play: Play, module: str
) -> None:
    program = """
    from libexperiment import *

    refused()
    client = RemoteEvaluationClient("key", RemoteEvaluationConfig(server_url=sys.argv[1]))
    client.fetch_async_v2(None, lambda _, variants: print(len(variants), flush=True))
    refused()
    print(len(client.fetch_v2(None)), flush=True)
    """
    prelude = IMPORT.replace("{module}", module).replace("{how}", HOW)
    said = run_python(prelude + program, play({}).url)
    assert said.count(MESSAGE) == 2
    assert sorted(said.replace(MESSAGE, "").split()) == ["4", "4"]


def test_one_with_a_gil_of_its_own_is_refused_too() -> None:
    program = IMPORT.replace("{module}", "").replace("{how}", "")
    said = run_python(program + "    refused()")
    # Python 3.12 itself refuses ctypes there.
    assert said in (MESSAGE, "module _ctypes does not support loading in subinterpreters\n")
