import { on } from 'node:events'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { silentLogger } from '../../../src/base/log.ts'
import { type DaemonClient, openDaemon } from '../../../src/client/daemon/daemon-client.ts'
import { NO_CONFIGURATION } from '../../../src/host/service/configuration.ts'
import { type Daemon, startDaemon } from '../../../src/host/service/daemon.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import { ensureImage } from '../../../src/image/ensure-image.ts'
import { ctl } from '../../support/ctl/run-ctl.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { CRUN, cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { foldersOf, startMicrovm } from '../../support/vm/microvm-process.ts'
import { leftovers } from '../../support/wing/leftovers.ts'

const folder = temporaryFolder()
const state = join(folder, 'state')
const socket = join(state, 'admin.sock')
const signal = AbortSignal.timeout(600_000)

describe.skipIf(cannotBoot() !== undefined)('./microvm run beside a daemon', () => {
  const env = { MICROVM_SOCKET: socket, MICROVM_REGISTRY: join(folder, 'machines') }
  let daemon: Daemon
  let client: DaemonClient

  beforeAll(async () => {
    await ensureImage({ progress })
    await ensureContainerRoot(progress)
    const acceleration = process.env.MICROVM_ACCEL
    const options = { stateFolder: state, configuration: NO_CONFIGURATION, mock: false, acceleration }
    daemon = await startDaemon({ ...options, log: silentLogger() })
    client = await openDaemon(socket, signal)
  })
  afterAll(async () => {
    // A machine that a failed test has left goes on without the daemon.
    for (const key of client === undefined ? [] : await keys()) await client.calls.remove({ key })
    for (const { name } of (await client?.calls.listTemplates({}))?.templates ?? [])
      await client.calls.removeTemplate({ name })
    client?.close()
    await daemon?.close()
  })

  const run = (...words: readonly string[]) => startMicrovm(['--cpus', '1', '--append', CRUN, ...words], env)

  async function keys(): Promise<readonly string[]> {
    const { instances } = await client.calls.listInstances({})
    return instances.map(({ properties }) => properties?.key ?? '')
  }

  /** How the machines of the daemon have changed after the change `after`, with the last change's number. */
  async function changes(after: bigint) {
    const caller = { tenant: undefined, signal, inStep: () => {} }
    for await (const { changes } of daemon.instances.watch({ after, once: true }, caller)) return changes
    return []
  }

  it('makes the machine in the daemon with --daemon, where agent-ctl finds it, and leaves nothing there', async () => {
    const running = run('--daemon', '--name', 'web', 'sh', '-c', 'read line; echo "got $line"; exit 7')
    await expect.poll(keys, { timeout: 60_000 }).toEqual(['web'])
    const second = await run('--daemon', '--name', 'web', '--memory', '300', 'true').result
    const refusal = 'microvm: instance web: exists already, want another --name\n'
    expect(second).toMatchObject({ status: 125, stdout: '', stderr: refusal })
    const listed = await ctl(['-a', 'microvm://web', '--wait', '-o', 'json', 'Check'], { env })
    expect(listed.stdout).toBe('{"status":"SERVING"}\n')
    running.stdin.end('a line\n')
    expect(await running.result).toMatchObject({ status: 7, stdout: 'got a line\n', stderr: '' })
    expect([await keys(), leftovers(state), foldersOf(running.pid)]).toEqual([[], [], []])
  })

  it('ends the machine in the daemon at Ctrl-C, also while it is being made', async () => {
    const script = "trap 'echo ignored' INT; echo up; while :; do sleep 0.1; done"
    const early = run('--daemon', 'true')
    await expect.poll(keys, { timeout: 60_000, interval: 1 }).toHaveLength(1)
    early.kill('SIGINT')
    expect(await early.result).toMatchObject({ status: 130, stdout: '' })
    expect([await keys(), leftovers(state)]).toEqual([[], []])

    const running = run('--daemon', 'sh', '-c', script)
    const output = on(running.stdout, 'data')
    await output.next()
    running.kill('SIGINT')
    // The first signal goes to the container.
    expect(String((await output.next()).value)).toBe('ignored\n')
    running.kill('SIGINT')
    expect(await running.result).toMatchObject({ status: 130 })
    expect([await keys(), leftovers(state)]).toEqual([[], []])
  })

  it('takes clones of a template with --warm, which do not boot, each with random numbers of its own', {
    timeout: 480_000,
  }, async () => {
    const draw = 'cat /proc/sys/kernel/random/uuid; read line; exit $line'
    const first = run('--warm', 'sh', '-c', draw)
    first.stdin.end('7\n')
    const made = await first.result
    const progress = /^microvm: making template-[0-9a-f]{12}, of which later runs are clones\n$/
    expect(made).toMatchObject({ status: 7, stderr: expect.stringMatching(progress) })
    const timed = run('--warm', '--json', 'sh', '-c', draw)
    const ended = run('--warm', '--name', 'own', 'sh', '-c', draw)
    timed.stdin.end('3\n')
    const uuid = String((await on(ended.stdout, 'data').next()).value)
    const own = (...words: readonly string[]) => ctl(['-a', 'microvm://own', ...words], { env })
    expect((await own('events')).stdout).toContain('microvm-rehearsal ended: status 0\n')
    expect((await own('-o', 'json', 'ListContainers')).stdout).not.toContain('rehearsal')
    for (const signal of ['SIGTERM', 'SIGINT'] as const) ended.kill(signal)
    const { stderr, status } = await ended.result
    expect(stderr).toBe('')
    // Of two signals that wait, the kernel may deliver either first.
    expect([130, 143]).toContain(status)
    const warm = await timed.result
    expect(warm.status).toBe(3)
    expect(new Set([made.stdout, warm.stdout, uuid]).size).toBe(3)
    const cold = await run('--daemon', '--json', 'true').result
    const phases = [warm, cold].map(({ stderr }) => Object.keys(JSON.parse(stderr)).slice(0, 2))
    expect(phases).toEqual([
      ['template', 'clone'],
      ['kernel', 'agent'],
    ])
    const { templates } = await client.calls.listTemplates({})
    expect(templates).toMatchObject([{ step: '', failure: '', clones: 0 }])
    await client.calls.removeTemplate({ name: templates[0]?.name ?? '' })
    expect([await keys(), leftovers(state)]).toEqual([[], []])
  })

  it('does not touch the daemon without --daemon', async () => {
    const before = (await changes(0n)).at(-1)?.sequence ?? 0n
    const { status, stdout, stderr } = await run('echo', 'own').result
    expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: 'own\n', stderr: '' })
    expect([await changes(before), leftovers(state)]).toEqual([[], []])
  })

  it("refuses what needs QEMU's user network in one sentence, and a daemon that does not run", async () => {
    const refused = startMicrovm(['--daemon', 'true'], { ...env, MICROVM_VSOCK: 'tcp' })
    expect(await refused.result).toMatchObject({
      status: 2,
      stderr:
        "microvm: --daemon: MICROVM_VSOCK=tcp needs QEMU's user network, which the daemon refuses: run without --daemon\n",
    })
    const none = await run('--daemon', '--socket', join(folder, 'none.sock'), 'true').result
    expect(none).toMatchObject({ status: 125 })
    expect(none.stderr).toMatch(/^microvm: daemon at .*none.sock: does not run; start it with/)
  })
})
