import { execFileSync } from 'node:child_process'
import { cpSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import { connectMachine } from '../../../src/client/daemon/connect-machine.ts'
import { LifecycleDefinition } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { ChangeStateRequest_Change as Change } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { Stage as ContainerStage } from '../../../src/gen/state/host/linuxcontainer.ts'
import { Stage as PodStage } from '../../../src/gen/state/host/pod.ts'
import { Stage as ProcessStage } from '../../../src/gen/state/host/process.ts'
import { readRing } from '../../../src/host/instance/holder/holder-files.ts'
import { restoreInstance } from '../../../src/host/migration/payloads/saved-instance.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { specToProto } from '../../../src/host/spec/to-proto.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import { ensureImage } from '../../../src/image/ensure-image.ts'
import { guestSpec } from '../../../src/microvm/run/guest-spec.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { podOf } from '../../support/containers/pod.ts'
import { daemonClient } from '../../support/host-wing/running-daemon.ts'
import { microvm } from '../../support/microvm/run-microvm.ts'
import { endChild } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { CRUN, cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { ROOT } from '../../support/vm/guest-pod.ts'
import { startDaemonProcess } from '../../support/wing/daemon-process.ts'

const LINES = 300
const COUNT = `i=0; while [ $i -lt ${LINES} ]; do echo line $i; i=$((i+1)); usleep 20000; done`
const NAMES = ['a', 'b', 'c'] as const
const BOOT_MS = 120_000

/** A daemon with a state folder of its own, as another host has it. */
async function startHost(state: string) {
  const daemon = await startDaemonProcess(state)
  const socket = join(state, 'admin.sock')
  const client = daemonClient(socket)
  const connected = async () => {
    const dialer = { connect: (signal: AbortSignal) => connectMachine(socket, 'web', signal) }
    return await connectAgent(dialer, AbortSignal.timeout(BOOT_MS))
  }
  return {
    ...client,
    connected,
    run: (...words: readonly string[]) => microvm([...words, '--socket', socket]),
    own: () => join(state, 'instances', readdirSync(join(state, 'instances'))[0] ?? ''),
    end: async () => {
      await client.instances.remove({ key: 'web' }).catch(() => {})
      client.close()
      await endChild(daemon)
    },
  }
}

describe.skipIf(cannotBoot() !== undefined)('a pod that is suspended', { timeout: 180_000 }, () => {
  const folder = temporaryFolder()
  const disk = join(folder, 'containers.img')
  let first: Awaited<ReturnType<typeof startHost>>
  let second: Awaited<ReturnType<typeof startHost>>

  beforeAll(async () => {
    execFileSync('cp', ['--sparse=always', await ensureContainerRoot(progress), disk])
    first = await startHost(join(folder, 'one'))
    second = await startHost(join(folder, 'two'))
    const backend = specKey('containers-file')
    const specification = specToProto(
      guestSpec({
        ...{ machine: 'pc-i440fx-7.2', memoryMib: 512, cpus: 1, append: [CRUN] },
        boot: await ensureImage({ progress }),
        containerRoot: undefined,
        link: {
          device: (slot, key) => ({ kind: 'vsock', slot, cid: 0, backend: key }),
          backend: { kind: 'vsock-daemon' },
          commandLine: [],
        },
        extra: {
          devices: { [specKey('containers')]: { kind: 'disk', slot: 5, serial: 'containers', backend } },
          backends: { [backend]: { kind: 'file', path: disk, access: 'read-write' } },
        },
      }),
    )
    await first.instances.ensureInstance({ properties: { key: 'web' }, specification })
    await first.instances.changeState({ key: 'web', change: Change.RUN })
    const signal = AbortSignal.timeout(BOOT_MS)
    const console = async () => (await readRing(first.own(), 0)).bytes.toString('latin1')
    while (!(await console()).includes('"booted"')) await delay(50, undefined, { signal })
  }, BOOT_MS)
  afterAll(async () => {
    await first?.end()
    await second?.end()
  })

  it('goes on at another host with every byte and every exit', async () => {
    const connection = await first.connected()
    const agent = agentOf(connection)
    const storages = [{ driver: 'blk', fstype: 'ext4', options: [], source: '05', mountPoint: ROOT }]
    await agent.createSandbox({ sandboxId: 'pod', hostname: 'web', storages })
    const pod = podOf(agent, ROOT)
    await pod.run('host', ['sleep', '1000'])
    const ports = new Map<string, number>()
    for (const name of NAMES) {
      const { port } = await first.instances.allocatePort({
        key: 'web',
        container: 'host',
        exec: name,
        stream: 'stdout',
      })
      ports.set(name, port)
      await pod.add('host', name, ['sh', '-c', `${COUNT}; exit 7`], { ports: { stdoutPort: port } })
    }
    await pod.add('host', 'early', ['sh', '-c', 'exit 3'])
    const ring = async (own: string, name: string) =>
      (await readRing(own, ports.get(name) ?? 0)).bytes.toString()
    while (!(await ring(first.own(), 'c')).includes('line 5\n')) await delay(20)
    connection.close()
    const rest = await first.run('snapshot', '--quiesce', 'web', 'rest')
    expect(rest.stdout).toMatch(
      /^web: rest: containers \(consistent: file system; the guest stood still for /,
    )
    const { stdout, stderr } = await first.run('suspend', '--json', 'web', 'pod')
    expect(stderr).toBe('')
    const saved = JSON.parse(stdout)
    expect(Number(saved.waiting_us)).toBeGreaterThan(Number(saved.stopped_us))
    expect((await first.run('saved')).stdout).toMatch(/^NAME +WAS +AGE +RESUMED AS +FOLDER\npod +web +/)
    expect(await first.instances.listInstances({})).toEqual({ instances: [] })
    const copy = join(folder, 'copy')
    cpSync(saved.folder, copy, { recursive: true })
    const {
      pod: known,
      record,
      rings,
      streams,
    } = restoreInstance(readFileSync(join(copy, 'state.binpb')), 'state')
    expect(record).toMatchObject({ properties: { key: 'web' }, nextPort: Math.max(...ports.values()) + 1 })
    expect(streams.map(({ exec, port }) => [exec, port])).toEqual([...ports])
    expect(known).toMatchObject({ stage: PodStage.ACTIVE, id: 'pod', refusedCalls: [] })
    expect(known.containers).toMatchObject([{ id: 'host', stage: ContainerStage.RUNNING, layers: [ROOT] }])
    const processes = known.containers[0]?.processes ?? {}
    expect(processes.early).toMatchObject({ stage: ProcessStage.EXITED, exit: { status: 3 }, ports: [] })
    for (const [name, port] of ports) {
      const total = rings.find(({ number }) => number === port)?.end
      expect(processes[name]).toMatchObject({ stage: ProcessStage.RUNNING, ports: [{ port, total }] })
    }

    expect(await second.run('resume', '--folder', copy, 'pod', 'web')).toMatchObject({
      status: 0,
      stdout: 'web: running\n',
    })
    const { snapshots } = await second.instances.listSnapshots({ key: 'web' })
    expect(snapshots.map(({ name }) => name)).toEqual(['rest'])
    expect(await second.run('resume', '--folder', copy, 'pod', 'other')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('was resumed already, as instance web'),
    })
    const there = await second.connected()
    const lifecycle = clientFor(LifecycleDefinition, there)
    const { state, trigger } = await lifecycle.getResume({})
    expect({ state, trigger }).toEqual({ state: 'ready', trigger: 'call' })
    const exits = NAMES.map((execId) => agentOf(there).waitProcess({ containerId: 'host', execId }))
    expect((await Promise.all(exits)).map(({ status }) => status)).toEqual([7, 7, 7])
    expect((await agentOf(there).waitProcess({ containerId: 'host', execId: 'early' })).status).toBe(3)
    const all = Array.from({ length: LINES }, (_, index) => `line ${index}\n`).join('')
    for (const name of NAMES) expect(await ring(second.own(), name)).toBe(all)
    there.close()
  })
})
