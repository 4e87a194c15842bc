package main

import (
	"context"
	"fmt"
	"net"

	"agent/grpc"
	introspection "agent/introspection"

	"github.com/containerd/ttrpc"
	"github.com/gogo/protobuf/types"
)

type agent struct {
	ctx    context.Context
	client *ttrpc.Client
	// Receives an item for each request handed to the kernel, while there is room.
	sent chan struct{}
}

type observed struct {
	net.Conn
	sent chan struct{}
}

func (conn observed) Write(bytes []byte) (int, error) {
	count, err := conn.Conn.Write(bytes)
	select {
	case conn.sent <- struct{}{}:
	default:
	}
	return count, err
}

func dial(ctx context.Context, socket string) (*agent, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	sent := make(chan struct{}, 100)
	return &agent{ctx, ttrpc.NewClient(observed{conn, sent}), sent}, nil
}

func (agent *agent) forgetSent() {
	for len(agent.sent) > 0 {
		<-agent.sent
	}
}

func (agent *agent) awaitSent(count int) {
	for ; count > 0; count-- {
		<-agent.sent
	}
}

func (agent *agent) call(method string, request, response interface{}) error {
	return agent.callWithin(agent.ctx, method, request, response)
}

func (agent *agent) callWithin(ctx context.Context, method string, request, response interface{}) error {
	if err := agent.client.Call(ctx, "grpc.AgentService", method, request, response); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

func (agent *agent) check() error {
	var health grpc.HealthCheckResponse
	if err := agent.client.Call(agent.ctx, "grpc.Health", "Check", &grpc.CheckRequest{}, &health); err != nil {
		return fmt.Errorf("Check: %w", err)
	}
	if health.Status != grpc.HealthCheckResponse_SERVING {
		return fmt.Errorf("Check: status %v", health.Status)
	}
	return nil
}

// Waits until the agent has no call for the process, because it takes a moment to notice that a client is gone.
func (agent *agent) untilNotCalled(containerID, execID string) error {
	for {
		var open introspection.ListCallsResponse
		request := &introspection.ListCallsRequest{}
		err := agent.client.Call(agent.ctx, "microvm.agent.v1.Introspection", "ListCalls", request, &open)
		if err != nil {
			return fmt.Errorf("ListCalls: %w", err)
		}
		calls := 0
		for _, call := range open.Calls {
			if call.ContainerId == containerID && call.ExecId == execID {
				calls++
			}
		}
		if calls == 0 {
			return nil
		}
	}
}

type process struct {
	agent       *agent
	containerID string
	execID      string
}

func (agent *agent) exec(containerID, execID, script string) (process, error) {
	request := &grpc.ExecProcessRequest{
		ContainerId: containerID,
		ExecId:      execID,
		Process: &grpc.Process{
			User: &grpc.User{},
			Args: []string{"/bin/sh", "-c", script},
			Env:  []string{"PATH=/bin:/usr/bin:/sbin"},
			Cwd:  "/",
		},
	}
	return process{agent, containerID, execID}, agent.call("ExecProcess", request, &types.Empty{})
}

func (process process) read() ([]byte, error) {
	var chunk grpc.ReadStreamResponse
	request := &grpc.ReadStreamRequest{ContainerId: process.containerID, ExecId: process.execID, Len: largeBytes}
	err := process.agent.call("ReadStdout", request, &chunk)
	return chunk.Data, err
}

func (process process) readAll() ([]byte, error) {
	all := []byte{}
	for {
		chunk, err := process.read()
		if err != nil || len(chunk) == 0 {
			return all, err
		}
		all = append(all, chunk...)
	}
}

func (process process) write(data []byte) error {
	var written grpc.WriteStreamResponse
	request := &grpc.WriteStreamRequest{ContainerId: process.containerID, ExecId: process.execID, Data: data}
	if err := process.agent.call("WriteStdin", request, &written); err != nil {
		return err
	}
	if int(written.Len) != len(data) {
		return fmt.Errorf("WriteStdin: %d of %d bytes", written.Len, len(data))
	}
	return nil
}

func (process process) closeStdin() error {
	request := &grpc.CloseStdinRequest{ContainerId: process.containerID, ExecId: process.execID}
	return process.agent.call("CloseStdin", request, &types.Empty{})
}

func (process process) wait() (int32, error) {
	return process.waitWithin(process.agent.ctx)
}

func (process process) waitWithin(ctx context.Context) (int32, error) {
	var exit grpc.WaitProcessResponse
	request := &grpc.WaitProcessRequest{ContainerId: process.containerID, ExecId: process.execID}
	err := process.agent.callWithin(ctx, "WaitProcess", request, &exit)
	return exit.Status, err
}
