package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"agent/grpc"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Cases that strain a connection, in a running container.
var cases = []struct {
	name string
	run  func(agent *agent, socket string, wanted testCase) error
}{
	{"large messages", largeMessages},
	{"long polls", longPolls},
	{"deadline", deadline},
	{"hang-up", hangUp},
}

const largeBytes = 3 << 20

func filled(length int) []byte {
	return bytes.Repeat([]byte("x"), length)
}

// Sends 3 MiB to a process in one message, and reads as much back.
func largeMessages(agent *agent, _ string, wanted testCase) error {
	echo, err := agent.exec(wanted.Container, "large-in", "cat")
	if err != nil {
		return err
	}
	writing := make(chan error, 1)
	go func() {
		if err := echo.write(filled(largeBytes)); err != nil {
			writing <- err
			return
		}
		writing <- echo.closeStdin()
	}()
	back, err := echo.readAll()
	if err != nil {
		return err
	}
	if err := <-writing; err != nil {
		return err
	}
	if !bytes.Equal(back, filled(largeBytes)) {
		return fmt.Errorf("%d bytes came back", len(back))
	}
	return ended(echo, 0)
}

// Long waits must not block other calls on their connection.
func longPolls(agent *agent, _ string, wanted testCase) error {
	echo, err := agent.exec(wanted.Container, "polled", "cat; exit 4")
	if err != nil {
		return err
	}
	agent.forgetSent()
	statuses, outputs, memory := make(chan error, 8), make(chan error, 1), make(chan error, 1)
	for i := 0; i < cap(statuses); i++ {
		go func() { statuses <- ended(echo, 4) }()
	}
	go func() {
		// A single read: the answer to a wait makes the agent forget the process.
		output, err := echo.read()
		if err == nil && string(output) != "typed\n" {
			err = fmt.Errorf("the output is %q", output)
		}
		outputs <- err
	}()
	ctx, stop := context.WithCancel(agent.ctx)
	defer stop()
	go func() { memory <- agent.callWithin(ctx, "GetOOMEvent", &grpc.GetOOMEventRequest{}, &grpc.OOMEvent{}) }()
	agent.awaitSent(cap(statuses) + cap(outputs) + cap(memory))
	for i := 0; i < 20; i++ {
		if err := agent.check(); err != nil {
			return err
		}
		request := &grpc.StatsContainerRequest{ContainerId: wanted.Container}
		if err := agent.call("StatsContainer", request, &grpc.StatsContainerResponse{}); err != nil {
			return err
		}
	}
	if len(statuses)+len(outputs)+len(memory) > 0 {
		return errors.New("a long poll was answered for no reason")
	}
	if err := echo.write([]byte("typed\n")); err != nil {
		return err
	}
	if err := echo.closeStdin(); err != nil {
		return err
	}
	for i := 0; i < cap(statuses); i++ {
		if err := <-statuses; err != nil {
			return err
		}
	}
	return <-outputs
}

// A deadline that travels with the call; only the agent enforces it.
type agentsDeadline struct {
	context.Context
	at time.Time
}

func (ctx agentsDeadline) Deadline() (time.Time, bool) { return ctx.at, true }

// A timed-out wait must not consume the exit. The library's own clock would end the wait earlier than the agent's; an exit
// in between would be lost.
func deadline(agent *agent, _ string, wanted testCase) error {
	sleeper, err := agent.exec(wanted.Container, "late", "read line; exit 6")
	if err != nil {
		return err
	}
	_, err = sleeper.waitWithin(agentsDeadline{agent.ctx, time.Now().Add(200 * time.Millisecond)})
	if status.Code(errors.Unwrap(err)) != codes.DeadlineExceeded {
		return fmt.Errorf("the wait ended with %v", err)
	}
	if err := sleeper.write([]byte("go\n")); err != nil {
		return err
	}
	return ended(sleeper, 6)
}

// Closing a connection with waiting calls must not consume their results either.
func hangUp(agent *agent, socket string, wanted testCase) error {
	kept, err := agent.exec(wanted.Container, "kept", `read line; echo "got $line"; exit 5`)
	if err != nil {
		return err
	}
	lost, err := dial(agent.ctx, socket)
	if err != nil {
		return err
	}
	onLost := process{lost, kept.containerID, kept.execID}
	results := make(chan error, 2)
	go func() {
		_, err := onLost.wait()
		results <- err
	}()
	go func() {
		_, err := onLost.read()
		results <- err
	}()
	lost.awaitSent(cap(results))
	// A later answer proves that the agent has both requests.
	if err := lost.check(); err != nil {
		return err
	}
	lost.client.Close()
	for i := 0; i < cap(results); i++ {
		if err := <-results; !errors.Is(err, ttrpc.ErrClosed) {
			return fmt.Errorf("a call of the closed connection ended with %v", err)
		}
	}
	// The library ends the calls before it closes the connection, on which an answer may still arrive.
	if err := lost.client.UserOnCloseWait(agent.ctx); err != nil {
		return err
	}
	// An answer on its way to a client that is not known to be gone is lost with it.
	if err := agent.untilNotCalled(kept.containerID, kept.execID); err != nil {
		return err
	}
	if err := kept.write([]byte("it\n")); err != nil {
		return err
	}
	again, err := dial(agent.ctx, socket)
	if err != nil {
		return err
	}
	defer again.client.Close()
	onNew := process{again, kept.containerID, kept.execID}
	output, err := onNew.readAll()
	if err != nil {
		return err
	}
	if string(output) != "got it\n" {
		return fmt.Errorf("the output is %q", output)
	}
	return ended(onNew, 5)
}

func ended(process process, wanted int32) error {
	status, err := process.wait()
	if err == nil && status != wanted {
		err = fmt.Errorf("exit status %d instead of %d", status, wanted)
	}
	return err
}
