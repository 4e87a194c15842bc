import { describe, expect, it } from 'vitest'
import { tellEnd } from '../../../src/handlers/process/process-events.ts'
import type { ExitRecord } from '../../../src/os/supervisor/supervisor.ts'
import { EventLog } from '../../../src/state/event-log.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'

describe('tellEnd', () => {
  it.each([
    [0, []],
    [1, ['c1']],
    [137, ['c1']],
  ])('looks for a kill that was not reported when a process ends with %i', async (exitCode, looked) => {
    const { clock } = new FakeOs()
    const events = new EventLog(new StateStore(new MemoryStateFiles()), {
      boottimeNs: () => clock.boottimeNs(),
      unixMs: () => 0,
    })
    const asked: string[] = []
    const oom = { look: async (key: string) => void asked.push(key) }
    const record: ExitRecord = {
      ...{ pid: 9, exitCode, signal: undefined, reapedAtNs: 0n },
      ...{ userTimeUs: 0n, systemTimeUs: 0n, maxRssKib: 0n },
    }
    tellEnd(
      { events, oom },
      {
        ...{ execId: 'x', beganNs: 0n, record: { key: 'c1', id: 'c1', oomKills: 0n } },
        process: { pid: 9, exit: Promise.resolve(record), starting: undefined },
      },
    )
    await expect.poll(() => events.exits()).toHaveLength(1)
    expect(asked).toEqual(looked)
  })
})
