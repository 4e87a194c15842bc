import { describe, expect, it } from 'vitest'
import { abortable, cancelled, neverAborted } from '../../../src/base/abort.ts'
import { kernelError } from '../../../src/os/errors.ts'
import type { Fd } from '../../../src/os/streams/streams.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import {
  containerRequest,
  execRequest,
  type Machine,
  machineWithContainer,
  machineWithSandbox,
  remains,
} from '../../support/handlers/machine.ts'

const onTerminal = execRequest('c1', 'e1', { Terminal: true })

/** Replaces the terminal that the runtime sends by `master`. Returns a function that restores it. */
function replaceTerminal({ os }: Machine, master: (signal: AbortSignal) => Promise<Fd>): () => void {
  const listen = os.consoles.listen.bind(os.consoles)
  os.consoles.listen = (path) => ({ ...listen(path), master })
  return () => {
    os.consoles.listen = listen
  }
}

describe('launching a process', () => {
  it('kills a started process when its terminal cannot be received, and frees the exec id', async () => {
    const made = await machineWithContainer()
    const before = await remains(made)
    const restore = replaceTerminal(made, async () => {
      throw kernelError('receive a descriptor at', 'tty', 'EMFILE')
    })
    await expect(made.handlers.execProcess(onTerminal, neverAborted)).rejects.toThrow('EMFILE')
    expect(made.os.system.signals).toEqual([{ pid: 1002, signal: 9 }])
    const { watches } = before
    expect(await remains(made)).toMatchObject({ processes: 1, watches, keptExits: 1, sleeps: 0 })
    restore()
    await made.handlers.execProcess(onTerminal, neverAborted)
  })

  it('kills a started process when no terminal arrives', async () => {
    const made = await machineWithContainer()
    replaceTerminal(made, (signal) => abortable(new Promise<never>(() => {}), signal))
    const adding = made.handlers.execProcess(onTerminal, neverAborted)
    await new Promise(setImmediate)
    made.os.clock.advance(5000)
    await expect(adding).rejects.toThrow('exec in container c1: the runtime sent no terminal within 5 s')
    expect(made.runtime.processes.map(({ pid }) => pid)).toEqual([1001])
  })

  it('sends no signal to a process that was reaped before the launch failed', async () => {
    const made = await machineWithContainer()
    const call = new AbortController()
    made.runtime.refuse = async () => {
      made.os.exits.exit(1002, { code: 0 })
      call.abort(cancelled())
      return undefined
    }
    await expect(made.handlers.execProcess(execRequest('c1', 'e1'), call.signal)).rejects.toMatchObject({
      code: 'CANCELLED',
    })
    expect(made.os.system.signals).toEqual([])
  })

  it('succeeds although the console socket cannot be removed', async () => {
    const made = await machineWithContainer()
    const listen = made.os.consoles.listen.bind(made.os.consoles)
    made.os.consoles.listen = (path) => ({
      ...listen(path),
      close: async () => {
        throw kernelError('unlink', path, 'EROFS')
      },
    })
    await made.handlers.execProcess(onTerminal, neverAborted)
    expect(made.runtime.processes.map(({ pid }) => pid)).toEqual([1001, 1002])
  })

  it('fails alone when vminit refuses a descriptor', async () => {
    const made = await machineWithContainer()
    const { descriptors } = made.os
    const held = Promise.withResolvers<undefined>()
    made.runtime.refuse = () => held.promise
    descriptors.capacity = descriptors.stored.length
    const refused = made.handlers.execProcess(onTerminal, neverAborted)
    await expect.poll(() => made.runtime.calls).toContain('exec')
    descriptors.capacity = Number.POSITIVE_INFINITY
    made.runtime.refuse = () => undefined
    await made.handlers.execProcess(execRequest('c1', 'e2'), neverAborted)
    held.resolve(undefined)
    await expect(refused).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
    expect(made.runtime.processes.map(({ pid }) => pid)).toEqual([1001, 1002])
  })

  it('waits at most 10 s for the end of a killed process', async () => {
    const { lines, log } = recordingLog()
    const made = await machineWithSandbox({ log })
    await made.handlers.createContainer(containerRequest('c1'), neverAborted)
    made.os.system.onKill = () => {}
    const call = new AbortController()
    made.runtime.refuse = async () => {
      call.abort(cancelled())
      return undefined
    }
    const adding = made.handlers.execProcess(execRequest('c1', 'e1'), call.signal)
    await new Promise(setImmediate)
    made.os.clock.advance(10_000)
    await expect(adding).rejects.toMatchObject({ code: 'CANCELLED' })
    expect(lines.map(({ fields }) => fields.error)).toContain(
      'process 1002: killed, and not ended within 10 s',
    )
  })
})
