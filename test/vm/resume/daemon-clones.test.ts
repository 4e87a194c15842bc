import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { CLONES, type ClonesFigures, clonesShare } from '../../../scripts/test/clones-run.ts'
import { METADATA_ITEM } from '../../../src/base/vm-metadata/point-to-point.ts'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import { connectMachine } from '../../../src/client/daemon/connect-machine.ts'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { Identity, LifecycleDefinition } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import {
  ChangeStateRequest_Change as Change,
  CloneInstanceRequest,
  Snapshot_Consistency as Consistency,
  type DeepPartial,
  type Instance,
  State,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { VMMetadata } from '../../../src/gen/vm.ts'
import { readRing } from '../../../src/host/instance/holder/holder-files.ts'
import { findHolder } from '../../../src/host/instance/holder/start-holder.ts'
import { factsOf } from '../../../src/host/migration/memory-file.ts'
import { instanceFolderName, specKey } from '../../../src/host/spec/spec-key.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import type { GuestParts } from '../../../src/microvm/run/guest-spec.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { podOf, RemoteProcess } from '../../support/containers/pod.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../support/host/network-namespace.ts'
import { daemonClient } from '../../support/host-wing/running-daemon.ts'
import { endChild } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { CRUN, cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { savableGuest } from '../../support/vm/daemon-guest.ts'
import { createPod, ROOT } from '../../support/vm/guest-pod.ts'
import { memoryOfClone, ownMemoryMib } from '../../support/vm/saved/clone-memory.ts'
import { addPodWork, POD_WORK } from '../../support/vm/saved/pod-work.ts'
import { startDaemonProcess } from '../../support/wing/daemon-process.ts'
import { leftovers } from '../../support/wing/leftovers.ts'

const BOOT_MS = 120_000
const { count: COUNT, seed, isLong } = clonesShare(process.env)
const { [CLONES.figures]: figuresFile } = process.env
const MAC = '52:54:00:00:0a:01'
const FORKED = 'random: crng reseeded due to virtual machine fork'
/** Runs each line of its input. */
const PROBE = ['sh', '-c', 'while read line; do eval "$line"; echo ready; done']
/** What a container sees of its guest, and draws from the kernel. */
const SEEN = `hostname; cat /proc/sys/kernel/random/uuid; ${POD_WORK} random; cat /own`
const COLLECTOR_PORT = '4318'
/** The goal, after one container. */
const OWN_MIB = 45

/** The ends of the link of a machine without vsock: the same in all clones, and told apart by the tap. */
const LINK = { ip: 'fe80::2', peerIp: 'fe80::1' } as const

type Form = 'copied' | 'private'

/** Vsock's daemons map a memory, so that each clone has a copy. */
function partsOf(form: Form, folder: string): Partial<Pick<GuestParts, 'machine' | 'link' | 'extra'>> {
  const tap = { kind: 'tap', interfaceName: `cv${process.pid}` } as const
  if (form === 'copied') {
    const backend = specKey('lan-tap')
    return {
      extra: {
        devices: { [specKey('lan')]: { kind: 'nic', slot: 6, mac: MAC, backend } },
        backends: { [backend]: tap },
      },
    }
  }
  const path = join(folder, 'metadata.pb')
  writeFileSync(path, VMMetadata.encode(VMMetadata.fromPartial({ networkConfig: { v6: LINK } })).finish())
  const backend = specKey('metadata-content')
  return {
    machine: 'pc-q35-7.2',
    link: {
      device: (slot, key) => ({ kind: 'nic', slot, mac: MAC, backend: key }),
      backend: tap,
      commandLine: ['agent.server_addr=tcp://[::]:1024', `agent.server_peer=${LINK.peerIp}`],
    },
    extra: {
      devices: { [specKey('metadata')]: { kind: 'fw-cfg', name: METADATA_ITEM, backend } },
      backends: { [backend]: { kind: 'content', path } },
    },
  }
}

async function ask(probe: RemoteProcess, line: string): Promise<readonly string[]> {
  await probe.write(`${line}\n`)
  return (await probe.readUntil('ready\n')).split('\n').slice(0, -2)
}

describe.skipIf(cannotBoot() !== undefined).each(['copied', 'private'] as const)(
  'clones with a %s memory that a daemon makes',
  { timeout: 240_000 + COUNT * 30_000 },
  (form) => {
    const state = temporaryFolder()
    const disk = join(state, 'containers.img')
    const socket = join(state, 'admin.sock')
    let namespace: NetworkNamespace
    let daemon: Awaited<ReturnType<typeof startDaemonProcess>>
    let client: ReturnType<typeof daemonClient>

    const connected = (key: string) => {
      const dialer = { connect: (signal: AbortSignal) => connectMachine(socket, key, signal) }
      return connectAgent(dialer, AbortSignal.timeout(BOOT_MS))
    }

    beforeAll(async () => {
      execFileSync('cp', ['--sparse=always', await ensureContainerRoot(progress), disk])
      await addPodWork(disk)
      namespace = await makeNetworkNamespace()
      daemon = await startDaemonProcess(state, { enter: namespace.enter })
      client = daemonClient(socket)
      const specification = await savableGuest(disk, {
        ...partsOf(form, state),
        append: [CRUN, 'loglevel=6', `agent.otlp_endpoint=http://127.0.0.1:${COLLECTOR_PORT}`],
      })
      if (specification.board) specification.board.generationId = true
      await client.instances.ensureInstance({ properties: { key: 'web' }, specification })
      await client.instances.changeState({ key: 'web', change: Change.RUN })
      const connection = await connected('web')
      const pod = await createPod(agentOf(connection), '05')
      if (form === 'copied')
        await pod.agent.updateInterface({ interface: { name: 'eth0', hwAddr: MAC, mtu: 1500n } })
      const collector = await pod.run('collector', [POD_WORK, 'collect', COLLECTOR_PORT])
      await collector.readUntil('listens')
      await pod.run('probe', PROBE)
      connection.close()
    }, 2 * BOOT_MS)

    afterAll(async () => {
      await removeAll()
      for (const name of ['pod', 'second', 'third'])
        await client.instances.deleteSaved({ name }).catch(() => {})
      client.close()
      await endChild(daemon)
      expect(leftovers(state)).toEqual([])
      await namespace.close()
    })

    async function removeAll(): Promise<void> {
      const { instances } = await client.instances.listInstances({})
      for (const { properties } of instances) await client.instances.remove({ key: properties?.key ?? '' })
    }

    const clone = async (request: DeepPartial<CloneInstanceRequest>) =>
      (await client.instances.cloneInstance(CloneInstanceRequest.fromPartial(request))).instances

    it('are of a machine that goes on after a snapshot with memory, and goes back to it', async (context) => {
      context.skip(form !== 'copied', 'the form of clones changes no snapshot')
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

    it('are of one moment of a machine that goes on', async () => {
      const answers = async (key: string, line: string) => {
        const connection = await connected(key)
        const lines = await ask(new RemoteProcess(agentOf(connection), 'probe'), line)
        connection.close()
        return lines
      }
      await answers('web', 'kept=before; echo before > /kept; sync')
      const [live] = await clone({ key: 'web', count: 1, name: 'live' })
      expect(live).toMatchObject({ state: State.RUNNING, madeOf: 'web' })
      await answers('web', 'kept=after; echo after > /kept; sync')
      expect(await answers('web', 'echo $kept; cat /kept')).toEqual(['after', 'after'])
      expect(await answers('live', 'echo $kept; cat /kept; hostname')).toEqual(['before', 'before', 'live'])
      const { snapshots, layers } = await client.instances.listSnapshots({ key: 'web' })
      expect([snapshots.length, layers.length]).toEqual([0, 1])
      await client.instances.remove({ key: 'live' })
      const layersLeft = async () => (await client.instances.listSnapshots({ key: 'web' })).layers
      await expect.poll(layersLeft, { timeout: BOOT_MS }).toEqual([])
      expect(await answers('web', 'echo $kept; cat /kept')).toEqual(['after', 'after'])
    })

    it('share no name, address, context id or random byte, and no disk', async () => {
      const original = await connected('web')
      const events = await clientFor(IntrospectionDefinition, original).getEvents({})
      original.close()
      const { folder, id } = await client.instances.suspendInstance({ key: 'web', name: 'pod' })
      const [memory, before] = [await factsOf(join(folder, 'memory')), digestOf(disk)]
      const begun = performance.now()
      const twins = await clone({ saved: 'pod', count: COUNT, name: 'twin', identity: { hostname: 'host' } })
      const seconds = (performance.now() - begun) / 1000
      expect(twins.length).toBe(COUNT)
      const shown: Readonly<Record<string, string>>[] = []
      for (const instance of twins) shown.push(await look(instance))
      const own = await Promise.all(twins.map(({ qemuPid }) => ownMemoryMib(qemuPid)))
      const figures: ClonesFigures = { form, count: COUNT, seconds, ownMib: own }
      if (figuresFile !== undefined) appendFileSync(figuresFile, `${JSON.stringify(figures)}\n`)
      if (form === 'private') expect(Math.max(...own), `${own}`).toBeLessThanOrEqual(OWN_MIB)
      for (const { properties } of twins) {
        const { operations } = await client.instances.getInstance({ key: properties?.key ?? '' })
        const [suspended, cloned] = operations
        expect([suspended?.kind, cloned?.kind]).toEqual(['suspend', 'clone'])
        const own = cloned?.steps.flatMap(({ guest, name, state }) => (guest ? [`${name} ${state}`] : []))
        expect(own).toEqual(expect.arrayContaining(['identity done', 'ready done']))
        expect(Number(cloned?.waitingUs)).toBeGreaterThan(Number(cloned?.stoppedUs))
      }
      if (isLong) await loseOne(twins)
      shown.push(
        await look(...(await named('own', '10.7.0.9'))),
        await look(...(await named('other', '10.7.0.8'))),
      )
      for (const name of Object.keys(shown[0] ?? {})) {
        const values = shown.map((each) => each[name])
        expect(new Set(values).size, `${name}: ${values.join(' ')}`).toBe(shown.length)
      }
      expect(shown.map(({ hostname }) => hostname)).toEqual([
        ...twins.map((_, at) => `host-${at + 1}`),
        'own',
        'other',
      ])
      await goesOn('own', events.lastSequence)
      await renameTwice('other')
      if (isLong) await cloneOfClones()
      expect(await factsOf(join(folder, 'memory'))).toEqual(memory)
      if (form === 'private') {
        const keeper = await findHolder(join(state, 'keepers', id))
        expect(await factsOf(memoryOfClone(keeper?.pid ?? 0))).toEqual(memory)
        keeper?.disconnect()
      }
      expect(digestOf(disk)).toBe(before)
      await removeAll()
      expect(namespace.show<unknown[]>('link show type tun')).toEqual([])
    })

    /** A clone that is told its address. */
    async function named(name: string, address: string): Promise<readonly [Instance, string]> {
      const addresses = [
        { address, mask: '24' },
        ...(form === 'private' ? [{ address: LINK.ip, mask: '64' }] : []),
      ]
      const interfaces = [{ name: 'eth0', mtu: 1500n, IPAddresses: addresses }]
      const identity = Identity.fromPartial({ hostname: name, interfaces })
      const [instance] = await clone({ saved: 'pod', count: 1, name, identity })
      if (instance === undefined) throw new Error('no clone')
      return [instance, `${address}/24`]
    }

    /** Its events have the numbers after those of the original. */
    async function goesOn(key: string, afterSequence: bigint): Promise<void> {
      const connection = await connected(key)
      const { events } = await clientFor(IntrospectionDefinition, connection).getEvents({ afterSequence })
      connection.close()
      expect(events.flatMap(({ repairStep }) => repairStep?.name ?? [])).toContain('ready')
      expect(events.map(({ sequence }) => sequence)).toEqual(
        events.map((_, index) => afterSequence + BigInt(index) + 1n),
      )
    }

    /** Another pod than the original's, and another one again, whose containers go on. */
    async function renameTwice(key: string): Promise<void> {
      const connection = await connected(key)
      const agent = agentOf(connection)
      const { containers } = await clientFor(IntrospectionDefinition, connection).listContainers({})
      const ids = containers.map(({ containerId }) => containerId)
      expect(ids.toSorted()).toEqual(['collector', 'probe'])
      let before = ''
      for (const after of ['-first', '-second']) {
        const renamed = ids.map((id) => ({ oldId: `${id}${before}`, newId: `${id}${after}` }))
        const names = { sandboxId: `pod${after}`, hostname: `host${after}` }
        await clientFor(LifecycleDefinition, connection).rename({ ...names, containers: renamed })
        const sandbox = await clientFor(IntrospectionDefinition, connection).getSandbox({})
        expect(sandbox.id).toBe(names.sandboxId)
        const probe = new RemoteProcess(agent, `probe${after}`)
        expect(await ask(probe, 'hostname; cat /own')).toEqual([names.hostname, key])
        const old = agent.waitProcess({ containerId: `probe${before}`, execId: '' })
        await expect(old).rejects.toMatchObject({ code: 'NOT_FOUND' })
        before = after
      }
      connection.close()
    }

    /** The others go on. */
    async function loseOne(twins: readonly Instance[]): Promise<void> {
      const at = seed % twins.length
      const [lost, others] = [twins[at], twins.toSpliced(at, 1)]
      process.kill(lost?.qemuPid ?? 0, 'SIGKILL')
      const key = lost?.properties?.key ?? ''
      const stateOf = async () => (await client.instances.getInstance({ key })).state
      await expect.poll(stateOf, { timeout: 20_000 }).toBe(State.STOPPED)
      for (const { properties } of others) {
        const connection = await connected(properties?.key ?? '')
        await ask(new RemoteProcess(agentOf(connection), 'probe'), 'true')
        connection.close()
      }
    }

    async function cloneOfClones(): Promise<void> {
      for (const [key, name] of [
        ['own', 'second'],
        ['child', 'third'],
      ] as const) {
        await client.instances.suspendInstance({ key, name })
        const [instance] = await clone({ saved: name, count: 1, name: name === 'second' ? 'child' : 'last' })
        if (instance !== undefined) await look(instance)
      }
    }

    /** What a clone shows of itself, once it has run a container. */
    async function look(
      { properties, cid, qemuPid, specification, uid, bootId }: Instance,
      address?: string,
    ): Promise<Readonly<Record<string, string>>> {
      const key = properties?.key ?? ''
      const connection = await connected(key)
      const agent = agentOf(connection)
      const resumed = await clientFor(LifecycleDefinition, connection).getResume({})
      const { state: repaired, randomness, steps } = resumed
      const told = steps.map(({ name, reason, state: outcome }) => `${name} ${outcome} ${reason}`).join('; ')
      expect({ repaired, randomness }, told).toEqual({ repaired: 'ready', randomness: 'renewed' })
      const introspection = clientFor(IntrospectionDefinition, connection)
      const { interfaces } = await introspection.getNetwork({})
      // The daemon does not ask this, so that its trace is of after the repair.
      await introspection.getCapabilities({})
      const { bytes } = await readRing(join(state, 'instances', instanceFolderName(specKey(key))), 0)
      const isForked = bytes.toString('latin1').includes(FORKED)
      expect(isForked, 'line of vmgenid').toBe(true)
      const probe = new RemoteProcess(agent, 'probe')
      await ask(probe, `echo ${key} > /own; sync`)
      const [hostname = '', uuid = '', random = '', own = ''] = await ask(probe, SEEN)
      expect(own).toBe(key)
      expect(random).toMatch(/^[0-9a-f]{64}$/)
      const one = await podOf(agent, ROOT).run('one', ['true'])
      expect(await one.wait()).toBe(0)
      await agent.removeContainer({ containerId: 'one' })
      const traces = await new RemoteProcess(agent, 'collector').readUntil('/GetCapabilities ')
      const [, trace = ''] = /\/GetCapabilities ([0-9a-f]{32})/.exec(traces) ?? []
      const devices = specification?.devices ?? {}
      const mac = Object.values(devices).find(({ nic }) => nic !== undefined)?.nic?.mac ?? ''
      expect(mac).not.toBe(MAC)
      const card = interfaces.find(({ hardwareAddress }) => hardwareAddress.toLowerCase() === mac)
      const addresses = card?.addresses.map((each) => each.address) ?? []
      if (address !== undefined) expect(addresses).toContain(address)
      connection.close()
      const tap = Object.values(specification?.backends ?? {}).find((each) => each.tap !== undefined)
      return {
        ...{ key, hostname, uuid, random, trace, mac, bootId, uid: `${uid}`, qemu: `${qemuPid}` },
        tap: tap?.tap?.interfaceName ?? '',
        // Over the tap, all have one address, and no context id.
        ...(form === 'copied' && { cid: `${cid}`, addresses: addresses.join(' ') }),
      }
    }
  },
)

function digestOf(path: string): string {
  return createHash('sha256').update(readFileSync(path)).digest('hex')
}
