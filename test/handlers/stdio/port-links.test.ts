import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { PortOutput } from '../../../src/handlers/stdio/port-streams.ts'
import { PortLinks } from '../../../src/handlers/stdio/ports/port-links.ts'
import { StoredDescriptors } from '../../../src/handlers/stdio/stored-descriptors.ts'
import { kernelError } from '../../../src/os/errors.ts'
import type { Fd } from '../../../src/os/streams/streams.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { execRequest, type Machine, machineWithContainer } from '../../support/handlers/machine.ts'
import { readToEnd, write } from '../../support/handlers/stdio-ends.ts'
import { settle } from '../../support/pending.ts'

const KEY = { containerId: 'c1', execId: 'e1' }
const HELD_MS = 600_000

interface Detached extends Machine {
  readonly stdin: Fd
  readonly stdout: Fd
  readonly totals: readonly (readonly [string, number, bigint])[]
}

/** A process with input and output over ports, whose streams are stopped after some bytes. */
async function detached(): Promise<Detached> {
  const made = await machineWithContainer()
  const { os, handlers, context } = made
  const ends = [os.hostSockets.accept(7), os.hostSockets.accept(8)] as const
  const ports = { stdinPort: 7, stdoutPort: 8 }
  await handlers.execProcess(execRequest('c1', 'e1', {}, ports), neverAborted)
  const [stdin, stdout] = await Promise.all(ends)
  write(os, stdin, 'in')
  write(os, made.runtime.last().stdout, 'output')
  await settle()
  const told = await context.ports.detach()
  const totals = told.map(({ stream, port, total }) => [stream, port, total] as const)
  return { ...made, stdin, stdout, totals }
}

const told = ({ context }: Machine) =>
  context.events
    .after(0n, 100)
    .events.flatMap(({ streamChanged }) => (streamChanged === undefined ? [] : [streamChanged]))

