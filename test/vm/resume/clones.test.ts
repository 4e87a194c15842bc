import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ConnectionLost } from '../../../src/base/errors.ts'
import {
  type GetResumeResponse,
  Identity,
  ResumedRequest,
} from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { bind } from '../../support/containers/container-requests.ts'
import { RemoteProcess } from '../../support/containers/pod.ts'
import { type OtlpCollector, startCollector } from '../../support/host/otlp-collector.ts'
import { cannotBoot } from '../../support/vm/boot-guest.ts'
import { createPod } from '../../support/vm/guest-pod.ts'
import { type MovableGuest, SavedGuest, SECOND_MAC } from '../../support/vm/saved/saved-guest.ts'

const CLONES = 8
const DAY_SECONDS = 24 * 3600
const FORKED = 'random: crng reseeded due to virtual machine fork'

/** Runs each line of its input. */
const PROBE = ['sh', '-c', 'while read line; do eval "$line"; echo ready; done']
/** What clones must not share, and how a container sees it. */
const SEEN = {
  uuid: 'cat /proc/sys/kernel/random/uuid',
  random: 'head -c 32 /dev/urandom | base64',
  hostname: 'hostname',
} as const
const LOOK = Object.values(SEEN).join('; ')

async function ask(probe: RemoteProcess, line: string): Promise<readonly string[]> {
  await probe.write(`${line}\n`)
  return (await probe.readUntil('ready\n')).split('\n').slice(0, -2)
}

const generation = (index: number) => `11111111-2222-3333-4444-55555555550${index}`

const outcomes = ({ steps }: GetResumeResponse) =>
  Object.fromEntries(steps.map(({ name, state }) => [name, state]))

function card(index: number) {
  return {
    ...{ name: 'eth1', hwAddr: SECOND_MAC.replace(/00$/, `0${index}`), mtu: 1500n },
    IPAddresses: [{ address: `10.1.0.${index + 1}`, mask: '24' }],
  }
}

/** Resolves when the clone is repaired. A repair that the kernel's word began may close the caller's connection. */
async function repaired(clone: MovableGuest, given: Parameters<typeof ResumedRequest.fromPartial>[0]) {
  const repair = async () => {
    const { number } = await clone.lifecycle.resumed(ResumedRequest.fromPartial(given))
    return clone.lifecycle.getResume({ number, timeoutMs: 30_000 })
  }
  return repair().catch(async (error: unknown) => {
    if (!(error instanceof ConnectionLost)) throw error
    await clone.dialAgain()
    return repair()
  })
}

const eventsOf = ({ introspection }: Pick<MovableGuest, 'introspection'>, afterSequence = 0n) =>
  introspection.getEvents({ afterSequence, timeoutMs: 0, limit: 0 })

/** Another pod than the original's, and another one again. */
async function renameTwice({ agent, introspection, lifecycle }: MovableGuest): Promise<void> {
  let oldId = 'probe'
  for (const newId of ['first', 'second']) {
    const names = { sandboxId: `pod-${newId}`, hostname: `host-${newId}` }
    await lifecycle.rename({ ...names, containers: [{ oldId, newId }] })
    expect((await introspection.getSandbox({})).id).toBe(names.sandboxId)
    expect(await ask(new RemoteProcess(agent, newId), 'hostname')).toEqual([names.hostname])
    oldId = newId
  }
}

