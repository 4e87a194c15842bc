import { setTimeout as delay } from 'node:timers/promises'
import { AgentError, messageOf } from '../../base/errors.ts'
import { IntrospectionDefinition } from '../../gen/microvm/agent/v1/introspection.ts'
import { Identity, type ResumedRequest } from '../../gen/microvm/agent/v1/lifecycle.ts'
import { Interface } from '../../gen/types.ts'
import { clientFor } from '../../rpc/client.ts'
import type { TtrpcClient } from '../../rpc/ttrpc/client.ts'
import { STEP_MS, withAgent } from '../instance/ask-agent.ts'
import type { MachineInstance } from '../instance/instance.ts'
import { closedPorts, listenAgain, listStreams } from '../instance/streams.ts'
import { askGuest, type GuestFacts } from './payloads/ask-guest.ts'

/** Of a suspend: the guest stands still before. */
const DETACHED_MS = 60_000

/**
 * Brings the streams of the guest to a stop, and waits until the holder has every byte of them; it listens then where the agent
 * connects again. Returns what the agent tells of the guest. `noteEnded` gets the ports whose streams have ended, before any other
 * is closed and again after.
 */
export async function detach(
  instance: MachineInstance,
  noteEnded: (ports: readonly number[]) => Promise<void>,
): Promise<GuestFacts> {
  const before = await closedPorts(instance)
  await noteEnded(before)
  const guest = await withAgent(instance, async (agent, connection) => {
    const detached = await agent.detach({ timeoutMs: DETACHED_MS }, { timeoutMs: STEP_MS })
    const late = AbortSignal.timeout(STEP_MS)
    return await askGuest(connection, detached, AbortSignal.any([instance.ending, late]))
  })
  const { streams } = guest
  const ports = streams
    .map(({ port }) => port)
    .filter((port) => instance.streams.has(port) && !before.includes(port))
  await drain(instance, streams, ports)
  await noteEnded((await closedPorts(instance)).filter((port) => !ports.includes(port)))
  for (const port of ports) await listenAgain(instance, port)
  return guest
}

/** Ends those who came after {@link detach}, those of a guest without an agent, and those of the console: the machine was saved. */
export function endCallers(
  instance: MachineInstance,
  reason:
    | string
    | AgentError = 'the machine was saved: once it is resumed, want Attach again from the offset, and another console',
): void {
  instance.beginBoot(reason)
  const text = `instance ${instance.key}: ${typeof reason === 'string' ? reason : ''}`
  instance.console?.end(typeof reason === 'string' ? new AgentError('ABORTED', text) : reason)
}

const DRAIN_MS = 10_000
const LOOK_MS = 5

async function drain(
  instance: MachineInstance,
  totals: GuestFacts['streams'],
  ports: readonly number[],
): Promise<void> {
  const late = AbortSignal.timeout(DRAIN_MS)
  for (;;) {
    const rings = await listStreams(instance)
    const open = rings.filter(({ closed, port }) => ports.includes(port) && !closed)
    if (open.length === 0) return checkTotals(instance, totals, rings)
    if (late.aborted) {
      const list = open.map(({ port }) => port).join(', ')
      throw new AgentError('DEADLINE_EXCEEDED', `ports ${list}: their connections did not end`)
    }
    await delay(LOOK_MS)
  }
}

function checkTotals(
  { context, key }: MachineInstance,
  totals: GuestFacts['streams'],
  rings: Awaited<ReturnType<typeof listStreams>>,
): void {
  for (const { port, stream, total } of totals) {
    const ring = rings.find((each) => each.port === port)
    if (ring === undefined || stream === 'stdin' || ring.end >= total) continue
    const lost = `${total - ring.end}`
    context.log.warn('bytes of a stream are lost', { instance: key, port, bytes: lost })
  }
}

/**
 * Who a guest is to be, with the hardware addresses that its cards get: `macs` are pairs of an old and a new one. The names of the
 * cards are in the guest alone.
 */
