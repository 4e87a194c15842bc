import { writeFileSync } from 'node:fs'
import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { benchPod } from '../support/bench-pod.ts'
import { execTrue } from '../support/runtime-pair.ts'
import { collectSpans, type Span } from './collect-spans.ts'
import { type SystemCall, traceThreads } from './trace-threads.ts'

/**
 * `npm run bench -- trace CALL [RUNTIME [FILE]]`: what the agent does in each step of a call, as a Markdown table of
 * medians. `FILE` receives the system calls of the last round with their steps.
 */
const ROUNDS = 7
const WARM_UP_ROUNDS = 5
/** Time for the agent's work on a call after its answer. */
const AFTER_MS = 50
/** The agent gathers spans for 200 ms. */
const SPANS_MS = 400

const CALLS: Readonly<Record<string, (pod: AgentPod, id: string) => Promise<unknown>>> = {
  exec: (pod, id) => execTrue(pod.agent, 'model', id),
  life: async (pod, id) => {
    await (await pod.run(id, ['/bin/true'])).wait()
    await pod.remove(id)
  },
  check: ({ started }) => started.health.check({}),
  'write-stdin': ({ agent }) =>
    agent.writeStdin({ containerId: 'reader', execId: 'reader', data: Buffer.alloc(4096, 'x') }),
}

interface Counts {
  us: number
  calls: number
  otherCalls: number
  turns: number
  hops: number
  stateBytes: number
}

const COLUMNS: readonly (readonly [keyof Counts, string])[] = [
  ['us', 'us in strace'],
  ['calls', 'system calls'],
  ['otherCalls', 'of other threads'],
  ['turns', 'turns'],
  ['hops', 'hops'],
  ['stateBytes', 'bytes of state'],
]

const [name = 'exec', runtime = 'crun', file] = process.argv.slice(2)
const traced = CALLS[name]
if (traced === undefined) throw new Error(`${name}: unknown, want one of ${Object.keys(CALLS).join(', ')}`)
const rounds = await traceRounds(traced)
process.stdout.write(`${tableOf(rounds.map(({ counts }) => counts))}\n`)
if (file !== undefined) writeFileSync(file, `${rounds.at(-1)?.lines.join('\n')}\n`)

async function traceRounds(call: (pod: AgentPod, id: string) => Promise<unknown>) {
  const collector = await collectSpans()
  const pod = await benchPod({
    runtime,
    settings: { otlp_endpoint: JSON.stringify(collector.endpoint) },
  })
  try {
    await pod.run('model', ['/bin/sleep', '1000000'])
    await pod.run('reader', ['/bin/sh', '-c', 'cat > /dev/null'])
    for (let each = 0; each < WARM_UP_ROUNDS; each += 1) await call(pod, `warm-${each}`)
    const results = []
    for (let each = 0; each < ROUNDS; each += 1) {
      await sleep(SPANS_MS)
      collector.take()
      const trace = await traceThreads(pod.started.agentPid())
      await call(pod, `round-${each}`)
      await sleep(AFTER_MS)
      const systemCalls = await trace.end()
      await sleep(SPANS_MS)
      results.push(roundOf(systemCalls, collector.take()))
    }
    return results
  } finally {
    await pod.stop()
    collector.close()
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

interface Stretch {
  readonly name: string
  readonly fromUs: number
  readonly toUs: number
}

function roundOf(systemCalls: readonly SystemCall[], spans: readonly Span[]) {
  const stretches = stretchesOf(systemCalls, spans)
  const [first] = stretches
  const counts = new Map<string, Counts>()
  const lines: string[] = []
  for (const { name, fromUs, toUs } of stretches) countsOf(counts, name).us += toUs - fromUs
  for (const call of systemCalls) {
    // Earlier system calls belong to the previous call or to the tracing.
    if (first === undefined || call.atUs < first.fromUs - 2000) continue
    const within = stretches.findLast(({ fromUs, toUs }) => fromUs <= call.atUs && call.atUs < toUs)
    const stepName = within?.name ?? 'before, between and after'
    add(countsOf(counts, stepName), call)
    lines.push(`${call.isMain ? 'main' : 'pool'} [${stepName}] ${call.atUs - first.fromUs} ${call.text}`)
  }
  return { counts, lines }
}

function countsOf(all: Map<string, Counts>, name: string): Counts {
  const counts = all.get(name) ?? { us: 0, calls: 0, otherCalls: 0, turns: 0, hops: 0, stateBytes: 0 }
  all.set(name, counts)
  return counts
}

function add(counts: Counts, { isMain, isTurn, isHop, stateBytes }: SystemCall): void {
  if (isMain) counts.calls += 1
  else counts.otherCalls += 1
  if (isTurn) counts.turns += 1
  if (isHop) counts.hops += 1
  counts.stateBytes += stateBytes
}

/**
 * Spans are up to 1 ms early, because a call's begin has whole milliseconds; the read(2) of its request tells the offset.
 */
function stretchesOf(systemCalls: readonly SystemCall[], spans: readonly Span[]): readonly Stretch[] {
  const stretches = spans
    .filter(({ parent }) => parent === undefined)
    .flatMap((call) => {
      const method = call.name.split('/').at(-1) ?? ''
      const isRequest = ({ isMain, text, atUs }: SystemCall) =>
        isMain && /^(read|recvmsg)\(/.test(text) && text.includes(method) && atUs > call.fromUs - 500
      const lateUs = (systemCalls.find(isRequest)?.atUs ?? call.fromUs) - call.fromUs
      return [call, ...spans.filter(({ parent }) => parent === call.id)].map(
        ({ name, detail, fromUs, toUs }) => ({
          name: name === call.name ? method : `${method}: ${name === 'runtime' ? detail : name}`,
          fromUs: fromUs + lateUs,
          toUs: toUs + lateUs,
        }),
      )
    })
  return stretches.toSorted((a, b) => a.fromUs - b.fromUs)
}

function tableOf(rounds: readonly ReadonlyMap<string, Counts>[]): string {
  const names = [...new Set(rounds.flatMap((counts) => [...counts.keys()]))]
  const rows = names.map((name) => {
    const values = COLUMNS.map(([column]) =>
      medianOf(rounds.map((counts) => counts.get(name)?.[column] ?? 0)),
    )
    return [name, ...values.map((value) => value.toFixed(0))]
  })
  const sums = COLUMNS.map(([, title], index) =>
    title === 'us in strace' ? '' : String(rows.reduce((sum, row) => sum + Number(row[index + 1]), 0)),
  )
  const lines = [
    ['step', ...COLUMNS.map(([, title]) => title)],
    COLUMNS.map(() => '--').concat('--'),
    ...rows,
    ['sum', ...sums],
  ]
  return lines.map((cells) => `| ${cells.join(' | ')} |`).join('\n')
}

function medianOf(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0
}
