"""What is hard on a connection, in a container that runs."""

import os
import subprocess
import sys

import grpc

import agent_pb2
from agent import LARGE_BYTES, Agent


def large_messages(agent, _socket, wanted):
    """3 MiB to a process in one message, and back by reads that ask for as much."""
    echo = agent.execute(wanted["Container"], "large-in", "cat")
    large = b"x" * LARGE_BYTES
    writing = echo.begin_write(large)
    back = b""
    while len(back) < LARGE_BYTES:
        back += echo.read()
    assert writing.result().len == LARGE_BYTES
    echo.close_stdin()
    assert back + echo.read_all() == large
    assert echo.wait() == 0


def long_polls(agent, _socket, wanted):
    """Calls that wait for long hold up no other on their connection."""
    echo = agent.execute(wanted["Container"], "polled", "cat; exit 4")
    waits = [echo.begin_wait() for _ in range(8)]
    memory = agent.begin("GetOOMEvent", agent_pb2.GetOOMEventRequest(), agent_pb2.OOMEvent)
    reading = echo.begin_read()
    for _ in range(20):
        agent.check()
        request = agent_pb2.StatsContainerRequest(container_id=wanted["Container"])
        agent.call("StatsContainer", request, agent_pb2.StatsContainerResponse)
    assert not any(call.done() for call in [*waits, memory, reading])
    echo.write(b"typed\n")
    assert reading.result().data == b"typed\n"
    echo.close_stdin()
    assert [wait.result().status for wait in waits] == [4] * len(waits)
    memory.cancel()


def deadline(agent, _socket, wanted):
    """A wait that ran out of time takes nothing with it."""
    sleeper = agent.execute(wanted["Container"], "late", "read line; exit 6")
    try:
        sleeper.wait(timeout=0.2)
        raise AssertionError("the wait was answered")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
    sleeper.write(b"go\n")
    assert sleeper.wait() == 6


def hang_up(agent, socket, wanted):
    """A client that is killed while its calls wait takes nothing with it either."""
    kept = agent.execute(wanted["Container"], "kept", 'read line; echo "got $line"; exit 5')
    holder = [sys.executable, os.path.abspath(__file__), socket, kept.key["container_id"], kept.key["exec_id"]]
    with subprocess.Popen(holder, stdout=subprocess.PIPE) as lost:
        assert lost.stdout.readline() == b"waiting\n"
        lost.kill()
    # An answer on its way to a client that is not known to be gone is lost with it.
    agent.until_not_called(**kept.key)
    kept.write(b"it\n")
    with Agent(socket) as again:
        process = again.process(**kept.key)
        assert process.read_all() == b"got it\n"
        assert process.wait() == 5


def hold(socket, container_id, exec_id):
    """Waits for a process and its output on a connection of its own, until it is killed."""
    with Agent(socket) as agent:
        process = agent.process(container_id, exec_id)
        calls = [process.begin_wait(), process.begin_read()]
        # The agent has both when it has answered what was sent after them.
        agent.check()
        print("waiting", flush=True)
        for call in calls:
            call.result()


CASES = {
    "large messages": large_messages,
    "long polls": long_polls,
    "deadline": deadline,
    "hang-up": hang_up,
}

if __name__ == "__main__":
    hold(*sys.argv[1:])
