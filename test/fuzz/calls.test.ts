import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import { describe } from 'vitest'
import { serviceMethods } from '../../src/agent/service/services.ts'
import { silentLogger } from '../../src/base/log.ts'
import { ReadProfileRequest } from '../../src/gen/microvm/agent/v1/introspection.ts'
import { GetResumeRequest } from '../../src/gen/microvm/agent/v1/lifecycle.ts'
import { Totals } from '../../src/rpc/limits.ts'
import type { MethodTable, Outcome } from '../../src/rpc/method.ts'
import { allRecordings } from '../recordings/recording.ts'
import { silentCalls } from '../support/agent/calls-in-flight.ts'
import { keptOutcomes } from '../support/agent/kept-outcomes.ts'
import { serviceDependencies } from '../support/agent/service-dependencies.ts'
import type { FakeOs } from '../support/fakes/fake-os.ts'
import { mutated } from '../support/fuzz/bytes.ts'
import { fuzz } from '../support/fuzz/fuzz.ts'
import { type AnyCall, anyCalls, showCall } from '../support/fuzz/requests.ts'

const RECORDED: readonly (readonly AnyCall[])[] = allRecordings().map(({ lines }) =>
  lines.flatMap((line) =>
    line.kind !== 'call' || line.requestBytes === undefined
      ? []
      : [{ method: `${line.service}/${line.method}`, payload: line.requestBytes }],
  ),
)

/** The turns of the event loop until the next call, whether the caller then leaves, and the call's limit. */
const HOW = fc.record({
  turns: fc.nat(12),
  leaves: fc.boolean(),
  timeoutMs: fc.constantFrom(undefined, undefined, undefined, 0, 1),
})

interface Step extends AnyCall {
  readonly how: typeof HOW extends fc.Arbitrary<infer T> ? T : never
}

const PATIENT = { turns: 40, leaves: false, timeoutMs: undefined }

/** The first calls of a recording, then others of it with gaps, changes and additions. */
function steps(): fc.Arbitrary<readonly Step[]> {
  const others = anyCalls()
  return fc.constantFrom(...RECORDED).chain((calls) => {
    const own = fc.constantFrom(...calls)
    const changed = own.chain(({ method, payload }) =>
      mutated([payload]).map((bytes) => ({ method, payload: bytes })),
    )
    const call = fc.oneof(
      { weight: 3, arbitrary: own },
      { weight: 3, arbitrary: changed },
      { weight: 2, arbitrary: others },
    )
    return fc
      .tuple(fc.nat(8), fc.array(fc.tuple(call, HOW), { minLength: 1, maxLength: 6 }))
      .map(([first, rest]) => [
        ...calls.slice(0, first).map((one) => ({ ...one, how: PATIENT })),
        ...rest.map(([one, how]) => ({ ...one, how })),
      ])
  })
}

describe('the calls of all services', () => {
  fuzz('calls/sequences', {
    share: 30,
    batch: 100,
    input: steps(),
    show: (list) => list.map((step) => `${showCall(step)} ${JSON.stringify(step.how)}`).join('\n'),
    run: callAll,
  })
})

const LINKS = [
  ['eth0', '02:00:00:00:99:02'],
  ['eth1', 'b6:97:f5:62:37:bf'],
  ['eth2', 'f2:50:9d:37:a3:45'],
] as const

/** More turns of the loop, with time passing, than any call needs. */
const MOST_TURNS = 3000

