"""Runs an OCI runtime with the least possible overhead and measures each step.

Each command has a session of its own, as the agent's have: the kernel gives CPU time to sessions (sched(7), "The
autogroup feature"), so on a busy machine a session that was idle is ahead of new ones.

Each line of the input is a JSON list of steps, done one after the other: a list is a command line to run; a string names
a pid file, whose process is by then a child of this program and is waited for. The answer to each line is one line with
its milliseconds.
"""

import ctypes
import json
import os
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def do(step):
    if isinstance(step, list):
        nothing = subprocess.DEVNULL
        subprocess.run(step, check=True, stdin=nothing, stdout=nothing, start_new_session=True)
        return
    with open(step, encoding="ascii") as file:
        os.waitpid(int(file.read()), 0)


def main():
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for line in sys.stdin:
        steps = json.loads(line)
        begin = time.monotonic()
        for step in steps:
            do(step)
        print((time.monotonic() - begin) * 1000, flush=True)


main()
