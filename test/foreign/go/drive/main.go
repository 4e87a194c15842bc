// A ttRPC client on containerd's library and gogo's messages: code that knows nothing of the agent but its proto files.
// It drives Health.Check, CreateSandbox and the life of one container, and prints what the container wrote.
//
// Usage: drive SOCKET CASE.json   (the case: see test/foreign/case.ts)
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"agent/grpc"

	"github.com/containerd/ttrpc"
	"github.com/gogo/protobuf/types"
)

type testCase struct {
	Container string
	Request   json.RawMessage
	Output    string
	Status    int32
}

func main() {
	if err := drive(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func drive(socket, path string) error {
	var wanted testCase
	var create grpc.CreateContainerRequest
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &wanted); err != nil {
		return err
	}
	if err := json.Unmarshal(wanted.Request, &create); err != nil {
		return err
	}
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	client := ttrpc.NewClient(connection)
	defer client.Close()
	return run(client, wanted, &create)
}

func run(client *ttrpc.Client, wanted testCase, create *grpc.CreateContainerRequest) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	call := func(method string, request, response interface{}) error {
		if err := client.Call(ctx, "grpc.AgentService", method, request, response); err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		return nil
	}
	var health grpc.HealthCheckResponse
	if err := client.Call(ctx, "grpc.Health", "Check", &grpc.CheckRequest{}, &health); err != nil {
		return fmt.Errorf("Check: %w", err)
	}
	if health.Status != grpc.HealthCheckResponse_SERVING {
		return fmt.Errorf("Check: status %v", health.Status)
	}
	id := wanted.Container
	if err := call("CreateSandbox", &grpc.CreateSandboxRequest{Hostname: "foreign", SandboxId: id}, &types.Empty{}); err != nil {
		return err
	}
	if err := call("CreateContainer", create, &types.Empty{}); err != nil {
		return err
	}
	if err := call("StartContainer", &grpc.StartContainerRequest{ContainerId: id}, &types.Empty{}); err != nil {
		return err
	}
	output := ""
	for {
		var chunk grpc.ReadStreamResponse
		if err := call("ReadStdout", &grpc.ReadStreamRequest{ContainerId: id, Len: 32768}, &chunk); err != nil {
			return err
		}
		if len(chunk.Data) == 0 {
			break
		}
		output += string(chunk.Data)
	}
	var exit grpc.WaitProcessResponse
	if err := call("WaitProcess", &grpc.WaitProcessRequest{ContainerId: id}, &exit); err != nil {
		return err
	}
	if output != wanted.Output || exit.Status != wanted.Status {
		return fmt.Errorf("got %q and status %d, wanted %q and %d", output, exit.Status, wanted.Output, wanted.Status)
	}
	if err := call("RemoveContainer", &grpc.RemoveContainerRequest{ContainerId: id}, &types.Empty{}); err != nil {
		return err
	}
	if err := call("DestroySandbox", &grpc.DestroySandboxRequest{}, &types.Empty{}); err != nil {
		return err
	}
	fmt.Printf("%s", output)
	return nil
}