describe('streams over ports that a caller stops', () => {
  it('have all their bytes counted, and their connections closed', async () => {
    const { os, totals, stdin, stdout, ...made } = await detached()
    expect(totals).toEqual([
      ['stdin', 7, 2n],
      ['stdout', 8, 6n],
    ])
    expect(await readToEnd(os, stdout)).toBe('output')
    expect(() => write(os, stdin, 'more')).toThrow('EPIPE')
    expect(told({ os, ...made })).toMatchObject([
      { ...KEY, stream: 'stdin', port: 7, action: 'detached', total: 2n },
      { ...KEY, stream: 'stdout', port: 8, action: 'detached', total: 6n },
    ])
    expect(os.descriptors.stored.filter((name) => name.endsWith('-host'))).toEqual([])
  })

  it('go on at their ports when they are attached, where they stood', async () => {
    const { os, context, runtime } = await detached()
    const process = runtime.last()
    write(os, process.stdout, ' goes on')
    const ends = [os.hostSockets.accept(7), os.hostSockets.accept(8)] as const
    await context.ports.attach([])
    const [stdin, stdout] = await Promise.all(ends)
    write(os, stdin, 'put')
    os.streams.close(stdin)
    expect(await readToEnd(os, process.stdin)).toBe('input')
    runtime.end(process.pid, { code: 0 })
    expect(await readToEnd(os, stdout)).toBe(' goes on')
  })

  it('are joined by no other until they are attached, and by one of a call from before', async () => {
    const { os, handlers, context, runtime } = await machineWithContainer()
    const exec = (id: string, stdoutPort: number) =>
      handlers.execProcess(execRequest('c1', id, {}, { stdoutPort }), neverAborted)
    const first = os.hostSockets.accept(7)
    const before = exec('before', 7)
    await first
    expect(await context.ports.detach()).toEqual([])
    const waits = 'ports: the streams wait for Attach'
    await expect(exec('late', 8)).rejects.toMatchObject({ code: 'UNAVAILABLE', message: waits })
    await before
    await settle()
    write(os, runtime.last().stdout, 'output')
    expect(await readToEnd(os, await first)).toBe('')
    expect(context.ports.totals()).toMatchObject([{ port: 7, total: 0n }])
    const next = os.hostSockets.accept(7)
    await context.ports.attach([])
    await next
    runtime.end(runtime.last().pid, { code: 0 })
    expect(await readToEnd(os, await next)).toBe('output')
    const end = os.hostSockets.accept(8)
    await exec('late', 8)
    await end
  })

  it('are dialled again at once when a device comes while they find none', async () => {
    const { os, context } = await detached()
    const { connect } = os.hostSockets
    let isFirst = true
    os.hostSockets.connect = async (...given) => {
      if (!isFirst) return await connect.call(os.hostSockets, ...given)
      isFirst = false
      await context.ports.attach([])
      throw kernelError('connect', 'a port', 'ENODEV')
    }
    const ends = [os.hostSockets.accept(7), os.hostSockets.accept(8)] as const
    await context.ports.attach([])
    expect(await Promise.all(ends)).toHaveLength(2)
  })

  it('have the connection stored that they use, after a dial that failed', async () => {
    const { os, context } = await detached()
    await context.ports.attach([])
    await settle()
    const end = os.hostSockets.accept(8)
    os.clock.advance(50)
    await end
    await settle()
    os.descriptors.restart()
    const name = os.descriptors.names().find((one) => one.endsWith('stdout-host')) ?? ''
    expect(os.streams.isConnected(os.descriptors.take(name) ?? -1)).toBe(true)
  })

  it('go on at the ports that a caller names', async () => {
    const { os, context, runtime } = await detached()
    const end = os.hostSockets.accept(80)
    await context.ports.attach([{ oldPort: 8, newPort: 80 }])
    write(os, runtime.last().stdout, 'moved')
    runtime.end(runtime.last().pid, { code: 0 })
    expect(await readToEnd(os, await end)).toBe('moved')
  })

  it.each([
    [[{ oldPort: 9, newPort: 1 }], 'streams: no stream has the port 9'],
    [[{ oldPort: 8, newPort: 0 }], 'streams: new_port is 0'],
    [
      [
        { oldPort: 8, newPort: 1 },
        { oldPort: 8, newPort: 2 },
      ],
      'streams: a port is named twice',
    ],
    [
      [
        { oldPort: 7, newPort: 1 },
        { oldPort: 8, newPort: 1 },
      ],
      'streams: a port is named twice',
    ],
    [[{ oldPort: 7, newPort: 8 }], 'streams: another stream has the port 8'],
  ])('stay where they are for the wrong ports %j', async (moved, message) => {
    const { context } = await detached()
    await expect(context.ports.attach(moved)).rejects.toThrow(message)
    expect(context.ports.totals().map(({ port }) => port)).toEqual([7, 8])
  })

  it('are dialled again after a restore, where they outlive their connections', async () => {
    for (const [streamGraceMs, actions] of [
      [0, []],
      [5000, ['detached', 'attached']],
    ] as const) {
      const made = await machineWithContainer({}, { config: { streamGraceMs } })
      const { os, handlers, context } = made
      void os.hostSockets.accept(8)
      await handlers.execProcess(execRequest('c1', 'e1', {}, { stdoutPort: 8 }), neverAborted)
      void os.hostSockets.accept(8)
      await context.ports.dialAgain()
      await settle()
      expect(told(made).map(({ action }) => action)).toEqual(actions)
    }
  })

  it('are dialled once each, when there are more of them than connect at a time', async () => {
    const COUNT = 200
    let dials = 0
    const made = await machineWithContainer(
      {},
      {
        wrap: (os) => ({
          ...os,
          hostSockets: {
            ...os.hostSockets,
            socket: (...given) => os.hostSockets.socket(...given),
            connect: async (...given) => {
              dials += 1
              await os.hostSockets.connect(...given)
            },
          },
        }),
      },
    )
    const { os, handlers, context } = made
    for (let port = 1; port <= COUNT; port++) {
      void os.hostSockets.accept(port)
      await handlers.execProcess(execRequest('c1', `e${port}`, {}, { stdoutPort: port }), neverAborted)
    }
    await context.ports.detach()
    dials = 0
    await context.ports.attach([])
    for (let turn = 0; turn < 10; turn++) await settle()
    expect(dials).toBe(COUNT)
  })

  it('make no attempt before that', async () => {
    const { os, context, runtime } = await detached()
    const end = os.hostSockets.accept(8)
    os.clock.advance(HELD_MS - 1)
    await settle()
    expect(told({ os, context, runtime } as Machine).map(({ action }) => action)).toEqual([
      'detached',
      'detached',
    ])
    await context.ports.attach([])
    write(os, runtime.last().stdout, 'again')
    runtime.end(runtime.last().pid, { code: 0 })
    expect(await readToEnd(os, await end)).toBe('again')
  })

  it('end as after the end of their connections when no host takes them in time', async () => {
    const { os, runtime, ...made } = await detached()
    const process = runtime.last()
    for (let second = 0; second < 650; second++) {
      os.clock.advance(1000)
      await settle()
    }
    expect(told({ os, runtime, ...made } as Machine).map(({ action }) => action)).toEqual([
      ...['detached', 'detached', 'ended', 'ended'],
    ])
    expect(() => write(os, process.stdout, 'x')).toThrow('EPIPE')
    expect(await readToEnd(os, process.stdin)).toBe('in')
    expect(made.context.ports.totals()).toEqual([])
  })

  it('end with their container', async () => {
    const { handlers, context, os } = await detached()
    await handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    expect(context.ports.totals()).toEqual([])
    expect(os.descriptors.stored.filter((name) => name.startsWith('p'))).toEqual([])
    expect(os.clock.sleeping).toBe(0)
  })

  it('that the host dials end when nothing names them, and go on when something does', async () => {
    const [LISTENER, peer] = [1027, (port: number) => ({ kind: 'vsock', cid: 2, port }) as const]
    const config = { streamGraceMs: 5000, streamResume: true }
    for (const isNamed of [false, true]) {
      const made = await machineWithContainer(
        {},
        { config, stdio: { listenerPort: LISTENER, resumes: true } },
      )
      const { os, handlers, context, runtime } = made
      const first = os.hostSockets.dial(LISTENER, peer(8))
      await handlers.execProcess(execRequest('c1', 'e1', {}, { stdoutPort: 8 }), neverAborted)
      await settle()
      const name = os.streams.tryRead(first, 16)?.subarray(0, 8) ?? Buffer.alloc(0)
      const detached = context.ports.detach()
      await settle()
      await detached
      await context.ports.attach([])
      const [same, next] = [os.hostSockets.dial(LISTENER, peer(8)), os.hostSockets.dial(LISTENER, peer(9))]
      if (isNamed) os.streams.tryWrite(next, Buffer.concat([name, Buffer.alloc(8)]))
      for (let second = 0; second < 15; second++) {
        await settle()
        os.clock.advance(1000)
      }
      await settle()
      expect(told(made).map(({ action, port }) => `${action} ${port}`)).toEqual([
        'detached 8',
        isNamed ? 'attached 9' : 'ended 8',
      ])
      expect(os.streams.tryRead(same, 16)).toBeUndefined()
      runtime.end(runtime.last().pid, { code: 0 })
    }
  })

  it('that the host dials, and that do not resume, go on only at the port that a caller names', async () => {
    const [LISTENER, peer] = [1027, (port: number) => ({ kind: 'vsock', cid: 2, port }) as const]
    for (const isNamed of [false, true]) {
      const made = await machineWithContainer(
        {},
        { config: { streamGraceMs: 5000 }, stdio: { listenerPort: LISTENER } },
      )
      const { os, handlers, context, runtime } = made
      os.hostSockets.dial(LISTENER, peer(8))
      await handlers.execProcess(execRequest('c1', 'e1', {}, { stdoutPort: 8 }), neverAborted)
      await settle()
      await context.ports.detach()
      const [same, next] = [os.hostSockets.dial(LISTENER, peer(8)), os.hostSockets.dial(LISTENER, peer(9))]
      await context.ports.attach(isNamed ? [{ oldPort: 8, newPort: 9 }] : [])
      await settle()
      const process = runtime.last()
      const send = () => write(os, process.stdout, 'what is meant for it')
      if (isNamed) send()
      for (let second = 0; second < 15; second++) {
        await settle()
        os.clock.advance(1000)
      }
      await settle()
      if (!isNamed) expect(send).toThrow('EPIPE')
      runtime.end(process.pid, { code: 0 })
      await settle()
      const got = [same, next].map((end) => os.streams.tryRead(end, 99)?.toString())
      expect(got).toEqual([undefined, isNamed ? 'what is meant for it' : undefined])
    }
  })

  it('that resume take no byte of the opening for input, however late it comes', async () => {
    const [LISTENER, peer] = [1027, (port: number) => ({ kind: 'vsock', cid: 2, port }) as const]
    const config = { streamGraceMs: 60_000, streamResume: true }
    for (const early of [0, 8, 12]) {
      const made = await machineWithContainer(
        {},
        { config, stdio: { listenerPort: LISTENER, resumes: true } },
      )
      const { os, handlers, context, runtime } = made
      const first = os.hostSockets.dial(LISTENER, peer(8))
      await handlers.execProcess(execRequest('c1', 'e1', {}, { stdinPort: 8 }), neverAborted)
      await settle()
      const opening = Buffer.concat([os.streams.tryRead(first, 8) ?? Buffer.alloc(0), Buffer.alloc(8)])
      await context.ports.detach()
      const next = os.hostSockets.dial(LISTENER, peer(9))
      if (early > 0) os.streams.tryWrite(next, opening.subarray(0, early))
      await context.ports.attach([{ oldPort: 8, newPort: 9 }])
      await settle()
      os.streams.tryWrite(next, opening.subarray(early))
      for (let turn = 0; turn < 10; turn++) {
        await settle()
        os.clock.advance(100)
      }
      expect(os.streams.tryRead(next, 16)).toEqual(opening)
      write(os, next, 'input')
      await settle()
      expect(os.streams.tryRead(runtime.last().stdin, 99)?.toString(), `${early} bytes early`).toBe('input')
      runtime.end(runtime.last().pid, { code: 0 })
    }
  })

  it('of a terminal share their next connection too', async () => {
    const { os, handlers, context, runtime } = await machineWithContainer()
    const first = os.hostSockets.accept(7)
    const ports = { stdinPort: 7, stdoutPort: 7 }
    await handlers.execProcess(execRequest('c1', 'e1', { Terminal: true }, ports), neverAborted)
    const { stdin: slave, pid } = runtime.last()
    await first
    await context.ports.detach()
    const accepted = os.hostSockets.accept(7)
    await context.ports.attach([])
    const end = await accepted
    write(os, end, 'typed')
    await os.streams.readable(slave)
    expect(os.streams.tryRead(slave, 9)?.toString()).toBe('typed')
    write(os, slave, 'shown')
    runtime.end(pid, { code: 0 })
    expect(await readToEnd(os, end)).toBe('shown')
  })
})

