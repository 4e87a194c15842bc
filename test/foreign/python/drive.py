"""A gRPC client on grpcio and protoc's messages: code that knows nothing of the agent but its proto files.

It drives Health.Check, CreateSandbox and the life of one container, in which it does what is hard on a connection. It
prints one line for each case, and what the container wrote.
Usage: drive.py SOCKET CASE.json   (the case: see test/foreign/case.ts); PYTHONPATH holds protoc's output.
"""

import json
import sys

from google.protobuf import json_format

import agent_pb2
from agent import LARGE_BYTES, Agent
from cases import CASES


def drive(socket, path):
    with open(path, encoding="utf-8") as file:
        wanted = json.load(file)
    create = json_format.ParseDict(wanted["Request"], agent_pb2.CreateContainerRequest())
    # A request of some 3 MiB, in a field for another system: each run of the OCI runtime would read a specification again.
    create.string_user.uid = "x" * LARGE_BYTES
    name = wanted["Container"]
    with Agent(socket) as agent:
        agent.check()
        agent.call("CreateSandbox", agent_pb2.CreateSandboxRequest(hostname="foreign", sandbox_id=name))
        agent.call("CreateContainer", create)
        agent.call("StartContainer", agent_pb2.StartContainerRequest(container_id=name))
        for case, run in CASES.items():
            run(agent, socket, wanted)
            print(case)
        init = agent.process(name, "")
        init.close_stdin()
        output, status = init.read_all(), init.wait()
        assert (output.decode(), status) == (wanted["Output"], wanted["Status"]), (output, status)
        agent.call("RemoveContainer", agent_pb2.RemoveContainerRequest(container_id=name))
        agent.call("DestroySandbox", agent_pb2.DestroySandboxRequest())
    sys.stdout.write(output.decode())


if __name__ == "__main__":
    drive(sys.argv[1], sys.argv[2])
