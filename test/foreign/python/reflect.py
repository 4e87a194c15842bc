"""A gRPC client on grpcio that knows nothing of the agent, not even its proto files.

It asks the server by reflection which services there are, fetches the description of the named one with all it needs,
builds that service's messages from it, and makes one call. Prints one JSON object {"services", "methods", "answer"}.
Usage: reflect.py SOCKET SERVICE METHOD
"""

import json
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
STRING, BYTES, MESSAGE = 9, 12, 11
OPTIONAL, REPEATED = 1, 3


def reflection_messages():
    """The part of the public reflection protocol that is used here (grpc/reflection/v1/reflection.proto)."""
    file = descriptor_pb2.FileDescriptorProto(name="reflection-part.proto", package="part", syntax="proto3")

    def message(name, *fields):
        declared = file.message_type.add(name=name)
        for field_name, number, kind, label, type_name in fields:
            field = declared.field.add(name=field_name, number=number, type=kind, label=label)
            if type_name:
                field.type_name = f".part.{type_name}"

    message("Request", ("symbol", 4, STRING, OPTIONAL, None), ("list", 7, STRING, OPTIONAL, None))
    message("Files", ("file", 1, BYTES, REPEATED, None))
    message("Service", ("name", 1, STRING, OPTIONAL, None))
    message("Services", ("service", 1, MESSAGE, REPEATED, "Service"))
    message("Response", ("files", 4, MESSAGE, OPTIONAL, "Files"), ("services", 6, MESSAGE, OPTIONAL, "Services"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return [factory.GetPrototype(pool.FindMessageTypeByName(f"part.{name}")) for name in ("Request", "Response")]


def reflect(path, service_name, method_name):
    request, response = reflection_messages()
    with grpc.insecure_channel(f"unix:{path}") as channel:

        def ask(question):
            stream = channel.stream_stream(
                REFLECTION,
                request_serializer=lambda sent: sent.SerializeToString(),
                response_deserializer=response.FromString,
            )
            return next(stream(iter([question]), timeout=60))

        services = [service.name for service in ask(request(list="*")).services.service]
        pool = descriptor_pool.DescriptorPool()
        for file in ordered(ask(request(symbol=service_name)).files.file):
            pool.Add(file)
        service = pool.FindServiceByName(service_name)
        method = service.FindMethodByName(method_name)
        factory = message_factory.MessageFactory(pool)
        call = channel.unary_unary(
            f"/{service_name}/{method_name}",
            request_serializer=lambda sent: sent.SerializeToString(),
            response_deserializer=factory.GetPrototype(method.output_type).FromString,
        )
        answer = call(factory.GetPrototype(method.input_type)(), timeout=60)
    return {
        "services": services,
        "methods": [declared.name for declared in service.methods],
        "answer": json_format.MessageToDict(answer),
    }


def ordered(encoded):
    """The files with those first that others import."""
    files = {file.name: file for file in map(descriptor_pb2.FileDescriptorProto.FromString, encoded)}
    result = []

    def add(name):
        file = files.pop(name, None)
        if file is None:
            return
        for imported in file.dependency:
            add(imported)
        result.append(file)

    for name in list(files):
        add(name)
    return result


if __name__ == "__main__":
    json.dump(reflect(*sys.argv[1:4]), sys.stdout)
