"""Libraries are loaded without the collector, which is afterwards as it was."""

import gc
import platform
import subprocess
import sys

import pytest

from cascade_sim.foundation.loading import keep_memory, loading


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_is_off_inside_and_as_it_was_outside(is_on):
    before = gc.isenabled()
    try:
        (gc.enable if is_on else gc.disable)()
        with loading(), loading():
            assert not gc.isenabled()
        assert gc.isenabled() == is_on
        with pytest.raises(ImportError), loading():
            raise ImportError
        assert gc.isenabled() == is_on
    finally:
        (gc.enable if before else gc.disable)()


def test_the_command_line_ends_without_a_search_for_cycles():
    code = (
        "import atexit, gc\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"  # the first registered is the last run
        "from cascade_sim.cli import main\n"
        "main(['--version']); main(['--version']); print(gc.get_freeze_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["0", "True"]


def test_memory_is_kept_where_the_c_library_can_be_told_so():
    assert keep_memory() == (platform.libc_ver()[0] == "glibc")
    assert keep_memory() == keep_memory()
