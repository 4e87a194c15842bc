import type { ChildProcess } from 'node:child_process'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { projectRoot } from '../../../../src/build/project.ts'
import {
  ChangeStateRequest_Change as Change,
  Device,
  DeviceStatus_Plug as Plug,
  SnapshotRequest,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { daemonClient } from '../../../support/host-wing/running-daemon.ts'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { startDaemonProcess } from '../../../support/wing/daemon-process.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { lifePlan } from '../../../support/wing/real-wing.ts'
import { file } from '../../../support/wing/requests.ts'

const PRELOAD = join(projectRoot, 'test/support/wing/deaths/stop-at-writes.ts')
const key = 'web'
const TIMEOUT_MS = 300_000

describe('a daemon that stands still before a write to its registry', () => {
  const folder = temporaryFolder()
  const state = join(folder, 'state')
  const stops = join(folder, 'stops')
  const { request, data, other } = lifePlan(join(folder, 'disks'))
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

  const ensure: Call = (options) => client.instances.ensureInstance(request, options)
  const to =
    (change: Change): Call =>
    (options) =>
      client.instances.changeState({ key, change, graceMs: 100 }, options)
  const run = to(Change.RUN)
  const device = Device.fromPartial({ backend: 'data-file', port: 'port', disk: { serial: 'data' } })
  const plug: Call = (options) =>
    client.instances.plug({ key, deviceKey: 'data', device, backend: file(data) }, options)
  const get = () => client.instances.getInstance({ key })

  const CALLS: readonly Stopped[] = [
    { name: 'EnsureInstance', before: [], call: ensure, look: get, wanted: { state: State.PAUSED } },
    { name: 'run', before: [ensure], call: run, look: get, wanted: { state: State.RUNNING } },
    ...(
      [
        ['pause', Change.PAUSE, State.PAUSED],
        ['stop', Change.STOP, State.STOPPED],
        ['kill', Change.KILL, State.STOPPED],
      ] as const
    ).map(([name, change, state]) => ({
      ...{ name, before: [ensure, run], call: to(change), look: get },
      wanted: { state },
    })),
    {
      ...{ name: 'Plug', before: [ensure], call: plug, look: get },
      wanted: { devices: { data: { plug: Plug.PRESENT } } },
    },
    {
      ...{ name: 'Unplug', before: [ensure, plug], look: get },
      call: (options) => client.instances.unplug({ key, deviceKey: 'data', graceMs: 100 }, options),
      // The guest stands still, and keeps it.
      wanted: { devices: { data: { plug: Plug.LEAVING } } },
    },
    {
      ...{ name: 'ReplaceBackend', before: [ensure], look: get },
      call: (options) =>
        client.instances.replaceBackend({ key, backendKey: 'root-file', backend: file(other) }, options),
      wanted: { specification: { backends: { 'root-file': { file: { path: other } } } } },
    },
    {
      ...{ name: 'Snapshot', before: [ensure, run], isJournaled: true },
      call: (options) =>
        client.instances.snapshot(SnapshotRequest.fromPartial({ key, name: 'one' }), options),
      look: () => client.instances.listSnapshots({ key }),
      wanted: { snapshots: [{ name: 'one' }] },
    },
    {
      ...{ name: 'Remove', before: [ensure, run], isJournaled: true },
      call: (options) => client.instances.remove({ key }, options),
      look: () => client.instances.listInstances({}),
      wanted: { instances: [] },
    },
  ]

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

  it.each(CALLS)(
    'answers $name, at each write, also to a caller that has given up before',
    async ({ name, before, call, isJournaled = false, look, wanted }) => {
      let most = 0
      for (let number = 1; number <= Math.max(most, 1); number++) {
        for (const givesUp of [false, true]) {
          const at = `${name}, write ${number}${givesUp ? ', given up' : ''}`
          const metadata: Record<string, string> = isJournaled ? { 'idempotency-key': at } : {}
          for (const each of before) await each()
          writeFileSync(stops, '')
          const caller = new AbortController()
          const called = call({ signal: caller.signal, metadata })
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
            await called
            most = Math.max(most, seen)
          }
          rmSync(stops)
          // What stands since the last look has been before the file was gone.
          await stopped(client.instances.getMetrics({}), 0, () => {})
          await call({ metadata })
          expect(await look(), at).toMatchObject(wanted)
          expect((await client.instances.listInstances({})).instances.length, at).toBeLessThanOrEqual(1)
          if (name !== 'Remove') await client.instances.remove({ key })
          expect(leftovers(join(state, 'instances')), at).toEqual([])
        }
      }
      expect(most).toBeGreaterThan(0)
    },
    TIMEOUT_MS,
  )
})

type Call = (
  options?: Parameters<ReturnType<typeof daemonClient>['instances']['remove']>[1],
) => Promise<unknown>

interface Stopped {
  readonly name: string
  readonly before: readonly Call[]
  readonly call: Call
  /** Its repetition ends well with an idempotency key only. */
  readonly isJournaled?: true
  /** Answers what the call has left, which has this. */
  readonly look: () => Promise<unknown>
  readonly wanted: object
}

/** proc_pid_stat(5). */
function isStopped(pid: number): boolean {
  return / T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\)/, ''))
}
