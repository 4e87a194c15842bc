import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { createHostConnections } from '../../../src/handlers/stdio/host-connections.ts'
import type { RequestState } from '../../../src/os/supervisor/broker-messages.ts'
import { RequestJournal } from '../../../src/state/request-journal.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import { callOf, numbered } from '../../support/handlers/call.ts'
import { FakeRequests } from '../../support/handlers/fake-requests.ts'
import {
  containerRequest,
  execRequest,
  machine,
  machineWithContainer,
  machineWithSandbox,
  remains,
} from '../../support/handlers/machine.ts'
import { readToEnd, write } from '../../support/handlers/stdio-ends.ts'
import { isPending, settle } from '../../support/pending.ts'

const LISTENER = 1027
const HOST = { kind: 'vsock', cid: 2 } as const

describe('dialling the host', () => {
  it('names the port without a listener, and leaves nothing behind', async () => {
    const made = await machineWithSandbox()
    const before = await remains(made)
    const taken = made.os.hostSockets.accept(8)
    const request = containerRequest('c1', {}, { stdoutPort: 8, stderrPort: 9 })
    await expect(made.handlers.createContainer(request, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      errno: 'ECONNRESET',
      message: 'stderr: port 9 of the host: no listener',
    })
    made.os.streams.close(await taken)
    expect(await remains(made)).toEqual(before)
    expect(made.runtime.calls).toEqual([])
  })

  it('fails after the timeout', async () => {
    const made = await machineWithContainer()
    const before = await remains(made)
    made.os.hostSockets.ignore(8)
    const call = made.handlers.execProcess(execRequest('c1', 'e1', {}, { stdoutPort: 8 }), neverAborted)
    const refused = expect(call).rejects.toMatchObject({
      code: 'INTERNAL',
      errno: 'ETIMEDOUT',
      message: 'stdout: port 8 of the host: no listener',
    })
    await settle()
    made.os.clock.advance(1999)
    expect(await isPending(call)).toBe(true)
    made.os.clock.advance(1)
    await refused
    expect(await remains(made)).toEqual(before)
  })
})

describe('connections that the agent has made when it dies', () => {
  const dialling = (os: FakeOs) =>
    createHostConnections({
      os,
      log: silentLogger(),
      config: {
        dial: { kind: 'vsock' },
        dialTimeoutMs: 2000,
        listenerPort: 0,
        allowLoopback: false,
        resumes: false,
      },
    })
  const WANTED = { port: 1_000_000, stream: 'stdout' } as const

  const requestsOf = (source: FakeRequests) =>
    new RequestJournal(new StateStore(new MemoryStateFiles()), silentLogger(), source)

  async function dead(call: bigint) {
    const os = new FakeOs()
    const accepted = os.hostSockets.accept(WANTED.port)
    const { fd } = await dialling(os).connect(WANTED, numbered(call))
    os.streams.close(fd)
    os.descriptors.restart()
    const next = dialling(os)
    await next.begin()
    return { os, next, end: await accepted }
  }

  it('are given to the repeated call, because the host listens once', async () => {
    const call = 2n ** 64n - 1n
    const { os, next, end } = await dead(call)
    requestsOf(new FakeRequests([[call, 'open']])).settleAll(next)
    const { fd, settled } = await next.connect(WANTED, numbered(call))
    write(os, fd, 'out')
    expect(os.streams.tryRead(end, 9)?.toString()).toBe('out')
    await settled()
    expect(os.descriptors.stored).toEqual([])
  })

  it('are given to no other call', async () => {
    const { next, os } = await dead(5n)
    const accepted = os.hostSockets.accept(WANTED.port)
    const { fd } = await next.connect(WANTED, numbered(6n))
    write(os, fd, 'out')
    expect(os.streams.tryRead(await accepted, 9)?.toString()).toBe('out')
  })

  it.each([
    ['is not known', new Map<bigint, RequestState>()],
    ['leaves first', new Map<bigint, RequestState>([[5n, 'open']])],
  ] as const)('are closed when their call is not repeated, because it %s', async (_what, states) => {
    const { next, os, end } = await dead(5n)
    const source = new FakeRequests(states)
    requestsOf(source).settleAll(next)
    source.settle(5n, 'dropped')
    expect(await readToEnd(os, end)).toBe('')
    await expect.poll(() => os.descriptors.stored).toEqual([])
  })

  it('are not stored for a call without a number', async () => {
    const os = new FakeOs()
    void os.hostSockets.accept(8)
    await dialling(os).connect({ ...WANTED, port: 8 }, callOf())
    expect(os.descriptors.stored).toEqual([])
  })
})