async function ownIdentity(
  connection: Pick<TtrpcClient, 'call'>,
  identity: Identity | undefined,
  macs: readonly string[],
): Promise<Identity | undefined> {
  if (macs.length === 0) return identity
  const pairs = new Map(
    macs.flatMap((mac, at) => (at % 2 === 0 ? [[mac, macs[at + 1] ?? mac] as const] : [])),
  )
  const calls = clientFor(IntrospectionDefinition, connection)
  const { interfaces } = await calls.getNetwork({}, { timeoutMs: STEP_MS })
  const wished = identity?.interfaces ?? []
  const cards = interfaces.flatMap(({ hardwareAddress, name }) => {
    const own = pairs.get(hardwareAddress.toLowerCase())
    const isWished = wished.some((each) => each.name === name && each.hwAddr !== '')
    if (own === undefined || isWished) return []
    const found = wished.find((each) => each.name === name) ?? Interface.fromPartial({ name })
    return [{ ...found, hwAddr: own }]
  })
  const others = wished.filter(({ name }) => !cards.some((card) => card.name === name))
  return Identity.fromPartial({ ...identity, interfaces: [...others, ...cards] })
}

/** How long a restored guest may take until it is ready. */
const READY_MS = 120_000
const LOOK_AT_REPAIR_MS = 30_000

/**
 * Tells the guest that it was restored, and waits until it is ready. Its cards get other hardware addresses by `macs`, as
 * {@link ownIdentity} has it. Throws FAILED_PRECONDITION or DEADLINE_EXCEEDED with the step in which the guest stands; it runs all
 * the same.
 */
export async function repair(
  instance: MachineInstance,
  request: ResumedRequest,
  macs: readonly string[],
): Promise<void> {
  const late = AbortSignal.timeout(READY_MS)
  let number: bigint | undefined
  let whole: ResumedRequest | undefined
  let stands = 'agent'
  while (!late.aborted) {
    try {
      const seen = await withAgent(
        instance,
        async (agent, connection) => {
          whole ??= {
            ...request,
            identity: await ownIdentity(connection, request.identity, macs),
            timeNs: BigInt(Date.now()) * 1_000_000n,
          }
          number = (await agent.resumed(whole, { timeoutMs: STEP_MS })).number
          instance.recorded.timeline?.answered()
          const told = await agent.getResume(
            { number, timeoutMs: LOOK_AT_REPAIR_MS },
            { timeoutMs: LOOK_AT_REPAIR_MS + STEP_MS },
          )
          // A guest that is reached by a card has no new vsock device, which would end the detachment.
          if (told.state === 'ready') await agent.attach({}, { timeoutMs: STEP_MS })
          return told
        },
        READY_MS,
      )
      const { name = stands, reason = '' } = seen.steps.findLast((step) => step.state !== 'skipped') ?? {}
      stands = name
      if (seen.state !== 'running') instance.recorded.timeline?.guest(seen.steps)
      if (seen.state === 'ready') return
      const failed = seen.steps.find((step) => step.state === 'failed')
      if (seen.state === 'failed')
        throw new AgentError(
          'FAILED_PRECONDITION',
          `its guest runs and is not ready: step ${failed?.name ?? name}: ${failed?.reason ?? reason}`,
        )
    } catch (error) {
      instance.ending.throwIfAborted()
      if (!(error instanceof AgentError) || !PASSES.includes(error.code)) throw error
      instance.context.log.debug('guest not asked', { error: messageOf(error) })
    }
  }
  throw new AgentError(
    'DEADLINE_EXCEEDED',
    `its guest runs and is not ready: step ${stands}: no end within ${READY_MS} ms`,
  )
}

/** A connection over a device that was just plugged in may be lost. */
const PASSES: readonly string[] = ['UNAVAILABLE', 'DEADLINE_EXCEEDED', 'CANCELLED']
