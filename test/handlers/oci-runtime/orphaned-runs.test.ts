import { describe, expect, it } from 'vitest'
import { SIGKILL } from '../../../src/base/signals.ts'
import { killOrphanedRuns, orphanedRunsEnded } from '../../../src/handlers/oci-runtime/orphaned-runs.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

const ROOT = '/run/microvm-agent/state'
const SEARCH = { root: ROOT, isContained: async (pid: number) => pid === 40 }

/** A machine whose agent is a child of vminit, pid 7. */
async function machine(): Promise<FakeOs> {
  const os = new FakeOs()
  await addProcess(os, 'self', { parent: 7, argv: ['node', 'agent.cjs'] })
  os.system.onKill = (pid, signal) => {
    os.system.processes.delete(pid)
    os.exits.exit(-pid, { signal })
  }
  return os
}

async function addProcess(
  os: FakeOs,
  pid: number | 'self',
  { parent, argv }: { readonly parent: number; readonly argv: readonly string[] },
): Promise<void> {
  await os.files.put(`/proc/${pid}/stat`, `${pid} (a) name) S ${parent} 1 1 0 -1`)
  await os.files.put(`/proc/${pid}/cmdline`, `${argv.join('\0')}\0`)
  if (pid !== 'self') os.system.processes.add(-pid)
}

describe('killOrphanedRuns', () => {
  it('kills the process groups of orphaned runs, and waits for their end', async () => {
    const os = await machine()
    await addProcess(os, 30, { parent: 7, argv: ['runc', '--root', ROOT, 'create', 'c1'] })
    await addProcess(os, 31, { parent: 7, argv: ['runc', '--root', ROOT, 'exec', 'c2'] })
    await killOrphanedRuns(os, SEARCH)
    expect(os.system.signals).toEqual([
      { pid: -30, signal: SIGKILL },
      { pid: -31, signal: SIGKILL },
    ])
    expect(os.exits.openWatches).toBe(0)
  })

  it('leaves runs of other parents, other runs and other orphans alone', async () => {
    const os = await machine()
    await addProcess(os, 30, { parent: 1, argv: ['runc', '--root', ROOT, 'create', 'c1'] })
    await addProcess(os, 31, { parent: 7, argv: ['runc', '--root', '/run/other/state', 'create', 'c1'] })
    await addProcess(os, 32, { parent: 7, argv: ['sleep', '1000'] })
    await os.files.makeDirectories('/proc/33')
    await killOrphanedRuns(os, SEARCH)
    expect(os.system.signals).toEqual([])
  })

  it('accepts a run that ends before it is killed', async () => {
    const os = await machine()
    await addProcess(os, 30, { parent: 7, argv: ['runc', '--root', ROOT, 'create', 'c1'] })
    os.system.processes.delete(-30)
    const ending = killOrphanedRuns(os, SEARCH)
    os.exits.exit(30, { code: 0 })
    await ending
    expect(os.system.signals).toEqual([])
  })

  it("leaves a container's first process alone, which has crun's arguments until its start", async () => {
    const os = await machine()
    await addProcess(os, 40, { parent: 7, argv: ['crun', '--root', ROOT, 'create', 'c1'] })
    await killOrphanedRuns(os, SEARCH)
    expect(os.system.signals).toEqual([])
  })
})

describe('orphanedRunsEnded', () => {
  it('waits for runs, and not for a first process that awaits its start', async () => {
    const os = await machine()
    await addProcess(os, 30, { parent: 7, argv: ['crun', '--root', ROOT, 'update', 'c1'] })
    await addProcess(os, 40, { parent: 7, argv: ['crun', '--root', ROOT, 'create', 'c1'] })
    const ended = orphanedRunsEnded(os, SEARCH, { word: 'c1', sinceMs: os.clock.monotonicMs() })
    os.exits.exit(30, { code: 0 })
    await ended
    expect(os.system.signals).toEqual([])
  })
})
