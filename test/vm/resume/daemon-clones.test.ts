import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import { connectMachine } from '../../../src/client/daemon/connect-machine.ts'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { LifecycleDefinition } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import {
  ChangeStateRequest_Change as Change,
  Snapshot_Consistency as Consistency,
  type Instance,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { readRing } from '../../../src/host/instance/holder/holder-files.ts'
import { factsOf } from '../../../src/host/migration/memory-file.ts'
import { instanceFolderName, specKey } from '../../../src/host/spec/spec-key.ts'
import { specToProto } from '../../../src/host/spec/to-proto.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import { ensureImage } from '../../../src/image/ensure-image.ts'
import { guestSpec } from '../../../src/microvm/run/guest-spec.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { RemoteProcess } from '../../support/containers/pod.ts'
import { daemonClient } from '../../support/host-wing/running-daemon.ts'
import { endChild } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { CRUN, cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { createPod } from '../../support/vm/guest-pod.ts'
import { startDaemonProcess } from '../../support/wing/daemon-process.ts'

const BOOT_MS = 120_000
const CLONES = 2
const MAC = '52:54:00:00:0a:01'
const FORKED = 'random: crng reseeded due to virtual machine fork'
/** Runs each line of its input. */
const PROBE = ['sh', '-c', 'while read line; do eval "$line"; echo ready; done']
/** What a container sees of its guest, and draws from the kernel. */
const SEEN = 'hostname; cat /proc/sys/kernel/random/uuid; head -c 32 /dev/urandom | base64; cat /own'

async function ask(probe: RemoteProcess, line: string): Promise<readonly string[]> {
  await probe.write(`${line}\n`)
  return (await probe.readUntil('ready\n')).split('\n').slice(0, -2)
}

describe.skipIf(cannotBoot() !== undefined)('clones that a daemon makes', { timeout: 240_000 }, () => {
  const state = temporaryFolder()
  const disk = join(state, 'containers.img')
  const socket = join(state, 'admin.sock')
  const backend = specKey('containers-file')
  const link = specKey('lan-tap')
  let daemon: Awaited<ReturnType<typeof startDaemonProcess>>
  let client: ReturnType<typeof daemonClient>

  const connected = (key: string) => {
    const dialer = { connect: (signal: AbortSignal) => connectMachine(socket, key, signal) }
    return connectAgent(dialer, AbortSignal.timeout(BOOT_MS))
  }

  beforeAll(async () => {
    execFileSync('cp', ['--sparse=always', await ensureContainerRoot(progress), disk])
    daemon = await startDaemonProcess(state)
    client = daemonClient(socket)
    const specification = specToProto(
      guestSpec({
        ...{ machine: 'pc-i440fx-7.2', memoryMib: 512, cpus: 1, append: [CRUN, 'loglevel=6'] },
        boot: await ensureImage({ progress }),
        containerRoot: undefined,
        link: {
          device: (slot, key) => ({ kind: 'vsock', slot, cid: 0, backend: key }),
          backend: { kind: 'vsock-daemon' },
          commandLine: [],
        },
        extra: {
          devices: {
            [specKey('containers')]: { kind: 'disk', slot: 5, serial: 'containers', backend },
            [specKey('lan')]: { kind: 'nic', slot: 6, mac: MAC, backend: link },
          },
          backends: {
            [backend]: { kind: 'file', path: disk, access: 'read-write' },
            [link]: { kind: 'tap', interfaceName: `cv${process.pid}` },
          },
        },
      }),
    )
    if (specification.board) specification.board.generationId = true
    await client.instances.ensureInstance({ properties: { key: 'web' }, specification })
    await client.instances.changeState({ key: 'web', change: Change.RUN })
    const signal = AbortSignal.timeout(BOOT_MS)
    const own = join(state, 'instances', readdirSync(join(state, 'instances'))[0] ?? '')
    while (!(await readRing(own, 0)).bytes.toString('latin1').includes('"booted"'))
      await delay(50, undefined, { signal })
    const connection = await connected('web')
    const pod = await createPod(agentOf(connection), '05')
    await pod.run('probe', PROBE)
    connection.close()
  }, BOOT_MS)

  afterAll(async () => {
    const { instances } = await client.instances.listInstances({})
    for (const { properties } of instances) await client.instances.remove({ key: properties?.key ?? '' })
    await client.instances.deleteSaved({ name: 'pod' }).catch(() => {})
    client.close()
    await endChild(daemon)
  })

  it('are of a machine that goes on after a snapshot with memory, and goes back to it', async () => {
    const answers = async (line: string) => {
      const connection = await connected('web')
      const lines = await ask(new RemoteProcess(agentOf(connection), 'probe'), line)
      connection.close()
      return lines
    }
    await answers('kept=before; echo before > /kept; sync')
    const request = { key: 'web', name: 'ready', memory: true, quiesce: true }
    const { snapshot } = await client.instances.snapshot(request)
    expect(snapshot).toMatchObject({ memory: true, consistency: Consistency.FILE_SYSTEM })
    expect(Number(snapshot?.waitingUs)).toBeGreaterThan(Number(snapshot?.stillUs))
    expect(await answers('echo $kept; kept=after; echo after > /kept; sync')).toEqual(['before'])
    await client.instances.changeState({ key: 'web', change: Change.KILL })
    await client.instances.revert({ key: 'web', name: 'ready' })
    expect(await answers('echo $kept; cat /kept')).toEqual(['before', 'before'])
    const connection = await connected('web')
    const { state: repaired, trigger } = await clientFor(LifecycleDefinition, connection).getResume({})
    expect({ repaired, trigger }).toEqual({ repaired: 'ready', trigger: 'call' })
    connection.close()
    await client.instances.removeSnapshot({ key: 'web', name: 'ready' })
    expect(await client.instances.listSnapshots({ key: 'web' })).toEqual({ snapshots: [], layers: [] })
  })

  it('share no name, address, context id or random byte, and no disk', async () => {
    const { folder } = await client.instances.suspendInstance({ key: 'web', name: 'pod' })
    const [memory, before] = [await factsOf(join(folder, 'memory')), digestOf(disk)]
    const request = { saved: 'pod', count: CLONES, name: 'twin', identity: { hostname: 'host' } }
    const { instances } = await client.instances.cloneInstance(request)
    const shown: Record<string, string>[] = []
    for (const instance of instances) shown.push(await look(instance))
    for (const name of Object.keys(shown[0] ?? {})) {
      const values = shown.map((each) => each[name])
      expect(new Set(values).size, `${name}: ${values.join(' ')}`).toBe(CLONES)
    }
    expect(shown.map(({ hostname }) => hostname)).toEqual(['host-1', 'host-2'])
    for (const { properties } of instances) {
      const { operations } = await client.instances.getInstance({ key: properties?.key ?? '' })
      const [suspended, cloned] = operations
      expect([suspended?.kind, cloned?.kind]).toEqual(['suspend', 'clone'])
      const own = cloned?.steps.flatMap(({ guest, name, state }) => (guest ? [`${name} ${state}`] : []))
      expect(own).toEqual(expect.arrayContaining(['identity done', 'ready done']))
      expect(Number(cloned?.waitingUs)).toBeGreaterThan(Number(cloned?.stoppedUs))
    }
    expect(await factsOf(join(folder, 'memory'))).toEqual(memory)
    expect(digestOf(disk)).toBe(before)
  })

  async function look({ properties, cid, specification }: Instance): Promise<Record<string, string>> {
    const key = properties?.key ?? ''
    const connection = await connected(key)
    const {
      state: repaired,
      randomness,
      steps,
    } = await clientFor(LifecycleDefinition, connection).getResume({})
    const told = steps.map(({ name, reason, state: outcome }) => `${name} ${outcome} ${reason}`).join('; ')
    expect({ repaired, randomness }, told).toEqual({ repaired: 'ready', randomness: 'renewed' })
    const { interfaces } = await clientFor(IntrospectionDefinition, connection).getNetwork({})
    const { bytes } = await readRing(join(state, 'instances', instanceFolderName(specKey(key))), 0)
    expect(bytes.toString('latin1').split(FORKED).length, 'lines of vmgenid').toBe(2)
    const probe = new RemoteProcess(agentOf(connection), 'probe')
    await ask(probe, `echo ${key} > /own; sync`)
    const [hostname = '', uuid = '', random = '', own = ''] = await ask(probe, SEEN)
    expect(own).toBe(key)
    const mac = specification?.devices.lan?.nic?.mac ?? ''
    expect(mac).not.toBe(MAC)
    expect(interfaces.map(({ hardwareAddress }) => hardwareAddress.toLowerCase())).toContain(mac)
    connection.close()
    const tap = specification?.backends['lan-tap']?.tap?.interfaceName ?? ''
    return { key, hostname, uuid, random, mac, tap, cid: `${cid}` }
  }
})

function digestOf(path: string): string {
  return createHash('sha256').update(readFileSync(path)).digest('hex')
}