/** Each call must end with a status, not with a fault of the program, and release its limits. */
async function callAll(list: readonly Step[]): Promise<void> {
  const { os, ...dependencies } = await serviceDependencies({ memAgent: true })
  await furnish(os)
  const before = held(os)
  const totals = new Totals()
  const gate = { isOpen: true, wait: async () => {} }
  const calls = silentCalls()
  const methods = serviceMethods(dependencies, {
    ...{ log: silentLogger(), gate, totals, calls, nowMs: () => 0 },
    outcomes: keptOutcomes(dependencies.sandbox),
  })
  const open: { readonly hangup: AbortController; readonly outcome: Promise<Outcome> }[] = []
  for (const { method: name, payload, how } of list) {
    const { turns, leaves, timeoutMs } = how
    const hangup = new AbortController()
    const method = methods.get(name)
    if (method === undefined) throw new Error(`${name}: no such method`)
    const outcome = method.serve(payload, {
      timeoutMs,
      hangup: hangup.signal,
      peer: 'test',
      framing: 'ttrpc',
      number: undefined,
      ageMs: 0,
    })
    open.push({ hangup, outcome })
    for (let count = 0; count < turns; count++) await turn()
    if (leaves) hangup.abort()
  }
  for (const { hangup } of open) hangup.abort()
  let outcomes: readonly Outcome[] | undefined
  void Promise.all(open.map(({ outcome }) => outcome)).then((all) => {
    outcomes = all
  })
  for (let turns = 0; outcomes === undefined || isInUse(totals); turns++) {
    if (turns === MOST_TURNS)
      throw new Error(
        `still open: ${outcomes === undefined ? 'calls' : 'work'}, ${JSON.stringify(totals.uses())}`,
      )
    await turn()
    os.clock.advance(turns)
  }
  // A repair goes on when its call has been answered.
  await served(methods, os, 'microvm.agent.v1.Lifecycle/GetResume', LAST_REPAIR)
  await served(methods, os, 'grpc.AgentService/DestroySandbox', Buffer.of())
  await discardProfiles(methods, list.length)
  const after = held(os)
  if (after !== before) throw new Error(`left: ${after}, before it was ${before}`)
  for (const outcome of outcomes) {
    if (outcome.ok) outcome.delivered?.(false)
    else if (isFaultOfProgram(outcome.message)) throw new Error(`${outcome.code} ${outcome.message}`)
  }
}

/** The parts of a guest that the recorded calls need. */
async function furnish(os: FakeOs): Promise<void> {
  for (const [name, hardwareAddress] of LINKS) os.network.addLink({ name, hardwareAddress })
  await os.files.put('/proc/sys/net/ipv4/ip_unprivileged_port_start', '1024\n')
  await os.files.put('/sys/devices/system/cpu/possible', '0\n')
  os.tools.script(([program = '']) => (/\/ip6?tables-/.test(program) ? {} : undefined))
}

function held({ streams, exits, clock, consoles }: FakeOs): string {
  return `${streams.openFds.length} descriptors, ${exits.openWatches} watches of exits, ${clock.sleeping} timers, ${consoles.paths.length} consoles`
}

const LAST_REPAIR = GetResumeRequest.encode({ number: 0n, timeoutMs: 60_000 }).finish()

async function served(methods: MethodTable, os: FakeOs, name: string, payload: Uint8Array): Promise<void> {
  let isOver = false
  const call = {
    timeoutMs: undefined,
    hangup: new AbortController().signal,
    peer: 'test',
    framing: 'ttrpc',
    number: undefined,
    ageMs: 0,
  } as const
  const done = methods
    .get(name)
    ?.serve(payload, call)
    .then(() => {
      isOver = true
    })
  for (let turns = 0; !isOver; turns++) {
    if (turns === MOST_TURNS) throw new Error(`${name} does not end`)
    await turn()
    os.clock.advance(turns)
  }
  await done
}

/** A profile is kept until it is discarded, even after the sandbox's end. */
async function discardProfiles(methods: MethodTable, most: number): Promise<void> {
  const call = { timeoutMs: undefined, hangup: new AbortController().signal, peer: 'test', ageMs: 0 }
  for (let count = 1; count <= most; count++) {
    for (const kind of ['cpu', 'heap']) {
      const request = ReadProfileRequest.fromPartial({ id: `${kind}-${count}`, discard: true })
      const payload = ReadProfileRequest.encode(request).finish()
      const method = methods.get('microvm.agent.v1.Introspection/ReadProfile')
      await method?.serve(payload, { ...call, framing: 'ttrpc', number: undefined })
    }
  }
}

function isInUse(totals: Totals): boolean {
  return totals.uses().some(({ used }) => used !== 0)
}

/** Texts of JavaScript's own errors; they show a missing check. */
function isFaultOfProgram(message: string): boolean {
  return /Cannot (read|set|convert|mix|destructure|access)|is not (a function|iterable|defined|an? object|a constructor)|Invalid (array|string|time|typed|regular|count|Date)|Maximum call stack|TypeError|RangeError|SyntaxError|ERR_[A-Z_]+|argument must be|out of range|\[object /.test(
    message,
  )
}
