import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { readStdout } from '../../../src/handlers/process/stdio-calls.ts'
import { NO_CALLER } from '../../../src/state/request.ts'
import {
  containerRequest,
  type Machine,
  machineWithContainer,
  machineWithSandbox,
} from '../../support/handlers/machine.ts'
import { isPending } from '../../support/pending.ts'

const init = { containerId: 'c1', execId: '' }
const exec = { containerId: 'c1', execId: 'e1' }

type Handlers = Machine['handlers']

describe('the streams of a process', () => {
  it('carry stdin, stdout and stderr', async () => {
    const { os, handlers, runtime } = await machineWithContainer()
    const { stdin, stdout, stderr } = runtime.last()
    expect(await handlers.writeStdin({ ...init, data: Buffer.from('in') }, neverAborted)).toMatchObject({
      len: 2,
    })
    expect(os.streams.tryRead(stdin, 9)?.toString()).toBe('in')
    os.streams.tryWrite(stdout, Buffer.from('out'))
    os.streams.tryWrite(stderr, Buffer.from('err'))
    const read = async (call: typeof handlers.readStdout) =>
      Buffer.from((await call({ ...init, len: 9 }, neverAborted)).read()).toString()
    expect([await read(handlers.readStdout), await read(handlers.readStderr)]).toEqual(['out', 'err'])
  })

  it.each([
    [
      'WriteStdin without data',
      (handlers: Handlers) => handlers.writeStdin({ ...init, data: Buffer.alloc(0) }, neverAborted),
    ],
    ['CloseStdin', (handlers: Handlers) => handlers.closeStdin(init, neverAborted)],
  ])('%s ends stdin, and can be repeated', async (_what, close) => {
    const { os, handlers, runtime } = await machineWithContainer()
    await close(handlers)
    await close(handlers)
    expect(os.streams.tryRead(runtime.last().stdin, 9)).toHaveLength(0)
    await expect(
      handlers.writeStdin({ ...init, data: Buffer.from('x') }, neverAborted),
    ).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'Cannot get writer',
    })
  })

  it('share one terminal, whose size can be set', async () => {
    const { os, handlers, runtime } = await machineWithContainer({ Terminal: true })
    os.streams.tryWrite(runtime.last().stdout, Buffer.from('$ '))
    expect(
      Buffer.from((await handlers.readStderr({ ...init, len: 9 }, neverAborted)).read()).toString(),
    ).toBe('$ ')
    await handlers.ttyWinResize({ ...init, row: 40, column: 100 }, neverAborted)
    expect([...os.streams.windowSizes.values()]).toEqual([{ rows: 40, columns: 100 }])
    await handlers.closeStdin(init, neverAborted)
    os.streams.tryWrite(runtime.last().stdout, Buffer.from('bye'))
    expect(
      Buffer.from((await handlers.readStdout({ ...init, len: 9 }, neverAborted)).read()).toString(),
    ).toBe('bye')
  })

  it('can be read before the start', async () => {
    const { handlers, os, runtime } = await machineWithSandbox()
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    const reading = handlers.readStdout({ ...init, len: 9 }, neverAborted)
    expect(await isPending(reading)).toBe(true)
    os.streams.tryWrite(runtime.last().stdout, Buffer.from('x'))
    // The broker may take the unread bytes out of the agent's file.
    expect((await reading).place).toBeDefined()
    expect(Buffer.from((await reading).read()).toString()).toBe('x')
  })

  it.each([
    [
      'resizing a process without a terminal',
      (h: Handlers) => h.ttyWinResize({ ...init, row: 1, column: 1 }, neverAborted),
      'UNAVAILABLE',
      'no tty',
    ],
    [
      'writing to an unknown container',
      (h: Handlers) => h.writeStdin({ ...init, containerId: 'c9', data: Buffer.from('x') }, neverAborted),
      'INTERNAL',
      'Invalid container id',
    ],
    [
      'writing to an unknown process',
      (h: Handlers) => h.writeStdin({ ...exec, data: Buffer.from('x') }, neverAborted),
      'INTERNAL',
      'Process not found: invalid exec id',
    ],
    [
      'reading from an unknown container',
      (h: Handlers) => h.readStdout({ ...init, containerId: 'c9', len: 1 }, neverAborted),
      'INVALID_ARGUMENT',
      'Invalid container id',
    ],
    [
      'reading from an unknown process',
      (h: Handlers) => h.readStderr({ ...exec, len: 1 }, neverAborted),
      'NOT_FOUND',
      'Process not found: invalid exec id',
    ],
    [
      'closing stdin in an unknown container',
      (h: Handlers) => h.closeStdin({ ...init, containerId: 'c9' }, neverAborted),
      'INVALID_ARGUMENT',
      'Invalid container id',
    ],
  ])('%s fails', async (_what, call, code, message) => {
    const { handlers } = await machineWithContainer()
    await expect(call(handlers)).rejects.toMatchObject({ code, message })
  })

  it.each([
    ['process', exec],
    ['container', { containerId: 'c9', execId: '' }],
  ])('end for a read that the previous agent had, when its %s is gone', async (_what, gone) => {
    const { context } = await machineWithContainer()
    const read = (sentBefore: boolean) =>
      readStdout(context, { ...gone, len: 9 }, { ...NO_CALLER, sentBefore })
    expect(await read(true)).toHaveLength(0)
    await expect(read(false)).rejects.toThrow()
  })
})
