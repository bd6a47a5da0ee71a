"""Threads, forks, the compiler and its cache."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest
import torch
from helpers.cpu_problems import cast, make_problem, prepared
from helpers.processes import in_new_python

from eirehn.ops.cpu import runtime


def test_two_python_threads_at_once() -> None:
    run = prepared(cast(make_problem("paper", H=20, sizes=[40] * 9, depth=6), torch.float32))
    expected = run()
    with ThreadPoolExecutor(4) as executor:
        others = [executor.submit(run) for _ in range(24)]
        assert all(each.result() == expected for each in others)


def test_threads_that_come_too_late_are_not_waited_for() -> None:
    run = prepared(cast(make_problem("paper", H=20, sizes=[40] * 9, depth=6), torch.float32))
    expected, busy, threads = run(), threading.Event(), torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        for _ in range(runtime._threads + 4):
            runtime._jobs.put((partial(busy.wait, 60), SimpleQueue()))  # type: ignore[arg-type]
        with ThreadPoolExecutor(1) as executor:
            assert executor.submit(run).result(30) == expected
    finally:
        busy.set()
        torch.set_num_threads(threads)
    assert run() == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.slow
def test_a_forked_child_runs_too() -> None:
    out = in_new_python("""
        import os, torch
        from helpers.cpu_problems import cast, make_problem, prepared
        torch.set_num_threads(2)
        run = prepared(cast(make_problem("paper", H=20, sizes=[40] * 9, depth=6), torch.float32))
        expected = run()
        child = os.fork()
        same = run() == expected
        if child == 0:
            os._exit(0 if same else 3)
        print(same, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert out.split() == ["True", "0"]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["gone", "never"])
def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, folder: str) -> None:
    (tmp_path / "kernel_in_a_file.py").write_text("def kernel(x):\n    x[0] = 2.0\n")
    (tmp_path / "file").write_text("")
    cache = tmp_path / ("cache" if folder == "gone" else "file/cache")
    out = in_new_python(
        f"""
        import pathlib, shutil, sys
        sys.path.insert(0, {str(tmp_path)!r})
        import numpy as np
        from kernel_in_a_file import kernel
        from eirehn.ops.cpu.runtime import Kernel
        compiled = Kernel(kernel, "stamp")
        cache = pathlib.Path({str(cache)!r})
        if cache.exists():  # found writable, and then taken away
            shutil.rmtree(cache)
            cache.write_text("")
        x = np.zeros(1)
        compiled(x)
        print(x[0])
        """,
        NUMBA_CACHE_DIR=str(cache),
    )
    assert out.split() == ["2.0"]


def test_importing_compiles_nothing() -> None:
    assert in_new_python("import sys, eirehn.ops.cpu; print('numba' in sys.modules)").split() == ["False"]


def test_kernels_are_kept_by_all_that_they_are_made_of() -> None:
    folder = Path(runtime.__file__).parent
    made = {path.stem for path in folder.glob("*.py") if "mypy: ignore-errors" in path.read_text()}
    assert made | {"functions", "layout"} == set(runtime._PARTS)


LOADER = """
    import torch, eirehn

    class Data(torch.utils.data.Dataset):
        def __init__(self):
            torch.manual_seed(0)
            self.layer = eirehn.EIREHN(2, 20, max_depth=4)

        def __len__(self):
            return 4

        def __getitem__(self, index):
            torch.set_num_threads(1)
            with torch.no_grad():
                return self.layer(torch.full((6, 40, 2), float(index)))[0]

    if __name__ == "__main__":
        torch.set_num_threads(2)
        data = Data()
        with eirehn.use_backend("cpu"):
            expected = [data[index] for index in range(4)]
            data.layer(torch.randn(64, 64, 2))[0].sum().backward()
            loader = torch.utils.data.DataLoader(
                data, batch_size=None, num_workers=2, multiprocessing_context="CONTEXT", timeout=100
            )
            found = list(loader)
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(expected, found, strict=True))
        print("fine")
"""


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_a_data_loader(context: str, tmp_path: Path) -> None:
    """The parent has used the kernels with several threads; its workers use them too. Spawned ones import the main
    module, so it must be a file."""
    script = tmp_path / "loader.py"
    script.write_text(textwrap.dedent(LOADER).replace("CONTEXT", context))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)], capture_output=True, text=True, timeout=240
    )
    assert done.stdout.strip() == "fine", done.stderr[-2000:]
