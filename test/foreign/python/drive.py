"""A gRPC client on grpcio and protoc's messages: code that knows nothing of the agent but its proto files.

It drives Health.Check, CreateSandbox and the life of one container, and prints what the container wrote.
Usage: drive.py SOCKET CASE.json   (the case: see test/foreign/case.ts); PYTHONPATH holds protoc's output.
"""

import json
import sys

import grpc
from google.protobuf import empty_pb2, json_format

import agent_pb2
import health_pb2


def method(channel, name, response):
    return channel.unary_unary(
        name, request_serializer=lambda message: message.SerializeToString(), response_deserializer=response.FromString
    )


def drive(socket, path):
    with open(path, encoding="utf-8") as file:
        wanted = json.load(file)
    create = json_format.ParseDict(wanted["Request"], agent_pb2.CreateContainerRequest())
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        check = method(channel, "/grpc.Health/Check", health_pb2.HealthCheckResponse)
        assert check(health_pb2.CheckRequest(), timeout=60).status == health_pb2.HealthCheckResponse.SERVING

        def call(name, request, response=empty_pb2.Empty):
            return method(channel, f"/grpc.AgentService/{name}", response)(request, timeout=180)

        name = wanted["Container"]
        call("CreateSandbox", agent_pb2.CreateSandboxRequest(hostname="foreign", sandbox_id=name))
        call("CreateContainer", create)
        call("StartContainer", agent_pb2.StartContainerRequest(container_id=name))
        output = b""
        while True:
            request = agent_pb2.ReadStreamRequest(container_id=name, len=32768)
            chunk = call("ReadStdout", request, agent_pb2.ReadStreamResponse).data
            if not chunk:
                break
            output += chunk
        exit_status = call(
            "WaitProcess", agent_pb2.WaitProcessRequest(container_id=name), agent_pb2.WaitProcessResponse
        ).status
        assert (output.decode(), exit_status) == (wanted["Output"], wanted["Status"]), (output, exit_status)
        call("RemoveContainer", agent_pb2.RemoveContainerRequest(container_id=name))
        call("DestroySandbox", agent_pb2.DestroySandboxRequest())
    sys.stdout.write(output.decode())


if __name__ == "__main__":
    drive(sys.argv[1], sys.argv[2])
