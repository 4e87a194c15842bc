"""One gRPC connection to the agent, and the processes of a container on it."""

import grpc
from google.protobuf import empty_pb2

import agent_pb2
import health_pb2
import introspection_pb2

LARGE_BYTES = 3 << 20
SECONDS = 180


class Agent:
    def __init__(self, socket):
        # A connection of its own: grpcio shares those of one address otherwise.
        self.channel = grpc.insecure_channel(f"unix:{socket}", [("grpc.use_local_subchannel_pool", 1)])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def method(self, name, response):
        return self.channel.unary_unary(
            name,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )

    def check(self):
        answer = self.method("/grpc.Health/Check", health_pb2.HealthCheckResponse)(
            health_pb2.CheckRequest(), timeout=SECONDS
        )
        assert answer.status == health_pb2.HealthCheckResponse.SERVING, answer

    def call(self, name, request, response=empty_pb2.Empty, timeout=SECONDS):
        return self.method(f"/grpc.AgentService/{name}", response)(request, timeout=timeout)

    def until_not_called(self, container_id, exec_id):
        """Waits until the agent has no call for the process: it takes a moment to notice that a client is gone."""
        list_calls = self.method(
            "/microvm.agent.v1.Introspection/ListCalls", introspection_pb2.ListCallsResponse
        )
        key = (container_id, exec_id)
        while True:
            calls = list_calls(introspection_pb2.ListCallsRequest(), timeout=SECONDS).calls
            if all((call.container_id, call.exec_id) != key for call in calls):
                return

    def begin(self, name, request, response=empty_pb2.Empty):
        """The same without waiting: answers a future."""
        return self.method(f"/grpc.AgentService/{name}", response).future(request, timeout=SECONDS)

    def process(self, container_id, exec_id):
        return Process(self, {"container_id": container_id, "exec_id": exec_id})

    def execute(self, container_id, exec_id, script):
        """Adds a process that runs a shell script."""
        process = agent_pb2.ExecProcessRequest(container_id=container_id, exec_id=exec_id).process
        process.Args.extend(["/bin/sh", "-c", script])
        process.Env.append("PATH=/bin:/usr/bin:/sbin")
        process.Cwd = "/"
        request = agent_pb2.ExecProcessRequest(container_id=container_id, exec_id=exec_id, process=process)
        self.call("ExecProcess", request)
        return self.process(container_id, exec_id)


class Process:
    def __init__(self, agent, key):
        self.agent, self.key = agent, key

    def begin_read(self):
        request = agent_pb2.ReadStreamRequest(**self.key, len=LARGE_BYTES)
        return self.agent.begin("ReadStdout", request, agent_pb2.ReadStreamResponse)

    def read(self):
        return self.begin_read().result().data

    def read_all(self):
        return b"".join(iter(self.read, b""))

    def begin_write(self, data):
        request = agent_pb2.WriteStreamRequest(**self.key, data=data)
        return self.agent.begin("WriteStdin", request, agent_pb2.WriteStreamResponse)

    def write(self, data):
        assert self.begin_write(data).result().len == len(data)

    def close_stdin(self):
        self.agent.call("CloseStdin", agent_pb2.CloseStdinRequest(**self.key))

    def wait(self, timeout=SECONDS):
        request = agent_pb2.WaitProcessRequest(**self.key)
        return self.agent.call("WaitProcess", request, agent_pb2.WaitProcessResponse, timeout).status

    def begin_wait(self):
        return self.agent.begin(
            "WaitProcess", agent_pb2.WaitProcessRequest(**self.key), agent_pb2.WaitProcessResponse
        )