describe('a thousand streams over ports', () => {
  it('are stopped and attached again and again, 64 at a time, and leave nothing behind', async () => {
    const os = new FakeOs()
    const dials = { open: 0, most: 0, all: 0 }
    const ports = new PortLinks({
      os,
      log: silentLogger(),
      events: { add: () => {} },
      graceMs: 60_000,
      resumes: false,
      ownerOf: () => undefined,
      hostConnections: {
        dialsHost: true,
        connect: async ({ again }) => {
          dials.open += 1
          dials.all += 1
          dials.most = Math.max(dials.most, dials.open)
          await settle()
          dials.open -= 1
          // Every tenth dial fails, and is tried again.
          if (dials.all % 10 === 0) throw new AgentError('INTERNAL', 'none', { errno: 'ECONNRESET' })
          const fd = os.streams.socket()
          os.streams.otherEnd(fd)
          again?.keep(fd)
          return { fd, settled: async () => {} }
        },
      },
    })
    const outputs = Array.from({ length: 1000 }, (_, index) => {
      const stored = new StoredDescriptors(os.descriptors, `p${index}`)
      const { parentEnd: fd } = os.streams.pipe('child-writes')
      stored.put('stdout', fd)
      const connection = os.streams.socket()
      os.streams.otherEnd(connection)
      const stream = { connection, port: index + 1, fd, through: undefined, stored }
      return new PortOutput({ ...os, ports }, 'stdout', stream)
    })
    for (let time = 0; time < 5; time++) {
      expect(await ports.detach()).toHaveLength(1000)
      await ports.attach([])
    }
    await settle()
    expect(dials.most).toBe(64)
    await Promise.all(outputs.map((output) => output.close()))
    expect(ports.totals()).toEqual([])
    expect(os.descriptors.stored).toEqual(['stream-records'])
    expect(os.clock.sleeping).toBe(0)
  })
})
