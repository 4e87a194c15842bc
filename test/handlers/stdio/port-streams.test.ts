import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import type { Fd } from '../../../src/os/streams/streams.ts'
import type { FakeProcess } from '../../support/handlers/fake-runtime.ts'
import { execRequest, type Machine, machineWithContainer } from '../../support/handlers/machine.ts'
import { readToEnd, write } from '../../support/handlers/stdio-ends.ts'
import { isPending, settle } from '../../support/pending.ts'

const KEY = { containerId: 'c1', execId: 'e1' }
const PORTS = { stdinPort: 7, stdoutPort: 8, stderrPort: 9 }

interface ConnectedProcess extends Machine {
  readonly process: FakeProcess
  readonly stdin: Fd
  readonly stdout: Fd
  readonly stderr: Fd
}

async function withPorts(): Promise<ConnectedProcess> {
  const made = await machineWithContainer()
  const { hostSockets } = made.os
  const ends = [hostSockets.accept(7), hostSockets.accept(8), hostSockets.accept(9)] as const
  await made.handlers.execProcess(execRequest('c1', 'e1', {}, PORTS), neverAborted)
  const [stdin, stdout, stderr] = await Promise.all(ends)
  return { ...made, process: made.runtime.last(), stdin, stdout, stderr }
}

describe('a process whose streams have ports', () => {
  it('has its bytes copied both ways, and each end closes the connection', async () => {
    const { os, process, stdin, stdout, stderr, runtime } = await withPorts()
    write(os, stdin, 'in')
    os.streams.close(stdin)
    expect(await readToEnd(os, process.stdin)).toBe('in')
    write(os, process.stdout, 'out')
    write(os, process.stderr, 'err')
    runtime.end(process.pid, { code: 0 })
    expect([await readToEnd(os, stdout), await readToEnd(os, stderr)]).toEqual(['out', 'err'])
    expect(() => write(os, stdout, 'late')).toThrow('EPIPE')
  })

  it('makes the stream calls fail: they have no stream', async () => {
    const { handlers } = await withPorts()
    const noReader = { code: 'INTERNAL', message: 'cannot get stream reader' }
    const noWriter = { code: 'INTERNAL', message: 'Cannot get writer' }
    await expect(handlers.readStdout({ ...KEY, len: 9 }, neverAborted)).rejects.toMatchObject(noReader)
    await expect(handlers.readStderr({ ...KEY, len: 9 }, neverAborted)).rejects.toMatchObject(noReader)
    const data = Buffer.from('x')
    await expect(handlers.writeStdin({ ...KEY, data }, neverAborted)).rejects.toMatchObject(noWriter)
  })

  it('reads the end of stdin after CloseStdin, after the bytes of the host', async () => {
    const { os, handlers, process, stdin } = await withPorts()
    write(os, stdin, 'sent')
    await handlers.closeStdin(KEY, neverAborted)
    expect(await readToEnd(os, process.stdin)).toBe('sent')
    await settle()
    expect(() => write(os, stdin, 'more')).toThrow('EPIPE')
  })

  it('has its output read by calls although vminit has no room for the end of its input', async () => {
    const { os, runtime, handlers } = await machineWithContainer()
    const accepted = os.hostSockets.accept(7)
    await handlers.execProcess(execRequest('c1', 'e1', {}, { stdinPort: 7 }), neverAborted)
    // More than the process's pipe holds, so the input has not ended yet.
    const stdin = await accepted
    for (let piece = 0; piece < 4; piece++) {
      write(os, stdin, 'x'.repeat(60_000))
      await settle()
    }
    os.descriptors.capacity = os.descriptors.stored.length
    await expect(handlers.closeStdin(KEY, neverAborted)).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
    os.descriptors.capacity = Number.POSITIVE_INFINITY
    write(os, runtime.last().stdout, 'out')
    const output = await handlers.readStdout({ ...KEY, len: 9 }, neverAborted)
    expect(Buffer.from(output.read()).toString()).toBe('out')
  })

  it('gets EPIPE when the host closes the connection', async () => {
    const { os, process, stdout } = await withPorts()
    os.streams.close(stdout)
    await settle()
    expect(() => write(os, process.stdout, 'x')).toThrow('EPIPE')
    write(os, process.stderr, 'still read')
  })

  it('is reported once all its output is delivered, however slow the reader', async () => {
    const { os, handlers, process, stdout, runtime } = await withPorts()
    const data = 'x'.repeat(65_536)
    write(os, process.stdout, data)
    await settle()
    write(os, process.stdout, data)
    const waiting = handlers.waitProcess(KEY, neverAborted)
    runtime.end(process.pid, { code: 3 })
    expect(await isPending(waiting)).toBe(true)
    os.clock.advance(60_000)
    expect(await isPending(waiting)).toBe(true)
    expect((await readToEnd(os, stdout)).length).toBe(2 * data.length)
    expect((await waiting).status).toBe(3)
  })

  it('is reported 0.5 s after its end although its pipes are still open', async () => {
    const { os, handlers, process, stdout, runtime } = await withPorts()
    const held = os.streams.duplicate(process.stdout)
    write(os, process.stdout, 'all')
    const waiting = handlers.waitProcess(KEY, neverAborted)
    runtime.end(process.pid, { code: 0 })
    await settle()
    os.clock.advance(499)
    expect(await isPending(waiting)).toBe(true)
    os.clock.advance(1)
    expect((await waiting).status).toBe(0)
    expect(await readToEnd(os, stdout)).toBe('all')
    expect(() => write(os, held, 'x')).toThrow('EPIPE')
  })

  it('ends with RemoveContainer although the host does not read', async () => {
    const { os, handlers, process } = await withPorts()
    write(os, process.stdout, 'x'.repeat(65_536))
    await settle()
    write(os, process.stdout, 'x'.repeat(65_536))
    const waiting = handlers.waitProcess(KEY, neverAborted)
    await handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    expect((await waiting).status).toBe(137)
  })

  it('may use a port for one stream and calls for the others', async () => {
    const { os, handlers, runtime } = await machineWithContainer()
    const end = os.hostSockets.accept(8)
    await handlers.execProcess(execRequest('c1', 'e1', {}, { stdoutPort: 8 }), neverAborted)
    const process = runtime.last()
    write(os, process.stdout, 'to the port')
    write(os, process.stderr, 'to the call')
    await handlers.writeStdin({ ...KEY, data: Buffer.from('by call') }, neverAborted)
    expect(
      Buffer.from((await handlers.readStderr({ ...KEY, len: 99 }, neverAborted)).read()).toString(),
    ).toBe('to the call')
    expect(os.streams.tryRead(process.stdin, 9)?.toString()).toBe('by call')
    runtime.end(process.pid, { code: 0 })
    expect(await readToEnd(os, await end)).toBe('to the port')
  })

  it('may use one connection for both directions of a terminal', async () => {
    const { os, handlers, runtime } = await machineWithContainer()
    const accepted = os.hostSockets.accept(7)
    const ports = { stdinPort: 7, stdoutPort: 7 }
    await handlers.execProcess(execRequest('c1', 'e1', { Terminal: true }, ports), neverAborted)
    const [{ stdin: slave, pid }, end] = [runtime.last(), await accepted]
    write(os, end, 'typed')
    await os.streams.readable(slave)
    expect(os.streams.tryRead(slave, 9)?.toString()).toBe('typed')
    write(os, slave, 'shown')
    await handlers.ttyWinResize({ ...KEY, row: 5, column: 6 }, neverAborted)
    expect([...os.streams.windowSizes.values()]).toEqual([{ rows: 5, columns: 6 }])
    runtime.end(pid, { code: 0 })
    expect(await readToEnd(os, end)).toBe('shown')
    expect(() => write(os, end, 'x')).toThrow('EPIPE')
  })

  it('has its stderr connection closed at once when it has a terminal', async () => {
    const { os, handlers } = await machineWithContainer()
    const ends = [os.hostSockets.accept(7), os.hostSockets.accept(8), os.hostSockets.accept(9)] as const
    await handlers.execProcess(execRequest('c1', 'e1', { Terminal: true }, PORTS), neverAborted)
    expect(await readToEnd(os, await ends[2])).toBe('')
    expect(os.streams.tryRead(await ends[1], 1)).toBeUndefined()
  })

  it('is not started when two of its streams name one port', async () => {
    const { handlers, runtime } = await machineWithContainer()
    const request = execRequest('c1', 'e1', {}, { stdoutPort: 8, stderrPort: 8 })
    await expect(handlers.execProcess(request, neverAborted)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'stdout_port and stderr_port are both 8: without a terminal each stream has a port of its own',
    })
    expect(runtime.calls).toEqual(['create', 'start'])
  })
})
