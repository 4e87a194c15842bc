import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { InputLog } from '../../../src/agent/policy/input-log.ts'
import { Policy } from '../../../src/agent/policy/policy.ts'
import type { DeclaredMethod } from '../../../src/agent/service/rpc.ts'
import { declaredMethods } from '../../../src/agent/service/services.ts'
import { wrap } from '../../../src/agent/service/wrapper.ts'
import { neverAborted } from '../../../src/base/abort.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { RecordedCall } from '../../../src/ctl/recording/recording.ts'
import { payloadOf } from '../../../src/ctl/recording/wire.ts'
import { SetPolicyRequest } from '../../../src/gen/agent.ts'
import { Totals } from '../../../src/rpc/limits.ts'
import type { IncomingCall } from '../../../src/rpc/method.ts'
import { RequestJournal } from '../../../src/state/request-journal.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { recordingNamed } from '../../recordings/recording.ts'
import { silentCalls } from '../../support/agent/calls-in-flight.ts'
import { keptOutcomes } from '../../support/agent/kept-outcomes.ts'
import { serviceDependencies } from '../../support/agent/service-dependencies.ts'
import { FakePolicyEngines } from '../../support/fakes/fake-policy-engines.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import { FakeRequests } from '../../support/handlers/fake-requests.ts'

const INPUTS = join(import.meta.dirname, '../../fixtures/recordings/policy-inputs.jsonl')
const incoming: IncomingCall = {
  ...{ timeoutMs: undefined, hangup: neverAborted, peer: 'test', framing: 'ttrpc' },
  ...{ number: undefined, ageMs: 0 },
}

describe('the inputs of checks', () => {
  it('are those of Kata’s agent, line by line, for the recorded calls', async () => {
    const calls = recordingNamed('agent-ctl.every-command').lines.filter((line) => line.kind === 'call')
    const lines: string[] = []
    const policy = policyOf(calls, lines)
    await policy.load({ path: '/default-policy.rego', text: 'of the image' })
    const log = silentLogger()
    const requests = new RequestJournal(new StateStore(new MemoryStateFiles()), log, new FakeRequests())
    const gate = { isOpen: true, wait: async () => {} }
    const wrapper = {
      log,
      gate,
      policy,
      requests,
      outcomes: keptOutcomes({ requests }),
      names: { bringUpToDate: () => {} },
      totals: new Totals(),
      calls: silentCalls(),
      nowMs: () => 0,
    }
    const methods = declaredMethods({ ...(await serviceDependencies()), policy })
    for (const call of calls) {
      const method = methods.find(({ name }) => name === `${call.service}/${call.method}`)
      if (method === undefined) throw new Error(`${call.method}: not declared`)
      await wrap(withoutWork(method), wrapper)(payloadOf(call), incoming)
    }
    const recorded = readFileSync(INPUTS, 'utf8').trimEnd().split('\n')
    expect(lines.map(withSortedSets)).toEqual(recorded.map(withSortedSets))
  })
})

/** A policy that allows everything and writes its inputs to `lines`. */
function policyOf(calls: readonly RecordedCall[], lines: string[]): Policy {
  const set = calls.filter(({ method }) => method === 'SetPolicy').map(({ requestBytes }) => requestBytes)
  const texts = set.map((bytes) => SetPolicyRequest.decode(bytes ?? Buffer.alloc(0)).policy)
  const rules = new Proxy({}, { get: () => () => true })
  const log = silentLogger()
  return new Policy({
    engines: () =>
      new FakePolicyEngines(Object.fromEntries(['of the image', ...texts].map((text) => [text, rules]))),
    log,
    inputLog: new InputLog(async () => ({ append: async (line) => void lines.push(line.trimEnd()) }), log),
    state: new StateStore(new MemoryStateFiles()),
  })
}

/** Keeps the check of a method and drops its work, except that of SetPolicy. */
function withoutWork(method: DeclaredMethod<unknown, unknown>): DeclaredMethod<unknown, unknown> {
  if (method.name.endsWith('/SetPolicy')) return method
  const handle = async () => method.types.response.decode(new Uint8Array())
  return { ...method, rpc: { ...method.rpc, handle } }
}

/** agent-ctl holds capabilities in sets, whose order differs from run to run. */
function withSortedSets(line: string): string {
  return line.replace(
    /"(Bounding|Effective|Permitted)":\[([^\]]*)\]/g,
    (_all, name, items: string) => `"${name}":[${items.split(',').toSorted().join(',')}]`,
  )
}
