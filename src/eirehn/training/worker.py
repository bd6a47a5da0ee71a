"""A process that carries out runs one after the other, told their folders on its standard input.

Several of them with one thread each train many small models faster than one process with many threads.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from dataclasses import asdict
from typing import Any

from ..files import RunError


def main() -> None:
    import torch

    torch.set_num_threads(int(sys.argv[1]))
    from .callbacks import Stopped
    from .fit import train
    from .folder import RunFolder
    from .stability import UnstableTraining

    events = os.dup(1)
    os.dup2(2, 1)  # the way to the parent is for events alone

    def tell(**event: Any) -> None:
        nonlocal events
        try:
            os.write(events, (json.dumps(event) + "\n").encode())
        except BrokenPipeError:  # the parent is gone: stop as if it had asked, with the state saved
            events = os.open(os.devnull, os.O_WRONLY)
            os.kill(os.getpid(), signal.SIGTERM)

    show = warnings.showwarning

    def showwarning(message: Warning | str, category: type[Warning], *where: Any, **options: Any) -> None:
        if issubclass(category, UnstableTraining):
            tell(warning=str(message))
        else:
            show(message, category, *where, **options)

    warnings.showwarning = showwarning
    for line in sys.stdin:
        folder = json.loads(line)
        try:
            train(RunFolder(folder).recipe(), folder, tell=lambda event: tell(event=asdict(event)))
            tell(done=folder)
        except (RunError, ValueError) as error:
            tell(failed=folder, message=str(error))
        except (Stopped, KeyboardInterrupt):
            tell(stopped=folder)
            return


if __name__ == "__main__":
    main()
