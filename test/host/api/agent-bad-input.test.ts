import { readdirSync, symlinkSync } from 'node:fs'
import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { AgentServiceDefinition, CreateContainerRequest } from '../../../src/gen/agent.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import type { TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { connectionsOf, FRAMINGS, type Framing } from '../../sequences/wires.ts'
import { createContainerRequest } from '../../support/containers/container-requests.ts'
import type { RemoteProcess } from '../../support/containers/pod.ts'
import {
  type AgentPod,
  cgroupsOf,
  leftoversOf,
  mountPointsOf,
  startPod,
} from '../../support/host/agent-pod.ts'
import { grpcConnection } from '../../support/rpc/grpc-client.ts'
import { rawPeer } from '../../support/rpc/raw-peer.ts'
import { BAD_INPUT, UNMADE } from './refusals/bad-input.ts'
import { COPY_INPUT } from './refusals/bad-input-copy.ts'
import { GUEST_INPUT } from './refusals/bad-input-guest.ts'
import { LINK, STORAGE_INPUT } from './refusals/bad-input-storage.ts'

const SERVICE = 'grpc.AgentService'
const MIB = 1024 * 1024

/** Enabled, so that its calls check their requests, but idle. */
const MEM_AGENT = {
  mem_agent_enable: 'true',
  mem_agent_memcg_disable: 'true',
  mem_agent_compact_disable: 'true',
}

describe('an invalid request', () => {
  let pod: AgentPod
  let connections: Record<Framing, Pick<TtrpcClient, 'call' | 'close'>>
  let terminal: RemoteProcess
  beforeAll(async () => {
    pod = await startPod({ settings: MEM_AGENT })
    const { path } = pod.started
    connections = { ttrpc: await connectionsOf.ttrpc(path), grpc: await connectionsOf.grpc(path) }
    // The first call also opens each client's socket, so the tests open no further sockets.
    for (const framing of FRAMINGS) await connections[framing].call('grpc.Health', 'Check', new Uint8Array())
    await pod.run('living', ['sleep', '1000'])
    symlinkSync('/etc', pod.started.inside(LINK))
    terminal = await pod.add('living', 'terminal', ['cat'], { terminal: true })
    await terminal.write('begun\n')
    await terminal.readUntil('begun\r\nbegun\r\n')
  })
  afterAll(async () => {
    for (const framing of FRAMINGS) connections[framing].close()
    await pod.stop()
  })

  function machine() {
    const { runtimeState, processes } = leftoversOf(pod.started, UNMADE)
    return {
      mounts: mountPointsOf(pod.started),
      bundles: readdirSync(pod.started.inside('/run/kata-containers')),
      states: readdirSync(pod.started.inside('/run/microvm-agent/state')),
      cgroups: cgroupsOf(UNMADE, pod.started),
      files: pod.started.openFiles(),
      runtimeState,
      processes,
    }
  }

  describe.each(FRAMINGS)('over %s', (framing) => {
    /** The leftovers after the previous request; a new search would take longer than the requests. */
    let left: ReturnType<typeof machine> | undefined

    it.each([...BAD_INPUT, ...GUEST_INPUT, ...STORAGE_INPUT, ...COPY_INPUT])(
      '$rpc with $what: $code, naming it, and nothing is left',
      async (input) => {
        const agent = clientFor(AgentServiceDefinition, connections[framing])
        const before = left ?? machine()
        const refused = await input.call(agent, pod.root).catch((error: unknown) => error)
        left = machine()
        expect(refused).toMatchObject({ code: input.code, message: expect.stringContaining(input.names) })
        expect(left).toEqual(before)
      },
    )

    it('leaves the ids free, other containers untouched, and the connection usable', async () => {
      const agent = clientFor(AgentServiceDefinition, connections[framing])
      await terminal.write(`${framing}\n`)
      expect(await terminal.readUntil(`${framing}\r\n${framing}\r\n`)).toContain(framing)
      await agent.createContainer(createContainerRequest(UNMADE, pod.root, ['true']))
      await agent.removeContainer({ containerId: UNMADE })
      await agent.signalProcess({ containerId: 'living', execId: 'living', signal: 0 })
    })

    it.each(Object.values(AgentServiceDefinition.methods).map(({ name }) => name))(
      '%s with bytes that are no message: UNKNOWN',
      async (name) => {
        // Field 1 announces 127 bytes, but only one follows.
        const refused = await connections[framing]
          .call(SERVICE, name, Buffer.from([0x0a, 0x7f, 0x01]))
          .catch((error: unknown) => error)
        expect(refused).toMatchObject({
          code: 'UNKNOWN',
          message: expect.stringContaining('cannot be decoded'),
        })
      },
    )

    it.each([
      [SERVICE, 'NoSuchMethod'],
      ['grpc.NoSuchService', 'Check'],
    ])('to %s/%s: UNIMPLEMENTED', async (service, method) => {
      const calling = connections[framing].call(service, method, new Uint8Array())
      await expect(calling).rejects.toMatchObject({ code: 'UNIMPLEMENTED' })
    })

    it('of almost 4 MiB is served', async () => {
      const agent = clientFor(AgentServiceDefinition, connections[framing])
      expect(await agent.createContainer(large(pod.root, 4 * MIB - 8 * 1024))).toEqual({})
      await agent.removeContainer({ containerId: UNMADE })
    })
  })

  it.each(FRAMINGS)('of 2,000,000 empty messages in 4 MB over %s: RESOURCE_EXHAUSTED', async (framing) => {
    const before = machine()
    // Field 5 is `storages`; each takes two bytes.
    const bytes = Buffer.from([0x2a, 0x00]).toString('latin1').repeat(2_000_000)
    const refused = connections[framing].call(SERVICE, 'CreateContainer', Buffer.from(bytes, 'latin1'))
    await expect(refused).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      message: 'storages: more than 65536 elements in one request',
    })
    await connections[framing].call('grpc.Health', 'Check', new Uint8Array())
    expect(machine()).toEqual(before)
  })

  it('of 4 MiB and more over ttrpc: RESOURCE_EXHAUSTED, and the connection stays open', async () => {
    const before = machine()
    const peer = rawPeer(connect(pod.started.path))
    peer.request(1, SERVICE, 'CreateContainer', { payload: encoded(large(pod.root, 4 * MIB)) })
    expect(await peer.response()).toMatchObject({
      streamId: 1,
      code: 8,
      message: expect.stringMatching(/^message of \d+ bytes is larger than 4194304$/),
    })
    peer.request(3, 'grpc.Health', 'Check')
    expect(await peer.response()).toMatchObject({ streamId: 3, code: 0 })
    peer.socket.destroy()
    await peer.closed
    await expect.poll(machine).toEqual(before)
  })

  it('of 4 MiB and more over grpc: RESOURCE_EXHAUSTED, and the connection stays open', async () => {
    const before = machine()
    const connection = grpcConnection(pod.started.path)
    const agent = clientFor(AgentServiceDefinition, connection)
    const creating = agent.createContainer(large(pod.root, 4 * MIB))
    await expect(creating).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
    await connection.call('grpc.Health', 'Check', new Uint8Array())
    connection.close()
    await expect.poll(machine).toEqual(before)
  })
})

function large(root: string, bytes: number) {
  const spec = { Annotations: { large: 'x'.repeat(bytes) } }
  return createContainerRequest(UNMADE, root, ['true'], { spec })
}

function encoded(request: Parameters<typeof CreateContainerRequest.fromPartial>[0]): Uint8Array {
  return CreateContainerRequest.encode(CreateContainerRequest.fromPartial(request)).finish()
}