describe('waiting for connections from the host', () => {
  async function listening() {
    const made = await machineWithSandbox({ stdio: { listenerPort: LISTENER } })
    await made.handlers.createContainer(containerRequest('c1'), neverAborted)
    return made
  }
  const request = execRequest('c1', 'e1', {}, { stdoutPort: 8 })

  it('picks the connection by the port it comes from', async () => {
    const { os, handlers, runtime } = await listening()
    const other = os.hostSockets.dial(LISTENER, { ...HOST, port: 7 })
    const end = os.hostSockets.dial(LISTENER, { ...HOST, port: 8 })
    await handlers.execProcess(request, neverAborted)
    const { pid, stdout } = runtime.last()
    write(os, stdout, 'out')
    runtime.end(pid, { code: 0 })
    expect(await readToEnd(os, end)).toBe('out')
    expect(os.streams.tryRead(other, 1)).toBeUndefined()
  })

  it.each(Array.from({ length: 24 }, (_, turns) => turns))(
    'has no name of a connection that is taken %i turns after it came with one',
    async (turns) => {
      const os = new FakeOs()
      const config = { dial: { kind: 'vsock' }, dialTimeoutMs: 2000, listenerPort: LISTENER } as const
      const connections = createHostConnections({
        ...{ os, log: silentLogger() },
        config: { ...config, allowLoopback: false, resumes: true },
      })
      await connections.begin()
      const name = Buffer.from('streams-')
      write(os, os.hostSockets.dial(LISTENER, { ...HOST, port: 8 }), `${name}12345678`)
      for (let turn = 0; turn < turns; turn++) await Promise.resolve()
      await connections.connect({ port: 8, stream: 'stdout' }, callOf(neverAborted))
      await settle()
      expect(connections.hasNamed?.(name)).toBe(false)
    },
  )

  it('waits for a connection that arrives after its request', async () => {
    const { os, handlers, runtime } = await listening()
    const call = handlers.execProcess(request, neverAborted)
    await settle()
    os.clock.advance(100)
    await settle()
    os.hostSockets.dial(LISTENER, { ...HOST, port: 8 })
    os.clock.advance(100)
    await call
    expect(runtime.calls).toContain('exec')
  })

  it('fails after three tries', async () => {
    const { os, handlers } = await listening()
    const refused = expect(handlers.execProcess(request, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'stdout: the host has made no connection from its port 8',
    })
    for (const _ of [1, 2]) {
      await settle()
      os.clock.advance(100)
    }
    await refused
  })

  it('closes connections that do not come from the host', async () => {
    const { os } = await listening()
    const foreign = os.hostSockets.dial(LISTENER, { kind: 'vsock', cid: 1, port: 8 })
    expect(await readToEnd(os, foreign)).toBe('')
  })

  it('closes replaced, surplus and old waiting connections', async () => {
    const { os } = await listening()
    const [first, second] = [1, 2].map((port) => os.hostSockets.dial(LISTENER, { ...HOST, port }))
    if (first === undefined || second === undefined) throw new Error('no connections')
    const replacing = os.hostSockets.dial(LISTENER, { ...HOST, port: 2 })
    expect(await readToEnd(os, second)).toBe('')
    for (let port = 3; port <= 513; port++) os.hostSockets.dial(LISTENER, { ...HOST, port })
    expect(await readToEnd(os, first)).toBe('')
    expect(os.streams.tryRead(replacing, 1)).toBeUndefined()
    os.clock.advance(60_000)
    expect(await readToEnd(os, replacing)).toBe('')
    expect(os.clock.sleeping).toBe(0)
  })

  it('hands connections that no request has named to the next agent', async () => {
    const { os, runtime, state } = await listening()
    const end = os.hostSockets.dial(LISTENER, { ...HOST, port: 8 })
    expect(os.descriptors.stored).toContain('from-port-8')
    os.descriptors.restart()
    const options = { os, runtime, state, stdio: { listenerPort: LISTENER }, config: { restarted: true } }
    const next = await machine(options)
    await next.handlers.restore()
    await next.handlers.createContainer(containerRequest('c2', {}, { stdoutPort: 8 }), neverAborted)
    write(os, runtime.last().stdout, 'out')
    await settle()
    expect(os.streams.tryRead(end, 9)?.toString()).toBe('out')
    expect(os.descriptors.stored).not.toContain('from-port-8')
  })

  it('closes the connection of a creation that fails before the runtime runs', async () => {
    const { os, handlers } = await listening()
    const end = os.hostSockets.dial(LISTENER, { ...HOST, port: 8 })
    const sharedMounts = [{ name: 'x', srcCtr: 'c1', srcPath: 'relative', dstCtr: 'c2', dstPath: '/y' }]
    const request = containerRequest('c2', {}, { stdoutPort: 8, sharedMounts })
    await expect(handlers.createContainer(request, neverAborted)).rejects.toThrow('shared_mounts')
    expect(os.descriptors.stored).not.toContain('from-port-8')
    expect(await readToEnd(os, end)).toBe('')
  })

  it('keeps a connection stored until the process is made that has it', async () => {
    const { os, handlers, runtime } = await listening()
    os.hostSockets.dial(LISTENER, { ...HOST, port: 8 })
    const seen: string[][] = []
    runtime.refuse = (verb) => {
      if (verb === 'exec') seen.push(os.descriptors.stored.filter((name) => /port|host/.test(name)))
      return undefined
    }
    await handlers.execProcess(request, neverAborted)
    expect(seen).toEqual([['from-port-8', 'p2-stdout-host']])
    expect(os.descriptors.stored).not.toContain('from-port-8')
  })
})
