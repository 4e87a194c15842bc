import { spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type RunningDaemon, runMockDaemon } from '../../../support/host-wing/running-daemon.ts'
import { ensureRequest } from '../../../support/wing/requests.ts'
import { parseMetrics } from '../../guest/prometheus-client.ts'
import { checkMetrics } from '../../guest/promtool.ts'

const UIDS = { anne: 54_321, bob: 54_322 }

const CONNECT = `
  const socket = require('node:net').connect(process.argv[1])
  socket.on('connect', () => { console.log('connected'); socket.destroy() })
  socket.on('error', ({ code }) => console.log(code))`

describe('the sockets of a daemon', () => {
  let outer: string
  let running: RunningDaemon

  beforeEach(async () => {
    // Other users have to pass through this one.
    outer = mkdtempSync(join(tmpdir(), 'microvm-service-'))
    chmodSync(outer, 0o711)
    const tenants = Object.entries(UIDS).map(([name, uid]) => ({ name, uid, folders: [] }))
    running = await runMockDaemon({ folder: join(outer, 'state'), configuration: { tenants } })
  })

  afterEach(async () => {
    await running.close()
    rmSync(outer, { recursive: true })
  })

  function connectAs(uid: number, path: string): string {
    const user = [`--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--inh-caps=-all']
    const program = [process.execPath, '-e', CONNECT, join(running.folder, path)]
    const { stdout, stderr } = spawnSync('setpriv', [...user, ...program], { encoding: 'utf8', cwd: '/' })
    return stdout.trim() || stderr
  }

  it('belong to their tenants, who reach no other', () => {
    expect(statSync(join(running.folder, 'tenants/anne.sock'))).toMatchObject({ uid: UIDS.anne })
    expect(connectAs(UIDS.anne, 'tenants/anne.sock')).toBe('connected')
    for (const path of ['tenants/bob.sock', 'admin.sock']) expect(connectAs(UIDS.anne, path)).toBe('EACCES')
  })

  it('give metrics that the parsers of Prometheus read', async () => {
    const { instances } = running.client()
    await instances.ensureInstance(ensureRequest('a'))
    await instances.getInstance({ key: 'b' }).catch(() => {})
    const { text } = await instances.getMetrics({})
    expect(await checkMetrics(text)).toEqual([])
    const families = parseMetrics(text)
    const of = (name: string) => families.find((family) => family.name === name)
    expect(of('microvm_instances')).toMatchObject({
      type: 'gauge',
      samples: [{ labels: { state: 'paused' } }],
    })
    const [service] = Object.values(of('microvm_daemon_calls_in_flight')?.samples[0]?.labels ?? {})
    expect(service).toBe('microvm.instance.v1.InstanceService/GetMetrics')
    expect(of('microvm_daemon_calls')?.samples.map(({ labels }) => labels)).toEqual([
      { method: 'microvm.instance.v1.InstanceService/EnsureInstance', code: 'OK' },
      { method: 'microvm.instance.v1.InstanceService/GetInstance', code: 'NOT_FOUND' },
    ])
    expect(of('microvm_daemon_call_seconds')?.type).toBe('histogram')
  })
})
