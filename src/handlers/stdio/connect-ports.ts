import { AgentError } from '../../base/errors.ts'
import type { Fd, Streams } from '../../os/streams/streams.ts'
import type { Call } from '../../state/request.ts'
import type { HostConnections } from './host-connections.ts'
import { PortConnections, type StreamName } from './port-connections.ts'

/** The ports of a request; calls read or write a stream whose port is 0. */
export interface StdioPorts {
  readonly stdinPort: number
  readonly stdoutPort: number
  readonly stderrPort: number
}

/** Throws INVALID_ARGUMENT for a shared port without a terminal. When one connection fails, the others are closed. */
export async function connectPorts(
  request: {
    readonly streams: Streams
    readonly host: HostConnections
    readonly ports: StdioPorts
    readonly hasTerminal: boolean
    /** Whether readers acknowledge totals on their connections, so that none carries two streams. */
    readonly resumes: boolean
  },
  call: Call,
): Promise<PortConnections> {
  const { streams, host, hasTerminal, resumes } = request
  const named = namedPorts(request.ports)
  if (!hasTerminal) refuseShared(named, 'without a terminal')
  if (resumes) refuseShared(named, 'with agent.stream_resume')
  const firsts = named.filter(({ port }, index) => named.findIndex((one) => one.port === port) === index)
  const made = await Promise.allSettled(
    firsts.map(async ({ name, port }) => ({
      port,
      // Its opening tells a name that a repeated call would not have, so another connection is made then.
      connection: await host.connect(
        { port, stream: name },
        resumes ? { ...call, signal: call.signal, number: 0n } : call,
      ),
    })),
  )
  const connected = made.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
  const byPort = new Map(connected.map(({ port, connection }) => [port, connection.fd]))
  const settled = async () =>
    void (await Promise.all(connected.map(({ connection }) => connection.settled())))
  const failure = made.find((result) => result.status === 'rejected')
  if (failure !== undefined) {
    for (const fd of byPort.values()) streams.close(fd)
    await settled()
    throw failure.reason
  }
  const { stdinPort, stdoutPort } = request.ports
  const isShared = stdinPort !== 0 && stdinPort === stdoutPort
  const ports = new Map(named.map(({ name, port }) => [name, port]))
  return new PortConnections(streams, spread(streams, named, byPort), { isShared, settled, ports })
}

interface NamedPort {
  readonly name: StreamName
  readonly port: number
}

function namedPorts({ stdinPort, stdoutPort, stderrPort }: StdioPorts): readonly NamedPort[] {
  const all: readonly NamedPort[] = [
    { name: 'stdin', port: stdinPort },
    { name: 'stdout', port: stdoutPort },
    { name: 'stderr', port: stderrPort },
  ]
  return all.filter(({ port }) => port !== 0)
}

/** A connection carries one direction only, so that the end of the stream is a full close. */
function refuseShared(named: readonly NamedPort[], when: string): void {
  for (const [index, { name, port }] of named.entries()) {
    const other = named.slice(0, index).find((earlier) => earlier.port === port)
    if (other === undefined) continue
    const text = `${other.name}_port and ${name}_port are both ${port}: ${when} each stream has a port of its own`
    throw new AgentError('INVALID_ARGUMENT', text)
  }
}

/** Streams that share a connection get duplicates of its descriptor. */
function spread(
  streams: Streams,
  named: readonly NamedPort[],
  byPort: ReadonlyMap<number, Fd>,
): ReadonlyMap<StreamName, Fd> {
  const fds = new Map<StreamName, Fd>()
  const unused = new Map(byPort)
  try {
    for (const { name, port } of named) {
      const fd = unused.get(port) ?? streams.duplicate(byPort.get(port) ?? -1)
      unused.delete(port)
      fds.set(name, fd)
    }
    return fds
  } catch (error) {
    for (const fd of [...fds.values(), ...unused.values()]) streams.close(fd)
    throw error
  }
}
