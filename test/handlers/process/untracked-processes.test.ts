import { describe, expect, it } from 'vitest'
import { abortable, cancelled, neverAborted } from '../../../src/base/abort.ts'
import { killUntracked } from '../../../src/handlers/process/exec-process.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { execRequest, type Machine, machineWithContainer } from '../../support/handlers/machine.ts'

/** The runtime's processes are children of vminit, as the agent is. */
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

function makeUnreadable({ os }: Machine, ending: string): () => void {
  const readText = os.files.readText.bind(os.files)
  os.files.readText = async (path) => {
    if (path.endsWith(ending)) throw kernelError('read', path, 'EMFILE')
    return readText(path)
  }
  return () => {
    os.files.readText = readText
  }
}

describe('the search for untracked processes', () => {
  it('kills only the process whose pid file cannot be read', async () => {
    const made = await withParents()
    await made.handlers.execProcess(execRequest('c1', 'tracked'), neverAborted)
    const restore = makeUnreadable(made, '/pid')
    const adding = made.handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    await expect(adding).rejects.toThrow('/pid: EMFILE')
    expect(made.os.system.signals).toEqual([{ pid: 1003, signal: 9 }])
    expect(made.runtime.processes.map(({ pid }) => pid)).toEqual([1001, 1002])
    expect(made.os.clock.sleeping).toBe(0)
    restore()
    await made.handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
  })

  it('kills the process of a runtime that is killed before it reports the pid', async () => {
    const made = await withParents()
    const call = new AbortController()
    const run = made.os.tools.run.bind(made.os.tools)
    made.os.tools.run = async (argv, options) => {
      const result = await run(argv, options)
      if (!argv.includes('exec')) return result
      // The process exists, and the runtime keeps running until it is killed.
      call.abort(cancelled())
      made.os.clock.advance(2000)
      return abortable(new Promise<never>(() => {}), options?.signal ?? neverAborted)
    }
    await expect(made.handlers.execProcess(execRequest('c1', 'e1'), call.signal)).rejects.toMatchObject({
      code: 'CANCELLED',
    })
    expect(made.runtime.processes.map(({ pid }) => pid)).toEqual([1001])
  })

  it('finds the processes of two failed execs at once', async () => {
    const made = await withParents()
    makeUnreadable(made, '/pid')
    const adding = ['e1', 'e2'].map((id) => made.handlers.execProcess(execRequest('c1', id), neverAborted))
    const outcomes = await Promise.allSettled(adding)
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
    expect(made.runtime.processes.map(({ pid }) => pid)).toEqual([1001])
    expect(made.os.clock.sleeping).toBe(0)
  })

  it('spares a process whose exec begins during the search', async () => {
    const made = await withParents()
    makeUnreadable(made, '/calls/p2/pid')
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

  it('spares a process whose exec is still in progress', async () => {
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
    makeUnreadable(made, '/calls/p3/pid')
    const failing = made.handlers.execProcess(execRequest('c1', 'e1'), neverAborted)
    failing.catch(() => {})
    await new Promise(setImmediate)
    expect(made.os.system.signals).toEqual([])
    other.resolve({})
    await slow
    await expect(failing).rejects.toThrow('EMFILE')
    expect(made.os.system.signals).toEqual([{ pid: 1003, signal: 9 }])
  })
})

describe('killUntracked', () => {
  it('kills the untracked children of vminit, and waits until they are reaped', async () => {
    const os = new FakeOs()
    const parents = { self: 1, 10: 1, 11: 1, 12: 11 }
    for (const [pid, parent] of Object.entries(parents)) {
      await os.files.put(`/proc/${pid}/stat`, `${pid} (a) b) S ${parent} 0 0\n`)
      os.system.processes.add(Number(pid))
    }
    let isKilled = false
    const killed = killUntracked(os, [10, 11, 12, 13], new Set([10])).then(() => {
      isKilled = true
    })
    await new Promise(setImmediate)
    expect(os.system.signals).toEqual([{ pid: 11, signal: 9 }])
    expect(isKilled).toBe(false)
    os.exits.exit(11, { signal: 9 })
    await killed
    expect(os.exits.openWatches).toBe(0)
  })
})
