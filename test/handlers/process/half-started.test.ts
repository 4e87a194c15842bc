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

/** Has the terminal of the next process come as the test says, whatever the runtime sends. */
function terminalComes({ os }: Machine, master: (signal: AbortSignal) => Promise<Fd>): () => void {
  const listen = os.consoles.listen.bind(os.consoles)
  os.consoles.listen = (path) => ({ ...listen(path), master })
  return () => {
    os.consoles.listen = listen
  }
}

/** A machine with container c1, whose processes of the runtime's are children of vminit as the agent is. */
async function withParents(): Promise<Machine> {
  const made = await machineWithContainer()
  for (const pid of ['self', '1001', '1002', '1003']) {
    await made.os.files.put(`/proc/${pid}/stat`, `1 (a b) S 1 1 1\n`)
  }
  const { onKill } = made.os.system
  made.os.system.onKill = (pid, signal) => {
    onKill(pid, signal)
    void made.os.files.removeFile(`/proc/${pid}/stat`)
  }
  return made
}

/** Files with this ending cannot be read until the function that is returned is called. */
function unreadable({ os }: Machine, ending: string): () => void {
  const readText = os.files.readText.bind(os.files)
  os.files.readText = async (path) => {
    if (path.endsWith(ending)) throw kernelError('read', path, 'EMFILE')
    return readText(path)
  }
  return () => {
    os.files.readText = readText
  }
}

describe('a process that the runtime has started', () => {
  it('is killed when its terminal cannot be had, and its exec id is free again', async () => {
    const made = await machineWithContainer()
    const before = await remains(made)
    const restore = terminalComes(made, async () => {
      throw kernelError('receive a descriptor at', 'tty', 'EMFILE')
    })
    await expect(made.handlers.execProcess(onTerminal, neverAborted)).rejects.toThrow('EMFILE')
    expect(made.os.system.signals).toEqual([{ pid: 1002, signal: 9 }])
    expect(await remains(made)).toMatchObject({ processes: 1, watches: before.watches, sleeps: 0 })
    restore()
    await made.handlers.execProcess(onTerminal, neverAborted)
  })

  it('is killed when no terminal comes', async () => {
    const made = await machineWithContainer()
    terminalComes(made, (signal) => abortable(new Promise<never>(() => {}), signal))
    const adding = made.handlers.execProcess(onTerminal, neverAborted)
    await new Promise(setImmediate)
    made.os.clock.advance(5000)
    await expect(adding).rejects.toThrow('exec in container c1: the runtime sent no terminal within 5 s')
    expect(made.runtime.processes.map(({ pid }) => pid)).toEqual([1001])
  })

  it('is found and killed when its pid cannot be had, and nobody else is', async () => {
    const made = await withParents()
    await made.handlers.execProcess(execRequest('c1', 'known'), neverAborted)
    const restore = unreadable(made, '/pid')
    const adding = made.handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    await expect(adding).rejects.toThrow('/pid: EMFILE')
    expect(made.os.system.signals).toEqual([{ pid: 1003, signal: 9 }])
    expect(made.runtime.processes.map(({ pid }) => pid)).toEqual([1001, 1002])
    expect(made.os.clock.sleeping).toBe(0)
    restore()
    await made.handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
  })

  it('is found and killed when the runtime was killed before it told the pid', async () => {
    const made = await withParents()
    const call = new AbortController()
    const run = made.os.tools.run.bind(made.os.tools)
    made.os.tools.run = async (argv, options) => {
      const result = await run(argv, options)
      if (!argv.includes('exec')) return result
      // The process is there, and the runtime goes on until it is killed.
      call.abort(cancelled())
      made.os.clock.advance(2000)
      return abortable(new Promise<never>(() => {}), options?.signal ?? neverAborted)
    }
    await expect(made.handlers.execProcess(execRequest('c1', 'e1'), call.signal)).rejects.toMatchObject({
      code: 'CANCELLED',
    })
    expect(made.runtime.processes.map(({ pid }) => pid)).toEqual([1001])
  })

  it('is found and killed when that happens to two at once, neither of which waits for the other', async () => {
    const made = await withParents()
    unreadable(made, '/pid')
    const adding = ['e1', 'e2'].map((id) => made.handlers.execProcess(execRequest('c1', id), neverAborted))
    const outcomes = await Promise.allSettled(adding)
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
    expect(made.runtime.processes.map(({ pid }) => pid)).toEqual([1001])
    expect(made.os.clock.sleeping).toBe(0)
  })

  it('is not taken for another one that began to be added meanwhile', async () => {
    const made = await withParents()
    unreadable(made, '/calls/2/pid')
    const readText = made.os.files.readText.bind(made.os.files)
    let later: Promise<void> | undefined
    made.os.files.readText = async (path) => {
      if (path.endsWith('/cgroup.procs')) {
        later ??= made.handlers.execProcess(execRequest('c1', 'later'), neverAborted)
        await expect.poll(() => made.runtime.processes).toHaveLength(3)
      }
      return readText(path)
    }
    const failing = made.handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    await expect(failing).rejects.toThrow('EMFILE')
    await later
    expect(made.os.system.signals).toEqual([{ pid: 1002, signal: 9 }])
    expect(made.runtime.processes.map(({ pid }) => pid)).toEqual([1001, 1003])
  })

  it('is not taken for another one that is just being added', async () => {
    const made = await withParents()
    const began = Promise.withResolvers<void>()
    const other = Promise.withResolvers<object>()
    const script = made.os.tools.run.bind(made.os.tools)
    made.os.tools.run = async (argv, options) => {
      const result = await script(argv, options)
      if (argv.includes('exec') && made.runtime.processes.length === 2) {
        began.resolve()
        await other.promise
      }
      return result
    }
    const slow = made.handlers.execProcess(execRequest('c1', 'slow'), neverAborted)
    await began.promise
    unreadable(made, '/calls/3/pid')
    const failing = made.handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    failing.catch(() => {})
    await new Promise(setImmediate)
    expect(made.os.system.signals).toEqual([])
    other.resolve({})
    await slow
    await expect(failing).rejects.toThrow('EMFILE')
    expect(made.os.system.signals).toEqual([{ pid: 1003, signal: 9 }])
  })

  it('is not waited for without end when it does not die', async () => {
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
