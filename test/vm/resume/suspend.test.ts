import { execFileSync } from 'node:child_process'
import { cpSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGTERM } from '../../../src/base/signals.ts'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import { connectMachine } from '../../../src/client/daemon/connect-machine.ts'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { LifecycleDefinition } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import {
  AttachRequest,
  AttachResponse,
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { Stage as ContainerStage } from '../../../src/gen/state/host/linuxcontainer.ts'
import { Stage as PodStage } from '../../../src/gen/state/host/pod.ts'
import { Stage as ProcessStage } from '../../../src/gen/state/host/process.ts'
import { readRing } from '../../../src/host/instance/holder/holder-files.ts'
import { restoreInstance } from '../../../src/host/migration/payloads/saved-instance.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { execProcessRequest } from '../../support/containers/container-requests.ts'
import { type Pod, podOf, RemoteProcess } from '../../support/containers/pod.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../support/host/network-namespace.ts'
import { daemonClient, type OpenStream } from '../../support/host-wing/running-daemon.ts'
import { microvm } from '../../support/microvm/run-microvm.ts'
import { endChild } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { savableGuest } from '../../support/vm/daemon-guest.ts'
import { ROOT } from '../../support/vm/guest-pod.ts'
import { addPodWork, POD_WORK } from '../../support/vm/saved/pod-work.ts'
import { startDaemonProcess } from '../../support/wing/daemon-process.ts'
import { leftovers } from '../../support/wing/leftovers.ts'
import { file } from '../../support/wing/requests.ts'

const COUNT = "trap 'exit 7' TERM; i=0; while :; do echo line $i; i=$((i+1)); usleep 20000; done"
const MAC = '52:54:00:00:0b:01'
/** Of the pod in its network. */
const ADDRESS = '10.7.0.2'
const TALK = [ADDRESS, '7000'] as const
const LOCKS = ['/tmp/flock', '/tmp/fcntl'] as const
const [FREE, HELD] = ['flock 0, fcntl 0\n', 'flock EAGAIN, fcntl EAGAIN\n'] as const
const TYPED = 10
const BOOT_MS = 120_000

/** The metadata of a call that can be repeated. */
const keyed = (key: string) => ({ metadata: { 'idempotency-key': key } })

/** A daemon with a state folder and a network of its own, as another host has them. */
async function startHost(state: string) {
  const namespace = await makeNetworkNamespace()
  const daemon = await startDaemonProcess(state, { enter: namespace.enter })
  const socket = join(state, 'admin.sock')
  const client = daemonClient(socket)
  const connected = async () => {
    const dialer = { connect: (signal: AbortSignal) => connectMachine(socket, 'web', signal) }
    return await connectAgent(dialer, AbortSignal.timeout(BOOT_MS))
  }
  return {
    ...client,
    connected,
    attach: (port: number, offset: bigint): OpenStream => {
      const stream = client.open('microvm.instance.v1.InstanceService/Attach')
      stream.call.end(AttachRequest.encode({ key: 'web', port, offset }).finish())
      return stream
    },
    run: (...words: readonly string[]) => microvm([...words, '--socket', socket]),
    own: () => join(state, 'instances', readdirSync(join(state, 'instances'))[0] ?? ''),
    taps: () => tapsIn(namespace),
    end: async () => {
      await client.instances.remove({ key: 'web' }).catch(() => {})
      client.close()
      await endChild(daemon)
      expect([leftovers(state), tapsIn(namespace)]).toEqual([[], []])
      await namespace.close()
    },
  }
}

function tapsIn(namespace: NetworkNamespace): readonly string[] {
  return namespace.show<{ ifname: string }[]>('link show type tun').map(({ ifname }) => ifname)
}

function bytesOf({ answers }: OpenStream): Buffer {
  return Buffer.concat(answers.map((each) => AttachResponse.decode(each).data))
}

/** The number in the last line `at N` of one that talks. */
async function reached(talker: RemoteProcess, more: number): Promise<number> {
  for (let last = 0; ; ) {
    const numbers = [...(await talker.readUntil('\n')).matchAll(/^at (\d+)$/gm)].map(([, at]) => Number(at))
    last = numbers.at(-1) ?? last
    if (last >= more) return last
  }
}

describe.skipIf(cannotBoot() !== undefined)('a pod that is suspended', { timeout: 240_000 }, () => {
  const folder = temporaryFolder()
  const disk = join(folder, 'containers.img')
  const tap = `sv${process.pid}`
  let first: Awaited<ReturnType<typeof startHost>>
  let second: Awaited<ReturnType<typeof startHost>>

  beforeAll(async () => {
    execFileSync('cp', ['--sparse=always', await ensureContainerRoot(progress), disk])
    await addPodWork(disk)
    first = await startHost(join(folder, 'one'))
    second = await startHost(join(folder, 'two'))
    const backend = specKey('lan-tap')
    const specification = await savableGuest(disk, {
      machine: 'pc-q35-7.2',
      extra: {
        devices: { [specKey('lan')]: { kind: 'nic', slot: 6, mac: MAC, backend } },
        backends: { [backend]: { kind: 'tap', interfaceName: tap } },
      },
    })
    await first.instances.ensureInstance({ properties: { key: 'web' }, specification })
    await first.instances.changeState({ key: 'web', change: Change.RUN })
  }, BOOT_MS)
  afterAll(async () => {
    await first?.end()
    await second?.end()
  })

  const ring = async (own: string, port: number) => (await readRing(own, port)).bytes.toString()
  const allocated = async (container: string) =>
    (await first.instances.allocatePort({ key: 'web', container, exec: '', stream: 'stdout' })).port
  /** Takes both locks, if they are free, and says which are. */
  async function tried(pod: Pod, execId: string): Promise<string> {
    const process = await pod.add('read', execId, [POD_WORK, 'try', ...LOCKS])
    const said = (await process.readAll()).toString()
    await process.wait()
    return said
  }
  async function type(pod: Pod, number: number): Promise<void> {
    const data = Buffer.from(`typed ${number}\n`)
    await pod.agent.writeStdin({ containerId: 'read', execId: '', data }, keyed(`typed-${number}`))
  }
  const typed = (count: number) => Array.from({ length: count }, (_, number) => `typed ${number}\n`).join('')

  it('goes on at another host with every byte, lock and connection, and every exit', async () => {
    const connection = await first.connected()
    const agent = agentOf(connection)
    const storages = [{ driver: 'blk', fstype: 'ext4', options: [], source: '05', mountPoint: ROOT }]
    await agent.createSandbox({ sandboxId: 'pod', hostname: 'web', storages })
    const IPAddresses = [{ address: ADDRESS, mask: '24' }]
    await agent.updateInterface({ interface: { name: 'eth0', hwAddr: MAC, mtu: 1500n, IPAddresses } })
    const pod = podOf(agent, ROOT)
    const ports = { count: await allocated('count'), read: await allocated('read') }
    await pod.run('count', ['sh', '-c', COUNT], { ports: { stdoutPort: ports.count } })
    await pod.run('read', ['cat'], { ports: { stdoutPort: ports.read } })
    const lock = await pod.run('lock', [POD_WORK, 'lock', ...LOCKS])
    expect(await lock.readUntil('\n')).toBe(FREE)
    expect(await tried(pod, 'try')).toBe(HELD)
    const serve = await pod.run('serve', [POD_WORK, 'serve', ...TALK])
    await serve.readUntil('listens')
    const dial = await pod.run('dial', [POD_WORK, 'dial', ...TALK])
    const talked = [await reached(serve, 50), await reached(dial, 50)]
    await pod.add('count', 'early', ['sh', '-c', 'exit 3'])
    const late = await pod.add('count', 'late', [POD_WORK, 'leave'])
    await late.readUntil('waits')
    const once = execProcessRequest('read', 'once', ['sh', '-c', 'echo x >> /tmp/once; exec sleep 1000'])
    await agent.execProcess(once, keyed('once'))
    const attached = first.attach(ports.count, 0n)
    for (let number = 0; number < TYPED; number++) await type(pod, number)
    await expect.poll(() => ring(first.own(), ports.read)).toBe(typed(TYPED))
    const counter = { containerId: 'count', execId: '' }
    const { lastSequence } = await clientFor(IntrospectionDefinition, connection).getEvents({})
    const cut = expect(agent.waitProcess(counter, keyed('wait'))).rejects.toMatchObject({
      code: 'UNAVAILABLE',
    })

    const rest = await first.run('snapshot', '--quiesce', 'web', 'rest')
    expect(rest.stdout).toMatch(
      /^web: rest: containers \(consistent: file system; the guest stood still for /,
    )
    const { stdout, stderr } = await first.run('suspend', '--json', 'web', 'pod')
    expect(stderr).toBe('')
    const saved = JSON.parse(stdout)
    expect(Number(saved.waiting_us)).toBeGreaterThan(Number(saved.stopped_us))
    await cut
    connection.close()
    await expect(attached.ended).rejects.toMatchObject({
      code: 'ABORTED',
      message: 'instance web: the machine is being saved, want Attach again from the offset',
    })
    expect((await first.run('saved')).stdout).toMatch(/^NAME +WAS +AGE +RESUMED AS +FOLDER\npod +web +/)
    expect(await first.instances.listInstances({})).toEqual({ instances: [] })
    expect(first.taps()).toEqual([])
    const [copy, otherDisk] = [join(folder, 'copy'), join(folder, 'other.img')]
    cpSync(saved.folder, copy, { recursive: true })
    execFileSync('cp', ['--sparse=always', disk, otherDisk])
    checkSaved(copy, ports)

    const replaceComponents = { 'containers-file': file(otherDisk) }
    const request = { properties: { key: 'web' }, saved: { name: 'pod', folder: copy, replaceComponents } }
    await second.instances.ensureInstance(EnsureInstanceRequest.fromPartial(request))
    expect(second.taps()).toEqual([tap])
    const { snapshots } = await second.instances.listSnapshots({ key: 'web' })
    expect(snapshots.map(({ name }) => name)).toEqual(['rest'])
    expect(await second.run('resume', '--folder', copy, 'pod', 'other')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('was resumed already, as instance web'),
    })
    const there = await second.connected()
    const { state, trigger } = await clientFor(LifecycleDefinition, there).getResume({})
    expect({ state, trigger }).toEqual({ state: 'ready', trigger: 'call' })
    const news = await clientFor(IntrospectionDefinition, there).getEvents({ afterSequence: lastSequence })
    const steps = news.events.flatMap(({ repairStep }) => repairStep?.name ?? [])
    expect(steps).toEqual(expect.arrayContaining(['clock', 'ready']))
    expect(news.events.map(({ sequence }) => sequence)).toEqual(
      news.events.map((_, index) => lastSequence + BigInt(index) + 1n),
    )
    const agentThere = agentOf(there)
    const podThere = podOf(agentThere, ROOT)
    const [served, dialled] = ['serve', 'dial'].map((id) => new RemoteProcess(agentThere, id))
    if (served === undefined || dialled === undefined) throw new Error('nobody talks')
    // They end when one of them is told to: each has what the other has sent.
    for (const [index, talker] of [served, dialled].entries())
      await reached(talker, (talked[index] ?? 0) + 100)
    await dialled.signal(SIGTERM)
    const ends = await Promise.all([served, dialled].map((talker) => talker.readAll()))
    const [one, other] = ends.map((end) => /sent (\d+), taken (\d+)\n$/.exec(end.toString())?.slice(1))
    expect(one).toHaveLength(2)
    expect(one).toEqual(other?.toReversed())
    expect(await Promise.all([served, dialled].map((talker) => talker.wait()))).toEqual([0, 0])

    expect(await tried(podThere, 'again')).toBe(HELD)
    await new RemoteProcess(agentThere, 'lock').signal(SIGTERM)
    await new RemoteProcess(agentThere, 'lock').wait()
    expect(await tried(podThere, 'free')).toBe(FREE)

    // The last one had its answer, and is not done again.
    for (let number = TYPED - 1; number < 2 * TYPED; number++) await type(podThere, number)
    await agentThere.execProcess(once, keyed('once'))
    const onces = await podThere.add('read', 'onces', ['cat', '/tmp/once'])
    expect((await onces.readAll()).toString()).toBe('x\n')
    await new RemoteProcess(agentThere, 'read').closeStdin()
    expect(await new RemoteProcess(agentThere, 'read').wait()).toBe(0)

    const goesOn = second.attach(ports.count, BigInt(bytesOf(attached).length))
    await expect.poll(() => bytesOf(goesOn).length).toBeGreaterThan(100)
    await new RemoteProcess(agentThere, 'count').signal(SIGTERM)
    const wait = (containerId: string, execId: string) =>
      agentThere.waitProcess({ containerId, execId }, keyed(execId === '' ? 'wait' : execId))
    for (const [execId, status] of [
      ['', 7],
      ['early', 3],
      ['late', 5],
    ] as const)
      expect((await wait('count', execId)).status, execId).toBe(status)
    await goesOn.ended
    const lines = Buffer.concat([bytesOf(attached), bytesOf(goesOn)]).toString()
    const all = Array.from({ length: lines.split('\n').length - 1 }, (_, index) => `line ${index}\n`)
    expect(lines).toBe(all.join(''))
    expect(await ring(second.own(), ports.count)).toBe(lines)
    expect(await ring(second.own(), ports.read)).toBe(typed(2 * TYPED))
    there.close()
  })

  function checkSaved(copy: string, ports: Readonly<Record<'count' | 'read', number>>): void {
    const { pod, record, rings, streams } = restoreInstance(readFileSync(join(copy, 'state.binpb')), 'state')
    expect(record).toMatchObject({ properties: { key: 'web' }, nextPort: ports.read + 1 })
    expect(streams.map(({ container, port }) => [container, port])).toEqual(Object.entries(ports))
    expect(pod).toMatchObject({ stage: PodStage.ACTIVE, id: 'pod', refusedCalls: [] })
    const containers = Object.fromEntries(pod.containers.map((each) => [each.id, each]))
    expect(Object.keys(containers).toSorted()).toEqual(['count', 'dial', 'lock', 'read', 'serve'])
    for (const { stage } of pod.containers) expect(stage).toBe(ContainerStage.RUNNING)
    expect(containers.count?.layers).toEqual([ROOT])
    const { '': counter, early, late } = containers.count?.processes ?? {}
    expect(early).toMatchObject({ stage: ProcessStage.EXITED, exit: { status: 3 }, ports: [] })
    // It ended once the agent had told of it.
    expect(late).toMatchObject({ stage: ProcessStage.RUNNING })
    const total = rings.find(({ number }) => number === ports.count)?.end
    expect(counter).toMatchObject({
      stage: ProcessStage.RUNNING,
      ports: [{ port: ports.count, total }],
    })
  }
})
