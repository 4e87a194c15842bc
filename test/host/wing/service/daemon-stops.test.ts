import type { ChildProcess } from 'node:child_process'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { projectRoot } from '../../../../src/build/project.ts'
import {
  ChangeStateRequest_Change as Change,
  type Instance,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { daemonClient } from '../../../support/host-wing/running-daemon.ts'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { startDaemonProcess } from '../../../support/wing/daemon-process.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { lifePlan } from '../../../support/wing/real-wing.ts'

const PRELOAD = join(projectRoot, 'test/support/wing/deaths/stop-at-writes.ts')
const key = 'web'
const TIMEOUT_MS = 300_000

describe('a daemon that stands still before a write to its registry', () => {
  const folder = temporaryFolder()
  const state = join(folder, 'state')
  const stops = join(folder, 'stops')
  const { request } = lifePlan(join(folder, 'disks'))
  let daemon: ChildProcess
  let client: ReturnType<typeof daemonClient>
  let pid: number

  beforeAll(async () => {
    daemon = await startDaemonProcess(state, {
      env: { NODE_OPTIONS: `--import=${PRELOAD}`, STOP_WHILE: stops },
    })
    pid = daemon.pid ?? 0
    client = daemonClient(join(state, 'admin.sock'))
  })

  afterAll(async () => {
    client.close()
    // It stands after a failure only.
    rmSync(stops, { force: true })
    process.kill(pid, 'SIGCONT')
    await endChild(daemon)
  })

  const ensure = (signal?: AbortSignal) => client.instances.ensureInstance(request, { signal })
  const run = (signal?: AbortSignal) =>
    client.instances.changeState({ key, change: Change.RUN, graceMs: 0 }, { signal })

  /** Lets the daemon go on at once at all its stops but that of this number, where `stand` is over first. Returns how many there were. */
  async function stopped(call: Promise<unknown>, number: number, stand: () => unknown): Promise<number> {
    let isOver = false
    const over = call
      .catch(() => {})
      .finally(() => {
        isOver = true
      })
    let seen = 0
    while (!isOver || isStopped(pid)) {
      if (isStopped(pid)) {
        seen += 1
        if (seen === number) await stand()
        process.kill(pid, 'SIGCONT')
      }
      await delay(1)
    }
    await over
    return seen
  }

  it.each([
    ['EnsureInstance', ensure, State.PAUSED],
    ['ChangeState', run, State.RUNNING],
  ] as const)(
    'answers %s, at each write, also to a caller that has given up before',
    async (name, call, wanted) => {
      let most = 1
      for (let number = 1; number <= most; number++) {
        for (const givesUp of [false, true]) {
          const at = `${name}, write ${number}${givesUp ? ', given up' : ''}`
          if (call === run) await ensure()
          writeFileSync(stops, '')
          const caller = new AbortController()
          const called: Promise<Instance> = call(caller.signal)
          const lost = called.then(
            () => '',
            ({ code }) => code,
          )
          const seen = await stopped(called, number, async () => {
            if (!givesUp) return
            caller.abort()
            expect(await lost, at).toBe('CANCELLED')
          })
          if (!givesUp) {
            expect((await called).state, at).toBe(wanted)
            most = Math.max(most, seen)
          }
          rmSync(stops)
          // What stands since the last look has been before the file was gone.
          await stopped(client.instances.getMetrics({}), 0, () => {})
          expect(await call(), at).toMatchObject({ state: wanted, properties: { key } })
          expect((await client.instances.listInstances({})).instances, at).toHaveLength(1)
          await client.instances.remove({ key })
          expect(leftovers(join(state, 'instances')), at).toEqual([])
        }
      }
      expect(most).toBeGreaterThan(1)
    },
    TIMEOUT_MS,
  )
})

/** proc_pid_stat(5). */
function isStopped(pid: number): boolean {
  return / T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\)/, ''))
}