describe.skipIf(cannotBoot() !== undefined)('a guest that stands still', () => {
  let saved: SavedGuest
  let first: MovableGuest
  let probe: RemoteProcess
  let collector: OtlpCollector

  let bootedMs: number

  beforeAll(async () => {
    bootedMs = performance.now()
    collector = await startCollector()
    const { port } = new URL(collector.endpoint)
    saved = new SavedGuest([`agent.otlp_endpoint=http://10.0.2.2:${port}`])
    first = await saved.boot(generation(0))
    const pod = await createPod(first.agent, first.rootSource)
    await first.agent.updateInterface({ interface: card(0) })
    probe = await pod.run('probe', PROBE, {
      mounts: [bind('/dev/kmsg', '/dev/kmsg')],
      linux: { Resources: { Devices: [{ Allow: true, Access: 'rwm', Type: 'a' }] } },
    })
  })

  afterAll(async () => {
    await saved.close()
    collector.stop()
  })

  it('is not repaired because a container says so in the log of the kernel', async () => {
    for (const level of ['', '<0>', '<5>', '<13>']) {
      const said = await ask(probe, `echo "${level}${FORKED}" > /dev/kmsg && echo written`)
      expect(said, level).toEqual(['written'])
    }
    await ask(probe, 'sleep 1')
    await expect(first.lifecycle.getResume({})).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  it('for three minutes ends no call, hangs for nobody, and tells that its clock is behind', async () => {
    const waiting = first.agent.waitProcess({ containerId: 'probe', execId: '' }, { timeoutMs: 60_000 })
    let hasEnded = false
    const end = () => {
      hasEnded = true
    }
    waiting.then(end, end)
    await ask(probe, 'true')
    await first.pause(180)
    const clock = async () =>
      (await first.introspection.getCapabilities({})).capabilities.find(({ name }) => name === 'clock')
    const behind = /^(\d+) ms behind the host's$/.exec((await clock())?.reason ?? '')?.[1]
    // A guest that seldom runs loses some of its own time, too.
    const isPause = (ms: number) => ms > 177_500 && ms < 182_500 + performance.now() - bootedMs
    expect(Number(behind)).toSatisfy(isPause)
    // It answers on a new connection before its repair begins.
    const other = await first.connect()
    const eventsAfter = (afterSequence: bigint) => eventsOf(other, afterSequence)
    const before = await eventsAfter(0n)
    expect(before.events.filter(({ repairStep }) => repairStep !== undefined)).toEqual([])
    await first.lifecycle.resumed({ generation: 'stopped' })
    const told = await first.lifecycle.getResume({ timeoutMs: 30_000 })
    expect(outcomes(told)).toMatchObject({ clock: 'done', ready: 'done' })
    expect(Number(told.clockStepMs)).toSatisfy(isPause)
    expect(Number(told.stoodStillMs)).toSatisfy(isPause)
    const after = await eventsAfter(before.lastSequence)
    expect(after.events.flatMap(({ repairStep }) => repairStep?.name ?? [])).toEqual(
      told.steps.map(({ name }) => name),
    )
    other.close()
    expect(await clock()).toMatchObject({ enabled: true })
    expect(hasEnded).toBe(false)
    expect((await first.introspection.getSandbox({})).agentRestarts).toBe(0)
    expect(first.consoleText()).not.toMatch(/has not answered|HUNG|hung|in progress.*"ms":"1\d{5}"/)
    waiting.catch(() => {})
  })

  it('and is cloned shares nothing with its clones', async () => {
    const { lastSequence } = await eventsOf(first)
    await first.save()
    const shown: Record<string, string>[] = []
    for (let index = 1; index <= CLONES; index++) {
      // Odd ones have another generation of the machine, even ones a seed of the host.
      const isSeeded = index % 2 === 0
      const moved = index === CLONES ? DAY_SECONDS : 0
      const clone = await saved.restore(index, generation(isSeeded ? 0 : index), moved)
      const identity = Identity.fromPartial({ hostname: `clone-${index}`, interfaces: [card(index)] })
      const seed = isSeeded ? randomBytes(32) : Buffer.alloc(0)
      const told = await repaired(clone, { generation: `clone ${index}`, seed, identity })
      expect(told, clone.consoleText()).toMatchObject({ state: 'ready', randomness: 'renewed' })
      const before = collector.spans.length
      const copy = new RemoteProcess(clone.agent, 'probe')
      const [time] = await ask(copy, 'date +%s')
      expect(Math.abs(Number(time) - Date.now() / 1000 - moved), 'clock').toBeLessThan(30)
      const lines = await ask(copy, LOOK)
      const seen = Object.fromEntries(Object.keys(SEEN).map((name, at) => [name, lines[at] ?? '']))
      const { interfaces } = await clone.introspection.getNetwork({})
      // The call that tells of the restore has an id from before it.
      const isAfter = ({ name }: { readonly name: string }) => name.endsWith('/GetNetwork')
      await collector.until((span) => isAfter(span) && collector.spans.indexOf(span) >= before)
      const trace = collector.spans.slice(before).find(isAfter)?.traceId ?? ''
      const eth1 = interfaces.find(({ name }) => name === 'eth1')
      const addresses = eth1?.addresses.map(({ address }) => address).filter((text) => text.includes('.'))
      const [mac, address] = [eth1?.hardwareAddress ?? '', addresses?.join(' ') ?? '']
      shown.push({ ...seen, mac, address, trace })
      const { events } = await eventsOf(clone, lastSequence)
      expect(events[0]?.sequence, 'the first event after those of the original').toBe(lastSequence + 1n)
      if (index === 1) await renameTwice(clone)
      await clone.stop()
    }
    for (const what of [...Object.keys(SEEN), 'mac', 'address', 'trace']) {
      const values = shown.map((each) => each[what] ?? '')
      expect(new Set(values).size, `${what}: ${values}`).toBe(CLONES)
      expect(values).not.toContain('')
    }
    expect(shown[2]).toMatchObject({ hostname: 'clone-3', address: '10.1.0.4/24' })
  })
})
