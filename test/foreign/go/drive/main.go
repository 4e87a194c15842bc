// A ttRPC client on containerd's library and gogo's messages, which knows the agent only by its proto files. It drives
// Health.Check, CreateSandbox and one container, and strains the connection. It prints the container's output and one line
// for each case.
// Usage: drive SOCKET CASE.json   (the case: see test/foreign/case.ts)
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"agent/grpc"

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
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	agent, err := dial(ctx, socket)
	if err != nil {
		return err
	}
	defer agent.client.Close()
	return live(agent, socket, wanted, &create)
}

func live(agent *agent, socket string, wanted testCase, create *grpc.CreateContainerRequest) error {
	id := wanted.Container
	if err := agent.check(); err != nil {
		return err
	}
	sandbox := &grpc.CreateSandboxRequest{Hostname: "foreign", SandboxId: id}
	if err := agent.call("CreateSandbox", sandbox, &types.Empty{}); err != nil {
		return err
	}
	// A request of 3 MiB in a field for another system, because each run of the OCI runtime would read a specification again.
	create.StringUser = &grpc.StringUser{Uid: string(filled(largeBytes))}
	if err := agent.call("CreateContainer", create, &types.Empty{}); err != nil {
		return err
	}
	if err := agent.call("StartContainer", &grpc.StartContainerRequest{ContainerId: id}, &types.Empty{}); err != nil {
		return err
	}
	for _, one := range cases {
		if err := one.run(agent, socket, wanted); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		fmt.Println(one.name)
	}
	return end(agent, wanted)
}

func end(agent *agent, wanted testCase) error {
	init := process{agent, wanted.Container, ""}
	if err := init.closeStdin(); err != nil {
		return err
	}
	output, err := init.readAll()
	if err != nil {
		return err
	}
	status, err := init.wait()
	if err != nil {
		return err
	}
	if string(output) != wanted.Output || status != wanted.Status {
		return fmt.Errorf("got %q and status %d, wanted %q and %d", output, status, wanted.Output, wanted.Status)
	}
	remove := &grpc.RemoveContainerRequest{ContainerId: wanted.Container}
	if err := agent.call("RemoveContainer", remove, &types.Empty{}); err != nil {
		return err
	}
	if err := agent.call("DestroySandbox", &grpc.DestroySandboxRequest{}, &types.Empty{}); err != nil {
		return err
	}
	fmt.Printf("%s", output)
	return nil
}
